"""Opening a source: what it is, decided by its content first, and the reader for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from querist.errors import BadOption, CorruptFile, SourceNotFound, UnsupportedFormat
from querist.sources.address import Address, parse
from querist.sources.tensors import arrays, gguf
from querist.sources.tensors.archive import Archive
from querist.sources.tensors.exported import is_exported, read_exported
from querist.sources.tensors.folder import INDEX_ENDING, adapter_beside, read_folder, read_index
from querist.sources.tensors.found import Found, finish
from querist.sources.tensors.onnx import looks_like_onnx, read_onnx
from querist.sources.tensors.ref import TensorSource
from querist.sources.tensors.safetensor import is_safetensors, read_safetensors
from querist.sources.tensors.select import Selection
from querist.sources.tensors.torchfile import check_storages, read_legacy, read_zip
from querist.sources.tensors.torchscript import is_torchscript, read_torchscript
from querist.sources.tensors.window import Window

__all__ = ["open_source"]

FORMATS = "safetensors, torch.save (.pt .pth .bin .th .ckpt), TorchScript, torch.export (.pt2), ONNX, GGUF, .npy, .npz"


def open_source(source: Any, *, include: str | Sequence[str] = "*", exclude: str | Sequence[str] = ()) -> TensorSource:
    """Every tensor of a source as a reference; nothing of their content is read yet.

    Parameters
    ----------
    source: a path or address (`hf:org/name`, a registered name, `package.module:factory@weights`), a torch module, a state
        dict (nested or not), an array or a tensor.
    include, exclude: glob patterns on tensor names, one, several, or a comma list.

    `format` of what is returned is one of "safetensors", "torch", "torchscript", "torch.export", "onnx", "gguf", "npy",
    "npz", "module", "state dict", "array", or one of the file formats after "sharded " or "folder of ".

    Raises SourceNotFound, UnsafeFile, CorruptFile, UnsupportedFormat, UnknownName (nothing is left), MissingExtra.
    """
    selection = Selection.of(include, exclude)
    if isinstance(source, TensorSource):
        found = Found(source.format, list(source.refs), list(source.passed_over), dict(source.metadata))
        return finish(source.address, found, selection)
    if isinstance(source, (str, Path, Address)):
        address = source if isinstance(source, Address) else parse(str(source))
        return finish(str(source), _at(address), selection)
    address, found = _in_memory(source)
    return finish(address, found, selection)


def _in_memory(source: Any) -> tuple[str, Found]:
    import torch

    from querist.sources.tensors.memory import is_array, read_array, read_state
    from querist.sources.tensors.module import read_module

    if isinstance(source, torch.nn.Module):
        return f"module {type(source).__qualname__}", read_module(source)
    if isinstance(source, Mapping):
        return "state dict", read_state(source)
    if is_array(source):
        return "array", read_array(source)
    raise BadOption(
        "This is no source of tensors",
        value=type(source).__qualname__,
        allowed="a path, a torch module, a state dict, an array",
    )


def _at(address: Address) -> Found:
    """What an address names."""
    if address.kind == "hub":
        from querist.sources.tensors.hub import fetch_model

        address.only(["revision"])
        return read_folder(fetch_model(address.path, address.option("revision")), _file)
    if address.kind == "python":
        from querist.sources.tensors.factory import read_factory

        return read_factory(address, open_source)
    if address.scheme not in ("", "npz"):
        raise UnsupportedFormat(
            f"Addresses of the scheme {address.scheme} hold data and no weights", value=str(address), allowed=FORMATS
        )
    path = address.only([]).local()
    if not path.exists():
        raise SourceNotFound(
            "There is nothing at this path", value=str(path), allowed=f"a file ({FORMATS}), or a folder that holds one"
        )
    if path.is_dir():
        return read_folder(path, _file)
    found = _file(path)
    adapter = adapter_beside(path)
    if adapter is not None:
        found.metadata["adapter"] = adapter
    return found


def _file(path: Path) -> Found:
    """One file, by its first bytes; its ending only decides where those say nothing."""
    if path.name.endswith(INDEX_ENDING):
        return read_index(path, _file)
    window = Window.whole(path)
    head = window.head(16)
    if not head:
        raise CorruptFile("The file is empty: expected weights, found 0 bytes", value=str(path))
    if head[:4] == b"PK\x03\x04" or head[:4] == b"PK\x05\x06":
        try:
            archive = Archive(window)
        except CorruptFile:
            check_storages(window)
            raise
        return _archive(archive)
    if head[:4] == gguf.MAGIC:
        return gguf.read_gguf(window)
    if head[:6] == arrays.MAGIC:
        return arrays.read_npy(window)
    if is_safetensors(window):
        return read_safetensors(window)
    if head[:1] == b"\x80" and head[1:2] <= b"\5":
        return read_legacy(window)
    if looks_like_onnx(window):
        return read_onnx(window)
    return _by_ending(window, path)


def _archive(archive: Archive) -> Found:
    if arrays.is_npz(archive):
        return arrays.read_npz(archive)
    if is_torchscript(archive):
        return read_torchscript(archive)
    if archive.has("data.pkl"):
        return read_zip(archive)
    if is_exported(archive):
        return read_exported(archive)
    raise UnsupportedFormat(
        "An archive that holds no weights in a known layout", value=archive.window.path, allowed=FORMATS
    )


def _by_ending(window: Window, path: Path) -> Found:
    """A file whose first bytes are those of no format: damaged, if its ending names one."""
    ending = path.suffix.lower()
    if ending == ".safetensors":
        return read_safetensors(window)
    if ending == ".onnx":
        return read_onnx(window)
    if ending in (".pt", ".pth", ".bin", ".th", ".ckpt", ".pkl", ".pickle"):
        with suppress(CorruptFile):  # pickles of protocol 0 and 1 begin with no fixed byte
            return read_legacy(window)
    if ending in (".pt", ".pth", ".bin", ".th", ".ckpt", ".pt2", ".ts", ".jit", ".npz", ".npy", ".gguf"):
        raise CorruptFile(
            f"The file does not begin as a {ending} file does: found the bytes {window.head(8).hex(' ')}, {window.size} in all",
            value=str(path),
            mend="Copy or download it again (a page of a website or a pointer of Git LFS may have been saved in its place)",
        )
    raise UnsupportedFormat("A file of no known format", value=str(path), allowed=FORMATS)
