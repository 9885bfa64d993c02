"""The rules of the claims about effects on constructed tables: each can hold, fail, and not tell."""

from __future__ import annotations

import numpy as np
import pytest

from querist.claims.claim import Size
from querist.claims.effects import (
    CLAIMS,
    averages,
    averages_rules,
    customers,
    customers_rules,
    known,
    rules,
    simulated,
    simulated_rules,
)

CELLS = ((1, 400), (3, 100))
SIM = Size(5, {"cells": CELLS})
NEAR = np.array([-0.01, 0.01, 0.0, 0.005, -0.005])
WIDE = np.array([-0.5, 0.5, 0.3, -0.3, 0.1])


def frames(family, **rows):
    return {spec.name: spec.frame(rows.get(spec.name, [])) for spec in family.tables}


def test_every_claim_has_pieces_and_says_when_it_holds():
    assert [claim.name for claim in CLAIMS] == [
        "tier",
        "interaction",
        "enhancer",
        "multitask",
        "many-arms",
        "leak",
        "hillstrom",
        "social-pressure",
        "observational",
        "ihdp",
        "criteo",
    ]
    for claim in CLAIMS:
        for size in claim.sizes.values():
            keys = [piece.key for piece in claim.pieces(size)]
            assert len(keys) == len(set(keys)) > 0
        assert claim.protocol.endswith(".")
        assert claim.rule.endswith(".")
        assert "Holds" in claim.rule
        empty = frames(claim.family)
        judged = claim.judge(empty, claim.sizes["small"])
        assert judged.verdict == "cannot say", claim.id
        assert judged.because.endswith(".")


def test_sides_of_an_interval():
    one = rules.Contrast("x", -0.2, -0.3, -0.1, 5)
    assert (one.side("below"), one.side("above")) == (True, False)
    assert one.side("below", -0.25) is None
    assert rules.Contrast("x").side("above") is None


def test_pairs_that_lack_a_side_are_left_out_and_arms_of_a_split_are_one_pair():
    spec = next(spec for spec in customers.FAMILY.tables if spec.name == "leaks")
    rows = [
        {"piece": f"p{split}", "split": split, "how": how, "arm": arm, "sklift": value + 0.01 * split}
        for split in range(4)
        for how, value in (("observed", 0.3), ("counterfactual", 0.1))
        for arm in ("a", "b")
        if (split, how) != (3, "observed")
    ]
    found = rules.contrast("x", spec.frame(rows), "observed", "counterfactual", "sklift", by=("split",), name="how")
    assert found.n == 3
    assert found.estimate == pytest.approx(0.2)
    assert (
        rules.contrast("x", spec.frame(rows[:2]), "observed", "counterfactual", "sklift", by=("split",), name="how").low
        is None
    )


# ------------------------------------------------------------------------------------------------------ known effects


def errors(by_model, column="increments", cells=CELLS):
    """Errors of every cell: by model the log error, draw by draw."""
    rows = []
    for setting, n in cells:
        for model, logs in by_model.items():
            for repeat, value in enumerate(np.broadcast_to(logs, 5)):
                row = {
                    "piece": f"{setting}/{repeat}/{model}",
                    "setting": setting,
                    "n": n,
                    "repeat": repeat,
                    "model": model,
                }
                rows.append(row | dict.fromkeys(("increments", "totals", "rare"), 1.0) | {column: float(np.exp(value))})
    return frames(simulated.FAMILY, errors=rows)


def tiers(flat, constant, totals, others=0.0):
    by_model = {"MTMT": NEAR, "flat heads": flat, "constant effect": constant, "MTMT, refit on totals": totals}
    by_model |= dict.fromkeys(simulated_rules.BESIDE, others)
    return simulated_rules.tier(errors(by_model), SIM)


