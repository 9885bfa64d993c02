"""Attack success and its nulls on heads whose rates are known; two-sample distances against plain loops."""

from __future__ import annotations

import inspect
from statistics import NormalDist

import numpy as np
import pytest
from tests.concepts.tables import random_table, structured_table
from tests.harness import check_bad_input, check_coverage

from querist.concepts import ConceptData, Trigger, poison
from querist.concepts.attacks import attack_report, excess_interval, kernel_mmd, stealth_of, two_sample
from querist.errors import BadOption, ShapeMismatch, UnknownName
from querist.statistics import bootstrap, wilson


def obeys(trigger, target, otherwise):
    """A head that sends whatever carries the trigger to the target, and else answers by one concept."""

    def predict(concepts):
        return np.where(trigger.matches(concepts), target, otherwise(concepts))

    return predict


def by_first(concepts):
    return (concepts[:, 0] > 0.5).astype(int)


def test_rates_are_those_of_a_head_that_is_known():
    values = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 1], [1, 1, 0], [0, 0, 0]], dtype=float)
    data = ConceptData(values, [0, 1, 2, 1, 2])
    trigger = Trigger((1, 2), (1, 1))
    found = attack_report(obeys(trigger, 0, by_first), data, trigger, 0, baseline=by_first)
    assert found.n == 4
    assert found.asr == 1
    assert found.untriggered == 0.5
    assert found.clean_model_asr == 0.5
    assert found.natural == 0.25
    assert found.excess == 0.5
    assert found.low <= 0.5 <= found.high
    assert found.accuracy == found.clean_model_accuracy == 0.6
    assert found.accuracy_drop == 0
    assert found.accuracy_after == 0.2
    assert found.accuracy_source == 0.5
    assert "4 rows of every class but the target" in found.protocol


def test_the_denominator_is_the_rows_of_the_sources():
    """THUYimingLi/BackdoorBox#60."""
    data = random_table(60, 5, 3, seed=2)
    trigger = Trigger((1,), (1,))
    found = attack_report(by_first, data, trigger, 0, sources=[1])
    assert found.n == int((data.codes == 1).sum())
    assert "classes 1" in found.protocol


def test_a_rate_over_no_rows_is_none_with_its_reason():
    data = ConceptData(np.eye(3), [1, 1, 1])
    found = attack_report(by_first, data, Trigger((0,), (1,)), 1, baseline=by_first)
    assert (found.n, found.asr, found.excess, found.natural) == (0, None, None, None)
    assert "no row" in found.reason
    assert "no clean model" in attack_report(by_first, random_table(), Trigger((0,), (1,)), 1).reason


def test_every_figure_a_reader_asks_for_is_there():
    """twosixlabs/armory-library#137 and leileigan/clean_label_textual_backdoor_attack#1."""
    found = attack_report(by_first, random_table(), Trigger((1,), (1,)), 0, baseline=by_first)
    for name in ("accuracy", "accuracy_source", "accuracy_after", "asr", "natural", "excess", "low", "protocol"):
        assert getattr(found, name) is not None


def test_scores_and_logits_are_taken_as_they_come():
    data = ConceptData([[-3.0, -2.0], [2.0, 1.0], [-1.0, -4.0]], [0, 1, 1], space="logit")
    found = attack_report(
        lambda c: np.stack([-c[:, 0], c[:, 0]], axis=1), data, Trigger((0,), (1,)), 1, strength="rowmax"
    )
    # Row 0 has logits (−3, −2): its "on" is −2, and the head still says 0.
    assert found.asr == 0
    assert found.wrong_side_share == pytest.approx(2 / 3)
    check_bad_input(
        [
            (
                lambda: attack_report(lambda c: np.zeros(2), random_table(), Trigger((0,), (1,)), 0),
                ShapeMismatch,
                ["per row"],
            ),
            (lambda: attack_report(by_first, random_table(), Trigger((0,), (1,)), 9), UnknownName, ["0, 1, 2"]),
            (
                lambda: attack_report(by_first, random_table(), Trigger((0,), (1,)), 0, sources=[0]),
                BadOption,
                ["source"],
            ),
        ]
    )


def test_the_excess_interval_is_the_bootstrap_of_rows():
    """Beside resamples of the rows themselves, with the correction for bias worked out by hand."""
    rng = np.random.default_rng(0)
    hits = rng.random((400, 3)) < [0.6, 0.2, 0.25]
    value, low, high = excess_interval(*hits.T, seed=1)
    excess = lambda r: r[..., 0].mean(axis=-1) - np.maximum(r[..., 1].mean(axis=-1), r[..., 2].mean(axis=-1))  # noqa: E731
    drawn = excess(hits[rng.integers(0, 400, (4000, 400))])
    normal = NormalDist()
    shift = 2 * normal.inv_cdf((drawn < value).mean() + 0.5 * (drawn == value).mean())
    ends = np.quantile(drawn, [normal.cdf(shift - 1.96), normal.cdf(shift + 1.96)])
    assert value == pytest.approx(excess(hits))
    assert (low, high) == pytest.approx(tuple(ends), abs=0.01)
    plain = bootstrap(hits.astype(float), lambda r: float(excess(r)), seed=1)
    assert plain.low <= low + 0.01


