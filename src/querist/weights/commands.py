"""The room's commands."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from querist.reports.command import CommonOptions, carry_out
from querist.weights.configs import ScanConfig, ScanOptions

__all__ = ["app"]

app = App(name="weights", help="What did training leave in a network's weights?")


@app.command
def scan(
    source: str,
    /,
    *,
    options: Annotated[ScanOptions, Parameter(name="*")] = ScanOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Spectra of every matrix in a checkpoint: bulk, spikes, heavy tails, each beside its null.

    Parameters
    ----------
    source
        Checkpoint file or folder: safetensors (one file or sharded), a Hugging Face folder, hf:ORG/NAME, .pt .pth .bin
        .ckpt state dicts, TorchScript, torch.export .pt2, .onnx, .gguf, .npy, .npz.
    """
    from querist.weights.studies.scan import ScanStudy

    config = ScanConfig.build(**options.model_dump(), source=source)
    return carry_out(ScanStudy(), config, common)
