"""Does a comparison say yes as rarely as it promises where there is nothing to find, and does it find what is there?"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from querist.statistics import stream
from querist.weights import compare

pytestmark = pytest.mark.slow


def draw(kind: str, rng: np.random.Generator, h: int = 48, d: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix and an update that knows nothing of its directions."""
    scale = np.exp(rng.standard_normal((h, 1)))
    W, D = rng.standard_normal((h, d)), rng.standard_normal((h, d))
    if kind == "heavy":
        W, D = rng.standard_t(3, (h, d)), rng.standard_t(3, (h, d))
    elif kind == "own rows":
        W, D = W * np.exp(rng.standard_normal((h, 1))), D * scale
    elif kind == "shared rows":
        W, D = W * scale, D * scale
    elif kind == "low rank":
        D = rng.standard_normal((h, 4)) @ rng.standard_normal((4, d))
    elif kind == "spiked base":
        W = W + 12 * np.outer(*(x / np.linalg.norm(x) for x in (rng.standard_normal(h), rng.standard_normal(d))))
    elif kind == "decay":
        D = D - 8 * W
    elif kind == "unrelated":
        D = 10 * (D - W)
    return torch.from_numpy(W).float(), torch.from_numpy(0.1 * D).float()


def layers(kind: str, runs: int) -> tuple[dict, dict]:
    base, tuned = {}, {}
    for run in range(runs):
        W, D = draw(kind, stream(run, "compare", kind))
        base[f"l{run}"], tuned[f"l{run}"] = W, W + D
    return base, tuned


@pytest.mark.parametrize("kind", ["normal", "low rank", "spiked base"])
def test_overlaps_of_rotation_free_updates_are_those_of_random_directions(kind):
    """Where the update has no preferred direction the Beta law holds. The smaller p of both sides is doubled."""
    p = compare(*layers(kind, 600), k=8).table["overlap_p"].to_numpy()
    for level, within in ((0.05, 0.022), (0.2, 0.04)):
        assert level / 2.5 <= (p <= level).mean() <= level + within


@pytest.mark.parametrize(("kind", "least"), [("heavy", 0.08), ("own rows", 0.2), ("shared rows", 0.9)])
def test_random_directions_alone_are_no_null_of_uneven_entries(kind, least):
    """Large entries and rows draw leading directions to the axes: the Beta law rejects too often, hence the sign flips."""
    p = compare(*layers(kind, 300), k=8, rank_replicas=0).table["overlap_p"].to_numpy()
    assert (p <= 0.05).mean() > least


@pytest.mark.parametrize(
    "kind", ["normal", "heavy", "own rows", "shared rows", "low rank", "spiked base", "decay", "unrelated"]
)
def test_alignment_is_not_found_where_there_is_none(kind):
    base, tuned = layers(kind, 200)
    said = Counter()
    for name in base:  # one run a matrix: no adjustment over layers helps
        result = compare({name: base[name]}, {name: tuned[name]}, k=8)
        said.update(f.verdict for f in result.findings if f.question == "weights.aligned" and f.subject == name)
    assert said["yes"] <= 0.02 * len(base), said


def test_spikes_of_changes_that_are_noise_are_one_in_twenty():
    said = []
    for run in range(300):
        W, D = draw("normal", stream(run, "spikes"))
        row = compare({"w": W}, {"w": W + D}, nulls=("shuffle", "signflip"), seed=run).table.to_dicts()[0]
        said.append(row["delta_p_rank"] is not None and row["delta_p_rank"] <= 0.05 and row["delta_n_spikes"] > 0)
    assert np.mean(said) <= 0.05 + 0.022


def test_saved_copies_of_many_layers_are_no_change():
    wrong = 0
    for run in range(20):
        rng = stream(run, "saved")
        base = {f"l{i}": torch.from_numpy(rng.standard_normal((48, 32))).float() for i in range(40)}
        result = compare(base, {name: W.bfloat16() for name, W in base.items()}, seed=run)
        wrong += any(f.verdict == "yes" for f in result.findings if f.question == "weights.changed")
    assert wrong <= 1


@pytest.mark.parametrize(("strength", "least"), [(1.5, 0.85), (2.5, 0.99)])
def test_a_rank_one_update_above_the_threshold_is_found(strength, least):
    found = 0
    runs = 100
    for run in range(runs):
        rng = stream(run, "power", strength)
        W, D = (torch.from_numpy(rng.standard_normal((120, 90))).float() for _ in range(2))
        u, v = (torch.from_numpy(rng.standard_normal(side)).float() for side in (120, 90))
        D = D + strength * (120 * 90) ** 0.25 * torch.outer(u / u.norm(), v / v.norm())
        row = compare({"w": W}, {"w": W + 0.1 * D}, seed=run).table.to_dicts()[0]
        found += bool(row["delta_n_spikes"]) and row["delta_p_adj"] <= 0.05
    assert found / runs >= least


def test_updates_along_the_base_are_found():
    found = 0
    runs = 60
    for run in range(runs):
        rng = stream(run, "along")
        W = torch.from_numpy(rng.standard_normal((120, 90))).float()
        U, _, Vh = torch.linalg.svd(W, full_matrices=False)
        D = 4 * U[:, :4] @ Vh[:4] + 0.05 * torch.from_numpy(rng.standard_normal((120, 90))).float()
        result = compare({"w": W}, {"w": W + D}, k=8, seed=run)
        found += any(
            f.verdict == "yes" for f in result.findings if f.question == "weights.aligned" and f.subject == "w"
        )
    assert found == runs
