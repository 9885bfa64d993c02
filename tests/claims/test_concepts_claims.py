"""The claims about concepts end to end, in miniature: they are a study, and what they measure is what they say."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tests.harness import check_study
from torch import nn

from querist.claims.claim import Size
from querist.claims.concepts import CLAIMS
from querist.claims.concepts.family import CLEAN, GROUPS, head_tables, head_targets, renderer_models
from querist.claims.concepts.pixels import invert_pixels
from querist.claims.concepts.study import RoomClaims
from querist.claims.configs import ClaimsConfig
from querist.claims.study import questions_of, stages_of, tables_of
from querist.concepts.data import ConceptData
from querist.errors import BadOption, NonFinite

SHARED = {
    "n": 108,
    "epochs": 1,
    "targets": (0, 3),
    "tables": ("zoo",),
    "head": "mlp:8",
    "head_epochs": 2,
    "permutations": 19,
    "table_repeats": 1,
    "pictures": 24,
    "eps": (8 / 255, 32 / 255),
    "steps": 2,
    "restarts": 1,
    "rows": 4,
}


def tiny(claim):
    size = claim.sizes["small"]
    numbers = {name: SHARED.get(name, value) for name, value in size.numbers.items()}
    if "table_targets" in numbers:
        numbers |= {"tables": ("zoo",), "table_targets": numbers["table_targets"] and 2}
    small = Size(min(size.seeds, 2), numbers)
    return dataclasses.replace(claim, sizes={"small": small, "full": small})


class TinyClaims(RoomClaims):
    claims = tuple(map(tiny, CLAIMS))
    stages = stages_of(claims)
    tables = tables_of(claims)
    questions = questions_of(claims)


@pytest.mark.browser
def test_the_claims_about_concepts_are_a_study(tmp_path, chromium):
    result = check_study(TinyClaims, ClaimsConfig(), tmp_path, chromium=chromium)
    assert [row["id"] for row in result.ledger.to_dicts()] == [claim.id for claim in CLAIMS]
    assert {name.partition(".")[0] for name in result.figures} == {claim.name for claim in CLAIMS}
