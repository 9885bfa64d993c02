"""The audit: what every study must do, its summary's keys, and what it says of honest and planted tables."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.concepts.rooms import QUICK, animals, class_level
from tests.harness import check_study

from querist.cli import main
from querist.concepts import ConceptData, cat_plus, poison
from querist.concepts.configs import AuditConfig
from querist.concepts.detectors import discrete_index
from querist.concepts.figures.models import inversion
from querist.concepts.studies.audit import AuditStudy, audit
from querist.concepts.studies.sweep import ExposureStudy, exposure
from querist.concepts.tables.models import INVERSION

SMALL = {**QUICK, "targets": "2", "headline": "size=3,rate=0.1", "groups": 3}
KEYS = {
    "protocol": None,
    "data": {
        *(
            "n",
            "k",
            "classes",
            "density",
            "missing",
            "class_size_min",
            "class_size_median",
            "class_size_max",
            "profiles",
        ),
        *("conflicting_profiles", "conflicting_rows", "accuracy_ceiling", "constant_concepts", "space", "split"),
    },
    "model": {
        *("kind", "input", "accuracy", "balanced_accuracy", "majority_accuracy", "concept_accuracy"),
        *("concept_balanced_accuracy", "concept_majority_accuracy"),
    },
    "exposure": {
        *("headline", "targets", "repeats", "mean_asr", "median_asr", "p90_asr", "max_asr", "max_target"),
        *(
            "mean_clean_model_asr",
            "mean_untriggered",
            "mean_natural",
            "mean_excess",
            "low",
            "high",
            "mean_accuracy_drop",
        ),
        *("size_for_50", "size_for_90"),
    },
    "poisoning": {"verdict", "method", "classes", "rows_flagged", "rows_flagged_share"},
    "inversion": {"verdict", "classes", "threshold", "calibration_runs"},
    "stealth": {"auc", "p", "mmd2", "shift_mean", "shift_max", "comparison"},
    "reachability": None,
    "certificate": {"groups", "ties", "certified_accuracy", "coverage"},
    "repair": {"best", "methods"},
    "monitor": {"false_alarm_rate", "detection_rate"},
    "transfer": None,
}


class Animals(AuditStudy):
    """An audit of a table in memory that another process can make."""

    def __init__(self, held=None, material=None):
        super().__init__({"data": animals(306)} if material is None else held, material)


@pytest.mark.browser
def test_the_audit_is_a_study(tmp_path, chromium):
    config = AuditConfig(data="data", repair="best", **{**SMALL, "epochs": 2, "permutations": 19})
    result = check_study(Animals, config, tmp_path, chromium=chromium)
    summary = result.summary
    for key, inner in KEYS.items():
        assert key in summary, key
        if inner is not None:
            assert set(summary[key]) == inner, key
    assert summary["transfer"] is None
    told = {row["what"] for row in summary["passed_over"]}
    assert {"transfer", "reachability", "gradient inversion", "reference test"} <= told
    assert result.layout.sections[0].title == "The protocol"
    assert result.layout.lead.count(". ") + result.layout.lead.endswith(".") >= 3
    questions = {finding.question.removeprefix("concepts.") for finding in result.findings}
    assert questions == {
        *("table-poisoned", "exposed", "attributable", "even-over-targets", "selector-matters", "utility-kept"),
        *("stealthy", "model-backdoored", "certified", "monitor-works", "repaired"),
    }
    assert {figure.table for figure in result.figures.values()} <= set(result.tables)
    clean = result.exposure.filter(pl.col("mode") == "none")
    assert clean.height == 4
    assert clean["n_poisoned"].unique().to_list() == [0]


def test_a_sweep_alone_is_part_of_the_audit():
    data = animals()
    whole = audit(data, **SMALL)
    alone = exposure(data, **SMALL)
    assert alone.exposure.equals(whole.exposure)
    assert set(alone.tables) == {"exposure", "exposure_summary", "selection", "models"}
    assert alone.summary["exposure"] == whole.summary["exposure"]
    assert alone.summary["poisoning"] is None
    assert ExposureStudy.command == "exposure"


def test_excess_is_success_over_the_larger_null_and_the_headline_is_their_mean():
    result = audit(animals(), **{**SMALL, "targets": "all", "repeats": 2})
    own = result.exposure.filter((pl.col("selector") == "cat+") & (pl.col("mode") == "mix"))
    assert own.height == 12
    for row in own.to_dicts():
        assert row["excess"] == pytest.approx(row["asr"] - max(row["untriggered"], row["clean_model_asr"]))
        assert row["n_poisoned"] == 26 + 1 + 16 or row["n_poisoned"] in (42, 43)
        assert row["base"] == "table"
    assert result.summary["exposure"]["mean_excess"] == pytest.approx(own["excess"].mean())
    assert result.summary["exposure"]["targets"] == 6
    assert result.summary["exposure"]["repeats"] == 2


def test_planted_rows_are_found_against_a_reference_and_honest_ones_are_not():
    suspect, trusted = animals(480, seed=1, split=False), animals(480, seed=2, split=False)
    made = poison(suspect, cat_plus(suspect, "kind 2", 4, seed=0).trigger, "kind 2", 0.05, seed=0)
    bad = audit(made.data, reference=trusted, **SMALL)
    table = {f.subject: f for f in bad.findings if f.question == "concepts.table-poisoned"}
    assert table["table"].verdict == "yes"
    assert table["kind 2"].verdict == "yes"
    assert bad.summary["poisoning"]["classes"][0]["class"] == "kind 2"
    assert bad.layout.lead.startswith("The table is suspicious: class kind 2")
    flagged = bad.rows.filter(pl.col("flag"))["row"].to_numpy()
    assert made.mask[flagged].mean() > 0.9
    good = audit(suspect, reference=trusted, **SMALL)
    table = {f.subject: f for f in good.findings if f.question == "concepts.table-poisoned"}
    assert table["table"].verdict == "no"
    assert "power" in good.tests["test"].to_list()


def test_class_level_data_report_any_row_that_deviates():
    result = audit(class_level(), class_level=True, **{**SMALL, "headline": "size=2,rate=0.2"})
    found = {f.subject: f for f in result.findings if f.question == "concepts.table-poisoned"}
    assert found["table"].verdict == "yes"
    assert found["0"].estimate == 1.0
    assert result.rows.filter(pl.col("flag"))["row"].to_list() == [5]


def test_one_target_is_never_a_headline():
    result = audit(animals(), **{**SMALL, "targets": "kind 1,"})
    exposed = next(f for f in result.findings if f.question == "concepts.exposed")
    assert exposed.verdict == "cannot say"
    assert any("One target alone" in warning for warning in result.summary["warnings"])


def test_sources_are_the_denominator():
    result = audit(animals(), **{**SMALL, "targets": "kind 1,", "sources": "kind 3"})
    test = animals().part("test")
    rate = result.exposure.filter(pl.col("mode") == "mix")["asr"][0]
    rows = int((test.labels == "kind 3").sum())
    assert rate * rows == pytest.approx(round(rate * rows))
    assert "kind 3" in result.summary["protocol"][-1]


def test_a_given_model_is_audited_and_its_figures_are_the_summarys():
    from querist.concepts import fit_head

    data = animals()
    head = fit_head(data, head="mlp:16", seed=5, epochs=6)
    result = audit(data, head, **SMALL)
    assert result.summary["model"]["kind"] == "head"
    given = result.models.filter(pl.col("model") == "given").row(0, named=True)
    assert result.summary["model"]["accuracy"] == given["accuracy"]
    test = data.part("test")
    import torch

    with torch.no_grad():
        right = head(torch.as_tensor(np.array(test.concepts), dtype=torch.float32)).argmax(dim=1).numpy() == test.codes
    assert given["accuracy"] == pytest.approx(right.mean())


def test_full_budget_calibrates_and_sweeps(tmp_path):
    data = animals(120, 8, 5)
    result = audit(
        data,
        budget="full",
        targets="1",
        repeats=1,
        sizes="1,2",
        rates="0.1,0.3",
        headline="size=2,rate=0.1",
        **{**QUICK, "epochs": 3},
    )
    assert result.summary["inversion"]["calibration_runs"] == 19
    assert result.summary["inversion"]["threshold"] is not None
    assert {"size_by_rate", "asr_by_rate"} <= set(result.figures)
    assert set(result.exposure["mode"]) == {"mix", "dirty", "clean", "none"}
    assert result.summary["transfer"]
    assert "gradient" in set(result.inversion["method"])


def test_the_command_gates_and_prints_its_summary(tmp_path, capsys):
    animals().to_parquet(tmp_path / "t.parquet")
    words = [f"--{name.replace('_', '-')}" for name in SMALL]
    given = [word for pair in zip(words, map(str, SMALL.values()), strict=True) for word in pair]
    out = str(tmp_path / "run")
    code = main(
        [
            "concepts",
            "audit",
            str(tmp_path / "t.parquet"),
            *given,
            "--out",
            out,
            "--quiet",
            "--json",
            "--engine",
            "serial",
            "--fail-if",
            "exposed.estimate > 2",
        ]
    )
    assert code == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["schema"] == "querist.concepts.audit/1"
    assert summary["data"]["n"] == 240
    again = main(["concepts", "audit", str(tmp_path / "t.parquet"), *given, "--out", out, "--quiet", "--resume"])
    assert again == 0


def test_input_tables_are_never_changed():
    values = np.array(animals().concepts)
    data = ConceptData(values, animals().labels)
    before = values.copy()
    audit(data, **{**SMALL, "targets": "1"})
    assert np.array_equal(values, before)


def test_the_example_runs(capsys):
    path = Path(__file__).parents[2] / "examples" / "audit_concepts.py"
    result = runpy.run_path(str(path))["main"](rows=900, epochs=3)
    said = capsys.readouterr().out
    assert "The table is suspicious: class e looks planted" in said
    assert "rows are flagged" in said
    assert result.summary["repair"]["methods"]


def test_inversion_is_shared_out_in_ranges_of_classes(monkeypatch):
    """However classes are shared out, each is searched once, its index is among all, and the gradient's shortlist waits for all."""
    from querist.concepts.studies import audit_inversion

    options = {**SMALL, "epochs": 2, "permutations": 19, "repair": "best"}
    study = AuditStudy({"data": animals(204)})
    config = AuditConfig(data="data", budget="full", retrains=19, repeats=1, rates="0.1", sizes="3", **options)
    whole = audit(animals(204), config=config)
    monkeypatch.setattr(audit_inversion, "RANGE", 2)
    units = study.units(config, "measure", {"models": whole.tables["models"]})
    assert [unit.key for unit in units if "audited" in unit.key] == [f"inversion/audited/{i}" for i in (0, 2, 4)]
    shared = audit(animals(204), config=config)
    assert shared.tables["inversion"].equals(whole.tables["inversion"])
    found = shared.tables["inversion"].filter((pl.col("model") == "audited") & (pl.col("method") == "discrete"))
    assert found.height == 6
    assert found["index"].null_count() == 0
    assert found["p"].drop_nulls().len() >= 1
    soft = shared.tables["inversion"].filter(pl.col("method") == "gradient")
    assert set(soft["target"]) == set(found["target"])


