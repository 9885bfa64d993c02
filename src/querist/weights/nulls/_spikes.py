"""The test of spikes: eigenvalues beyond the Tracy-Widom edge, beyond shuffled copies and beyond sign-flipped copies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import BadOption, NonFinite, ShapeMismatch, UnknownName
from querist.results.finding import Verdict
from querist.statistics import rank_p
from querist.weights.nulls._deflate import without_top
from querist.weights.nulls._marchenko_pastur import MPFit, fit_mp
from querist.weights.nulls._replicas import KINDS, Spectrum, full_replicas, pooled, top_replicas

__all__ = ["LEVEL", "Round", "SpikeTest", "spike_test"]

LEVEL = 0.05
# Below this side the whole spectrum of a single matrix is as cheap as its largest eigenvalue, and exact.
_WHOLE_SIDE = 256
_MOST_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class Round:
    """One round of deflation: spikes found, the edge they passed, and the p-values of the largest of them."""

    n_spikes: int
    edge: float
    p: float | None
    p_rank: float | None


@dataclass(frozen=True, slots=True)
class SpikeTest:
    """What stands out of a spectrum, beside what stands out of its resampled copies. Eigenvalues are unnormalised.

    n_spikes: eigenvalues above `edge`, the largest of `edges` (Tracy-Widom .99; per null the draw that a rank p of .05
    must beat, the largest of 19); None where no null was drawn. n_low, n_high: the count at the .99 and .95 edges.
    n_spikes_tw: above the Tracy-Widom edge alone, never evidence by itself.
    p: one-sided prediction of log λ_max from its draws, Student t; p_rank: (1 + #draws ≥ λ_max)/(1 + draws); both the
    larger over the nulls, None where nothing was drawn for them. Where sign flips already explain λ_max, the shuffle is
    not drawn to the end, and p is at least p_rank. screened: λ_max lies below the .95 Tracy-Widom edge, so that the
    answer is no without a rank test; for a family of tests `p_family` is then 1.
    draws: λ_max of every copy drawn, by null. replicas, fits: whole spectra of the first copies and their fits.
    """

    shape: tuple[int, int]
    nulls: tuple[str, ...]
    lambda_max: float
    n_spikes: int | None
    n_spikes_tw: int
    n_low: int | None
    n_high: int | None
    edge: float
    edges: Mapping[str, float]
    p: float | None
    p_rank: float | None
    p_by_null: Mapping[str, float]
    p_rank_by_null: Mapping[str, float]
    draws: Mapping[str, np.ndarray]
    replicas: Mapping[str, tuple[np.ndarray, ...]]
    fits: Mapping[str, tuple[MPFit, ...]]
    screened: bool
    verdict: Verdict
    reason: str
    rounds: tuple[Round, ...] = field(default=())

    @property
    def p_family(self) -> float | None:
        """p for Benjamini-Hochberg over layers: 1 for a screened layer, which stays in the family."""
        return 1.0 if self.screened and self.nulls else self.p

    @property
    def null_ratios(self) -> Float[np.ndarray, "r"]:
        """λ_max of each wholly drawn shuffled copy over its own .99 Tracy-Widom edge."""
        pairs = zip(self.replicas.get("shuffle", ()), self.fits.get("shuffle", ()), strict=True)
        return np.array([evals[-1] / fit.tw99 for evals, fit in pairs])

    @property
    def null_max_ratio(self) -> float | None:
        """Mean of `null_ratios`: above 1, entries make outliers without any correlation. None without a shuffled copy."""
        return float(self.null_ratios.mean()) if len(self.null_ratios) else None

    @property
    def rand_num_spikes(self) -> int | None:
        """Eigenvalues of a shuffled copy above its own .99 edge: the (lower) median over copies."""
        counts = sorted(fit.n_spikes_tw99 for fit in self.fits.get("shuffle", ()))
        return counts[(len(counts) - 1) // 2] if counts else None


def spike_test(
    W: Float[Tensor, "h d"] | Float[Tensor, "count h d"],
    evals: Float[np.ndarray, "N"] | None = None,
    *,
    nulls: Sequence[str] = ("shuffle", "signflip"),
    replicas: int = 3,
    rank_replicas: int = 19,
    seed: int = 0,
    layer: str = "",
    deflate: bool = False,
    screen: bool = True,
    fit: MPFit | None = None,
    spectrum: Spectrum | None = None,
    shape: tuple[int, int] | None = None,
) -> SpikeTest:
    """Are there directions in W that noise of this size could not make?

    W: [h, d], or a stack [count, h, d] whose eigenvalues are pooled and whose entries are resampled as a whole. evals, fit:
    its spectrum and Marchenko-Pastur fit where they are known. replicas: whole spectra drawn from each null. rank_replicas:
    draws of λ_max from each null, the whole ones among them; 0 for none, else at least 19. screen: no rank test where λ_max
    does not pass the .95 Tracy-Widom edge. deflate: take what was found out and test again, because strong spikes raise the
    null and hide weak ones. spectrum, shape: for what is no plain stack of matrices (a convolution operator): how a
    resampled W becomes eigenvalues, and [h, d] of one of its matrices.

    A spike needs both nulls: heavy entries pass Tracy-Widom without any structure, and row scales pass the shuffle. With
    one null the verdict is at most "cannot say"; with none always. Raises NonFinite, UnknownName, BadOption, ShapeMismatch.

    Source: rank test over permutations and sign flips; the pair of nulls, the order (sign flips first, the shuffle only
    where they reject) and the t prediction are ours.
    """
    W, nulls, shape = _checked(W, nulls, replicas, rank_replicas, deflate, spectrum, shape)
    whole = spectrum or pooled
    evals = np.asarray(whole(W) if evals is None else evals, dtype=np.float64)
    fit = fit_mp(evals, shape) if fit is None else fit
    top = float(evals[-1])
    spectra = {null: tuple(full_replicas(W, null, replicas, seed, layer, spectrum=spectrum)) for null in nulls}
    fits = {null: tuple(fit_mp(drawn, shape) for drawn in spectra[null]) for null in nulls}
    draws = {null: np.array([drawn[-1] for drawn in spectra[null]]) for null in nulls}
    screened = screen and rank_replicas > 0 and top <= fit.tw95
    ranked: list[str] = []
    if rank_replicas and not screened:
        ranked = _draw(W, top, draws, rank_replicas, seed, layer, spectrum)
    test = _judged(evals, fit, shape, nulls, draws, ranked, screened)
    test = replace(test, replicas=MappingProxyType(spectra), fits=MappingProxyType(fits))
    if deflate and test.n_spikes:
        return _deflated(test, W, rank_replicas, seed, layer)
    return test


def _checked(W, nulls, replicas, rank_replicas, deflate, spectrum, shape):
    W = torch.as_tensor(W).detach()
    if spectrum is None and (W.ndim not in (2, 3) or 0 in W.shape):
        raise ShapeMismatch("a matrix or a stack of matrices is needed", value=tuple(W.shape), allowed="[h, d] or [count, h, d]")
    for null in nulls:
        if null not in KINDS:
            raise UnknownName("unknown null", value=null, allowed=", ".join(KINDS))
    if replicas < 0:
        raise BadOption("replicas counts whole spectra", value=replicas, allowed="0 or more")
    if rank_replicas != 0 and rank_replicas < 19:
        raise BadOption(
            "too few draws for a rank test at .05",
            value=f"rank_replicas={rank_replicas}",
            allowed="0 (no rank test), or 19 and more",
        )
    if deflate and spectrum is not None:
        raise BadOption("deflation needs plain matrices", value="deflate=True with spectrum=", mend="Leave one of them out")
    if not bool(torch.isfinite(W).all()):
        raise NonFinite("the matrix holds NaN or infinite entries", mend="Mend or leave out the tensor")
    # Sign flips first: see _draw.
    return W, tuple(null for null in reversed(KINDS) if null in nulls), shape or (W.shape[-2], W.shape[-1])


def _draw(
    W: Tensor,
    top: float,
    draws: dict[str, np.ndarray],
    count: int,
    seed: int,
    layer: str,
    spectrum: Spectrum | None = None,
) -> list[str]:
    """Complete `draws` to `count` per null, in their order, until a null explains `top`; the nulls completed."""
    completed = []
    for null in draws:
        have = len(draws[null])
        missing = range(have, count)
        if spectrum is not None or (W.ndim == 2 and min(W.shape) <= _WHOLE_SIDE):
            copies = full_replicas(W, null, len(missing), seed, layer, spectrum=spectrum, first=have)
            more = np.array([evals[-1] for evals in copies])
        else:
            more = top_replicas(W, null, missing, seed, layer)
        draws[null] = np.concatenate([draws[null], more])
        completed.append(null)
        if rank_p(top, draws[null]) > LEVEL:
            break
    return completed


def _judged(
    evals: np.ndarray,
    fit: MPFit,
    shape: tuple[int, int],
    nulls: tuple[str, ...],
    draws: dict[str, np.ndarray],
    ranked: list[str],
    screened: bool,
) -> SpikeTest:
    top = float(evals[-1])
    rank = {null: float(rank_p(top, draws[null])) for null in ranked}
    predicted = {null: _predicted_p(top, draws[null]) for null in ranked}
    p_rank = max(rank.values(), default=None)
    p = max(predicted.values(), default=None)
    if p is not None and p_rank is not None and len(ranked) < len(nulls):
        p = max(p, p_rank)  # a p-value of the null that explains λ_max, and no smaller than its rank says
    edges = {"tracy-widom": float(fit.tw99), **{null: _edge(values) for null, values in draws.items() if len(values)}}
    edge = max(edges.values())
    above = _count(evals, edge)
    low = _count(evals, max([fit.tw99, *(_predicted_edge(draws[null], 0.01) for null in ranked)]))
    high = _count(evals, max([fit.tw95, *(_predicted_edge(draws[null], 0.05) for null in ranked)]))
    verdict, reason = _verdict(nulls, ranked, rank, screened, above)
    return SpikeTest(
        shape=shape,
        nulls=nulls,
        lambda_max=top,
        n_spikes=above if nulls else None,
        n_spikes_tw=_count(evals, fit.tw99),
        n_low=min(low, above) if nulls else low,
        n_high=max(high, above) if nulls else high,
        edge=edge,
        edges=MappingProxyType(edges),
        p=p,
        p_rank=p_rank,
        p_by_null=MappingProxyType(predicted),
        p_rank_by_null=MappingProxyType(rank),
        draws=MappingProxyType(draws),
        replicas=MappingProxyType({}),
        fits=MappingProxyType({}),
        screened=screened,
        verdict=verdict,
        reason=reason,
    )


def _verdict(
    nulls: tuple[str, ...], ranked: list[str], rank: dict[str, float], screened: bool, above: int
) -> tuple[Verdict, str]:
    """The verdict on this matrix alone (no adjustment over layers), and why."""
    if not nulls:
        return "cannot say", "no resampling null was drawn, and the Tracy-Widom edge alone is no evidence"
    if screened:
        return "no", "the largest eigenvalue does not pass the .95 Tracy-Widom edge"
    if not ranked:
        return "cannot say", "no rank test was asked for"
    explaining = [null for null in ranked if rank[null] > LEVEL]
    if "signflip" in explaining:
        return "no", "copies with random signs reach it: the scales of rows, columns or entries explain it"
    if explaining:
        return "no", "shuffled copies reach it: the distribution of the entries explains it"
    if not above:
        return "no", "no eigenvalue passes the .99 Tracy-Widom edge"
    if len(nulls) < len(KINDS):
        other = next(kind for kind in KINDS if kind not in nulls)
        return "cannot say", f"only the null {nulls[0]} was drawn; a spike must pass {other} too"
    return "yes", "it passes the Tracy-Widom edge, shuffled copies and copies with random signs"


def _count(evals: np.ndarray, edge: float) -> int:
    return int(np.count_nonzero(evals > edge))


def _edge(draws: np.ndarray) -> float:
    """The draw that must be beaten for a rank p of at most .05: the largest of 19, the fifth largest of 99."""
    place = max(1, math.floor(LEVEL * (len(draws) + 1) + 1e-9))
    return float(np.sort(draws)[-place])


def _prediction(draws: np.ndarray) -> tuple[float, float]:
    """Mean and standard error of one more draw of log λ_max."""
    logs = np.log(draws)
    return float(logs.mean()), float(logs.std(ddof=1) * math.sqrt(1 + 1 / len(logs)))


def _predicted_p(top: float, draws: np.ndarray) -> float:
    from scipy.special import stdtr

    mean, error = _prediction(draws)
    if error == 0:
        return float(rank_p(top, draws))
    return float(stdtr(len(draws) - 1, (mean - math.log(top)) / error))


def _predicted_edge(draws: np.ndarray, level: float) -> float:
    from scipy.special import stdtrit

    mean, error = _prediction(draws)
    return math.exp(mean + error * float(stdtrit(len(draws) - 1, 1 - level)))


def _deflated(test: SpikeTest, W: Tensor, rank_replicas: int, seed: int, layer: str) -> SpikeTest:
    """Rounds of taking out what was found and testing what is left, until nothing more is found."""
    rounds = [Round(test.n_spikes or 0, test.edge, test.p, test.p_rank)]
    total = low = high = 0
    last = test
    while last.n_spikes and last.verdict != "no" and len(rounds) <= _MOST_ROUNDS:
        total, low, high = total + last.n_spikes, low + (last.n_low or 0), high + (last.n_high or 0)
        W, evals, shape = without_top(W, last.edge)
        fit = fit_mp(evals, shape)
        draws: dict[str, np.ndarray] = {null: np.empty(0) for null in test.nulls}
        screened = float(evals[-1]) <= fit.tw95
        ranked = [] if screened else _draw(W, float(evals[-1]), draws, rank_replicas, seed, f"{layer}/{len(rounds)}")
        last = _judged(evals, fit, shape, test.nulls, draws, ranked, screened)
        rounds.append(Round(last.n_spikes or 0 if last.verdict != "no" else 0, last.edge, last.p, last.p_rank))
    return replace(test, n_spikes=total, n_low=max(low, 0), n_high=max(high, total), rounds=tuple(rounds))
