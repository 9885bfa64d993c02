"""Files that are whole or absent, locks, fingerprints, names for keys."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from tests.harness import PATIENCE

from querist import files
from querist.errors import RunBusy
from querist.files import (
    Lock,
    encode_key,
    fingerprint,
    fingerprint_array,
    move_folder,
    replacing,
    write_arrays,
    write_bytes,
    write_frame,
    write_json,
    write_text,
)

# ------------------------------------------------------------------------------------------------------------ writing


def test_each_kind_of_content_comes_back(tmp_path):
    write_bytes(tmp_path / "deep" / "b", b"\0\xff")
    write_text(tmp_path / "t", "Größe\n")
    write_json(tmp_path / "j.json", {"ü": [1, None, 0.1]})
    frame = pl.DataFrame({"a": [0.1, None, -0.0], "b": [["x"], [], None]})
    write_frame(tmp_path / "f.parquet", frame)
    arrays = {"x": np.arange(6.0).reshape(2, 3), "y": np.float32(2)}
    write_arrays(tmp_path / "a.npz", arrays)
    assert (tmp_path / "deep" / "b").read_bytes() == b"\0\xff"
    assert (tmp_path / "t").read_text("utf-8") == "Größe\n"
    assert (tmp_path / "j.json").read_text("utf-8") == '{\n  "ü": [\n    1,\n    null,\n    0.1\n  ]\n}\n'
    back = pl.read_parquet(tmp_path / "f.parquet")
    assert back.equals(frame, null_equal=True)
    assert np.signbit(back["a"][2])
    with np.load(tmp_path / "a.npz", allow_pickle=False) as loaded:
        assert {name: (loaded[name].dtype, loaded[name].tolist()) for name in loaded} == {
            "x": (np.float64, arrays["x"].tolist()),
            "y": (np.float32, 2.0),
        }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "deep", "f.parquet", "j.json", "t"]


def test_the_same_arrays_are_the_same_bytes(tmp_path):
    for name in ("one.npz", "two.npz"):
        write_arrays(tmp_path / name, {"x": np.arange(3)})
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_what_is_no_json_or_no_array_is_refused_and_the_old_file_stays(tmp_path):
    write_text(tmp_path / "file", "old")
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(tmp_path / "file", float("nan"))
    with pytest.raises(ValueError, match="Python objects"):
        write_arrays(tmp_path / "file", {"x": np.array([{}], dtype=object)})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "file"
    write_text(path, "old")

    def fail():
        with replacing(path) as temporary:
            temporary.write_text("half")
            assert path.read_text() == "old"
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_flushed_before_the_rename_and_the_folder_after_it(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(files, "_flush", lambda path: steps.append(("flush", Path(path).name)))
    monkeypatch.setattr(os, "replace", lambda source, target: steps.append(("rename", Path(target).name)))
    write_text(tmp_path / "file", "x")
    assert [step for step, _ in steps] == ["flush", "rename", "flush"]
    assert steps[0][1].startswith(".querist-")
    assert steps[1:] == [("rename", "file"), ("flush", tmp_path.name)]


def test_the_mode_follows_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_folder_is_moved_over_an_old_one(tmp_path):
    source, target = tmp_path / "new", tmp_path / "place" / "unit"
    for folder, name in ((source, "a"), (target, "b")):
        folder.mkdir(parents=True)
        (folder / name).write_text(name)
    move_folder(source, target)
    assert [path.name for path in target.iterdir()] == ["a"]
    assert not source.exists()


# --------------------------------------------------------------------------------------------------------------- lock


HOLD = """
import sys
from pathlib import Path
from urllib.parse import unquote
from querist.files import Lock
with Lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_keeps_out_another_process_and_ends_with_its_holder(tmp_path):
    arguments = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(RunBusy, match=f"process {holder.pid} on {os.uname().nodename} since 2") as caught,
            Lock(tmp_path),
        ):
            pass
        assert str(tmp_path) in str(caught.value)
        holder.kill()
        holder.wait()
        assert (tmp_path / Lock.NAME).exists()
        with Lock(tmp_path), pytest.raises(RunBusy, match=f"process {os.getpid()} "), Lock(tmp_path):
            pass
    assert not (tmp_path / Lock.NAME).exists()


