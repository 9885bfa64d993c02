"""Scores against reference values, their definitions, direct maximisation and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.preprocessing import StandardScaler
from tests.features.clouds import LABELS, PROBABILITIES, F, cloud, gaussian, rotation, softmax
from tests.harness import Bad, check_bad_input

from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch, TooFewRows, UndefinedMetric
from querist.features import gbc, h_score, leep, logme, nce, nleep, transrate
from querist.features.errors import BadLabels, LabelsNeeded
from querist.features.scores import (
    agreement,
    gbc_of,
    h_score_of,
    logme_of,
    nleep_of,
    permuted,
    probe,
    transrate_of,
)
from querist.features.scores._leep import posteriors
from querist.features.scores._logme import best_evidence
from querist.statistics import weighted_kendall

SCORES = {"nleep": nleep, "logme": logme, "h_score": h_score, "transrate": transrate, "gbc": gbc}
SCORES |= {"h_score, shrunk": lambda Z, y: h_score(Z, y, shrinkage=True)}
SCORES |= {f"gbc, {kind}": lambda Z, y, kind=kind: gbc(Z, y, kind) for kind in ("diagonal", "full")}


class TestReferenceValues:
    def test_leep_and_nce(self):
        assert leep(LABELS, PROBABILITIES) == pytest.approx(-0.8308090928, abs=1e-9)
        assert nce(LABELS, PROBABILITIES) == pytest.approx(-0.3507328396, abs=1e-9)

    def test_h_score(self):
        assert h_score(F, LABELS) == pytest.approx(0.9978616190, abs=1e-9)

    @pytest.mark.parametrize(("eps", "value"), [(1, 0.0980640752), (0.1, 0.3206758734)])
    def test_transrate(self, eps, value):
        assert transrate(F, LABELS, eps) == pytest.approx(value, abs=1e-9)

    @pytest.mark.parametrize(("covariance", "value"), [("diagonal", -3.5045485), ("spherical", -3.5285183)])
    def test_gbc(self, covariance, value):
        assert gbc(F, LABELS, covariance) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("name", SCORES)
def test_rows_in_any_order_and_form(name):
    score = SCORES[name]
    order = np.random.default_rng(0).permutation(60)
    names = np.array(["a", "b", "c"])[LABELS]
    value = score(F, LABELS)
    kept = F.copy()
    if name != "nleep":  # a mixture begins at rows that its seed picks by number
        assert score(F[order], LABELS[order]) == pytest.approx(value, rel=1e-9)
    assert score(F, names) == value
    assert score(torch.from_numpy(F), torch.from_numpy(LABELS)) == value
    assert score(F.astype(np.float32), LABELS) == pytest.approx(value, rel=1e-4)
    assert score(np.asfortranarray(F), LABELS[:, None]) == pytest.approx(value, rel=1e-12)
    np.testing.assert_array_equal(F, kept)


@pytest.mark.parametrize("name", [name for name in SCORES if name not in ("nleep", "gbc, diagonal")])
def test_turning_the_features_changes_no_score_that_knows_no_axes(name):
    assert SCORES[name](F @ rotation(5), LABELS) == pytest.approx(SCORES[name](F, LABELS), rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(12, 60), d=st.integers(1, 30), K=st.integers(2, 4), seed=st.integers(0, 2**32))
def test_the_bounds_of_scores(n, d, K, seed):
    rng = np.random.default_rng(seed)
    Z, y, theta = rng.standard_normal((n, d)), np.arange(n) % K, softmax(3 * rng.standard_normal((n, 5)))
    assert -np.log(K) - 1e-9 <= leep(y, theta) <= 0
    assert -np.log(K) - 1e-9 <= nce(y, theta) <= 0
    assert 0 <= h_score(Z, y) <= K - 1 + 1e-9
    assert 0 <= h_score(Z, y, shrinkage=True) <= K - 1 + 1e-9
    assert -1e-9 <= transrate(Z, y) <= np.log(2) * d * 40
    for kind in ("spherical", "diagonal", "full"):
        assert -K * (K - 1) <= gbc(Z, y, kind) <= 0


class TestLeep:
    def test_a_head_that_knows_the_labels(self):
        sure = np.eye(3)[LABELS]
        assert leep(LABELS, sure) == nce(LABELS, sure) == 0

    def test_a_head_that_knows_nothing(self):
        entropy = -np.log(3)
        assert leep(LABELS, np.full((60, 4), 0.25)) == pytest.approx(entropy)
        assert nce(LABELS, np.full((60, 4), 0.25)) == pytest.approx(entropy)

    def test_nce_is_a_conditional_entropy(self):
        z = PROBABILITIES.argmax(axis=1)
        total = 0.0
        for k in np.unique(z):
            share = np.bincount(LABELS[z == k]) / np.count_nonzero(z == k)
            total += np.count_nonzero(z == k) / 60 * np.sum(share[share > 0] * np.log(share[share > 0]))
        assert nce(LABELS, PROBABILITIES) == pytest.approx(total)

    def test_nleep_is_leep_of_a_mixture(self):
        theta = posteriors(F, 15, 0)
        assert theta.shape == (60, 12)  # 15 components would have four rows each
        np.testing.assert_allclose(theta.sum(axis=1), 1)
        assert nleep(F, LABELS) == pytest.approx(leep(LABELS, theta), rel=1e-9)
        assert nleep(F, LABELS, seed=1) != nleep(F, LABELS)

    def test_nleep_keeps_four_fifths_of_the_variance(self):
        Z = gaussian(400, 6) * [10, 10, 10, 1, 1, 1]
        noise = gaussian(400, 3, seed=1)
        Z[:, 3:] = 0
        noise -= noise.mean(axis=0)
        leading = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)[0][:, :3]
        noise -= leading @ (leading.T @ noise)  # so that the leading directions stay where they are
        moved = Z.copy()
        moved[:, 3:] = noise
        np.testing.assert_allclose(posteriors(moved, 5, 0), posteriors(Z, 5, 0), atol=1e-6)

    def test_nleep_tells_classes_that_lie_apart(self):
        y = np.arange(200) % 4
        Z = gaussian(200, 8) + 20 * np.eye(8)[y]
        assert nleep(Z, y) > -0.01
        assert nleep(np.ones((40, 3)), np.arange(40) % 2) == pytest.approx(-np.log(2))


def evidence(Z: np.ndarray, y: np.ndarray, log_alpha: float, log_beta: float) -> float:
    """log N(y; 0, ZZᵀ/α + I/β), the marginal likelihood by its definition."""
    S = Z @ Z.T / np.exp(log_alpha) + np.eye(len(Z)) / np.exp(log_beta)
    return float(multivariate_normal(np.zeros(len(Z)), S, allow_singular=False).logpdf(y))


class TestLogME:
    @pytest.mark.parametrize(("n", "d"), [(40, 3), (30, 30), (25, 60)])
    def test_it_is_the_largest_evidence(self, n, d):
        Z = gaussian(n, d) + 0.3
        y = ((Z[:, 0] + gaussian(n, 1, seed=2).ravel()) > 0).astype(int)
        values = []
        for k in (0, 1):
            target = (y == k).astype(float)
            found = [
                minimize(
                    lambda v, t=target: -evidence(Z, t, *np.clip(v, -20, 20)),
                    start,
                    method="Nelder-Mead",
                    options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 4000},
                ).fun
                for start in ((0.0, 0.0), (3.0, 2.0), (-3.0, 3.0))
            ]
            values.append(-min(found))
        assert logme(Z, y) == pytest.approx(np.mean(values) / n, abs=1e-7)

    def test_it_agrees_with_the_fixed_point_where_that_converges(self):
        Z = gaussian(200, 12)
        y = (Z[:, 0] + 0.5 * gaussian(200, 1, seed=1).ravel() > 0).astype(int)
        values = []
        for k in (0, 1):
            target = (y == k).astype(float)
            u, s, _ = np.linalg.svd(Z, full_matrices=False)
            along, alpha, beta = u.T @ target, 1.0, 1.0
            for _ in range(500):
                m = beta * s * along / (alpha + beta * s**2)
                gamma = np.sum(beta * s**2 / (alpha + beta * s**2))
                residual = target @ target - along @ along + np.sum((along - s * m) ** 2)
                alpha, beta = gamma / (m @ m), (200 - gamma) / residual
            values.append(evidence(Z, target, np.log(alpha), np.log(beta)))
        assert logme(Z, y) == pytest.approx(np.mean(values) / 200, rel=1e-9)

    def test_against_scikit_learns_evidence(self):
        Z = gaussian(80, 5)
        y = (Z[:, 0] > 0).astype(int)
        values = []
        for k in (0, 1):
            tiny = {"alpha_1": 0, "alpha_2": 0, "lambda_1": 0, "lambda_2": 0}
            model = BayesianRidge(compute_score=True, fit_intercept=False, tol=1e-12, max_iter=5000, **tiny)
            model.fit(Z, (y == k).astype(float))
            values.append(model.scores_[-1])
        assert logme(Z, y) == pytest.approx(np.mean(values) / 80, rel=1e-6)

    def test_labels_that_the_features_do_not_know(self):
        # The prior precision then goes to infinity: the evidence of pure noise.
        Z = np.ones((20, 1)) * np.r_[np.ones(10), -np.ones(10)][:, None]
        y = np.tile([0, 1], 10)
        noise = -10 * (np.log(2 * np.pi * 0.5) + 1)
        assert logme(Z, y) == pytest.approx(noise / 20, rel=1e-6)
        assert logme(np.zeros((20, 3)), y) == pytest.approx(noise / 20, rel=1e-12)

    def test_it_sees_no_units_that_hold_nothing(self):
        padded = np.hstack([F, np.zeros((60, 4))])
        assert logme(padded, LABELS) == pytest.approx(logme(F, LABELS), rel=1e-10)

    def test_no_grid_point_beats_the_maximum(self):
        for seed in range(5):
            rng = np.random.default_rng(seed)
            squares = np.sort(rng.chisquare(1, 6) * 10.0 ** rng.integers(-4, 5, 6))[::-1]
            along, outside = rng.random((1, 6)), rng.random()
            total = along.sum(axis=1) + outside
            best = best_evidence(squares, along, total, 30)[0]
            for ratio in np.geomspace(1e-14, 1e14, 20_001) * squares[0]:
                shrink = ratio / (ratio + squares)
                value = -15 * np.log(2 * np.pi) - 15 + np.log(shrink).sum() / 2
                value -= 15 * np.log((outside + shrink @ along[0]) / 30)
                assert value <= best + 1e-9


class TestHScore:
    def test_against_the_discriminants_eigenvalues(self):
        # The shares of variance between classes along the discriminant directions add up to the score.
        lda = LinearDiscriminantAnalysis(solver="eigen").fit(F, LABELS)
        between = lda.transform(F)
        direct = sum(1 - np.sum([v[k == LABELS].var() / 3 for k in range(3)]) / v.var() for v in between.T)
        assert h_score(F, LABELS) == pytest.approx(direct, rel=1e-6)

    @pytest.mark.parametrize(("n", "d"), [(60, 5), (24, 40)])
    def test_against_the_definition(self, n, d):
        from sklearn.covariance import ledoit_wolf

        Z, y = gaussian(n, d) * np.arange(1, d + 1) + 2, np.arange(n) % 3
        centred = Z - Z.mean(axis=0)
        means = np.stack([centred[y == k].mean(axis=0) for k in range(3)])[y]
        between = means.T @ means / n
        plain = np.trace(np.linalg.pinv(centred.T @ centred / n, rcond=1e-10) @ between)
        assert h_score(Z, y) == pytest.approx(plain, rel=1e-6)
        S, weight = ledoit_wolf(Z)
        shrunk = np.trace(np.linalg.solve(S, (1 - weight) * between))
        assert h_score(Z, y, shrinkage=True) == pytest.approx(shrunk, rel=1e-6)

    def test_few_rows_make_the_plain_score_as_large_as_can_be(self):
        Z, y = gaussian(30, 60), np.arange(30) % 3
        assert h_score(Z, y) == pytest.approx(2, rel=1e-9)
        assert h_score(Z, y, shrinkage=True) < 1

    def test_constant_rows(self):
        with pytest.raises(UndefinedMetric, match="all rows are equal"):
            h_score(np.full((20, 3), 0.1), np.arange(20) % 2)


class TestTransRate:
    def test_classes_count_by_their_rows(self):
        y = np.r_[np.zeros(50, int), np.ones(10, int)]
        Z = F - F.mean(axis=0)

        def rate(A):
            return np.linalg.slogdet(np.eye(5) + 5 / len(A) * A.T @ A)[1] / 2

        expected = rate(Z) - 50 / 60 * rate(Z[:50]) - 10 / 60 * rate(Z[50:])
        assert transrate(F, y) == pytest.approx(expected, rel=1e-10)

    def test_more_units_than_rows(self):
        Z, y = gaussian(20, 50), np.arange(20) % 2
        centred = Z - Z.mean(axis=0)

        def rate(A):
            return np.linalg.slogdet(np.eye(50) + 50 / len(A) * A.T @ A)[1] / 2

        expected = rate(centred) - (rate(centred[y == 0]) + rate(centred[y == 1])) / 2
        assert transrate(Z, y) == pytest.approx(expected, rel=1e-9)

    def test_eps_is_a_length(self):
        assert transrate(10 * F, LABELS, 10) == pytest.approx(transrate(F, LABELS, 1), rel=1e-10)


class TestGbc:
    def test_full_covariances_by_the_definition(self):
        total = 0.0
        for i in range(3):
            for j in range(3):
                if i != j:
                    a, b = F[i == LABELS], F[j == LABELS]
                    S, T, m = np.cov(a.T), np.cov(b.T), a.mean(0) - b.mean(0)
                    M = (S + T) / 2
                    dets = [np.linalg.det(A) for A in (M, S, T)]
                    total -= np.exp(-(m @ np.linalg.inv(M) @ m) / 8 - np.log(dets[0] / np.sqrt(dets[1] * dets[2])) / 2)
        assert gbc(F, LABELS, "full") == pytest.approx(total, rel=1e-6)

    def test_many_units_are_projected_first(self):
        Z, y = gaussian(200, 100), np.arange(200) % 2
        u, s, _ = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)
        assert gbc(Z, y) == pytest.approx(gbc(u[:, :64] * s[:64], y), rel=1e-9)

    def test_classes_apart_and_alike(self):
        y = np.arange(100) % 2
        assert gbc(gaussian(100, 3) + 50 * y[:, None], y) == pytest.approx(0, abs=1e-12)
        Z = np.repeat(gaussian(50, 3), 2, axis=0)
        for kind in ("spherical", "diagonal", "full"):
            assert gbc(Z, y, kind) == pytest.approx(-2, abs=1e-9)

    def test_a_class_without_spread(self):
        Z = np.vstack([np.zeros((10, 3)), gaussian(10, 3)])
        for kind in ("spherical", "diagonal", "full"):
            assert -1 < gbc(Z, np.arange(20) // 10, kind) < 0


class TestProbe:
    def test_every_row_is_judged_by_a_fit_that_never_saw_it(self):
        Z, y = gaussian(150, 4) + 1.5 * np.eye(4)[np.arange(150) % 3], np.arange(150) % 3
        found = probe(Z, y, seed=2)
        assert found.converged
        correct = np.zeros(150, dtype=bool)
        for k in range(5):
            train = found.fold != k
            scaler = StandardScaler().fit(Z[train])
            model = LogisticRegression(max_iter=1000).fit(scaler.transform(Z[train]), y[train])
            correct[~train] = model.predict(scaler.transform(Z[~train])) == y[~train]
        np.testing.assert_array_equal(found.correct, correct)
        assert found.accuracy == pytest.approx(correct.mean())
        assert 0 <= found.low < found.accuracy < found.high <= 1
        assert found.majority == pytest.approx(1 / 3)

    def test_layers_share_their_folds(self):
        y = np.arange(60) % 3
        np.testing.assert_array_equal(probe(F, y).fold, probe(F[:, :2] ** 2, y).fold)

    def test_clusters_stay_together(self):
        clusters = np.arange(60) // 4
        found = probe(F, LABELS, clusters=clusters)
        assert all(len(np.unique(found.fold[clusters == c])) == 1 for c in range(15))
        assert found.high - found.low != probe(F, LABELS).high - probe(F, LABELS).low

    def test_constant_units_and_fits_that_do_not_end(self, monkeypatch):
        Z = np.hstack([F, np.full((60, 1), 3.0)])
        assert probe(Z, LABELS).accuracy == probe(F, LABELS).accuracy
        monkeypatch.setattr("querist.features.scores._probe.ITERATIONS", (1, 2))
        assert not probe(F, LABELS).converged

    def test_small_classes_are_refused(self):
        y = np.r_[np.zeros(56, int), np.ones(4, int)]
        check_bad_input([Bad(lambda: probe(F, y), BadLabels, ("class 1 has 4", "5 or more"))])


class TestNulls:
    def test_prepared_scores_are_the_scores(self):
        other = np.random.default_rng(1).permutation(LABELS)
        prepared = {logme: logme_of(F), h_score: h_score_of(F), transrate: transrate_of(F), gbc: gbc_of(F)}
        for score, ready in prepared.items():
            assert ready(LABELS) == score(F, LABELS)
            assert ready(other) == score(F, other)
        assert nleep_of(F, LABELS)(LABELS) == nleep(F, LABELS)

    def test_labels_that_matter_and_labels_that_do_not(self):
        found = permuted(logme_of(F), LABELS)
        assert found.p == 0.01
        assert found.value > found.null.max()
        assert found.mean == pytest.approx(found.null.mean())
        assert found.sd == pytest.approx(found.null.std(ddof=1))
        noise = [
            permuted(transrate_of(gaussian(40, 3, seed=s)), np.arange(40) % 2, permutations=19).p for s in range(60)
        ]
        assert 0.3 < np.mean(noise) < 0.7

    def test_layers_share_their_permutations(self):
        first = permuted(lambda y: float(y[0]), np.arange(30), permutations=9)
        assert np.array_equal(first.null, permuted(lambda y: float(y[0]), np.arange(30), permutations=9).null)


class TestAgreement:
    TRUTH = np.array([[0.1, 0.4, 0.5, 0.9, 0.6], [0.2, 0.3, 0.6, 0.8, 0.7]])
    DEPTH = np.tile(np.arange(5.0), (2, 1))

    def test_each_cell_by_weighted_tau(self):
        score = self.TRUTH**2
        score[1, 0] = 5
        found = agreement(score, self.TRUTH, self.DEPTH)
        taus = [weighted_kendall(s, t) for s, t in zip(score, self.TRUTH, strict=True)]
        base = [weighted_kendall(s, t) for s, t in zip(self.DEPTH, self.TRUTH, strict=True)]
        np.testing.assert_allclose(found.by_cell, taus)
        assert found.tau_w == pytest.approx(np.mean(taus))
        assert found.difference == pytest.approx(np.mean(taus) - np.mean(base))
        assert found.low == pytest.approx(min(taus))
        assert found.high == pytest.approx(max(taus))

    def test_one_cell_has_no_interval(self):
        found = agreement(self.TRUTH[0], self.TRUTH[0], self.DEPTH[0])
        assert (found.tau_w, found.low, found.diff_high) == (1, None, None)

    def test_a_constant_score_ranks_nothing(self):
        assert agreement(np.ones((2, 5)), self.TRUTH, self.DEPTH).tau_w == 0
        with pytest.raises(UndefinedMetric, match="truth differs"):
            agreement(self.TRUTH, np.ones((2, 5)), self.DEPTH)
        check_bad_input(
            [Bad(lambda: agreement(self.TRUTH, self.TRUTH[:1], self.DEPTH), ShapeMismatch, ("(1, 5)", "(2, 5)"))]
        )


def test_bad_input_is_refused():
    broken = F.copy()
    broken[3] = np.inf
    rows = []
    for score in (nleep, logme, h_score, transrate, gbc, probe):
        rows += [
            Bad(lambda s=score: s(F, None), LabelsNeeded, ("y is missing",)),
            Bad(lambda s=score: s(F, LABELS[:50]), ShapeMismatch, ("(50,)", "(60,)")),
            Bad(lambda s=score: s(broken, LABELS), NonFinite, ("Z holds", "5 values in 1 rows", "rows: 3")),
            Bad(lambda s=score: s(F[:, 0], LABELS), ShapeMismatch, ("(n, d)",)),
            Bad(lambda s=score: s(F[:0], LABELS[:0]), TooFewRows, ("(0, 5)",)),
            Bad(lambda s=score: s(F, np.where(LABELS, np.nan, 1.0)), BadValues, ("missing", "row 1")),
        ]
    lone = np.r_[LABELS[:-1], 9]
    for kind in ("spherical", "diagonal", "full"):
        rows.append(Bad(lambda k=kind: gbc(F, lone, k), BadLabels, ("class 9 has 1", "2 or more")))
    for score in (leep, nce):
        logits = 3 * cloud(60, 4, 0)
        rows += [
            Bad(lambda s=score: s(None, PROBABILITIES), LabelsNeeded),
            Bad(lambda s=score, z=logits: s(LABELS, z), BadValues, ("row 0", "softmax", "summing to 1")),
            Bad(lambda s=score: s(LABELS, 2 * PROBABILITIES), BadValues, ("a sum of 2",)),
            Bad(lambda s=score: s(LABELS[:59], PROBABILITIES), ShapeMismatch, ("(59,)",)),
        ]
    rows += [
        Bad(lambda: gbc(F, LABELS, "round"), BadOption, ("round", "spherical, diagonal, full")),
        Bad(lambda: transrate(F, LABELS, 0), BadOption, ("0 < eps",)),
        Bad(lambda: permuted(logme_of(F), LABELS, permutations=0), BadOption, ("1 or more",)),
    ]
    check_bad_input(rows)
