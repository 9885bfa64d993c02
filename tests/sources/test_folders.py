"""Hugging Face folders, shards and their index, registered names, the hub, and paths that hold nothing."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from tests.sources.samples import tensors, write_safetensors, write_shards

from querist.errors import (
    BadOption,
    CorruptFile,
    MissingExtra,
    SourceNotFound,
    UnknownName,
    UnsafeFile,
    UnsupportedFormat,
)
from querist.sources.tensors import hub, open_source

KINDS = pytest.mark.parametrize("kind", ["safetensors", "bin"])
INDEX = {"safetensors": "model.safetensors.index.json", "bin": "pytorch_model.bin.index.json"}


@KINDS
def test_a_folder_of_shards(tmp_path, kind):
    write_shards(tmp_path / INDEX[kind], tensors(), kind)
    source = open_source(tmp_path)
    assert [ref.name for ref in source] == list(tensors())
    assert source.metadata["index"]["total_size"] > 0
    assert open_source(tmp_path / INDEX[kind]).refs == source.refs


@KINDS
def test_a_missing_shard_is_named_and_can_be_left_out(tmp_path, kind):
    write_shards(tmp_path / INDEX[kind], tensors(), kind)
    gone = json.loads((tmp_path / INDEX[kind]).read_text())["weight_map"]["conv.weight"]
    (tmp_path / gone).unlink()
    with pytest.raises(SourceNotFound) as caught:
        open_source(tmp_path)
    assert gone in str(caught.value)
    assert "--include" in str(caught.value)
    source = open_source(tmp_path, include="lstm.weight*,linear.weight", exclude="*_hh_*")
    assert {ref.name for ref in source} == {"lstm.weight_ih_l0", "linear.weight"}
    told = {row.what: row.reason for row in source.passed_over}
    assert told["conv.weight"] == f"its file {gone} is missing"
    with pytest.raises(SourceNotFound, match="conv"):
        open_source(tmp_path, include="conv.*")


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/../../b.safetensors", "..\\x"])
def test_an_index_that_points_outside_its_folder(tmp_path, name):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises(UnsafeFile, match="outside its folder"):
        open_source(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"w": 3}}', "[" * 100_000, "{"])
def test_an_index_that_is_none(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CorruptFile):
        open_source(tmp_path)


def test_an_index_that_promises_too_much(tmp_path):
    write_shards(tmp_path / INDEX["safetensors"], tensors(), "safetensors")
    content = json.loads((tmp_path / INDEX["safetensors"]).read_text())
    content["weight_map"]["extra"] = content["weight_map"]["conv.weight"]
    (tmp_path / INDEX["safetensors"]).write_text(json.dumps(content))
    with pytest.raises(CorruptFile, match="extra"):
        open_source(tmp_path)


def test_paths_that_hold_nothing(tmp_path):
    with pytest.raises(SourceNotFound, match="nothing at this path"):
        open_source(tmp_path / "absent.pt")
    with pytest.raises(SourceNotFound, match=r"no weights in this folder.*model\.safetensors"):
        open_source(tmp_path)
    (tmp_path / "README.md").write_text("x")
    with pytest.raises(SourceNotFound, match="no weights in this folder"):
        open_source(tmp_path)
    with pytest.raises(UnsupportedFormat, match="no known format"):
        open_source(tmp_path / "README.md")
    (tmp_path / "empty.pt").write_bytes(b"")
    with pytest.raises(CorruptFile, match="found 0 bytes"):
        open_source(tmp_path / "empty.pt")
    (tmp_path / "page.pt").write_text("<html>not found</html>")
    with pytest.raises(CorruptFile, match="page of a website"):
        open_source(tmp_path / "page.pt")
    write_safetensors(tmp_path / "none.safetensors", {})
    with pytest.raises(SourceNotFound, match="no weights"):
        open_source(tmp_path / "none.safetensors")


def test_one_file_of_any_name_or_several_without_a_clash(tmp_path):
    torch.save({"a": torch.zeros(2, 2)}, tmp_path / "one.pth")
    assert [ref.name for ref in open_source(tmp_path)] == ["a"]
    torch.save({"b": torch.zeros(2, 2)}, tmp_path / "two.pth")
    assert [ref.name for ref in open_source(tmp_path)] == ["a", "b"]
    torch.save({"a": torch.zeros(3, 3)}, tmp_path / "three.pth")
    with pytest.raises(BadOption, match=r"one\.pth, three\.pth, two\.pth"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("config", "name", "shape", "expected"),
    [
        (
            {"model_type": "gpt2", "n_head": 2, "n_embd": 8},
            "h.0.attn.c_attn.weight",
            (8, 24),
            {"layout": "in-out", "columns": (("q", 8), ("k", 8), ("v", 8)), "parts": None},
        ),
        ({"model_type": "gpt2", "n_head": 2, "n_embd": 8}, "h.0.mlp.c_fc.weight", (8, 32), {"layout": "in-out"}),
        (
            {"model_type": "phi3", "num_attention_heads": 4, "hidden_size": 16, "num_key_value_heads": 2},
            "layers.0.self_attn.qkv_proj.weight",
            (32, 16),
            {"parts": (("q", 16), ("k", 8), ("v", 8)), "layout": None},
        ),
        (
            {"model_type": "phi3", "num_attention_heads": 4, "hidden_size": 16},
            "layers.0.self_attn.qkv_proj.weight",
            (33, 16),
            {"parts": None},
        ),
        ({"model_type": "bert", "num_attention_heads": "x"}, "layer.0.query.weight", (8, 8), {"layout": None}),
    ],
)
def test_the_configuration_gives_hints(tmp_path, config, name, shape, expected):
    write_safetensors(tmp_path / "model.safetensors", {name: torch.zeros(shape)})
    (tmp_path / "config.json").write_text(json.dumps(config))
    source = open_source(tmp_path)
    assert source.metadata["config"] == config
    assert {key: source[name].hints.get(key) for key in expected} == expected


def test_adapters_keep_their_configuration(tmp_path):
    write_safetensors(tmp_path / "adapter_model.safetensors", {"x.lora_A.weight": torch.zeros(2, 8)})
    (tmp_path / "adapter_config.json").write_text('{"lora_alpha": 16, "r": 2}')
    assert open_source(tmp_path).metadata["adapter"]["lora_alpha"] == 16


def test_registered_names():
    source = open_source("resnet20-cifar10")
    assert source.address == "resnet20-cifar10"
    assert source["conv1.weight"].shape == (16, 3, 3, 3)
    with pytest.raises(UnknownName, match="resnet20-cifar10"):
        open_source("resnet20-cifar")


def test_addresses_that_hold_no_weights(tmp_path):
    with pytest.raises(UnsupportedFormat, match="data and no weights"):
        open_source("csv:a.csv")
    torch.save({"a": torch.zeros(2)}, tmp_path / "a.pt")
    with pytest.raises(BadOption, match="follows #"):
        open_source(f"{tmp_path}/a.pt#train")
    with pytest.raises(UnknownName, match="key"):
        open_source(f"{tmp_path}/a.pt?key=b")


class TestHub:
    def test_without_the_package(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        with pytest.raises(MissingExtra, match=r"querist\[hub\]"):
            open_source("hf:org/name")

    def test_no_name(self):
        with pytest.raises(BadOption, match="hf:ORG/NAME"):
            open_source("hf:a/b/c")

    def test_no_connection_is_one_message(self, monkeypatch):
        import huggingface_hub

        def fail(*args, **kwargs):
            raise OSError("no route to host\nand much more")

        monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
        with pytest.raises(SourceNotFound) as caught:
            open_source("hf:org/name")
        assert "no route to host" in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("kind", ["safetensors", "bin"])
    def test_safetensors_are_asked_for_first(self, monkeypatch, tmp_path, kind):
        import huggingface_hub

        asked = []

        def fetch(name, revision=None, allow_patterns=()):
            asked.append((name, revision, allow_patterns[0]))
            if allow_patterns[0] == f"*.{kind}":
                write_shards(tmp_path / INDEX[kind], tensors(), kind)
            return str(tmp_path)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
        source = open_source("hf:org/name?revision=v2")
        assert [ref.name for ref in source] == list(tensors())
        assert asked[0] == ("org/name", "v2", "*.safetensors")
        assert len(asked) == (1 if kind == "safetensors" else 2)

    def test_a_repository_that_is_not_there(self, monkeypatch):
        import huggingface_hub
        from huggingface_hub.errors import RepositoryNotFoundError

        class Gone(RepositoryNotFoundError):
            def __init__(self):
                Exception.__init__(self, "404")

        def fail(*args, **kwargs):
            raise Gone

        monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
        with pytest.raises(SourceNotFound, match="no such model"):
            hub.fetch_model("org/name")
