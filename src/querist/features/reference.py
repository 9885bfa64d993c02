"""A reference: what the layers of a network hold of the source, in a file, so that later data are compared without it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float, Float32, Int

from querist.errors import BadOption, CorruptFile, SourceNotFound, TooFewRows, UnknownName, near
from querist.features.arrays import counted, order
from querist.features.distances import knots, project, random_directions, sorted_distances
from querist.features.errors import DimensionMismatch
from querist.features.normalise import Normaliser, fit_normaliser
from querist.features.profile import Gap
from querist.files import write_arrays
from querist.statistics import jackknife, max_t, rank_p, stream
from querist.statistics.arrays import check_level

__all__ = ["BINS", "ChunkDraws", "Reference", "ReferenceLayer", "joined"]

BINS = 1024
"""Quantiles kept of every projection and of every unit."""
SMALLEST = 25
"""Images of the smallest batch whose null is kept; the sizes double up to half of the source."""
FORMAT = "querist.reference/1"
KINDS = ("sliced", "per-unit")
GROUPS = 20


@dataclass(frozen=True, slots=True)
class ReferenceLayer:
    """One layer: how it is normalised, its directions (P, d), the quantiles of projections (P, 1024) and of units (d, 1024).

    null: (2, sizes, B), D^p between so many images of one half of the source and the quantiles of the other: sliced, per unit. Half
    of the source errs more than all of it, so the null is a little too wide for small batches.
    """

    name: str
    index: int
    width: int
    sites: int
    scale: Normaliser
    directions: Float[np.ndarray, "P d"]
    lines: Float32[np.ndarray, "P 1024"]
    units: Float32[np.ndarray, "d 1024"]
    null: Float[np.ndarray, "2 sizes B"]

    def terms(self, rows: Float[np.ndarray, "n *sites d"], p: float, kind: str) -> Float[np.ndarray, "k"]:
        """W_p^p of each projection (or unit) between normalised rows and the quantiles."""
        flat = rows.reshape(-1, rows.shape[-1])
        return _terms(flat, self.directions, (self.lines, self.units), p, kind)


@dataclass(frozen=True, slots=True)
class ChunkDraws:
    """What one layer of later data gave: D^p of each chunk of n_c images, the null at that size, and the error of their mean.

    se: of the jackknife over the later images, times √(1 + m/n): the source's n images are gone, and err as these m do.
    """

    order: float
    d: int
    n_c: int
    chunks: Float[np.ndarray, "chunks"]
    null: Float[np.ndarray, "B"]
    se: float | None
    degrees: int


@dataclass(frozen=True, slots=True)
class Reference:
    """The source's side of a comparison: made once (`of`), written and read, then held against later data.

    model, source: what they were called; ids: images of the source that were read; sizes: batch sizes whose null is kept; reduce,
    proj_dim, captured: options of the capture, which later captures must share.
    """

    model: str
    source: str
    ids: Int[np.ndarray, "n"]
    reduce: str
    proj_dim: int | None
    captured: str
    normalise: str
    p: float
    seed: int
    sizes: tuple[int, ...]
    layers: tuple[ReferenceLayer, ...]

    @property
    def names(self) -> list[str]:
        """Its layers in forward order."""
        return [layer.name for layer in self.layers]

    def __getitem__(self, name: str) -> ReferenceLayer:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise UnknownName("The reference has no such layer", value=name, allowed=near(name, self.names))

    @classmethod
    def of(
        cls,
        layers: Mapping[str, Any],
        *,
        ids: Any = None,
        model: str = "",
        source: str = "",
        reduce: str = "mean",
        proj_dim: int | None = None,
        captured: str = "preactivation",
        normalise: Literal["none", "iso", "unit", "whiten"] = "iso",
        p: float = 2.0,
        projections: int = 500,
        permutations: int = 199,
        seed: int = 0,
        places: Mapping[str, tuple[int, int]] | None = None,
    ) -> Reference:
        """From the source's rows by layer, (n, d) or (n, sites, d), not normalised. places: index and width of each layer.

        Raises TooFewRows below 50 images, ShapeMismatch, NonFinite, BadOption, UndefinedMetric for a constant layer.
        """
        p, permutations = order(p), counted(permutations, "The number of draws of the null")
        n = len(next(iter(layers.values())))
        if n < 2 * SMALLEST:
            raise TooFewRows("A reference needs more images of the source", value=n, allowed=f"{2 * SMALLEST} or more")
        sizes = (*(size for i in range(32) if (size := SMALLEST << i) < n // 2), n // 2)
        made = tuple(
            _layer(
                name,
                rows,
                (places or {}).get(name, (i, rows.shape[-1])),
                normalise,
                p,
                projections,
                permutations,
                sizes,
                seed,
            )
            for i, (name, rows) in enumerate(layers.items())
        )
        known = np.arange(n) if ids is None else np.asarray(ids, dtype=np.int64)
        return cls(model, source, known, reduce, proj_dim, captured, normalise, p, seed, sizes, made)

    def draws(
        self,
        name: str,
        rows: Any,
        *,
        kind: Literal["sliced", "per-unit"] = "sliced",
        level: float = 0.05,
        most: int | None = None,
        jackknifed: bool = True,
    ) -> ChunkDraws:
        """Later rows of a layer, not normalised, against its quantiles, in chunks of the largest size whose null is kept.

        Chunks are disjoint and drawn in a seeded order of the images, the same in every layer; as many as the null's B draws can
        still judge at the level, `most` at most. Raises TooFewRows below 25 images, DimensionMismatch, ShapeMismatch, NonFinite.
        """
        if kind not in KINDS:
            raise BadOption("A reference has no such distance", value=kind, allowed=", ".join(KINDS))
        layer = self[name]
        if rows.ndim != (3 if layer.sites > 1 else 2) or (layer.sites > 1 and rows.shape[1] != layer.sites):
            raise DimensionMismatch(
                "Later rows have another number of places than the reference",
                value=f"{rows.shape} and {layer.sites} places",
                allowed="one reduction",
            )
        scaled, m = layer.scale(rows), len(rows)
        at = max((i for i, size in enumerate(self.sizes) if size <= m), default=-1)
        if at < 0:
            raise TooFewRows("Too few images to hold against a reference", value=m, allowed=f"{self.sizes[0]} or more")
        size, null = self.sizes[at], layer.null[KINDS.index(kind), at]
        count = min(m // size, max(1, int(level * (len(null) + 1) + 1e-9)), most or m)
        chosen = stream(self.seed, "chunks", m).permutation(m)[: count * size].reshape(count, size)
        found = np.array([layer.terms(scaled[part], self.p, kind).mean() for part in chosen])
        se, degrees = None, 0
        if jackknifed and rank_p(found.max(), null) <= level:

            def mean(keep: np.ndarray) -> float:
                kept = keep.reshape(count, size)
                parts = [part[k] for part, k in zip(chosen, kept, strict=True)]
                return float(np.mean([layer.terms(scaled[part], self.p, kind).mean() for part in parts]))

            result = jackknife(np.arange(count * size) % GROUPS, mean)
            se, degrees = float(result.se or 0.0) * math.sqrt(1 + count * size / len(self.ids)), result.n - 1
        return ChunkDraws(self.p, layer.directions.shape[1] if kind == "sliced" else 0, size, found, null, se, degrees)

    def write(self, path: str | Path) -> Path:
        """Write to one file, whole or not at all. Returns its path."""
        arrays: dict[str, np.ndarray] = {"ids": self.ids}
        described = []
        for i, layer in enumerate(self.layers):
            plain = {name: getattr(layer, name) for name in ("name", "index", "width", "sites")}
            described.append({**plain, "kind": layer.scale.kind})
            arrays |= {f"{i}.{name}": getattr(layer, name) for name in ("directions", "lines", "units", "null")}
            scale = {"mean": layer.scale.mean, "scale": np.asarray(layer.scale.scale), "kept": layer.scale.kept}
            arrays |= {f"{i}.{name}": value for name, value in scale.items()}
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("ids", "layers")}
        text = json.dumps({"format": FORMAT, "layers": described, **plain})
        arrays["described"] = np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
        write_arrays(Path(path).expanduser(), arrays)
        return Path(path)

    @classmethod
    def read(cls, path: str | Path) -> Reference:
        """Read what `write` wrote. Raises SourceNotFound, CorruptFile."""
        path = Path(path).expanduser()
        if not path.is_file():
            raise SourceNotFound(
                "There is no reference file here", value=str(path), allowed="a file of --save-reference"
            )
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                plain = json.loads(file["described"].tobytes().decode("utf-8"))
                if plain.pop("format") != FORMAT:
                    raise ValueError("another format")
                layers = tuple(_read(file, i, row) for i, row in enumerate(plain.pop("layers")))
                plain["sizes"] = tuple(plain["sizes"])
                return cls(ids=file["ids"], layers=layers, **plain)
        except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
            raise CorruptFile(
                f"The reference cannot be read ({type(error).__name__}: {error})",
                value=str(path),
                mend="Make it again with --save-reference",
            ) from None


def joined(draws: Mapping[str, ChunkDraws], *, level: float = 0.05, sets: int = 1) -> dict[str, Gap]:
    """Gaps by layer of one later set, all layers one family: max-T within a chunk, whose draws layers share, then Bonferroni over
    chunks and over `sets`, the sets of data that are looked at together.

    level: what a p_adj is held against (a level over K looks is divided by K before). raw and null are means over chunks.
    """
    check_level(level)
    names = list(draws)
    null = np.column_stack([draws[name].null for name in names])
    chunks = len(draws[names[0]].chunks)
    each = np.array([max_t([draws[name].chunks[j] for name in names], null, standardise=True) for j in range(chunks)])
    adjusted = np.minimum(1.0, sets * chunks * each.min(axis=0))
    return {name: _gap(draws[name], float(p), level) for name, p in zip(names, adjusted, strict=True)}


def _gap(found: ChunkDraws, p_adj: float, level: float) -> Gap:
    raw, null, power = float(found.chunks.mean()), float(found.null.mean()), found.order
    excess, q95, sd = raw - null, float(np.quantile(found.null, 0.95)), float(found.null.std(ddof=1))
    kind: Literal["jackknife", "null quantile"] = "null quantile"
    low, high = 0.0, max(excess, 0.0) + max(q95 - null, 0.0)
    if p_adj <= level and found.se is not None:
        from scipy.special import stdtrit

        half = float(stdtrit(found.degrees, 1 - level / 2)) * found.se
        kind, low, high = "jackknife", excess - half, excess + half
    roots = [max(value, 0.0) ** (1 / power) for value in (raw, null, q95, excess, low, high)]
    alone = min(1.0, len(found.chunks) * rank_p(found.chunks.max(), found.null))
    return Gap(
        raw=roots[0],
        null_mean=roots[1],
        null_q95=roots[2],
        excess_p=excess,
        excess=roots[3],
        low=roots[4],
        high=roots[5],
        interval_kind=kind,
        ratio=roots[0] / roots[1] if null > 0 else None,
        z=excess / sd if sd > 0 else None,
        mc_se=None,
        p=alone,
        p_adj=p_adj,
        n_c=found.n_c,
        w2_scale=found.d * raw if found.d and power == 2 else None,
    )


def _layer(
    name: str,
    rows: Any,
    place: tuple[int, int],
    normalise: Any,
    p: float,
    projections: int,
    draws: int,
    sizes: Sequence[int],
    seed: int,
) -> ReferenceLayer:
    rows = np.asarray(rows)
    scale = fit_normaliser(rows, normalise)
    scaled = scale(rows)
    stack = scaled if scaled.ndim == 3 else scaled[:, None]
    n, sites, d = stack.shape
    theta = random_directions(d, counted(projections, "The number of projections"), seed).vectors
    flat = stack.reshape(-1, d)
    both = (project(flat, theta).reshape(len(theta), n, sites), np.ascontiguousarray(flat.T).reshape(d, n, sites))
    null = np.empty((2, len(sizes), draws))
    rng = stream(seed, "reference null", n)
    for b in range(draws):
        images = rng.permutation(n)
        for k, pool in enumerate(both):
            half = _sketch(_sorted(pool, images[n // 2 :]))
            for s, size in enumerate(sizes):
                null[k, s, b] = _between(_sorted(pool, images[:size]), half, p).mean()
    lines, units = (_sketch(_sorted(pool, np.arange(n))) for pool in both)
    return ReferenceLayer(name, place[0], place[1], sites, scale, np.array(theta), lines, units, null)


def _terms(
    flat: np.ndarray, theta: np.ndarray, sketches: tuple[np.ndarray, np.ndarray], p: float, kind: str
) -> np.ndarray:
    values = project(flat, theta) if kind == "sliced" else np.ascontiguousarray(flat.T)
    return _between(np.sort(values, axis=1), sketches[KINDS.index(kind)], p)


def _sorted(pool: np.ndarray, images: np.ndarray) -> Float[np.ndarray, "k rows"]:
    return np.sort(pool[:, images].reshape(len(pool), -1), axis=1)


def _sketch(ordered: np.ndarray) -> Float32[np.ndarray, "k 1024"]:
    """Quantile functions at (i + ½)/1024 of rows that are sorted."""
    size = ordered.shape[1]
    at = np.minimum(((np.arange(BINS) + 0.5) / BINS * size).astype(np.int64), size - 1)
    return ordered[:, at].astype(np.float32)


def _between(ordered: np.ndarray, sketch: np.ndarray, p: float) -> Float[np.ndarray, "k"]:
    """W_p^p of each sorted row and its quantile function, taken as 1,024 points of equal weight."""
    return sorted_distances(ordered, sketch, p, knots(ordered.shape[1], BINS)) ** p


def _read(file: Any, i: int, row: Mapping[str, Any]) -> ReferenceLayer:
    part = {name: file[f"{i}.{name}"] for name in ("directions", "lines", "units", "null", "mean", "scale", "kept")}
    scale = part["scale"]
    normaliser = Normaliser(row["kind"], part["mean"], float(scale) if scale.ndim == 0 else scale, part["kept"])
    if part["lines"].shape != (len(part["directions"]), BINS) or part["units"].shape[1:] != (BINS,):
        raise ValueError(f"the arrays of {row['name']} do not belong together")
    return ReferenceLayer(
        row["name"],
        row["index"],
        row["width"],
        row["sites"],
        normaliser,
        part["directions"],
        part["lines"],
        part["units"],
        part["null"],
    )
