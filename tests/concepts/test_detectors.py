"""Detectors against scipy and literal code, on tables whose truth is known, and at their level where nothing is hidden."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from scipy.stats import chi2_contingency, hypergeom
from tests.concepts.tables import random_table, structured_table
from tests.harness import check_bad_input, check_level

from querist.concepts import ConceptData, Trigger, cat, detectors, poison
from querist.concepts.detectors import (
    activation_clusters,
    agreement_test,
    association,
    class_level_test,
    conflicts,
    consistency_check,
    evaluate,
    masked_agreement,
    pattern_excess,
    reference_test,
    signature_flags,
    signature_threshold,
    size_outlier,
    spectral_signature,
)
from querist.concepts.errors import NotBinary, SchemaMismatch
from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch
from querist.statistics import auc


def test_no_detector_is_given_the_truth():
    """SCLBD/BackdoorBench#35."""
    for name in detectors.__all__:
        thing = getattr(detectors, name)
        if inspect.isfunction(thing) and name != "evaluate":
            assert not {"truth", "trigger", "mask", "asr", "target", "poisoned"} & set(
                inspect.signature(thing).parameters
            )


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_p_of_a_binary_concept_is_fishers_doubled_tail(missing):
    data = random_table(90, 7, 5, seed=3, missing=missing, density=0.08)
    found = association(data)
    for t in range(5):
        for k in range(7):
            known = ~np.isnan(data.concepts[:, k])
            cell, inside = data.concepts[known, k] == 1, data.codes[known] == t
            law = hypergeom(len(cell), cell.sum(), inside.sum())
            a = (cell & inside).sum()
            assert found.p[t, k] == pytest.approx(min(1, 2 * min(law.cdf(a), law.sf(a - 1))), rel=1e-9)


def test_one_row_with_a_rare_concept_is_no_association():
    """z = 4.9 and a chance of one in twenty-five."""
    values = np.zeros((400, 3))
    values[0, 0] = values[100:104, 1] = values[:200, 2] = 1
    data = ConceptData(values, np.repeat(np.arange(100), 4))
    found = association(data)
    assert found.z[0, 0] > 4.9
    assert found.p[0, 0] == pytest.approx(2 * 4 / 400)
    assert found.p_adj[0, 0] > 0.05
    assert found.p_adj[25, 1] < 1e-6  # all four rows of a class, and no other


def test_z_squared_is_pearsons_chi_squared():
    data = random_table(80, 6, 4, seed=1, missing=0.15)
    found = association(data)
    for t in range(4):
        for k in range(6):
            known = ~np.isnan(data.concepts[:, k])
            cell, inside = data.concepts[known, k], data.codes[known] == t
            table = [[((cell == v) & (inside == side)).sum() for v in (0, 1)] for side in (True, False)]
            chi2 = chi2_contingency(table, correction=False)[0]
            n = known.sum()
            assert found.z[t, k] ** 2 == pytest.approx(chi2 * (n - 1) / n)
    assert (found.p_adj >= found.p - 1e-15).all()


def test_permuted_labels_give_z_mean_zero_and_variance_one():
    data = random_table(40, 5, 2, seed=2)
    rng = np.random.default_rng(0)
    z = np.stack([association(data.changed(codes=rng.permutation(data.codes))).z for _ in range(400)])
    assert np.abs(z.mean(axis=0)).max() < 4 / np.sqrt(400)
    assert np.abs(z.var(axis=0) - 1).max() < 0.3


def test_constants_and_other_values_have_an_association_too():
    data = ConceptData([[1, 0, 0.2], [1, 0, 0.4], [1, 1, 0.9], [1, 1, 0.7]], [0, 0, 1, 1])
    found = association(data)
    assert np.isnan(found.z[:, 0]).all()
    assert found.constant.tolist() == [2, 2]
    x = data.concepts[:, 2].astype(float)
    expected = (x[:2].mean() - x.mean()) / np.sqrt(x.var() / 2 * 2 / 3)
    assert found.z[0, 2] == pytest.approx(expected)
    assert found.z_max[0] == pytest.approx(np.nanmax(np.abs(found.z[0])))
    gap = ConceptData(np.eye(3), [0, 2, 2], class_names=["a", "b", "c"])
    assert np.isnan(association(gap).z[1]).all()
    assert association(gap).constant[1] == 0


def test_size_outliers_are_counted_in_median_deviations():
    assert size_outlier([30, 30, 29, 30, 89])[4] == pytest.approx(0.6745 * 59)
    assert size_outlier([10, 20, 30, 40, 50])[4] == pytest.approx(0.6745 * 2)
    assert size_outlier([10, 0, 20, 30, 40, 50])[5] == pytest.approx(0.6745 * 2)
    assert np.isnan(size_outlier([10, 0, 20])[1])


