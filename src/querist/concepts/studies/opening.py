"""The table, reference and model of a study: addresses or objects in memory, opened once per process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.concepts.configs import DataOptions
from querist.concepts.data import ConceptData, same_schema
from querist.errors import BadOption, ShapeMismatch, TooFewRows
from querist.files import fingerprint, fingerprint_array, replacing, write_json

if TYPE_CHECKING:
    from querist.concepts.model import CBM

__all__ = ["Material", "StoredTable", "called", "read_data"]


def called(what: Any, role: str) -> str:
    """What an address or an object in memory is called: the address, or its role."""
    return os.fspath(what) if isinstance(what, str | os.PathLike) else role


def read_data(source: Any, config: DataOptions) -> ConceptData:
    """DATA as it is addressed, read with the options of the command. Raises BadOption for options that it does not take."""
    from querist.concepts.readers import open_concepts
    from querist.sources.address import parse

    if isinstance(source, ConceptData | StoredTable):
        return source.open() if isinstance(source, StoredTable) else source
    given: dict[str, Any] = {
        "label": config.label,
        "concepts": list(config.concepts) or None,
        "id": config.id,
        "split": config.split,
        "missing": list(config.missing) or None,
        "one_hot": config.one_hot or None,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if config.npz is not None:
        if given:
            raise BadOption(
                "Columns and keys of an archive cannot both be named", value=config.npz, allowed="one of the two"
            )
        try:
            given = dict(part.split("=", 1) for part in config.npz.split(","))
        except ValueError:
            raise BadOption(
                "Keys are named as concepts=KEY,labels=KEY", value=config.npz, allowed="NAME=KEY by commas"
            ) from None
        if unknown := set(given) - {"concepts", "labels", "split"}:
            raise BadOption(
                "No such array is read", value=", ".join(sorted(unknown)), allowed="concepts, labels, split"
            )
    if isinstance(source, str):
        address = parse(source)
        if address.format == "render" or address.kind == "name":
            if given or config.space != "hard":
                raise BadOption(
                    "A registered or drawn table takes no options of a file",
                    value=", ".join(given) or config.space,
                    mend="Leave them out",
                )
            return open_concepts(source)
        if address.format == "npz" and config.npz is None and given:
            raise BadOption("An archive has keys, not columns", value=", ".join(given), mend="Name them with --npz")
    if config.space != "hard":
        given["space"] = config.space
    return open_concepts(source, **given)


@dataclass(frozen=True)
class StoredTable:
    """A table that was in memory, written with its pictures: where it lies."""

    path: str

    @classmethod
    def write(cls, data: ConceptData, folder: Path, name: str) -> StoredTable:
        """Write concepts, labels, pictures and names into `folder`."""
        arrays: dict[str, np.ndarray] = {"concepts": data.concepts, "codes": data.codes}
        for field in ("split", "ids"):
            if getattr(data, field) is not None:
                arrays[field] = getattr(data, field)
        if data.images is not None:
            arrays["images"] = np.asarray(data.images)
        with replacing(folder / f"{name}.npz") as kept, kept.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        classes = [label.item() if isinstance(label, np.generic) else label for label in data.classes]
        names = {"classes": classes, "concept_names": data.concept_names, "groups": data.groups, "space": data.space}
        write_json(folder / f"{name}.json", names)
        return cls(str(folder / name))

    def open(self) -> ConceptData:
        """The table as it was."""
        names = json.loads(Path(self.path + ".json").read_text("utf-8"))
        with np.load(self.path + ".npz", allow_pickle=False) as archive:
            held = {key: archive[key] for key in archive.files}
        return ConceptData(
            held["concepts"],
            held["codes"],
            images=held.get("images"),
            concept_names=names["concept_names"],
            class_names=names["classes"],
            groups=names["groups"],
            split=held.get("split"),
            ids=held.get("ids"),
            space=names["space"],
        )


class Material:
    """What a study reads, by role: data, reference, model. Objects in memory come first, then addresses."""

    def __init__(self, addresses: Mapping[str, str | None], held: Mapping[str, Any] | None = None):
        self.addresses = {role: where for role, where in addresses.items() if where}
        self.held = {role: what for role, what in (held or {}).items() if what is not None}
        self._opened: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"addresses": self.addresses, "held": self.held, "_opened": {}}

    def table(self, role: str, config: DataOptions) -> ConceptData | None:
        """The table of a role (data, reference), opened once; None where there is none."""
        if role not in self._opened:
            what = self.held.get(role, self.addresses.get(role))
            self._opened[role] = None if what is None else read_data(what, config)
        return self._opened[role]

    def data(self, config: DataOptions) -> ConceptData:
        """The table under study. Raises BadOption where none is named, TooFewRows for a single class."""
        found = self.table("data", config)
        if found is None:
            raise BadOption("There is no table to look at", value="", mend="Name DATA")
        if int((found.class_sizes > 0).sum()) < 2:
            raise TooFewRows("A table needs two classes", value=int((found.class_sizes > 0).sum()), allowed="2 or more")
        return found

    def suspect(self, config: DataOptions) -> tuple[ConceptData, np.ndarray]:
        """What a model learns from, and is searched for poison: the rows of train and val where there is a split, else all."""
        data = self.data(config)
        rows = np.arange(data.n)
        if data.split is not None and "train" in data.split:
            rows = np.flatnonzero(np.isin(data.split, ("train", "val")))
        return data.subset(rows).changed(split=None), rows

    def reference(self, config: DataOptions) -> ConceptData | None:
        """The trusted rows. Raises SchemaMismatch where their concepts are others."""
        found = self.table("reference", config)
        if found is not None:
            same_schema(self.data(config), found)
        return found

    def model(self, config: DataOptions) -> CBM | None:
        """The model under study, None where none was given. Raises what opening it raises, ShapeMismatch for another table's."""
        if "model" not in self._opened:
            what = self.held.get("model", self.addresses.get("model"))
            self._opened["model"] = (
                None if what is None else _fitting(_model(what, self.data(config)), self.data(config))
            )
        return self._opened["model"]

    def fingerprints(self, config: DataOptions, more: Mapping[str, str | None] = {}) -> dict[str, str]:
        """Content hashes of tables, model and of further files."""
        found: dict[str, str] = {}
        for role in ("data", "reference"):
            table = self.table(role, config)
            if table is not None:
                found[role] = _table_hash(table)
        if (model := self.model(config)) is not None:
            found["model"] = _model_hash(model)
        return found | {name: fingerprint(path) for name, path in more.items() if path}

    def portable(self, config: DataOptions, folder: Path) -> Material:
        """The same with tables in memory written once into `folder`; a model in memory travels as it is."""
        held = {}
        for role, what in self.held.items():
            held[role] = StoredTable.write(what, folder, role) if isinstance(what, ConceptData) else what
        return Material(self.addresses, held)


