"""The test of spikes: eigenvalues beyond the Tracy-Widom edge, beyond shuffled and beyond sign-flipped copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import BadOption, NonFinite, ShapeMismatch, UnknownName
from querist.weights.nulls._bulk import MPFit, fit_mp
from querist.weights.nulls._deflate import without_top
from querist.weights.nulls._rank import LEVEL, predicted_edge, predicted_p, rank_edge, spike_verdict, tied_rank_p
from querist.weights.nulls._replicas import KINDS, Spectrum, full_replicas, pooled, top_error, top_replicas
from querist.weights.nulls._spiketest import Round, SpikeTest
from querist.weights.spectrum import nonfinite

__all__ = ["spike_test"]

_MOST_ROUNDS = 16


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
    independent: int | None = None,
) -> SpikeTest:
    """Are there directions in W that noise of this size could not make?

    W: [h, d], or a stack [count, h, d] whose eigenvalues are pooled and whose entries are resampled as a whole.
    evals, fit: its spectrum and Marchenko-Pastur fit where known. replicas: whole spectra drawn from each null.
    rank_replicas: draws of λ_max from each null, the whole ones among them; 0 for none, else at least 19. screen: no
    rank test where λ_max does not pass the .95 Tracy-Widom edge. deflate: take what was found out and test again,
    because strong spikes raise the null and hide weak ones. spectrum, shape: where a resampled W becomes eigenvalues in
    another way (a convolution operator from its kernel), how, and [h, d] of one of its matrices; of a plain matrix they
    must still be those of W Wᵀ, as large ones are drawn by Lanczos. independent: as in `fit_mp`.

    A spike needs both nulls: heavy entries pass Tracy-Widom without any structure, row scales pass the shuffle. With
    one null the verdict is at most "cannot say"; with none always. Raises NonFinite, UnknownName, BadOption,
    ShapeMismatch, and NumericalFailure where there is no bulk to fit (fewer than five eigenvalues, or most zero).

    Source: rank test over permutations and sign flips; the pair of nulls, the order (sign flips first, the shuffle only
    where they reject) and the t prediction are ours.
    """
    W, nulls, shape = _checked(W, nulls, replicas, rank_replicas, deflate, spectrum, shape)
    whole = spectrum or pooled
    evals = np.asarray(whole(W) if evals is None else evals, dtype=np.float64)
    count = max(1, -(-evals.size // min(shape)))
    law = partial(fit_mp, shape=shape, count=count, independent=independent)
    fit = law(evals) if fit is None else fit
    top, tie = float(evals[-1]), top_error(shape)
    spectra = {null: tuple(full_replicas(W, null, replicas, seed, layer, spectrum=spectrum)) for null in nulls}
    fits = {null: tuple(law(drawn) for drawn in spectra[null]) for null in nulls}
    draws = {null: np.array([drawn[-1] for drawn in spectra[null]]) for null in nulls}
    screened = screen and rank_replicas > 0 and top <= fit.tw95
    ranked: list[str] = []
    if rank_replicas and not screened:
        ranked = _draw(W, top, draws, rank_replicas, seed, layer, tie, spectrum)
    test = _judged(evals, fit, shape, nulls, draws, ranked, screened, tie)
    test = replace(test, replicas=spectra, fits=fits)
    if deflate and test.n_spikes:
        return _deflated(test, W, rank_replicas, seed, layer, tie)
    return test


def _checked(W, nulls, replicas, rank_replicas, deflate, spectrum, shape):
    W = torch.as_tensor(W).detach()
    if spectrum is None and (W.ndim not in (2, 3) or 0 in W.shape):
        raise ShapeMismatch(
            "A spike test needs a matrix or a stack of matrices",
            value=tuple(W.shape),
            allowed="[h, d] or [count, h, d]",
        )
    for null in nulls:
        if null not in KINDS:
            raise UnknownName("Unknown null", value=null, allowed=", ".join(KINDS))
    if replicas < 0:
        raise BadOption("`replicas` counts whole spectra", value=replicas, allowed="0 or more")
    if rank_replicas != 0 and rank_replicas < 19:
        raise BadOption(
            "Too few draws for a rank test at .05",
            value=f"rank_replicas={rank_replicas}",
            allowed="0 (no rank test), or 19 and more",
        )
    if deflate and (spectrum is not None or rank_replicas == 0):
        raise BadOption(
            "Deflation needs plain matrices and a rank test",
            value=f"deflate=True with {'spectrum=' if spectrum is not None else 'rank_replicas=0'}",
            mend="Leave one of them out",
        )
    if nulls and nonfinite(W)[0]:  # without copies only its eigenvalues are read, which see to it themselves
        raise NonFinite("The matrix holds NaN or infinite entries", mend="Mend or leave out the tensor")
    # Sign flips first: see _draw.
    return W, tuple(null for null in reversed(KINDS) if null in nulls), shape or (W.shape[-2], W.shape[-1])


def _draw(
    W: Tensor,
    top: float,
    draws: dict[str, np.ndarray],
    count: int,
    seed: int,
    layer: str,
    tie: float,
    spectrum: Spectrum | None = None,
) -> list[str]:
    """Complete `draws` to `count` per null, in their order, until a null explains `top`; the nulls completed."""
    completed = []
    for null in draws:
        have = len(draws[null])
        missing = range(have, count)
        if spectrum is not None and W.ndim != 2:
            copies = full_replicas(W, null, len(missing), seed, layer, spectrum=spectrum, first=have)
            more = np.array([evals[-1] for evals in copies])
        else:
            more = top_replicas(W, null, missing, seed, layer)
        draws[null] = np.concatenate([draws[null], more])
        completed.append(null)
        if tied_rank_p(top, draws[null], tie) > LEVEL:
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
    tie: float,
) -> SpikeTest:
    top = float(evals[-1])
    rank = {null: tied_rank_p(top, draws[null], tie) for null in ranked}
    predicted = {null: predicted_p(top, draws[null], tie) for null in ranked}
    p_rank = max(rank.values(), default=None)
    p = max(predicted.values(), default=None)
    if p is not None and p_rank is not None and len(ranked) < len(nulls):
        p = max(p, p_rank)  # a p-value of the null that explains λ_max, and no smaller than its rank says
    edges = {
        "tracy-widom": float(fit.tw99),
        **{null: rank_edge(values, tie) for null, values in draws.items() if len(values)},
    }
    edge = max(edges.values())
    above = _count(evals, edge)
    low = _count(evals, max([fit.tw99, *(predicted_edge(draws[null], 0.01) for null in ranked)]))
    high = _count(evals, max([fit.tw95, *(predicted_edge(draws[null], 0.05) for null in ranked)]))
    verdict, reason = spike_verdict(nulls, rank, screened=screened, n_spikes=above)
    return SpikeTest(
        shape=shape,
        nulls=nulls,
        lambda_max=top,
        n_spikes=above if nulls else None,
        n_spikes_tw=_count(evals, fit.tw99),
        n_low=min(low, above) if nulls else low,
        n_high=max(high, above) if nulls else high,
        edge=edge,
        edges=edges,
        p=p,
        p_rank=p_rank,
        p_by_null=predicted,
        p_rank_by_null=rank,
        draws=draws,
        replicas={},
        fits={},
        screened=screened,
        verdict=verdict,
        reason=reason,
    )


def _count(evals: np.ndarray, edge: float) -> int:
    return int(np.count_nonzero(evals > edge))


def _deflated(test: SpikeTest, W: Tensor, rank_replicas: int, seed: int, layer: str, tie: float) -> SpikeTest:
    """Rounds of taking out what was found and testing what is left, until nothing more is found."""
    rounds = [Round(test.n_spikes or 0, test.edge, test.p, test.p_rank)]
    total = low = high = 0
    last = test
    while last.n_spikes and len(rounds) <= _MOST_ROUNDS:
        total, low, high = total + last.n_spikes, low + (last.n_low or 0), high + (last.n_high or 0)
        W, evals, shape = without_top(W, last.edge)
        if evals.size < 5:
            break
        fit = fit_mp(evals, shape, count=len(W) if W.ndim == 3 else 1)
        draws: dict[str, np.ndarray] = {null: np.empty(0) for null in test.nulls}
        screened = float(evals[-1]) <= fit.tw95
        name = f"{layer}/{len(rounds)}"
        ranked = [] if screened else _draw(W, float(evals[-1]), draws, rank_replicas, seed, name, tie)
        last = _judged(evals, fit, shape, test.nulls, draws, ranked, screened, tie)
        rounds.append(Round(last.n_spikes or 0, last.edge, last.p, last.p_rank))
    return replace(test, n_spikes=total, n_low=low, n_high=high, rounds=tuple(rounds))
