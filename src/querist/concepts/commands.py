"""The room's commands."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from cyclopts import App, Parameter

from querist.concepts.configs import (
    AuditConfig,
    AuditOptions,
    DetectConfig,
    DetectOptions,
    PoisonConfig,
    PoisonOptions,
    RepairConfig,
    RepairOptions,
)
from querist.reports.command import CommonOptions, carry_out, default_folder

__all__ = ["app"]

app = App(name="concepts", help="What can be hidden in a model's concepts?")


@app.command
def audit(
    data: str,
    /,
    *,
    options: Annotated[AuditOptions, Parameter(name="*")] = AuditOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Is the owner's table suspicious, how exposed is a model trained on it, and what should be done?

    Everything is tried on copies: no input is changed.

    Parameters
    ----------
    data
        csv:FILE, parquet:FILE, npz:FILE, folder:DIR, render:birds?n=3600&seed=0, or a registered name (querist data list).
    """
    from querist.concepts.studies.audit import AuditStudy

    return carry_out(AuditStudy(), AuditConfig.build(**options.model_dump(), data=data), common)


@app.command
def poison(
    data: str,
    /,
    *,
    options: Annotated[PoisonOptions, Parameter(name="*")] = PoisonOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """A poisoned copy for assessment: poisoned.parquet, truth.parquet and trigger.json in --out, stamped as a copy.

    Parameters
    ----------
    data
        csv:FILE, parquet:FILE, npz:FILE, folder:DIR, render:birds?n=3600&seed=0, or a registered name (querist data list).
    """
    from querist.concepts.studies.poison import PoisonStudy, deliver
    from querist.reports.result import Result

    config = PoisonConfig.build(**options.model_dump(), data=data)
    out = common.out or default_folder("concepts", "poison")
    code = carry_out(PoisonStudy(), config, replace(common, out=out))
    deliver(Result.open(out), out)
    return code


@app.command
def detect(
    data: str,
    /,
    *,
    options: Annotated[DetectOptions, Parameter(name="*")] = DetectOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Which classes, concepts and rows of a table look planted, by every method that applies.

    With --truth the methods are held against it afterwards; none of them is given it.

    Parameters
    ----------
    data
        csv:FILE, parquet:FILE (as `concepts poison` writes it), npz:FILE, folder:DIR, render:birds, or a registered name.
    """
    from querist.concepts.studies.detect import DetectStudy

    return carry_out(DetectStudy(), DetectConfig.build(**options.model_dump(), data=data), common)


@app.command
def repair(
    data: str,
    /,
    *,
    options: Annotated[RepairOptions, Parameter(name="*")] = RepairOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Repairs of a model or table, each with accuracy and success before and after.

    Parameters
    ----------
    data
        csv:FILE, parquet:FILE (as `concepts poison` writes it), npz:FILE, folder:DIR, render:birds, or a registered name.
    """
    from querist.concepts.studies.repair import RepairStudy

    return carry_out(RepairStudy(), RepairConfig.build(**options.model_dump(), data=data), common)
