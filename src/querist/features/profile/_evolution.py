"""How a law changes from layer to layer, in the frame of the source and in its own."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from querist.errors import BadOption, TooFewRows
from querist.features.distances import sliced_wasserstein, spectrum_distance
from querist.features.errors import DimensionMismatch
from querist.features.normalise import fit_normaliser

__all__ = ["FRAMES", "KNOTS", "Frame", "evolution", "quantiles"]

KNOTS = 2000
FRAMES = ("source", "own")
Frame = Literal["source", "own"]


def evolution(
    layers: Mapping[str, Any],
    *,
    source: Mapping[str, Any] | None = None,
    kind: Literal["pooled", "joint", "spectrum"] = "pooled",
    projections: int = 500,
    seed: int = 0,
) -> Float[np.ndarray, "L-1"]:
    """E_l, the distance between the laws of neighbouring layers l and l + 1, in the order of the mapping.

    layers: mapping from layer to rows (n, d) or (n, sites, d). source: the layers whose moments standardise these (the source
    frame, which holds the shift as well); left out, each layer is standardised by its own (own frame: shape only).

    Standardised as `iso` does: each unit less its mean, all over one sd. "pooled": W_2 of all values of a layer, over units and
    images, on the quantile functions at 2,000 midpoints; defined for any widths. "joint": sliced W_2 of the rows, units
    matched, widths equal. "spectrum": distance of covariance spectra.

    Raises TooFewRows below two layers, DimensionMismatch ("joint"), UndefinedMetric for a constant layer, ShapeMismatch,
    NonFinite, BadOption. The definition is ours.
    """
    if kind not in ("pooled", "joint", "spectrum"):
        raise BadOption("No such kind of evolution", value=kind, allowed="pooled, joint, spectrum")
    if len(layers) < 2:
        raise TooFewRows("An evolution needs two layers", value=len(layers), allowed="2 or more")
    names = list(layers)
    frame = layers if source is None else source
    scaled = [fit_normaliser(frame[name], "iso")(layers[name]) for name in names]
    if kind == "pooled":
        lines = [quantiles(values) for values in scaled]
        return np.array([np.sqrt(np.mean((x - y) ** 2)) for x, y in pairwise(lines)])
    rows = [values.reshape(-1, values.shape[-1]) for values in scaled]
    if kind == "spectrum":
        return np.array([spectrum_distance(x, y) for x, y in pairwise(rows)])
    widths = [len(row[0]) for row in rows]
    if len(set(widths)) > 1:
        raise DimensionMismatch(
            "A joint evolution needs layers of one width",
            value=", ".join(str(width) for width in widths),
            allowed="equal widths",
            mend="Use the pooled evolution, or the spectrum",
        )
    return np.array([sliced_wasserstein(x, y, projections=projections, seed=seed).value for x, y in pairwise(rows)])


def quantiles(values: np.ndarray) -> Float[np.ndarray, "knots"]:
    """Quantile function of all values of an array at (i + ½)/2000, float64."""
    ordered = np.sort(values, axis=None)
    at = np.minimum(((np.arange(KNOTS) + 0.5) / KNOTS * ordered.size).astype(np.int64), ordered.size - 1)
    return ordered[at].astype(np.float64)
