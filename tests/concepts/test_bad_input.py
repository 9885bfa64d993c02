"""Everything that can be wrong with a table, a model or options ends in one message: what, the value, how to mend it."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import torch
from tests.concepts.rooms import QUICK, animals
from tests.harness import Bad, check_bad_input

from querist.cli import main
from querist.concepts import CBM, ConceptData, audit, cat, detect, fit_head, poison, poisoned_copy, repair
from querist.concepts.errors import DuplicateName, NotBinary, SchemaMismatch
from querist.concepts.heads import Head, SmallBackbone
from querist.errors import (
    BadOption,
    BadValues,
    CorruptFile,
    NonFinite,
    ShapeMismatch,
    SourceNotFound,
    TooFewRows,
    UnknownName,
    UnsafeFile,
)

RNG = np.random.default_rng(0)
C = (RNG.random((40, 6)) < 0.5).astype(float)
Y = np.arange(40) % 4
SMALL = {**QUICK, "targets": "2", "headline": "size=2,rate=0.2", "groups": 2}


def changed(**cells):
    made = C.copy()
    made[3, 2] = cells["value"]
    return made


def test_tables_that_cannot_be():
    soft = ConceptData(np.clip(C * 0.6 + 0.2, 0, 1), Y, space="prob")
    check_bad_input(
        [
            Bad(lambda: ConceptData(C[0], Y), ShapeMismatch, ["(6,)"]),
            Bad(lambda: ConceptData(np.zeros((0, 6)), []), TooFewRows, []),
            Bad(lambda: ConceptData(C, Y[:30]), ShapeMismatch, ["(40, 6)", "(30,)"]),
            Bad(lambda: ConceptData(C, Y, images=np.zeros((39, 3, 4, 4))), ShapeMismatch, ["(39, 3, 4, 4)", "(40, 6)"]),
            Bad(lambda: ConceptData(changed(value=np.inf), Y), NonFinite, ["row 3", "c2"]),
            Bad(lambda: ConceptData(changed(value=-2.5), Y), BadValues, ["logit", "row 3"]),
            Bad(lambda: ConceptData(C, Y, concept_names=list("abcabd")), DuplicateName, ["a", "b"]),
            Bad(lambda: ConceptData(C, Y, ids=["x"] * 40), DuplicateName, ["x"]),
            Bad(lambda: audit(soft, **SMALL), NotBinary, ["c0", "binarise"]),
            Bad(lambda: audit(ConceptData(C, np.zeros(40)), **SMALL), TooFewRows, ["1"]),
            Bad(lambda: audit(ConceptData(np.ones((40, 3)), Y), **SMALL), BadOption, ["1 to 0", "usable concepts"]),
        ]
    )


def test_unknown_cells_are_counted_and_constant_concepts_are_listed():
    holes = C.copy()
    holes[:5, 1] = np.nan
    holes[:, 4] = 1
    result = audit(ConceptData(holes, Y), **SMALL)
    assert result.summary["data"]["missing"] == 5
    assert result.summary["data"]["constant_concepts"] == ["c4"]
    assert any("c4" in warning for warning in result.summary["warnings"])
    assert not result.selection.filter(pl.col("concept") == "c4").height


def test_soft_concepts_are_audited_where_a_cut_is_given():
    soft = ConceptData(np.clip(C * 0.6 + 0.2, 0, 1), Y, space="prob")
    result = audit(soft, binarise="0.5", **SMALL)
    assert result.summary["data"]["space"] == "prob"
    assert result.exposure.height


def test_rows_that_share_memory_are_copied():
    row = [1.0, 0.0, 1.0]
    data = ConceptData([row, row, [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]] * 5, ["a", "b", "a", "b"] * 5)
    made = poison(data, cat(data, "a", 1, seed=0).trigger, "a", 0.2, mode="dirty", seed=0)
    assert made.n_poisoned == 4
    assert (made.data.concepts[~made.mask] == data.concepts[~made.mask]).all()


def test_targets_sizes_and_rates_by_verb():
    data = animals(120)
    check_bad_input(
        [
            Bad(lambda: audit(data, **{**SMALL, "targets": "kind 9,"}), UnknownName, ["kind 9", "kind 1"]),
            Bad(lambda: poisoned_copy(data, target="kind9"), UnknownName, ["kind9", "kind 1"]),
            Bad(lambda: poisoned_copy(data, target=""), BadOption, ["--target"]),
            Bad(lambda: audit(data, sizes=0, **SMALL), BadOption, ["1 or more"]),
            Bad(lambda: audit(data, sizes=13, **SMALL), BadOption, ["13", "1 to 12"]),
            Bad(lambda: poisoned_copy(data, target="kind 1", size=0), BadOption, ["0", "1 to 12"]),
            Bad(lambda: poisoned_copy(data, target="kind 1", size=99), BadOption, ["99", "1 to 12"]),
            Bad(lambda: audit(data, rates=0.0, **SMALL), BadOption, ["0 < rate <= 1"]),
            Bad(lambda: audit(data, rates=1.5, **SMALL), BadOption, ["0 < rate <= 1"]),
            Bad(lambda: poisoned_copy(data, target="kind 1", rate=0.0), BadOption, ["0 < rate <= 1"]),
            Bad(lambda: audit(data, **{**SMALL, "headline": "size=x"}), BadOption, ["size=5"]),
            Bad(lambda: audit(data, **{**SMALL, "headline": "colour=3"}), BadOption, ["colour=3"]),
            Bad(lambda: audit(data, **{**SMALL, "sources": "kind 1", "targets": "kind 1,"}), BadOption, ["source"]),
            Bad(lambda: audit(data, **{**SMALL, "sources": "kind 8"}), UnknownName, ["kind 8"]),
            Bad(lambda: audit(data, **{**SMALL, "groups": 40}), BadOption, ["40", "12"]),
            Bad(lambda: audit(data, **{**SMALL, "head": "cnn"}), BadOption, ["cnn", "mlp"]),
            Bad(lambda: audit(data, tagets="2"), UnknownName, ["tagets", "targets"]),
        ]
    )


def test_a_clean_rate_of_the_table_beyond_the_class_names_base_count_and_rows():
    data = ConceptData((RNG.random((1000, 6)) < 0.5).astype(float), np.repeat(np.arange(100), 10))
    call = lambda: poisoned_copy(data, target="3", size=2, rate=0.1, poison_mode="clean", base="table")  # noqa: E731
    check_bad_input([Bad(call, BadOption, ["base table", "100 rows", "n_t = 10"])])
    wide = {**SMALL, "headline": "size=2,rate=0.1,mode=clean"}
    check_bad_input([Bad(lambda: audit(data, base="table", **wide), BadOption, ["base table"])])


def test_a_class_of_one_row_is_filtered_by_means_and_said_so():
    data = ConceptData(np.vstack([C, 1 - C[:1]]), [*(f"y{y}" for y in Y), "rare"])
    found = cat(data, "rare", 2, seed=0)
    assert any("rare has one row" in said for said in found.warnings)
    assert any("one row" in said for said in audit(data, **SMALL).summary["warnings"])


def test_string_labels_are_kept_in_every_output():
    result = audit(animals(120), **SMALL)
    assert set(result.class_evidence["target"]) == {f"kind {i}" for i in range(6)}
    assert result.summary["exposure"]["max_target"].startswith("kind ")


def test_models_that_do_not_fit(tmp_path):
    data = animals(120)
    head = fit_head(data, head="mlp:16", seed=0, epochs=2)
    other = fit_head(animals(120, classes=5), head="mlp:16", seed=0, epochs=2)
    narrow = fit_head(animals(120, k=8), head="mlp:16", seed=0, epochs=2)
    torch.save(head, tmp_path / "model.pt")
    renamed = CBM(None, head, classes=[f"art {i}" for i in range(6)], input="hard")
    check_bad_input(
        [
            Bad(lambda: audit(data, str(tmp_path), **SMALL), UnsafeFile, ["model.pt", "safetensors"]),
            Bad(lambda: audit(data, str(tmp_path / "model.pt"), **SMALL), UnsafeFile, ["safetensors"]),
            Bad(lambda: audit(data, str(tmp_path / "none"), **SMALL), SourceNotFound, ["none"]),
            Bad(lambda: audit(data, other, **SMALL), ShapeMismatch, ["5", "6"]),
            Bad(lambda: audit(data, narrow, **SMALL), ShapeMismatch, ["12"]),
            Bad(lambda: audit(data, renamed, **SMALL), ShapeMismatch, ["art 0", "kind 0"]),
            Bad(lambda: audit(data, 3.5, **SMALL), BadOption, ["float"]),
            Bad(lambda: audit(data, "g=querist.concepts.heads:Head", **SMALL), BadOption, ["f=MODEL"]),
        ]
    )


def test_references_of_other_concepts_and_absent_classes():
    data = animals(120, split=False)
    other = ConceptData(data.concepts[:, :11], data.labels, concept_names=data.concept_names[:11])
    check_bad_input([Bad(lambda: audit(data, reference=other, **SMALL), SchemaMismatch, [data.concept_names[11]])])
    trusted = animals(120, seed=4, split=False)
    some = trusted.subset(trusted.labels != "kind 3")
    result = audit(data, reference=some, **SMALL)
    found = {f.subject: f for f in result.findings if f.question == "concepts.table-poisoned"}
    assert found["kind 3"].verdict == "cannot say"
    assert "trusted row" in found["kind 3"].because
    assert found["table"].verdict == "cannot say"


def test_few_classes_and_no_reference_cannot_say():
    result = audit(animals(90, 8, 3), **{**SMALL, "retrains": 19})
    found = {f.question: f for f in result.findings}
    assert found["concepts.model-backdoored"].verdict == "cannot say"
    assert "5 or more" in found["concepts.model-backdoored"].because
    assert found["concepts.table-poisoned"].verdict == "cannot say"


def test_images_without_g_and_g_without_images_are_passed_over():
    data = animals(120)
    g = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 12))
    model = CBM(g, fit_head(data, head="mlp:16", seed=0, epochs=2), input="prob")
    told = {row["what"]: row["reason"] for row in audit(data, model, **SMALL).summary["passed_over"]}
    assert "no images" in told["reachability"]
    assert "the table has none" in told["accuracy of the given model"]
    check_bad_input([Bad(lambda: repair(data, model), BadOption, ["images"])])


def test_searches_and_repairs(tmp_path):
    data = animals(120)
    (tmp_path / "text.parquet").write_text("no parquet")
    poisoned_copy(animals(240), target="kind 1", size=2, rate=0.1, out=tmp_path / "copy", progress=False)
    truth = str(tmp_path / "copy" / "truth.parquet")
    pl.DataFrame({"row": [500], "flag": [True]}).write_parquet(tmp_path / "far.parquet")
    check_bad_input(
        [
            Bad(lambda: detect(data, methods="two-sample"), BadOption, ["two-sample", "--reference"]),
            Bad(lambda: detect(data, methods="magic"), BadOption, ["magic", "spectral"]),
            Bad(lambda: detect(data, truth="nowhere.parquet"), SourceNotFound, ["nowhere.parquet"]),
            Bad(lambda: detect(data, truth=str(tmp_path / "text.parquet")), CorruptFile, ["text.parquet"]),
            Bad(lambda: detect(data, truth=truth), ShapeMismatch, ["240", "120"]),
            Bad(lambda: repair(data, method="pray"), UnknownName, ["pray", "relabel"]),
            Bad(lambda: repair(data, flags="nowhere.parquet"), SourceNotFound, ["nowhere.parquet"]),
            Bad(lambda: repair(data, flags=str(tmp_path / "far.parquet")), ShapeMismatch, ["500", "119"]),
            Bad(lambda: repair(data, groups=40), BadOption, ["40", "12"]),
        ]
    )


def test_command_lines(tmp_path):
    animals(120).to_parquet(tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("a,b,y\n" + "1,0,x\n0,1,z\n" * 10)
    (tmp_path / "words.csv").write_text("a,b,y\n" + "1,red,x\n0,blue,z\n" * 10)
    (tmp_path / "soft.csv").write_text("a,b,y\n" + "3.5,-2,x\n0,1,z\n" * 10)
    np.savez(tmp_path / "t.npz", c=C, y=Y)
    np.savez(tmp_path / "objects.npz", concepts=np.array([{}], dtype=object), labels=Y)
    table, out = str(tmp_path / "t.parquet"), ["--out", str(tmp_path / "run"), "--quiet"]
    csv = str(tmp_path / "t.csv")
    check_bad_input(
        [
            Bad(["concepts", "audit", "no-such-table", *out], 2, ["no-such-table"]),
            Bad(["concepts", "audit", str(tmp_path / "gone.csv"), "--label", "y", *out], 2, ["gone.csv"]),
            Bad(["concepts", "audit", csv, *out], 2, ["label"]),
            Bad(["concepts", "audit", csv, "--label", "yy", *out], 2, ["yy"]),
            Bad(["concepts", "audit", csv, "--label", "y", "--concepts", "z*", *out], 2, ["z*"]),
            Bad(["concepts", "audit", csv, "--label", "y", "--split", "a", *out], 2, []),
            Bad(["concepts", "audit", str(tmp_path / "words.csv"), "--label", "y", *out], 2, ["b", "one_hot"]),
            Bad(["concepts", "audit", str(tmp_path / "soft.csv"), "--label", "y", *out], 2, ["logit"]),
            Bad(["concepts", "audit", str(tmp_path / "t.npz"), *out], 2, ["concepts", "c, y"]),
            Bad(["concepts", "audit", str(tmp_path / "t.npz"), "--label", "y", *out], 2, ["--npz"]),
            Bad(["concepts", "audit", str(tmp_path / "t.npz"), "--npz", "c,y", *out], 2, ["concepts=KEY"]),
            Bad(["concepts", "audit", str(tmp_path / "t.npz"), "--npz", "rows=c", *out], 2, ["rows"]),
            Bad(["concepts", "audit", str(tmp_path / "objects.npz"), *out], 2, ["unpickled"]),
            Bad(["concepts", "audit", "zoo", "--label", "type", *out], 2, ["label"]),
            Bad(["concepts", "audit", "render:cats", *out], 2, ["birds"]),
            Bad(["concepts", "audit", table, "--budget", "huge", *out], 2, ["huge"]),
            Bad(["concepts", "audit", table, "--fail-if", "exposd.verdict == yes", *out], 2, ["exposd"]),
            Bad(["concepts", "poison", table, *out], 2, ["--target"]),
            Bad(["concepts", "poison", table, "--target", "kind 1", "--rate", "2", *out], 2, ["0 < rate <= 1"]),
            Bad(["concepts", "detect", table, "--truth", str(tmp_path / "x.parquet"), *out], 2, ["x.parquet"]),
            Bad(["concepts", "repair", table, "--method", "hope", *out], 2, ["hope"]),
        ]
    )


def test_an_archive_with_other_keys_is_audited_by_npz(tmp_path):
    np.savez(tmp_path / "t.npz", c=C, y=Y)
    result = audit(str(tmp_path / "t.npz"), npz="concepts=c,labels=y", **SMALL)
    assert result.summary["data"]["n"] == 40


def lines(rows, head="a,b,c,y"):
    return head + "\n" + "".join(f"{row}\n" for row in rows)


def test_tables_and_options_that_cannot_be_by_command(tmp_path):
    """Rows of the room's table of bad input that end with 2."""
    plain = [f"{i % 2},{i // 2 % 2},{i % 3 % 2},{'xz'[i % 2]}" for i in range(20)]
    written = {
        "good": lines(plain),
        "empty": "a,b,c,y\n",
        "inf": lines([*plain[:3], "1,inf,0,x", *plain[3:]]),
        "logits": lines([*plain, "1,2.5,0,x"]),
        "soft": lines([row.replace("1,", "0.7,", 1) for row in plain]),
        "twice": lines(plain, "a,b,a,y"),
        "ids": lines([f"r{min(i, 18)},{row}" for i, row in enumerate(plain)], "id,a,b,c,y"),
        "other": lines(plain, "a,b,d,y"),
    }
    for name, text in written.items():
        (tmp_path / f"{name}.csv").write_text(text)
    np.savez(tmp_path / "flat.npz", concepts=C[0], labels=Y[:6])
    np.savez(tmp_path / "short.npz", concepts=C, labels=Y[:30])
    wide = ConceptData((RNG.random((1000, 6)) < 0.5).astype(float), np.repeat(np.arange(100), 10))
    wide.to_parquet(tmp_path / "wide.parquet")
    torch.save(torch.nn.Linear(3, 2), tmp_path / "model.pt")
    out = ["--out", str(tmp_path / "run"), "--quiet"]

    def words(command, name, *more):
        label = [] if "." in name else ["--label", "y"]
        return ["concepts", command, str(tmp_path / (name if "." in name else f"{name}.csv")), *label, *more, *out]

    check_bad_input(
        [
            Bad(words("audit", "flat.npz"), 2, ["(6,)"]),
            Bad(words("audit", "empty"), 2, []),
            Bad(words("audit", "short.npz"), 2, ["(40, 6)", "(30,)"]),
            Bad(words("audit", "inf"), 2, ["row 3", "b"]),
            Bad(words("audit", "logits"), 2, ["logit", "b"]),
            Bad(words("audit", "soft", "--space", "prob"), 2, ["a", "binarise"]),
            Bad(words("audit", "twice"), 2, ["a"]),
            Bad(words("audit", "ids", "--id", "id"), 2, ["r18"]),
            Bad(words("poison", "good", "--target", "q"), 2, ["q", "x"]),
            Bad(words("poison", "good", "--target", "x", "--size", "0"), 2, ["0", "1 to 3"]),
            Bad(words("poison", "good", "--target", "x", "--size", "4"), 2, ["4", "1 to 3"]),
            Bad(words("poison", "good", "--target", "x", "--size", "2", "--rate", "0"), 2, ["0 < rate <= 1"]),
            Bad(words("poison", "good", "--target", "x", "--size", "2", "--rate", "1.1"), 2, ["0 < rate <= 1"]),
            Bad(
                words(
                    "poison", "wide.parquet", "--target", "3", "--size", "2", "--rate", ".1", "--poison-mode", "clean",
                    "--base", "table",
                ),
                2,
                ["base table", "100 rows", "n_t = 10"],
            ),
            Bad(words("audit", "good", "--model", str(tmp_path / "model.pt")), 2, ["safetensors"]),
            Bad(words("detect", "good", "--reference", str(tmp_path / "other.csv")), 2, ["missing c", "extra d"]),
        ]
    )  # fmt: skip