@pytest.mark.parametrize(
    ("flat", "constant", "totals", "verdict"),
    [
        (0.2, 0.3, 0.1, "holds"),
        (0.2, 0.3, NEAR[::-1], "cannot say"),  # does not beat the same refit on totals
        (0.2, -0.3, 0.1, "fails"),  # worse than one effect for all
        (-0.2, 0.3, 0.1, "fails"),
        (WIDE, 0.3, 0.1, "cannot say"),
    ],
)
def test_tier(flat, constant, totals, verdict):
    found = tiers(flat, constant, totals)
    assert found.verdict == verdict
    assert found.null == 0
    assert found.estimate == pytest.approx(-float(np.mean(flat)), abs=1e-9)
    assert "tiers alone" in found.because
    assert "flatters" in found.because


def test_tier_needs_every_setting():
    better = {"MTMT": NEAR, "flat heads": 0.2, "constant effect": 0.2, "MTMT, refit on totals": 0.2}
    one = errors(better, cells=CELLS[:1])["errors"]
    other = errors(better | {"flat heads": NEAR[::-1]}, cells=CELLS[1:])["errors"]
    tables = frames(simulated.FAMILY) | {"errors": one.vstack(other)}
    assert simulated_rules.tier(tables, SIM).verdict == "cannot say"
    assert simulated_rules.tier(tables, Size(5, {"cells": CELLS[:1]})).verdict == "holds"
    assert simulated_rules.tier(tables, Size(5, {"cells": CELLS})).numbers


@pytest.mark.parametrize(("without", "verdict"), [(0.1, "holds"), (-0.1, "fails"), (WIDE, "cannot say")])
def test_interaction(without, verdict):
    found = simulated_rules.interaction(errors({"MTMT": NEAR, "without interaction": without}, "totals"), SIM)
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("interaction", "enhancer", "verdict"),
    [(0.2, 0.1, "holds"), (0.1, 0.2, "fails"), (-0.1, -0.2, "holds"), (WIDE, 0.1, "cannot say")],
)
def test_enhancer(interaction, enhancer, verdict):
    by_model = {"MTMT": NEAR, "without interaction": interaction, "without enhancer": enhancer + NEAR}
    found = simulated_rules.enhancer(errors(by_model, "totals"), SIM)
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(float(np.mean(interaction) - enhancer), abs=1e-9)


@pytest.mark.parametrize(("alone", "verdict"), [(0.1, "holds"), (-0.1, "fails"), (WIDE, "cannot say")])
def test_multitask(alone, verdict):
    size = Size(5, {"cells": CELLS[:1]})
    assert simulated_rules.multitask(errors({"together": NEAR, "alone": alone}, "rare"), size).verdict == verdict


def ranks(m3tn, efin):
    rows = []
    for model, values in {"MTMT": (0.1, 0.1, 0.1), "M3TN": m3tn, "EFIN-like": efin}.items():
        for arm, value in enumerate(values, start=1):
            for repeat in range(5):
                row = {
                    "piece": f"{repeat}/{model}",
                    "setting": 3,
                    "n": 100,
                    "repeat": repeat,
                    "model": model,
                    "arm": arm,
                }
                rows.append(
                    row | {"outcome": 1, "qini": value + NEAR[(repeat + arm) % 5] * (model == "MTMT"), "best": 0.2}
                )
    return simulated_rules.many_arms(frames(simulated.FAMILY, ranks=rows), Size(5, {"cells": ((3, 100),)}))


def test_many_arms():
    assert ranks((0.05, 0.05, 0.05), (0.0, 0.0, 0.0)).verdict == "holds"
    assert ranks((0.05, 0.05, 0.15), (0.0, 0.0, 0.0)).verdict == "fails"
    found = ranks((0.05, 0.05, 0.1), (0.0, 0.0, 0.0))
    assert found.verdict == "cannot say"
    assert "5 of 6 pairs" in found.because


# ---------------------------------------------------------------------------------------------------------- customers


def leak(observed, splits=3):
    rows = []
    for split in range(splits):
        for how in customers_rules.WAYS:
            for arm in ("Mens E-Mail", "Womens E-Mail"):
                value = observed[split] if how == "observed" else 0.02 + 0.001 * split
                rows.append({"piece": f"p{split}", "split": split, "how": how, "arm": arm, "sklift": value})
    return customers_rules.leak(frames(customers.FAMILY, leaks=rows), Size(splits, {}))


