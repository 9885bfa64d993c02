"""Norms and ranks of spectra: closed forms, and what scale does to them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querist.sources.datasets.matrices import gaussian
from querist.weights.spectrum import alpha_weighted, esd, log_alpha_norm, norms

POSITIVE = st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=40)


def test_closed_forms():
    evals = np.array([1.0, 2.0, 5.0])
    found = norms(evals, (3, 4))
    assert found.log_norm == pytest.approx(math.log10(8))
    assert found.log_spectral_norm == pytest.approx(math.log10(5))
    assert found.stable_rank == pytest.approx(1.6)
    p = evals / 8
    assert found.entropy == pytest.approx(-(p @ np.log(p)) / math.log(3))
    assert (found.rank, found.rank_loss, found.weak_rank_loss) == (3, 0, 0)
    assert alpha_weighted(2.0, evals) == pytest.approx(2 * math.log10(5))
    assert log_alpha_norm(2.0, evals) == pytest.approx(math.log10(30))


@settings(max_examples=60, deadline=None)
@given(POSITIVE, st.floats(1e-3, 1e3))
def test_scale_free_columns_are_scale_free(values, c):
    evals = np.sort(np.array(values))
    one, other = norms(evals, (50, 60)), norms(evals * c**2, (50, 60))
    for name in ("stable_rank", "entropy", "rank", "rank_loss"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9)
    assert other.log_norm == pytest.approx(one.log_norm + 2 * math.log10(c), abs=1e-9)
    assert other.log_spectral_norm == pytest.approx(one.log_spectral_norm + 2 * math.log10(c), abs=1e-9)
    assert 0 <= one.entropy <= 1
    assert 1 - 1e-12 <= one.stable_rank <= len(values) + 1e-9


@settings(max_examples=60, deadline=None)
@given(POSITIVE, st.floats(1.1, 6))
def test_the_alpha_norm_is_the_direct_sum_where_that_does_not_overflow(values, alpha):
    evals = np.sort(np.array(values))
    assert log_alpha_norm(alpha, evals) == pytest.approx(math.log10(np.sum(evals**alpha)), abs=1e-9)


def test_the_alpha_norm_does_not_overflow_and_ignores_zeros():
    assert log_alpha_norm(40.0, np.array([0.0, 1e40, 5e40])) == pytest.approx(40 * math.log10(5e40), abs=1e-4)
    assert log_alpha_norm(1.0, np.array([0.0, 0.0, 100.0])) == pytest.approx(2)


def test_uniform_and_single_spectra():
    assert norms(np.ones(7), (7, 7)).entropy == pytest.approx(1)
    assert norms(np.ones(7), (7, 7)).stable_rank == 7
    single = norms(np.array([0.0, 0.0, 3.0]), (3, 3))
    assert (single.entropy, single.rank, single.rank_loss, single.stable_rank) == (0, 1, 2, 1)


@pytest.mark.parametrize("rank", [1, 9, 30, 40])
def test_ranks_agree_with_numpys_on_generated_ranks(rank):
    rng = np.random.default_rng(rank)
    W = rng.standard_normal((60, rank)) @ rng.standard_normal((rank, 40))
    found = norms(esd(W).evals, (60, 40))
    assert found.rank == np.linalg.matrix_rank(W) == rank
    assert found.rank_loss == 40 - rank


def test_a_random_matrix_has_full_rank():
    assert norms(esd(gaussian(60, 40)).evals, (60, 40)).rank == 40


def test_weak_rank_loss_counts_small_eigenvalues_in_the_files_units():
    evals = np.array([1e-9, 9e-7, 2e-6, 1.0])
    assert norms(evals, (4, 4)).weak_rank_loss == 2
    assert norms(evals * 1e6, (4, 4)).weak_rank_loss == 0
    assert norms(evals, (4, 4)).rank_loss == 0


def test_where_numbers_do_not_exist():
    zero = norms(np.zeros(4), (4, 5))
    assert (zero.log_norm, zero.log_spectral_norm, zero.stable_rank, zero.entropy) == (None,) * 4
    assert (zero.rank, zero.rank_loss, zero.weak_rank_loss) == (0, 4, 4)
    masked = norms(np.array([1.0, 2.0]), (2, 2), ranks=False)
    assert (masked.rank, masked.rank_loss, masked.weak_rank_loss) == (None,) * 3
    p = np.array([1, 2]) / 3
    assert masked.entropy == pytest.approx(-(p @ np.log(p)) / math.log(2))
