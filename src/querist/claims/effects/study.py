"""The study of the claims about effects."""

from __future__ import annotations

from querist.claims.effects import CLAIMS
from querist.claims.study import ClaimsStudy

__all__ = ["RoomClaims"]


class RoomClaims(ClaimsStudy):
    """`querist claims 'effects.*'`."""

    room = "effects"
    claims = CLAIMS
