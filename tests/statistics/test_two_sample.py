"""The two-sample AUC: the fit against scikit-learn, ties, clusters, pairs, level and coverage."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from tests.harness import check_coverage, check_level

from querist.errors import BadOption, NonFinite, ShapeMismatch, TooFewRows
from querist.statistics import auc, folds, two_sample_auc
from querist.statistics.association import column_pair_sums
from querist.statistics.relabelling import unit_ids
from querist.statistics.two_sample import _aucs
from querist.statistics.two_sample_interval import RANKS, WIDTH, _tested, _through_fits, prepare


@pytest.mark.parametrize(("n", "p"), [(60, 4), (40, 90)])
def test_scores_are_those_of_a_ridge_regression_on_the_label(n, p):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((n, p)) * 3 + 7, rng.standard_normal((n, p)) * 3 + 7.5
    found = two_sample_auc(a, b, permutations=1, ridge=2.0, seed=4)
    rows, label = np.concatenate([a, b]), np.r_[np.zeros(n), np.ones(n)]
    fold = folds(2 * n, 5, seed=4)
    for f in range(5):
        train, held = rows[fold != f], rows[fold == f]
        mean, sd = train.mean(axis=0), train.std(axis=0)
        known = Ridge(alpha=2.0 * p).fit((train - mean) / sd, label[fold != f]).predict((held - mean) / sd)
        assert np.corrcoef(known, found.scores[fold == f])[0, 1] == pytest.approx(1, abs=1e-9)


@given(st.integers(0, 30))
def test_columns_of_scores_match_one_by_one(seed):
    rng = np.random.default_rng(seed)
    scores, label = rng.integers(0, 6, (30, 4)).astype(float), rng.random((30, 4)) < 0.4
    above, pairs = column_pair_sums(scores, label)
    for j in range(4):
        assert above[j] / pairs[j] == pytest.approx(auc(scores[:, j], label[:, j]))


def test_a_shift_is_seen_and_its_auc_is_the_closed_form():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2000, 1)), rng.standard_normal((1500, 1)) + 0.8
    found, again = (two_sample_auc(a, b, permutations=99) for _ in range(2))
    assert found.auc == pytest.approx(scipy.special.ndtr(0.8 / math.sqrt(2)), abs=0.02)
    assert found.low < found.auc < found.high
    assert found.p == 0.01
    assert found.scores.shape == (3500,)
    assert (again.low, again.high, again.p) == (found.low, found.high, found.p)


def test_equal_rows_tie_exactly():
    a = np.random.default_rng(0).integers(0, 2, (80, 3)).astype(float)
    found = two_sample_auc(a, a[::-1], permutations=19, pairs=(np.arange(80), np.arange(80)[::-1]))
    assert found.auc == 0.5  # both copies lie in one fold with equal scores
    assert (found.p, found.low, found.high) == (1, 0.5, 0.5)


def test_constant_columns_change_nothing():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 3)), rng.standard_normal((40, 3)) + 0.5
    wide = [np.column_stack([part, np.full(40, 0.1)]) for part in (a, b)]
    one, other = two_sample_auc(a, b, permutations=9, ridge=4), two_sample_auc(*wide, permutations=9, ridge=3)
    assert one.auc == other.auc  # ridge·p is the same


def test_rows_of_a_cluster_do_not_betray_each_other():
    rng = np.random.default_rng(0)
    ids = (np.repeat(np.arange(20), 5), np.repeat(np.arange(20, 40), 5))
    a, b = (rng.standard_normal((20, 8)).repeat(5, axis=0) for _ in range(2))
    assert two_sample_auc(a, b, permutations=199).p <= 0.01
    assert two_sample_auc(a, b, clusters=ids, permutations=199).p > 0.05


def test_two_sample_auc_refuses():
    x = np.zeros((10, 2))
    with pytest.raises(ShapeMismatch):
        two_sample_auc(x, np.zeros((10, 3)))
    with pytest.raises(NonFinite, match="b must"):
        two_sample_auc(x, np.full((10, 2), np.nan))
    for a, b in ((x[:1], x), (x[:0], x), (x[:2], x[:2])):
        with pytest.raises(TooFewRows):
            two_sample_auc(a, b)
    for options in ({"ridge": 0.0}, {"permutations": 0}, {"folds": 1}):
        with pytest.raises(BadOption):
            two_sample_auc(x, x, **options)
    assert two_sample_auc(x, x, permutations=9).p == 1


@pytest.mark.slow
@pytest.mark.parametrize("paired", [False, True])
def test_the_level_is_kept(paired):
    def draw(rng):
        return rng.standard_normal((2, 30, 3)) + (2 * rng.standard_normal((30, 3)) if paired else 0)

    check_level(lambda ab: two_sample_auc(*ab, pairs=paired, permutations=99).p, draw, runs=1600)


@pytest.mark.slow
def test_permuting_paired_rows_apart_is_wrong():
    def draw(rng):
        return rng.standard_normal((2, 30, 3)) + 4 * rng.standard_normal((30, 3))

    with pytest.raises(AssertionError, match="only 0"):
        check_level(lambda ab: two_sample_auc(*ab, permutations=99).p, draw)


@pytest.mark.parametrize(("shift", "inside"), [(0.0, (0.0, 1.0)), (50.0, (0.88, 1.0))])
def test_the_interval_lies_within_0_and_1_and_holds_the_estimate(shift, inside):
    rng = np.random.default_rng(1)
    found = two_sample_auc(rng.standard_normal((30, 4)), rng.standard_normal((40, 4)) + shift, permutations=1)
    assert inside[0] <= found.low <= found.auc <= found.high <= inside[1]
    if shift:  # 30 units of the smaller sample, none misplaced: .025^(1/30)
        assert (found.low, found.high) == (pytest.approx(0.025 ** (1 / 30)), 1.0)


def test_the_influence_of_a_row_is_what_leaving_it_out_changes():
    """Against refitting without each row: covariances, means and standard deviations of the training rows move too."""
    rng = np.random.default_rng(3)
    rows, second = rng.standard_normal((800, 3)) @ np.diag([1, 2, 3]), np.arange(800) >= 400
    rows[second, 0] += 0.5
    fold = folds(800, 2, seed=0)
    fits = [prepare(rows, fold == f, 30.0) for f in range(2)]
    tested = _tested(fits, second)
    pairs = sum(int(part.tested.sum()) * int((~part.tested).sum()) for part in tested)
    found = _through_fits(tested, rows, np.arange(800), 800, pairs, 0)

    def smooth(direction, part):
        """The AUC of a direction with the step from 0 to 1 drawn out as the slope is: without rounding in steps."""
        b, a = part.fold.test[part.tested] @ direction, part.fold.test[~part.tested] @ direction
        own = [part.fold.test[part.tested == y] @ part.direction for y in (True, False)]
        spread = math.sqrt(sum((float(np.subtract(*np.quantile(x, [0.75, 0.25]))) / 1.349) ** 2 for x in own) / 2)
        width = WIDTH * spread * math.sqrt(2) * (b.size * a.size / (b.size + a.size)) ** -0.2
        return float(scipy.special.ndtr((b[:, None] - a) / width).sum()) / pairs

    known = np.zeros(800)
    for part in tested:
        train = np.flatnonzero(~part.fold.held)
        for i in train[::40]:
            keep = np.ones(800, dtype=bool)
            keep[i] = False
            again = prepare(rows[keep], part.fold.held[keep], 30.0)
            y = second[keep][~again.held]
            delta = again.train[y].mean(axis=0) - again.train[~y].mean(axis=0)
            # The direction in the whole fold's coordinates: scores of the same held-out rows.
            scored = ((rows[part.fold.held] - again.mean) / again.sd @ again.root) @ delta
            direction = np.linalg.lstsq(np.column_stack([part.fold.test, np.ones(len(scored))]), scored, rcond=None)[0][
                :-1
            ]
            known[i] += smooth(part.direction, part) - smooth(direction, part)
    measured = known != 0
    assert measured.sum() >= 20
    assert np.corrcoef(known[measured], found[measured])[0, 1] > 0.99
    assert found[measured].std() == pytest.approx(known[measured].std(), rel=0.05)


def drawn(kind: str, n: int, m: int, p: int, shift: float, rng: np.random.Generator):
    """Two samples of unit spread whose means differ by `shift`, and how their rows belong together."""
    move, options = shift / math.sqrt(p), {}
    if kind == "paired":
        common = rng.standard_normal((n, p))
        a, b = (common + 0.7 * rng.standard_normal((n, p)) for _ in range(2))
        options = {"pairs": True}
    elif kind == "clustered":
        a, b = (
            (rng.standard_normal((size // 4, p)).repeat(4, axis=0) + rng.standard_normal((size, p))) / math.sqrt(2)
            for size in (n, m)
        )
        options = {"clusters": (np.arange(n) // 4, n + np.arange(m) // 4)}
    else:
        draw = (lambda shape: rng.standard_t(3, shape)) if kind == "t3" else rng.standard_normal
        a, b = draw((n, p)), draw((m, p))
    return a, b + move, options


COVERED = [
    ("normal", 60, 60, 5),
    ("normal", 60, 60, 40),
    ("normal", 400, 100, 20),
    ("normal", 400, 400, 40),
    ("clustered", 120, 120, 10),
    ("paired", 60, 60, 10),
    ("t3", 200, 200, 40),
]


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 0.3, 0.8, 2.0])
@pytest.mark.parametrize(("kind", "n", "m", "p"), COVERED)
def test_the_interval_covers_the_auc_expected_at_this_size(kind, n, m, p, shift):
    """The truth is the mean AUC of 1000 other draws: its error is a thirtieth of the spread, which moves coverage by .0005."""
    draw = functools.partial(drawn, kind, n, m, p, shift)

    def alone(samples):
        a, b, options = samples
        second = np.arange(n + m) >= n
        unit, _ = unit_ids(n, m, options.get("clusters"), options.get("pairs"))
        fold = folds(n + m, 5, clusters=unit, seed=0)
        rows = np.concatenate([a, b])
        return float(_aucs([prepare(rows, fold == f, 1.0) for f in range(5)], second[:, None])[0])

    def interval(samples):
        a, b, options = samples
        found = two_sample_auc(a, b, permutations=1, **options)
        return found.low, found.high

    others = (draw(np.random.default_rng([1, run])) for run in range(1000))
    expected = 0.5 if shift == 0 else float(np.mean([alone(samples) for samples in others]))
    assert check_coverage(interval, draw, expected, runs=800, within=0.02, conservative=True) <= 0.985


@pytest.mark.slow
def test_resampling_held_out_rows_alone_would_be_too_short_near_one_half():
    """Why the fits count: with their share taken away the interval holds ½ in .84 of null samples."""

    def interval(samples):
        found = two_sample_auc(*samples, permutations=1)
        middle = (scipy.special.logit(found.low) + scipy.special.logit(found.high)) / 2
        half = (scipy.special.logit(found.high) - scipy.special.logit(found.low)) / 2
        half /= math.sqrt(1 + RANKS)
        return float(scipy.special.expit(middle - half)), float(scipy.special.expit(middle + half))

    with pytest.raises(AssertionError, match=r"only 0\.8\d"):
        check_coverage(interval, lambda rng: rng.standard_normal((2, 200, 10)), 0.5)