def test_conflicts_are_profiles_with_several_labels():
    data = ConceptData([[0, 1], [0, 1], [0, 1], [1, 1], [1, np.nan], [1, np.nan]], [0, 0, 1, 1, 0, 1])
    found = conflicts(data)
    assert (found.profiles, found.conflicting_profiles, found.conflicting_rows) == (3, 2, 5)
    assert found.accuracy_ceiling == pytest.approx(4 / 6)
    assert found.mask.tolist() == [True, True, True, False, True, True]
    assert conflicts(ConceptData(np.eye(4), range(4))).accuracy_ceiling == 1


def literal_excess(data, steps):
    """D_t with every candidate counted row by row."""
    found = []
    for t in range(data.n_classes):
        inside, match, used, best = data.codes == t, np.ones(data.n, dtype=bool), set(), 0.0
        n_t, n = inside.sum(), data.n
        for _ in range(steps):
            step = (-np.inf, None, None)
            for i in range(data.k):
                for v in (0, 1):
                    hit = match & (data.concepts[:, i] == v)
                    q, r = ((hit & inside).sum() + 0.5) / (n_t + 1), ((hit & ~inside).sum() + 0.5) / (n - n_t + 1)
                    if i not in used and q > r:
                        kl = q * np.log(q / r) + (1 - q) * np.log((1 - q) / (1 - r))
                        if kl > step[0]:
                            step = (kl, i, hit)
            if step[1] is None:
                break
            used.add(step[1])
            match, best = step[2], max(best, step[0])
        found.append(best)
    return found


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_pattern_excess_is_what_is_written_down(missing):
    data = random_table(70, 6, 4, seed=5, missing=missing)
    found = pattern_excess(data, steps=3)
    assert found.excess == pytest.approx(literal_excess(data, 3))
    for t, pattern in enumerate(found.patterns):
        match = pattern.matches(data.concepts)
        assert found.share_in[t] == pytest.approx(match[data.codes == t].mean())
        assert found.share_out[t] == pytest.approx(match[data.codes != t].mean())
    assert found.matching(data).sum() == sum(
        int(found.patterns[t].matches(data.concepts[data.codes == t]).sum()) for t in range(4)
    )


def test_a_planted_pattern_is_mined_and_masked_agreement_falls():
    data = structured_table(480, 24, 8)
    trigger = cat(data, 3, 4, seed=1).trigger
    made = poison(data, trigger, 3, 0.1, seed=0).data
    before, after = masked_agreement(data), masked_agreement(made)
    excess = pattern_excess(made)
    assert excess.excess.argmax() == 3
    assert set(trigger.index) & set(excess.patterns[3].index)
    assert after[3] < before[3] - 0.3
    assert after.argmin() == 3
    assert set(np.argsort(-np.abs(association(made).z[3]))[:4]) & set(trigger.index)


def test_results_follow_a_permutation_of_rows_columns_and_classes():
    data = structured_table(200, 10, 4)
    rng = np.random.default_rng(0)
    rows, columns, classes = rng.permutation(200), rng.permutation(10), rng.permutation(4)
    moved = ConceptData(data.concepts[rows][:, columns], classes[data.codes[rows]])
    assert association(moved).z[classes] == pytest.approx(association(data).z[:, columns])
    assert pattern_excess(moved).excess[classes] == pytest.approx(pattern_excess(data).excess)
    assert conflicts(moved).accuracy_ceiling == conflicts(data).accuracy_ceiling


def test_masked_agreement_is_naive_bayes_without_the_telling_concepts():
    labels = np.arange(60) % 3
    values = np.zeros((60, 6))
    values[np.arange(60), labels] = 1
    values[np.arange(60), 3 + labels] = 1
    data = ConceptData(values, labels)
    # Two concepts tell a class; masking one of each leaves the other, masking all leaves the prior alone.
    assert masked_agreement(data, size=1) == pytest.approx([1, 1, 1])
    assert masked_agreement(data, size=6).sum() <= 2


def test_agreement_says_yes_only_for_one_class_that_leads_beyond_the_clean_range():
    L = 80
    rng = np.random.default_rng(0)
    statistics = {name: rng.random(L) for name in ("size", "D", "1-A")}
    for name in ("size", "D"):
        statistics[name][7] = 5.0
    clean = dict.fromkeys(statistics, 1.0)
    found = agreement_test(statistics, clean=clean)
    assert (found.code, found.m, found.verdict) == (7, 2, "yes")
    assert found.p == pytest.approx((3 * L - 2) / L**2)
    assert found.ranking.shape == (L,)
    assert agreement_test(statistics).verdict == "cannot say"
    assert agreement_test(statistics, clean=clean | {"D": 6.0}).verdict == "cannot say"
    few = {name: values[5:9] for name, values in statistics.items()}
    assert "chance" in agreement_test(few, clean=clean).because
    tied = {name: np.array([1.0, 1.0, 0.0]) for name in ("a", "b")}
    assert agreement_test(tied).m == 0


