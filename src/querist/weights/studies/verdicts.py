"""From the numbers of a layer to its findings: the rules of the room's questions, in one place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from querist.results.finding import Finding, Verdict
from querist.weights import questions as ask
from querist.weights.fits import finger_words
from querist.weights.nulls import KS_SD, beyond_copies
from querist.weights.studies.columns import SHORT_TAIL

__all__ = ["LEVEL", "Draws", "layer_findings", "run_findings", "spike_verdict"]

LEVEL = 0.05
BULK_LEVEL = 0.025
"""Of the bulk among its sign-flipped copies: half, since bulk or spikes alone make a layer trained."""
SMALLEST_N = 16
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Draws:
    """What the resampled copies of one layer gave: per null the largest eigenvalues, edges and bulk statistics."""

    tops: Mapping[str, Sequence[float]]
    edges: Mapping[str, Sequence[float]]
    bulk_ks: Mapping[str, Sequence[float]]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Draws:
        """Rows of the table null_draws for one layer."""
        tops: dict[str, list[float]] = {}
        edges: dict[str, list[float]] = {}
        bulk: dict[str, list[float]] = {}
        for row in rows:
            for store, column in ((tops, "lambda_max"), (edges, "edge"), (bulk, "bulk_ks")):
                if row["null"] != "real" and row[column] is not None:
                    store.setdefault(row["null"], []).append(row[column])
        return cls(tops, edges, bulk)


def layer_findings(row: Row, draws: Draws, nulls: Sequence[str]) -> Iterator[Finding]:
    """Every finding of one layer. `nulls` are the resampling nulls that the run used."""
    yield _damaged(row)
    if row["status"] in ("nonfinite", "failed", "passed-over"):
        return
    spikes, bulk = _spikes(row, draws, nulls), _bulk(row, draws)
    yield _trained(row, spikes, bulk)
    yield spikes
    yield bulk
    yield _heavy_tail(row, bulk)
    yield _collapse(row)
    yield _traps(row, draws)
    if row["lr_multiplier"] is not None or row["sparsity"] is not None:
        yield _advice(row)


def _finding(
    row: Row,
    question: Any,
    verdict: Verdict,
    because: str,
    estimate: float | None,
    *,
    low: float | None = None,
    high: float | None = None,
    null: float | None = None,
    p: float | None = None,
) -> Finding:
    return Finding(row["layer_id"], question.id, estimate, question.unit, low, high, null, p, verdict, because)


def _damaged(row: Row) -> Finding:
    count = row["n_nonfinite"] or 0
    if count:
        return _finding(row, ask.DAMAGED, "yes", f"{row['reason']}.", count, null=0)
    return _finding(row, ask.DAMAGED, "no", "Every entry is finite.", 0, null=0)


def spike_verdict(row: Row, nulls: Sequence[str]) -> Verdict:
    """Whether a layer has spikes, its p adjusted over all layers: the same answer in its row, its phase and its finding."""
    count, p, rank = row["n_spikes"], row["spike_p_adj"], row["spike_p_rank"]
    if count is None or not nulls:
        return "cannot say"
    if rank is None:
        return "no" if count == 0 and not row["n_spikes_tw"] else "cannot say"
    if rank > LEVEL:
        return "no"
    if len(nulls) < 2:
        return "cannot say"
    return "yes" if p is not None and p <= LEVEL and count > 0 else "no"


def _spikes(row: Row, draws: Draws, nulls: Sequence[str]) -> Finding:
    count, p, rank = row["n_spikes"], row["spike_p_adj"], row["spike_p_rank"]
    numbers = {"low": row["n_spikes_low"], "high": row["n_spikes_high"], "null": 0.0, "p": p}
    verdict, largest = spike_verdict(row, nulls), row["xmax"]
    if count is None and (nulls or row["n_spikes_tw"] is None):
        return _finding(row, ask.SPIKES, verdict, _without(row, "The edge of the noise was not found"), None, null=0)
    if rank is None and count == 0 and not row["n_spikes_tw"]:
        because = f"The largest eigenvalue, {largest:.4g}, does not pass the .95 edge of noise of this size."
        return _finding(row, ask.SPIKES, verdict, because, 0, **numbers)
    if rank is None and nulls:
        because = (
            f"{row['n_spikes_tw']} eigenvalues pass the Tracy–Widom edge; no rank test against copies was asked for."
        )
        return _finding(row, ask.SPIKES, verdict, because, count, **numbers)
    told = _copies(draws, largest)
    if len(nulls) < 2:
        missing = "Neither null was drawn" if not nulls else f"Only the null {nulls[0]} was drawn"
        because = f"{row['n_spikes_tw']} eigenvalues pass the Tracy–Widom edge, which heavy entries do too. {missing}."
        because = f"{because} {told}" if verdict == "no" else because
        return _finding(row, ask.SPIKES, verdict, because, count, **numbers)
    if verdict == "yes":
        word = "eigenvalue lies" if count == 1 else "eigenvalues lie"
        because = f"{count} {word} above {row['spike_edge']:.4g}, the edge of every null; {told}"
        return _finding(row, ask.SPIKES, verdict, because, count, **numbers)
    sign = draws.tops.get("signflip", ())
    if sign and largest <= max(sign):
        because = f"The scale of rows, columns or single entries explains the largest eigenvalue: {told}"
    elif p is not None and p > LEVEL:
        because = f"Not beyond chance among all layers of the run (adjusted p {p:.2g}); {told}"
    else:
        because = f"No eigenvalue lies beyond every null; {told}"
    return _finding(row, ask.SPIKES, verdict, because, count, **numbers)


def _copies(draws: Draws, largest: float) -> str:
    words = {"shuffle": "of shuffled copies", "signflip": "of copies with random signs"}
    parts = [
        f"{max(values):.4g} {words[name]} ({len(values)})" for name, values in sorted(draws.tops.items()) if values
    ]
    return f"largest {largest:.4g}, against {' and '.join(parts)}." if parts else f"largest {largest:.4g}."


def _bulk(row: Row, draws: Draws) -> Finding:
    ks, p = row["bulk_ks"], row["bulk_p"]
    if ks is None or p is None:
        return _finding(row, ask.BULK, "cannot say", _without(row, "The bulk was not fitted"), None)
    copies = draws.bulk_ks.get("signflip", ())
    typical = sum(copies) / len(copies) if copies else None
    beside = f", against {max(copies):.3g} at most in {len(copies)} copies with random signs" if copies else ""
    beyond = f"; p is extrapolated to {row['N']} eigenvalues" if row["bulk_extrapolated"] else ""
    if p > LEVEL:
        because = f"N·KS {ks:.3g} is within what a random matrix of this shape gives (p {_p(p)}){beyond}."
        return _finding(row, ask.BULK, "no", because, ks, null=typical, p=p)
    chance = row["bulk_p_copies"]
    if chance is None and len(copies) > 1:  # rows of a watched training hold no such column
        chance = beyond_copies(ks, copies, KS_SD * math.sqrt(row["n_values"] / row["N"]))
    if p < 0.01 and copies and chance is not None and chance <= BULK_LEVEL and ks > max(copies):
        because = f"N·KS {ks:.3g} is beyond a random matrix of this shape (p {_p(p)}){beside}{beyond}."
        return _finding(row, ask.BULK, "yes", because, ks, null=typical, p=p)
    if chance is None or not copies:
        few = "only one sign-flipped copy was" if copies else "no sign-flipped copy was"
        because = f"N·KS {ks:.3g} (p {_p(p)}), but {few} drawn to stand beside it{beyond}."
    elif ks <= max(copies):
        because = (
            f"N·KS {ks:.3g} (p {_p(p)}) is matched by copies with random signs (up to {max(copies):.3g}): scales do it"
            f"{beyond}."
        )
    elif chance > BULK_LEVEL:
        because = f"N·KS {ks:.3g} (p {_p(p)}) may be one more of the copies with random signs (p {_p(chance)}){beside}{beyond}."
    else:
        because = f"N·KS {ks:.3g} lies between the .05 and .01 points of a random matrix (p {_p(p)}){beside}{beyond}."
    return _finding(row, ask.BULK, "cannot say", because, ks, null=typical, p=p)


def _trained(row: Row, spikes: Finding, bulk: Finding) -> Finding:
    distance, null = row["shuffle_distance"], row["null_distance"]
    spread = _spread(row)
    low = distance - 1.96 * spread if distance is not None and spread is not None else None
    high = distance + 1.96 * spread if distance is not None and spread is not None else None
    numbers = {"low": low, "high": high, "null": null}
    if row["N"] < SMALLEST_N:
        because = f"{row['N']} eigenvalues are too few for a distance between spectra."
        return _finding(row, ask.TRAINED, "cannot say", because, distance, **numbers)
    told = (
        f"Its spectrum lies {distance:.3g} from its shuffled copies, two of which lie at most {null:.3g} apart"
        if distance is not None and null is not None
        else "No shuffled copies were drawn"
    )
    # The whole interval must clear the largest of the few distances between copies. Of random matrices with three copies the
    # mean clears it in a fifth, the interval by the first spread alone in .03, by the larger of both in .015; with two copies
    # in a fifth, hence none.
    beyond = low is not None and null is not None and low > null
    if beyond or spikes.verdict == "yes" or bulk.verdict == "yes":
        also = [name for name, finding in (("spikes", spikes), ("its bulk", bulk)) if finding.verdict == "yes"]
        more = (
            f"; {' and '.join(also)} {'say' if len(also) > 1 or also == ['spikes'] else 'says'} so too" if also else ""
        )
        return _finding(row, ask.TRAINED, "yes", f"{told}{more}.", distance, **numbers)
    inside = distance is not None and null is not None and distance <= null
    if inside and spikes.verdict == "no" and bulk.verdict == "no":
        return _finding(row, ask.TRAINED, "no", f"{told}; no spikes, and the bulk is random.", distance, **numbers)
    return _finding(row, ask.TRAINED, "cannot say", f"{told}; the evidence is not of one mind.", distance, **numbers)


def _spread(row: Row) -> float | None:
    """The larger standard deviation of distances, those to copies and those between them; None below three copies."""
    own, between = row["shuffle_distance_sd"], row["null_distance_sd"]
    return None if own is None or between is None else max(own, between)


def _heavy_tail(row: Row, bulk: Finding) -> Finding:
    alpha, n_tail = row["alpha"], row["n_tail"]
    numbers = {"low": row["alpha_low"], "high": row["alpha_high"], "null": row["alpha_mp"]}
    if alpha is None:
        return _finding(row, ask.HEAVY_TAIL, "cannot say", _without(row, "No power law was fitted"), None)
    null = f"a random matrix of this shape gives {row['alpha_mp']:.2g}" if row["alpha_mp"] is not None else "no null"
    told = f"Exponent {alpha:.2f} on {n_tail} of {row['n_values']} eigenvalues; {null}"
    if bulk.verdict == "no":
        return _finding(
            row, ask.HEAVY_TAIL, "no", f"{told}, and the bulk is that of a random matrix.", alpha, **numbers
        )
    if n_tail is None or n_tail < SHORT_TAIL:
        because = f"{told}. Fewer than {SHORT_TAIL} eigenvalues do not tell a power law from other tails."
        return _finding(row, ask.HEAVY_TAIL, "cannot say", because, alpha, **numbers)
    if row["xmin_ambiguous"]:
        because = (
            f"{told}. Tails that start elsewhere fit about as well, with exponents from {row['alpha_low']:.3g} to "
            f"{row['alpha_high']:.3g}."
        )
        return _finding(row, ask.HEAVY_TAIL, "cannot say", because, alpha, **numbers)
    if row["phase"] == "heavy-tailed" and row["phase_decided"]:
        because = (
            f"{told}, an exponential fits worse and a lognormal not better. The interval takes eigenvalues as independent; "
            "they repel each other, so it is wide."
        )
        finger = [finger_words(row["finger"])] if row["finger"] else []
        because = " ".join([because, *finger, *(row["fit_warnings"] or ())])
        return _finding(row, ask.HEAVY_TAIL, "yes", because, alpha, **numbers)
    reason = _tail_reason(row)
    return _finding(row, ask.HEAVY_TAIL, "cannot say", f"{told}. {reason}", alpha, **numbers)


def _tail_reason(row: Row) -> str:
    if row["lr_lognormal"] is not None and row["lr_lognormal"] < 0:
        return "A lognormal tail fits as well or better."
    if row["lr_exponential"] is not None and row["lr_exponential"] <= 0:
        return "An exponential tail fits as well or better."
    if row["phase"] is None:
        return "The phase could not be judged."
    return f"The evidence points to the phase {row['phase']}: {row['phase_reason']}."


def _collapse(row: Row) -> Finding:
    if row["rank_loss"] is None:
        return _finding(row, ask.COLLAPSE, "cannot say", _without(row, "Ranks were not computed"), None, null=0)
    share = row["rank_loss"] / row["n_values"]
    verdict: Verdict = "yes" if share > 0.1 else "no" if share < 0.01 else "cannot say"
    because = f"Rank {row['rank']} of {row['n_values']}: {100 * share:.3g} % lost."
    return _finding(row, ask.COLLAPSE, verdict, because, share, null=0)


def _traps(row: Row, draws: Draws) -> Finding:
    ratio = row["null_max_ratio"]
    if ratio is None:
        return _finding(row, ask.TRAPS, "cannot say", _without(row, "No shuffled copy was drawn"), None, null=1)
    ratios = [
        top / edge for top, edge in zip(draws.tops.get("shuffle", ()), draws.edges.get("shuffle", ()), strict=False)
    ] or [ratio]
    numbers = {"low": min(ratios), "high": max(ratios), "null": 1.0}
    told = (
        f"The largest eigenvalue of a shuffled copy is {ratio:.3g} times its own edge on average ({min(ratios):.3g} to "
        f"{max(ratios):.3g})."
    )
    if min(ratios) > 1:
        return _finding(
            row, ask.TRAPS, "yes", f"{told} Extreme entries make outliers without correlation.", ratio, **numbers
        )
    verdict: Verdict = "no" if max(ratios) <= 1 else "cannot say"
    return _finding(row, ask.TRAPS, verdict, told, ratio, **numbers)


def _advice(row: Row) -> Finding:
    value = row["lr_multiplier"] if row["lr_multiplier"] is not None else row["sparsity"]
    null = 1.0 if row["lr_multiplier"] is not None else None
    what = f"learning rate times {value:.3g}" if null else f"prune {100 * value:.3g} % of the weights"
    if row["advice_reason"]:
        return _finding(row, ask.ADVICE, "cannot say", f"{row['advice_reason']}: {what}.", value, null=null)
    return _finding(row, ask.ADVICE, "yes", f"By the layer's exponent: {what}.", value, null=null)


def run_findings(rows: Sequence[Row], findings: Sequence[Finding]) -> Iterator[Finding]:
    """What the layers say together, subject `run`."""
    mine = [finding for finding in findings if finding.question == ask.TRAINED.id]
    if not mine:
        return
    yes = [finding for finding in mine if finding.verdict == "yes"]
    no = [finding for finding in mine if finding.verdict == "no"]
    spiked = sum(f.verdict == "yes" for f in findings if f.question == ask.SPIKES.id)
    distances = sorted(row["shuffle_distance"] for row in rows if row["shuffle_distance"] is not None)
    nulls = sorted(row["null_distance"] for row in rows if row["null_distance"] is not None)
    verdict: Verdict = "yes" if spiked or len(yes) > len(mine) / 2 else "no" if len(no) == len(mine) else "cannot say"
    because = f"Training left its mark in {len(yes)} of {len(mine)} layers, spikes in {spiked}; {len(no)} look random."
    middle = distances[len(distances) // 2] if distances else None
    null = nulls[len(nulls) // 2] if nulls else None
    yield Finding("run", ask.TRAINED.id, middle, ask.TRAINED.unit, None, None, null, None, verdict, because)


def _without(row: Row, otherwise: str) -> str:
    return f"{row['reason'] or otherwise}."


def _p(p: float) -> str:
    return f"{p:.2g}" if p >= 0.001 else "< .001"
