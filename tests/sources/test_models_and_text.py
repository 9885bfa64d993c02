"""MODEL addresses and texts: what is built, what is read, and how mistakes are told."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
import torch
from tests.sources.test_collections import tokenize
from torch import nn

from querist.errors import (
    BadOption,
    BadValues,
    CorruptFile,
    MissingExtra,
    ShapeMismatch,
    SourceNotFound,
    TooFewRows,
    UnknownName,
    UnsafeFile,
    UnsupportedFormat,
    WeightsMismatch,
)
from querist.features.nets import cifar_resnet, text_encoder, text_tokenizer
from querist.sources.data import open_data
from querist.sources.models import build_module, open_model

NETS = "querist.features.nets:cifar_resnet"


def test_weights_of_every_format_fit_with_their_prefix_and_key(tmp_path):
    from querist.sources.tensors import open_source, write_safetensors

    torch.manual_seed(0)
    net = cifar_resnet(depth=8)
    state = {name: value for name, value in net.state_dict().items() if not name.endswith("num_batches_tracked")}
    torch.save(
        {"state_dict": {f"module.{name}": value for name, value in state.items()}, "epoch": 3}, tmp_path / "a.th"
    )
    torch.save(net.state_dict(), tmp_path / "b.pt")
    write_safetensors(tmp_path / "c.safetensors", open_source(net.state_dict()))
    for name in ("a.th", "b.pt", "c.safetensors"):
        built = build_module(f"{NETS}?depth=8@{tmp_path}/{name}")
        assert all(torch.equal(value, built.state_dict()[key]) for key, value in state.items())


def test_weights_that_do_not_fit_name_the_first_five(tmp_path):
    state = cifar_resnet(depth=8).state_dict()
    del state["conv1.weight"]
    state["extra.weight"] = torch.zeros(2)
    state["linear.bias"] = torch.zeros(7)
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(WeightsMismatch) as error:
        open_model(f"{NETS}?depth=8@{tmp_path}/w.pt")
    text = str(error.value)
    assert "1 missing: conv1.weight" in text
    assert "1 unexpected: extra.weight" in text
    assert "linear.bias is [7] and should be [10]" in text
    assert isinstance(error.value, ShapeMismatch)
    with pytest.raises(WeightsMismatch, match=r"\d+ missing: .*(, .*){4};|\d+ unexpected"):
        open_model(f"{NETS}?depth=14@resnet20-cifar10")


def test_models_that_are_none(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "whole.pt")
    torch.save(cifar_resnet(8).state_dict(), tmp_path / "state.th")
    with pytest.raises(UnsupportedFormat, match=r"package\.module:factory@"):
        open_model(tmp_path / "state.th")
    with pytest.raises(UnsupportedFormat, match="Weights alone"):
        open_model("resnet20-cifar10")
    with pytest.raises(UnsafeFile):
        open_model(f"{NETS}?depth=8@{tmp_path}/whole.pt")
    with pytest.raises(UnsupportedFormat, match="names no network"):
        open_model("csv:a.csv")
    with pytest.raises(SourceNotFound, match="cannot be imported"):
        open_model("no_such_package.nets:make")
    with pytest.raises(UnknownName, match="cifar_resnet"):
        open_model("querist.features.nets:cifar_resnt")
    with pytest.raises(BadOption, match="depth"):
        open_model(f"{NETS}?dept=20")
    with pytest.raises(BadOption, match="6n"):
        open_model(f"{NETS}?depth=21")
    with pytest.raises(BadOption, match="no network"):
        open_model(3)
    for name in ("a.pt2", "a.ts", "a.onnx"):
        with pytest.raises(SourceNotFound):
            open_model(tmp_path / name)
        (tmp_path / name).write_bytes(b"PK\x03\x04 not really")
        with pytest.raises((CorruptFile, UnsupportedFormat)):
            open_model(tmp_path / name)
    network = open_model(open_model(nn.Linear(2, 2)))
    assert network.name == "Linear"


def test_text_encoders_need_their_extra(tmp_path):
    if __import__("importlib.util").util.find_spec("transformers") is None:
        for function in (text_encoder, text_tokenizer):
            with pytest.raises(MissingExtra, match=r"querist\[transformers\]"):
                function(str(tmp_path))


class Words:
    """Stands for transformers: remembers what it is asked."""

    class AutoModel:
        @staticmethod
        def from_pretrained(path, **options):
            if "broken" in path:
                raise ValueError("unknown architecture\nmore")
            assert options == {"local_files_only": True, "use_safetensors": True}
            return nn.Embedding(3, 3)

    class AutoTokenizer:
        @staticmethod
        def from_pretrained(path, local_files_only):
            assert local_files_only
            return lambda texts, **options: {"input_ids": torch.full((len(texts), options["max_length"]), 1)}


def test_text_encoders_are_opened_offline_and_from_safetensors_only(monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "transformers", Words)
    with pytest.raises(UnsafeFile, match="no safetensors"):
        text_encoder(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert not text_encoder(str(tmp_path)).training
    assert text_tokenizer(str(tmp_path), max_length=7)(["a", "b"])["input_ids"].shape == (2, 7)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"")
    with pytest.raises(BadOption, match=r"unknown architecture\)"):
        text_encoder(str(tmp_path / "broken"))
    with pytest.raises(SourceNotFound):
        text_encoder(str(tmp_path / "none"))
    with pytest.raises(BadOption):
        text_tokenizer(str(tmp_path), max_length=0)


def test_texts_of_every_form(tmp_path):
    texts, labels = ["one two three", "four", "five six"], ["b", "a", "b"]
    (tmp_path / "t.txt").write_text("\n".join([*texts[:2], "", texts[2]]), encoding="utf-8")
    rows = [{"text": text, "kind": label} for text, label in zip(texts, labels, strict=True)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    frame = pl.DataFrame({"text": texts, "kind": labels, "n": [1, 2, 3]})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    plain = open_data(f"{tmp_path}/t.txt", tokenizer=tokenize).read([0, 2])
    assert plain.inputs["input_ids"].tolist() == [[3, 3, 5], [4, 3, 0]]
    for name in ("t.jsonl", "t.csv", "t.parquet"):
        data = open_data(f"text:{tmp_path}/{name}?column=text&y=kind", tokenizer=tokenize)
        batch = data.read([0, 2])
        assert torch.equal(batch.inputs["input_ids"], plain.inputs["input_ids"])
        assert (batch.labels.tolist(), data.classes) == ([1, 1], ("a", "b"))
        with pytest.raises(UnknownName, match="text"):
            open_data(f"text:{tmp_path}/{name}?column=texts", tokenizer=tokenize)
    with pytest.raises(BadValues, match="no texts"):
        open_data(f"text:{tmp_path}/t.csv?column=n", tokenizer=tokenize)
    pl.DataFrame({"text": ["a", None]}).write_parquet(tmp_path / "m.parquet")
    with pytest.raises(BadValues, match="missing texts"):
        open_data(f"text:{tmp_path}/m.parquet", tokenizer=tokenize)
    (tmp_path / "bad.jsonl").write_text("{}\n{")
    with pytest.raises(UnknownName, match="Line 1"):
        open_data(f"text:{tmp_path}/bad.jsonl", tokenizer=tokenize)
    (tmp_path / "bytes.txt").write_bytes(b"abc\xff")
    with pytest.raises(CorruptFile, match="byte 3"):
        open_data(f"{tmp_path}/bytes.txt", tokenizer=tokenize)
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(TooFewRows):
        open_data(f"{tmp_path}/empty.txt", tokenizer=tokenize)
    with pytest.raises(BadOption, match="no columns"):
        open_data(f"text:{tmp_path}/t.txt?column=a", tokenizer=tokenize)


def test_tokenizers(tmp_path):
    (tmp_path / "t.txt").write_text("a b\nc")
    for wrong, words in (
        (None, "need a tokenizer"),
        (3, "need a tokenizer"),
        ("t.txt", "names no tokenizer"),
        (lambda texts: [1], "no dict"),
        (lambda texts: {"input_ids": torch.zeros(7, 2)}, "no row for each text"),
        (lambda texts: {}, "returned nothing"),
    ):
        with pytest.raises(BadOption, match=words):
            open_data(f"{tmp_path}/t.txt", tokenizer=wrong).read([0])


def test_factories_of_data_and_tokenizers(tmp_path, monkeypatch):
    (tmp_path / "mine_for_tests.py").write_text(
        "import numpy as np\n"
        "def rows(n=4):\n    return np.arange(float(3 * n)).reshape(n, 3), np.arange(n)\n"
        "def tokens():\n    return lambda texts: {'input_ids': np.ones((len(texts), 2), int)}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    data = open_data("mine_for_tests:rows?n=5")
    assert (len(data), data.name, data.read([4]).labels.tolist()) == (5, "mine_for_tests:rows?n=5", [4])
    (tmp_path / "t.txt").write_text("a\nb")
    assert open_data("t.txt", tokenizer="mine_for_tests:tokens").read([0, 1]).inputs["input_ids"].shape == (2, 2)
    with pytest.raises(BadOption, match="Weights mean nothing"):
        open_data("mine_for_tests:rows@a.pt")
    assert np.array_equal(data.read([0]).inputs.numpy(), [[0, 1, 2]])
