"""Findings that several commands of the room share: what was captured, and rows that two sets share."""

from __future__ import annotations

from collections.abc import Sequence

from querist.features.questions import CAPTURE_HEALTH, OVERLAPPING_IDS
from querist.results.finding import Finding

__all__ = ["capture_health", "overlapping"]

_SHOWN = 5


def capture_health(subject: str, captured: int, found: int, reasons: Sequence[str]) -> Finding:
    """Whether every layer was captured that was asked for, over all captures of a network."""
    share = captured / found if found else None
    whole = captured == found > 0
    because = f"{captured} of {found} layers that were asked for were captured"
    if not whole:
        more = f"; and {len(reasons) - _SHOWN} more" if len(reasons) > _SHOWN else ""
        because += f" ({'; '.join(reasons[:_SHOWN]) or 'no reason is known'}{more})"
    verdict = "yes" if whole else "no"
    return Finding(
        subject, CAPTURE_HEALTH.id, share, CAPTURE_HEALTH.unit, None, None, 1.0, None, verdict, f"{because}."
    )


def overlapping(subject: str, shared: int, n: int) -> Finding:
    """Whether two sets that should be independent share rows."""
    verdict = "yes" if shared else "no"
    because = f"{shared} of {n} examples are in both sets." if shared else f"None of {n} examples is in both sets."
    return Finding(
        subject, OVERLAPPING_IDS.id, float(shared), OVERLAPPING_IDS.unit, None, None, 0.0, None, verdict, because
    )