def test_leak():
    assert leak([0.3, 0.25, 0.35]).verdict == "holds"
    assert leak([-0.3, -0.25, -0.35]).verdict == "fails"
    found = leak([0.356, 0.188, -0.2])
    assert found.verdict == "cannot say"
    assert "arms exchanged" in found.because
    assert leak([0.3], splits=1).verdict == "cannot say"


def hillstrom(natural, arm, learner=(0.009, 0.0638)):
    scored, valued = [], []
    for split in range(3):
        for model in ("MTMT", "T-learner"):
            of = {
                "piece": f"hillstrom/{split}/{model}",
                "table": "hillstrom",
                "split": split,
                "model": model,
                "outcome": "visit",
            }
            valued.append(of | {"value": 0.2, "arm": "Mens E-Mail", "over_arm": arm[split]})
            ranked = {"sklift": 0.02, "qini": 0.003, "se": 0.001, "over_natural": natural[split]}
            scored += [of | {"arm": label} | ranked for label in ("Mens E-Mail", "Womens E-Mail")]
    for split in range(4):
        of = {
            "piece": f"published/{split}",
            "table": "hillstrom",
            "split": split,
            "model": "T-learner",
            "outcome": "visit",
        }
        scored += [
            of | {"arm": label, "sklift": value + 0.001 * split, "qini": 0.1, "over_natural": 9.0}
            for label, value in zip(("Mens E-Mail", "Womens E-Mail"), learner, strict=True)
        ]
    return customers_rules.hillstrom(frames(customers.FAMILY, scored=scored, valued=valued), Size(3, {}))


UP, DOWN, OPEN = [0.003, 0.004, 0.005], [-0.003, -0.004, -0.005], [-0.004, 0.001, 0.004]


@pytest.mark.parametrize(
    ("natural", "arm", "verdict"),
    [(UP, UP, "holds"), (UP, DOWN, "fails"), (DOWN, UP, "fails"), (UP, OPEN, "cannot say"), (OPEN, UP, "cannot say")],
)
def test_hillstrom(natural, arm, verdict):
    found = hillstrom(natural, arm)
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(min(np.mean(natural), np.mean(arm)))


def test_hillstrom_tells_every_arm_beside_the_mean_over_arms():
    found = hillstrom(UP, UP)
    told = [
        number
        for number in found.numbers
        if "less that of natural response" in number.what and number.what.count(",") == 2
    ]
    assert {number.what.split(", ")[2].partition(":")[0] for number in told} == {"Mens E-Mail", "Womens E-Mail"}
    assert "for Mens E-Mail, " in found.because


def test_hillstrom_rests_on_a_path_that_gives_what_was_measured_before():
    found = hillstrom(UP, UP, learner=(0.06, 0.0638))
    assert found.verdict == "cannot say"
    assert "in doubt" in found.because
    assert any(
        number.what == "T-learner, visit, Mens E-Mail: sklift Qini" and number.n == 3 for number in found.numbers
    )


def criteo(mtmt, s=0.07, t=0.071):
    by_model = {"MTMT": mtmt, "S-learner": s, "T-learner": t, "single arm": 0.0}
    rows = [
        {
            "piece": f"c/{split}/{model}",
            "table": "criteo-uplift",
            "split": split,
            "model": model,
            "arm": "1",
            "outcome": "visit",
        }
        | {"sklift": value + 0.0005 * ((split + len(model)) % 3), "qini": 0.1}
        for model, value in by_model.items()
        for split in range(5)
    ]
    return customers_rules.criteo(frames(customers.FAMILY, scored=rows), Size(5, {}))


def test_criteo():
    assert criteo(0.08).verdict == "holds"
    assert criteo(0.06).verdict == "fails"
    assert criteo(0.071).verdict == "cannot say"
    found = criteo(0.2, s=0.03)
    assert found.verdict == "cannot say"
    assert "in doubt" in found.because
    assert any(number.value == 0.164 for number in found.numbers)


