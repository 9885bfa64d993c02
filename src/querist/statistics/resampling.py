"""Bootstrap and jackknife: intervals from resampled rows, clusters and nested levels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from querist.errors import BadOption, TooFewRows
from querist.statistics.arrays import codes, same_length
from querist.statistics.estimate import Estimate
from querist.statistics.streams import stream

__all__ = ["bootstrap", "jackknife", "resample_weights"]


def bootstrap(
    values: Any,
    statistic: Callable[[Any], float],
    *,
    clusters: Sequence[ArrayLike] | ArrayLike = (),
    replicates: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Percentile interval of `statistic(values[rows])` over resampled rows.

    values: array [n, …], or a tuple of such arrays, which are resampled together. clusters: one id column, or several from
    the outermost level inwards: units of each level are drawn with replacement inside the unit drawn above it, the rows of
    the innermost unit are all kept. Raises TooFewRows below two units of the outermost level, BadOption, ShapeMismatch.

    Source: Davison & Hinkley (1997), sections 2.4, 3.8 and 5.3.1.
    """
    _level(level)
    if replicates < 20:
        raise BadOption("Too few replicates for an interval", value=replicates, allowed="20 or more")
    together = isinstance(values, tuple)
    arrays = tuple(np.asarray(part) for part in values) if together else (np.asarray(values),)
    n = same_length(*((f"values {i}", part) for i, part in enumerate(arrays)))
    columns = _columns(clusters, n)
    tree = _tree(np.arange(n), columns)
    if (len(tree) if columns else n) < 2:
        raise TooFewRows(
            "A bootstrap needs two units to draw from", value=len(tree) if columns else n, allowed="2 or more"
        )
    rng = stream(seed, "bootstrap")
    drawn = np.empty(replicates)
    for b in range(replicates):
        rows = _draw(tree, rng) if columns else rng.integers(0, n, n)
        parts = tuple(part[rows] for part in arrays)
        drawn[b] = statistic(parts if together else parts[0])
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(
        float(statistic(arrays if together else arrays[0])),
        float(drawn.std(ddof=1)),
        float(low),
        float(high),
        None,
        None,
        len(tree) if columns else n,
        "percentile bootstrap",
    )


def _level(level: float) -> None:
    if not 0 < level < 1:
        raise BadOption("A level lies outside its range", value=level, allowed="0 < level < 1")


def _columns(clusters: Any, n: int) -> list[np.ndarray]:
    if (isinstance(clusters, np.ndarray) and clusters.ndim == 1) or (
        isinstance(clusters, list) and clusters and not isinstance(clusters[0], list | tuple | np.ndarray)
    ):
        clusters = (clusters,)
    columns = [np.asarray(column) for column in clusters]
    for column in columns:
        same_length(("values", range(n)), ("clusters", column))
    return columns


def _tree(rows: np.ndarray, columns: list[np.ndarray]) -> list[Any]:
    """Nested lists of row indices: one list per unit of the outermost column, arrays of rows at the bottom."""
    if not columns:
        return list(rows)
    label, count = codes(columns[0][rows])
    groups = [rows[label == k] for k in range(count)]
    if len(columns) == 1:
        return groups
    return [_tree(group, columns[1:]) for group in groups]


def _draw(tree: list[Any], rng: np.random.Generator) -> np.ndarray:
    chosen = rng.integers(0, len(tree), len(tree))
    return np.concatenate([tree[k] if isinstance(tree[k], np.ndarray) else _draw(tree[k], rng) for k in chosen])


def resample_weights(
    n: int,
    replicates: int,
    *,
    kind: Literal["poisson", "multinomial"] = "poisson",
    cluster: ArrayLike | None = None,
    seed: int = 0,
) -> Iterator[np.ndarray]:
    """How often each of n rows is drawn, one int array [n] per replicate.

    A statistic made of weighted cumulative sums takes these weights on rows sorted once, so no replicate sorts again. Rows of a
    cluster share their weight. "poisson" draws each count independently (the total varies), "multinomial" keeps the total.

    Source: Chamandy et al. (2012) for the Poisson bootstrap.
    """
    label, count = codes(cluster) if cluster is not None else (None, n)
    if label is not None:
        same_length(("rows", range(n)), ("cluster", label))
    rng = stream(seed, "resample weights", kind)
    for _ in range(replicates):
        if kind == "poisson":
            weights = rng.poisson(1.0, count)
        elif kind == "multinomial":
            weights = np.bincount(rng.integers(0, count, count), minlength=count)
        else:
            raise BadOption("No such kind of weights", value=kind, allowed="poisson, multinomial")
        yield weights if label is None else weights[label]


def jackknife(groups: ArrayLike, statistic: Callable[[np.ndarray], float], *, level: float = 0.95) -> Estimate:
    """Delete-group jackknife: `statistic(keep)` with a boolean mask of the rows kept; t quantiles with G − 1 degrees.

    groups: id of each row [n]; one id per row gives the delete-one jackknife. Raises TooFewRows below two groups.
    Source: Efron & Tibshirani (1993), chapter 11.
    """
    from scipy.special import stdtrit

    _level(level)
    label, count = codes(groups)
    if count < 2:
        raise TooFewRows("A jackknife needs two groups", value=count, allowed="2 or more")
    everything = float(statistic(np.ones(label.size, dtype=bool)))
    without = np.array([statistic(label != k) for k in range(count)])
    se = float(np.sqrt((count - 1) / count * np.sum((without - without.mean()) ** 2)))
    half = float(stdtrit(count - 1, (1 + level) / 2)) * se
    return Estimate(everything, se, everything - half, everything + half, None, None, count, "delete-group jackknife")
