"""Checkpoints of a training: a folder that is whole or absent, tensors as safetensors and the rest as JSON.

A checkpoint is written under a temporary name, its files first, then the manifest with their sizes and checksums; the
folder is flushed and renamed into place. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from querist import files
from querist.errors import BadOption, CorruptFile, RunBusy, SourceNotFound
from querist.training.tree import flatten, unflatten

__all__ = ["Store", "differences", "newest", "read", "write"]

SCHEMA = "querist.training.checkpoint/1"
TENSORS = "tensors.safetensors"
MANIFEST = "manifest.json"
_NAME = re.compile(r"checkpoint-(\d{6,})")
_OLDER = "Remove this folder to go on from the checkpoint before it"


def numbered(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first; none where there is no folder."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def newest(folder: Path | str) -> Path | None:
    """The last whole checkpoint of a folder, None where there is none."""
    found = numbered(Path(folder))
    return found[-1] if found else None


def write(folder: Path | str, state: Any, *, config: Mapping[str, Any], keep: int = 2) -> Path:
    """Add a checkpoint to a folder and remove all but the last `keep`.

    state: nested dicts, lists and tuples of numbers, text and tensors (see `tree.flatten`). config: a JSON value that a
    reader must match. Raises BadValues for a state that is neither plain nor a tensor.
    """
    from safetensors.torch import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plain, tensors = flatten(state)
    before = numbered(folder)
    number = int(before[-1].name.rpartition("-")[2]) + 1 if before else 1
    temporary = _temporary(folder)
    try:
        save_file(tensors, temporary / TENSORS)
        manifest = {
            "schema": SCHEMA,
            "config": dict(config),
            "files": {
                TENSORS: {
                    "bytes": (temporary / TENSORS).stat().st_size,
                    "checksum": files.fingerprint(temporary / TENSORS),
                }
            },
            "state": plain,
        }
        files.write_json(temporary / MANIFEST, manifest)
        target = folder / f"checkpoint-{number:06d}"
        files.move_folder(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for old in numbered(folder)[:-keep]:
        _remove(old)
    return target


def _temporary(folder: Path) -> Path:
    made = folder / f".querist-{secrets.token_hex(8)}"
    made.mkdir()
    return made


def _remove(path: Path) -> None:
    # Renamed first: a reader never meets a checkpoint that is half removed.
    hidden = _temporary(path.parent)
    path.rename(hidden / path.name)
    shutil.rmtree(hidden, ignore_errors=True)


def read(path: Path | str, *, config: Mapping[str, Any] | None = None) -> Any:
    """The state of one checkpoint, tensors on the CPU.

    config: what it must have been written with; None asks for nothing. Raises SourceNotFound, CorruptFile where sizes or
    checksums differ, BadOption where the configuration differs, naming up to three differences.
    """
    from safetensors.torch import load_file

    path = Path(path)
    manifest = _manifest(path)
    if config is not None and (found := differences(dict(config), manifest["config"])):
        raise BadOption(
            "This checkpoint was written by another training",
            value="; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else ""),
            allowed="the same network, data and options (epochs and max_steps may grow where no schedule depends on them)",
            mend=f"Use the options it was written with, or another folder than {path.parent}",
        )
    for name, about in manifest["files"].items():
        file = path / name
        if not file.is_file() or file.stat().st_size != about["bytes"] or files.fingerprint(file) != about["checksum"]:
            raise CorruptFile("A file of this checkpoint is damaged", value=str(file), mend=_OLDER)
    # Cloned: what safetensors returns may be a view of the file, which a later checkpoint removes.
    tensors = {name: tensor.clone() for name, tensor in load_file(path / TENSORS).items()}
    return unflatten(manifest["state"], tensors)


def _manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise SourceNotFound("There is no such checkpoint", value=str(path), allowed="a folder written by a training")
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        whole = manifest["schema"] == SCHEMA and {"config", "files", "state"} <= set(manifest)
    except (OSError, ValueError, KeyError, TypeError):
        manifest, whole = {}, False
    if not whole:
        raise CorruptFile("This is no whole checkpoint", value=str(path / MANIFEST), mend=_OLDER)
    return manifest


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """Sentences on where two configurations differ, after both have been through JSON.

    >>> differences({"lr": 0.1, "seed": 1}, {"lr": 0.2, "seed": 1})
    ['lr is 0.1 here and 0.2 in the checkpoint']
    """
    one, other = dict(_leaves(json.loads(json.dumps(here)))), dict(_leaves(json.loads(json.dumps(there))))
    absent = object()

    def said(value: Any) -> str:
        return "absent" if value is absent else json.dumps(value)

    return [
        f"{name} is {said(one.get(name, absent))} here and {said(other.get(name, absent))} in the checkpoint"
        for name in dict.fromkeys([*one, *other])
        if one.get(name, absent) != other.get(name, absent)
    ]


def _leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from _leaves(part, f"{where}.{key}" if where else key)
    elif isinstance(value, list) and value:
        for i, part in enumerate(value):
            yield from _leaves(part, f"{where}[{i}]")
    else:
        yield where, value


class Store:
    """The checkpoint folder of one training, locked while the training writes to it.

    Raises RunBusy where another process writes there, or where it holds checkpoints and `resume` is False.
    """

    def __init__(self, folder: Path | str, *, keep: int, resume: bool, writes: bool):
        self.folder, self.keep, self.resume, self.writes = Path(folder), keep, resume, writes
        self._lock: files.Lock | None = None

    def __enter__(self) -> Store:
        if self.writes:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = files.Lock(self.folder)
            self._lock.__enter__()
            try:
                self._begin()
            except BaseException:
                self._lock.__exit__()
                raise
        return self

    def _begin(self) -> None:
        if not self.resume and newest(self.folder):
            raise RunBusy(
                "This folder holds the checkpoints of a training",
                value=str(self.folder),
                allowed="an empty folder, or resume=True",
                mend="Resume it, or use another folder",
            )
        for path in self.folder.iterdir():
            if files.is_temporary(path) and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.__exit__()

    def load(self, config: Mapping[str, Any]) -> Any | None:
        """The newest state, None where there is none or none was asked for."""
        path = newest(self.folder) if self.resume else None
        return None if path is None else read(path, config=config)

    def save(self, state: Any, config: Mapping[str, Any]) -> None:
        """Write a checkpoint, in the process that writes."""
        if self.writes:
            write(self.folder, state, config=config, keep=self.keep)
