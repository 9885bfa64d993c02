"""Texts from end to end: docstrings through a transformer with masks, and BERT encoders read from their folders."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tests.features.texts import CONFIG, TOKENS, hashed, tiny_text, write_bert
from tests.harness import Bad, check_bad_input

from querist.cli import main
from querist.errors import BadOption, CorruptFile, SourceNotFound, UnsafeFile, WeightsMismatch
from querist.features import capture, compare
from querist.features.bert import WordPiece
from querist.features.nets import bert_encoder, bert_tokenizer
from querist.sources.data import open_data
from querist.sources.datasets.registry import locate

SETS = ["--source", "docstrings-stdlib", "--target", "docstrings-sklearn"]
QUICK = [
    "--n",
    "60",
    "--projections",
    "40",
    "--splits",
    "6",
    "--permutations",
    "39",
    "--engine",
    "serial",
    "--quiet",
    "--json",
]


def test_docstrings_through_a_transformer_by_the_command(capfd, tmp_path):
    argv = ["features", "compare", "tests.features.texts:tiny_text", *SETS, *QUICK, "--random-nets", "2"]
    argv += ["--tokenizer", "tests.features.texts:hashed?longest=12", "--out", str(tmp_path / "run")]
    assert main(argv) == 0
    summary = json.loads(capfd.readouterr().out)
    layers = [row["layer"] for row in summary["layers"]]
    assert layers[-1] == "logits"
    assert "<input>" not in layers
    assert all(row["probe_accuracy"] is not None for row in summary["layers"])
    assert summary["targets"] == [{"name": "docstrings-sklearn", "n": 60}]
    health = next(f for f in summary["findings"] if f["question"] == "features.capture-health")
    assert health["verdict"] == "yes", health["because"]
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "60 examples" in page
    assert "60 images" not in page


@pytest.mark.parametrize("reduce", ["mean", "cls", "last", "sites:3"])
def test_padding_changes_nothing(reduce):
    """Rows are those of the tokens that the mask keeps, whatever else is in the batch."""
    data = open_data("docstrings-stdlib", tokenizer=hashed(10))
    one, many = (
        capture(tiny_text(), data, layers="preactivation", reduce=reduce, n=24, batch_size=size) for size in (1, 24)
    )
    assert one.names == many.names
    for layer in one.names:
        np.testing.assert_allclose(one[layer].rows, many[layer].rows, rtol=1e-4, atol=1e-5)
        assert np.array_equal(one[layer].images, many[layer].images)


def test_a_tokenizer_is_needed_and_named(tmp_path):
    argv = [
        "features",
        "compare",
        "tests.features.texts:tiny_text",
        *SETS,
        "--n",
        "60",
        "--quiet",
        "--out",
        str(tmp_path / "run"),
    ]
    check_bad_input(
        [
            Bad(argv, 2, ["--tokenizer", "package.module:factory"]),
            Bad([*argv, "--tokenizer", "tests.features.texts:hashes"], 2, ["hashes", "hashed"]),
            Bad([*argv, "--tokenizer", "words.txt"], 2, ["words.txt", "package.module:factory"]),
        ]
    )


# ---------------------------------------------------------------------------------------------------------- BERT folders


def test_a_bert_folder_by_the_command(capfd, tmp_path):
    folder = write_bert(tmp_path / "bert")
    argv = [
        "features",
        "compare",
        f"querist.features.nets:bert_encoder?path={folder}",
        *SETS,
        *QUICK,
        "--layers",
        "blocks",
    ]
    argv += [
        "--tokenizer",
        f"querist.features.nets:bert_tokenizer?path={folder}&max_length=24",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(argv) == 0
    summary = json.loads(capfd.readouterr().out)
    names = [row["layer"] for row in summary["layers"]]
    assert [name for name in names if name.startswith("encoder.layer.")] == [f"encoder.layer.{i}" for i in range(3)]
    assert "logits" not in names
    assert any("logits holds the same values as encoder.layer.2" in text for text in summary["warnings"])
    health = next(f for f in summary["findings"] if f["question"] == "features.capture-health")
    assert health["verdict"] == "yes"


def test_the_encoder_is_that_of_torch(tmp_path):
    """The same weights in torch's own encoder layers give the same values."""
    net = bert_encoder(str(write_bert(tmp_path / "bert")))
    ids, mask = torch.randint(4, len(TOKENS), (3, 7)), torch.ones(3, 7, dtype=torch.int64)
    mask[1, 4:] = 0
    x = net.embeddings(ids, torch.zeros_like(ids))
    for layer in net.encoder.layer:
        theirs = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", 1e-12, batch_first=True).eval()
        own = layer.attention.get_submodule("self")
        parts = (own.query, own.key, own.value)
        state = {
            "self_attn.in_proj_weight": torch.cat([part.weight for part in parts]),
            "self_attn.in_proj_bias": torch.cat([part.bias for part in parts]),
        }
        for name, part in (
            ("self_attn.out_proj", layer.attention.output.dense),
            ("norm1", layer.attention.output.LayerNorm),
            ("linear1", layer.intermediate.dense),
            ("linear2", layer.output.dense),
            ("norm2", layer.output.LayerNorm),
        ):
            state |= {f"{name}.weight": part.weight, f"{name}.bias": part.bias}
        theirs.load_state_dict(state)
        x = theirs(x, src_key_padding_mask=mask == 0)
    with torch.no_grad():
        found = net(ids, mask)
    torch.testing.assert_close(found[mask.bool()], x[mask.bool()].detach(), rtol=1e-4, atol=1e-5)