@pytest.mark.parametrize("classes", [4, 20, 40])
def test_the_chance_that_a_class_comes_first_so_often_is_counted_out(classes):
    """Any two of three statistics may agree, so that two first places are thrice as likely as for two that were named beforehand."""
    rng = np.random.default_rng(1)
    draws = [agreement_test({n: rng.random(classes) for n in "abc"}) for _ in range(2000)]
    for m in (2, 3):
        p = next((found.p for found in draws if found.m == m), None)
        share = np.mean([found.m >= m for found in draws])
        assert p is None or share == pytest.approx(p, abs=4 * np.sqrt(p / 2000))
    assert agreement_test({"a": rng.random(classes), "b": np.arange(classes)}).p in (1.0, pytest.approx(1 / classes))


def test_reference_rows_find_the_class_that_was_edited():
    half = structured_table(480, 12, 6)
    suspect, trusted = half.subset(np.arange(240)), half.subset(np.arange(240, 480))
    made = poison(suspect, Trigger((1, 4, 7), (1, 1, 1)), 2, 0.05, seed=0).data
    found = reference_test(made, trusted, permutations=199)
    assert found.statistic.argmax() == 2
    assert found.p_adj[2] <= 0.05
    assert found.concept[2] in (1, 4, 7)
    lacking = reference_test(made, trusted.subset(trusted.codes != 0), permutations=19)
    assert np.isnan(lacking.p_adj[0])
    assert "trusted row" in lacking.reasons[0]


def test_a_class_too_small_for_any_p_is_not_compared():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [3, 30])
    suspect, trusted = (ConceptData((rng.random((33, 6)) < 0.4).astype(float), labels) for _ in range(2))
    found = reference_test(suspect, trusted, permutations=199)
    assert np.isnan(found.p[0])
    assert found.reasons == ("with 3 and 3 rows no p is below 0.1, and 0.05 is needed among 2 classes", None)
    assert found.p_adj[1] == found.p[1], "the other class is the only one that is tested"
    # 5 and 5 rows: one division of 126. Alone or beside five others that is rare enough, among seven it is not.
    for classes, told in ((6, True), (7, False), (60, False)):
        labels = np.repeat(np.arange(classes), 5)
        ones = ConceptData(np.ones((5 * classes, 2)), labels)
        found = reference_test(ones, ones.changed(concepts=np.zeros_like(ones.concepts)), permutations=1999)
        assert np.isnan(found.p).all() != told
        assert (np.nanmax(found.p_adj) <= 0.06) if told else "among" in found.reasons[0]


def test_the_reference_test_holds_its_level():
    def draw(rng):
        values = (rng.random((36, 5)) < 0.4).astype(float)
        values[rng.random(values.shape) < 0.1] = np.nan
        return ConceptData(values[:20], [0, 1] * 10), ConceptData(values[20:], [0, 1] * 8)

    check_level(lambda pair: float(reference_test(*pair, permutations=79).p[0]), draw)


def test_class_level_shares_give_binomial_tails():
    from scipy.stats import binomtest

    data = random_table(60, 3, 2, seed=4)
    shares = np.full((2, 3), 0.4)
    found = class_level_test(data, shares)
    for t in range(2):
        rows = data.concepts[data.codes == t]
        one = [
            min(1, 2 * min(binomtest(int(a), len(rows), 0.4, side).pvalue for side in ("less", "greater")))
            for a in rows.sum(axis=0)
        ]
        assert found.p[t] == pytest.approx(min(1, 3 * min(one)))
    assert "approximate" in found.method
    check_level(
        lambda d: float(class_level_test(d, shares).p.min()) * 2,
        lambda rng: ConceptData((rng.random((60, 3)) < 0.4).astype(float), np.arange(60) % 2),
        runs=200,
        conservative=True,
    )


