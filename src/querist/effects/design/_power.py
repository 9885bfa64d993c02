"""How small an effect a study can detect, or how many people it needs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.effects.errors import PropensityRange
from querist.errors import BadOption, ShapeMismatch
from querist.statistics.arrays import check_level, finite

__all__ = ["plan"]


def plan(
    *,
    n: int | None = None,
    shares: Any,
    sd: float,
    effect: float | None = None,
    cluster_size: float = 1,
    icc: float = 0.0,
    level: float = 0.05,
    power: float = 0.8,
) -> Float[np.ndarray, "M"] | int:
    """The effect of each arm that n people detect, or the people needed to detect `effect` in every arm.

    shares: of control, then of every arm, any positive scale; sd: of the outcome within an arm; cluster_size, icc: people assigned
    together and their correlation (design effect 1 + (cluster_size − 1)·icc). Two-sided test at `level`, normal quantiles, no
    correction for several arms. Give either n or effect. Raises BadOption, PropensityRange, ShapeMismatch.

    Source: Kish (1965) for the design effect; (z_{1−α/2} + z_power)·sd·√(deff(1/n_0 + 1/n_m)).
    """
    from scipy.special import ndtri

    part = finite(shares, "shares")
    if part.ndim != 1 or part.size < 2:
        raise ShapeMismatch("Shares of control and at least one arm", value=part.shape, allowed="(M + 1,)")
    if (part <= 0).any():
        raise PropensityRange("A design's shares must be positive", value=float(part.min()), allowed="above 0")
    check_level(level)
    check_level(power)
    if (n is None) == (effect is None):
        raise BadOption("Give the people or the effect, and the other is found", value=f"n={n}, effect={effect}")
    for name, value, fine, allowed in (
        ("sd", sd, sd > 0, "above 0"),
        ("cluster_size", cluster_size, cluster_size >= 1, "1 or more"),
        ("icc", icc, 0 <= icc <= 1, "0 to 1"),
        ("n", n, n is None or n >= part.size, f"{part.size} or more"),
        ("effect", effect, effect is None or (effect != 0 and math.isfinite(effect)), "not 0"),
    ):
        if not fine:
            raise BadOption(f"{name} lies outside its range", value=value, allowed=allowed)
    part = part / part.sum()
    # One person's worth: divided by √n it is the detectable effect.
    unit = (
        float(ndtri(1 - level / 2) + ndtri(power))
        * sd
        * np.sqrt((1 + (cluster_size - 1) * icc) * (1 / part[0] + 1 / part[1:]))
    )
    if n is not None:
        return unit / math.sqrt(n)
    assert effect is not None
    return math.ceil((float(unit.max()) / abs(effect)) ** 2)
