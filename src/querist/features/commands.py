"""The room's commands."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from querist.features.configs import CompareConfig, CompareOptions
from querist.reports.command import CommonOptions, carry_out

__all__ = ["app"]

app = App(name="features", help="What do a network's layers keep of the data they see?")


@app.command
def compare(
    model: str,
    /,
    *,
    source: str = "",
    target: tuple[str, ...] = (),
    options: Annotated[CompareOptions, Parameter(name="*")] = CompareOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """How far the law of each layer of a frozen network lies from its source on new data, beside its null.

    Parameters
    ----------
    model
        package.module:factory[?key=value][@weights], a .pt2, .ts or .onnx file.
    source
        Data that the network knows: a registered name, folder:DIR, npz:FILE, idx:IMAGES,LABELS, parquet:FILE, csv:FILE,
        text:FILE, package.module:factory; #split or #a:b names a part.
    target
        New data; may be given several times.
    """
    from querist.features.studies.compare import CompareStudy

    config = CompareConfig.build(**options.model_dump(), model=model, source=source, target=target)
    return carry_out(CompareStudy(), config, common)
