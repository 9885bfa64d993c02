"""Where an update lies in its matrix: overlaps, angles and energies beside random directions and sign-flipped copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from querist.statistics import stream
from querist.weights.configs import CompareConfig
from querist.weights.delta import (
    Factors,
    Remainder,
    Side,
    energy,
    factor_replicas,
    frobenius,
    inner,
    random_angles,
    side_overlap,
    span_p,
    span_quantile,
)
from querist.weights.nulls import predicted_p, replica, tied_rank_p
from querist.weights.overlaps import block_average, subspace_overlap
from querist.weights.spectrum import Blocks, Triplets, leading, transposed_product

__all__ = ["ALIGNED", "Directions", "compare_directions"]

ALIGNED = 0.01
"""Level of the test of alignment; sign-flipped copies are drawn only for what random directions reject at it."""
SCALED = 0.1
"""|cosine| of ΔW and W from which the overlap is taken again without the share of W in ΔW."""
CELLS = 64
"""Most rows and columns of a heat map of overlaps."""


@dataclass
class Directions:
    """Columns of a row, rows of `overlaps` and `angles` without their layer, and (null, replica) to columns of `null_draws`."""

    row: dict[str, Any] = field(default_factory=dict)
    overlaps: list[dict[str, Any]] = field(default_factory=list)
    angles: list[dict[str, Any]] = field(default_factory=list)
    draws: dict[tuple[str, int | None], dict[str, Any]] = field(default_factory=dict)


def compare_directions(
    base: Triplets,
    k: int,
    spikes: int | None,
    update: Triplets,
    W: Tensor | Blocks | None,
    delta: Tensor | Blocks | None,
    low: Factors | None,
    config: CompareConfig,
    layer: str,
) -> Directions:
    """Compare the update's leading directions with the base's first k, on both sides.

    base: at least k triplets, and one for each of its spikes (`spikes` None: they are not known, and no energy is given).
    update: its leading triplets. W: the base itself, None where it is not known. delta or low: the update itself, for its
    energy and its sign-flipped copies.
    """
    found = Directions()
    first, mine = base.first(k), update.first(k)
    if not len(mine.S) or not len(first.S):
        return found
    left, right = side_overlap(first.U, mine.U), side_overlap(first.V, mine.V)
    for name, side in (("left", left), ("right", right)):
        _rows(found, name, side)
    name, judged = ("left", left) if left.p <= right.p else ("right", right)
    l = len(mine.S)  # noqa: E741
    found.row |= {
        "overlap_k": k,
        "overlap_l": l,
        "overlap_left": left.overlap,
        "overlap_right": right.overlap,
        "overlap_null": judged.null,
        "overlap_null_left": left.null,
        "overlap_null_right": right.null,
        "overlap_side": name,
        "overlap_low": span_quantile(0.005, k, l, judged.side),
        "overlap_high": span_quantile(0.995, k, l, judged.side),
        "overlap_p": min(1.0, 2 * judged.p),
        "angle_left": float(left.angles[0]),
        "angle_right": float(right.angles[0]),
    }
    found.draws["real", None] = {"overlap_left": left.overlap, "overlap_right": right.overlap}
    _share_of_base(found, name, W, delta, low, first, l, config, layer)
    if spikes is not None:
        _energies(found, base.first(spikes), delta if low is None else update, low)
    if found.row["overlap_p"] <= ALIGNED and "signflip" in config.nulls and config.rank_replicas:
        _flips(found, name, judged.overlap, first, l, delta, low, config, layer)
    return found


def _rows(found: Directions, name: str, side: Side) -> None:
    cells = block_average(side.matrix, CELLS)
    starts = [
        np.linspace(0, full, small + 1).astype(int)[:-1]
        for full, small in zip(side.matrix.shape, cells.shape, strict=True)
    ]
    found.overlaps.extend(
        {"side": name, "i": int(starts[0][i]), "j": int(starts[1][j]), "value": float(value), "null": 1 / side.side}
        for (i, j), value in np.ndenumerate(cells)
    )
    k, l = side.matrix.shape  # noqa: E741
    band = random_angles(k, l, side.side) if side.side >= k + l else np.full((3, l), np.nan)
    found.angles.extend(
        {"side": name, "index": i, "angle": float(angle), "null_low": low, "null": middle, "null_high": high}
        for i, (angle, low, middle, high) in enumerate(zip(side.angles, *band.tolist(), strict=True))
    )


def _energies(
    found: Directions, spikes: Triplets, update: Tensor | Blocks | Triplets | None, low: Factors | None
) -> None:
    if low is not None:
        update = low.triplets()  # all of it, not only the directions that are compared
    if update is None:
        return
    where = energy(update, spikes)
    found.row |= {
        "energy_spikes": where.spikes,
        "energy_spikes_null": where.spikes_null,
        "energy_bulk": where.bulk,
        "energy_bulk_null": where.bulk_null,
    }


def _share_of_base(
    found: Directions,
    name: str,
    W: Tensor | Blocks | None,
    delta: Tensor | Blocks | None,
    low: Factors | None,
    base: Triplets,
    l: int,  # noqa: E741
    config: CompareConfig,
    layer: str,
) -> None:
    """How much of ΔW is W itself, and the overlap without it.

    ΔW = cW + R with R orthogonal to W. Weight decay, and any change that replaces W, lies along W's leading directions by
    its share cW alone: two unrelated networks would be aligned in every layer.
    """
    if W is None:
        return
    if low is not None:
        product, size = float((transposed_product(W, low.B).T * low.A).sum()), float(low.triplets().S.norm())
    else:
        assert delta is not None
        product, size = inner(W, delta), frobenius(delta)
    norm = frobenius(W)
    cosine = product / (norm * size)
    found.row["delta_cosine"] = cosine
    if abs(cosine) <= SCALED or delta is None:
        return
    rest = leading(Remainder(delta, W, product / norm**2), l, seed=config.seed, layer=f"{layer}/rest")
    if len(rest.S):
        mine, theirs = (rest.U, base.U) if name == "left" else (rest.V, base.V)
        overlap = subspace_overlap(mine, theirs)
        k, side = theirs.shape[1], theirs.shape[0]
        found.row |= {"overlap_rest": overlap, "overlap_rest_p": span_p(overlap, k, len(rest.S), side)}


def _flips(
    found: Directions,
    name: str,
    overlap: float,
    base: Triplets,
    l: int,  # noqa: E741
    delta: Tensor | Blocks | None,
    low: Factors | None,
    config: CompareConfig,
    layer: str,
) -> None:
    """The overlaps of copies with random signs: what the scales of rows and columns alone would give.

    A matrix and its update that share large rows have leading directions on the same rows without any correlation.
    """
    seen = []
    for i, copy in enumerate(_copies(delta, low, l, config, layer)):
        both = {"left": subspace_overlap(copy.U, base.U), "right": subspace_overlap(copy.V, base.V)}
        found.draws["signflip", i] = {f"overlap_{side}": value for side, value in both.items()}
        seen.append(both[name])
    if len(seen) < 2:
        return
    draws = np.array(seen)
    found.row |= {
        "overlap_flip": float(draws.max()),
        "overlap_flip_p": predicted_p(overlap, draws),
        "overlap_flip_p_rank": tied_rank_p(overlap, draws),
    }


def _copies(
    delta: Tensor | Blocks | None,
    low: Factors | None,
    l: int,  # noqa: E741
    config: CompareConfig,
    layer: str,
) -> Iterator[Triplets]:
    number = config.rank_replicas
    if low is not None:
        for copy in factor_replicas(low, "signflip", number, config.seed, layer):
            yield copy.triplets().first(l)
    elif isinstance(delta, Tensor):
        for i in range(number):
            copy = replica(delta, "signflip", stream(config.seed, layer, "signflip", i))
            yield leading(copy, l, seed=config.seed, layer=f"{layer}/{i}")
