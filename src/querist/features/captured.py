"""What a capture is: rows, moments and ids of layers, in memory or in a folder of files."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, Int

from querist.errors import CorruptFile, SourceNotFound, UnknownName, near
from querist.files import fingerprint_array, move_folder, write_json
from querist.sources.tensors.ref import PassedOver

__all__ = ["Capture", "CapturedLayer", "Health"]

INPUT = "<input>"
"""Name of the pseudo-layer 0: the flattened input, projected."""


@dataclass(frozen=True, slots=True)
class CapturedLayer:
    """Values of one layer.

    `rows` float32 [r, d], in ascending order of ids; `images` [r] says to which place in `Capture.ids` each row belongs:
    rows of one image are one cluster. `mean` [d] and `cov` [d, d] (unbiased, NaN for one row) are sums in float64 over all
    rows. `width` is the number of units before a projection, `index` the place in forward order (0 is the input).
    """

    name: str
    index: int
    kind: str
    operation: str
    width: int
    rows: Float32[np.ndarray, "r d"]
    images: Int[np.ndarray, "r"]
    mean: Float[np.ndarray, "d"]
    cov: Float[np.ndarray, "d d"]

    @property
    def clustered(self) -> bool:
        """Whether some image has several rows."""
        return len(np.unique(self.images)) < len(self.images)


@dataclass(frozen=True, slots=True)
class Health:
    """How many of the layers asked for were captured, and why others were not."""

    found: int
    captured: int
    reasons: tuple[PassedOver, ...]


@dataclass(frozen=True, slots=True)
class Capture:
    """What the layers of a network held of a choice of rows.

    `ids` [n] are the rows of `data` that were read, ascending, absolute in `source`; `labels` [n] int64 or None, `classes`
    their names or None. `bytes_bound` was computed before, `bytes_peak` measured (None where the system does not tell).
    `passed_over` lists layers, `unread` rows that could not be read, `notes` what a user should be told.
    """

    model: str
    form: str
    data: str
    source: str
    reduce: str
    proj_dim: int | None
    seed: int
    ids: Int[np.ndarray, "n"]
    labels: Int[np.ndarray, "n"] | None
    classes: tuple[str, ...] | None
    layers: tuple[CapturedLayer, ...]
    bytes_bound: int
    bytes_peak: int | None = None
    passed_over: tuple[PassedOver, ...] = ()
    unread: tuple[PassedOver, ...] = ()
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> CapturedLayer:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise UnknownName("No such layer was captured", value=name, allowed=near(name, self.names))

    def __iter__(self) -> Iterator[CapturedLayer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def n(self) -> int:
        """Rows of the data set that were read."""
        return len(self.ids)

    @property
    def names(self) -> list[str]:
        """Names of the layers in forward order, the input first where it is there."""
        return [layer.name for layer in self.layers]

    @property
    def ids_hash(self) -> str:
        """`sha256:` and the hash of the ids."""
        return fingerprint_array(self.ids)

    @property
    def health(self) -> Health:
        """Captured and found layers, the pseudo-layer of the input not counted."""
        captured = sum(layer.kind != "input" for layer in self.layers)
        return Health(captured + len(self.passed_over), captured, self.passed_over)

    # ---------------------------------------------------------------------------------------------------------- files

    def write(self, folder: str | Path) -> Path:
        """Write into a folder, whole or not at all; one that is there is replaced. Returns its path."""
        folder = Path(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = folder.parent / f".querist-{secrets.token_hex(8)}"
        try:
            (temporary / "layers").mkdir(parents=True)
            described = []
            for place, layer in enumerate(self.layers):
                stem = f"{place:04d}"
                np.save(temporary / "layers" / f"{stem}.npy", np.asarray(layer.rows), allow_pickle=False)
                np.savez(temporary / "layers" / f"{stem}.npz", images=layer.images, mean=layer.mean, cov=layer.cov)
                described.append(
                    {"name": layer.name, "index": layer.index, "kind": layer.kind, "operation": layer.operation}
                    | {"width": layer.width, "file": stem, "shape": list(layer.rows.shape)}
                )
            labels = {} if self.labels is None else {"labels": self.labels}
            np.savez(temporary / "rows.npz", ids=self.ids, **labels)  # pyright: ignore[reportArgumentType]
            plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("layers", "ids", "labels")}
            write_json(temporary / "capture.json", {"format": FORMAT, "layers": described, **plain})
            move_folder(temporary, folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return folder

    @classmethod
    def read(cls, folder: str | Path) -> Capture:
        """Read what `write` wrote; rows are mapped from their files. Raises SourceNotFound, CorruptFile."""
        folder = Path(folder)
        if not (folder / "capture.json").is_file():
            raise SourceNotFound("There is no capture in this folder", value=str(folder))
        try:
            plain = json.loads((folder / "capture.json").read_text(encoding="utf-8"))
            if plain.pop("format") != FORMAT:
                raise ValueError("another format")
            with np.load(folder / "rows.npz", allow_pickle=False) as rows:
                plain |= {"ids": rows["ids"], "labels": rows["labels"] if "labels" in rows.files else None}
            layers = tuple(_layer(folder / "layers", row) for row in plain.pop("layers"))
            for name in ("passed_over", "unread"):
                shaped = [[w, None if s is None else tuple(s), d, r] for w, s, d, r in plain[name]]
                plain[name] = tuple(PassedOver(*row) for row in shaped)
            plain["notes"] = tuple(plain["notes"])
            plain["classes"] = None if plain["classes"] is None else tuple(plain["classes"])
            return cls(layers=layers, **plain)
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            raise CorruptFile(
                f"The capture cannot be read ({type(error).__name__}: {error})", value=str(folder)
            ) from None


FORMAT = "querist.capture/1"


def _layer(folder: Path, row: dict) -> CapturedLayer:
    rows = np.load(folder / f"{row['file']}.npy", mmap_mode="r", allow_pickle=False)
    with np.load(folder / f"{row['file']}.npz", allow_pickle=False) as found:
        images, mean, cov = found["images"], found["mean"], found["cov"]
    if list(rows.shape) != row["shape"] or len(images) != len(rows) or mean.shape != rows.shape[1:]:
        raise ValueError(f"the files of {row['name']} do not belong together")
    return CapturedLayer(
        row["name"], row["index"], row["kind"], row["operation"], row["width"], rows, images, mean, cov
    )
