"""The room's commands."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from querist.features.configs import CompareConfig, CompareOptions, FreezeConfig, FreezeOptions, RankConfig, RankOptions
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


@app.command
def rank(
    models: tuple[str, ...] = (),
    /,
    *,
    target: str = "",
    source: str = "",
    options: Annotated[RankOptions, Parameter(name="*")] = RankOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Which network and layer to start from for labelled data: scores beside permuted labels and plain baselines.

    Parameters
    ----------
    models
        One or more of package.module:factory[?key=value][@weights], a .pt2, .ts or .onnx file.
    target
        Labelled data: a registered name, folder:DIR, npz:FILE?x=..&y=.., idx:IMAGES,LABELS, package.module:factory.
    source
        Data that the networks know; with it their distance to the target stands among the baselines.
    """
    from querist.features.studies.rank import RankStudy

    config = RankConfig.build(**options.model_dump(), models=models, target=target, source=source)
    return carry_out(RankStudy(), config, common)


@app.command
def freeze(
    model: str,
    /,
    *,
    target: tuple[str, ...] = (),
    source: str = "",
    options: Annotated[FreezeOptions, Parameter(name="*")] = FreezeOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """How many blocks can be frozen: trained on new data from pretrained weights and from weights that lost them.

    Parameters
    ----------
    model
        package.module:factory[?key=value][@weights].
    target
        Labelled data to train on; may be given several times.
    source
        Data that the network knows; with it the gap A_l between source and target is recorded.
    """
    from querist.features.studies.freeze import FreezeStudy

    config = FreezeConfig.build(**options.model_dump(), model=model, target=target, source=source)
    return carry_out(FreezeStudy(), config, common)