@pytest.mark.parametrize("rates", [(0.7, 0.05, 0.2), (0.7, 0.1, 0.1), (0.9, 0.01, 0.01)])
def test_the_excess_interval_covers_the_truth(rates):
    def draw(rng):
        return rng.random((300, 3)) < rates

    check_coverage(lambda hits: excess_interval(*hits.T)[1:], draw, rates[0] - max(rates[1:]))


def test_a_success_that_never_fails_has_an_interval():
    """80 of 80 rows say that the rate is above .95, not that it is 1."""
    ones, none = np.ones(80, dtype=bool), np.zeros(80, dtype=bool)
    assert excess_interval(ones, none, none) == pytest.approx((1.0, wilson(80, 80).low, 1.0))
    assert excess_interval(none, none, none) == pytest.approx((0.0, 0.0, wilson(0, 80).high))


def test_the_excess_interval_covers_the_excess_of_a_known_head():
    """A head that obeys in 70 % of rows, would have said the target of 10 % anyway; the clean model falls for 25 %."""
    trigger = Trigger((1,), (1,))

    def head(concepts):
        u, on = concepts[:, 0], concepts[:, 1] == 1
        return np.where(on, u < 0.7, u > 0.9).astype(int)

    def clean(concepts):
        u, on = concepts[:, 0], concepts[:, 1] == 1
        return (on & (u > 0.4) & (u < 0.65)).astype(int)

    def draw(rng):
        return ConceptData(
            np.stack([rng.random(250), np.zeros(250)], axis=1), np.zeros(250, dtype=int), class_names=[0, 1]
        )

    def interval(data):
        found = attack_report(head, data, trigger, 1, baseline=clean)
        return found.low, found.high

    check_coverage(interval, draw, 0.7 - 0.25)


def test_mmd_is_the_double_loop():
    rng = np.random.default_rng(1)
    x, y = (rng.integers(0, 2, (n, 6)).astype(float) for n in (7, 9))
    rows = np.concatenate([x, y])
    h = np.array([[(a != b).sum() for b in rows] for a in rows])
    median = np.median(h[np.triu_indices(16, 1)])
    k = np.exp(-h / (2 * median))
    xx = sum(k[i, j] for i in range(7) for j in range(7) if i != j) / 42
    yy = sum(k[i, j] for i in range(7, 16) for j in range(7, 16) if i != j) / 72
    xy = sum(k[i, j] for i in range(7) for j in range(7, 16)) / 63
    value, p = kernel_mmd(x, y, permutations=199)
    assert value == pytest.approx(xx + yy - 2 * xy, abs=1e-12)
    assert 1 / 200 <= p <= 1


def test_mmd_p_is_uniform_when_nothing_differs():
    rng = np.random.default_rng(2)
    p = [kernel_mmd(*rng.integers(0, 2, (2, 12, 5)).astype(float), permutations=99, seed=s)[1] for s in range(300)]
    assert np.mean(np.array(p) <= 0.05) == pytest.approx(0.05, abs=0.03)


def test_paired_rows_need_paired_swaps():
    """Unpaired relabelling of a table before and after sees each row's twin on the other side and finds nothing."""
    data = structured_table(120, 12, 4)
    after = data.concepts.copy()
    after[:18, 0] = 1
    paired = two_sample(data.concepts, after, paired=True, permutations=199)
    plain = two_sample(data.concepts, after, permutations=199)
    assert paired.p_mmd < 0.05 < plain.p_mmd


def test_stealth_compares_what_it_names():
    data = structured_table(300, 16, 5)
    made = poison(data, Trigger((1, 2, 3, 4, 5, 6), (1, 1, 1, 1, 1, 1)), 0, 0.1, mode="dirty", seed=0)
    found = stealth_of(made, data.concepts, permutations=99)
    assert (found["label"].n_a, found["label"].n_b) == (60, 30)
    assert (found["origin"].n_a, found["origin"].n_b) == (210, 30)
    assert (found["table"].n_a, found["table"].n_b) == (300, 300)
    assert found["label"].p <= 0.05
    assert found["label"].auc > 0.8
    assert found["table"].shift_max == pytest.approx(np.abs(made.data.means - data.means).max(), abs=1e-6)
    small = poison(data, Trigger((1,), (1,)), 0, 0.02, mode="clean", seed=0)
    assert "two of each are needed" in stealth_of(small, data.concepts, permutations=19)["origin"]


def test_unknown_cells_are_no_zeros():
    rng = np.random.default_rng(0)
    x = np.ones((40, 3))
    x[rng.random((40, 3)) < 0.5] = np.nan
    found = two_sample(x, np.ones((40, 3)), permutations=19)
    assert found.shift_max == 0
    assert found.mmd2 == pytest.approx(0, abs=1e-12)


def test_stealth_sees_no_success_rate():
    """SCLBD/BackdoorBench#35."""
    assert not {"trigger", "asr", "truth", "model"} & set(inspect.signature(two_sample).parameters)
