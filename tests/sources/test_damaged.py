"""Damaged files of every format: cut anywhere, bytes flipped anywhere, headers that lie. Nothing but a QueristError comes out."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.harness import PATIENCE
from tests.sources.samples import write_all

from querist.errors import CorruptFile, QueristError
from querist.sources.tensors import open_source
from querist.sources.tensors.dtypes import ITEMSIZE
from querist.sources.tensors.found import EXPANDED
from querist.sources.tensors.protobuf import Message, fields
from querist.sources.tensors.window import Window

FORMATS = [
    "pt",
    "pt-legacy",
    "safetensors",
    "sharded",
    "npz",
    "npz-compressed",
    "onnx",
    "onnx-external",
    "gguf",
    "torchscript",
    "torch.export",
]
CUTS, FLIPS = 40, 100
LARGEST = 64 << 20


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("damaged"), seed=1)


def attempt(path):
    """Open and read everything: how many tensors came out, or the error of ours."""
    # Anything but a QueristError passes through here and fails the test.
    try:
        source = open_source(path)
        for ref in source:
            if ref.reason is None:
                assert ref.numel <= max(EXPANDED, 1100 * path.stat().st_size)
                assert tuple(ref.load().shape) == ref.shape
                if ref.shape and ref.shape[0]:
                    ref.rows(0, 1)
                ref.fingerprint()
    except QueristError as error:
        return error
    return len(source)


@pytest.mark.parametrize("name", FORMATS)
def test_cut_anywhere(originals, name):
    path = originals[name]
    data = path.read_bytes()
    rng = random.Random(name)
    places = {0, 1, 8, 9, 10, len(data) - 1, *(rng.randrange(len(data)) for _ in range(CUTS))}
    try:
        for place in sorted(places):
            path.write_bytes(data[:place])
            assert not isinstance(attempt(path), int), place
    finally:
        path.write_bytes(data)


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_flipped_anywhere(originals, name):
    path = originals[name]
    data = path.read_bytes()
    rng = random.Random(name)
    outcomes = []
    try:
        for _ in range(FLIPS):
            changed = bytearray(data)
            reach = min(rng.choice([64, 300, 2000, len(data)]), len(data))
            for _ in range(rng.choice([1, 1, 2, 4, 16])):
                at = rng.randrange(reach) if rng.random() < 0.7 else len(data) - 1 - rng.randrange(reach)
                changed[at] = rng.choice([0, 255, 127, 128, changed[at] ^ (1 << rng.randrange(8)), rng.randrange(256)])
            path.write_bytes(changed)
            outcomes.append(attempt(path))
    finally:
        path.write_bytes(data)
    assert all(str(outcome) for outcome in outcomes)
    assert any(isinstance(outcome, QueristError) for outcome in outcomes)
    assert isinstance(attempt(path), int)


LIES = {
    "length.safetensors": (2**62).to_bytes(8, "little") + b"{" + bytes(100),
    "limit.safetensors": (99_000_000).to_bytes(8, "little") + b"{" + bytes(100),
    "nested.safetensors": (200_000).to_bytes(8, "little") + b'{"a":' + b"[" * 199_995,
    "tensors.gguf": b"GGUF\3\0\0\0" + (2**60).to_bytes(8, "little") + bytes(8) + bytes(60),
    "entries.gguf": b"GGUF\3\0\0\0" + bytes(8) + (2**60).to_bytes(8, "little") + bytes(60),
    "key.gguf": b"GGUF\3\0\0\0" + bytes(8) + (1).to_bytes(8, "little") + (2**60).to_bytes(8, "little") + bytes(60),
    "array.gguf": b"GGUF\3\0\0\0"
    + bytes(8)
    + (1).to_bytes(8, "little")
    + (1).to_bytes(8, "little")
    + b"k\x09\0\0\0\0\0\0\0"
    + (2**61).to_bytes(8, "little")
    + bytes(60),
    "graph.onnx": b"\x08\x09\x3a\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(60),
    "varint.onnx": b"\x08" + b"\xff" * 60,
}


@pytest.mark.parametrize("name", LIES)
def test_headers_that_lie_allocate_nothing(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(LIES[name])
    tracemalloc.start()
    try:
        with pytest.raises(QueristError):
            open_source(path)
        assert tracemalloc.get_traced_memory()[1] < LARGEST
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 15]},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [8, 4]},
        {"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [2.0, 2], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 2**50]},
        {"dtype": "F32", "shape": [True, 4], "data_offsets": [0, 16]},
        {"dtype": 3, "shape": [2, 2], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [2, 2]},
        [],
    ],
)
def test_entries_of_safetensors_that_contradict_themselves(tmp_path, entry):
    text = json.dumps({"w": entry}).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
    with pytest.raises(CorruptFile, match="w"):
        open_source(path)


def test_a_cut_off_safetensors_says_expected_and_found(originals):
    path = originals["safetensors"]
    data = path.read_bytes()
    try:
        path.write_bytes(data[:-100])
        with pytest.raises(CorruptFile, match=rf"the tensor mix\.weight needs \d+ bytes, found {len(data) - 100}"):
            open_source(path)
    finally:
        path.write_bytes(data)


@given(st.binary(max_size=80))
@example(b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01")
def test_any_bytes_are_a_message_or_corrupt(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "message"
    path.write_bytes(data)
    whole = Window.whole(path)
    results = []
    for message in (Message(whole), Message(whole, data)):
        try:
            results.append([(f.number, f.wire, f.value) for f in fields(message)])
        except CorruptFile:
            results.append("corrupt")
    assert results[0] == results[1]


STREAMED = """
import resource, sys, torch, numpy as np
from querist.sources.tensors import open_source
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
torch.ones(1 << 20).sum(); open_source({"a": torch.zeros(8, 8)})["a"].fingerprint()
before = peak()
for path in sys.argv[1:]:
    for ref in open_source(path):
        for start in range(0, ref.shape[0], ref.shape[0] // 8):
            assert ref.rows(start, start + 64).sum() == 0
    ref.fingerprint()
print(peak() - before)
"""


def test_resident_memory_does_not_grow_with_the_file(tmp_path):
    """A 4 GiB safetensors file of 20 tensors, a .npy of 128 MiB in each order: nothing but the rows asked for is held."""
    rows, columns = 13_312, 4096
    header, at = {}, 0
    for i in range(20):
        size = rows * columns * 4
        header[f"layer{i}"] = {"dtype": "F32", "shape": [rows, columns], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    large = tmp_path / "large.safetensors"
    with large.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    assert large.stat().st_size > 4 << 30
    paths = [large]
    for fortran in (False, True):
        text = f"{{'descr': '<f4', 'fortran_order': {fortran}, 'shape': (32768, 1024), }}".ljust(117) + "\n"
        paths.append(tmp_path / f"{fortran}.npy")
        with paths[-1].open("wb") as file:
            file.write(b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode())
            file.truncate(128 + 32768 * 1024 * 4)
    done = subprocess.run(
        [sys.executable, "-c", STREAMED, *map(str, paths)], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert int(done.stdout) < 40 << 20
    assert ITEMSIZE["float32"] * rows * columns > 200 << 20
