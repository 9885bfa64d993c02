"""A folder of pictures, one folder inside it for each class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from querist.errors import SourceNotFound, TooFewRows
from querist.sources.address import Address
from querist.sources.data import Data
from querist.sources.images.pictures import decode, pictures_data
from querist.sources.images.transform import Transform

__all__ = ["open_folder"]

ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm"})


def open_folder(address: Address, transform: Transform) -> Data:
    """`folder:DIR[#split]`: classes are the names of the folders inside, sorted; pictures are sorted by path, ids count them.

    With a split it is the folder `DIR/split`. Pictures beside the classes have no label, and then none has. A file with a
    picture's ending that is none is passed over when it is read. Raises SourceNotFound, TooFewRows.
    """
    folder = address.only([], split=True).local()
    if address.split:
        folder = folder / address.split
    if not folder.is_dir():
        raise SourceNotFound("There is no folder here", value=str(folder))
    paths = [
        p
        for p in sorted(folder.rglob("*"))
        if p.suffix.lower() in ENDINGS and p.is_file() and not p.name.startswith(".")
    ]
    if not paths:
        raise TooFewRows("There are no pictures in this folder", value=str(folder), allowed=", ".join(sorted(ENDINGS)))
    names = [path.relative_to(folder).parts for path in paths]
    classes = sorted({parts[0] for parts in names if len(parts) > 1})
    place = {name: number for number, name in enumerate(classes)}
    labelled = bool(classes) and all(len(parts) > 1 for parts in names)
    labels = np.array([place[parts[0]] for parts in names], dtype=np.int64) if labelled else None

    def get(one: int) -> np.ndarray:
        return decode(paths[one], str(Path(*names[one])))

    return pictures_data(str(address), get, len(paths), labels, classes if labelled else None, transform)
