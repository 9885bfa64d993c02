"""The finding: one question asked of one subject, answered beside its null."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from querist.errors import InvariantBroken

__all__ = ["FINDING_FIELDS", "VERDICTS", "Finding", "Verdict"]

Verdict = Literal["yes", "no", "cannot say"]
VERDICTS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer.

    `estimate`, `low`, `high` and `null` are in `unit`; `p` is the one the verdict was taken from, adjusted where a family
    was tested. `because` is one plain sentence with the numbers in it. A number that does not exist is None, never NaN.
    """

    subject: str
    question: str
    estimate: float | None
    unit: str
    low: float | None
    high: float | None
    null: float | None
    p: float | None
    verdict: Verdict
    because: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise InvariantBroken(f"finding {self.question} of {self.subject}: verdict {self.verdict!r}")
        for name in ("estimate", "low", "high", "null", "p"):
            value = getattr(self, name)
            if value is not None:
                value = float(value)
                object.__setattr__(self, name, value if math.isfinite(value) else None)

    def as_dict(self) -> dict[str, Any]:
        """The ten fields, in order, as plain JSON values."""
        return {name: getattr(self, name) for name in FINDING_FIELDS}


FINDING_FIELDS: tuple[str, ...] = tuple(Finding.__dataclass_fields__)