def test_consistency_finds_every_edited_row_and_no_other():
    rng = np.random.default_rng(0)
    matrix = (rng.random((10, 12)) < 0.4).astype(float)
    labels = np.repeat(np.arange(10), 8)
    data = ConceptData(matrix[labels], labels)
    assert not consistency_check(data).deviating.any()
    made = poison(data, Trigger((0, 3, 5), (1, 0, 1)), 4, 0.3, mode="clean", seed=1)
    moved = poison(data, Trigger((0, 3, 5), (1, 0, 1)), 4, 0.05, mode="dirty", seed=1)
    for copy in (made, moved):
        touched = copy.changed.any(axis=1) | (copy.old_codes != copy.data.codes)
        assert np.array_equal(consistency_check(copy.data).deviating, touched)
        exact = consistency_check(copy.data, matrix)
        assert np.array_equal(exact.deviating, touched)
        assert exact.classes.tolist() == [4]
    whole = poison(data, Trigger((0, 3, 5), (1, 0, 1)), 4, 0.01, seed=1)
    assert not consistency_check(whole.data).deviating.any()
    assert consistency_check(whole.data, matrix).deviating.any()
    assert not consistency_check(random_table(60, 8, 3)).class_level


def test_a_table_annotated_row_by_row_is_not_class_level():
    """Most rows of rare concepts equal their class's commonest row, and so do rows of tiny classes; most classes still vary."""
    rng = np.random.default_rng(0)
    for sizes, k, flip in ((np.full(40, 20), 30, 0.01), (rng.integers(1, 4, 60), 10, 0.08)):
        labels = np.repeat(np.arange(len(sizes)), sizes)
        cells = (rng.random((len(sizes), k)) < 0.2)[labels] ^ (rng.random((len(labels), k)) < flip)
        data = ConceptData(cells.astype(float), labels)
        found = consistency_check(data)
        assert not found.class_level
        assert not found.deviating.any()
        assert consistency_check(data, declared=True).deviating.any()


def activations(n, poisoned, *, shift=4.0, classes=2, seed=0):
    """Gaussian activations; `poisoned` of class 0's n rows lie a shift away."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(classes), n)
    h = rng.standard_normal((classes * n, 8)) + 6 * rng.standard_normal((classes, 8))[codes]
    truth = np.arange(classes * n) < poisoned
    h[truth] += shift * np.eye(8)[0]
    return h, codes, truth


def test_signatures_are_the_leading_singular_vector():
    h, codes, _ = activations(40, 8)
    found = spectral_signature(h, codes)
    for code in (0, 1):
        rows = h[codes == code] - h[codes == code].mean(axis=0)
        v = np.linalg.svd(rows)[2][0]
        square = (rows @ v) ** 2
        assert found.score[codes == code] == pytest.approx(square / np.median(square))
    wide = spectral_signature(h[:12, :], codes[:12])
    v = np.linalg.svd(h[:12] - h[:12].mean(axis=0))[2][0]
    assert np.abs(wide.projection) == pytest.approx(np.abs((h[:12] - h[:12].mean(axis=0)) @ v))


def test_the_published_centre_inverts_where_poison_is_the_majority():
    h, codes, truth = activations(200, 170)
    mine = codes == 0
    rng = np.random.default_rng(5)
    centre = h[mine & ~truth].mean(axis=0)
    trusted = centre + rng.standard_normal((60, 8))
    published = spectral_signature(h, codes).score[mine]
    mended = spectral_signature(h, codes, centre="reference", reference=(trusted, np.zeros(60, dtype=int))).score[mine]
    assert auc(published, truth[mine]) < 0.2
    assert auc(mended, truth[mine]) > 0.9
    few, codes, truth = activations(200, 30)
    for centre in ("class", "trimmed"):
        assert auc(spectral_signature(few, codes, centre=centre).score[codes == 0], truth[codes == 0]) > 0.9


def test_signatures_flag_few_clean_rows():
    """Trusted-AI/adversarial-robustness-toolbox#1188."""
    clean = [spectral_signature(*activations(200, 0, seed=s)[:2]).score for s in range(5)]
    threshold = signature_threshold(np.concatenate(clean))
    h, codes, _ = activations(200, 0, seed=9)
    flags = signature_flags(spectral_signature(h, codes).score, codes, epsilon=0.01, threshold=threshold)
    assert flags[codes == 0].mean() <= 0.015
    h, codes, truth = activations(200, 10, shift=8.0)
    flags = signature_flags(spectral_signature(h, codes).score, codes, epsilon=0.05, threshold=threshold)
    assert flags[truth].all()
    assert flags[(codes == 0) & ~truth].sum() <= 5
    assert flags[codes == 1].mean() <= 0.03


