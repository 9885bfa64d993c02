"""How often is a matrix of independent entries called trained? The whole rule, from entries to verdict."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from querist.sources.tensors import open_source
from querist.statistics import stream
from querist.weights.configs import ScanConfig
from querist.weights.spectrum import matrices
from querist.weights.studies.measure import measure
from querist.weights.studies.settle import settled
from querist.weights.studies.verdicts import Draws, layer_findings
from querist.weights.tables import LAYERS

pytestmark = pytest.mark.slow

RUNS = 400
WITHIN = 0.022  # two standard errors at 400 runs


def verdicts(W: np.ndarray, config: ScanConfig) -> dict[str, str]:
    """The verdicts on one matrix that is a run of its own."""
    (matrix,), _ = matrices(open_source({"w": torch.from_numpy(W.astype(np.float32))}).refs)
    measured = measure(matrix, config)
    row = settled(LAYERS.frame([{**measured.row, "position": 0}]), config.nulls).to_dicts()[0]
    found = layer_findings(row, Draws.of(measured.null_draws), config.nulls)
    return {finding.question.removeprefix("weights."): finding.verdict for finding in found}


def entries(kind: str, h: int, d: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_t(3, (h, d)) if kind == "t3" else rng.standard_normal((h, d))


@pytest.mark.parametrize(
    ("h", "d", "replicas"), [(40, 40, 3), (90, 60, 2), (90, 60, 3), (90, 60, 9), (60, 90, 3), (400, 60, 3)]
)
@pytest.mark.parametrize("kind", ["normal", "t3"])
def test_independent_entries_are_called_trained_no_more_than_one_in_twenty(kind, h, d, replicas):
    said: dict[str, Counter] = {"trained": Counter(), "bulk": Counter(), "spikes": Counter()}
    for run in range(RUNS):
        rng = stream(run, "trained", kind, h, d)
        found = verdicts(entries(kind, h, d, rng), ScanConfig(seed=run, replicas=replicas))
        for question, counts in said.items():
            counts[found[question]] += 1
    told = {question: dict(counts) for question, counts in said.items()}
    assert said["trained"]["yes"] / RUNS <= 0.05 + WITHIN, told
    assert said["bulk"]["yes"] / RUNS <= 0.025 + WITHIN, told
    if (
        kind == "normal" and replicas > 2
    ):  # "cannot say" is no way out: the distance is the largest of four in a quarter
        assert said["trained"]["no"] / RUNS >= 0.65, told


@pytest.mark.parametrize("strength", [1.5, 3.0])
def test_a_trace_of_training_is_seen(strength):
    """A rank-one term of `strength` times the threshold in 300 x 200 normal entries."""
    runs, yes = 40, 0
    for run in range(runs):
        rng = stream(run, "trained", "spike", strength)
        u, v = rng.standard_normal(300), rng.standard_normal(200)
        spike = strength * (300 * 200) ** 0.25 * np.outer(u / np.linalg.norm(u), v / np.linalg.norm(v))
        yes += verdicts(rng.standard_normal((300, 200)) + spike, ScanConfig(seed=run))["trained"] == "yes"
    assert yes / runs >= 0.9
