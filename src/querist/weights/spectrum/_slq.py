"""Large matrices: the largest singular values exactly, the rest of the spectrum by stochastic Lanczos quadrature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import BadOption
from querist.statistics import torch_seed
from querist.weights.spectrum._esd import Blocks
from querist.weights.spectrum._krylov import Ritz, largest_pairs, refined
from querist.weights.spectrum._operator import GramOperator
from querist.weights.spectrum._quadrature import density_of, distribution_of, quadratures

__all__ = ["SLQ", "slq"]

TOLERANCE = 1e-3
"""Residual of a top pair, relative to its value: the value is then wrong by at most this, and as a rule by its square."""
_FLOAT32 = 3e-6
"""Residual that products in float32 may not go below, relative to the largest value."""
_DIMENSIONS = 8
"""The Krylov basis grows to at most so many times k, or N/2 if that is more (4096 x 4096 Gaussian, k=256: 1584)."""
_SMALL = 512
"""A basis of this size costs nothing worth saving."""


@dataclass(frozen=True, slots=True)
class SLQ:
    """An approximate spectrum, in squared singular values.

    top: the largest values, ascending, with the error bound of each in `top_error`. `rest` counts the others; `nodes` and
    `weights` [probes, steps] are the Gauss quadratures of their distribution, one a probe, weights summing to 1, nodes
    ascending. evals: N pseudo-eigenvalues ascending, the top ones as they are, the others quantiles of the mean
    distribution. cdf_error: the largest half-width of `cdf`. total: ‖W‖_F², exact; trace: the sum of the others, total less
    the top, with `trace_error`. Values below 1e-6·λ_max are noise where W is stored in 32 bits or fewer. vectors: singular
    vectors of the top values on the shorter side, float64 [N, k], the largest first.
    """

    evals: Float[np.ndarray, "N"]
    top: Float[np.ndarray, "k"]
    top_error: Float[np.ndarray, "k"]
    nodes: Float[np.ndarray, "probes steps"]
    weights: Float[np.ndarray, "probes steps"]
    rest: int
    shape: tuple[int, int]
    scale: float
    total: float
    trace: float
    trace_error: float
    cdf_error: float
    method: str = "slq+topk"
    vectors: Float[Tensor, "N k"] | None = None

    def cdf(self, x: Float[np.ndarray, "g"]) -> tuple[Float[np.ndarray, "g"], Float[np.ndarray, "g"]]:
        """Share of all N eigenvalues that are at most x, and the half-width of its 95 % interval.

        The half-width is the spread over probes plus what a quadrature cannot know: it fixes the distribution of its own
        probe only up to the weights of the two nodes around x (the inequalities of Chebyshev, Markov and Stieltjes).
        """
        x = np.asarray(x, dtype=np.float64)
        n = self.evals.size
        known = np.searchsorted(self.top, x, side="right")
        if self.rest == 0:
            return known / n, np.zeros(x.shape)
        mean, half = distribution_of(self.nodes, self.weights, x, self._cap)
        return (self.rest * mean + known) / n, self.rest / n * half

    def density(self, edges: Float[np.ndarray, "g+1"]) -> tuple[Float[np.ndarray, "g"], Float[np.ndarray, "g"]]:
        """Eigenvalues per unit of λ, as a share of all N, in each bin, and the half-width of its 95 % interval.

        The half-width adds the spread of the bin's own share over probes to what the quadratures do not know at its ends.
        """
        edges = np.asarray(edges, dtype=np.float64)
        width, n = np.diff(edges), self.evals.size
        known = np.histogram(self.top, edges)[0]
        if self.rest == 0:
            return known / (n * width), np.zeros(width.size)
        share, half = density_of(self.nodes, self.weights, edges, self._cap)
        return (self.rest * share + known) / (n * width), self.rest * half / (n * width)

    @property
    def _cap(self) -> float:
        return float(self.top[0]) if self.top.size else np.inf


def slq(
    W: Float[Tensor, "h d"] | Float[np.ndarray, "h d"] | Blocks,
    *,
    k: int = 256,
    probes: int = 16,
    steps: int = 128,
    seed: int = 0,
    layer: str = "",
) -> SLQ:
    """Approximate the squared singular values of a matrix, held or streamed: the k largest exactly, the rest in distribution.

    The top by block Lanczos with full reorthogonalisation, products in float32 where W is stored in 32 bits or fewer, then
    one Rayleigh–Ritz step in float64; pairs that do not reach a residual of 1e-3·θ within the largest basis are left to the
    rest, so that `top` may hold fewer than k. The rest by `probes` random directions orthogonal to the top, each with a
    Lanczos run of `steps` and full reorthogonalisation. Draws come from `statistics.torch_seed(seed, "slq", layer)`.

    Memory beside W: N·max(8k, N/2)·8 bytes for the basis, and 200 MiB. W is read about 6k/16 + steps times, once for each
    128 MiB of probes (a wide streamed one twice as often). Raises BadOption, NonFinite, ShapeMismatch.

    Source: Golub & Underwood (1977); Ubaru, Chen & Saad (2017). Exact deflation and the bracketing of each quadrature in
    the error bars are ours.
    """
    for name, value, least in (("k", k, 1), ("probes", probes, 2), ("steps", steps, 2)):
        if value < least:
            raise BadOption(f"`{name}` is too small for Lanczos quadrature", value=value, allowed=f"at least {least}")
    operator = GramOperator(W)
    n, unit = operator.n, operator.divisor**2
    if operator.scale == 0:
        top, none = np.zeros(min(k, n)), np.zeros((probes, 1))
        return SLQ(np.zeros(n), top, top, none, none + 1, n - top.size, operator.shape, 0.0, 0.0, 0.0, 0.0, 0.0)
    generator = torch.Generator().manual_seed(torch_seed(seed, "slq", layer))
    found = _top(operator, min(k, n), generator)
    top, error = found.values.clamp_min(0).flip(0).numpy() * unit, _bounds(found).flip(0).numpy() * unit
    total, rest = operator.total * unit, n - top.size
    nodes, weights, evals, cdf_error = np.zeros((probes, 0)), np.zeros((probes, 0)), top, 0.0
    if rest:
        nodes, weights = quadratures(operator, found.vectors, probes, min(steps, rest), generator)
        nodes = nodes * unit
        grid, cap = np.unique(nodes), float(top[0]) if top.size else np.inf
        mean, half = distribution_of(nodes, weights, grid, cap)
        below = np.interp((np.arange(rest) + 0.5) / rest, np.maximum.accumulate(mean), grid)
        evals, cdf_error = np.concatenate([np.minimum(below, cap), top]), float(half.max()) * rest / n
    return SLQ(
        evals=evals,
        top=top,
        top_error=error,
        nodes=nodes,
        weights=weights,
        rest=rest,
        shape=operator.shape,
        scale=operator.scale,
        total=total,
        trace=max(total - float(top.sum()), 0.0),
        trace_error=float(error.sum()) + 1e-12 * total,
        cdf_error=cdf_error,
        vectors=found.vectors,
    )


def _top(operator: GramOperator, k: int, generator: torch.Generator) -> Ritz:
    """The largest pairs whose residual is small enough; all products in float64 where those in float32 are too coarse."""

    def exact(V: Tensor) -> Tensor:
        return operator(V, exact=True)

    most = max(_DIMENSIONS * k, operator.n // 2, _SMALL)
    most = operator.n if 4 * most >= 3 * operator.n else most
    first = largest_pairs(operator, operator.n, k, generator, tolerance=TOLERANCE / 4, most=most)
    found = refined(exact, first.vectors)
    narrow = not operator.wide and float(found.values[0]) * _FLOAT32 > TOLERANCE * float(found.values[-1])
    if narrow and bool((found.residual > TOLERANCE * found.values).any()):
        again = largest_pairs(exact, operator.n, k, generator, tolerance=TOLERANCE / 4, most=most)
        found = refined(exact, again.vectors)
    # Zeros of a matrix of low rank have residuals of rounding: they are known as well as the largest value is.
    good = found.residual <= torch.maximum(TOLERANCE * found.values, 1e-12 * found.values[0])
    keep = int(good.long().cumprod(0).sum())
    return Ritz(found.values[:keep], found.vectors[:, :keep], found.residual[:keep], first.dimension)


def _bounds(found: Ritz) -> Tensor:
    """How far each value may be from an eigenvalue: its residual, or residual²/gap where no neighbour is that near."""
    values, residual = found.values, found.residual
    floor = 1e-14 * values.max() if len(values) else 0.0
    if len(values) < 2:
        return residual + floor
    step = values[:-1] - values[1:]
    gap = torch.full_like(values, torch.inf)
    gap[:-1] = step - residual[1:]
    gap[1:] = torch.minimum(gap[1:], step - residual[:-1])
    gap[-1] = 0.0  # what lies below the last one is not known
    sharp = residual**2 / gap.clamp_min(1e-300)
    return torch.where(gap > residual, torch.minimum(residual, sharp), residual) + floor
