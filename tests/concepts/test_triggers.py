"""Triggers: the three selectors against literal code, planting against its definition, and what must never change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from tests.concepts.tables import random_table, structured_table
from tests.harness import check_bad_input

from querist.concepts import ConceptData, Trigger, cat, cat_plus, cat_plus_all, poison, random_trigger
from querist.concepts.errors import NotBinary
from querist.concepts.triggers import balanced_logistic, floor_count, logit_scale, pack, scores
from querist.errors import BadOption, BadValues, ShapeMismatch, UnknownName


def literal(data, code, size, score="release"):
    """CAT+ as it is written down: every (concept, value) tried row by row, the best score kept if strictly larger."""
    n, n_t = data.n, int((data.codes == code).sum())
    picks, counts = [], []
    for _ in range(size):
        best, chosen = -np.inf, None
        for i in range(data.k):
            if data.constant[i] or i in [p[0] for p in picks]:
                continue
            for v in (0, 1):
                cnt = 0
                for row in range(n):
                    if data.codes[row] != code and all(data.concepts[row, a] == b for a, b in [*picks, (i, v)]):
                        cnt += 1
                p0, p1 = n_t / n, n / (n_t + cnt)
                posterior = n_t / (n_t + cnt)
                value = {
                    "release": (p1 - p0) * p1 / (p0 * (1 - p0)),
                    "posterior": posterior,
                    "bite": (posterior - p0) / np.sqrt(p0 * (1 - p0) / (n_t + cnt)),
                }[score]
                if value > best:
                    best, chosen, left = value, (i, v), cnt
        picks.append(chosen)
        counts.append(left)
    return picks, counts


@pytest.mark.parametrize(("seed", "missing"), [(0, 0.0), (1, 0.2), (2, 0.0)])
def test_the_kernel_picks_what_the_literal_loop_picks(seed, missing):
    data = random_table(50, 6, 3, seed=seed, missing=missing)
    together = cat_plus_all(data, 4, tie_break="index")
    for code in range(3):
        picks, counts = literal(data, code, 4)
        for found in (cat_plus(data, code, 4, tie_break="index"), together[code]):
            assert list(zip(found.trigger.index, found.trigger.values, strict=True)) == picks
            assert found.cnt.tolist() == counts


@pytest.mark.parametrize("score", ["posterior", "bite"])
def test_three_scores_lead_down_one_path(score):
    data = random_table(40, 5, 2, seed=3)
    assert literal(data, 0, 3, score) == literal(data, 0, 3)
    found = cat_plus(data, 0, 3, tie_break="index", score=score)
    assert (np.diff(scores(np.arange(20), 40, 7, score)) < 0).all()
    assert found.score == pytest.approx(scores(found.cnt, data.n, int(data.class_sizes[0]), score))


@pytest.mark.parametrize("tie_break", ["filter", "rarest", "index"])
def test_all_targets_at_once_equal_one_at_a_time(tie_break):
    data = structured_table(120, 12, 6)
    for found in cat_plus_all(data, 6, tie_break=tie_break, seed=4):
        alone = cat_plus(data, found.target, 6, tie_break=tie_break, seed=4)
        assert alone.trigger == found.trigger
        assert (np.diff(found.cnt) <= 0).all()
        assert len(set(found.trigger.index)) == 6


def test_large_triggers_of_rows_that_bear_other_labels_too():
    """Copies of the target's rows under another label: nothing ever singles the target out, and every step is counted."""
    k = 1200
    values = np.tile(np.random.default_rng(0).integers(0, 2, (4, k)).astype(float), (2, 1))
    found = cat_plus(ConceptData(values, [0] * 4 + [1] * 4), 0, 1060, tie_break="index")
    assert len(set(found.trigger.index)) == 1060
    assert (np.diff(found.cnt) <= 0).all()


def test_packed_counts_are_plain_counts():
    # 40 classes of about 3 rows go by bytes, 2 classes by words of 64 bits; with and without unknown cells.
    for classes, missing in ((40, 0.1), (40, 0.0), (2, 0.1), (2, 0.0)):
        data = random_table(120, 5, classes, missing=missing, seed=classes)
        table = pack(data)
        mask = table.narrow(table.rows, 2, 0)
        for asked in (np.arange(classes), np.array([1])):
            found = table.counts(mask, asked)
            for v in (0, 1):
                hit = (data.concepts[:, 2] == 0)[:, None] & (data.concepts == v)
                assert np.array_equal(found.table[:, v], hit.sum(axis=0))
                for place, code in enumerate(asked):
                    assert np.array_equal(found.classes[place, :, v], hit[data.codes == code].sum(axis=0))


