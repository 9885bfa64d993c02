"""The exposure sweep alone: the audit's attacks without the rest."""

from __future__ import annotations

import os
from typing import Any

from querist.concepts.configs import AuditConfig
from querist.concepts.studies.audit import AuditStudy, asked
from querist.reports.result import Result

__all__ = ["Exposure", "ExposureStudy", "exposure"]


class ExposureStudy(AuditStudy):
    """The verb `exposure`: clean models, then a unit per target and repeat."""

    command = "exposure"
    whole = False


class Exposure(Result):
    """A sweep's answer: `exposure` holds a row per attack, `exposure_summary` one per setting."""


def exposure(
    data: Any,
    *,
    config: AuditConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> Exposure:
    """How exposed is a model trained on this table? The audit's attacks on copies, and nothing else.

    data: a DATA address or `ConceptData`. Further keywords are the fields of `AuditConfig` (targets, selectors, sizes, rates,
    poison_mode, repeats, …); they replace those of `config`. Run options as in `audit`. Raises as `audit`.
    """
    return asked(Exposure, ExposureStudy, data, None, None, config, out, engine, resume, progress, fields)
