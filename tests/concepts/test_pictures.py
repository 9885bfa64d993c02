"""Tables with pictures, end to end: drawn birds, folders, a model that never looks."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image
from tests.harness import Bad, check_bad_input

from querist.concepts import CBM, ConceptData, audit
from querist.concepts.readers import open_concepts
from querist.concepts.studies import pixels
from querist.concepts.studies.audit_measure import model_row
from querist.concepts.studies.table_verdicts import informative_finding
from querist.concepts.tables import MODELS
from querist.errors import CorruptFile, ShapeMismatch, SourceNotFound, UnknownName


def test_birds_are_audited_from_picture_to_class(monkeypatch):
    monkeypatch.setattr(pixels, "IMAGES", {"fast": 8, "full": 8})
    monkeypatch.setattr(pixels, "EPS", (8 / 255, 32 / 255))
    result = audit("render:birds?n=360", targets="2", headline="size=3,rate=0.1", permutations=99)
    reach = result.reachability
    assert reach["eps"].to_list() == pytest.approx([8 / 255, 32 / 255])
    assert reach["physical_asr"].null_count() == 0
    assert {"reachability", "pictures"} <= set(result.figures)
    assert set(result.pictures["kind"]) == {"as it is", "drawn anew", "within 8/255"}
    assert set(result.pictures["size"]) == {3}
    shown = result.figures["pictures"].layout
    assert set(shown["xaxis"]["ticktext"]) <= set(result.pictures["label"])
    assert all(note["text"].endswith(" of 3)") for note in shown["annotations"])
    said = result.summary["protocol"][-1]
    assert "space logit, strength quantile" in said
    assert "2 targets, 1 repeat, seed 0" in said
    model = result.summary["model"]
    assert model["kind"] == "cbm, joint"
    assert model["concept_accuracy"] > model["concept_majority_accuracy"]
    questions = {finding.question for finding in result.findings}
    assert {"concepts.reachable", "concepts.concepts-informative"} <= questions
    assert set(result.summary["reachability"]) == {"eps", "hit", "asr", "null_hit", "collateral"}


class Blind(torch.nn.Module):
    """Says the same concepts of every picture: the last one is on."""

    def __init__(self, k):
        super().__init__()
        self.said = torch.nn.Parameter(torch.cat([-torch.ones(k - 1), torch.ones(1)]))

    def forward(self, x):
        return self.said.expand(len(x), -1)


def test_a_model_that_never_looks_has_the_majoritys_accuracy_and_no_information():
    rng = np.random.default_rng(0)
    concepts = np.column_stack([rng.random((200, 3)) < 0.05, rng.random(200) < 0.95]).astype(float)
    data = ConceptData(concepts, np.arange(200) % 4, images=np.zeros((200, 3, 4, 4), np.uint8))
    row = model_row(CBM(Blind(4), torch.nn.Linear(4, 4)), data, 0) | {"model": "given"}
    assert row["concept_accuracy"] == pytest.approx(row["concept_majority_accuracy"])
    assert row["concept_accuracy"] > 0.9
    assert row["concept_balanced_accuracy"] == pytest.approx(0.5)
    (finding,) = informative_finding(MODELS.frame([row]))
    assert finding.verdict == "no"


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(1)
    for i in range(6):
        Image.fromarray(rng.integers(0, 255, (8, 10, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    rows = {"image": [f"{i}.png" for i in range(6)], "a": [0, 1] * 3, "b": [1, 1, 0] * 2, "kind": ["x", "y"] * 3}
    pl.DataFrame(rows).write_csv(tmp_path / "concepts.csv")
    return tmp_path


def test_a_folder_of_pictures_and_a_table(folder):
    data = open_concepts(str(folder), label="kind")
    assert data.images.shape == (6, 3, 8, 10)
    assert data.concept_names == ("a", "b")
    with Image.open(folder / "3.png") as image:
        assert (data.images[3].transpose(1, 2, 0) == np.asarray(image)).all()
    assert open_concepts(f"folder:{folder}?label=kind").labels.tolist() == ["x", "y"] * 3


def test_folders_that_cannot_be_read(folder, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    small, gone, broken, unnamed = (tmp_path_factory.mktemp(name) for name in ("small", "gone", "broken", "unnamed"))
    frame = pl.read_csv(folder / "concepts.csv")
    for place in (small, gone, broken):
        frame.write_csv(place / "concepts.csv")
        for i in range(6):
            (place / f"{i}.png").write_bytes((folder / f"{i}.png").read_bytes())
    Image.new("RGB", (4, 4)).save(small / "2.png")
    (gone / "4.png").unlink()
    (broken / "1.png").write_text("no picture")
    frame.drop("image").write_csv(unnamed / "concepts.csv")
    check_bad_input(
        [
            Bad(lambda: open_concepts(str(empty), label="kind"), SourceNotFound, ["one table"]),
            Bad(lambda: open_concepts(str(small), label="kind"), ShapeMismatch, ["2.png", "(4, 4)"]),
            Bad(lambda: open_concepts(str(gone), label="kind"), SourceNotFound, ["4.png"]),
            Bad(lambda: open_concepts(str(broken), label="kind"), CorruptFile, ["1.png"]),
            Bad(lambda: open_concepts(str(unnamed), label="kind"), UnknownName, ["image"]),
        ]
    )
