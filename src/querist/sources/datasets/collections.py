"""Data sets to be fed to a network, known by name: their parts, their classes, and the files or functions they come from."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from querist.errors import UnknownName, near
from querist.sources.address import Address

if TYPE_CHECKING:
    from querist.sources.data import Data
    from querist.sources.images.transform import Transform

__all__ = ["COLLECTIONS", "Collection", "Part", "open_collection"]

_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
_CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_DIGITS = tuple("0123456789")


@dataclass(frozen=True, slots=True)
class Part:
    """One part: registered files in a format with its options, or `module:function` that makes (rows, labels) or (texts, labels)."""

    form: str
    files: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    made: str = ""


@dataclass(frozen=True, slots=True)
class Collection:
    """A named data set. The first part is meant where none is named."""

    name: str
    what: str
    licence: str
    parts: Mapping[str, Part]
    classes: tuple[str, ...] = ()


_HERE = "querist.sources.datasets"
_ALL = (
    Collection(
        "fashion-mnist",
        "Fashion-MNIST: 28 x 28 grey pictures of clothes in 10 classes, 10,000 test and 60,000 training.",
        "MIT",
        {
            "test": Part("idx", ("fashion-mnist-t10k-images", "fashion-mnist-t10k-labels")),
            "train": Part("idx", ("fashion-mnist-train-images", "fashion-mnist-train-labels")),
        },
        _CLOTHES,
    ),
    Collection(
        "fashion-mnist-small",
        "Fashion-MNIST, 1,000 test and 2,000 training pictures, bundled.",
        "MIT",
        {
            part: Part("npz", ("fashion-mnist-small",), (("x", f"x_{part}"), ("y", f"y_{part}")))
            for part in ("test", "train")
        },
        _CLOTHES,
    ),
    Collection(
        "mnist",
        "MNIST: 28 x 28 grey pictures of handwritten digits, 10,000 test.",
        "CC-BY-SA-3.0 as commonly redistributed",
        {"test": Part("idx", ("mnist-t10k-images", "mnist-t10k-labels"))},
        _DIGITS,
    ),
    Collection(
        "cifar10-jpeg",
        "CIFAR-10: 32 x 32 colour pictures in 10 classes as lossy JPEG, 10,000 test and 5,000 training.",
        "none stated; research use (A. Krizhevsky)",
        {"test": Part("npz", ("cifar10-jpeg-test",)), "train": Part("npz", ("cifar10-jpeg-train",))},
        _CIFAR,
    ),
    Collection(
        "digits",
        "1,797 grey pictures of handwritten digits, 8 x 8, of scikit-learn.",
        "CC-BY-4.0 (UCI optical recognition of handwritten digits)",
        {"all": Part("rows", made=f"{_HERE}.pictures:digits")},
        _DIGITS,
    ),
    Collection(
        "tiny-images",
        "2,000 drawn colour pictures, 16 x 16, of 4 shapes: made from a seed, for trying things out.",
        "none needed",
        {"all": Part("rows", made=f"{_HERE}.pictures:tiny_images")},
        ("disc", "square", "cross", "stripes"),
    ),
    *(
        Collection(
            f"docstrings-{name}",
            f"First sentences of the public docstrings of {package}, read as text from the installed files.",
            licence,
            {"all": Part("text", made=f"{_HERE}.docstrings:{function}")},
            ("module", "class", "function", "method"),
        )
        for name, function, package, licence in (
            ("stdlib", "stdlib", "Python's standard library", "PSF-2.0"),
            ("sklearn", "sklearn", "scikit-learn", "BSD-3-Clause"),
        )
    ),
)

COLLECTIONS: Mapping[str, Collection] = {collection.name: collection for collection in _ALL}
"""Data sets that can be fed to a network by name."""


def open_collection(address: Address, transform: Transform, tokenizer: Any) -> Data:
    """`name[#part]`. Raises UnknownName for a part, SourceNotFound where its files are not here."""
    from querist.sources.images.pictures import stack_data
    from querist.sources.text import text_data

    address.only([], split=True)
    collection = COLLECTIONS[address.path]
    split = address.split or next(iter(collection.parts))
    if split not in collection.parts:
        raise UnknownName(f"{collection.name} has no such part", value=split, allowed=near(split, collection.parts))
    part = collection.parts[split]
    if part.made:
        module, _, function = part.made.partition(":")
        rows, labels = getattr(importlib.import_module(module), function)()
        if part.form == "text":
            data = text_data(str(address), rows, tokenizer, labels=labels, classes=collection.classes)
        else:
            data = stack_data(str(address), rows, labels, collection.classes, transform)
    else:
        data = _of_files(part, transform)
    data.name = str(address)
    data.classes = collection.classes or data.classes
    data.source = f"{collection.name}#{split}"
    return data


def _of_files(part: Part, transform: Transform) -> Data:
    from querist.sources.datasets.registry import locate
    from querist.sources.images.idx import open_idx
    from querist.sources.images.npz import open_npz

    paths = [str(locate(name)) for name in part.files]
    address = Address("file", ",".join(paths), part.form, part.options)
    return open_idx(address, transform) if part.form == "idx" else open_npz(address, transform)
