"""The refit: closed forms against direct solves, evidence against scipy's normal density, and what it is for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from querist.effects.network import _gaussian
from querist.effects.network._evidence import evidence, noise
from querist.effects.network._gaussian import half_cauchy, integrate_one, integrate_two, spectrum
from querist.effects.network._refit import Refit, arm_means, refit
from querist.effects.simulation import SETTINGS, simulate
from querist.errors import BadOption, TooFewRows
from querist.statistics import stream


def problem(n=40, p=6, columns=3, seed=0):
    rng = stream(seed, "refit", "problem")
    z = rng.standard_normal((n, p))
    z[:, 1] += z[:, 0]
    y = z @ rng.standard_normal((p, columns)) * 0.2 + rng.standard_normal((n, columns)) * [1.0, 2.0, 0.5]
    return z, y, np.array([1.0, 4.0, 0.25]), np.array([1.0, 2.0, 0.5])


# ----------------------------------------------------------------------------------------------------- Gaussian model


def test_posterior_at_one_scale_is_the_direct_solve():
    z, y, noise_, unit = problem()
    found = spectrum(lambda part: z[part], y)
    beta = found.coefficients(0.3 * unit[None], noise_, np.ones(1))
    for c in range(3):
        prior = 1 / (0.3 * unit[c]) ** 2
        direct = np.linalg.solve(z.T @ z / noise_[c] + prior * np.eye(6), z.T @ y[:, c] / noise_[c])
        np.testing.assert_allclose(beta[:, c], direct, rtol=1e-10)


def test_evidence_is_the_normal_density():
    z, y, noise_, unit = problem()
    found = spectrum(lambda part: z[part], y)
    tau = np.array([1e-3, 0.1, 0.7])
    expected = [
        sum(
            multivariate_normal.logpdf(y[:, c], None, noise_[c] * np.eye(40) + (t * unit[c]) ** 2 * z @ z.T)
            for c in range(3)
        )
        for t in tau
    ]
    np.testing.assert_allclose(found.evidence(tau[:, None] * unit, noise_), expected, rtol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_over_blocks_decompose_as_the_whole(monkeypatch, weighted):
    z, y, noise_, unit = problem(n=200)
    w = stream(1, "w").random(200) + 0.5 if weighted else None
    whole = spectrum(lambda part: z[part], y, w)
    monkeypatch.setattr(_gaussian, "HELD", 64 * 9)
    blocks = spectrum(lambda part: z[part], y, w)
    scale = np.array([[0.01], [0.2]]) * unit
    np.testing.assert_allclose(blocks.evidence(scale, noise_), whole.evidence(scale, noise_), rtol=1e-9)
    weight = np.array([0.3, 0.7])
    np.testing.assert_allclose(
        blocks.coefficients(scale, noise_, weight), whole.coefficients(scale, noise_, weight), atol=1e-10
    )


def test_integration_over_one_scale_is_the_sum_over_its_grid():
    z, y, noise_, unit = problem()
    found = integrate_one([spectrum(lambda part: z[part], y)], [noise_], [unit])
    tau = np.logspace(-4, 0, 37)
    log, means = np.empty(37), np.empty((37, 6, 3))
    for g, t in enumerate(tau):
        log[g] = np.log(t) - np.log1p((t / 0.1) ** 2)
        for c in range(3):
            cov = noise_[c] * np.eye(40) + (t * unit[c]) ** 2 * z @ z.T
            log[g] += multivariate_normal.logpdf(y[:, c], None, cov)
            means[g, :, c] = (t * unit[c]) ** 2 * z.T @ np.linalg.solve(cov, y[:, c])
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    np.testing.assert_allclose(found.coefficients[0], np.einsum("g,gpc->pc", weight, means), rtol=1e-8)
    assert found.scales == (pytest.approx(weight @ tau),)


def test_integration_over_two_scales_is_the_sum_over_their_grid():
    z, y, noise_, unit = problem(n=30)
    found = integrate_two([spectrum(lambda part: z[part], y)], [noise_], [unit], 2)
    tau = np.logspace(-4, 0, 9)
    log, means = np.empty((9, 9)), np.empty((9, 9, 6, 3))
    for i, tx in enumerate(tau):
        for j, tb in enumerate(tau):
            prior = np.array([tx] * 4 + [tb] * 2)
            log[i, j] = (half_cauchy(np.array([tx, tb]))).sum()
            for c in range(3):
                d = (prior * unit[c]) ** 2
                cov = noise_[c] * np.eye(30) + (z * d) @ z.T
                log[i, j] += multivariate_normal.logpdf(y[:, c], None, cov)
                means[i, j, :, c] = d * (z.T @ np.linalg.solve(cov, y[:, c]))
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    np.testing.assert_allclose(found.coefficients[0], np.einsum("ij,ijpc->pc", weight, means), rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(found.scales, [weight.sum(1) @ tau, weight.sum(0) @ tau], rtol=1e-8)


# ------------------------------------------------------------------------------------------------------------ pieces


def made(n=600, seed=0, arms=3, **options):
    """A simulated table with the out-of-fold answers of a made-up model: the truth, spread out, plus noise in its columns."""
    drawn = simulate(n, arms=arms, seed=seed, **SETTINGS[1])
    rng = stream(seed, "refit", "model")
    truth = drawn.truth.response
    said = truth + 0.3 * np.tanh(drawn.X @ rng.standard_normal((12, (arms + 1) * 2)) * 0.3).reshape(n, arms + 1, 2)
    shares = np.bincount(drawn.arm, minlength=arms + 1)[1:] / (drawn.arm > 0).sum()
    given = {"x": drawn.X, "response": said, "codes": drawn.arm, "y": drawn.Y, "propensity": drawn.propensity}
    return drawn, said, evidence(**{**given, "tier_weights": shares, **options}), shares


def applied(fitted: Refit, drawn, said, w):
    total = said[:, 1:] - said[:, :1]
    base = np.einsum("nmk,m->nk", total, w)
    return fitted.apply(drawn.X, base, total - base[:, None])


def test_noise_is_the_variance_of_a_mean_times_rows():
    y = stream(0, "noise").standard_normal((60, 2))
    y -= y.mean(0)
    np.testing.assert_allclose(noise(y), y.var(0, ddof=1))
    pairs = np.repeat(y[:30], 2, axis=0)
    pairs -= pairs.mean(0)
    single = y[:30] - y[:30].mean(0)
    np.testing.assert_allclose(noise(pairs, None, np.repeat(np.arange(30), 2)), 2 * noise(single))
    np.testing.assert_allclose(noise(y, np.ones(60)), noise(y))


def test_arm_means_shrink_by_the_rule_of_james_and_stein():
    _, _, found, _w = made()
    free = np.ones((3, 2), dtype=bool)
    mean, factor, _ = arm_means(found, free)
    psi = found.scores().psi_increments
    np.testing.assert_allclose(mean, psi.mean(0))
    chi2 = (psi.mean(0) ** 2 / (psi.var(0, ddof=1) / len(psi))).sum() * 2 / 3
    assert factor == pytest.approx(max(0, 1 - (4 - 2) / chi2))
    one = arm_means(found, free & np.array([True, False]))
    assert one[1] == 1.0  # two free directions: nothing to borrow from


@pytest.mark.parametrize("method", ["tier", "flat", "slope"])
def test_increments_cancel_and_new_rows_are_answered_alone(method):
    drawn, said, found, w = made()
    fitted = refit(found, method)
    base, own = applied(fitted, drawn, said, w)
    assert np.abs(np.einsum("nmk,m->nk", own, w)).max() < 1e-12
    again = Refit.from_arrays(method, fitted.arrays(), fitted.table)
    total = said[:, 1:] - said[:, :1]
    b = np.einsum("nmk,m->nk", total, w)
    few = again.apply(drawn.X[5:8], b[5:8], (total - b[:, None])[5:8])
    np.testing.assert_allclose(few[0], base[5:8], rtol=1e-9)
    np.testing.assert_allclose(few[1], own[5:8], atol=1e-12)


def test_base_has_the_mean_of_its_scores_and_increments_the_shrunken_arm_means():
    drawn, said, found, w = made()
    fitted = refit(found)
    base, own = applied(fitted, drawn, said, w)
    np.testing.assert_allclose(base.mean(0), found.scores().psi_base.mean(0), atol=1e-9)
    factor = next(row["factor"] for row in fitted.table if row["part"] == "arm means")
    np.testing.assert_allclose(own.mean(0), factor * found.scores().psi_increments.mean(0), atol=1e-9)


def test_one_arm_has_a_base_alone():
    drawn, said, found, w = made(arms=1)
    fitted = refit(found)
    base, own = applied(fitted, drawn, said, w)
    assert (own == 0).all()
    assert [row["part"] for row in fitted.table] == ["base"]
    np.testing.assert_allclose(base.mean(0), found.scores().psi_base.mean(0), atol=1e-9)


def test_a_reference_arm_keeps_no_increment():
    w = np.array([0.0, 1.0, 0.0])
    drawn, said, found, _ = made(tier_weights=w)
    base, own = applied(refit(found), drawn, said, w)
    assert np.abs(own[:, 1]).max() < 1e-12
    assert np.isfinite(base).all()


def test_rows_without_an_outcome_bear_on_the_other_alone():
    drawn, said, _whole, w = made()
    y = drawn.Y.copy()
    y[::3, 1] = np.nan
    *_, found, _ = made(y=y)
    assert np.isnan(found.scores().psi_base[::3, 1]).all()
    kept = np.arange(600) % 3 > 0
    base, own = applied(refit(found), drawn, said, w)
    np.testing.assert_allclose(base[:, 0].mean(), found.scores().psi_base[:, 0].mean(), atol=1e-9)
    np.testing.assert_allclose(base[kept, 1].mean(), found.scores().psi_base[kept, 1].mean(), atol=1e-9)
    assert np.isfinite(own).all()


def test_weights_of_any_scale_and_copies_instead_of_weights():
    drawn, said, _found, w = made()
    weight = stream(4, "weights").integers(1, 4, 600).astype(float)
    one, many = (made(weight=scale * weight)[2] for scale in (1.0, 7.0))
    for a, b in zip(applied(refit(one), drawn, said, w), applied(refit(many), drawn, said, w), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
    # Rows repeated and held together as clusters say what weights say.
    again = np.repeat(np.arange(600), weight.astype(int))
    copies = evidence(
        drawn.X[again],
        said[again],
        drawn.arm[again],
        drawn.Y[again],
        drawn.propensity[again],
        w,
        cluster=again,
    )
    one = evidence(drawn.X, said, drawn.arm, drawn.Y, drawn.propensity, w, weight=weight)
    assert copies.scores().psi_base.shape[0] == int(weight.sum())
    np.testing.assert_allclose(
        np.average(one.scores().psi_base, axis=0, weights=weight), copies.scores().psi_base.mean(0), rtol=1e-10
    )


def test_what_is_not_estimable_takes_no_part():
    known = np.ones((3, 2), dtype=bool)
    known[1, 0] = False
    y = made()[0].Y.copy()
    y[made()[0].arm == 2, 0] = np.nan
    drawn, said, found, w = made(estimable=known, y=y)
    rest = drawn.arm != 2
    alone = evidence(
        drawn.X[rest],
        said[rest][:, [0, 1, 3]],
        np.array([0, 1, 0, 2])[drawn.arm[rest]],
        drawn.Y[rest],
        np.full((rest.sum(), 3), 1 / 3),
        w[[0, 2]] / w[[0, 2]].sum(),
    )
    np.testing.assert_allclose(found.scores().psi_base[rest, 0], alone.scores().psi_base[:, 0])
    np.testing.assert_allclose(
        found.scores().psi_increments[rest][:, [0, 2], 0], alone.scores().psi_increments[:, :, 0]
    )
    fitted = refit(found)
    w = fitted.tier_weights
    assert w[1, 0] == 0
    np.testing.assert_allclose(w.sum(0), 1)
    total = said[:, 1:] - said[:, :1]
    base = np.einsum("nmk,mk->nk", total, w)
    base, own = fitted.apply(drawn.X, base, total - base[:, None])
    assert np.abs(np.einsum("nmk,mk->nk", own, w)).max() < 1e-12


def test_constant_columns_and_mean_only_models():
    drawn, said, found, w = made()
    x = np.concatenate([drawn.X, np.ones((600, 1))], axis=1)
    fitted = refit(evidence(x, said, drawn.arm, drawn.Y, drawn.propensity, w))
    total = said[:, 1:] - said[:, :1]
    b = np.einsum("nmk,m->nk", total, w)
    base, own = fitted.apply(x, b, total - b[:, None])
    reference = applied(refit(found), drawn, said, w)
    np.testing.assert_allclose(base, reference[0], atol=1e-9)
    np.testing.assert_allclose(own, reference[1], atol=1e-9)


def test_slopes_are_least_squares_and_never_negative():
    drawn, said, found, w = made()
    table = refit(found, "slope").table
    row = next(row for row in table if row["part"] == "base" and row["outcome"] == 0)
    assert row["slope"] == pytest.approx(np.polyfit(found.scores().base[:, 0], found.scores().psi_base[:, 0], 1)[0])
    assert row["factor"] == pytest.approx(max(0, 1 - 1 / row["t"] ** 2))
    flipped = evidence(drawn.X, -said, drawn.arm, drawn.Y, drawn.propensity, w)
    for row in refit(flipped, "slope").table:
        if row.get("slope") is not None and row["slope"] <= 0:
            assert row["factor"] == 0


@pytest.mark.parametrize("method", ["tier", "flat"])
def test_a_refit_by_blocks_is_that_of_the_whole_and_never_asks_for_all_columns(monkeypatch, method):
    y = made()[0].Y.copy()
    y[::3, 1] = np.nan
    weight = stream(2, "w").random(600) + 0.5
    whole = refit(made(y=y, weight=weight)[2], method)
    monkeypatch.setattr(_gaussian, "HELD", 64 * 20)
    asked = []

    def columns(rows):
        found = made()[0].X[rows]
        asked.append(len(found))
        return found

    said = made()[1]
    blocks = refit(made(y=y, weight=weight, x=columns, response=lambda rows: said[rows])[2], method)
    assert max(asked) < 120  # of 600
    for name, part in whole.parts.items():
        np.testing.assert_allclose(blocks.parts[name].coefficients, part.coefficients, atol=1e-11)
        np.testing.assert_allclose(blocks.parts[name].constant, part.constant, atol=1e-11)


def test_wrong_methods_and_too_few_rows():
    *_, found, _ = made()
    with pytest.raises(BadOption, match="shrink"):
        refit(found, "hard")
    with pytest.raises(TooFewRows):
        refit(made(n=3)[2])


@pytest.mark.parametrize("n", [5_000])
def test_the_refit_repairs_a_model_that_spreads_people_too_much(n):
    drawn, said, found, w = made(n=n)
    truth = drawn.truth.total
    tb = np.einsum("nmk,m->nk", truth, w)
    total = said[:, 1:] - said[:, :1]
    b = np.einsum("nmk,m->nk", total, w)
    base, own = applied(refit(found), drawn, said, w)

    def rmse(a):
        return np.sqrt((a**2).mean())

    assert rmse(own - (truth - tb[:, None])) < 0.5 * rmse(total - b[:, None] - (truth - tb[:, None]))
    assert rmse(base - tb) < 0.7 * rmse(b - tb)
