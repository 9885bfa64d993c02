"""Data sets by name: their parts, classes and files; pictures and texts that need no file."""

from __future__ import annotations

import ast
import json

import numpy as np
import pytest
import torch

from querist.cli import main
from querist.errors import BadOption, SourceNotFound, UnknownName
from querist.sources.data import open_data
from querist.sources.datasets import docstrings
from querist.sources.datasets.collections import COLLECTIONS
from querist.sources.datasets.pictures import clusters, tiny_images
from querist.sources.datasets.registry import DATA_SETS, locate, places
from querist.sources.images.transform import Transform


def here(name):
    return all(places(DATA_SETS[file]) for part in COLLECTIONS[name].parts.values() for file in part.files)


def test_every_file_of_a_collection_is_registered():
    for collection in COLLECTIONS.values():
        for part in collection.parts.values():
            assert all(file in DATA_SETS for file in part.files)
            assert bool(part.files) != bool(part.made)


@pytest.mark.parametrize(
    ("address", "count", "shape"),
    [
        ("fashion-mnist-small", 1000, (1, 28, 28)),
        ("fashion-mnist-small#train", 2000, (1, 28, 28)),
        ("fashion-mnist", 10_000, (1, 28, 28)),
        ("mnist", 10_000, (1, 28, 28)),
        ("cifar10-jpeg", 10_000, (3, 32, 32)),
        ("cifar10-jpeg#train", 5000, (3, 32, 32)),
        ("digits", 1797, (1, 8, 8)),
        ("tiny-images", 2000, (3, 16, 16)),
    ],
)
def test_pictures_by_name(address, count, shape):
    name, _, part = address.partition("#")
    if not here(name):
        pytest.skip("the data folder is not here")
    data = open_data(address)
    batch = data.read([0, count - 1])
    assert len(data) == count
    assert tuple(batch.inputs.shape) == (2, *shape)
    assert 0 <= float(batch.inputs.min()) < float(batch.inputs.max()) <= 1
    assert batch.labels.max() < len(data.classes)
    assert data.source == f"{name}#{part or next(iter(COLLECTIONS[name].parts))}"


def test_parts_and_files_that_are_not_there(monkeypatch, tmp_path):
    with pytest.raises(UnknownName, match="test, train"):
        open_data("fashion-mnist-small#validation")
    monkeypatch.delenv("QUERIST_DATA", raising=False)
    monkeypatch.setenv("QUERIST_CACHE", str(tmp_path))
    with pytest.raises(SourceNotFound, match="data fetch fashion-mnist-t10k-images"):
        open_data("fashion-mnist")
    with pytest.raises(UnknownName, match=r"several files.*fashion-mnist-t10k-images"):
        locate("fashion-mnist")


def test_the_list_names_collections_too(capsys):
    assert main(["data", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["fashion-mnist #test #train"]["bytes"] > 30_000_000
    assert rows["digits"]["place"] == "made"


def test_drawn_pictures_can_be_told_apart():
    from sklearn.linear_model import LogisticRegression

    x, y = tiny_images(800, size=16)
    assert np.array_equal(x, tiny_images(800, size=16)[0])
    grey = np.abs(x.mean(-1) - x.mean((1, 2, 3))[:, None, None]).reshape(800, -1)
    model = LogisticRegression(max_iter=500).fit(grey[:600] / 255, y[:600])
    assert model.score(grey[600:] / 255, y[600:]) > 0.6
    with pytest.raises(BadOption):
        tiny_images(4, size=4)


def test_drawn_clusters_are_what_they_say():
    rows, images = clusters(4000, 3, 2, correlation=0.6)
    assert np.array_equal(np.bincount(images), np.full(4000, 3))
    assert np.corrcoef(rows[0::3, 0], rows[1::3, 0])[0, 1] == pytest.approx(0.6, abs=0.05)
    with pytest.raises(BadOption):
        clusters(2, 2, 2, correlation=2)


def tokenize(texts):
    """Lengths of words, padded."""
    rows = [[len(word) for word in text.split()] for text in texts]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def test_docstrings_are_read_without_running_code(monkeypatch, tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a.py").write_text(
        '"""The first of all modules. And more."""\nraise SystemExit("code ran")\n'
        'class A:\n    """A class with words\n    on two lines."""\n    def m(self):\n        """Does one thing and no other."""\n'
        'def _hidden():\n    """A private function of no interest."""\n'
        'class _B:\n    def m(self):\n        """Inside a private class, hidden too."""\n'
        'def short():\n    """Too short."""\n'
    )
    (tmp_path / "pkg" / "bad.py").write_text("def (:")
    (tmp_path / "pkg" / "tests").mkdir()
    (tmp_path / "pkg" / "tests" / "t.py").write_text('"""Tests are left out of this."""')
    texts, labels = docstrings._sentences(str(tmp_path / "pkg"))
    assert texts == ["The first of all modules.", "A class with words on two lines.", "Does one thing and no other."]
    assert [docstrings.KINDS[label] for label in labels] == ["module", "class", "method"]


def test_docstrings_of_scikit_learn():
    data = open_data("docstrings-sklearn", tokenizer=tokenize)
    assert len(data) > 1000
    assert data.kind == "tokens"
    batch = data.read([0, 1, 2])
    assert batch.inputs["input_ids"].shape == batch.inputs["attention_mask"].shape
    assert batch.labels.max() < 4
    with pytest.raises(BadOption, match="need a tokenizer"):
        open_data("docstrings-sklearn")


def test_docstrings_find_the_standard_library():
    import sysconfig
    from pathlib import Path

    # Parsing all of it takes seconds: one folder stands for it.
    root = Path(sysconfig.get_paths()["stdlib"])
    texts, _ = docstrings._sentences(str(root / "json"))
    assert any("JSON" in text for text in texts)
    assert ast.get_docstring(ast.parse((root / "json" / "decoder.py").read_bytes())).split("\n")[0] is not None


def test_transforms_reach_collections():
    data = open_data("fashion-mnist-small", transform=Transform(size=32, channels=3, pad=True))
    assert tuple(data.read([0]).inputs.shape) == (1, 3, 32, 32)
    assert data.part((0, 10)).name == "fashion-mnist-small#0:10"