RACE = """
import sys
from pathlib import Path
from urllib.parse import unquote
from querist.errors import RunBusy
from querist.files import Lock
folder = Path(sys.argv[1])
done = 0
while done < 150:
    try:
        with Lock(folder):
            (folder / "alone").touch(exist_ok=False)  # fails where two are inside
            (folder / "alone").unlink()
            done += 1
    except RunBusy:
        pass
"""


def test_a_lock_that_is_removed_while_others_wait_lets_in_one_at_a_time(tmp_path):
    racers = [subprocess.Popen([sys.executable, "-c", RACE, str(tmp_path)], stderr=subprocess.PIPE) for _ in range(3)]
    assert [racer.communicate(timeout=PATIENCE)[1].decode()[-300:] for racer in racers] == [""] * 3
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------------- fingerprints


def test_a_files_fingerprint_is_its_sha256(tmp_path):
    data = os.urandom((1 << 20) + 17)
    (tmp_path / "file").write_bytes(data)
    assert fingerprint(tmp_path / "file") == "sha256:" + hashlib.sha256(data).hexdigest()
    (tmp_path / "file").write_bytes(b"abc")
    known = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, example B.1
    assert fingerprint(tmp_path / "file") == known
    with pytest.raises(FileNotFoundError):
        fingerprint(tmp_path / "none")


def test_a_folders_fingerprint_sees_names_contents_and_borders(tmp_path):
    def made(**contents):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in contents.items():
            write_text(folder / name.replace("__", "/"), text)
        return fingerprint(folder)

    truth = made(a="x", b__c="y")
    assert truth == made(b__c="y", a="x")
    others = [made(a="x", b__d="y"), made(a="y", b__c="x"), made(a="xy", b__c=""), made(a="x"), made(a="x", b="y")]
    assert len({truth, *others}) == 6


@given(
    npst.arrays(
        st.sampled_from(["<f8", ">f4", "<i2", "?", "<c16"]), npst.array_shapes(min_dims=0, max_dims=3, min_side=0)
    )
)
def test_an_arrays_fingerprint_sees_values_and_not_their_layout(array):
    truth = fingerprint_array(array)
    assert truth == fingerprint_array(np.array(array, order="F"))
    assert truth == fingerprint_array(array.astype(array.dtype.newbyteorder()))
    assert truth == fingerprint_array(np.stack([array, array], axis=-1)[..., 0])
    assert truth != fingerprint_array(array[None])
    if array.size:
        changed = array.copy()
        changed.flat[0] = changed.flat[0] == 0
        assert truth != fingerprint_array(changed)


def test_an_arrays_fingerprint_sees_its_type_and_refuses_objects():
    assert fingerprint_array(np.zeros(2, "f4")) != fingerprint_array(np.zeros(2, "i4"))
    with pytest.raises(ValueError, match="Python objects"):
        fingerprint_array(np.array([None]))


# --------------------------------------------------------------------------------------------------------------- keys


@given(st.lists(st.text(max_size=300), min_size=2, max_size=2, unique=True))
def test_keys_become_different_names_that_any_folder_takes(keys):
    names = [encode_key(key) for key in keys]
    assert names[0] != names[1]
    for key, name in zip(keys, names, strict=True):
        assert name not in ("", ".", "..")
        assert not name.startswith(".")
        assert len(name) <= 200
        assert name.isascii()
        assert not set(name) & set('/\\:*?"<>| \0')
        assert unquote(name, errors="surrogatepass") == key or key == "" or (len(name) > 150 and "%~" in name)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("layer4.2.conv1.weight", "layer4.2.conv1.weight"),
        ("a/b c", "a%2Fb%20c"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("", "%"),
        ("ü%", "%C3%BC%25"),
    ],
)
def test_names_of_keys(tmp_path, key, name):
    assert encode_key(key) == name
    assert unquote(name) == key or not key
    (tmp_path / name).mkdir()


def test_long_keys_with_the_same_beginning_differ():
    one, other = encode_key("x" * 500 + "a"), encode_key("x" * 500 + "b")
    assert one != other
    assert one[:160] == other[:160]
