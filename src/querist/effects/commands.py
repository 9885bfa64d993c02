"""The room's commands."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from querist.effects.configs import CheckConfig, CheckOptions, EvaluateConfig, EvaluateOptions, FitConfig, FitOptions
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
