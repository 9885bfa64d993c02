"""The networks and data of a study: addresses or objects in memory, opened once per process, written once to cross processes."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.errors import BadOption
from querist.features.configs import CaptureOptions
from querist.features.inputs import as_inputs, named
from querist.files import fingerprint, replacing

if TYPE_CHECKING:
    from querist.sources.data import Data
    from querist.sources.images.transform import Transform
    from querist.sources.taps import Network

__all__ = ["Material", "StoredModule", "StoredRows", "called", "transform_of"]


def called(what: Any, role: str) -> str:
    """What an address or an object in memory is called in tables: the address, or its role."""
    return os.fspath(what) if isinstance(what, str | os.PathLike) else role


def transform_of(config: CaptureOptions) -> Transform:
    """What is done to pictures, from the options."""
    from querist.sources.images.transform import Transform

    size = config.size[0] if len(config.size) == 1 else (config.size[0], config.size[1]) if config.size else None
    return Transform(size, config.channels, config.mean or None, config.std or None, config.pad)


@dataclass(frozen=True)
class StoredModule:
    """A torch module whose tensors lie in a file: its structure without weights, and where they are."""

    structure: Any
    path: str

    def open(self) -> Any:
        """The module with its weights, on the CPU."""
        from safetensors.torch import load_file

        module = copy.deepcopy(self.structure).to_empty(device="cpu")
        tensors = load_file(self.path)
        for name, place in _tensors(module).items():
            place.data.copy_(tensors[name])
        return module


@dataclass(frozen=True)
class StoredRows:
    """Rows of data that were in memory, written with their ids."""

    path: str
    name: str
    source: str
    kind: str
    classes: tuple[str, ...] | None

    def open(self) -> Data:
        """The rows as data; those that were chosen are all there are."""
        from safetensors.torch import load_file

        from querist.sources.data import Batch, Data

        tensors = load_file(self.path)
        ids = tensors.pop("ids").numpy()
        labels = tensors.pop("labels").numpy() if "labels" in tensors else None

        def fetch(wanted: np.ndarray) -> tuple[Batch, list[Any]]:
            at = np.searchsorted(ids, wanted)
            rows = {name: values[at] for name, values in tensors.items()}
            return Batch(wanted, as_inputs(rows), None if labels is None else labels[at]), []

        return Data(self.name, ids, fetch, self.kind, self.classes, self.source)


class Material:
    """Networks and data by role. `held` are objects in memory (or stored ones); other roles are addresses of `addresses`.

    A role whose object is that of another role is the same data: both then have one source, and their rows are paired.
    """

    def __init__(self, addresses: Mapping[str, str], held: Mapping[str, Any]):
        self.addresses = dict(addresses)
        self.held = {role: what for role, what in held.items() if what is not None}
        self._networks: dict[str, Network] = {}
        self._data: dict[str, Data] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_networks": {}, "_data": {}}

    def network(self, role: str) -> Network:
        """A network, opened once. Raises as `open_model`."""
        if role not in self._networks:
            from querist.sources.models import open_model

            what = self.held.get(role, self.addresses[role])
            found = open_model(what.open() if isinstance(what, StoredModule) else what)
            module = getattr(found, "module", None)
            if role not in self.held and module is not None and hasattr(module, "eval"):
                module.eval()  # a factory leaves its modules in training mode: no mistake that a person should be told of
            self._networks[role] = found
        return self._networks[role]

    def data(self, role: str, config: CaptureOptions) -> Data:
        """Data, opened once; its `name` is what the study calls it. Raises as `open_data`."""
        if role not in self._data:
            self._data[role] = self._opened(role, config)
        return self._data[role]

    def _opened(self, role: str, config: CaptureOptions) -> Data:
        from querist.sources.data import Data, open_data

        what = self.held.get(role, self.addresses[role])
        if isinstance(what, StoredRows):
            return what.open()
        data = open_data(what, transform=transform_of(config), tokenizer=config.tokenizer)
        source = data.source
        if role in self.held and not (isinstance(what, Data) and what.source):
            source = f"in memory: {next(other for other, twin in self.held.items() if _same(twin, what))}"
        return replace(data, name=self.addresses[role], source=source, passed_over=[])

    def fingerprints(self, config: CaptureOptions, roles: Mapping[str, str]) -> dict[str, str]:
        """Content hashes of the networks and of the chosen rows, by role; `roles` says which are "model" and which "data"."""
        found = {}
        for role, kind in roles.items():
            name = f"{role}: {self.addresses[role]}"
            found[name] = self._of_network(role) if kind == "model" else _of_rows(self.data(role, config), config)
        return found

    def _of_network(self, role: str) -> str:
        module = getattr(self.network(role), "module", None)
        if role not in self.held and (module is None or not hasattr(module, "named_parameters")):
            from querist.sources.address import parse

            return fingerprint(parse(self.addresses[role]).local())
        digest = hashlib.sha256()
        for name, value in _tensors(module).items() if hasattr(module, "named_parameters") else ():
            digest.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
            digest.update(_bytes(value))
        return f"sha256:{digest.hexdigest()}"

    def portable(self, config: CaptureOptions, folder: Path, roles: Mapping[str, str]) -> Material:
        """The same with nothing held in memory but structures. Raises BadOption for a network that cannot be written."""
        moved: dict[str, Any] = {}
        for role, what in self.held.items():
            path = folder / f"{role}.safetensors"
            if isinstance(what, StoredModule | StoredRows | str):
                moved[role] = what
            elif roles[role] == "data":
                moved[role] = _write_rows(self.data(role, config), config, path)
            else:
                moved[role] = _write_network(what, path)
        return Material(self.addresses, moved)


def _same(one: Any, other: Any) -> bool:
    """Whether two objects in memory are one data set: the same object, or pairs (rows, labels) of the same rows."""
    pairs = isinstance(one, tuple) and isinstance(other, tuple) and bool(one) and bool(other)
    return one is other or (pairs and one[0] is other[0])


def _tensors(module: Any) -> dict[str, Any]:
    """Parameters and buffers of a module by name, also those that a state dict leaves out."""
    parts = (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    return {name: value for part in parts for name, value in part}


def _bytes(value: Any) -> bytes:
    import torch

    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""


def _of_rows(data: Data, config: CaptureOptions) -> str:
    """A hash of the ids, inputs and labels of the chosen rows: the content, wherever it lies."""
    from querist.sources.data import batches

    digest, before = hashlib.sha256(), len(data.passed_over)
    for batch in batches(data, _chosen(data, config), config.batch_size):
        digest.update(np.ascontiguousarray(batch.ids).tobytes())
        for name, value in sorted(named(batch.inputs).items()):
            digest.update(f"{name} {tuple(value.shape[1:])} {value.dtype}\n".encode())
            digest.update(_bytes(value))
        if batch.labels is not None:
            digest.update(np.ascontiguousarray(batch.labels).tobytes())
    del data.passed_over[before:]
    return f"sha256:{digest.hexdigest()}"


def _chosen(data: Data, config: CaptureOptions) -> np.ndarray:
    """The ids of all rows that any repetition reads, ascending."""
    from querist.sources.data import choose_ids

    return np.unique(np.concatenate([choose_ids(data, config.n, seed=seed) for seed in config.seeds]))


def _write_rows(data: Data, config: CaptureOptions, path: Path) -> StoredRows:
    import torch
    from safetensors.torch import save_file

    batch = data.read(_chosen(data, config))
    tensors = {name: value.detach().cpu().contiguous() for name, value in named(batch.inputs).items()}
    tensors["ids"] = torch.from_numpy(np.ascontiguousarray(batch.ids))
    if batch.labels is not None:
        tensors["labels"] = torch.from_numpy(np.ascontiguousarray(batch.labels))
    with replacing(path) as temporary:
        save_file(tensors, temporary)
    return StoredRows(str(path), data.name, data.source, data.kind, data.classes)


def _write_network(what: Any, path: Path) -> Any:
    import torch

    if isinstance(what, torch.export.ExportedProgram):
        torch.export.save(what, path := path.with_suffix(".pt2"))
        return str(path)
    if isinstance(what, torch.jit.ScriptModule):
        torch.jit.save(what, str(path := path.with_suffix(".ts")))
        return str(path)
    module = what if isinstance(what, torch.nn.Module) else getattr(what, "module", None)
    if not isinstance(module, torch.nn.Module):
        raise BadOption(
            "This network cannot cross processes",
            value=type(what).__qualname__,
            allowed="a torch module, an exported program, an address",
            mend="Use engine serial",
        )
    from safetensors.torch import save_file

    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in _tensors(module).items()}
    with replacing(path) as temporary:
        save_file(tensors, temporary)
    return StoredModule(copy.deepcopy(module).to("meta"), str(path))
