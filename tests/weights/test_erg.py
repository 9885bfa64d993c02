"""The ERG count: by hand, on Marchenko-Pastur, and in its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querist.weights.fits import InvalidSpectrum, erg
from querist.weights.nulls import mp_quantiles


def plain(x):
    """The definition, one value after the other."""
    x = np.sort(x)[::-1] * (len(x) / np.sum(x))
    total, count = 0.0, 0
    for value in x:
        count += 1
        total += math.log(value) if value > 0 else -math.inf
        if total < -1e-13:
            return count
    return count


def test_by_hand():
    # Σ = 4 = N, and 2.5 · 1 · .3 = .75 is the first product below 1.
    assert erg([0.2, 0.3, 1.0, 2.5]).n_erg == 3
    assert erg([20.0, 30.0, 100.0, 250.0]).n_erg == 3


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(0, 100, allow_subnormal=False), min_size=2, max_size=40).filter(lambda x: max(x) > min(x) + 0.1)
)
def test_is_the_definition(x):
    assert erg(x).n_erg == plain(x)


@pytest.mark.parametrize(("q", "share"), [(0.5, 0.8145), (2 / 3, 0.7843), (1.0, 0.7311)])
def test_on_marchenko_pastur(q, share):
    assert erg(mp_quantiles(4000, round(4000 / q))).share == pytest.approx(share, abs=5e-4)


def test_the_null_stands_beside_it():
    x = np.sort(np.random.default_rng(0).pareto(1.0, 300))
    null = mp_quantiles(1000, 2000)
    found = erg(x, (300, 600), null_evals=null)
    assert found.n_values == 300
    assert found.share_null == pytest.approx(0.8145, abs=2e-3)
    assert found.n_erg_null == pytest.approx(300 * found.share_null)
    assert found.n_erg < found.n_erg_null
    assert erg(x).n_erg_null is None
    assert erg(x).share_null is None


@pytest.mark.parametrize("factor", [1e-9, 1.0, 1e9])
def test_order_and_unit_do_not_matter(factor):
    x = np.random.default_rng(1).lognormal(size=200)
    assert erg(x[::-1] * factor).n_erg == erg(x).n_erg


def test_limits():
    assert erg([4.0, 5e-324]).n_erg == 2
    assert erg([3.0] * 7).n_erg == 7
    assert erg([5.0, 0.0, 0.0]).n_erg == 2
    assert erg([2.0]).n_erg == 1


def test_refuses():
    with pytest.raises(InvalidSpectrum, match="zeros"):
        erg([0.0, 0.0])
    with pytest.raises(InvalidSpectrum, match="index 0"):
        erg([-1.0, 2.0])
    with pytest.raises(InvalidSpectrum, match="6 values"):
        erg(np.arange(1.0, 8.0)[:6], (4, 9))
    assert erg(np.arange(1.0, 9.0), (4, 9)).n_values == 8
