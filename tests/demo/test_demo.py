"""The demo: one page that leads to every answer, replaced by the next demo and by nothing else."""

from __future__ import annotations

import pytest
from tests.harness import Bad, check_bad_input, check_page

from querist.cli import main
from querist.demo import questions


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(questions, "CHECKPOINTS", {"weights-resnet20": "resnet20-cifar10"})
    few = {"n": 60, "random_nets": 0, "projections": 40, "splits": 4, "permutations": 19, "layers": "logits"}
    monkeypatch.setattr(questions, "LOOKED_AT", {**questions.LOOKED_AT, **few})
    monkeypatch.setattr(questions, "HALVES", ("#0:3000", "#3000:6000"))
    monkeypatch.setattr(questions, "FITTED", {"model": "t-learner"})
    monkeypatch.setattr(questions, "JUDGED", {"bootstrap": 0, "convention": ("rate",)})


@pytest.mark.browser
def test_the_demo_leads_to_its_reports(small, tmp_path, chromium, capfd):
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out), "--quiet", "--engine", "serial"]) == 0
    said = capfd.readouterr()
    assert said.out.strip() == str(out / "report.html")
    assert "Training left its mark" in said.err
    for folder in ("weights-resnet20", "features-resnet20", "effects-check", "effects-fit", "effects-evaluate"):
        assert f"{folder}/report.html" in (out / "report.html").read_text("utf-8")
    assert "digits" in said.err
    assert "fit the design" in said.err
    assert "beside the best single arm (" in said.err
    for folder in ("concepts-mushroom", "concepts-digits"):
        assert f"{folder}/report.html" in (out / "report.html").read_text("utf-8")
    assert "The table is suspicious" in said.err
    assert "5 rows are flagged" in said.err
    check_page(out / "report.html", chromium)
    assert main(["demo", "--out", str(out), "--quiet", "--engine", "serial"]) == 0


def test_a_folder_of_something_else_is_left_alone(small, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    check_bad_input([Bad(["demo", "--out", str(tmp_path)], 2, [str(tmp_path)])])
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_what_is_not_installed_is_passed_over_and_told(small, monkeypatch, tmp_path, capfd):
    from querist.sources.datasets import registry
    from querist.sources.datasets.registry import DATA_SETS, DataSet, Packaged

    absent = DataSet("absent", "Not installed.", "none", 1, package=Packaged("no-such-package", "1", "x"))
    monkeypatch.setattr(registry, "DATA_SETS", {**DATA_SETS, "absent": absent})
    monkeypatch.setattr(questions, "CHECKPOINTS", {"weights-absent": "absent"})
    assert main(["demo", "--out", str(tmp_path / "demo"), "--quiet"]) == 0
    assert "Passed over" in capfd.readouterr().err
