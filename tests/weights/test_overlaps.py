"""Overlaps against plain sums, scipy's angles, and random directions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.linalg import subspace_angles
from tests.harness import Bad, check_bad_input

from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch
from querist.weights.overlaps import (
    block_average,
    overlap_matrix,
    overlap_null,
    overlap_quantile,
    principal_angles,
    subspace_overlap,
)


def frame(n, k, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, k)))[0]


@given(n=st.integers(1, 30), seed=st.integers(0, 99), data=st.data())
def test_overlaps_are_squared_inner_products(n, seed, data):
    k, l = (data.draw(st.integers(1, n)) for _ in range(2))  # noqa: E741
    A, B = frame(n, k, seed), frame(n, l, seed + 1000)
    cells = overlap_matrix(A, B)
    plain = [[sum(A[:, i] * B[:, j]) ** 2 for j in range(l)] for i in range(k)]
    np.testing.assert_allclose(cells, plain, atol=1e-14)
    assert subspace_overlap(A, B) == pytest.approx(np.sum(plain) / k, abs=1e-12)
    np.testing.assert_array_equal(overlap_matrix(torch.as_tensor(A), torch.as_tensor(B)), cells)


def test_float32_and_bfloat16_tensors_are_taken():
    A = torch.as_tensor(frame(200, 50, 0)).float()
    assert overlap_matrix(A, A).dtype == np.float64
    np.testing.assert_allclose(overlap_matrix(A, A), np.eye(50), atol=1e-5)
    assert subspace_overlap(torch.eye(8, dtype=torch.bfloat16), torch.eye(8)[:, :2]) == 0.25


def test_a_span_inside_another():
    A = frame(40, 12, 3)
    assert subspace_overlap(A[:, :5], A) == pytest.approx(1)
    assert subspace_overlap(A, A[:, :3]) == pytest.approx(0.25)
    assert principal_angles(A[:, :5], A).max() < 1e-14


@given(n=st.integers(2, 25), seed=st.integers(0, 99), data=st.data())
def test_angles_are_scipys(n, seed, data):
    k, l = (data.draw(st.integers(1, n)) for _ in range(2))  # noqa: E741
    A, B = frame(n, k, seed), frame(n, l, seed + 1000)
    angles = principal_angles(A, B)
    assert angles.shape == (min(k, l),)
    assert (np.diff(angles) >= -1e-12).all()
    np.testing.assert_allclose(angles, subspace_angles(A, B)[::-1], atol=1e-7)
    assert np.sum(np.cos(angles) ** 2) / k == pytest.approx(subspace_overlap(A, B), abs=1e-12)


@pytest.mark.parametrize("angle", [1e-12, 1e-9, 1e-6, 0.01, np.pi / 4, 1.2, np.pi / 2])
def test_small_angles_keep_their_digits(angle):
    A = np.eye(6)[:, :2]
    B = np.zeros((6, 2))
    B[0, 0], B[2, 0] = np.cos(angle), np.sin(angle)
    B[1, 1] = 1
    np.testing.assert_allclose(principal_angles(A, B), [0, angle], rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("k", [1, 3, 20])
def test_quantiles_are_those_of_random_directions(k):
    """20 000 uniform directions in 60 dimensions, projected on k coordinates."""
    draws = np.random.default_rng(5).standard_normal((20_000, 60))
    share = np.sum(draws[:, :k] ** 2, axis=1) / np.sum(draws**2, axis=1)
    levels = np.array([0.05, 0.5, 0.95, 0.99])
    below = [(share <= q).mean() for q in overlap_quantile(levels, k, 60)]
    np.testing.assert_allclose(below, levels, atol=4 * np.sqrt(0.25 / 20_000))
    assert share.mean() == pytest.approx(overlap_null(1, k, 60), rel=0.02)
    law = stats.beta(k / 2, (60 - k) / 2)
    np.testing.assert_allclose(overlap_quantile(levels, k, 60), law.ppf(levels), rtol=1e-9)


def test_random_spans_overlap_by_their_dimension():
    shares = [subspace_overlap(frame(50, 4, i), frame(50, 10, i + 500)) for i in range(300)]
    assert np.mean(shares) == pytest.approx(overlap_null(4, 10, 50), rel=0.03)
    assert np.quantile(shares, 0.99) < overlap_quantile(0.99, 10, 50)


def test_the_whole_space_holds_everything():
    np.testing.assert_array_equal(overlap_quantile([0.0, 0.5, 1.0], 7, 7), 1.0)
    assert overlap_null(3, 7, 7) == 1.0
    assert overlap_null(1, 1, 64) == 1 / 64


@given(k=st.integers(1, 90), l=st.integers(1, 90), size=st.integers(1, 40), seed=st.integers(0, 9))
def test_blocks_are_means(k, l, size, seed):  # noqa: E741
    cells = np.random.default_rng(seed).random((k, l))
    blocks = block_average(cells, size)
    assert blocks.shape == (min(k, size), min(l, size))
    rows = np.array_split(np.arange(k), blocks.shape[0])
    if k % blocks.shape[0] == 0 and l % blocks.shape[1] == 0:
        columns = np.array_split(np.arange(l), blocks.shape[1])
        plain = [[cells[np.ix_(r, c)].mean() for c in columns] for r in rows]
        np.testing.assert_allclose(blocks, plain, rtol=1e-12)
        assert blocks.mean() == pytest.approx(cells.mean())
    assert cells.min() - 1e-12 <= blocks.min() <= blocks.max() <= cells.max() + 1e-12


def test_a_small_matrix_is_copied_not_shared():
    cells = np.ones((3, 3))
    blocks = block_average(cells)
    blocks[0, 0] = 5
    assert cells[0, 0] == 1


def test_bad_input():
    eye = np.eye(4)
    nan = eye.copy()
    nan[1, 1] = np.nan
    check_bad_input(
        [
            Bad(lambda: overlap_matrix(eye, np.eye(5)), ShapeMismatch, ["(4, 4)", "(5, 5)"]),
            Bad(lambda: overlap_matrix(eye[0], eye), ShapeMismatch, ["A", "(4,)"]),
            Bad(lambda: overlap_matrix(eye, eye[:2]), ShapeMismatch, ["B", "(2, 4)"]),
            Bad(lambda: subspace_overlap(2 * eye, eye), BadValues, ["A", "orthonormal"]),
            Bad(lambda: principal_angles(eye, eye * 1j), BadValues, ["B", "complex"]),
            Bad(lambda: overlap_matrix(nan, eye), NonFinite, ["(1, 1)".strip("()")]),
            Bad(lambda: overlap_quantile(1.5, 1, 4), BadOption, ["1.5"]),
            Bad(lambda: overlap_quantile(0.5, 5, 4), BadOption, ["5"]),
            Bad(lambda: overlap_null(0, 1, 4), BadOption, ["`k`"], valueless=False),
            Bad(lambda: block_average(eye, 0), BadOption, ["0"]),
            Bad(lambda: block_average(eye[0]), ShapeMismatch, ["(4,)"]),
        ]
    )
