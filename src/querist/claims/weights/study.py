"""The study of the claims about weights."""

from __future__ import annotations

from querist.claims.study import ClaimsStudy
from querist.claims.weights import CLAIMS

__all__ = ["RoomClaims"]


class RoomClaims(ClaimsStudy):
    """`querist claims 'weights.*'`."""

    room = "weights"
    claims = CLAIMS
