"""The room's commands."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from querist.effects.configs import (
    AllocateConfig,
    AllocateOptions,
    CheckConfig,
    CheckOptions,
    EvaluateConfig,
    EvaluateOptions,
    ExportConfig,
    ExportOptions,
    FitConfig,
    FitOptions,
    MonitorConfig,
    MonitorOptions,
    ScoreConfig,
    ScoreOptions,
)
from querist.reports.command import CommonOptions, carry_out

__all__ = ["app"]

app = App(name="effects", help="What does a treatment change?")


@app.command
def check(
    table: str,
    /,
    *,
    options: Annotated[CheckOptions, Parameter(name="*")] = CheckOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Can these arms be compared? Randomisation, balance, overlap, missing outcomes, detectable effects.

    Parameters
    ----------
    table
        Parquet file or folder, CSV, Arrow file, a registered name; #a:b names some rows.
    """
    from querist.effects.studies.check import CheckStudy

    config = CheckConfig.build(**options.model_dump(), table=table)
    return carry_out(CheckStudy(), config, common)


@app.command
def fit(
    table: str,
    /,
    *,
    options: Annotated[FitOptions, Parameter(name="*")] = FitOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """What do the arms change, for whom? Fits a model of natural response, base effect and increments; it lies in OUT/model.

    Parameters
    ----------
    table
        Parquet file or folder, CSV, Arrow file, a registered name; #a:b names some rows.
    """
    from querist.effects.studies.fit import FitStudy

    config = FitConfig.build(**options.model_dump(), table=table)
    return carry_out(FitStudy(), config, common)


@app.command
def evaluate(
    source: str,
    table: str,
    /,
    *,
    options: Annotated[EvaluateOptions, Parameter(name="*")] = EvaluateOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Is this model worth using? Its scores on other people, beside random order, natural response and the best single arm.

    Parameters
    ----------
    source
        A model folder, the run that fitted it, or column:NAME for a score that the table holds.
    table
        People that the model was not fitted on: Parquet file or folder, CSV, Arrow file, a registered name; #a:b names some rows.
    """
    from querist.effects.studies.evaluate import EvaluateStudy

    config = EvaluateConfig.build(**options.model_dump(), source=source, table=table)
    return carry_out(EvaluateStudy(), config, common)


@app.command
def score(
    model: str,
    table: str,
    output: str,
    /,
    *,
    options: Annotated[ScoreOptions, Parameter(name="*")] = ScoreOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Score a table of any size into a folder of Parquet files, row group by row group; killed, it goes on with --resume.

    Parameters
    ----------
    model
        A model folder, or the run that fitted it.
    table
        Parquet file or folder, CSV, Arrow file, a registered name; #a:b names some rows.
    output
        Folder of the scores' files; nothing else is written there.
    """
    from querist.effects.studies.score import ScoreStudy

    config = ScoreConfig.build(**options.model_dump(), model=model, table=table, output=output)
    return carry_out(ScoreStudy(), config, common)


@app.command
def allocate(
    scores: str,
    /,
    *,
    options: Annotated[AllocateOptions, Parameter(name="*")] = AllocateOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Who gets which arm under a budget: the largest predicted worth, its price, and what one arm alone would do.

    Parameters
    ----------
    scores
        A table of scores, as querist effects score writes it: a folder, a Parquet file.
    """
    from querist.effects.studies.allocate import AllocateStudy

    config = AllocateConfig.build(**options.model_dump(), scores=scores)
    return carry_out(AllocateStudy(), config, common)


@app.command
def monitor(
    model: str,
    before: str,
    after: str,
    /,
    *,
    options: Annotated[MonitorOptions, Parameter(name="*")] = MonitorOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Does the model still fit? Drift of features, scores and arm shares, realised against predicted effects.

    Parameters
    ----------
    model
        A model folder, or the run that fitted it.
    before
        The table it was fitted on or first used on: Parquet file or folder, CSV, Arrow file, a registered name.
    after
        A later one; with --arm and outcomes its realised effects are held against predictions.
    """
    from querist.effects.studies.monitor import MonitorStudy

    config = MonitorConfig.build(**options.model_dump(), model=model, before=before, after=after)
    return carry_out(MonitorStudy(), config, common)


@app.command
def export(
    model: str,
    /,
    *,
    options: Annotated[ExportOptions, Parameter(name="*")] = ExportOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Write a model as one graph for other programs, raw columns in and effects out; it lies in OUT/export.

    Parameters
    ----------
    model
        A model folder, or the run that fitted it.
    """
    from querist.effects.studies.export import ExportStudy

    config = ExportConfig.build(**options.model_dump(), model=model)
    return carry_out(ExportStudy(), config, common)
