"""Bootstrap of the library conventions: weights on rows sorted once, never a sort again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from querist.effects.metrics._causalml import causalml_auuc, causalml_qini
from querist.effects.metrics._curves import Areas, areas
from querist.effects.metrics._order import Ranked
from querist.effects.metrics._shares import uplift_of
from querist.effects.metrics._sklift import sklift_auuc, sklift_qini
from querist.errors import BadOption, UndefinedMetric
from querist.statistics import Estimate, resample_weights
from querist.statistics.arrays import as_array, check_level

__all__ = ["NAMES", "Replicates", "every_number", "replicates"]

CUT = "uplift@"
UNDEFINED = 0.05
"""Largest share of resamples without a value at which an interval is still given."""

_NUMBERS = {
    "sklift qini": lambda a, b: sklift_qini(a, binary=b),
    "sklift auuc": lambda a, b: sklift_auuc(a, binary=b),
    "causalml qini": lambda a, b: causalml_qini(a),
    "causalml auuc": lambda a, b: causalml_auuc(a),
    "sklift qini raw": lambda a, b: sklift_qini(a, binary=b, normalise=False),
    "sklift auuc raw": lambda a, b: sklift_auuc(a, binary=b, normalise=False),
    "causalml qini raw": lambda a, b: causalml_qini(a, normalise=False),
    "causalml auuc raw": lambda a, b: causalml_auuc(a, normalise=False),
}
NAMES = tuple(_NUMBERS)


@dataclass(frozen=True, slots=True)
class Replicates:
    """Numbers on the rows themselves (`observed`) and on each resample (`drawn`, NaN where one has no value)."""

    observed: dict[str, float]
    drawn: dict[str, Float[np.ndarray, "B"]]
    n: int

    def interval(self, name: str, *, level: float = 0.95) -> Estimate:
        """Percentile interval of one number. Raises UndefinedMetric where it has no value on the rows themselves."""
        check_level(level)
        value, drawn = self.observed[name], self.drawn[name]
        if not np.isfinite(value):
            raise UndefinedMetric(f"{name} has no value on these rows")
        kept = drawn[np.isfinite(drawn)]
        method = "Poisson bootstrap, percentile"
        if kept.size < drawn.size:
            method += f", {drawn.size - kept.size} of {drawn.size} resamples without a value"
        if kept.size < max(2, (1 - UNDEFINED) * drawn.size):
            return Estimate(value, None, None, None, None, None, self.n, method)
        low, high = np.quantile(kept, [(1 - level) / 2, (1 + level) / 2])
        return Estimate(value, float(kept.std(ddof=1)), float(low), float(high), None, None, self.n, method)


def replicates(
    rows: Ranked,
    *,
    names: tuple[str, ...] = NAMES,
    count: int = 200,
    kind: Literal["poisson", "multinomial"] = "poisson",
    cluster: Any = None,
    seed: int = 0,
) -> Replicates:
    """Numbers of the sklift and causalml conventions on `count` resamples of the rows, or of whole clusters.

    names: of `NAMES`, and uplift among the best share ("uplift@0.3").
    A resample is a whole weight per row: cumulative sums along the one order, O(count·n). cluster: ids [n] in the order of the
    rows as they were given. The perfect curves have at most four levels and are made anew from four totals. Raises BadOption,
    also for rows that carry weights of their own, ShapeMismatch, ShareRange, BadValues for a missing id.

    Source: Chamandy et al. (2012) for Poisson weights.
    """
    shares = {name: _cut(name) for name in names if name.startswith(CUT)}
    named = tuple(name for name in names if name not in shares)
    for name in named:
        if name not in _NUMBERS:
            raise BadOption("No such number to resample", value=name, allowed=f"{', '.join(NAMES)}, {CUT}K")
    if rows.weight is not None:
        raise BadOption("Weighted rows are not resampled", value="weight", allowed="rows without weights")
    ids = None if cluster is None else as_array(cluster)
    if ids is not None and len(ids) == rows.n:
        ids = ids[rows.order.rows]
    drawn = {name: np.full(count, np.nan) for name in names}
    observed = every_number(areas(rows, rate=False), rows.binary, named) | _uplifts(rows, shares, None)
    weights = resample_weights(rows.n, count, kind=kind, cluster=ids, seed=seed)
    for number, weight in enumerate(weights):
        # Rows are drawn alike, so weights may fall on them in sorted order; as bytes, their products are a quarter the work.
        small = weight.astype(np.uint8) if weight.max() < 256 else weight
        try:
            found = every_number(areas(rows, small, rate=False), rows.binary, named) | _uplifts(rows, shares, small)
        except UndefinedMetric:
            continue
        for name, value in found.items():
            drawn[name][number] = value
    units = rows.n if ids is None else np.unique(ids).size
    return Replicates(observed, drawn, int(units))


def _cut(name: str) -> float:
    try:
        return float(name.removeprefix(CUT))
    except ValueError:
        raise BadOption("No such number to resample", value=name, allowed=f"{CUT}0.3 and its like") from None


def _uplifts(rows: Ranked, shares: dict[str, float], weight: np.ndarray | None) -> dict[str, float]:
    found = {}
    for name, k in shares.items():
        try:
            found[name] = uplift_of(rows, k, weight)
        except UndefinedMetric:
            found[name] = float("nan")
    return found


def every_number(a: Areas, binary: bool, names: tuple[str, ...]) -> dict[str, float]:
    """Each named number of areas, NaN where it is not defined."""
    found = {}
    for name in names:
        try:
            found[name] = _NUMBERS[name](a, binary)
        except UndefinedMetric:
            found[name] = float("nan")
    return found
