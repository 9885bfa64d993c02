"""Nested state survives a file exactly, and nothing else is taken for a checkpoint."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness import check_bad_input

from querist.errors import BadOption, BadValues, CorruptFile, SourceNotFound
from querist.training.checkpoint import Store, differences, newest, numbered, read, write
from querist.training.random_state import capture, kept, restore, seed_all
from querist.training.tree import flatten, unflatten

leaves = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
leaves |= st.sampled_from([torch.arange(3), torch.tensor(1.5, dtype=torch.bfloat16), np.arange(4.0), torch.empty(0, 2)])
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=4) | st.integers(0, 3), inner, max_size=3)
    ),
    max_leaves=12,
)


def equal(a, b) -> bool:
    if isinstance(a, torch.Tensor | np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and a == b


@settings(deadline=None)
@given(trees)
def test_flattening_is_undone_exactly(value):
    plain, tensors = flatten(value)
    text = json.dumps(plain, allow_nan=False)
    assert equal(unflatten(json.loads(text), tensors), value)


def test_flattened_tensors_have_their_own_memory():
    whole = torch.arange(6.0).requires_grad_()
    _, tensors = flatten({"a": whole[::2], "b": whole[:3], "c": whole.expand(2, 6)})
    with torch.no_grad():
        whole.zero_()
    assert [one.tolist() for one in tensors.values()][:2] == [[0, 2, 4], [0, 1, 2]]
    assert all(one.is_contiguous() and not one.requires_grad for one in tensors.values())


def test_what_is_neither_plain_nor_a_tensor_is_named():
    check_bad_input(
        [
            (lambda: flatten({"a": [1, {"b": object()}]}), BadValues, ["state.a[1].b", "builtins.object"]),
            (lambda: flatten({"a": {1, 2}}, "hook"), BadValues, ["hook.a", "set"]),
            (lambda: flatten({(1, 2): 3}), BadValues, ["dict"]),
            (lambda: flatten(np.array([object()])), BadValues, ["ndarray"]),
            (lambda: flatten(torch.eye(2).to_sparse()), BadValues, ["Tensor", "dense"]),
        ]
    )
    with pytest.raises(CorruptFile, match="missing"):
        unflatten({"$tensor": "0"}, {})


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    state = {
        "weights": {"a": torch.randn(3, 2), "half": torch.ones(2, dtype=torch.bfloat16)},
        "n": (1, math.inf),
        "x": None,
    }
    path = write(tmp_path, state, config={"lr": 0.1, "parts": [1, {"a": None}]})
    assert newest(tmp_path) == path
    assert equal(read(path), state)
    assert equal(read(path, config={"parts": [1, {"a": None}], "lr": 0.1}), state)
    again = read(path)
    path.joinpath("tensors.safetensors").unlink()
    again["weights"]["a"].zero_()  # not a view of the file


def test_the_last_ones_are_kept(tmp_path):
    for i in range(5):
        write(tmp_path, {"i": i}, config={}, keep=3)
    assert [read(path)["i"] for path in numbered(tmp_path)] == [2, 3, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"checkpoint-{i:06d}" for i in (3, 4, 5)]
    assert newest(tmp_path / "none") is None


def test_a_state_that_cannot_be_kept_leaves_nothing_behind(tmp_path):
    write(tmp_path, {"i": 0}, config={})
    with pytest.raises(BadValues):
        write(tmp_path, {"i": object()}, config={})
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000001"]


def test_differences_are_named():
    here = {"a": {"b": [1, 2]}, "same": 1, "new": None, "empty": {}}
    there = {"a": {"b": [1, 3]}, "same": 1, "old": "x", "empty": {}}
    assert differences(here, there) == [
        "a.b[1] is 2 here and 3 in the checkpoint",
        "new is null here and absent in the checkpoint",
        'old is absent here and "x" in the checkpoint',
    ]
    assert differences(here, here) == []


def test_what_is_no_checkpoint_is_refused(tmp_path):
    path = write(tmp_path, {"a": torch.ones(3)}, config={"lr": 1, "b": [0] * 9})
    manifest = json.loads((path / "manifest.json").read_text())

    def changed(**parts):
        (path / "manifest.json").write_text(json.dumps(manifest | parts))
        return read(path, config={"lr": 1, "b": [0] * 9})

    many = {"lr": 2, "b": [1] * 9}
    check_bad_input(
        [
            (lambda: read(tmp_path / "checkpoint-000009"), SourceNotFound, ["checkpoint-000009"]),
            (lambda: read(path, config=many), BadOption, ["lr is 2 here and 1", "; and 7 more"]),
            (lambda: changed(schema="other/1"), CorruptFile, ["no whole checkpoint", "manifest.json"]),
            (lambda: changed(files={"tensors.safetensors": {"bytes": 1, "checksum": "x"}}), CorruptFile, ["damaged"]),
            (lambda: changed(files={"gone.safetensors": {"bytes": 1, "checksum": "x"}}), CorruptFile, ["gone"]),
        ]
    )
    (path / "manifest.json").write_text("[1]")
    check_bad_input([(lambda: read(path), CorruptFile, ["no whole checkpoint"])])


def test_only_the_writer_locks_and_writes(tmp_path):
    with Store(tmp_path, keep=1, resume=True, writes=True) as store:
        assert store.load({}) is None
        store.save({"a": 1}, {})
        other = Store(tmp_path, keep=1, resume=True, writes=False)
        assert other.load({}) == {"a": 1}
        other.save({"a": 2}, {})
        assert store.load({}) == {"a": 1}


def test_generators_are_kept_and_restored():
    import random

    cpu = torch.device("cpu")

    def draw():
        return torch.rand(2).tolist(), np.random.normal(size=3).tolist(), [random.gauss(0, 1), random.random()]  # noqa: NPY002

    with kept():
        seed_all(5, "a")
        draw()
        state = capture(cpu)
        first = draw()
        draw()
        restore(state, cpu)
        assert draw() == first
        seed_all(5, "a")
        draw()
        assert draw() == first
        seed_all(6, "a")
        draw()
        assert draw() != first
        before = draw()
        with kept(cpu):
            seed_all(1)
        assert draw() != before