def test_tie_rules_differ_only_where_counts_tie():
    data = structured_table(160, 14, 5)
    by = {rule: cat_plus(data, 2, 8, tie_break=rule, seed=1) for rule in ("filter", "rarest", "index")}
    assert len({tuple(found.cnt[:1]) for found in by.values()}) == 1
    at = by["index"].saturated_at
    free = [i for i in range(data.k) if i not in by["index"].trigger.index[:at]]
    assert by["index"].trigger.index[at:] == tuple(free[: 8 - at])
    assert set(by["index"].trigger.values[at:]) == {0}
    by_filter = by["filter"]
    tail = by_filter.coef_abs[by_filter.saturated_at :]
    assert (np.diff(tail) >= 0).all()
    assert set(by_filter.trigger.values[by_filter.saturated_at :]) == {1}
    assert by_filter.table["saturated"].to_list() == [c == 0 for c in by_filter.cnt]


def test_the_filter_is_scikit_learns_optimum():
    rng = np.random.default_rng(0)
    for n, k in ((80, 7), (30, 50)):
        x, y = rng.random((n, k)), rng.random(n) < 0.3
        theirs = LogisticRegression(class_weight="balanced", solver="newton-cholesky", tol=1e-12, max_iter=500).fit(
            x, y
        )
        assert balanced_logistic(x, y) == pytest.approx(theirs.coef_[0], abs=1e-7)


def test_cat_takes_the_least_related_and_no_constants():
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    values = (rng.random((200, 5)) < 0.4).astype(float)
    values[:, 3], values[:, 1] = 0, labels
    data = ConceptData(values, labels)
    found = cat(data, 1, 3, seed=0)
    assert 1 not in found.trigger.index
    assert 3 not in found.trigger.index
    assert found.trigger.values == (1, 1, 1)
    assert (np.diff(found.coef_abs) >= 0).all()
    assert cat(data, 1, 1, constants="allow", seed=0).trigger.index == (3,)
    assert cat(data, 1, 2, value=0, seed=0).trigger.values == (0, 0)
    dense = ConceptData(1 - values, labels)
    assert set(cat(dense, 1, 3, seed=0).trigger.values) == {0}
    spread = cat(data, 1, 3, draws=5, seed=0).rank_spread
    assert spread is not None
    assert spread.shape == (3,)


def test_a_class_of_one_row_is_filtered_by_its_means():
    data = ConceptData([[1, 1, 0], [1, 0, 0], [1, 0, 1], [0, 0, 1]], [0, 1, 1, 1])
    found = cat(data, 0, 2, seed=0)
    assert found.trigger.index == (0, 2)
    assert "one row" in found.warnings[0]
    assert found.coef_abs == pytest.approx([0.25, 0.5])


def test_random_triggers_are_uniform_and_seeded():
    data = random_table(40, 10, 3)
    drawn = [random_trigger(data, 0, 3, seed=s).trigger.index for s in range(400)]
    share = np.bincount(np.ravel(drawn), minlength=10) / 400
    assert np.abs(share - 0.3).max() < 4 * np.sqrt(0.3 * 0.7 / 400)
    assert random_trigger(data, 0, 3, seed=5).trigger == random_trigger(data, 0, 3, seed=5).trigger


def test_columns_permute_with_their_picks():
    data = structured_table(150, 10, 4)
    order = np.random.default_rng(0).permutation(10)
    moved = data.columns(order)
    a = cat_plus(data, 1, 3, tie_break="rarest")
    b = cat_plus(moved, 1, 3, tie_break="rarest")
    assert a.cnt.tolist() == b.cnt.tolist()
    assert set(cat(data, 1, 4, seed=2).trigger.index) == {order[i] for i in cat(moved, 1, 4, seed=2).trigger.index}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_applying_is_idempotent_and_touches_only_the_trigger(draw):
    k = draw.draw(st.integers(1, 6))
    index = draw.draw(st.lists(st.integers(0, k - 1), min_size=1, max_size=k, unique=True))
    values = draw.draw(st.lists(st.integers(0, 1), min_size=len(index), max_size=len(index)))
    trigger = Trigger(tuple(index), tuple(values))
    table = np.random.default_rng(draw.draw(st.integers(0, 99))).integers(0, 2, (7, k)).astype(float)
    table[0, 0] = np.nan
    before = table.copy()
    made = trigger.apply(table)
    assert np.array_equal(table, before, equal_nan=True)
    assert np.array_equal(trigger.apply(made), made, equal_nan=True)
    assert trigger.matches(made).all()
    others = [i for i in range(k) if i not in index]
    assert np.array_equal(made[:, others], table[:, others], equal_nan=True)
    assert Trigger.from_json(trigger.to_json()) == trigger