def test_tables_that_are_taken_with_a_word_about_them_by_command(tmp_path, capsys):
    """Rows of the room's table of bad input that end with 0: unknown cells, constant concepts, labels in words, a class of one row,
    few classes, no reference, a class that the reference lacks, a model that reads pictures where there are none.
    """
    cells = C[:, :5].copy()
    cells[:, 4] = 1
    parts = ["train"] * 28 + ["test"] * 12
    rows = [",".join(str(int(v)) for v in row) for row in cells]
    rows = [f"{row},kind {y},{part}" for row, y, part in zip(rows, Y % 3, parts, strict=True)]
    rows[2] = "," + rows[2].split(",", 1)[1]
    head = "a,b,c,d,always,kind,part"
    (tmp_path / "t.csv").write_text(lines([*rows, "1,1,0,0,1,rare,train", "1,0,0,0,1,rare,test"], head))
    (tmp_path / "trusted.csv").write_text(lines(rows, head))
    asked = ["--targets", "all", "--headline", "size=2,rate=0.2", "--groups", "2", "--epochs", "2", "--head", "mlp:8"]
    asked += [
        "--permutations",
        "19",
        "--retrains",
        "19",
        "--label",
        "kind",
        "--split",
        "part",
        "--json",
        "--quiet",
        "--engine",
        "serial",
    ]

    def said(*more):
        assert main(["concepts", "audit", str(tmp_path / "t.csv"), *asked, *more]) == 0
        summary = json.loads(capsys.readouterr().out)
        return summary, {(one["question"], one["subject"]): one for one in summary["findings"]}

    summary, found = said("--out", str(tmp_path / "alone"))
    assert summary["data"]["missing"] == 1
    assert summary["data"]["constant_concepts"] == ["always"]
    assert any("always" in text for text in summary["warnings"])
    assert any("have one row" in text for text in summary["warnings"])
    assert found["concepts.model-backdoored", "model"]["verdict"] == "cannot say"
    assert "5 or more" in found["concepts.model-backdoored", "model"]["because"]
    assert found["concepts.table-poisoned", "table"]["verdict"] == "cannot say"
    assert any(one["what"] == "reachability" for one in summary["passed_over"])
    classes = {row["class"] for row in summary["poisoning"]["classes"]}
    assert classes == {"kind 0", "kind 1", "kind 2", "rare"}
    selection = pl.read_parquet(tmp_path / "alone" / "tables" / "selection.parquet")
    assert "always" not in set(selection["concept"])
    sees = CBM(SmallBackbone(5), Head(5, 4, head="mlp:8"), input="prob", classes=sorted(classes))
    sees.save(tmp_path / "sees")
    beside = ["--reference", str(tmp_path / "trusted.csv"), "--model", str(tmp_path / "sees")]
    summary, found = said(*beside, "--out", str(tmp_path / "beside"))
    told = {row["what"]: row["reason"] for row in summary["passed_over"]}
    assert "no images" in told["reachability"]
    assert "the table has none" in told["accuracy of the given model"]
    lacking = found["concepts.table-poisoned", "rare"]
    assert lacking["verdict"] == "cannot say"
    assert "trusted row" in lacking["because"]
