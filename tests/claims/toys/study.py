"""The study of the toy claims."""

from __future__ import annotations

from tests.claims.toys import CLAIMS

from querist.claims.study import ClaimsStudy, questions_of, stages_of, tables_of


class RoomClaims(ClaimsStudy):
    room = "toys"
    claims = CLAIMS
    stages = stages_of(CLAIMS)
    tables = tables_of(CLAIMS)
    questions = questions_of(CLAIMS)
