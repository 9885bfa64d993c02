"""The study of the claims about effects."""

from __future__ import annotations

from querist.claims.effects import CLAIMS
from querist.claims.study import ClaimsStudy, questions_of, stages_of, tables_of

__all__ = ["RoomClaims"]


class RoomClaims(ClaimsStudy):
    """`querist claims 'effects.*'`."""

    room = "effects"
    claims = CLAIMS
    stages = stages_of(CLAIMS)
    tables = tables_of(CLAIMS)
    questions = questions_of(CLAIMS)
