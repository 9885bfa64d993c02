"""Concept tables by address and by name: files, `render:birds`, and the registered data sets."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.concepts.data import ConceptData
from querist.concepts.folders import read_folder
from querist.concepts.tabular import archive, class_matrix, read_npz, read_table, write_parquet
from querist.errors import BadOption, SourceNotFound, UnknownName

if TYPE_CHECKING:
    from querist.sources.address import Address

__all__ = [
    "REGISTERED",
    "birds",
    "class_matrix",
    "open_concepts",
    "read_npz",
    "read_table",
    "registered",
    "write_parquet",
]

COMMON = 500
"""Training rows a CUB concept must be present in: the filter of the CAT release, which leaves 98 of 104 columns."""

DERM7PT = (
    "pigment_network",
    "streaks",
    "pigmentation",
    "regression_structures",
    "dots_and_globules",
    "blue_whitish_veil",
    "vascular_structures",
)
ZOO = ("[!at]*", "airborne", "aquatic", "toothed", "tail")
"""The column of names is no id: frog stands there twice."""


def registered(name: str) -> ConceptData:
    """A registered table of concepts: cub-concepts, awa2, derm7pt, digits-strokes, zoo, mushroom. Raises UnknownName, SourceNotFound."""
    if name not in REGISTERED:
        raise UnknownName("No registered table of concepts has this name", value=name, allowed=", ".join(REGISTERED))
    return REGISTERED[name]()


def birds(n: int = 3600, *, seed: int = 0, flips: float | None = None) -> ConceptData:
    """Drawn birds with their pictures uint8 [n 3 32 32]: two thirds train, a ninth val, the rest test (2,400, 400, 800)."""
    from querist.sources.datasets import birds as drawn

    concepts, labels = drawn.birds(n, seed=seed, flips=drawn.FLIPS if flips is None else flips)
    place = np.arange(n)
    return ConceptData(
        concepts,
        labels,
        images=np.ascontiguousarray(drawn.render(concepts, seed).transpose(0, 3, 1, 2)),
        concept_names=drawn.CONCEPTS,
        class_names=drawn.CLASSES,
        split=np.where(3 * place < 2 * n, "train", np.where(9 * place < 7 * n, "val", "test")),
        ids=[str(i) for i in range(n)],
    )


def open_concepts(source: Any, **options: Any) -> ConceptData:
    """DATA as it is addressed: a CSV, Parquet or npz file, a folder of pictures with such a table, `render:birds?n=…&seed=…`, a
    registered name, or a table in memory.

    Options are those of the reader; a name and `render:` take none. An address may name a part, `…#train`.
    Raises BadOption, UnsupportedFormat and what the readers raise.
    """
    from querist.sources.address import parse

    if isinstance(source, ConceptData):
        return source
    if not isinstance(source, str):
        return read_npz(source, **options) if Path(str(source)).suffix == ".npz" else read_table(source, **options)
    address = parse(source)
    if address.format == "render":
        address.only(["n", "seed", "flips"], split=True)
        if address.path != "birds":
            raise UnknownName("Nothing of this name can be drawn", value=address.path, allowed="birds")
        held = dict(address.options)
        try:
            flips = float(held["flips"]) if "flips" in held else None
            data = birds(int(held.get("n", 3600)), seed=int(held.get("seed", 0)), flips=flips)
        except ValueError as error:
            if isinstance(error, BadOption):
                raise
            raise BadOption(
                "Birds need numbers", value=source, allowed="render:birds?n=3600&seed=0&flips=0.07"
            ) from None
    elif address.kind == "name":
        data = registered(address.path)
    elif address.format == "npz":
        data = read_npz(address.path, **(dict(address.options) | options))
    elif address.format == "folder":
        data = read_folder(address.path, **(_spelled(address) | options))
    else:
        data = read_table(address.path, **(_spelled(address) | options))
    return data.part(address.split) if address.split else data


def _spelled(address: Address) -> dict[str, Any]:
    """Options of `read_table` as an address spells them: lists by commas, one_hot as true or false."""
    address.only(["label", "concepts", "id", "split", "missing", "one_hot", "space"], split=True)
    held: dict[str, Any] = dict(address.options)
    for name in ("concepts", "missing"):
        if name in held:
            held[name] = held[name].split(",")
    if "one_hot" in held:
        if held["one_hot"] not in ("true", "false"):
            raise BadOption("one_hot is yes or no", value=held["one_hot"], allowed="true, false")
        held["one_hot"] = held["one_hot"] == "true"
    return held


def _cub() -> ConceptData:
    """Image-level CUB: the columns present in at least 500 training images, named where the names' file is here too."""
    from querist.sources.datasets.registry import locate

    arrays = archive(locate("cub-concepts"))
    values, train, index = (arrays[key]() for key in ("concepts", "is_train", "attribute_index"))
    kept = np.flatnonzero(values[train.astype(bool)].sum(axis=0) >= COMMON)
    names, groups = [f"attribute {i}" for i in index[kept]], None
    try:
        with locate("cub-attributes").open(encoding="utf-8", newline="") as file:
            known = list(csv.DictReader(file))
    except SourceNotFound:
        pass
    else:
        names = [known[int(i)]["name"] for i in index[kept]]
        groups = [known[int(i)]["group"] for i in index[kept]]
    return ConceptData(
        values[:, kept],
        arrays["class_id"](),
        concept_names=names,
        groups=groups,
        split=np.where(train.astype(bool), "train", "test"),
        ids=[str(i + 1) for i in range(len(values))],
    )


def _named(name: str, **options: Any) -> Callable[[], ConceptData]:
    def read() -> ConceptData:
        from querist.sources.datasets.registry import locate

        return read_table(locate(name), **options)

    return read


STROKES = ("top bar", "upper left", "upper right", "middle bar", "lower left", "lower right", "bottom bar")
SEGMENTS = (
    "1110111",
    "0010010",
    "1011101",
    "1011011",
    "0111010",
    "1101011",
    "1101111",
    "1010010",
    "1111111",
    "1111011",
)
"""The strokes of each digit as a seven-segment display shows it, in the order of STROKES."""
LOOPS = ("upper loop", "lower loop", "one loop of full height")


def _digits() -> ConceptData:
    """scikit-learn's digits, each with the strokes and loops of its class: a class-level table of ten concepts, without pictures."""
    from querist.sources.datasets.pictures import digits

    _, labels = digits()
    loops = np.zeros((10, 3))
    loops[[8, 9], 0] = loops[[6, 8], 1] = loops[0, 2] = 1
    rows = np.column_stack([np.array([[int(on) for on in digit] for digit in SEGMENTS]), loops])
    return ConceptData(rows[labels], labels, concept_names=(*STROKES, *LOOPS), ids=[str(i) for i in range(len(labels))])


REGISTERED: dict[str, Callable[[], ConceptData]] = {
    "cub-concepts": _cub,
    "awa2": _named("awa2", label="class"),
    "derm7pt": _named("derm7pt", label="diagnosis", concepts=DERM7PT, one_hot=True),
    "digits-strokes": _digits,
    "zoo": _named("zoo", label="type", concepts=ZOO, one_hot=True),
    "mushroom": _named("mushroom", label="class", missing="?", one_hot=True),
}
