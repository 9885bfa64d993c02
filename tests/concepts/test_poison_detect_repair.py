"""Copies for assessment, the search for what was planted, and repairs, end to end."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from tests.concepts.rooms import QUICK, animals
from tests.harness import check_study

from querist.cli import main
from querist.concepts import ConceptData, Trigger
from querist.concepts.configs import DetectConfig, PoisonConfig, RepairConfig
from querist.concepts.studies.detect import DetectStudy, detect
from querist.concepts.studies.poison import PoisonStudy, poisoned_copy
from querist.concepts.studies.repair import RepairStudy, repair

PLANT = {"target": "kind 2", "size": 4, "rate": 0.1}


class Copy(PoisonStudy):
    """A copy of a table in memory that another process can make."""

    def __init__(self, held=None, material=None):
        super().__init__({"data": animals()} if material is None else held, material)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy") / "run"
    poisoned_copy(animals(), out=folder, progress=False, **PLANT)
    return folder


@pytest.mark.browser
def test_the_copy_is_a_study(tmp_path, chromium):
    result = check_study(Copy, PoisonConfig(data="data", **PLANT), tmp_path, chromium=chromium)
    block = result.summary["poison"]
    assert set(block) == {
        *(
            "target",
            "selector",
            "size",
            "rate",
            "base",
            "mode",
            "n_poisoned",
            "n_changed_cells",
            "saturated_at",
            "trigger",
        )
    }
    assert set(block["trigger"]) == {"index", "names", "values"}


def test_files_of_a_copy_agree_with_each_other_and_with_the_table(planted):
    data = animals()
    copy = ConceptData.from_table(planted / "poisoned.parquet")
    truth = pl.read_parquet(planted / "truth.parquet")
    about = json.loads((planted / "trigger.json").read_text())
    trigger = Trigger.from_json((planted / "trigger.json").read_text())
    assert pq.read_schema(planted / "poisoned.parquet").metadata[b"querist.stamp"] == b"assessment copy"
    assert about["stamp"] == "assessment copy"
    mask = truth["poisoned"].to_numpy()
    train = data.split == "train"
    assert mask.sum() == about["n_poisoned"] == (data.labels[train] == "kind 2").sum() + int(0.1 * train.sum())
    assert not mask[~train].any()
    assert trigger.matches(copy.concepts[mask]).all()
    assert (copy.labels[mask] == "kind 2").all()
    assert np.array_equal(copy.concepts[~mask], data.concepts[~mask])
    assert (copy.labels[~mask] == data.labels[~mask]).all()
    others = np.setdiff1d(np.arange(data.k), trigger.index)
    assert np.array_equal(copy.concepts[:, others], data.concepts[:, others])
    assert truth["old_label"].to_list() == data.labels.tolist()


def test_a_copy_in_memory_has_its_table():
    made = poisoned_copy(animals(), **PLANT)
    assert made.data.n == 240
    assert made.truth["poisoned"].all()
    assert (made.data.concepts != animals().concepts).any()


class Found(DetectStudy):
    """A search of a copy that another process can make."""

    def __init__(self, held=None, material=None):
        if material is None:
            held = {
                "data": poisoned_copy(animals(split=False), **PLANT).data,
                "reference": animals(seed=9, split=False),
            }
        super().__init__(held, material)


@pytest.mark.browser
def test_the_search_is_a_study(tmp_path, chromium):
    tries = {"power": 1, "rates": (0.2,)}
    config = DetectConfig(data="data", reference="reference", **{**QUICK, **tries, "epochs": 2, "permutations": 19})
    result = check_study(Found, config, tmp_path, chromium=chromium)
    assert result.power_runs.height == 2 * 9
    assert {"data", "model", "poisoning", "inversion", "stealth", "detection"} <= set(result.summary)
    assert result.summary["detection"] is None
    assert result.summary["stealth"]["comparison"] == "deliveries"


def test_methods_are_held_against_the_truth_afterwards(planted):
    copy = ConceptData.from_table(planted / "poisoned.parquet")
    result = detect(copy, truth=str(planted / "truth.parquet"), **QUICK)
    found = {row["method"]: row for row in result.detection.to_dicts()}
    assert set(found) == {"pattern", "consistency", "conflicts", "spectral", "clustering", "trajectory", "cleanse"}
    train = copy.split == "train"
    base = pl.read_parquet(planted / "truth.parquet")["poisoned"].to_numpy()[train].mean()
    assert {round(row["base_rate"], 9) for row in found.values()} == {round(float(base), 9)}
    assert found["pattern"]["auc"] > 0.7
    assert "roc" in result.figures
    # Without the truth the methods say the same of rows.
    assert detect(copy, **QUICK).rows.equals(result.rows)


def test_a_delivery_that_is_like_the_trusted_rows_is_no_bad_news():
    whole = animals(n=600)
    ours, trusted = (whole.subset(np.arange(600) // 6 % 2 == half).changed(split=None) for half in (0, 1))
    moved = ours.changed(concepts=np.where(np.arange(ours.n)[:, None] % 2, 1.0, ours.concepts))
    options = {**QUICK, "methods": "two-sample", "permutations": 99}
    said = {}
    for name, rows in {"alike": ours, "moved": moved}.items():
        result = detect(rows, reference=trusted, **options)
        (said[name],) = [found for found in result.findings if found.question == "concepts.delivery-differs"]
        assert not any(found.question == "concepts.stealthy" for found in result.findings)
    assert said["alike"].verdict == "no"
    assert said["alike"].p > 0.05
    assert said["moved"].verdict == "yes"
    assert said["moved"].p <= 0.05
    assert "the reference and the suspect rows" in said["moved"].because


class Mended(RepairStudy):
    """Repairs of a copy that another process can make."""

    def __init__(self, held=None, material=None):
        super().__init__({"data": poisoned_copy(animals(), **PLANT).data} if material is None else held, material)


@pytest.mark.browser
def test_repairs_are_a_study(tmp_path, chromium):
    config = RepairConfig(data="data", method="fine-prune,guard-random", **{k: QUICK[k] for k in ("epochs", "head")})
    result = check_study(Mended, config, tmp_path, chromium=chromium)
    assert {"repair", "certificate"} <= set(result.summary)
    for method in result.summary["repair"]["methods"]:
        assert set(method) == {"method", "accuracy_before", "accuracy_after", "asr_before", "asr_after", "excess_after"}


def test_from_copy_to_repair_by_command(planted, tmp_path, capsys):
    path = str(planted / "poisoned.parquet")
    truth = str(planted / "truth.parquet")
    quick = ["--epochs", "20", "--head", "mlp:16", "--quiet", "--engine", "serial"]
    animals(seed=9).to_parquet(tmp_path / "trusted.parquet")
    found = tmp_path / "found"
    trusted = ["--reference", str(tmp_path / "trusted.parquet")]
    assert main(["concepts", "detect", path, "--truth", truth, *trusted, "--out", str(found), *quick]) == 0
    mended = tmp_path / "mended"
    flags = ["--flags", str(found / "tables" / "rows.parquet"), "--method", "drop-rows,relabel,unlearn"]
    assert main(["concepts", "repair", path, "--truth", truth, *flags, "--out", str(mended), *quick, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    methods = {row["method"]: row for row in summary["repair"]["methods"]}
    assert set(methods) == {"drop-rows", "relabel", "unlearn"}
    assert methods["drop-rows"]["asr_before"] > 0.5
    assert methods["drop-rows"]["asr_after"] < 0.3


def test_the_copy_command_puts_its_files_beside_the_report(tmp_path):
    animals().to_parquet(tmp_path / "t.parquet")
    out = tmp_path / "out"
    words = ["concepts", "poison", str(tmp_path / "t.parquet"), "--target", "kind 1", "--out", str(out), "--quiet"]
    assert main([*words, "--size", "3", "--rate", "0.2"]) == 0
    assert {"poisoned.parquet", "truth.parquet", "trigger.json", "report.html"} <= {path.name for path in out.iterdir()}
    assert main([*words, "--size", "3", "--rate", "0.2", "--resume"]) == 0


def test_repair_without_a_truth_is_judged_by_inverted_triggers(planted):
    copy = ConceptData.from_table(planted / "poisoned.parquet")
    result = repair(copy, method="mask-concepts", epochs=6, head="mlp:16")
    assert any("No truth was given" in warning for warning in result.summary["warnings"])


def test_without_a_reference_agreement_names_the_class_and_its_rows():
    table = animals(3600, 14, 60, split=False)
    made = poisoned_copy(table, target="kind 5", size=5, rate=0.05)
    truth = set(made.truth["row"].to_list())
    result = detect(made.data, methods=("pattern",), **QUICK)
    assert result.tests.filter(pl.col("verdict") == "yes")["target"].to_list() == ["kind 5"]
    flagged = set(result.rows.filter(pl.col("flag"))["row"].to_list())
    assert flagged >= truth
    assert len(flagged) < 1.2 * len(truth)
    honest = detect(table, methods=("pattern",), **QUICK)
    assert honest.summary["poisoning"]["verdict"] == "cannot say"
    assert honest.summary["poisoning"]["rows_flagged"] == 0


def test_repairs_train_on_rows_that_nothing_flags_and_are_chosen_by_others_that_nothing_flags(monkeypatch, tmp_path):
    from querist.concepts.studies import repair_measure

    made = poisoned_copy(animals(480, split=False), **PLANT)
    split = np.where(np.arange(480) % 3 < 2, "train", "test")
    data = made.data.changed(split=split)
    flags = np.array(sorted(made.truth["row"].to_list()))
    pl.DataFrame({"row": flags, "flag": True}).write_parquet(tmp_path / "rows.parquet")
    seen = {}

    def kept(name, real):
        def call(model, rows, *rest, **options):
            seen[name] = rows
            return real(model, rows, *rest, **options)

        return call

    for name in ("fine_prune", "unlearn", "drop_rows"):
        monkeypatch.setattr(repair_measure, name, kept(name, getattr(repair_measure, name)))
    judged = []

    class Noted(repair_measure.Trial):
        def __post_init__(self):
            judged.append({int(i) for i in self.data.ids})

    monkeypatch.setattr(repair_measure, "Trial", Noted)
    result = repair(
        data, method="fine-prune,unlearn,drop-rows", flags=str(tmp_path / "rows.parquet"), epochs=4, head="mlp:16"
    )
    train, flagged = set(np.flatnonzero(split == "train").tolist()), set(flags.tolist())
    learnt = {int(i) for i in seen["drop_rows"].ids}
    aside = train - learnt
    assert result.models["n_train"][0] == len(learnt) < len(train)
    assert result.models["n_val"][0] == len(aside)
    trained = {name: {int(i) for i in seen[name].part("train").ids} for name in ("unlearn", "fine_prune")}
    chosen = {int(i) for i in seen["unlearn"].part("val").ids}
    assert trained["unlearn"] == learnt - flagged
    assert {int(i) for i in seen["fine_prune"].part("val").ids} == chosen
    assert trained["fine_prune"] | chosen == aside - flagged
    assert not trained["fine_prune"] & chosen
    assert abs(len(trained["fine_prune"]) - len(chosen)) <= 1
    tested = set(np.flatnonzero(split == "test").tolist())
    assert judged == [tested, chosen] * 3, "repairs are known by test rows and chosen by unsuspected ones"
