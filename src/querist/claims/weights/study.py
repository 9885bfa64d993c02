"""The study of the claims about weights."""

from __future__ import annotations

from querist.claims.study import ClaimsStudy, questions_of, stages_of, tables_of
from querist.claims.weights import CLAIMS

__all__ = ["RoomClaims"]


class RoomClaims(ClaimsStudy):
    """`querist claims 'weights.*'`."""

    room = "weights"
    claims = CLAIMS
    stages = stages_of(CLAIMS)
    tables = tables_of(CLAIMS)
    questions = questions_of(CLAIMS)
