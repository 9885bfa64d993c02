"""Files of torch.save: state dicts in zip archives and in the older format, read by position, nothing unpickled."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from querist.errors import CorruptFile, UnsupportedFormat
from querist.sources.tensors.archive import Archive
from querist.sources.tensors.found import Found, extent_ref
from querist.sources.tensors.opcodes import BadPickle, Call, Pickled, Table, read_pickle, words
from querist.sources.tensors.rebuild import Sketch, StorageId, refuse, sketch, storage_id
from querist.sources.tensors.ref import TensorRef
from querist.sources.tensors.storage import check_fits
from querist.sources.tensors.tree import Tree, flatten, unwrapped
from querist.sources.tensors.window import Window, truncated

__all__ = [
    "check_storages",
    "children",
    "damaged",
    "pickled_member",
    "read_legacy",
    "read_zip",
    "sketch_ref",
    "tree_of",
    "zip_storages",
]

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001


def damaged(path: str, error: Exception) -> CorruptFile:
    """The error for a pickle that cannot be read."""
    return CorruptFile(f"The pickle in this file is damaged ({error})", value=path, mend="Copy or download it again")


def children(node: Any) -> list[tuple[Any, Any]] | None:
    """Entries of a container of a pickle; an object's entries are its state."""
    if isinstance(node, Table):
        return node.pairs
    if isinstance(node, (list, tuple)):
        return list(enumerate(node))
    if isinstance(node, Call):
        pairs = [*node.pairs, *enumerate(node.items)]
        return pairs + node.state.pairs if isinstance(node.state, Table) else pairs
    return None


def tree_of(value: Any, path: str) -> Tree[Sketch]:
    """Tensors of a pickle's value. Raises CorruptFile."""
    try:
        return flatten(value, children, sketch, source=path)
    except BadPickle as error:
        raise damaged(path, error) from None


def pickled_member(archive: Archive, name: str, *, also: tuple[str, ...] = ()) -> Pickled:
    """A pickle of an archive. Raises UnsafeFile where it names code, CorruptFile where it is damaged."""
    path = archive.window.path
    try:
        pickled = read_pickle(io.BytesIO(archive.read(name)))
    except BadPickle as error:
        raise damaged(path, error) from None
    refuse(path, pickled.globals, also=also)
    return pickled


def zip_storages(archive: Archive, pickled: Pickled, folder: str = "data/") -> dict[str, tuple[int, int]]:
    """Storage key to its first byte in the file and its bytes. Raises CorruptFile where one is cut off or missing."""
    places: dict[str, tuple[int, int]] = {}
    try:
        wanted = [storage_id(reference) for reference in pickled.references]
    except BadPickle as error:
        raise damaged(archive.window.path, error) from None
    for storage in wanted:
        if storage.key not in places:
            part = archive.part(folder + storage.key)
            places[storage.key] = (part.start, part.size)
        check_fits(archive.window.path, f"storage {storage.key}", storage.bytes, places[storage.key][1])
    return places


def sketch_ref(
    path: str,
    name: str,
    found: Sketch,
    places: Mapping[str, tuple[int, int]],
    *,
    big_endian: bool = False,
    hints: Mapping[str, Any] | None = None,
) -> TensorRef:
    """A pickled tensor as a ref: its storage's place, and where in it the tensor lies."""
    storage = found.storage
    if found.reason is not None or storage is None:
        return TensorRef(name, found.shape, found.dtype, hints=dict(hints or {}), reason=found.reason or "no storage")
    start, size = places[storage.key]
    skip = StorageId(storage.key, storage.dtype, storage.offset).bytes
    if skip > size:
        raise CorruptFile(f"The tensor {name} begins behind its storage's end", value=path)
    return extent_ref(
        path,
        name,
        found.dtype,
        found.shape,
        start=start + skip,
        size=size - skip,
        offset=found.offset,
        strides=found.strides,
        big_endian=big_endian,
        hints=hints,
    )


def check_storages(window: Window) -> None:
    """Raise CorruptFile, with expected and found bytes, for a zip archive of torch.save that ends before its storages do.

    Such a file has lost the directory at its end; its pickle, which comes first, still says how long the storages are.
    """
    head = window.head(30)
    names, extra = int.from_bytes(head[26:28], "little"), int.from_bytes(head[28:30], "little")
    start = 30 + names + extra
    if start >= window.size or not window.read(30, names).endswith(b"data.pkl"):
        return
    try:
        with window.part(start, window.size - start, "data.pkl").stream() as file:
            pickled = read_pickle(file)
            storages = {storage.key: storage.bytes for storage in map(storage_id, pickled.references)}
            least = start + file.tell() + sum(storages.values())
    except BadPickle:
        return
    if least > window.size:
        raise truncated(window.path, "what its storages and header fill", least, window.size)


def read_zip(archive: Archive) -> Found:
    """A zip archive of torch.save. Raises UnsafeFile, CorruptFile."""
    pickled = pickled_member(archive, "data.pkl")
    places = zip_storages(archive, pickled)
    big = archive.has("byteorder") and archive.read("byteorder").strip() == b"big"
    return _named(archive.window.path, pickled.value, places, big_endian=big)


def read_legacy(window: Window) -> Found:
    """A file of torch.save before torch 1.6: five pickles, then each storage's length and bytes.

    Raises UnsafeFile, CorruptFile, and UnsupportedFormat for a pickle that is no file of torch.save.
    """
    with window.stream() as file:
        try:
            magic = read_pickle(file)
            refuse(window.path, magic.globals)
            if magic.value != MAGIC:
                raise UnsupportedFormat(
                    "The file is a pickle, but not one that torch.save wrote",
                    value=window.path,
                    mend="Save the weights as safetensors, or with torch.save(state_dict, path)",
                )
            protocol, system, pickled, keys = (read_pickle(file) for _ in range(4))
            for part in (protocol, system, pickled, keys):
                refuse(window.path, part.globals)
            if protocol.value != PROTOCOL:
                raise BadPickle(f"protocol {words(protocol.value)[:20]}, where {PROTOCOL} is known")
            storages = {storage.key: storage for storage in map(storage_id, pickled.references)}
            order = [words(key) for key in keys.value] if isinstance(keys.value, list) else []
        except BadPickle as error:
            raise damaged(window.path, error) from None
        at = file.tell()
    big = isinstance(system.value, Table) and system.value.get("little_endian", True) is False
    places: dict[str, tuple[int, int]] = {}
    for key in order:
        if key not in storages:
            raise CorruptFile(f"The file holds a storage {key} that no tensor uses", value=window.path)
        count = int.from_bytes(window.read(at, 8, f"storage {key}"), "big" if big else "little", signed=True)
        one = StorageId(key, storages[key].dtype, 1).bytes
        part = window.part(at + 8, count * one, f"storage {key}")
        places[key] = (part.start, part.size)
        at += 8 + count * one
    if missing := [key for key in storages if key not in places]:
        raise CorruptFile(f"The file lacks storage {missing[0]}", value=window.path)
    return _named(window.path, pickled.value, places, big_endian=big)


def _named(path: str, value: Any, places: Mapping[str, tuple[int, int]], *, big_endian: bool) -> Found:
    named, passed = unwrapped(tree_of(value, path))
    found = Found("torch", passed_over=passed)
    for name, leaf in named:
        found.refs.append(sketch_ref(path, name or "tensor", leaf.value, places, big_endian=big_endian))
    return found