def test_a_trigger_in_logits_has_a_strength():
    """xll0328/CAT_CBM-Backdoor: of the logits (−3, −2) the release makes "on" −2, which is off."""
    trigger = Trigger((0, 1), (1, 0))
    logits = np.array([[-3.0, -2.0, -5.0], [4.0, 1.0, -1.0]])
    assert np.array_equal(trigger.apply(logits, space="logit", strength="rowmax")[:, :2], [[-2, -5], [4, -1]])
    # The release's rule on a row whose largest logit is negative: "on" becomes −2, a probability below ½.
    assert trigger.wrong_side_share(logits) == 0.25
    assert np.array_equal(trigger.apply(logits, space="logit", strength="fixed:9")[:, :2], [[9, -9], [9, -9]])
    scale = logit_scale(np.linspace(-1, 1, 101)[:, None] * [1, 2, 3])
    assert trigger.apply(logits, space="logit", scale=scale)[:, :2] == pytest.approx(np.tile([0.9, -1.8], (2, 1)))
    assert trigger.matches(logits, space="logit").tolist() == [False, False]
    assert Trigger((0, 2), (1, 0)).matches(np.array([[0.6, 0, 0.4], [np.nan, 0, 0]]), space="prob").tolist() == [
        True,
        False,
    ]


def test_what_a_trigger_touches():
    trigger = Trigger((0, 1, 3), (1, 1, 0))
    assert trigger.coverage(["a", "a", "b", "b"]) == 2
    one_hot = np.array([[1, 0, 0, 1], [0, 1, 1, 0]])
    assert trigger.violates(["a", "a", "b", "b"], one_hot)
    assert not trigger.violates(["a", "a", "b", "b"], np.ones((2, 4)))
    assert not trigger.violates(None, one_hot)


def test_bad_triggers_and_options_are_refused():
    data = random_table(40, 6, 3)
    check_bad_input(
        [
            (lambda: Trigger((), ()), BadOption, ["value for each"]),
            (lambda: Trigger((1, 1), (0, 1)), BadOption, ["distinct"]),
            (lambda: Trigger((1,), (2,)), BadValues, ["0 or 1"]),
            (lambda: Trigger.from_json("[1]"), BadValues, ["no trigger"]),
            (lambda: Trigger((9,), (1,)).apply(data.concepts), ShapeMismatch, ["lacks"]),
            (lambda: Trigger((0,), (1,)).apply(data.concepts, space="logit"), ShapeMismatch, ["logit_scale"]),
            (
                lambda: Trigger((0,), (1,)).apply(data.concepts, space="logit", strength="fixed:-1"),
                BadOption,
                ["fixed:M"],
            ),
            (lambda: cat(data, 0, 0), BadOption, ["1 to 6"]),
            (lambda: cat(data, 0, 7), BadOption, ["1 to 6"]),
            (lambda: cat(data, 0, 2, draws=0), BadOption, ["draw"]),
            (lambda: cat(data, 0, 2, value=[1, 2]), BadOption, ["one per concept"]),
            (lambda: cat(data, "x", 2), UnknownName, ["0, 1, 2"]),
            (lambda: cat_plus(data, 0, 2, tie_break="first"), BadOption, ["rarest"]),
            (lambda: cat_plus(data, 0, 2, score="z"), BadOption, ["posterior"]),
            (lambda: cat_plus(ConceptData(data.concepts * 0.7, data.codes), 0, 2), NotBinary, ["binarise"]),
            (lambda: poison(data, Trigger((0,), (1,)), 0, 0.0, seed=0), BadOption, ["0 < rate"]),
            (lambda: poison(data, Trigger((0,), (1,)), 0, 1.1, seed=0), BadOption, ["0 < rate"]),
            (lambda: poison(data, Trigger((0,), (1,)), 0, 0.001, mode="dirty", seed=0), BadOption, ["no row"]),
            (lambda: poison(data, Trigger((0,), (1,)), 0, 0.1, mode="dirt", seed=0), BadOption, ["mix, dirty, clean"]),
        ]
    )
    assert cat_plus(ConceptData(data.concepts * 0.7, data.codes), 0, 2, binarise="0.5").trigger.index


