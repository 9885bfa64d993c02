"""Does a comparison keep its levels: gaps found where there is none, gaps denied where there is one, random networks among their like?"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.features.small import Pixels, normal, tiny_net
from tests.harness import check_level

from querist.features import compare
from querist.features.profile import gap
from querist.features.random_nets import random_net
from querist.features.studies.compare_verdicts import gap_verdict
from querist.statistics import stream

pytestmark = pytest.mark.slow


def test_a_gap_is_denied_falsely_no_more_often_than_the_level():
    """The true gap, .12, is above the margin .1: no is wrong."""

    def denied(seed: int) -> float:
        rng = stream(seed, "denied")
        S, T = rng.standard_normal((200, 4)), rng.standard_normal((200, 4)) + 0.12
        found = gap(S, T, projections=16, splits=10, permutations=39)
        return 0.0 if gap_verdict(found, 0.1, 0.05) == "no" else 1.0

    check_level(denied, lambda rng: int(rng.integers(1 << 30)), conservative=True)


def test_any_gap_over_layers_and_targets_is_found_falsely_at_the_level():
    def p(seed: int) -> float:
        found = compare(
            Pixels(),
            source=normal(60, seed=seed),
            target=[normal(30, seed=seed + 1), normal(30, seed=seed + 2)],
            probe=False,
            n=60,
            projections=8,
            splits=2,
            permutations=39,
            seed=seed,
        )
        return found.summary["min_p_adj"]

    check_level(p, lambda rng: int(rng.integers(1 << 30)), runs=200, within=0.03)


def test_a_random_network_among_random_ones_has_a_uniform_p():
    def values(seed: int) -> dict[str, float]:
        def pictures(n: int, salt: int, shift: float = 0.0) -> torch.Tensor:
            return normal(n, 3 * 64, seed=10 * seed + salt, shift=shift).reshape(n, 3, 8, 8)

        source = pictures(40, 1)
        net = random_net(tiny_net(), source, repeat=1000, seed=seed, n=40)
        found = compare(
            net,
            source=source,
            target=pictures(40, 2, shift=0.5),
            random_nets=9,
            probe=False,
            n=40,
            projections=16,
            splits=3,
            permutations=19,
            seed=seed,
        )
        return {f"{r['statistic']} {r['frame']}": r["p"] for r in found.consistency.to_dicts() if r["p"] is not None}

    runs = [values(seed) for seed in range(150)]
    for name in ("C source", "C own", "tau own"):
        p = np.array([run[name] for run in runs])
        # Ten equally likely values (more where draws tie, which only raises p): the share at or below .1 is at most .1.
        assert np.mean(p <= 0.1) <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / len(p)), name
        assert abs(p.mean() - 0.55) < 0.1 or name.startswith("tau"), name
