"""Gaps and their nulls, evolution, and the statistics of consistency."""

from __future__ import annotations

from itertools import pairwise
from types import MappingProxyType

import numpy as np
import pytest
from tests.features.clouds import gaussian
from tests.harness import Bad, check_bad_input

from querist.errors import BadOption, NonFinite, ShapeMismatch, TooFewRows, UndefinedMetric, UnknownName
from querist.features import consistency, gaussian_w2, permutation_test, sliced_wasserstein
from querist.features.errors import DimensionMismatch, LabelsNeeded
from querist.features.normalise import fit_normaliser
from querist.features.profile import (
    association,
    change,
    concordance,
    evolution,
    gap,
    gap_draws,
    gaps,
    judged,
    largest_gap,
    measure,
    net_profile,
    network_gap,
    slope,
    splits,
)
from querist.features.profile._evolution import quantiles
from querist.features.profile._gap import mean_excess
from querist.features.profile._relabelled import relabelled
from querist.features.profile._splits import arm_size, groups
from querist.statistics import kendall, max_t

QUICK = {"projections": 40, "splits": 20, "permutations": 99}


def shifted(n: int, d: int, shift: float, *, seed: int = 1) -> np.ndarray:
    return gaussian(n, d, seed=seed) + shift


class TestMeasures:
    def test_subsets_by_the_public_functions(self):
        S, T = gaussian(50, 6), shifted(40, 6, 0.5)
        first, second = np.array([5, 1, 30, 22, 7]), np.array([52, 88, 60])
        pool = np.vstack([S, T])
        for p in (1, 2, 3):
            made = measure(S, T, p=p, projections=60, seed=4)
            expected = sliced_wasserstein(pool[first], pool[second], p, projections=60, seed=4)
            assert made.power(first, second) == pytest.approx(expected.power, rel=1e-12)
            error = made.error(made.terms([(first, second)])[0])
            assert error is not None
            assert error / p * expected.power ** (1 / p - 1) == pytest.approx(expected.mc_se, rel=1e-9)
        made = measure(S, T, distance="gaussian")
        assert made.power(first, second) == pytest.approx(gaussian_w2(pool[first], pool[second]).power)
        assert made.error(np.ones(1)) is None

    @pytest.mark.parametrize("distance", ["sliced", "per-unit", "max-sliced", "gaussian", "spectrum"])
    def test_many_pairs_are_one_after_another(self, distance):
        S, T = gaussian(30, 4, dtype=np.float32), gaussian(30, 4, seed=1, dtype=np.float32)
        made = measure(S, T, distance=distance, projections=33)
        pairs = [(np.arange(10), np.arange(30, 40)), (np.arange(10, 30), np.arange(5)), (np.arange(7), np.arange(7))]
        np.testing.assert_allclose(made.powers(pairs), [made.power(*pair) for pair in pairs], rtol=1e-12)
        assert made.power(np.arange(7), np.arange(7)) == 0

    def test_blocks_of_lines_do_not_matter(self, monkeypatch):
        S, T = gaussian(64, 5, dtype=np.float32), gaussian(64, 5, seed=1, dtype=np.float32)
        pair = [(np.arange(64), np.arange(64, 128))]
        whole = measure(S, T, projections=50).terms(pair)
        monkeypatch.setattr("querist.features.profile._measures._PIECE", 300)
        np.testing.assert_array_equal(measure(S, T, projections=50).terms(pair), whole)

    def test_sites_of_an_image_stay_together(self):
        S, T = gaussian(60, 4).reshape(20, 3, 4), gaussian(60, 4, seed=1).reshape(20, 3, 4)
        made = measure(S, T, projections=40)
        flat = sliced_wasserstein(S[[1, 5]].reshape(-1, 4), T[[0, 3, 4]].reshape(-1, 4), projections=40)
        assert made.power(np.array([1, 5]), np.array([20, 23, 24])) == pytest.approx(flat.power, rel=1e-12)

    def test_labels_and_epsilon(self):
        S, T, y = gaussian(30, 3), gaussian(30, 3, seed=1), np.arange(30) % 2
        made = measure(S, T, distance="otdd", labels=(y, y))
        assert made.power(np.arange(30), np.arange(30, 60)) > 0
        check_bad_input(
            [
                Bad(lambda: measure(S, T, distance="otdd"), LabelsNeeded, ("both sets",)),
                Bad(lambda: measure(S, T, distance="cosine"), BadOption, ("cosine", "sliced", "otdd")),
                Bad(lambda: measure(S, T, distance="gaussian", p=1), BadOption, ("p = 2",)),
                Bad(lambda: measure(S, T[:, :2]), DimensionMismatch, ("3 and 2",)),
                Bad(lambda: measure(S, T.reshape(15, 2, 3)), ShapeMismatch, ("sites",)),
            ]
        )


