"""The study of the claims about features."""

from __future__ import annotations

from querist.claims.features import CLAIMS
from querist.claims.study import ClaimsStudy

__all__ = ["RoomClaims"]


class RoomClaims(ClaimsStudy):
    """`querist claims 'features.*'`."""

    room = "features"
    claims = CLAIMS
