"""The room's commands."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from querist.reports.command import CommonOptions, carry_out
from querist.weights.configs import CompareConfig, CompareOptions, ScanConfig, ScanOptions

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


@app.command
def compare(
    base: str,
    tuned: str,
    /,
    *,
    options: Annotated[CompareOptions, Parameter(name="*")] = CompareOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """What tuning changed: size, rank and directions of each matrix's update, and where it lies in the matrix.

    Parameters
    ----------
    base
        The checkpoint before tuning: whatever `weights scan` reads.
    tuned
        The checkpoint after tuning, or an adapter: a LoRA folder or file with its adapter_config.json.
    """
    from querist.weights.studies.compare import CompareStudy

    config = CompareConfig.build(**options.model_dump(), base=base, tuned=tuned)
    return carry_out(CompareStudy(), config, common)
