"""Tries of detection on copies of a table: honest resamples, planted twins, alarms counted, and what is said of them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from tests.concepts.rooms import QUICK, animals
from tests.harness import check_bad_input

from querist.cli import main
from querist.concepts import ConceptData
from querist.concepts.configs import DetectConfig
from querist.concepts.errors import NotBinary
from querist.concepts.figures import evidence as figures
from querist.concepts.studies.detect import DetectStudy, detect
from querist.concepts.studies.opening import Material
from querist.concepts.studies.power import CLEAN, KEPT, PowerPlan, carry_out_try, detectors_of, plan_power, resample
from querist.concepts.studies.power_answer import decided, power_findings, power_lead, power_table, power_words
from querist.concepts.tables import POWER_RUNS
from querist.errors import BadOption, UnknownName
from querist.statistics import stream, wilson

PLAN = PowerPlan(20, ("a", "b", "c", "d", "e"), ("cat", "cat+"), (5,), (0.01, 0.05), "mix")


def config(**fields):
    return DetectConfig(data="data", **{**QUICK, **fields})


def runs(alarms, method="agreement", rate=CLEAN, **more):
    """Rows of power_runs, a try each."""
    row = {"method": method, "rate": rate, "target": "a", "selector": "cat", "size": 5, "n": 100, "n_poisoned": 0}
    return [row | {"repeat": i, "alarm": bool(a), "named": bool(a)} | more for i, a in enumerate(alarms)]


def test_a_subsample_holds_no_row_twice_and_keeps_the_shares_of_classes():
    data = animals(233, split=False)
    before = data.concepts.copy()
    made, none = resample(data, None, stream(0, "x"))
    assert none is None
    assert len(set(made.ids.tolist())) == made.n
    assert made.class_sizes.tolist() == [round(KEPT * n) for n in data.class_sizes]
    places = [int(name[1:]) for name in made.ids]
    assert np.array_equal(made.concepts, data.concepts[places])
    assert np.array_equal(made.codes, data.codes[places])
    assert not np.array_equal(made.ids, resample(data, None, stream(1, "x"))[0].ids)
    assert np.array_equal(data.concepts, before)
    alone = ConceptData(np.eye(3), [0, 0, 1])
    assert resample(alone, None, stream(0, "x"))[0].class_sizes.tolist() == [2, 1]


def test_with_trusted_rows_the_sides_exchange_rows_inside_each_class():
    data, trusted = animals(120, split=False), animals(90, split=False, seed=3)
    trusted = trusted.subset(trusted.labels != "kind 4")
    pictures = [
        np.arange(side.n, dtype=float).reshape(-1, 1, 1, 1) + 1000 * i for i, side in enumerate((data, trusted))
    ]
    data, trusted = (side.changed(images=image) for side, image in zip((data, trusted), pictures, strict=True))
    mine, theirs = resample(data, trusted, stream(0, "x"))
    assert theirs is not None
    assert np.array_equal(mine.labels, data.labels)
    assert np.array_equal(theirs.labels, trusted.labels)
    whole = {
        float(one): row for side in (data, trusted) for one, row in zip(side.images.ravel(), side.concepts, strict=True)
    }
    seen = []
    for made in (mine, theirs):
        for label, picture, row in zip(made.labels, made.images.ravel(), made.concepts, strict=True):
            source = trusted if picture >= 1000 else data
            assert np.array_equal(whole[float(picture)], row), "a picture goes with its row"
            assert source.labels[int(picture) % 1000] == label, "no row changes its class"
            seen.append(float(picture))
    assert sorted(seen) == sorted(whole), "each row stands on one side, once"
    moved = mine.images.ravel() >= 1000
    assert 0.3 < moved[mine.labels != "kind 4"].mean() < 0.6
    assert not moved[mine.labels == "kind 4"].any(), "what the reference lacks cannot be exchanged"


def test_every_target_meets_every_selector_before_one_comes_again():
    cases = [PLAN.case(i) for i in range(10)]
    assert len(set(cases)) == 10
    assert [PLAN.case(i) for i in range(10, 20)] == cases
    two = PowerPlan(20, ("a", "b"), ("cat",), (2, 5), (0.1,), "mix")
    assert [two.case(i)[2] for i in range(5)] == [2, 2, 5, 5, 2]


def test_a_plan_fits_the_table():
    data = animals(split=False)
    plan = plan_power(config(power=3), data)
    assert (plan.tries, len(plan.targets), plan.selectors, plan.sizes) == (3, 5, ("cat", "cat+"), (5,))
    assert plan.rates == (0.01, 0.05, 0.1)
    assert plan_power(config(power=3, targets="kind 2,"), data).targets == ("kind 2",)
    assert len(plan_power(config(power=3, targets="all"), data).targets) == 6
    soft = data.changed(concepts=data.concepts * 0.8, space="prob")
    assert plan_power(config(power=3), soft).selectors == ("cat",)
    assert plan_power(config(power=3, binarise="0.5"), soft).selectors == ("cat", "cat+")
    check_bad_input(
        [
            (lambda: plan_power(config(rates=(0.1,)), data), BadOption, ["--rates", "--power"]),
            (lambda: plan_power(config(targets="kind 1,"), data), BadOption, ["--targets"]),
            (lambda: plan_power(config(power=3, sizes=(20,)), data), BadOption, ["20", "1 to 12"]),
            (lambda: plan_power(config(power=3, targets="kind 9,"), data), UnknownName, ["kind 9", "kind 1"]),
            (lambda: plan_power(config(power=3, selectors=("cat+",)), soft), NotBinary, ["binarise"]),
            (lambda: plan_power(config(power=3, poison_mode="clean"), data), BadOption, ["0.01 of 32 rows"]),
            (lambda: DetectConfig.build(power=3, rates=(1.5,)), BadOption, ["0 < rate"]),
        ]
    )


def test_a_try_plants_what_it_says_in_the_same_rows(monkeypatch):
    """The clean resample and its planted twins: one set of rows, one trigger, rates nested."""
    from querist.concepts.studies import power

    seen = {}
    monkeypatch.setattr(
        power, "fitted", lambda told, method, table, reference, model: seen.update({rate: table}) or 1 / 0
    )
    monkeypatch.setattr(power, "BadInput", ZeroDivisionError)
    data = animals(300, split=False)
    settings = config(power=1, rates=(0.05, 0.2))
    material = Material({}, {"data": data})
    plan = plan_power(settings, data)
    for rate in (CLEAN, *plan.rates):
        rows = carry_out_try(settings, material, plan, ("consistency",), 0, rate)["power_runs"]
    target, selector, size = plan.case(0)
    clean = seen[CLEAN]
    assert clean.n == rows[0]["n"] == round(KEPT * 50) * 6
    touched = {}
    for rate in plan.rates:
        table = seen[rate]
        moved = table.codes != clean.codes
        touched[rate] = set(np.flatnonzero(moved))
        assert len(touched[rate]) == int(rate * clean.n)
        assert (table.labels[moved] == target).all()
        changed = (table.concepts != clean.concepts).any(axis=0)
        assert changed.sum() <= size
    assert touched[0.05] < touched[0.2]
    assert rows[0]["n_poisoned"] == round(KEPT * 50) + int(0.2 * clean.n)
    assert (rows[0]["target"], rows[0]["selector"], rows[0]["size"]) == (str(target), selector, size)


def test_inversion_is_ranked_among_the_clean_resamples_of_other_tries():
    clean = runs([None] * 20, "cleanse", alarm=None)
    for i, row in enumerate(clean):
        row |= {"statistic": float(i), "named": True}
    planted = runs([None] * 20, "cleanse", 0.05, alarm=None)
    for row in planted:
        row |= {"statistic": 18.5 if row["repeat"] else 25.0, "named": True}
    made = decided(POWER_RUNS.frame(clean + planted))
    alarms = made.filter(pl.col("alarm"))
    # Not ranked among its own clean twin: 18.5 is beyond the others only in the try whose twin holds the 19.
    assert alarms.select("rate", "repeat").rows() == [(CLEAN, 19), (0.05, 0), (0.05, 19)]
    assert alarms["named"].all()
    few = decided(POWER_RUNS.frame(clean[:10] + planted[:10]))
    assert few["alarm"].null_count() == 20
    assert "19 are needed" in few["reason"][0]


@pytest.mark.parametrize(("classes", "said"), [(4, "5 or more"), (6, None)])
def test_inversion_needs_classes_to_be_an_outlier_of(classes, said):
    settings = config(power=1, rates=(0.2,), epochs=1)
    data = animals(120, classes=classes, split=False)
    made = carry_out_try(settings, Material({}, {"data": data}), plan_power(settings, data), ("cleanse",), 0, CLEAN)
    (row,) = made["power_runs"]
    assert (row.get("statistic") is None) == (said is not None)
    assert said is None or said in row["reason"]


def test_alarms_are_counted_with_their_interval():
    rows = runs([0] * 20) + runs([1] * 19 + [0], rate=0.01, auc=0.9) + runs([1] * 20, rate=0.05, auc=1.0)
    rows += runs([None] * 20, "conflicts", alarm=None, named=None, reason="it scores rows and reports none")
    rows += runs(
        [None] * 20, "conflicts", 0.01, alarm=None, named=None, auc=0.5, reason="it scores rows and reports none"
    )
    held = POWER_RUNS.frame(rows)
    table = power_table(held)
    one = table.filter((pl.col("method") == "agreement") & (pl.col("rate") == 0.01)).row(0, named=True)
    told = wilson(19, 20)
    assert (one["alarms"], one["decided"], one["runs"], one["named"]) == (19, 20, 20, 19)
    assert (one["share"], one["low"], one["high"]) == (0.95, told.low, told.high)
    assert one["low"] == pytest.approx(0.7639, abs=1e-4)
    assert one["high"] == pytest.approx(0.9911, abs=1e-4)
    never = table.filter(pl.col("method") == "conflicts")
    assert never["alarms"].null_count() == never.height == 2
    assert never["reason"].to_list() == ["it scores rows and reports none"] * 2
    (finding,) = power_findings(table, held, PLAN)
    assert (finding.subject, finding.verdict, finding.null) == ("agreement", "yes", 0.0)
    assert "Had 1 % of this table been poisoned" in finding.because
    assert "agreement would have seen it in 19 of 20 tries" in finding.because
    assert "in 0 of 20 clean resamples" in finding.because
    other = held.with_columns(
        pl.when(pl.col("repeat") % 2 == 0).then(pl.lit("cat+")).otherwise("selector").alias("selector")
    )
    (finding,) = power_findings(table, other, PLAN)
    assert "(CAT+ 10 of 10, CAT 9 of 10, at 5 % in 20 of 20 tries)" in finding.because
    assert "19 of 20 tries" in power_lead([finding], table, PLAN)
    drawn = figures.power(table)
    assert [trace["name"] for trace in drawn.data][:2] == ["1 % poisoned", "5 % poisoned"]
    assert drawn.data[0]["y"] == [0.95]


@pytest.mark.parametrize(
    ("clean", "planted", "verdict"),
    [
        (0, 19, "yes"),
        (20, 20, "cannot say"),
        (5, 16, "yes"),
        (10, 16, "cannot say"),
        (0, 11, "cannot say"),
        (0, 1, "no"),
    ],
)
def test_a_method_that_always_alarms_finds_nothing(clean, planted, verdict):
    rows = runs([i < clean for i in range(20)]) + runs([i < planted for i in range(20)], rate=0.01)
    held = POWER_RUNS.frame(rows)
    table = power_table(held)
    (finding,) = power_findings(table, held, PLAN)
    assert finding.verdict == verdict
    if clean == 20:
        assert "clean resamples alarm about as often" in finding.because
        assert "no method would have told it" in power_lead([finding], table, PLAN)


def test_nothing_is_said_where_no_method_can_alarm():
    held = POWER_RUNS.frame(runs([None], "conflicts", alarm=None, named=None))
    table = power_table(held)
    assert power_findings(table, held, PLAN) == []
    assert power_lead([], table, PLAN) == ""
    assert figures.power(table) is None
    assert detectors_of(("pattern", "spectral"), True) == ["reference", "agreement", "spectral"]
    assert detectors_of(("pattern",), False) == ["agreement"]
    assert "planted itself" in power_words(PLAN, True, True)[-1]


def test_the_reference_test_would_have_found_it():
    data, trusted = animals(240, split=False), animals(240, split=False, seed=9)
    asked = {"methods": ("pattern", "two-sample", "conflicts"), "power": 4, "rates": (0.1,), **QUICK}
    result = detect(data, reference=trusted, **asked)
    table = {(row["method"], row["rate"]): row for row in result.power.to_dicts()}
    assert {name for name, _ in table} == {"reference", "agreement", "two-sample", "conflicts"}
    assert table["reference", 0.1]["alarms"] == table["reference", 0.1]["named"] == 4
    assert table["reference", 0.0]["alarms"] <= 1
    assert table["reference", 0.1]["auc"] > 0.9
    assert table["conflicts", 0.1]["alarms"] is None
    block = result.summary["power"]
    assert (block["tries"], block["resampling"]) == (4, "exchanged with the reference")
    assert {"method", "rate", "runs", "alarms", "share", "low", "high", "named", "auc"} == set(block["methods"][0])
    assert "power" in result.figures
    assert "What would have been found?" in [section.title for section in result.layout.sections]
    assert "Had 10 % of this table been poisoned" in result.layout.lead
    # The search itself does not depend on what is tried beside it.
    plain = detect(data, reference=trusted, methods=asked["methods"], **QUICK)
    assert plain.rows.equals(result.rows)
    assert plain.summary["power"] is None
    assert {"what": "power", "reason": "no copies with known poison were asked for (--power)"} in plain.summary[
        "passed_over"
    ]


def test_the_work_is_estimated_and_flat():
    study = DetectStudy({"data": animals(split=False)})
    settings = config(power=2, rates=(0.1, 0.2), methods=("pattern",))
    done = {"models": pl.DataFrame({"path": ["x"]})}
    units = [unit for unit in study.units(settings, "methods", done) if unit.key.startswith("power/")]
    assert [unit.key for unit in units] == [f"power/try=00{i}/rate={r}" for i in (0, 1) for r in ("0", "0.1", "0.2")]
    dear = study.units(config(power=2, rates=(0.1,), methods=("cleanse",)), "methods", done)[-1]
    assert dear.cost > units[0].cost > 0


def test_options_of_tries_come_from_the_command_line(tmp_path, capsys):
    animals(split=False).to_parquet(tmp_path / "t.parquet")
    words = ["concepts", "detect", str(tmp_path / "t.parquet"), "--quiet", "--out", str(tmp_path / "out")]
    words += ["--methods", "pattern", "--epochs", "1", "--head", "linear"]
    assert main([*words, "--rates", ".1"]) == 2
    assert "--power" in capsys.readouterr().err
    asked = ["--power", "1", "--rates", ".1", "--targets", "2", "--sizes", "3", "--selectors", "random"]
    assert main([*words, *asked, "--poison-mode", "dirty", "--fail-if", "would-be-found.verdict == yes"]) == 0
    made = pl.read_parquet(tmp_path / "out" / "tables" / "power_runs.parquet")
    assert made["selector"].unique().to_list() == ["random"]
    assert made["n_poisoned"].to_list() == [0, 19]