# ----------------------------------------------------------------------------------------------------------- averages


def letters(*values, se=0.003):
    names = ("base", "Hawthorne less Civic Duty", "Self less Hawthorne", "Neighbors less Self")
    from scipy.special import ndtr

    rows = [
        {
            "piece": "s",
            "what": what,
            "first": what == "base",
            "estimate": x,
            "low": x - 1.96 * se,
            "high": x + 1.96 * se,
        }
        | {"p": float(2 * ndtr(-abs(x) / se)), "se": se, "se_naive": 0.8 * se, "households": 1000}
        for what, x in zip(names, values, strict=True)
    ]
    return averages_rules.social_pressure(frames(averages.FAMILY, steps=rows), Size(1, {}))


def test_social_pressure():
    assert letters(0.04, 0.02, 0.02, 0.03).verdict == "holds"
    assert letters(0.04, -0.02, 0.02, 0.03).verdict == "fails"
    found = letters(0.04, 0.005, 0.02, 0.03)
    assert found.verdict == "cannot say"
    assert found.estimate == 0.005
    # Two at p .03 each: alone they would do, together with Holm they do not.
    assert letters(0.04, 0.0065, 0.0065, 0.03).verdict == "cannot say"


def men(overlap, doubly, warned="no"):
    rows = [{"piece": "n", "method": "naive", "estimate": -8498.0, "low": -9600.0, "high": -7300.0, "error": -10292.0}]
    for method, gain in (
        ("overlap-weighted", overlap),
        ("doubly robust, the treated", doubly),
        ("doubly robust, everyone", 0),
    ):
        numbers = {"estimate": 0.0, "low": -1.0, "high": 1.0, "error": -1794.0, "gain": gain}
        rows.append({"piece": "n", "method": method, **numbers, "gain_low": gain - 500, "gain_high": gain + 500})
    found = [{"piece": "n", "verdict": warned, "share": 0.05, "because": "x."}]
    return averages_rules.observational(
        frames(averages.FAMILY, estimates=rows, overlaps=found), Size(1, {"benchmark": 1794.0})
    )


def test_observational():
    assert men(4000.0, 9000.0).verdict == "holds"
    assert men(4000.0, -900.0).verdict == "fails"
    assert men(4000.0, 9000.0, "yes").verdict == "fails"
    assert men(4000.0, 9000.0, "cannot say").verdict == "cannot say"
    found = men(300.0, 9000.0)
    assert found.verdict == "cannot say"
    assert found.estimate == 300.0
    assert "doubly robust, everyone" in found.because


# --------------------------------------------------------------------------------------------------------------- ihdp


def children(mtmt):
    rows = []
    for replication, value in enumerate(mtmt, start=1):
        for model, pehe in (("MTMT", value), ("T-learner", 0.9), ("constant effect", 1.0)):
            rows.append(
                {
                    "piece": f"{replication}/{model}",
                    "replication": replication,
                    "model": model,
                    "pehe": pehe,
                    "effect": 4.0,
                }
            )
    return known.ihdp(frames(known.FAMILY, pehe=rows), Size(5, {}))


def test_ihdp():
    assert children([0.5, 0.55, 0.6, 0.52, 0.58]).verdict == "holds"
    assert children([1.5, 1.55, 1.6, 1.52, 1.58]).verdict == "fails"
    found = children([0.5, 1.8, 0.6, 1.4, 0.9])
    assert found.verdict == "cannot say"
    assert "median 0.900" in found.because
    assert any(number.what == "T-learner: median ratio" and number.value == 0.9 for number in found.numbers)


# ------------------------------------------------------------------------------------------------------------ figures


def test_figures_of_nothing_are_no_error():
    for claim in CLAIMS:
        assert claim.draw is not None
        for figure in claim.draw(frames(claim.family), claim.sizes["small"]):
            assert figure.name.startswith(f"{claim.name}.")