def _model(what: Any, data: ConceptData) -> CBM:
    from torch import nn

    from querist.concepts.model import CBM
    from querist.sources.models import build_module

    if isinstance(what, CBM):
        return what
    if isinstance(what, tuple | list) and len(what) == 2:
        return CBM(what[0], what[1], input="logit" if what[0] is not None else data.space)
    if isinstance(what, nn.Module):
        return CBM(None, what, input=data.space, concept_names=data.concept_names, classes=data.classes)
    if not isinstance(what, str | os.PathLike):
        raise BadOption(
            "This is no bottleneck model", value=type(what).__qualname__, allowed="CBM, (g, f), f, a folder"
        )
    text = os.fspath(what)
    if text.startswith(("g=", "f=")):
        named = dict(part.split("=", 1) for part in text.replace(",f=", "\0f=").replace(",g=", "\0g=").split("\0"))
        if "f" not in named:
            raise BadOption("A bottleneck model needs its head", value=text, allowed="g=MODEL,f=MODEL or f=MODEL")
        g = build_module(named["g"]) if "g" in named else None
        return CBM(g, build_module(named["f"]), input="logit" if g is not None else data.space)
    return CBM.load(text)


def _fitting(model: CBM, data: ConceptData) -> CBM:
    """The model where it fits the table: one look at a row. A model of another order of classes is refused, not guessed at."""
    names = [str(label) for label in model.classes]
    if names and names != [str(label) for label in data.classes]:
        raise ShapeMismatch(
            "The model names other classes than the table",
            value=", ".join(names[:8]),
            allowed=", ".join(str(label) for label in data.classes[:8]),
            mend="Give the table that it was trained for",
        )
    row = np.nan_to_num(np.asarray(data.concepts[:1], dtype=np.float32))
    if model.g is not None:
        if data.images is None:
            return model
        row = model.predict_concepts(data.images[:1])
        if row.shape[1] != data.k:
            raise ShapeMismatch(
                "The model reads another number of concepts",
                value=row.shape[1],
                allowed=str(data.k),
                mend="Give its own table",
            )
    try:
        found = model.scores(row)
    except RuntimeError as error:
        raise ShapeMismatch(
            "The model's head does not take the table's concepts",
            value=str(error).splitlines()[0],
            allowed=f"{data.k} concepts",
        ) from None
    if found.shape[1] != data.n_classes:
        raise ShapeMismatch(
            "The model has another number of classes", value=found.shape[1], allowed=str(data.n_classes)
        )
    return model


def _table_hash(data: ConceptData) -> str:
    import hashlib

    digest = hashlib.sha256()
    for array in (data.concepts, data.codes, *(() if data.images is None else (np.asarray(data.images),))):
        digest.update(fingerprint_array(np.ascontiguousarray(array)).encode())
    for names in (data.concept_names, [str(label) for label in data.classes], data.split, data.groups or ()):
        digest.update(json.dumps([] if names is None else [str(name) for name in names]).encode())
    return digest.hexdigest()


def _model_hash(model: CBM) -> str:
    import hashlib

    digest = hashlib.sha256(f"{model.mode} {model.input}".encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(fingerprint_array(np.ascontiguousarray(value.detach().cpu().float().numpy())).encode())
    return digest.hexdigest()
