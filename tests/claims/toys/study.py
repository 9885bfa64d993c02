"""The study of the toy claims."""

from __future__ import annotations

from tests.claims.toys import CLAIMS

from querist.claims.study import ClaimsStudy


class RoomClaims(ClaimsStudy):
    room = "toys"
    claims = CLAIMS
