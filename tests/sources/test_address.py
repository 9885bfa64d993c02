"""The one parser of addresses: every part of the grammar, round trips, and what it says of mistakes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querist.errors import BadOption, QueristError, UnknownName
from querist.sources.address import SCHEMES, Address, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("npz:a/b.bin?images=x&labels=y", Address("file", "a/b.bin", "npz", (("images", "x"), ("labels", "y")))),
        ("csv:people.csv#train", Address("file", "people.csv", "csv", split="train")),
        ("people.csv#10:20", Address("file", "people.csv", rows=(10, 20))),
        ("people.csv#:20", Address("file", "people.csv", rows=(None, 20))),
        ("people.csv#10:", Address("file", "people.csv", rows=(10, None))),
        ("hf:org/name?revision=v1#test", Address("hub", "org/name", "hf", (("revision", "v1"),), "test")),
        ("fashion-mnist-train-images#0:5", Address("name", "fashion-mnist-train-images", rows=(0, 5))),
        ("render:birds?n=12", Address("file", "birds", "render", (("n", "12"),))),
        ("pkg.nets:resnet", Address("python", "pkg.nets", factory="resnet")),
        ("nets:Net", Address("python", "nets", factory="Net")),
        (
            "pkg.nets:Family.small?depth=20&act=%22relu%22@weights/a.pt",
            Address(
                "python",
                "pkg.nets",
                options=(("depth", "20"), ("act", '"relu"')),
                factory="Family.small",
                weights="weights/a.pt",
            ),
        ),
        ("./resnet", Address("file", "resnet")),
        ("model.onnx", Address("file", "model.onnx")),
        ("a/b", Address("file", "a/b")),
        ("odd%3Fname%23.csv", Address("file", "odd?name#.csv")),
    ],
)
def test_parsed_and_spelled_again(text, expected):
    assert parse(text) == expected
    assert parse(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("a.npz", "npz"),
        ("x-images-idx3-ubyte.gz", "idx"),
        ("a.csv.gz", "csv"),
        ("a.PARQUET", "parquet"),
        ("m.pt2", "torch.export"),
        ("m.ts", "torchscript"),
        ("m.onnx", "onnx"),
        ("csv:a.npz", "csv"),
        ("weights.bin", None),
    ],
)
def test_scheme_before_ending(text, format):
    assert parse(text).format == format


def test_what_exists_is_a_path_letter_for_letter(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("csv:odd?a=b#c", "barename", "pkg:factory"):
        (tmp_path / name).write_text("x")
        address = parse(name)
        assert (address.kind, address.path) == ("file", name)
        assert address.local().read_text() == "x"
        assert parse(str(address)) == address
    (tmp_path / "pictures").mkdir()
    assert parse("pictures").format == "folder"


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("", BadOption, "SCHEME"),
        ("csv:", BadOption, "without a path"),
        ("a.csv?x", BadOption, "key=value"),
        ("a.csv?x=1&x=2", BadOption, "twice"),
        ("a.csv#5:5", BadOption, "a below b"),
        ("a.csv#1:2:3", BadOption, "#split or #a:b"),
        ("parqet:table", UnknownName, "parquet"),
        ("zip:some/where.zip", UnknownName, "npz"),
        ("a\0b", BadOption, "SCHEME"),
    ],
)
def test_mistakes_are_named(text, error, words):
    with pytest.raises(error, match=words):
        parse(text)


def test_options_that_mean_nothing_are_refused():
    with pytest.raises(UnknownName, match="labels"):
        parse("a.npz?lables=y").only(["images", "labels"])
    with pytest.raises(BadOption, match="follows #"):
        parse("a.npz#train").only([])
    assert parse("a.npz?images=x").only(["images"]).option("images") == "x"


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


@given(
    path=words,
    scheme=st.sampled_from(["", *sorted(set(SCHEMES) - {"hf"})]),
    options=st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,5}", fullmatch=True), words, max_size=3),
    rows=st.none() | st.tuples(st.none() | st.integers(0, 9), st.none() | st.integers(10, 99)),
)
def test_any_file_address_survives_the_round_trip(path, scheme, options, rows):
    first = parse(f"{scheme}:x") if scheme else Address("file", "x")
    address = Address("file", f"dir/{path}", first.scheme, tuple(options.items()), rows=rows)
    assert parse(str(address)) == address


@given(words)
def test_any_text_is_parsed_or_refused_politely(text):
    try:
        address = parse(text)
    except QueristError:
        return
    assert parse(str(address)) == address
