"""Files that would run code when unpickled: none of it runs, and the refusal names what it was."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import pickle
import pickletools
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tests.sources.samples import network, tensors, write_all

from querist.errors import CorruptFile, QueristError, UnsafeFile
from querist.sources.tensors import open_source
from querist.sources.tensors.opcodes import BadPickle, Call, Global, read_pickle
from querist.sources.tensors.rebuild import ALLOWED, refuse


class Attack:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker, how=os.system):
        self.marker, self.how = str(marker), how

    def __reduce__(self):
        if self.how is os.system:
            return os.system, (f"mkdir {self.marker}",)
        return self.how, (f"__import__('os').mkdir({self.marker!r})",)


@pytest.fixture
def marker(tmp_path):
    return tmp_path / "executed"


@pytest.fixture
def paths(tmp_path):
    return write_all(tmp_path / "network")


def test_the_attack_works_where_it_is_unpickled(tmp_path, marker):
    """Else the tests below could not fail."""
    pickle.loads(pickle.dumps(Attack(marker)))
    assert marker.exists()


def rewritten(path, change):
    """The archive with its members changed: `change(name, data)` gives new bytes."""
    with zipfile.ZipFile(path) as old:
        members = [(info.filename, change(info.filename, old.read(info))) for info in old.infolist()]
    with zipfile.ZipFile(path, "w") as new:
        for name, data in members:
            new.writestr(name, data)


@pytest.mark.parametrize("how", [os.system, builtins.eval, builtins.exec])
@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("kind", ["zip", "legacy", "plain"])
def test_torch_files(tmp_path, marker, how, protocol, kind):
    path = tmp_path / "a.pt"
    value = {"state_dict": {"w": torch.zeros(3, 3)}, "x": Attack(marker, how)}
    if kind == "plain":
        path.write_bytes(pickle.dumps(Attack(marker, how), protocol))
    else:
        torch.save(value, path, pickle_protocol=max(protocol, 2), _use_new_zipfile_serialization=kind == "zip")
    with pytest.raises(UnsafeFile) as caught:
        open_source(path)
    text = str(caught.value)
    assert (
        f"{'posix' if how is os.system else 'builtins' if max(protocol, 2 * (kind != 'plain')) > 2 else '__builtin__'}."
        in text
    )
    assert how.__name__ in text
    assert "safetensors" in text
    assert not marker.exists()


def test_numpy_arrays_of_objects(tmp_path, marker):
    array = np.array([Attack(marker)], dtype=object)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", x=array)
    np.savez_compressed(tmp_path / "b.npz", x=array)
    for name in ("a.npy", "a.npz", "b.npz"):
        with pytest.raises(UnsafeFile, match="was not run"):
            open_source(tmp_path / name)
    np.savez(tmp_path / "c.npz", x=array, w=np.ones((2, 2)))
    assert [ref.name for ref in open_source(tmp_path / "c.npz")] == ["w"]
    assert not marker.exists()


@pytest.mark.parametrize("member", ["data.pkl", "constants.pkl"])
def test_torchscript(paths, marker, member):
    evil = pickle.dumps(Attack(marker), 2)
    rewritten(paths["torchscript"], lambda name, data: evil if name.endswith(f"/{member}") else data)
    with pytest.raises(UnsafeFile, match=r"posix\.system"):
        open_source(paths["torchscript"])
    assert not marker.exists()


def test_torchscript_code_is_never_run(paths, marker):
    """The text of the code is searched for words; even a file that would make a folder at import does nothing."""
    evil = f"import os\nos.mkdir({str(marker)!r})\n".encode()
    rewritten(paths["torchscript"], lambda name, data: evil + data if "/code/" in name else data)
    assert len(open_source(paths["torchscript"])) == len(tensors())
    assert not marker.exists()


def test_torch_export(tmp_path, paths, marker):
    evil = pickle.dumps(Attack(marker), 2)
    archive = io.BytesIO()
    torch.save({"x": Attack(marker)}, archive)

    def inputs(name, data):
        return archive.getvalue() if "sample_inputs" in name else data

    rewritten(paths["torch.export"], inputs)  # never opened
    assert len(open_source(paths["torch.export"])) == len(tensors())
    for inner in ("serialized_state_dict.pt", "serialized_constants.pt"):
        for data in (archive.getvalue(), evil):
            path = tmp_path / "old.pt2"
            with zipfile.ZipFile(path, "w") as old:
                old.writestr("serialized_exported_program.json", "{}")
                old.writestr(inner, data)
            with pytest.raises((UnsafeFile, CorruptFile)):
                open_source(path)
    config = '{"config": {"w": {"path_name": "weight_0", "is_param": true, "use_pickle": true, "tensor_meta": null}}}'
    path = tmp_path / "new.pt2"
    with zipfile.ZipFile(path, "w") as new:
        new.writestr("a/archive_format", "pt2")
        new.writestr("a/models/model.json", "{}")
        new.writestr("a/data/weights/model_weights_config.json", config)
        new.writestr("a/data/weights/weight_0", archive.getvalue())
    with pytest.raises(UnsafeFile, match=r"posix\.system"):
        open_source(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02cposix\nsystem\n(X\x04\x00\x00\x00xxxxtR.",  # a call
        b"(S'xxxx'\niposix\nsystem\n.",  # INST
        b"(cposix\nsystem\nS'xxxx'\no.",  # OBJ
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04xxxx\x85R.",  # STACK_GLOBAL
        b"\x80\x02cposix\nsystem\n)\x81}b.",  # NEWOBJ and BUILD
        b"\x80\x02\x82\x01.",  # an extension code
    ],
)
def test_every_opcode_that_imports_is_seen(program):
    pickled = read_pickle(io.BytesIO(program))
    assert pickled.globals
    with pytest.raises(UnsafeFile):
        refuse("x", pickled.globals)
    assert pickled.value is None or type(pickled.value) in (Call, Global)


def test_the_allowed_names_are_those_of_torch():
    from torch._weights_only_unpickler import _get_allowed_globals

    ours = {name for name in _get_allowed_globals() if not _refused(name)}
    assert set(_get_allowed_globals()) - ours == set()
    for name in ALLOWED - set(_get_allowed_globals()):
        # Spellings of Python 2, storages that torch treats apart, and types that some version of torch lacks.
        assert name.startswith(("__builtin__.", "torch."))
        assert "rebuild" not in name


def _refused(name):
    module, _, last = name.rpartition(".")
    try:
        refuse("x", [Global(module, last)])
    except UnsafeFile:
        return True
    return False


@pytest.mark.parametrize(
    "name", ["torch.load", "torch.hub.load", "torch.nn.Linear", "torch.jit._pickle.x", "torch.Tensor.apply_"]
)
def test_other_names_of_torch_are_refused(name):
    assert _refused(name)


def test_bombs_cost_nothing(tmp_path):
    """Nested tuples that double with every level, as values, as keys and as names: a text of them would have 2^60 words."""
    bomb = b"\x80\x02K\x01" + b"".join(b"q%c2\x86" % i for i in range(60))
    for program in (
        bomb + b".",
        b"\x80\x02}" + bomb[2:] + b"K\x01s.",
        b"\x80\x04" + bomb[2:] + bomb[2:] + b"\x93.",
        b"\x80\x02](" + b"2" * 5 + b"e.",
    ):
        path = tmp_path / "a.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a/data.pkl", program)
        with pytest.raises(QueristError):
            open_source(path)
    loop = b"\x80\x02}q\x00(X\x01\x00\x00\x00ah\x00X\x01\x00\x00\x00bh\x00u."
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", loop)
    with pytest.raises(CorruptFile, match="inside itself"):
        open_source(path)


def test_numbers_that_lie_allocate_nothing(tmp_path):
    path = tmp_path / "a.pt"
    huge = (2**40).to_bytes(8, "little")
    for program in (
        b"\x80\x04\x8e" + huge + b"x.",
        b"\x80\x04K\x01r\xff\xff\xff\xff.",
        b"\x80\x04\x8b\xff\xff\xff\x7f.",
    ):
        path.write_bytes(program)
        with pytest.raises(QueristError):
            open_source(path)


@given(st.binary(max_size=200))
@example(b"\x80\x02}(K\x01u.")
@example(b"2.")
@example(b"(0.")
def test_any_bytes_are_a_pickle_or_a_bad_one(data):
    with contextlib.suppress(BadPickle):
        read_pickle(io.BytesIO(data))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4) | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@given(values, st.integers(0, 5))
def test_plain_values_are_what_pickle_says(value, protocol):
    """Against Python's own unpickler, on values that name nothing."""

    def plain(node):
        if hasattr(node, "pairs") and not isinstance(node, Call):
            return {plain(key): plain(entry) for key, entry in node.pairs}
        if isinstance(node, Call):  # bytes before protocol 3
            return node.args[0].encode("latin1") if str(node.func) == "_codecs.encode" else b""
        if isinstance(node, (list, tuple)):
            return type(node)(map(plain, node))
        return node

    for data in (pickle.dumps(value, protocol), pickletools.optimize(pickle.dumps(value, protocol))):
        assert plain(read_pickle(io.BytesIO(data)).value) == value


def test_a_whole_pickled_module_is_refused_by_its_class(tmp_path):
    torch.save(network(), tmp_path / "a.pt")
    with pytest.raises(UnsafeFile, match=r"samples\.Network"):
        open_source(tmp_path / "a.pt")
