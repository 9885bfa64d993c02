"""Qini, AUUC and uplift numbers: the small example, published data, a literal reading of the definitions, properties."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effects.tables import S, T, Y, pair

from querist.effects.errors import LengthMismatch, ShareRange
from querist.effects.metrics import (
    ScoreHistogram,
    auuc,
    gain_curve,
    numbers,
    qini,
    ranked,
    uplift_at_k,
    uplift_bins,
    weighted_average_uplift,
)
from querist.effects.metrics._curves import areas
from querist.effects.metrics._order import walk
from querist.errors import BadOption, BadValues, NonFinite, UndefinedMetric

# ------------------------------------------------------------------------------------------------------- the small example


def test_example_curves():
    sk = gain_curve(Y, T, S, convention="sklift")
    assert sk.gain == pytest.approx([0, 1, 2, 2, 3, 3, 4, 4, 4, 2.75, 3])
    assert sk.perfect == pytest.approx(np.array([[0, 0], [4, 4], [9, 4], [10, 3]]))
    up = gain_curve(Y, T, S, kind="uplift", convention="sklift")
    assert up.gain == pytest.approx([0, 1, 2, 3, 4, 5, 6, 7, 6.4, 4.95, 6])
    assert up.perfect == pytest.approx(np.array([[0, 0], [4, 4], [8, 8], [9, 7.2], [10, 6]]))
    lift = gain_curve(Y, T, S, kind="uplift", convention="causalml")
    third = 1 / 3
    assert lift.gain / np.maximum(lift.n, 1) == pytest.approx([0, third, 2 * third, 1, 1, 1, 1, 1, 0.8, 0.55, 0.6])
    cq = gain_curve(Y, T, S, convention="causalml")
    assert cq.gain == pytest.approx([0, 2 * third, 4 * third, 2, 3, 3, 4, 4, 4, 2.75, 3])
    assert cq.perfect is None
    assert sk.line == pytest.approx(0.3 * sk.n)


def test_example_numbers():
    assert qini(Y, T, S) == pytest.approx(0.7424242424, abs=5e-11)
    assert auuc(Y, T, S) == pytest.approx(0.7623456790, abs=5e-11)
    assert auuc(Y, T, S, convention="causalml", normalise=False) == pytest.approx(4.0015151515, abs=5e-11)
    assert auuc(Y, T, S, convention="causalml") == pytest.approx(0.6669191919, abs=5e-11)
    assert uplift_at_k(Y, T, S, 0.3) == 1.0
    assert qini(Y, T, S, convention="rate") == pytest.approx(0.12, abs=1e-12)
    assert qini(1 - Y, T, S, convention="rate") == pytest.approx(-0.12, abs=1e-12)
    # Without negative effects the perfect curve is (0, 0), (3, 3), (10, 3): area 25.5; the curve's is 27.25, the line's 15.
    assert qini(Y, T, S, negative_effect=False) == pytest.approx(12.25 / 10.5)


def test_a_constant_score_is_the_random_line():
    flat = np.zeros(10)
    assert qini(Y, T, flat) == 0
    assert auuc(Y, T, flat) == 0
    assert auuc(Y, T, flat, convention="causalml") == pytest.approx(0.5, abs=1e-15)
    assert qini(Y, T, flat, convention="causalml") == 0
    assert qini(Y, T, flat, convention="rate") == pytest.approx(0, abs=1e-16)
    assert numbers(ranked(Y, T, flat))["rate autoc"] == pytest.approx(0, abs=1e-15)
    curve = gain_curve(Y, T, flat, convention="rate")
    assert curve.gain == pytest.approx(curve.line, abs=1e-15)


def test_a_zero_effect_leaves_normalised_numbers_undefined():
    y, t = np.array([1, 0, 1, 0, 1, 0, 0, 1, 0, 0.0]), np.array([1, 1, 0, 1, 1, 0, 1, 0, 0, 0])
    for metric in (qini, auuc):
        with pytest.raises(UndefinedMetric, match="ends at 0"):
            metric(y, t, S, convention="causalml")
        assert np.isfinite(metric(y, t, S, convention="causalml", normalise=False))
    with pytest.raises(UndefinedMetric, match="positive effect"):
        qini(y, t, S, negative_effect=False)


# --------------------------------------------------------------------------------------------------------- published data

HILLSTROM = [
    ("Mens E-Mail", "history", 0.018433, 0.009578, 0.532453, 0.032175),
    ("Womens E-Mail", "womens history", 0.062129, 0.028587, 0.667968, 0.168711),
    ("Womens E-Mail", "history", 0.002622, 0.001048, 0.504912, 0.005880),
]


def score_of(frame, name: str) -> np.ndarray:
    history = frame["history"].to_numpy()
    return frame["womens"].to_numpy() * history if name == "womens history" else history


@pytest.mark.parametrize(("arm", "name", "sk_qini", "sk_auuc", "cm_auuc", "cm_qini"), HILLSTROM)
def test_hillstrom(arm, name, sk_qini, sk_auuc, cm_auuc, cm_qini):
    frame, y, t = pair(arm)
    score = score_of(frame, name)
    assert qini(y, t, score) == pytest.approx(sk_qini, abs=5.1e-7)
    assert auuc(y, t, score) == pytest.approx(sk_auuc, abs=5.1e-7)
    # The stored causalml values had their ties broken by row order.
    rank = -np.argsort(np.argsort(-score, kind="stable")).astype(float)
    assert auuc(y, t, rank, convention="causalml") == pytest.approx(cm_auuc, abs=5.1e-7)
    assert qini(y, t, rank, convention="causalml") == pytest.approx(cm_qini, abs=5.1e-7)


def test_hillstrom_ties_leaks_and_shares():
    frame, y, t = pair("Mens E-Mail")
    recency = -frame["recency"].to_numpy().astype(float)
    assert gain_curve(y, t, recency).n.size == 13
    assert qini(y, t, recency) == pytest.approx(0.011849, abs=5.1e-7)
    assert auuc(y, t, recency) == pytest.approx(0.006381, abs=5.1e-7)
    history = frame["history"].to_numpy()
    leak = history * (2 * t - 1)
    assert qini(y, t, leak) == pytest.approx(0.455266, abs=5.1e-7)
    assert auuc(y, t, leak) == pytest.approx(0.086366, abs=5.1e-7)
    rank = -np.argsort(np.argsort(-history, kind="stable"))
    assert uplift_at_k(y, t, rank, 0.3) == pytest.approx(0.089479, abs=5.1e-7)
    frame, y, t = pair("Womens E-Mail")
    rank = -np.argsort(np.argsort(-frame["history"].to_numpy(), kind="stable"))
    assert uplift_at_k(y, t, rank, 0.3) == pytest.approx(0.047942, abs=5.1e-7)


# ------------------------------------------------------------------------------------------------------ a literal reading


def literal(y, t, s, w=None):
    """Every convention by its definition on points at the ends of tie groups, whole weights as repeated rows."""
    if w is not None:
        y, t, s = (np.repeat(x, w) for x in (y, t, s))
    o = np.argsort(-s, kind="stable")
    y, t, s = y[o], t[o].astype(float), s[o]
    n = np.arange(1, y.size + 1)
    ends = np.r_[s[1:] != s[:-1], True]
    nt, yt, yc = (np.r_[0, np.cumsum(x)[ends]] for x in (t, t * y, (1 - t) * y))
    n = np.r_[0, n[ends]].astype(float)
    nc = n - nt
    with np.errstate(all="ignore"):
        q = np.where(nc > 0, yt - yc * nt / nc, yt)
        u = (np.where(nt > 0, yt / nt, 0) - np.where(nc > 0, yc / nc, 0)) * n
        q2, lift = yt - yc * nt / nc, yt / nt - yc / nc
    q2[0] = lift[0] = 0
    for values in (q2, lift):
        good = np.isfinite(values)
        values[:] = np.interp(n, n[good], values[good])
    every = np.arange(y.size + 1)
    e, m1, m0 = nt[-1] / n[-1], yt[-1] / nt[-1], yc[-1] / nc[-1]
    psi = m1 - m0 + t * (y - m1) / e - (1 - t) * (y - m0) / (1 - e)
    cum = np.interp(every, n, np.r_[0, np.cumsum(psi)[ends]])
    toc = cum[1:] / every[1:] - psi.mean()
    return {
        "sklift qini raw": np.trapezoid(q, n) - q[-1] * n[-1] / 2,
        "sklift auuc raw": np.trapezoid(u, n) - u[-1] * n[-1] / 2,
        "causalml qini raw": np.interp(every, n, q2).mean() - q2[-1] / 2,
        "causalml auuc raw": np.interp(every, n, lift * n).mean(),
        "rate qini": (every[1:] / y.size * toc).mean(),
        "rate autoc": toc.mean(),
    }


ROWS = st.integers(0, 10_000)


def draw(seed: int, binary: bool = True, levels: int = 6, n: int = 40):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n).astype(float) if binary else rng.normal(size=n)
    t = rng.integers(0, 2, n)
    t[:2] = 0, 1
    return y, t, rng.integers(0, levels, n).astype(float), rng


@settings(max_examples=60, deadline=None)
@given(ROWS, st.booleans(), st.sampled_from([2, 8, 10**9]), st.booleans())
def test_numbers_are_those_of_the_definitions(seed, binary, levels, weighted):
    y, t, s, rng = draw(seed, binary, levels)
    w = rng.integers(0, 4, y.size) if weighted else None
    if w is not None:
        w[:2] = 1
    found = numbers(ranked(y, t, s, w))
    for name, value in literal(y, t, s, w).items():
        assert found[name] == pytest.approx(value, abs=1e-11), name


@settings(max_examples=40, deadline=None)
@given(ROWS, st.sampled_from([1, 3, 7, 16, 64]), st.sampled_from([3, 10**9]), st.booleans())
def test_blocks_change_nothing(seed, block, levels, binary):
    y, t, s, _ = draw(seed, binary, levels)
    rows = ranked(y, t, s)
    whole = next(walk(rows, block=rows.n))
    parts = list(walk(rows, block=block))
    joined = np.concatenate([parts[0], *[part[:, 1:] for part in parts[1:]]], axis=1)
    assert joined == pytest.approx(whole, abs=1e-12)
    for before, after in itertools.pairwise(parts):
        assert (before[:, -1] == after[:, 0]).all()


def test_areas_over_many_blocks(monkeypatch):
    y, t, s, _ = draw(1, levels=10**9, n=500)
    order = np.argsort(-s)
    t[order[:200]] = 1  # the beginning without controls spans blocks
    for tied in (s, np.round(s, -8)):
        rows = ranked(y, t, tied)
        whole = areas(rows)
        monkeypatch.setattr("querist.effects.metrics._order.BLOCK", 64)
        monkeypatch.setattr("querist.effects.metrics._curves.walk", lambda r, w=None: walk(r, w, 64))
        for one, other in zip(
            [getattr(whole, f) for f in ("qini", "uplift", "qini_from", "gain_from")],
            [getattr(areas(rows), f) for f in ("qini", "uplift", "qini_from", "gain_from")],
            strict=True,
        ):
            assert one == pytest.approx(other, rel=1e-12)
        monkeypatch.undo()


# -------------------------------------------------------------------------------------------------------------- properties

KEYS = ("sklift qini", "sklift auuc", "causalml qini raw", "causalml auuc raw", "rate qini", "rate autoc")


@settings(max_examples=40, deadline=None)
@given(ROWS, st.sampled_from([3, 10**9]))
def test_other_labels_negate_reversal_negates_and_monotone_transforms_change_nothing(seed, levels):
    y, t, s, rng = draw(seed, True, levels)
    one, other = numbers(ranked(y, t, s)), numbers(ranked(1 - y, t, s))
    for name in KEYS[2:]:
        assert other[name] == pytest.approx(-one[name], abs=1e-11), name
    assert numbers(ranked(y, t, -s))["rate qini"] == pytest.approx(-one["rate qini"], abs=1e-12)
    moved = rng.permutation(y.size)
    same = numbers(ranked(y[moved], t[moved], np.arctan(s[moved] / 1e10)))
    for name in KEYS:
        assert repr(one[name]) == repr(same[name]) or same[name] == pytest.approx(one[name], abs=1e-11), name


@settings(max_examples=40, deadline=None)
@given(ROWS, st.integers(2, 4))
def test_repeated_rows(seed, times):
    y, t, s, _ = draw(seed, True, 8)
    one = numbers(ranked(y, t, s))
    many = numbers(ranked(*(np.repeat(x, times) for x in (y, t, s))))
    weighted = numbers(ranked(y, t, s, np.full(y.size, times)))
    for name in one:
        if isinstance(one[name], UndefinedMetric):
            assert isinstance(many[name], UndefinedMetric)
            continue
        assert weighted[name] == pytest.approx(many[name], abs=1e-10), name
    for name in ("sklift qini", "sklift auuc", "rate qini"):
        if not isinstance(one[name], UndefinedMetric):
            assert many[name] == pytest.approx(one[name], abs=1e-11), name
    k = 0.3
    if not isinstance(value := numbers(ranked(y, t, s), (k,))["uplift@0.3"], UndefinedMetric):
        assert uplift_at_k(*(np.repeat(x, times) for x in (y, t, s)), k) == pytest.approx(value)


def test_ties_are_the_average_over_their_orders():
    y, t, s, rng = draw(5, True, 4, n=30)
    mean = []
    for _ in range(4000):
        noise = rng.random(30) / 2
        mean.append(qini(y, t, s + noise, convention="rate"))
    assert qini(y, t, s, convention="rate") == pytest.approx(np.mean(mean), abs=4 * np.std(mean) / 4000**0.5)


def test_shares_of_the_ranking():
    y, t, s, _ = draw(3, levels=10**9, n=100)
    o = np.argsort(-s)
    top = o[:29]
    assert uplift_at_k(y, t, s, 0.29) == pytest.approx(y[top][t[top] == 1].mean() - y[top][t[top] == 0].mean())
    a, b = o[t[o] == 1], o[t[o] == 0]
    expected = y[a[: int(a.size * 0.4)]].mean() - y[b[: int(b.size * 0.4)]].mean()
    assert uplift_at_k(y, t, s, 0.4, strategy="by_group") == pytest.approx(expected)
    parts = np.array_split(o, 4)
    gains = np.array([y[p][t[p] == 1].mean() - y[p][t[p] == 0].mean() for p in parts])
    sizes = np.array([t[p].sum() for p in parts])
    assert weighted_average_uplift(y, t, s, bins=4) == pytest.approx(gains @ sizes / sizes.sum())
    assert uplift_bins(y, t, s, bins=4).n_treated == pytest.approx(sizes)
    grouped = uplift_bins(y, t, s, bins=3, strategy="by_group")
    assert grouped.mean_treated == pytest.approx([y[p].mean() for p in np.array_split(a, 3)])
    flat = np.zeros(100)
    effect = y[t == 1].mean() - y[t == 0].mean()
    assert uplift_at_k(y, t, flat, 0.37) == pytest.approx(effect)
    assert weighted_average_uplift(y, t, flat, bins=7) == pytest.approx(effect)


def test_an_empty_cell_is_named():
    t, s, y = np.repeat([1, 0], 5), np.arange(10.0)[::-1], np.arange(10) % 2.0
    with pytest.raises(UndefinedMetric, match="Bin 1 of 2 holds no control"):
        weighted_average_uplift(y, t, s, bins=2)
    with pytest.raises(UndefinedMetric, match="no control row"):
        uplift_at_k(y, t, s, 0.5)


def test_what_no_metric_takes():
    with pytest.raises(BadValues, match="two values") as caught:
        qini(Y, np.arange(10) % 3, S)
    assert "arm at a time" in str(caught.value)
    with pytest.raises(NonFinite):
        qini(np.where(Y > 0, np.nan, Y), T, S)
    with pytest.raises(LengthMismatch, match="score 9") as caught:
        qini(Y, T, S[:9])
    assert caught.value.code == "length"
    for k in (0, 1, 1.2, -0.1, float("nan")):
        with pytest.raises(ShareRange):
            uplift_at_k(Y, T, S, k)
    for flag in (0, 1):
        with pytest.raises(UndefinedMetric, match="both groups"):
            qini(Y, np.full(10, flag), S)
    with pytest.raises(UndefinedMetric, match="perfect"):
        qini(Y * 2.5, T, S)
    with pytest.raises(UndefinedMetric, match="random line"):
        qini(Y * 0, T, S)
    assert np.isfinite(qini(Y * 2.5, T, S, normalise=False))
    with pytest.raises(BadOption):
        auuc(Y, T, S, convention="rate")  # type: ignore[arg-type]
    with pytest.raises(BadOption):
        gain_curve(Y, T, S, kind="uplift", convention="rate")
    before = (Y.copy(), T.copy(), S.copy())
    numbers(ranked(Y, T, S), (0.1, 0.5))
    assert all((a == b).all() for a, b in zip(before, (Y, T, S), strict=True))


# ----------------------------------------------------------------------------------------------------------- beyond memory


@settings(max_examples=30, deadline=None)
@given(ROWS, st.booleans(), st.sampled_from([4, 64, 1024]))
def test_a_histogram_has_the_numbers_of_its_binned_score_within_its_bound(seed, binary, bins):
    y, t, s, rng = draw(seed, binary, 10**9, n=200)
    s = s / 1e9
    parts = np.array_split(rng.permutation(200), 3)
    whole = ScoreHistogram(0.0, 1.0, bins=bins)
    for part in parts:
        whole.merge(ScoreHistogram(0.0, 1.0, bins=bins).update(y[part], t[part], s[part]))
    binned, exact = numbers(ranked(y, t, np.floor(s * bins))), numbers(ranked(y, t, s))
    for name, value in whole.numbers().items():
        if isinstance(value, UndefinedMetric):
            assert isinstance(binned[name], UndefinedMetric)
        else:
            assert value == pytest.approx(binned[name], abs=1e-10), name
    assert abs(whole.numbers()["rate qini"] - exact["rate qini"]) <= whole.qini_bound() + 1e-12
    assert whole.qini_bound() < 2 / bins


def test_histograms_refuse():
    with pytest.raises(BadOption, match="do not merge"):
        ScoreHistogram(0, 1).merge(ScoreHistogram(0, 2))
    with pytest.raises(BadOption):
        ScoreHistogram(1, 1)
    with pytest.raises(UndefinedMetric):
        ScoreHistogram(0, 1).update(Y, T * 0, S).numbers()
    outside = ScoreHistogram(0.3, 0.6, bins=3).update(Y, T, S)
    assert outside.points()[0, -1] == 10
