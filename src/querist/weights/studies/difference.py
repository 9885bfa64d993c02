"""Everything a comparison measures on one pair of matrices: pure, one call, plain rows out."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from querist.errors import NumericalFailure, QueristError
from querist.weights.configs import CompareConfig
from querist.weights.delta import Factors, MatrixPair, faint_edge, frobenius, rounding, stacked, stored
from querist.weights.fits import fit_powerlaw
from querist.weights.nulls import fit_mp
from querist.weights.spectrum import ShortSide, Triplets, nonfinite, short_side, slq, triplets
from querist.weights.studies.directions import Directions, compare_directions
from querist.weights.studies.measure import on_the_law
from querist.weights.studies.sides import Sides, sides
from querist.weights.studies.update import Update, dense_update, low_rank_update

__all__ = ["Differing", "difference"]

TOP, PROBES, STEPS = 256, 16, 128


@dataclass
class Differing:
    """Rows of one pair for the tables of the comparison."""

    row: dict[str, Any]
    spectra: list[tuple[str, str, int | None, np.ndarray]] = field(default_factory=list)
    draws: dict[tuple[str, int | None], dict[str, Any]] = field(default_factory=dict)
    overlaps: list[dict[str, Any]] = field(default_factory=list)
    angles: list[dict[str, Any]] = field(default_factory=list)

    def draw(self, null: str, replica: int | None, **values: Any) -> None:
        """Note what a copy gave; what is known of the same copy already stays."""
        key = {"layer_id": self.row["layer_id"], "null": null, "replica": replica}
        self.draws.setdefault((null, replica), key).update(values)


def difference(pair: MatrixPair, config: CompareConfig) -> Differing:
    """Measure one pair. Whatever goes wrong with it costs its row (status failed, with the reason), never the run."""
    begun = time.perf_counter()
    found = Differing(_identity(pair))
    try:
        if pair.base is None:
            _two_updates(pair, config, found)
        else:
            _two_matrices(pair, config, found)
    except (QueristError, RuntimeError) as error:
        found.row |= {"status": "failed", "reason": str(error).rstrip(".")}
    found.row["seconds"] = time.perf_counter() - begun
    return found


def _identity(pair: MatrixPair) -> dict[str, Any]:
    matrix, (n, m) = pair.matrix, sorted(pair.shape)
    low = pair.tuned_low[0] if pair.tuned_low else None
    other = pair.tuned if pair.tuned is not None else low.pair if low is not None else matrix
    return {
        "layer_id": pair.layer_id,
        "name": matrix.name,
        "tuned_name": other.name,
        "aliases": list(matrix.aliases),
        "kind": matrix.kind,
        "part": matrix.part,
        "shape": list(matrix.tensor_shape),
        "N": n,
        "M": m,
        "q": n / m,
        "dtype": matrix.dtype,
        "dtype_tuned": other.dtype,
        "status": "ok",
        "conv": matrix.conv,
        "lora_rank": None if low is None else low.pair.refs[0].shape[0],
        "lora_scale": None if low is None else low.scale,
        "n_nonfinite": 0,
    }


def _two_matrices(pair: MatrixPair, config: CompareConfig, found: Differing) -> None:
    row = found.row
    both = sides(pair, config)
    bad = [nonfinite(W) for W in (both.base, both.tuned)]
    if any(count for count, _ in bad):
        _damaged(row, bad)
        return
    sizes = frobenius(both.base), frobenius(both.tuned)
    update = both.low.triplets() if both.low is not None else None
    change = frobenius(both.delta) if both.delta is not None else _length(update)
    row["method"] = "low-rank" if both.low is not None else "streamed" if both.streamed else "dense"
    most = _sizes(row, both, sizes, change)
    coarse = config.approx == "always" or (config.approx == "auto" and min(both.base.shape) > config.exact_side)
    base = _spectrum(both.base, coarse, config, row["layer_id"], "base")
    evals = _seen(both, both.base, base, coarse)
    _exponent(row, "base", evals, config, coarse, found)
    if not coarse:
        alpha, hill, _ = on_the_law(row["N"], row["M"], config.fit)
        row |= {"alpha_mp": alpha, "alpha_hill_mp": hill}
    if coarse:
        row |= {"status": "approximate", "method": "slq+topk"}
        row["reason"] = (
            f"exponents rest on the {evals.size} largest eigenvalues; the rest is known in distribution only"
        )
    if change == 0:
        row |= {"status": "unchanged", "reason": "no entry differs", "delta_rank": 0, "delta_n_spikes": 0}
        row |= {f"alpha_{part}tuned": row[f"alpha_{part}base"] for part in ("", "hill_")}
        row |= {f"alpha_tuned_{end}": row[f"alpha_base_{end}"] for end in ("low", "high")}
        row |= {"n_tail_tuned": row["n_tail_base"], "alpha_change": None if row["alpha_base"] is None else 0.0}
        return
    _tuned(both, config, found, coarse)
    if row["alpha_base"] is not None and row["alpha_tuned"] is not None:
        row["alpha_change"] = row["alpha_tuned"] - row["alpha_base"]
    if update is not None and both.low is not None:
        measured = low_rank_update(both.low, update, config, row["layer_id"])
    else:
        assert both.delta is not None
        delta = _spectrum(both.delta, coarse, config, row["layer_id"], "delta")
        faint = faint_edge(most, (int(both.delta.shape[0]), int(both.delta.shape[1])))
        measured = dense_update(
            both, delta, config, row["layer_id"], coarse=coarse, faint=faint, count=pair.matrix.count
        )
    _take(measured, found)
    top = float(base.evals[-1])
    if top > 0:
        row["delta_spectral"] = math.sqrt(float(measured.evals[-1]) / top)
    if sizes[0] == 0:
        row |= {"status": "degenerate", "reason": "the base is zero, so there is nothing to compare the change with"}
        return
    spikes = _spikes(base, config)
    row["base_n_spikes"] = spikes
    leading = triplets(both.base, base, max(_few(config.k, base.shape), spikes))
    _compare(leading, spikes, measured, both.base, both.delta, both.low, config, found)


def _two_updates(pair: MatrixPair, config: CompareConfig, found: Differing) -> None:
    """Two low-rank updates of a matrix that neither source holds: all by their factors, nothing is formed."""
    row = found.row
    before, after = (
        stacked([one.factors() for one in pair.base_low]),
        stacked([one.factors() for one in pair.tuned_low]),
    )
    assert before is not None
    assert after is not None
    bad = [nonfinite(torch.cat([low.A.flatten(), low.B.flatten()])) for low in (before, after)]
    if any(count for count, _ in bad):
        _damaged(row, bad)
        return
    change = stacked([after, before], [1.0, -1.0])
    assert change is not None
    base, update = before.triplets(), change.triplets()
    size, length = _length(base), _length(update)
    row |= {"method": "low-rank", "norm": size, "delta_norm": length, "rounding": 0.0}
    row["delta_relative"] = length / size if size else None
    for name, low in (("base", before), ("tuned", after)):
        found.spectra.append((name, "real", None, low.triplets().spectrum(min(low.shape))))
    if length == 0:
        row |= {"status": "unchanged", "reason": "both updates are equal", "delta_rank": 0, "delta_n_spikes": 0}
        return
    measured = low_rank_update(change, update, config, row["layer_id"])
    _take(measured, found)
    if size == 0:
        row |= {"status": "degenerate", "reason": "the base's update is zero"}
        return
    row["delta_spectral"] = float(update.S[0] / base.S[0])
    few = min(_few(config.k, before.shape), len(base.S))
    _compare(base.first(few), None, measured, None, None, change, config, found)


def _damaged(row: dict[str, Any], bad: list[tuple[int, Any]]) -> None:
    told = [
        f"{count} in {name}" + (f", the first at ({', '.join(map(str, index))})" if index else "")
        for name, (count, index) in zip(("BASE", "TUNED"), bad, strict=True)
        if count
    ]
    row |= {"status": "nonfinite", "n_nonfinite": sum(count for count, _ in bad)}
    row["reason"] = f"NaN or infinite entries: {'; '.join(told)}"


def _length(update: Triplets | None) -> float:
    return 0.0 if update is None else float(update.S.square().sum().sqrt())


def _few(k: int, shape: tuple[int, ...]) -> int:
    """At most a quarter of the shorter side: half of a space overlaps with nearly everything."""
    return max(1, min(k, min(shape) // 4))


def _sizes(row: dict[str, Any], both: Sides, sizes: tuple[float, float], change: float) -> float:
    """Norms, and the most that storing both copies can make of the difference, which is returned.

    A low-rank update was stored by itself; what it must exceed is what merging it into the base's format would lose.
    """
    formats = [stored(both.base, row["dtype"])]
    formats.append(formats[0] if both.low is not None else stored(both.tuned, row["dtype_tuned"]))
    most = rounding(formats[0], formats[1], sizes, math.prod(both.base.shape))
    row |= {
        "norm": sizes[0],
        "delta_norm": change,
        "delta_relative": change / sizes[0] if sizes[0] else None,
        "rounding": most / sizes[0] if sizes[0] else None,
        "dtype_rounding": max(formats, key=lambda one: one.eps).name,
    }
    return most


def _spectrum(W: Any, coarse: bool, config: CompareConfig, layer: str, which: str) -> ShortSide:
    if not coarse:
        return short_side(W)
    found = slq(W, k=TOP, probes=PROBES, steps=STEPS, seed=config.seed, layer=f"{layer}/{which}")
    vectors = torch.zeros(min(found.shape), 0, dtype=torch.float64) if found.vectors is None else found.vectors
    return ShortSide(found.evals, vectors, found.shape)


def _seen(both: Sides, W: Any, short: ShortSide, coarse: bool) -> np.ndarray:
    """The eigenvalues that an exponent is fitted to: those of the view, or the exact ones of a coarse spectrum."""
    if coarse:
        return short.evals[-short.vectors.shape[1] :] if short.vectors.shape[1] else short.evals
    return short.evals if both.view.flat else both.view.spectrum(W)


def _exponent(
    row: dict[str, Any], which: str, evals: np.ndarray, config: CompareConfig, coarse: bool, found: Differing
) -> None:
    found.spectra.append((which, "real", None, evals))
    clean = cleaned(evals, row["M"])
    fit = fit_powerlaw(clean, method="csn" if coarse and config.fit == "hill" else config.fit)
    row |= {f"alpha_{which}": fit.alpha, f"alpha_{which}_low": fit.low, f"alpha_{which}_high": fit.high}
    row[f"n_tail_{which}"] = fit.n_tail or None
    if not coarse:
        row[f"alpha_hill_{which}"] = fit_powerlaw(clean, method="hill").alpha


def cleaned(evals: np.ndarray, longer: int) -> np.ndarray:
    """Eigenvalues below rounding are zeros to a fit."""
    return np.where(evals > np.finfo(np.float64).eps * evals[-1] * longer, evals, 0.0)


def _tuned(both: Sides, config: CompareConfig, found: Differing, coarse: bool) -> None:
    from querist.weights.spectrum import esd

    if coarse:
        short = _spectrum(both.tuned, True, config, found.row["layer_id"], "tuned")
        evals = _seen(both, both.tuned, short, True)
    else:
        evals = esd(both.tuned).evals if both.view.flat else both.view.spectrum(both.tuned)  # type: ignore[arg-type]
    _exponent(found.row, "tuned", evals, config, coarse, found)


def _spikes(base: ShortSide, config: CompareConfig) -> int:
    """Eigenvalues of W above the .99 Tracy–Widom edge, at most half of them and no more than have vectors.

    Here they are a partition of the space, not evidence: the resampling nulls of W itself belong to a scan.
    """
    try:
        count = fit_mp(base.evals, base.shape).n_spikes_tw99
    except NumericalFailure:
        return 0
    return min(count, min(base.shape) // 2, base.vectors.shape[1])


def _take(measured: Update, found: Differing) -> None:
    found.row |= measured.row
    found.spectra.append(("delta", "real", None, measured.evals))
    found.spectra.extend(("delta", null, i, evals) for null, i, evals in measured.copies)
    for (null, replica), values in measured.draws.items():
        found.draw(null, replica, **values)


def _compare(
    leading: Triplets,
    spikes: int | None,
    measured: Update,
    W: Any,
    delta: Any,
    low: Factors | None,
    config: CompareConfig,
    found: Differing,
) -> None:
    k = _few(config.k, (len(leading.U), len(leading.V)))
    directions: Directions = compare_directions(
        leading, min(k, len(leading.S)), spikes, measured.triplets, W, delta, low, config, found.row["layer_id"]
    )
    found.row |= directions.row
    found.overlaps.extend({"layer_id": found.row["layer_id"], **row} for row in directions.overlaps)
    found.angles.extend({"layer_id": found.row["layer_id"], **row} for row in directions.angles)
    for (null, replica), values in directions.draws.items():
        found.draw(null, replica, **values)
