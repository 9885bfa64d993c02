"""Which claims there are, by room; nothing but their words is imported."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from querist.claims.claim import Claim
from querist.errors import InvariantBroken, UnknownName, near

if TYPE_CHECKING:
    from querist.claims.study import ClaimsStudy

__all__ = ["ROOMS", "claims_of", "every_claim", "select", "study_of"]

ROOMS: dict[str, str] = {
    "weights": "querist.claims.weights",
    "features": "querist.claims.features",
    "concepts": "querist.claims.concepts",
    "effects": "querist.claims.effects",
}
"""Room to the package that holds its claims: `claims`, a tuple of Claim, and `study`, whose `Claims` is the room's study."""


def claims_of(room: str) -> tuple[Claim, ...]:
    """A room's claims, in their order."""
    found: tuple[Claim, ...] = importlib.import_module(ROOMS[room]).CLAIMS
    wrong = [claim.id for claim in found if claim.room != room]
    if wrong:
        raise InvariantBroken(f"claim {wrong[0]} is declared in the room {room}")
    return found


def every_claim() -> Mapping[str, Claim]:
    """Id to claim, room after room."""
    return {claim.id: claim for room in ROOMS for claim in claims_of(room)}


def study_of(room: str) -> ClaimsStudy:
    """A room's study."""
    return importlib.import_module(f"{ROOMS[room]}.study").RoomClaims()


def select(patterns: Iterable[str] = ()) -> dict[str, tuple[Claim, ...]]:
    """Claims that match any id or glob, by room in the ledger's order; all of them where none is given.

    Raises UnknownName, with the nearest ids, for a pattern that matches nothing.
    """
    known = every_claim()
    patterns = tuple(patterns)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise UnknownName(
                "No claim has this id, and none matches it",
                value=pattern,
                allowed=near(pattern, known, 8) or "there are no claims",
                mend="`querist claims --list` shows all of them",
            )
    chosen = [c for c in known.values() if not patterns or any(fnmatchcase(c.id, pattern) for pattern in patterns)]
    return {room: mine for room in ROOMS if (mine := tuple(claim for claim in chosen if claim.room == room))}
