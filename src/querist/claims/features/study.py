"""The study of the claims about features."""

from __future__ import annotations

from querist.claims.features import CLAIMS
from querist.claims.study import ClaimsStudy, questions_of, stages_of, tables_of

__all__ = ["RoomClaims"]


class RoomClaims(ClaimsStudy):
    """`querist claims 'features.*'`."""

    room = "features"
    claims = CLAIMS
    stages = stages_of(CLAIMS)
    tables = tables_of(CLAIMS)
    questions = questions_of(CLAIMS)