def test_clusters_name_the_rows_that_belong_elsewhere():
    h, codes, _ = activations(60, 0, classes=3)
    moved = np.flatnonzero(codes == 1)[:100]
    relabelled = codes.copy()
    relabelled[moved[:45]] = 0  # 45 strangers beside 60 at home
    found = activation_clusters(h, relabelled)
    assert found.flags[moved[:45]].all()
    assert not found.flags[codes == 0].any()
    assert found.suspect[2] == -1
    # Where the strangers are most of the class the published rule points at those at home.
    few = np.concatenate([np.flatnonzero(codes == 0)[:15], np.flatnonzero(codes == 1), np.flatnonzero(codes == 2)])
    h2, codes2 = h[few], codes[few]
    relabelled = np.where((codes2 == 1) & (np.arange(len(few)) < 55), 0, codes2)
    strangers = (codes2 == 1) & (relabelled == 0)
    by_size = activation_clusters(h2, relabelled, rule="size")
    assert by_size.flags[codes2 == 0].mean() == 1
    assert activation_clusters(h2, relabelled).flags[strangers].all()
    vectors = np.stack([h[codes == c].mean(axis=0) for c in range(3)])
    assert activation_clusters(h2, relabelled, rule="distance", vectors=vectors).flags[strangers].all()


def test_one_cloud_is_not_cut_in_two():
    rng = np.random.default_rng(3)
    found = activation_clusters(rng.standard_normal((300, 12)), np.zeros(300, dtype=int), silhouette=0.15)
    assert not found.flags.any()
    assert activation_clusters(np.ones((30, 4)), np.zeros(30, dtype=int)).cluster.max() == -1


def test_bad_input_to_detectors_is_refused():
    data = random_table(40, 4, 2)
    h, codes, _ = activations(20, 0)
    broken = h.copy()
    broken[0, 0] = np.nan
    check_bad_input(
        [
            (lambda: pattern_excess(ConceptData(data.concepts * 0.5, data.codes)), NotBinary, ["binarise"]),
            (lambda: agreement_test({"a": np.ones(3)}), BadOption, ["two or more"]),
            (lambda: agreement_test({"a": np.ones(3), "b": np.ones(4)}), ShapeMismatch, ["[L]"]),
            (lambda: reference_test(data, random_table(40, 5, 2)), SchemaMismatch, ["extra c4"]),
            (lambda: reference_test(data, data, permutations=0), BadOption, ["1 or more"]),
            (lambda: class_level_test(data, np.ones((3, 4))), ShapeMismatch, ["(2, 4)"]),
            (lambda: class_level_test(data, np.full((2, 4), 40.0)), BadValues, ["0 to 1"]),
            (lambda: consistency_check(data, np.ones((1, 4))), ShapeMismatch, ["(2, 4)"]),
            (lambda: spectral_signature(broken, codes), NonFinite, ["learning rate"]),
            (lambda: spectral_signature(h, codes[:3]), ShapeMismatch, ["[n d]"]),
            (lambda: spectral_signature(h, codes, centre="reference"), BadOption, ["trimmed"]),
            (lambda: signature_flags(h[:, 0], codes, epsilon=0, threshold=1), BadOption, ["epsilon"]),
            (lambda: signature_threshold(np.ones(5)), BadOption, ["5 scores"]),
            (lambda: activation_clusters(broken, codes), NonFinite, ["finite"]),
            (lambda: activation_clusters(h, codes, rule="distance"), BadOption, ["vectors="]),
        ]
    )


def test_detection_is_told_beside_its_base_rate():
    """Trusted-AI/adversarial-robustness-toolbox#593."""
    rng = np.random.default_rng(0)
    truth = np.arange(200) < 20
    scores = rng.standard_normal(200) + 2 * truth
    flags = scores > 1.5
    found = evaluate(scores, flags, truth, pattern=Trigger((1, 2), (1, 1)), trigger=Trigger((1, 2, 3, 4), (1, 0, 1, 1)))
    assert found.auc == pytest.approx(auc(scores, truth))
    assert found.base_rate == 0.1
    assert found.precision == (flags & truth).sum() / flags.sum()
    assert found.recall == (flags & truth).sum() / 20
    assert (found.trigger_precision, found.trigger_recall) == (0.5, 0.25)
    for most, share in ((0.01, found.tpr_at_fpr1), (0.05, found.tpr_at_fpr5)):
        cuts = [c for c in np.r_[scores[~truth], -9] if (scores[~truth] > c).mean() <= most]
        assert share == (scores[truth] > min(cuts)).mean()
    nothing = evaluate(np.full(4, np.nan), np.zeros(4, dtype=bool), np.zeros(4, dtype=bool))
    assert (nothing.auc, nothing.precision, nothing.recall, nothing.base_rate) == (None, None, None, 0)
    with pytest.raises(ShapeMismatch):
        evaluate(scores, flags[:3], truth)
