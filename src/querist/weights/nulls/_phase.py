"""Which phase of training a spectrum is in: tests in a fixed order, each with its margin in null deviations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from querist.errors import BadOption
from querist.weights.nulls._bulk import MPFit
from querist.weights.nulls._lanczos import edge_scale
from querist.weights.nulls._spiketest import SpikeTest

__all__ = ["PHASES", "Evidence", "Phase", "PhaseStability", "Tail", "phase", "phase_stability", "row_block_deletions"]

PHASES = ("random-like", "bleeding-out", "bulk+spikes", "bulk-decay", "heavy-tailed", "rank-collapse")

COLLAPSED_SHARE = 0.1
BLEEDING = 1.05
SHORT_TAIL = 50
_TAIL_TESTS = 3
_Z90 = 1.6448536269514722  # two-sided p = .1 of a likelihood ratio
_Z99 = 2.3263478740408408  # p = .01 of the table of bulk_ks
_TW_SD = 1.268  # standard deviation of the Tracy-Widom law, in units of σ_J


class Tail(Protocol):
    """What of a power-law fit decides: its length, Vuong's ratios (name to R > 0 for the power law, and p), and whether tails
    that start elsewhere fit about as well with other exponents."""

    @property
    def n_tail(self) -> int: ...

    @property
    def ratios(self) -> Mapping[str, tuple[float, float]]: ...

    @property
    def ambiguous(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Evidence:
    """One statistic beside its threshold; margin: value beyond threshold (negative: short of it), in null sd."""

    name: str
    value: float
    threshold: float
    margin: float

    def as_dict(self) -> dict[str, Any]:
        """name, value, threshold, margin."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Phase:
    """Where a spectrum stands.

    label: one of PHASES, None where the evidence is missing. decided: every test was made and `margin`, the smallest of
    those that decided, is at least 1; otherwise the answer is "cannot say" and `label` is only where it points.
    """

    label: str | None
    decided: bool
    margin: float | None
    evidence: tuple[Evidence, ...]
    because: str


def phase(*, N: int, rank_loss: int | None, mp: MPFit | None, spikes: SpikeTest | None, fit: Tail | None) -> Phase:
    """The phase of a spectrum of N eigenvalues (all of a pooled stack), by the first of these that applies.

    1. rank_loss/N > .1: rank-collapse. 2. Bulk like Marchenko-Pastur and no spike: random-like. 3. Such a bulk, and
    eigenvalues beyond the edge of the nulls, all below 1.05 of it: bleeding-out. 4. Such a bulk and spikes:
    bulk+spikes. 5. A bulk rejected by the table (.01) and by every sign-flipped copy: heavy-tailed where the power law
    has at least 50 eigenvalues, beats the exponential (p < .1) and is not beaten by the lognormal; else bulk-decay. Where
    other xmins fit about as well with other exponents the label stays heavy-tailed and nothing is decided.

    rank_loss: None where ranks were not computed. mp, spikes, fit: of the same eigenvalues; mp or spikes None: no
    label; fit None: no tail was fitted. The margin of "A and B" is the smaller of the two, of its negation the larger.

    Source: the phases of Martin & Mahoney; the tests, their nulls and margins are ours. Exponents decide nothing.
    """
    evidence: list[Evidence] = []
    used: list[float] = []
    if rank_loss is not None and N > 0:
        share, sd = rank_loss / N, math.sqrt(COLLAPSED_SHARE * (1 - COLLAPSED_SHARE) / N)
        lost = Evidence("rank_loss_share", share, COLLAPSED_SHARE, (share - COLLAPSED_SHARE) / sd)
        evidence.append(lost)
        used.append(abs(lost.margin))
        if share > COLLAPSED_SHARE:
            return _told("rank-collapse", used, evidence, f"{100 * share:.3g} % of the rank is lost")
    if mp is None or spikes is None:
        return Phase(None, False, None, tuple(evidence), "the bulk was not fitted, or no null was drawn")

    bulk = list(_bulk(mp, spikes))
    evidence += bulk
    departs = min(item.margin for item in bulk)
    used.append(abs(departs))
    if departs > 0:
        missing = "" if len(bulk) == 2 else "fewer than two copies with random signs stand beside the bulk"
        tail, why, unknown = _tail(fit)
        evidence += tail
        heavy = min(item.margin for item in tail)
        used.append(abs(heavy))
        label = "heavy-tailed" if heavy > 0 and len(tail) == _TAIL_TESTS else "bulk-decay"
        return _told(label, used, evidence, f"the bulk departs from Marchenko-Pastur; {why}", missing or unknown)

    sd = _edge_sd(spikes)
    beyond = _against("lambda_max", spikes.lambda_max, spikes.edge, sd)
    evidence.append(beyond)
    used.append(abs(beyond.margin))
    if beyond.margin <= 0:
        return _told("random-like", used, evidence, "the bulk is Marchenko-Pastur, nothing lies beyond its nulls")
    missing = "" if spikes.verdict == "yes" else spikes.reason
    bleeding = _against("lambda_max_bleeding", spikes.lambda_max, BLEEDING * spikes.edge, sd)
    evidence.append(bleeding)
    used.append(abs(bleeding.margin))
    if bleeding.margin <= 0:
        return _told("bleeding-out", used, evidence, "eigenvalues pass the edge by less than 5 %", missing)
    return _told("bulk+spikes", used, evidence, "the bulk is Marchenko-Pastur with spikes beyond its nulls", missing)