class TestSplits:
    def test_parts_are_disjoint_and_of_one_size(self):
        for n, m, size in ((100, 90, 50), (101, 30, 30), (40, 20, 20)):
            assert arm_size(n, m) == size
            for split in (*splits(n, m, 20), *splits(n, m, 10, balanced=True)):
                assert [len(part) for part in split] == [size] * 3
                assert not set(split.a) & set(split.b)
                assert set(split.a) | set(split.b) <= set(range(n))
                assert set(split.t) <= set(range(n, n + m))
                assert len(set(split.t)) == size

    def test_every_image_is_drawn_alike(self):
        drawn = splits(60, 40, 3000)
        for part, chance in (("a", 0.5), ("b", 0.5), ("t", 30 / 40)):
            counts = np.bincount(np.concatenate([getattr(s, part) for s in drawn]), minlength=100)
            mine = counts[60:] if part == "t" else counts[:60]
            assert np.abs(mine / 3000 - chance).max() < 0.05

    def test_balanced_draws_use_every_image_about_as_often(self):
        drawn = splits(200, 50, 10, balanced=True)
        counts = np.bincount(np.concatenate([s.a for s in drawn]), minlength=250)[:200]
        assert counts.min() >= 2
        assert counts.max() <= 3

    def test_clusters_are_whole(self):
        clusters = np.arange(120) // 3, 1000 + np.arange(60) // 3
        for split in splits(120, 60, 30, clusters=clusters):
            assert len(split.a) == len(split.b) == 60
            for part, ids in ((split.a, clusters[0]), (split.b, clusters[0]), (split.t - 120, clusters[1])):
                assert all(np.count_nonzero(ids == c) == np.count_nonzero(ids[part] == c) for c in np.unique(ids[part]))

    def test_an_image_never_stands_against_its_partner(self):
        for split in (*splits(60, 60, 20, pairs=True), *splits(60, 60, 10, pairs=True, balanced=True)):
            assert set(split.t - 60) == set(split.b)
        ids = np.arange(60), np.arange(60)[::-1]
        for split in splits(60, 60, 20, pairs=ids):
            assert set(59 - (split.t - 60)) == set(split.b)

    def test_groups_hold_clusters_and_pairs(self):
        of = groups(100, 80, 20)
        for part in (of[:100], of[100:]):
            assert np.ptp(np.bincount(part, minlength=20)) <= 1
        of = groups(100, 100, 20, pairs=True)
        np.testing.assert_array_equal(of[:100], of[100:])
        clusters = np.arange(100) // 4, 50 + np.arange(80) // 4
        of = groups(100, 80, 20, clusters=clusters)
        assert all(len(np.unique(of[:100][clusters[0] == c])) == 1 for c in range(25))

    def test_too_few_images(self):
        check_bad_input(
            [
                Bad(
                    lambda: arm_size(39, 100), TooFewRows, ("39 of the source", "19", "20 or more", "40 of the source")
                ),
                Bad(lambda: gap(gaussian(100, 3), gaussian(19, 3)), TooFewRows, ("19 of the target",)),
            ]
        )


