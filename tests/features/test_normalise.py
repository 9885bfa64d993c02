"""Normalisation is the source's, and hides no shift."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.features.clouds import gaussian
from tests.harness import Bad, check_bad_input

from querist.errors import BadOption, NonFinite, TooFewRows, UndefinedMetric
from querist.features.errors import DimensionMismatch
from querist.features.normalise import KINDS, fit_normaliser

Z = gaussian(200, 6) * [1, 2, 3, 4, 5, 6] + 10


def test_none_changes_nothing_and_copies():
    out = fit_normaliser(Z, "none")(Z)
    np.testing.assert_array_equal(out, Z)
    assert out is not Z


def test_iso_moves_the_mean_and_scales_by_one_number():
    out = fit_normaliser(Z)(Z)
    np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-12)
    assert np.trace(np.cov(out.T)) / 6 == pytest.approx(1, rel=1e-12)
    ratio = out.std(axis=0) / Z.std(axis=0)
    np.testing.assert_allclose(ratio, ratio[0])


def test_unit_scales_each_and_drops_constant_ones():
    with_constants = np.hstack([Z, np.full((200, 1), 3.3), 1e-8 * gaussian(200, 1)])
    norm = fit_normaliser(with_constants, "unit")
    assert norm.dropped == 2
    out = norm(with_constants)
    assert out.shape == (200, 6)
    np.testing.assert_allclose(out.std(axis=0, ddof=1), 1, rtol=1e-12)
    assert fit_normaliser(with_constants, "iso").dropped == 0


def test_whiten_gives_a_shrunk_identity_without_turning():
    from sklearn.covariance import ledoit_wolf

    A = gaussian(2000, 5) @ (np.eye(5) + 0.1 * gaussian(5, 5))
    out = fit_normaliser(A, "whiten")(A)
    np.testing.assert_allclose(np.cov(out.T), np.eye(5), atol=0.05)
    scale = fit_normaliser(A, "whiten").scale
    np.testing.assert_allclose(scale, np.transpose(scale), atol=1e-10)
    weight = ledoit_wolf(A)[1]
    S = np.cov(A.T)
    shrunk = (1 - weight) * S + weight * np.trace(S) / 5 * np.eye(5)
    np.testing.assert_allclose(np.asarray(scale) @ shrunk @ np.asarray(scale), np.eye(5), atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_fitted_on_the_source_alone(kind):
    norm = fit_normaliser(Z, kind)
    target = Z + 7
    moved = norm(target) - norm(Z)
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=1e-9)
    assert np.linalg.norm(moved[0]) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_forms_types_and_sites(kind):
    norm = fit_normaliser(Z, kind)
    expected = norm(Z)
    np.testing.assert_allclose(norm(torch.from_numpy(Z)), expected)
    assert norm(Z.astype(np.float32)).dtype == np.float32
    sites = Z.reshape(50, 4, 6)
    np.testing.assert_allclose(norm(sites), expected.reshape(50, 4, -1))
    np.testing.assert_allclose(fit_normaliser(torch.from_numpy(sites), kind)(Z), expected)
    few = gaussian(10, 30)
    assert np.isfinite(fit_normaliser(few, kind)(few)).all()


def test_bad_input_is_refused():
    broken = Z.copy()
    broken[1, 1] = np.nan
    check_bad_input(
        [
            Bad(lambda: fit_normaliser(Z, "zca"), BadOption, ("zca", "none, iso, unit, whiten")),
            Bad(lambda: fit_normaliser(Z[:1]), TooFewRows, ("2 or more",)),
            Bad(lambda: fit_normaliser(broken), NonFinite, ("source holds NaN",)),
            Bad(lambda: fit_normaliser(Z)(Z[:, :3]), DimensionMismatch, ("3 and 6 units",)),
        ]
    )
    for kind in ("iso", "unit", "whiten"):
        with pytest.raises(UndefinedMetric, match="constant over the source"):
            fit_normaliser(np.full((20, 3), 0.1), kind)