def _told(label: str, used: list[float], evidence: list[Evidence], why: str, missing: str = "") -> Phase:
    margin = min(used)
    decided = margin >= 1 and not missing
    if missing:
        why = f"{why}, but {missing}"
    elif not decided:
        why = f"{why}, by {margin:.2g} null standard deviations only"
    return Phase(label, decided, margin, tuple(evidence), why)


def _bulk(mp: MPFit, spikes: SpikeTest) -> Iterator[Evidence]:
    """The bulk against the table of Gaussian matrices, and against the sign-flipped copies where there are any."""
    score = _normal(mp.bulk_p)
    yield Evidence("bulk_score", score, _Z99, score - _Z99)
    copies = [fit.bulk_ks for fit in spikes.fits.get("signflip", ())]
    if len(copies) > 1:
        beyond = mp.bulk_ks - max(copies)
        sd = max(mp.ks_sd, float(np.std(copies, ddof=1)) * (_sd_limit(len(copies)) if beyond > 0 else 1.0))
        yield Evidence("bulk_ks", mp.bulk_ks, max(copies), beyond / sd)


def _sd_limit(n: int) -> float:
    """Upper .9 confidence limit of a standard deviation over that of n draws: 3.1 for three, 1.3 for nineteen.

    A matrix that is exchangeable with its three copies passes them all by their own standard deviation once in nine
    times, by this limit once in twenty-eight.
    """
    from scipy.special import chdtri

    return math.sqrt((n - 1) / float(chdtri(n - 1, 0.9)))


def _edge_sd(spikes: SpikeTest) -> float:
    """Standard deviation of log λ_max under the null that sets the edge; at least Tracy-Widom's, for few draws."""
    setter = max(spikes.edges, key=lambda name: spikes.edges[name])
    draws = spikes.draws.get(setter, np.empty(0))
    drawn = float(np.log(draws).std(ddof=1)) if len(draws) > 1 else 0.0
    return max(_TW_SD * edge_scale(*spikes.shape), drawn)


def _against(name: str, value: float, threshold: float, sd: float) -> Evidence:
    return Evidence(name, value, threshold, math.log(value / threshold) / sd)


def _tail(fit: Tail | None) -> tuple[list[Evidence], str, str]:
    """Evidence that the tail is a power law; what it says; what is missing to say it."""
    n_tail = 0 if fit is None else fit.n_tail
    length = Evidence("n_tail", n_tail, SHORT_TAIL, (n_tail - SHORT_TAIL + 0.5) / math.sqrt(SHORT_TAIL))
    if fit is None or n_tail < SHORT_TAIL:
        return [length], f"its tail holds {n_tail} eigenvalues, too few for a power law", ""
    if not {"exponential", "lognormal"} <= set(fit.ratios):
        return [length], "its tail was not compared", "no likelihood ratios were computed"
    exponential, lognormal = (_z(*fit.ratios[name]) for name in ("exponential", "lognormal"))
    found = [
        length,
        Evidence("vuong_exponential", exponential, _Z90, exponential - _Z90),
        Evidence("vuong_lognormal", lognormal, -_Z90, lognormal + _Z90),
    ]
    if exponential <= _Z90:
        return found, "a power law does not beat the exponential on its tail", ""
    if lognormal <= -_Z90:
        return found, "a lognormal beats the power law on its tail", ""
    other = "tails that start elsewhere fit about as well with other exponents" if fit.ambiguous else ""
    return found, f"a power law on {n_tail} eigenvalues beats the exponential and is not beaten by the lognormal", other


def _z(ratio: float, p: float) -> float:
    return math.copysign(max(_normal(p / 2), 0.0), ratio)


def _normal(p: float) -> float:
    """The standard normal score that is exceeded with probability p, kept finite."""
    from scipy.special import ndtri

    return -float(ndtri(min(max(p, 1e-300), 0.999)))


@dataclass(frozen=True, slots=True)
class PhaseStability:
    """share: of the deletions that give the reference label; labels: of each deletion, in the order of the rows."""

    share: float
    labels: tuple[str | None, ...]


def row_block_deletions(W: Tensor, K: int) -> Iterator[Tensor]:
    """W without each of K contiguous blocks of rows (axis -2) in turn; blocks differ by one row at most."""
    rows = W.shape[-2]
    if not 2 <= K <= rows:
        raise BadOption("Rows are deleted in blocks", value=f"stability={K}", allowed=f"2 to {rows} (the rows)")
    for kept in np.array_split(np.arange(rows), K):
        yield torch.cat([W[..., : kept[0], :], W[..., kept[-1] + 1 :, :]], dim=-2)


def phase_stability(W: Tensor, K: int, label: str | None, judge: Callable[[Tensor], str | None]) -> PhaseStability:
    """Does the phase hold without any one of K blocks of rows?

    label: the phase of the whole of W. judge: from a matrix to its label, all fits made anew.
    """
    labels = tuple(judge(part) for part in row_block_deletions(W, K))
    return PhaseStability(sum(found == label for found in labels) / K, labels)
