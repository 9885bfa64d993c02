"""The room's commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from querist.reports.command import CommonOptions, carry_out
from querist.weights.configs import CompareConfig, CompareOptions, CraftConfig, PredictConfig, ScanConfig, ScanOptions

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
def craft(
    *,
    options: Annotated[CraftConfig, Parameter(name="*")] = CraftConfig(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Train small networks on a known teacher and watch bulk, spikes and tails grow, beside theory.

    Every optimiser at every rate, each repeat a unit of work: --optimizer gd,adam --eta .1,1,10 --repeats 10.
    """
    from querist.weights.studies.craft import CraftStudy

    return carry_out(CraftStudy(), CraftConfig.build(**options.model_dump()), common)


@app.command(name="predict-spike")
def predict_spike(
    *,
    options: Annotated[PredictConfig, Parameter(name="*")] = PredictConfig(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Will one step of an optimiser put an eigenvalue outside the bulk, and where? By theory, and by exact steps.

    The network is that of `weights craft` before training; --observe K makes K exact steps beside the prediction.
    """
    from querist.weights.studies.predict import PredictStudy

    return carry_out(PredictStudy(), PredictConfig.build(**options.model_dump()), common)


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


@app.command
def watch(
    run: Path,
    /,
    *,
    once: Annotated[bool, Parameter(negative=())] = False,
    open: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
    quiet: Annotated[bool, Parameter(negative=())] = False,
    fail_if: tuple[str, ...] = (),
) -> int:
    """Follow a training that a Monitor watches: a line per look, and a page that reloads itself, until the training ends.

    Parameters
    ----------
    run
        The folder that the Monitor was given as `out`.
    once
        Draw the page of what is there now and end.
    open
        Open the page in a browser.
    json
        Print the last summary as JSON on standard output and nothing else there.
    quiet
        No lines on standard error.
    fail_if
        Exit with 3 where this holds at the end, for example 'spikes.verdict == yes'; may be given several times.
    """
    from querist.weights.studies.following import watch_run

    return watch_run(run, once=once, show=open, as_json=json, quiet=quiet, fail_if=fail_if)