def test_words_and_pieces():
    piece = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "cafe", "!", "漢", "字", "a"])
    assert list(piece.words("Un\taffable\x00, Café! 漢字\u200b")) == ["un", "affable", ",", "cafe", "!", "漢", "字"]
    assert piece.pieces("unaffable") == ["un", "##aff", "##able"]
    assert piece.pieces("unaffably") == ["[UNK]"]
    assert piece.pieces("a" * 101) == ["[UNK]"]
    made = piece(["unaffable café!", "a"])
    assert made["input_ids"].tolist() == [[2, 4, 5, 6, 7, 8, 3], [2, 11, 3, 0, 0, 0, 0]]
    assert made["attention_mask"].tolist() == [[1] * 7, [1, 1, 1, 0, 0, 0, 0]]
    short = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"], longest=4)
    assert short.encode("a a a a a") == [2, 4, 4, 3]
    cased = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "A", "É"], lower=False)
    assert cased.encode("A É a") == [2, 4, 5, 1, 3]


def test_folders_that_are_no_encoder(tmp_path):
    good = write_bert(tmp_path / "good")

    def folder(name, **changed):
        return str(write_bert(tmp_path / name, **changed))

    def without(name, file):
        made = write_bert(tmp_path / name)
        (made / file).unlink()
        return str(made)

    broken = write_bert(tmp_path / "broken")
    (broken / "model.safetensors").write_bytes(b"nothing")
    (write_bert(tmp_path / "torn") / "config.json").write_text("{")
    check_bad_input(
        [
            Bad(lambda: bert_encoder(folder("roberta", model_type="roberta")), BadOption, ["roberta", "text_encoder"]),
            Bad(lambda: bert_encoder(folder("relu", hidden_act="relu")), BadOption, ["relu", "gelu"]),
            Bad(lambda: bert_encoder(folder("heads", num_attention_heads=3)), BadOption, ["3 heads"]),
            Bad(lambda: bert_encoder(folder("short", hidden_size=None)), CorruptFile, ["hidden_size"]),
            Bad(lambda: bert_encoder(folder("deep", num_hidden_layers=4)), WeightsMismatch, ["encoder.layer.3"]),
            Bad(lambda: bert_encoder(folder("wide", intermediate_size=12)), WeightsMismatch, ["intermediate"]),
            Bad(lambda: bert_encoder(without("bare", "model.safetensors")), UnsafeFile, ["safetensors"]),
            Bad(lambda: bert_encoder(without("dumb", "config.json")), SourceNotFound, ["config.json"]),
            Bad(lambda: bert_encoder(str(broken)), CorruptFile, ["model.safetensors"]),
            Bad(lambda: bert_encoder(str(tmp_path / "torn")), CorruptFile, ["JSON"]),
            Bad(lambda: bert_tokenizer(without("mute", "vocab.txt")), SourceNotFound, ["vocab.txt"]),
            Bad(lambda: bert_tokenizer(str(good), max_length=2), BadOption, ["2", "3 or more"]),
            Bad(lambda: bert_encoder(str(tmp_path / "none")), SourceNotFound, ["none"]),
            Bad(lambda: bert_encoder(str(good))(torch.ones(1, 65, dtype=torch.int64)), BadOption, ["65", "64"]),
        ]
    )
    assert CONFIG["vocab_size"] == len(TOKENS)


@pytest.mark.real_models
def test_minilm_knows_what_texts_are_about():
    try:
        locate("minilm-l6")
    except SourceNotFound:
        pytest.skip("minilm-l6 is not here")
    net, tokens = bert_encoder("minilm-l6"), bert_tokenizer("minilm-l6")
    made = tokens(["A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby."])
    assert made["input_ids"][0].tolist()[:8] == [101, 1037, 2158, 2003, 5983, 2833, 1012, 102]
    with torch.no_grad():
        x = net(**made)
    mask = made["attention_mask"].unsqueeze(2)
    pooled = torch.nn.functional.normalize((x * mask).sum(1) / mask.sum(1), dim=1)
    near, far = float(pooled[0] @ pooled[1]), float(pooled[0] @ pooled[2])
    # The similarities that the model's public examples print.
    assert near == pytest.approx(0.755, abs=0.02)
    assert far < 0.2


@pytest.mark.real_models
def test_the_minilm_profile_of_docstrings():
    try:
        locate("minilm-l6")
    except SourceNotFound:
        pytest.skip("minilm-l6 is not here")
    found = compare(
        "querist.features.nets:bert_encoder?path=minilm-l6",
        source="docstrings-stdlib",
        target="docstrings-sklearn",
        tokenizer="querist.features.nets:bert_tokenizer?path=minilm-l6",
        layers="blocks",
        n=120,
        projections=60,
        splits=6,
        permutations=39,
    )
    names = [f"encoder.layer.{i}" for i in range(6)]
    assert found.table.filter(found.table["layer"].is_in(names))["width"].to_list() == [384] * 6
    assert found.table["p_adj"].max() == pytest.approx(1 / 40)