def test_the_bound_that_is_drawn_is_the_bound_of_the_index():
    """Sizes are counts, so that their spread is floored: the dashed line stands where the table's index is 2."""
    norms = np.array([2.0, 5, 5, 5, 5, 6])
    rows = [
        {"model": "audited", "target": str(i), "method": "discrete", "size": int(norm), "norm": norm, "index": index}
        for i, (norm, index) in enumerate(zip(norms, discrete_index(norms), strict=True))
    ]
    drawn = inversion(INVERSION.frame(rows))
    (line,) = [trace for trace in drawn.data if trace["name"] == "anomaly index 2"]
    assert line["y"] == pytest.approx([5 - 2 * 1.4826 * 0.5] * 2)
    assert inversion(INVERSION.frame([row | {"norm": 5.0, "index": 0.0} for row in rows])).data[1:] == []


def test_triggers_that_need_no_poison_are_told():
    """Where the clean model follows a trigger as well, poison adds nothing, and the way in is the interface itself."""
    from querist.concepts.studies.audit_present import _unpoisoned

    config = AuditConfig(data="x")
    block = {"headline": {"size": 5}, "mean_clean_model_asr": 0.27}
    assert _unpoisoned(config, block) == "5 concepts set there move 27 % of rows even where nothing was poisoned"
    assert _unpoisoned(config, block | {"mean_clean_model_asr": 0.1}) == ""