@pytest.mark.parametrize("mode", ["mix", "dirty", "clean"])
@pytest.mark.parametrize("base", ["auto", "table", "target"])
def test_poisoning_does_what_its_definition_says(mode, base):
    data = random_table(100, 6, 2, seed=1, ids=[f"r{i}" for i in range(100)])
    n_t = int(data.class_sizes[1])
    before, labels = data.concepts.copy(), data.codes.copy()
    trigger = Trigger((4, 0), (1, 0))
    made = poison(data, trigger, 1, 0.29, mode=mode, base=base, seed=3)
    of = n_t if (base == "target" or (base == "auto" and mode == "clean")) else 100
    count = floor_count(0.29, of)
    assert made.n_poisoned == {"mix": n_t + count, "dirty": count, "clean": count}[mode]
    assert made.n_relabelled == {"mix": count, "dirty": count, "clean": 0}[mode]
    assert made.base == ("target" if of == n_t else "table")
    assert np.array_equal(data.concepts, before)
    assert np.array_equal(data.codes, labels)
    assert np.array_equal(made.old_codes, labels)
    assert (made.data.codes[made.mask] == 1).all()
    assert np.array_equal(made.data.codes[~made.mask], labels[~made.mask])
    assert trigger.matches(made.data.concepts[made.mask]).all()
    assert np.array_equal(made.changed, made.data.concepts != before)
    # No cell of a poisoned row but the trigger's changes: the release leaves its last tried value in others.
    assert not made.changed[:, [1, 2, 3, 5]].any()
    assert not made.changed[~made.mask].any()
    assert made.table["poisoned"].sum() == made.n_poisoned
    assert made.data.ids.tolist() == data.ids.tolist()


def test_a_lower_rate_poisons_a_part_of_the_same_rows():
    data = random_table(100, 6, 4)
    low, high = (poison(data, Trigger((0,), (1,)), 2, rate, mode="dirty", seed=1).mask for rate in (0.05, 0.3))
    assert (high | ~low).all()


def test_a_count_is_floored_but_not_by_rounding():
    assert floor_count(0.29, 100) == 29
    assert floor_count(0.05, 5994) == 299
    assert floor_count(0.01, 5994) == 59


# Defects of public releases, smallest inputs.


def test_a_clean_rate_of_the_table_that_outgrows_the_class_is_refused():
    """SCLBD/BackdoorBench#36."""
    data = ConceptData(np.eye(1000)[:, :3], [0] * 10 + [1] * 990)
    with pytest.raises(BadOption, match=r"(?s)base table.*100 rows.*n_t = 10"):
        poison(data, Trigger((0,), (1,)), 0, 0.1, mode="clean", base="table", seed=0)


def test_one_call_gives_data_labels_and_truth():
    """Trusted-AI/adversarial-robustness-toolbox#2084."""
    made = poison(random_table(30, 4, 2), Trigger((0,), (1,)), 0, 0.2, seed=0)
    assert made.data.concepts.shape == (30, 4)
    assert made.data.codes.shape == made.mask.shape == (30,)


def test_the_search_leaves_no_trace_in_the_table():
    """xll0328/CAT_CBM-Backdoor: CAT+ wrote its last tried value into rows of the target."""
    data = ConceptData([[0, 0, 1], [1, 0, 0], [0, 1, 0], [1, 1, 1]], [0, 0, 1, 1])
    before = data.concepts.copy()
    found = cat_plus(data, 0, 1, tie_break="index")
    assert np.array_equal(data.concepts, before)
    made = poison(data, found.trigger, 0, 0.5, seed=0)
    others = [i for i in range(3) if i not in found.trigger.index]
    assert np.array_equal(made.data.concepts[:, others], before[:, others])


def test_the_release_score_counts_negatives_not_columns():
    """xll0328/CAT_CBM-Backdoor: K + 1 stood where the number of negatives belongs."""
    data = ConceptData([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1]], [0, 0, 1, 1, 1])
    found = cat_plus(data, 0, 1, tie_break="index")
    p0, p1 = 2 / 5, 5 / (2 + found.cnt[0])
    assert found.score[0] == pytest.approx((p1 - p0) * p1 / (p0 * (1 - p0)))


def test_rows_of_one_list_do_not_change_together():
    """xll0328/CAT_CBM-Backdoor: editing one image of a class edited its class."""
    row = [0, 0, 0]
    data = ConceptData([row, row, row], [0, 1, 1])
    made = poison(data, Trigger((1,), (1,)), 0, 1.0, mode="clean", seed=0)
    assert made.data.concepts.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
