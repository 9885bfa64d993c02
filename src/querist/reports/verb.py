"""What the verbs of every room do alike: several things given at once, and the asking."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, TypeVar

from querist.errors import BadInput, InvariantBroken
from querist.reports.ask import ask
from querist.reports.result import Result
from querist.runs.carry import UnitsFailed
from querist.runs.study import Study, StudyConfig

__all__ = ["answered", "several"]

R = TypeVar("R", bound=Result)


def several(what: Any, name: str) -> dict[str, Any]:
    """Things by name: a dictionary of things, a list of them (numbered), or one. A dictionary of tensors is one thing."""
    if isinstance(what, Mapping) and not any(hasattr(one, "dtype") for one in what.values()):
        return {str(key): one for key, one in what.items()}
    if isinstance(what, list) and what:
        return {name: what[0]} if len(what) == 1 else {f"{name}-{i + 1}": one for i, one in enumerate(what)}
    return {name: what}


def answered(
    kind: type[R],
    study: Study[Any],
    config: StudyConfig,
    *,
    out: str | os.PathLike[str] | None,
    engine: str,
    resume: bool,
    progress: Any,
) -> R:
    """A study's result as a verb gives it. In memory it is silent unless progress is asked for; where a unit failed of bad input
    or a broken invariant, that is what is raised."""
    quiet = False if out is None and progress is None else progress
    try:
        result = ask(study, config, out=out, engine=engine, resume=resume, progress=quiet)
    except UnitsFailed as failed:
        if isinstance(failed.__cause__, BadInput | InvariantBroken):
            raise failed.__cause__ from failed
        raise
    return kind(**{field.name: getattr(result, field.name) for field in dataclasses.fields(result)})
