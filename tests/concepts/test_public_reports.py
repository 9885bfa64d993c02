"""What people reported of public tools, as tests: those that live nowhere else, and where each of the others is held."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from tests.concepts.rooms import animals

from querist.concepts import CBM, ConceptData, poisoned_copy, repair
from querist.concepts.attacks import concept_quality
from querist.concepts.configs import headline_of
from querist.concepts.figures.attack import draw_exposure
from querist.concepts.studies.audit_measure import model_row
from querist.concepts.studies.repair_measure import METHODS
from querist.concepts.studies.table_verdicts import informative_finding
from querist.concepts.tables import EXPOSURE, EXPOSURE_SUMMARY, MODELS

REPORTS = {
    "Trusted-AI/adversarial-robustness-toolbox": (1188, 593, 2084, 2800),
    "SCLBD/BackdoorBench": (36, 35, 11),
    "VinAIResearch/input-aware-backdoor-attack-release": (10,),
    "VinAIResearch/Warping-based_Backdoor_Attack-release": (10,),
    "ain-soph/trojanzoo": (162, 164),
    "THUYimingLi/BackdoorBox": (86, 60, 113),
    "bolunwang/backdoor": (1,),
    "Megum1/LOTUS": (1,),
    "mateoespinosa/cem": (5,),
    "shenjiyuan123/Adaptive_Recovery": (1,),
    "twosixlabs/armory-library": (137,),
    "leileigan/clean_label_textual_backdoor_attack": (1,),
}
RELEASE = "xll0328/CAT_CBM-Backdoor"
DEFECTS = (
    "wrote its last tried value into rows of the target",
    "K + 1 stood where the number of negatives belongs",
    "editing one image of a class edited its class",
    "kept the epoch that was best on the test rows",
    "loads whole pickled modules",
    "wrote one value for all concepts of a CAT+ trigger",
    'makes "on" −2',
)


@cache
def told() -> list[str]:
    """The docstrings of the tests of this room."""
    nodes = (
        node
        for path in sorted(Path(__file__).parent.glob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )
    tests = (node for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))
    return [" ".join((ast.get_docstring(node) or "").split()) for node in tests]


@pytest.mark.parametrize(("project", "number"), [(name, one) for name, many in REPORTS.items() for one in many])
def test_every_report_is_held_by_a_test_that_names_it(project, number):
    short = f"#{number}"
    assert any(project in text and short in text.replace(f"{short}0", "") for text in told()), f"{project}{short}"


@pytest.mark.parametrize("defect", DEFECTS)
def test_every_defect_of_the_release_is_held_by_a_test_that_names_it(defect):
    assert any(RELEASE in text and defect in text for text in told())


def test_accuracy_success_and_both_false_rates_stand_in_one_figure():
    """Trusted-AI/adversarial-robustness-toolbox#2800."""
    numbers = {
        "accuracy": 0.9,
        "asr": 0.8,
        "untriggered": 0.1,
        "clean_model_asr": 0.05,
        "accuracy_drop": 0.01,
        "excess": 0.7,
    }
    row = {"selector": "cat+", "size": 5, "rate": 0.01, "mode": "mix", "repeat": 0} | numbers
    low = {name: value / 2 for name, value in numbers.items()}
    own = EXPOSURE.frame([row | {"target": "a"}, row | {"target": "b"} | low])
    drawn = {figure.name: figure for figure in draw_exposure(own, EXPOSURE_SUMMARY.frame([]), headline_of(""))}
    bars = {trace["name"]: trace["y"][0] for trace in drawn["four_bars"].data if trace["type"] == "bar"}
    expected = {
        "accuracy without trigger": "accuracy",
        "success with trigger": "asr",
        "same rows without trigger": "untriggered",
        "clean model with trigger": "clean_model_asr",
    }
    assert set(bars) == set(expected)
    for name, column in expected.items():
        assert bars[name] == pytest.approx(own[column].mean(), rel=1e-5)


def test_a_model_that_always_says_on_is_not_informative():
    """mateoespinosa/cem#5: one column that is on in 95 % of rows, and a g that says on of every picture."""

    class On(torch.nn.Module):
        def forward(self, x):
            return torch.full((len(x), 1), 3.0)

    values = np.ones((200, 1))
    values[:10] = 0
    data = ConceptData(values, np.arange(200) % 2, images=np.zeros((200, 3, 4, 4), np.uint8))
    row = model_row(CBM(On(), torch.nn.Linear(1, 2), input="logit"), data, 0)
    assert row["concept_accuracy"] == pytest.approx(0.95)
    assert row["concept_majority_accuracy"] == pytest.approx(0.95)
    assert row["concept_balanced_accuracy"] == pytest.approx(0.5)
    assert concept_quality(np.ones((200, 1)), data, cut=0.5).balanced[0] == 0.5
    (finding,) = informative_finding(MODELS.frame([row | {"model": "given"}]))
    assert finding.question == "concepts.concepts-informative"
    assert finding.verdict == "cannot say", "one concept has no interval over concepts"
    many = ConceptData(np.tile(values, 8), data.codes, images=data.images)
    wide = model_row(CBM(Wide(On(), 8), torch.nn.Linear(8, 2), input="logit"), many, 0)
    (finding,) = informative_finding(MODELS.frame([wide | {"model": "given"}]))
    assert finding.verdict == "no"


class Wide(torch.nn.Module):
    """One concept, so many times."""

    def __init__(self, one, times):
        super().__init__()
        self.one, self.times = one, times

    def forward(self, x):
        return self.one(x).repeat(1, self.times)


def test_all_nine_repairs_have_their_numbers_before_and_after(tmp_path):
    """THUYimingLi/BackdoorBox#86, by the verb: every name that `concepts repair` takes."""
    poisoned_copy(animals(480), target="kind 2", size=4, rate=0.1, out=tmp_path / "copy", progress=False)
    truth = pl.read_parquet(tmp_path / "copy" / "truth.parquet")
    truth.select("row", pl.col("poisoned").alias("flag")).write_parquet(tmp_path / "rows.parquet")
    result = repair(
        str(tmp_path / "copy" / "poisoned.parquet"),
        method="best",
        truth=str(tmp_path / "copy" / "truth.parquet"),
        flags=str(tmp_path / "rows.parquet"),
        epochs=20,
        head="mlp:16",
    )
    assert len(METHODS) == 9
    rows = {(row["method"], row["stage"]): row for row in result.repair.to_dicts()}
    for method in METHODS:
        for stage in ("before", "after"):
            for number in ("accuracy", "asr", "untriggered", "excess", "low", "high", "accuracy_validation"):
                assert rows[method, stage][number] is not None, (method, stage, number)
    assert len({rows[method, "before"]["asr"] for method in METHODS}) == 1
    assert rows["drop-rows", "before"]["asr"] > 0.5
    assert rows["drop-rows", "after"]["asr"] < 0.2