class TestRelabelling:
    @pytest.mark.parametrize(
        "options", [{}, {"pairs": True}, {"clusters": (np.arange(30) // 3, 10 + np.arange(30) // 3)}]
    )
    def test_it_is_the_shared_permutation_test(self, options):
        S, T = gaussian(30, 4), shifted(30, 4, 0.4)
        made = measure(S, T, projections=40)
        shared = permutation_test(
            np.arange(30), np.arange(30, 60), lambda x, y: made.power(x, y), permutations=49, seed=3, **options
        )
        ours = relabelled(made, permutations=49, seed=3, **options)
        assert ours.p == shared.p
        assert ours.observed == pytest.approx(shared.observed, rel=1e-12)
        np.testing.assert_allclose(ours.null, shared.null, rtol=1e-12)


class TestGap:
    def test_a_shift_is_found_and_measured(self):
        found = gap(gaussian(400, 8), shifted(300, 8, 0.5), seed=1, **QUICK)
        assert found.n_c == 200
        assert found.p == found.p_adj == 0.01
        assert found.interval_kind == "jackknife"
        assert found.low < 0.5 < found.high
        assert found.excess == pytest.approx(0.5, abs=0.1)
        assert found.excess**2 == pytest.approx(found.excess_p)
        assert found.raw**2 - found.null_mean**2 == pytest.approx(found.excess_p)
        assert found.w2_scale == pytest.approx(8 * found.raw**2)
        assert found.ratio == pytest.approx(found.raw / found.null_mean)
        assert found.null_mean < found.null_q95 < found.raw
        assert found.mc_se is not None
        assert found.z is not None
        assert found.z > 5
        assert found.warnings == ()

    def test_no_shift_is_not_found(self):
        found = gap(gaussian(400, 8), gaussian(400, 8, seed=1), seed=1, **QUICK)
        assert found.p > 0.05
        assert found.interval_kind == "null quantile"
        assert found.low == 0
        assert found.high**2 == pytest.approx(max(found.excess_p, 0) + found.null_q95**2 - found.null_mean**2)

    def test_the_numbers_are_those_of_the_definition(self):
        S, T = gaussian(60, 3), shifted(45, 3, 0.3)
        draws = gap_draws(S, T, seed=2, p=1, **QUICK)
        pool = np.vstack([S, T])
        for r, split in enumerate(splits(60, 45, 20, seed=2)):
            raw, null = (
                sliced_wasserstein(pool[split.a], pool[part], 1, projections=40, seed=2).power
                for part in (split.t, split.b)
            )
            assert draws.raw[r] == pytest.approx(raw, rel=1e-12)
            assert draws.null[r] == pytest.approx(null, rel=1e-12)
        assert draws.observed == pytest.approx(sliced_wasserstein(S, T, 1, projections=40, seed=2).power, rel=1e-12)
        assert mean_excess(S, T, p=1, seed=2, projections=40, splits=20) == pytest.approx(
            max(draws.raw.mean() - draws.null.mean(), 0)
        )

    def test_layers_share_their_permutations_and_their_family(self):
        S = {"a": gaussian(60, 3), "b": gaussian(60, 7, seed=5), "c": gaussian(60, 2, seed=6)}
        T = {"a": shifted(50, 3, 0.5), "b": gaussian(50, 7, seed=8), "c": gaussian(50, 2, seed=9)}
        together = gap(S, T, seed=1, **QUICK)
        alone = {name: gap_draws(S[name], T[name], seed=1, **QUICK) for name in S}
        assert gaps(alone) == together
        null = np.column_stack([alone[name].permuted for name in S])
        expected = max_t([alone[name].observed for name in S], null, standardise=True)
        np.testing.assert_allclose([together[name].p_adj for name in S], expected)
        assert all(found.p <= found.p_adj for found in together.values())
        largest, p = largest_gap(alone)
        assert p == min(expected)
        assert largest == pytest.approx((alone["a"].observed - null[:, 0].mean()) / null[:, 0].std())

    def test_partners_are_compared_as_partners(self):
        S = gaussian(80, 5)
        T = S + 0.05  # far less than images differ, but the same for all
        assert gap(S, T, pairs=True, **QUICK).p == 0.01
        assert gap(S, T, **QUICK).p > 0.2
        same = gap(S, S.copy(), pairs=True, **QUICK)
        assert same.excess == pytest.approx(0)
        assert same.p == 1

    def test_clusters_and_sites(self):
        rng = np.random.default_rng(0)
        S, T = (rng.standard_normal((50, 1, 3)) + 0.2 * rng.standard_normal((50, 6, 3)) for _ in range(2))
        sites = gap(S, T, seed=3, **QUICK)
        ids = np.repeat(np.arange(50), 6), 100 + np.repeat(np.arange(50), 6)
        rows = gap(S.reshape(300, 3), T.reshape(300, 3), clusters=ids, seed=3, **QUICK)
        assert sites.p > 0.05
        assert rows.p > 0.05
        assert gap(S.reshape(300, 3), T.reshape(300, 3), seed=3, **QUICK).p < 0.05  # rows are not images

    def test_seeds_fix_everything(self):
        S, T = gaussian(60, 3), shifted(45, 3, 0.3)
        assert gap(S, T, seed=1, **QUICK) == gap(S, T, seed=1, **QUICK)
        assert gap(S, T, seed=1, **QUICK) != gap(S, T, seed=2, **QUICK)

    @pytest.mark.parametrize("distance", ["per-unit", "gaussian", "spectrum", "max-sliced"])
    def test_other_distances(self, distance):
        S, T = gaussian(80, 3), 2 * gaussian(60, 3, seed=1)
        level = 0.01 if distance == "max-sliced" else 0.05  # without an interval, which costs hundreds of climbs
        found = gap(S, T, distance=distance, splits=5, permutations=19, level=level)
        assert found.p == 0.05
        assert found.excess > 0.3
        assert found.mc_se is None
        assert found.w2_scale is None

    def test_few_images_are_told_and_bad_ones_refused(self):
        S, T = gaussian(60, 3), gaussian(60, 3, seed=1)
        assert "30 examples per arm" in gap(S, T, **QUICK).warnings[0]
        broken = T.copy()
        broken[5] = np.nan
        check_bad_input(
            [
                Bad(lambda: gap(S, broken, **QUICK), NonFinite, ("target holds NaN", "rows: 5")),
                Bad(
                    lambda: gap({"conv1": S}, {"conv1": broken}, **QUICK),
                    NonFinite,
                    ("target, layer conv1, holds", "3 values in 1 rows"),
                ),
                Bad(lambda: gap(S, T, permutations=0), BadOption, ("1 or more",)),
                Bad(lambda: gap(S, T, splits=1), BadOption, ("splits",)),
                Bad(lambda: gap(S, T, level=1.5), BadOption, ("0 < level < 1",)),
            ]
        )


class TestNetworkGap:
    def test_layers_that_did_not_move_are_exactly_0(self):
        a = {"frozen": gaussian(80, 4, dtype=np.float32), "trained": gaussian(80, 6, dtype=np.float32)}
        b = {"frozen": a["frozen"].copy(), "trained": a["trained"] + np.float32(0.2)}
        found = network_gap(a, b, projections=40, permutations=99)
        assert found["frozen"].value == 0
        assert found["frozen"].p == found["frozen"].p_adj == 1
        assert found["trained"].value == pytest.approx(0.2, rel=0.2)
        assert found["trained"].p_adj == 0.01
        halves = splits(80, 80, 50, pairs=(np.arange(80), np.arange(80)))
        null = [sliced_wasserstein(a["trained"][s.a], a["trained"][s.b], projections=40).power for s in halves]
        assert found["trained"].null_mean ** 2 == pytest.approx(np.mean(null), rel=1e-6)


LAYERS = {"one": gaussian(50, 4), "two": gaussian(50, 4, seed=1) ** 2, "three": gaussian(50, 9, seed=2) ** 3}


class TestEvolution:
    def test_pooled_standardised_values(self):
        lines = []
        for Z in LAYERS.values():
            scaled = (Z - Z.mean(axis=0)) / np.sqrt(np.cov(Z.T).trace() / Z.shape[1])
            lines.append(np.sort(scaled.ravel()))
        exact = [sliced_wasserstein(x[:, None], y[:, None]).value for x, y in pairwise(lines)]
        np.testing.assert_allclose(evolution(LAYERS), exact, rtol=0.02)
        shifted_layers = {name: 3 * Z + 5 for name, Z in LAYERS.items()}
        np.testing.assert_allclose(evolution(shifted_layers), evolution(LAYERS), rtol=1e-9)

    def test_frames(self):
        target = {name: 2 * Z + 1 for name, Z in LAYERS.items()}
        np.testing.assert_allclose(evolution(target), evolution(LAYERS), rtol=1e-9)
        in_source = evolution(target, source=LAYERS)
        one, two = (fit_normaliser(LAYERS[name])(target[name]) for name in ("one", "two"))
        assert in_source[0] == pytest.approx(np.sqrt(np.mean((quantiles(one) - quantiles(two)) ** 2)))
        assert not np.allclose(in_source, evolution(target))

    def test_quantiles_are_at_midpoints(self):
        np.testing.assert_array_equal(quantiles(np.arange(2000.0)), np.arange(2000))
        np.testing.assert_array_equal(quantiles(np.array([3.0, 1.0])), np.repeat([1.0, 3.0], 1000))

    def test_joint_and_spectrum(self):
        equal = {name: LAYERS[name] for name in ("one", "two")}
        one, two = (fit_normaliser(Z)(Z) for Z in equal.values())
        joint = evolution(equal, kind="joint", projections=50, seed=2)
        assert joint[0] == pytest.approx(sliced_wasserstein(one, two, projections=50, seed=2).value)
        assert len(evolution(LAYERS, kind="spectrum")) == 2
        check_bad_input(
            [
                Bad(lambda: evolution(LAYERS, kind="joint"), DimensionMismatch, ("4, 4, 9", "pooled")),
                Bad(lambda: evolution(LAYERS, kind="mean"), BadOption, ("pooled, joint, spectrum",)),
                Bad(lambda: evolution({"one": LAYERS["one"]}), TooFewRows, ("two layers",)),
            ]
        )
        with pytest.raises(UndefinedMetric, match="constant"):
            evolution({**LAYERS, "dead": np.zeros((50, 3))})


class TestStatistics:
    def test_change(self):
        assert change([1, 2, 3], [1, 2, 3]) == 0
        assert change([1, 2, 3], [2, 2, 1]) == pytest.approx(0.5)
        with pytest.raises(UndefinedMetric, match="same in every layer"):
            change([0, 0], [1, 2])
        check_bad_input([Bad(lambda: change([1, 2], [1, 2, 3]), ShapeMismatch, ("2 and 3",))])

    def test_slope(self):
        excess = np.exp(2 - 0.3 * np.arange(6))
        assert slope(excess) == pytest.approx(-0.3)
        assert slope(excess[[0, 2, 3, 5]], [0, 2, 3, 5]) == pytest.approx(-0.3)
        assert slope([*excess[:4], 0.0]) == pytest.approx(-0.3)
        assert slope(excess[:3]) is None
        assert slope([1, 2, 3, 0, 0]) is None
        noisy = excess * [1, 2, 1, 0.5, 1, 3]
        assert slope(noisy) == pytest.approx(np.polyfit(np.arange(6), np.log(noisy), 1)[0])

    def test_concordance(self):
        profiles = [[1, 2, 3, 4], [1, 2, 4, 3], [4, 3, 2, 1]]
        taus = [kendall(profiles[i], profiles[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
        assert concordance(profiles) == pytest.approx(np.median(taus))
        assert concordance(profiles[:1]) is None
        assert concordance([[1, 1, 1], [1, 2, 3]]) == 0

    def test_association(self):
        probe = np.array([[0.5, 0.6, 0.9, 0.7], [0.4, 0.9, 0.8, 0.3]])
        found = association(-probe, probe)
        base = [kendall(np.arange(4), row) for row in probe]
        assert found.tau_w_probe == -1
        assert found.tau_depth_probe == pytest.approx(np.mean(base))
        np.testing.assert_allclose(found.by_cell, 1 - np.abs(base))
        assert found.low is not None
        assert found.low < found.difference
        assert (found.n_layers, association(probe[0], probe[0]).low) == (4, None)
        assert association(np.ones(4), probe[0]).tau_w_probe == 0
        check_bad_input(
            [
                Bad(lambda: association(probe, probe[:1]), DimensionMismatch, ("(1, 4)",)),
                Bad(lambda: association([1, 2], [1, 2]), TooFewRows, ("three layers",)),
            ]
        )


def net(seed: int, n: int, shift: float, contraction: float) -> dict[str, np.ndarray]:
    """Rows of six layers through which a shift of the input shrinks by a factor."""
    layers = {}
    for layer in range(6):
        Z = gaussian(n, 5, seed=100 * seed + layer)
        layers[f"layer{layer}"] = np.sign(Z) * np.abs(Z) ** (1 + 0.2 * layer) + shift * contraction**layer
    return layers


class TestConsistency:
    OPTIONS = MappingProxyType({"projections": 30, "splits": 10, "permutations": 39})
    SOURCE = net(0, 80, 0, 1)
    TARGETS = MappingProxyType({"near": net(1, 80, 1.5, 0.8), "far": net(2, 80, 3, 0.8)})

    def test_every_statistic_beside_its_null(self):
        nulls = [
            (net(10 + r, 80, 0, 1), {"near": net(30 + r, 80, 1.5, 1.1), "far": net(50 + r, 80, 3, 1.1)})
            for r in range(5)
        ]
        found = consistency(self.SOURCE, self.TARGETS, nulls, **self.OPTIONS)
        assert [(r.target, r.statistic, r.frame) for r in found.rows] == [
            *[(t, s, f) for t in self.TARGETS for f in ("source", "own") for s in ("C", "tau")],
            *[(t, "slope", "") for t in self.TARGETS],
            ("", "kappa", ""),
        ]
        near = found.row("slope", "near")
        assert near.value == pytest.approx(np.log(0.8), abs=0.1)
        assert near.p == near.p_all == pytest.approx(1 / 6)
        assert near.null_q05 is not None
        assert near.value is not None
        assert near.value < near.null_q05
        assert near.n_null == 5
        C = found.row("C", "near", "own")
        expected = change(evolution(self.SOURCE), evolution(self.TARGETS["near"]))
        assert C.value == pytest.approx(expected)
        source = change(evolution(self.SOURCE), evolution(self.TARGETS["near"], source=self.SOURCE))
        assert found.row("C", "near", "source").value == pytest.approx(source)
        family = [r.p for r in found.rows if r.statistic == "C"]
        assert all(r.p_all == max(p for p in family if p is not None) for r in found.rows if r.statistic == "C")
        assert C.floor is not None
        assert C.floor == found.row("C", "far", "own").floor
        assert found.row("kappa").value == concordance([list(p.values()) for p in found.profile.excess.values()])
        with pytest.raises(UnknownName, match="No such"):
            found.row("slope", "nowhere")

    def test_parts_measured_apart_give_the_whole(self):
        nulls = [(net(10, 80, 0, 1), {"near": net(30, 80, 1.5, 1.1), "far": net(50, 80, 3, 1.1)})]
        options = {"projections": 30, "splits": 10}
        profile = net_profile(self.SOURCE, self.TARGETS, permutations=39, **options)
        apart = [net_profile(S, T, permutations=None, **options) for S, T in nulls]
        assert judged(profile, apart).rows == consistency(self.SOURCE, self.TARGETS, nulls, **self.OPTIONS).rows
        assert apart[0].significant is None
        known = {
            t: gap(
                {n: fit_normaliser(self.SOURCE[n])(self.SOURCE[n]) for n in T},
                {n: fit_normaliser(self.SOURCE[n])(T[n]) for n in T},
                permutations=39,
                **options,
            )
            for t, T in self.TARGETS.items()
        }
        tested = net_profile(self.SOURCE, self.TARGETS, tested=known, **options)
        assert tested.excess == profile.excess
        assert tested.significant == profile.significant

    def test_halves_of_the_floor_are_drawn_at_random(self):
        # In the order of classes a first and a second half would be two different laws.
        ordered = {name: np.sort(Z, axis=0) for name, Z in net(3, 400, 0, 1).items()}
        found = consistency(ordered, [self.TARGETS["near"]], **self.OPTIONS)
        first, second = ({n: Z[part] for n, Z in ordered.items()} for part in (slice(200), slice(200, 400)))
        worst = change(evolution(first), evolution(second, source=first))
        floor = found.row("C", "0", "source").floor
        assert floor is not None
        assert floor < 0.3 * worst

    def test_what_has_no_value_or_no_null(self):
        single = consistency(self.SOURCE, self.TARGETS["near"], **self.OPTIONS)
        assert {row.target for row in single.rows} == {"target"}
        assert all(row.p is None and row.p_all is None and row.n_null == 0 for row in single.rows)
        same = consistency(self.SOURCE, {"same": net(7, 80, 0, 1)}, **self.OPTIONS)
        assert same.row("slope", "same").value is None

    def test_a_random_net_without_a_slope_counts_against_the_claim(self):
        null = (net(10, 80, 0, 1), {"near": net(30, 80, 0, 1), "far": net(50, 80, 0, 1)})
        found = consistency(self.SOURCE, self.TARGETS, [null], **self.OPTIONS)
        assert found.row("slope", "near").p in (0.5, 1.0)
        profile = net_profile(self.SOURCE, self.TARGETS, permutations=39, projections=30, splits=10)
        empty = net_profile(*null, permutations=None, projections=30, splits=10)
        empty.excess["near"].update(dict.fromkeys(empty.excess["near"], 0.0))
        assert judged(profile, [empty]).row("slope", "near").p == 1

    def test_captures_and_bad_input(self):
        class Capture:
            layers = TestConsistency.SOURCE

        found = consistency(Capture(), self.TARGETS, **self.OPTIONS)
        assert found.rows == consistency(self.SOURCE, self.TARGETS, **self.OPTIONS).rows
        short = {name: Z for name, Z in self.SOURCE.items() if name != "layer3"}
        uneven = {**self.SOURCE, "layer3": self.SOURCE["layer3"][:70]}
        other = net_profile(short, {"near": short}, permutations=None, projections=30, splits=10)
        whole = net_profile(self.SOURCE, self.TARGETS, permutations=None, projections=30, splits=10)
        check_bad_input(
            [
                Bad(lambda: consistency(self.SOURCE, {"near": short}), BadOption, ("near", "layer3")),
                Bad(lambda: consistency(uneven, self.TARGETS), BadOption, ("[70, 80]",)),
                Bad(lambda: consistency(self.SOURCE, {}), TooFewRows, ("needs a target",)),
                Bad(lambda: consistency(self.SOURCE, {"source": self.SOURCE}), BadOption, ("name that is taken",)),
                Bad(lambda: consistency(gaussian(50, 3), self.TARGETS), BadOption, ("ndarray",)),
                Bad(lambda: consistency({"a": gaussian(50, 3)}, self.TARGETS), TooFewRows, ("two layers",)),
                Bad(lambda: judged(whole, [other]), BadOption, ("other layers or targets",)),
            ]
        )
