"""The rules of the claims about concepts on constructed tables: each can hold, fail, and not tell."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from querist.claims.claim import Size
from querist.claims.concepts import CLAIMS, attacks_rules, defences_rules, stealth_rules
from querist.claims.concepts.family import TABLES
from querist.claims.concepts.rules import Interval, above, below, over, paired, said
from querist.claims.concepts.stealth import FIRST_PICKS, STEALTH_TESTS

SPECS = {spec.name: spec for spec in TABLES}
BY_NAME = {claim.name: claim for claim in CLAIMS}
PLACES = {"renderer": ("render:birds", ("a", "b", "c", "d")), "table": ("cub-concepts", tuple("abcdefgh"))}
NAMES = ("names", "random")


def test_every_claim_judges_draws_and_says_its_numbers():
    assert [claim.name for claim in CLAIMS] == [
        "cat-rate",
        "cat-size",
        "cat-beats-random",
        "catplus-beats-cat",
        "cat-utility",
        "cat-headline",
        "cat-attributable",
        "cat-stealth",
        "catplus-score",
        "guard-asr",
        "image-trigger",
        "inversion-space",
        "clean-label",
    ]
    for claim in CLAIMS:
        assert claim.draw is not None
        assert "Holds" in claim.rule
        for words in (claim.protocol, claim.rule, claim.statement):
            assert words.endswith(".")


def spread(middle, n, wide=0.0):
    """n values around a middle, within ± wide."""
    return middle + wide * np.linspace(-1, 1, n)


def cell(setting, planted, repeats=2, **columns):
    """A row for each target and repeat; a column is one value, or values over targets."""
    table, targets = PLACES[setting]
    selector, size, rate, mode = planted
    rows = []
    for i, target in enumerate(targets):
        for repeat in range(repeats):
            row = {"piece": "x", "setting": setting, "table": table, "target": target, "repeat": repeat}
            row |= {"selector": selector, "size": size or 20, "rate": rate, "mode": mode, "n_poisoned": 10}
            row |= {name: float(np.broadcast_to(value, len(targets))[i]) for name, value in columns.items()}
            rows.append(row)
    return rows


def attacks(*parts):
    return {"attacks": SPECS["attacks"].frame([row for part in parts for row in part])}


def judged(name, tables, size=None):
    found = BY_NAME[name].judge(tables, size or BY_NAME[name].sizes["small"])
    names = [n.what for n in found.numbers]
    assert len(names) == len(set(names))
    assert found.because.endswith(".")
    return found


# ------------------------------------------------------------------------------------------------- rate, size, selector


@pytest.mark.parametrize(
    ("name", "cells"), [("cat-rate", attacks_rules.RATES), ("cat-size", attacks_rules.SIZES)], ids=["rate", "size"]
)
@pytest.mark.parametrize(
    ("middle", "wide", "verdict"), [(0.3, 0.05, "holds"), (-0.3, 0.05, "fails"), (0.02, 0.3, "cannot say")]
)
def test_more_of_it(name, cells, middle, wide, verdict):
    change = spread(middle, 4, wide)
    rows = attacks(*(cell("renderer", c, asr=0.5 + i / 2 * change, clean_model_asr=0.1) for i, c in enumerate(cells)))
    found = judged(name, rows)
    assert (found.verdict, found.null) == (verdict, 0.0)
    assert found.estimate == pytest.approx(middle)
    assert found.low < middle < found.high


@pytest.mark.parametrize("name", ["cat-beats-random", "catplus-beats-cat"])
@pytest.mark.parametrize(
    ("renderer", "table", "verdict", "estimate"),
    [
        ((0.1, 0.02), (0.2, 0.05), "holds", 0.1),
        ((0.1, 0.02), (0.01, 0.2), "cannot say", 0.01),
        ((0.1, 0.02), (-0.1, 0.02), "fails", -0.1),
        ((-0.1, 0.02), (0.01, 0.2), "fails", -0.1),
    ],
)
def test_one_selector_beats_another(name, renderer, table, verdict, estimate):
    first, second = ("cat", "random") if name == "cat-beats-random" else ("cat+", "cat")
    parts = []
    for setting, (middle, wide) in {"renderer": renderer, "table": table}.items():
        n = len(PLACES[setting][1])
        parts.append(cell(setting, attacks_rules.at_one(second), asr=0.5, clean_model_asr=0.0))
        parts.append(cell(setting, attacks_rules.at_one(first), asr=0.5 + spread(middle, n, wide), clean_model_asr=0.0))
    found = judged(name, attacks(*parts))
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(estimate)


def test_targets_without_a_partner_are_left_out_and_nothing_is_made_of_nothing():
    rows = attacks(cell("renderer", attacks_rules.at_one("cat"), asr=0.5))
    found = judged("cat-beats-random", rows)
    assert (found.verdict, found.estimate) == ("cannot say", None)


@pytest.mark.parametrize(
    ("drop", "wide", "verdict"), [(0.002, 0.004, "holds"), (0.04, 0.01, "fails"), (0.015, 0.02, "cannot say")]
)
def test_utility(drop, wide, verdict):
    rows = attacks(cell("renderer", attacks_rules.PLAIN, accuracy_drop=spread(drop, 4, wide), accuracy=0.93))
    assert judged("cat-utility", rows).verdict == verdict


@pytest.mark.parametrize(
    ("pictures", "heads", "verdict"),
    [
        ((0.95, 0.02), (0.97, 0.02), "holds"),
        ((0.95, 0.02), (0.4, 0.3), "fails"),
        ((0.95, 0.02), (0.93, 0.08), "cannot say"),
        ((0.5, 0.1), (0.97, 0.02), "fails"),
    ],
)
def test_headline(pictures, heads, verdict):
    rows = attacks(
        cell("renderer", attacks_rules.HEADLINE, asr=spread(pictures[0], 4, pictures[1])),
        cell("table", attacks_rules.MANY, asr=spread(heads[0], 8, heads[1])),
    )
    found = judged("cat-headline", rows)
    assert found.verdict == verdict
    assert "4 targets" in found.because
    assert "8 targets" in found.because


@pytest.mark.parametrize(
    ("clean", "wide", "verdict"), [(0.01, 0.01, "holds"), (0.5, 0.1, "fails"), (0.09, 0.06, "cannot say")]
)
def test_attributable(clean, wide, verdict):
    rows = attacks(
        cell("renderer", attacks_rules.PLAIN, asr=0.9, natural=0.0, clean_model_asr=spread(clean, 4, wide)),
        cell("table", attacks_rules.at_one("cat"), asr=0.9, natural=0.0, clean_model_asr=0.004),
    )
    found = judged("cat-attributable", rows)
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(clean - 0.09)


@pytest.mark.parametrize(
    ("excess", "wide", "verdict"), [(0.3, 0.1, "holds"), (0.02, 0.02, "fails"), (0.1, 0.1, "cannot say")]
)
def test_clean_label(excess, wide, verdict):
    rows = attacks(
        cell("renderer", attacks_rules.WHOLE_CLASS, asr=0.5, excess=0.4),
        cell("table", attacks_rules.WHOLE_CLASS, asr=0.2, excess=spread(excess, 8, wide)),
    )
    found = judged("clean-label", rows)
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(excess)


# ------------------------------------------------------------------------------------------------------------- tables


def compared(auc, p, half=0.03):
    rows = [
        {"piece": "x", "table": "cub-concepts", "target": str(i), "repeat": 0, "auc": a, "p": q, "n_a": 30, "n_b": 299}
        | {"low": a - half, "high": a + half}
        for i, (a, q) in enumerate(zip(auc, p, strict=True))
    ]
    return {"stealth_tests": STEALTH_TESTS.frame(rows)}


@pytest.mark.parametrize(
    ("auc", "p", "half", "verdict"),
    [
        ([0.5, 0.52, 0.49, 0.51], [0.5, 0.4, 0.6, 0.3], 0.05, "holds"),
        ([0.9, 0.95, 0.9, 0.51], [0.001, 0.001, 0.001, 0.5], 0.03, "fails"),
        ([0.9, 0.5, 0.5, 0.5], [0.001, 0.4, 0.6, 0.3], 0.03, "cannot say"),
        ([0.5, 0.52, 0.49, 0.51], [0.5, 0.4, 0.6, 0.3], 0.2, "cannot say"),
        ([0.5, 0.52, 0.49, 0.51], [0.04, 0.4, 0.6, 0.3], 0.05, "holds"),
    ],
    ids=["alike", "told apart", "one of four", "too wide", "one of four before Holm"],
)
def test_stealth(auc, p, half, verdict):
    found = judged("cat-stealth", compared(auc, p, half))
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(np.mean(auc))


def test_targets_with_too_few_rows_are_told():
    tables = compared([0.5, 0.5], [0.5, 0.5])
    lost = {"piece": "x", "table": "zoo", "target": "9", "repeat": 0, "reason": "too few"}
    tables["stealth_tests"] = pl.concat([tables["stealth_tests"], STEALTH_TESTS.frame([lost])])
    assert "1 targets have too few rows" in judged("cat-stealth", tables).because
    none = {"stealth_tests": STEALTH_TESTS.frame([lost])}
    assert judged("cat-stealth", none).verdict == "cannot say"


def picks(index, table="cub-concepts"):
    rows = [
        {"piece": "x", "table": table, "target": str(i), "repeat": 0, "concept": f"c{k}", "index": k, "value": 1}
        | {"cnt": 3, "concepts": 98}
        for i, k in enumerate(index)
    ]
    return {"first_picks": FIRST_PICKS.frame(rows)}


@pytest.mark.parametrize(
    ("index", "verdict", "share"),
    [
        (range(40), "holds", 1.0),
        ([0] * 40, "fails", 0.0),
        ([*range(20), *([50] * 20)], "cannot say", 0.5),
        ([k // 2 for k in range(40)], "fails", 0.0),
    ],
    ids=["each its own", "all one", "half", "pairs"],
)
def test_first_picks(index, verdict, share):
    found = judged("catplus-score", picks(index))
    assert (found.verdict, found.estimate) == (verdict, share)
    chance = next(n for n in found.numbers if "independent" in n.what)
    assert chance.null == pytest.approx((1 - 1 / 196) ** 39)


def test_classes_of_two_tables_share_no_pick():
    both = pl.concat([picks([7, 8], name)["first_picks"] for name in ("mushroom", "zoo")])
    assert judged("catplus-score", {"first_picks": both}).estimate == 1.0


# ------------------------------------------------------------------------------------------------------------ defences


def guards(cut, drop, wide=0.0, random_cut=0.0):
    rows = []
    for setting, (table, targets) in PLACES.items():
        for i, target in enumerate(targets):
            for by in NAMES:
                own = spread(cut[setting] if by == "names" else random_cut, len(targets), wide)[i]
                place = {"piece": "x", "setting": setting, "table": table, "target": target, "repeat": 0, "by": by}
                numbers = {"asr_before": 0.9, "asr_after": 0.9 * (1 - own), "accuracy_before": 0.9}
                rows.append(place | numbers | {"accuracy_after": 0.9 - drop, "groups": 4, "coverage": 3})
    return {"guards": SPECS["guards"].frame(rows)}


@pytest.mark.parametrize(
    ("cut", "drop", "wide", "verdict"),
    [
        ({"renderer": 0.9, "table": 0.85}, 0.0, 0.05, "holds"),
        ({"renderer": 0.9, "table": 0.2}, 0.0, 0.05, "fails"),
        ({"renderer": 0.9, "table": 0.85}, 0.2, 0.05, "fails"),
        ({"renderer": 0.9, "table": 0.7}, 0.0, 0.2, "cannot say"),
    ],
    ids=["both", "no cut on tables", "accuracy lost", "wide"],
)
def test_guard(cut, drop, wide, verdict):
    found = judged("guard-asr", guards(cut, drop, wide))
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(min(cut.values()))
    assert "touching 3.000" in found.because


def test_success_that_was_none_before_has_no_cut():
    tables = guards({"renderer": 0.9, "table": 0.9}, 0.0)
    tables["guards"] = tables["guards"].with_columns(
        asr_before=pl.when(pl.col("setting") == "table").then(0.0).otherwise(pl.col("asr_before"))
    )
    assert judged("guard-asr", tables).verdict == "cannot say"


def reaches(hit, null, eps=(8 / 255, 32 / 255)):
    targets = PLACES["renderer"][1]
    rows = [
        {"piece": "x", "setting": "renderer", "table": "render:birds", "target": target, "repeat": 0, "eps": e}
        | {"hit": float(h), "null_hit": float(null), "physical_asr": 0.6, "physical_clean_asr": 0.1}
        for e in eps
        for target, h in zip(targets, hit, strict=True)
    ]
    return {"reaches": SPECS["reaches"].frame(rows)}


@pytest.mark.parametrize(
    ("hit", "verdict"),
    [
        ([0.5, 0.6, 0.9, 0.7], "holds"),
        ([0.03, 0.02, 0.03, 0.01], "fails"),
        ([0.0, 0.0, 0.9, 0.0], "cannot say"),
    ],
)
def test_image_trigger(hit, verdict):
    found = judged("image-trigger", reaches(hit, 0.02))
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(np.mean(hit) - 0.02)
    assert "0.600" in found.because
    assert judged("image-trigger", reaches(hit, 0.02, eps=(2 / 255,))).verdict == "cannot say"


def inversions(pixels, concepts, retrains=19):
    place = {"setting": "renderer", "table": "render:birds", "repeat": 0}
    rows = []
    for space, found in (("pixels", pixels), ("concepts", concepts)):
        clean = {"space": space, "target": None, "flagged": "z"}
        rows += [place | clean | {"piece": f"clean/{i}", "repeat": i, "largest": 1 + i / 10} for i in range(retrains)]
        rows += [
            place
            | {"piece": f"t{i}", "space": space, "target": f"t{i}", "largest": float(value), "flagged": f"t{i % 3}"}
            for i, value in enumerate(found)
        ]
    return {"inversions": SPECS["inversions"].frame(rows)}


@pytest.mark.parametrize(
    ("pixels", "concepts", "verdict", "share"),
    [
        ([2, 1, 1.5, 1], [5, 5, 4, 3], "holds", 1.0),
        ([5, 5, 5, 1], [5, 5, 5, 5], "fails", 0.25),
        ([1, 1, 1, 1], [1, 1, 1, 5], "fails", 0.25),
        ([1, 1, 1, 5], [5, 5, 5, 5], "cannot say", 0.75),
    ],
    ids=["missed and found", "seen in pixels", "not found", "one seen"],
)
def test_inversion_space(pixels, concepts, verdict, share):
    found = judged("inversion-space", inversions(pixels, concepts))
    assert (found.verdict, found.estimate) == (verdict, share)
    assert "3 have the target on top" in found.because


def test_eighteen_retrains_reach_no_five_per_cent():
    assert judged("inversion-space", inversions([1], [9], retrains=18)).verdict == "cannot say"
    (row,), clean = defences_rules.ranks(inversions([1], [9]), "concepts")
    assert row[2] == 1 / 20
    assert len(clean) == 19


# --------------------------------------------------------------------------------------------------------- what is shared


def test_intervals_are_over_targets_first():
    rows = attacks(cell("renderer", attacks_rules.PLAIN, repeats=50, asr=[0.0, 0.0, 1.0, 1.0]))["attacks"]
    found = over(rows, "asr")
    assert found is not None
    assert (found.estimate, found.n) == (0.5, 4)
    assert (found.low, found.high) == (0.0, 1.0)
    one = over(rows.filter(pl.col("target") == "a"), "asr")
    assert one == Interval(0.0, None, None, 1)
    assert above(one, -1.0) is None
    assert "no interval" in said(one)
    assert over(rows.with_columns(asr=pl.lit(None, pl.Float64)), "asr") is None


def test_sides():
    one = Interval(0.5, 0.4, 0.6, 4)
    assert [above(one, bound) for bound in (0.3, 0.5, 0.7)] == [True, None, False]
    assert [below(one, bound) for bound in (0.3, 0.5, 0.7)] == [False, None, True]
    assert below(None, 0.0) is None


def test_pairs_share_target_and_repeat():
    first = attacks(cell("renderer", attacks_rules.PLAIN, asr=[0.1, 0.2, 0.3, 0.4]))["attacks"]
    second = first.filter(pl.col("target") != "b").with_columns(asr=pl.col("asr") - 0.05)
    found = paired(first, second)
    assert found["target"].unique().sort().to_list() == ["a", "c", "d"]
    assert found["difference"].to_list() == pytest.approx([0.05] * 6)


def test_sizes_name_what_the_rules_read():
    for claim in CLAIMS:
        for size in claim.sizes.values():
            assert isinstance(size, Size)
            if claim.later is not None:
                assert size["n"] in (3600, 20000)
    assert stealth_rules.LIMIT == 0.6
    assert BY_NAME["inversion-space"].sizes["small"]["retrains"] >= 19
