"""Mergeable moments and histograms against numpy, batch by batch, from numpy and from torch."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch, UndefinedMetric
from querist.statistics import Histogram, Moments, moments


def test_moments_far_from_zero_keep_their_digits():
    x = np.random.default_rng(0).standard_normal(10_000) + 1e8
    found = Moments(1)
    for start in range(0, 10_000, 37):
        found.update(x[start : start + 37])
    assert found.variance[0] == pytest.approx(x.var(ddof=1), rel=1e-7)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_batches_are_taken_in_bounded_pieces(monkeypatch, kind):
    monkeypatch.setattr(moments, "PIECE", 12)
    x = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    rows = torch.from_numpy(x) if kind == "torch" else x
    assert np.allclose(Moments(3, covariance=True).update(rows).cov, np.cov(x.T.astype(float)))
    h = Histogram(np.linspace(-2, 2, 5)).update(rows, weight=np.arange(150))
    known = np.histogram(x, h.edges, weights=np.arange(150.0).reshape(50, 3))[0]
    assert h.counts.tolist() == known.tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.float64])
def test_torch_dtypes(dtype):
    x = torch.arange(-4, 8).reshape(6, 2).to(dtype).requires_grad_(dtype.is_floating_point)
    assert Moments(2).update(x).mean.tolist() == [1, 2]
    assert Histogram([-4.0, 0.0, 7.0]).update(x).counts.tolist() == [4, 8]


def test_what_is_not_finite_is_refused_whole_or_counted_by_column():
    seen = Moments(1).update([1.0, 2.0])
    for rows in (np.array([5.0, math.nan]), torch.tensor([5.0, math.inf])):
        with pytest.raises(NonFinite):
            seen.update(rows)
    assert (seen.n.tolist(), seen.mean.tolist()) == ([2], [1.5])
    for kind in (np.array, torch.tensor):
        found = Moments(2, skip_nonfinite=True).update(kind([[1.0, math.nan], [3.0, 5.0], [5.0, -math.inf]]))
        assert (found.n.tolist(), found.mean.tolist(), found.variance[0]) == ([3, 1], [3, 5], 4)
        assert (found.low.tolist(), found.high.tolist()) == ([1, 5], [5, 5])
        assert math.isnan(found.sd[1])


def test_moments_refuse():
    for call in (lambda: Moments(3).update(np.zeros((4, 2))), lambda: Moments(3).merge(Moments(2))):
        with pytest.raises(ShapeMismatch):
            call()
    for call in (lambda: Moments(2, covariance=True, skip_nonfinite=True), lambda: Moments(2).cov):
        with pytest.raises(BadOption):
            call()
    assert np.isnan(Moments(2, covariance=True).update([[1.0, 2.0]]).cov).all()


@given(st.lists(st.floats(-4, 4), min_size=1, max_size=60), st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_quantiles_are_off_by_their_bin_at_most(values, levels):
    h = Histogram(np.linspace(-3, 3, 25)).update(values)
    x = np.sort(values)
    edges = np.r_[min(x[0], -3.0), h.edges, max(x[-1], 3.0)]
    for p, found in zip(levels, h.quantile(levels), strict=True):
        exact = x[min(max(math.ceil(p * len(x)) - 1, 0), len(x) - 1)]
        at = int(np.searchsorted(h.edges, exact, side="right")) if exact != 3 else len(h.edges) - 1
        assert edges[at] <= found <= edges[at + 1]
    assert h.quantile([0, 1]).tolist() == [x[0], x[-1]]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40), st.integers(0, 40))
def test_histograms_merge_to_the_whole_from_numpy_and_torch(values, cut):
    edges = [-10.0, -1.0, 0.0, 0.5, 100.0]
    whole = Histogram(edges).update(np.array(values, dtype=float))
    parts = Histogram(edges).update(torch.tensor(values[:cut], dtype=torch.float64))
    parts.merge(Histogram(edges).update(np.array(values[cut:], dtype=float)))
    for name in ("below", "above", "missing", "low", "high", "n"):
        assert getattr(parts, name) == getattr(whole, name)
    assert whole.n + whole.missing == len(values)
    kept = np.array([v for v in values if -10 <= v <= 100])
    assert parts.counts.tolist() == whole.counts.tolist() == np.histogram(kept, edges)[0].tolist()


def test_a_quantile_among_infinities_is_one():
    h = Histogram([0.0, 1.0]).update([-math.inf, 0.25, 0.75, math.inf])
    assert h.quantile([0.1, 0.5, 0.9]).tolist() == [-math.inf, 0.5, math.inf]
    assert h.quantile(0.5).shape == ()


def test_psi_by_hand_and_for_samples_of_one_law():
    one, other = (Histogram([0.0, 1.0, 2.0]).update(v) for v in ([0.5, 0.5, 0.5, 1.5], [0.5, 1.5]))
    assert one.psi(other) == pytest.approx(0.25 * math.log(1.5) - 0.25 * math.log(0.5))
    assert one.psi(Histogram([0.0, 1.0, 2.0]).update([math.nan])) > 5
    rng = np.random.default_rng(0)
    start = Histogram.quantile_edges(rng.standard_normal(200_000), 10)

    def sample():
        return copy.deepcopy(start).update(np.clip(rng.standard_normal(2000), start.edges[0], start.edges[-1]))

    found = np.mean([sample().psi(sample()) for _ in range(300)])
    assert found == pytest.approx(9 * 2 / 2000, rel=0.1)  # Yurdakul (2018): (1/n + 1/m)·χ² with bins − 1 degrees


def test_quantile_edges_merge_ties_and_take_constants():
    assert (np.diff(Histogram.quantile_edges([0.0] * 50 + list(range(1, 51)), 10).edges) > 0).all()
    assert Histogram.quantile_edges([3.0, 3.0]).update([3.0]).counts.sum() == 1


def test_histograms_refuse():
    for edges in ([1.0], [1.0, 1.0], [2.0, 1.0]):
        with pytest.raises(BadOption):
            Histogram(edges)
    h = Histogram([0.0, 1.0])
    for call in (lambda: h.quantile(0.5), lambda: h.psi(h), lambda: Histogram.quantile_edges([])):
        with pytest.raises(UndefinedMetric):
            call()
    h.update([0.5])
    for call in (lambda: h.quantile([0.5, 1.5]), lambda: h.quantile(math.nan), lambda: h.psi(h, floor=0)):
        with pytest.raises(BadOption):
            call()
    for call in (lambda: h.merge(Histogram([0.0, 2.0])), lambda: h.update([0.5], weight=[1, 2])):
        with pytest.raises(ShapeMismatch):
            call()
    with pytest.raises(BadValues):
        h.update([0.5], weight=[-1])
