"""From the numbers of a compared matrix to its findings: the rules of `weights.changed` and `weights.aligned`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from querist.results.finding import Finding, Verdict
from querist.weights import questions as ask
from querist.weights.configs import CompareConfig
from querist.weights.studies.directions import ALIGNED

__all__ = ["change_findings", "run_findings"]

LEVEL = 0.05
STRICT = 0.01
"""Level of spikes in a change that is no larger than rounding: rounding errors are independent, but a re-saved file of
hundreds of layers must not be called changed."""
Row = Mapping[str, Any]


def change_findings(row: Row, config: CompareConfig) -> Iterator[Finding]:
    """Both findings of one matrix."""
    changed = _changed(row, config)
    yield changed
    yield _aligned(row, changed, config)


def _changed(row: Row, config: CompareConfig) -> Finding:
    size, limit = row["delta_relative"], row["rounding"]

    def finding(verdict: Verdict, because: str, p: float | None = None) -> Finding:
        q = ask.CHANGED
        return Finding(row["layer_id"], q.id, size, q.unit, None, None, limit, p, verdict, because)

    if row["status"] in ("nonfinite", "failed"):
        return finding("cannot say", _sentence(row["reason"]))
    if row["delta_norm"] is None or row["status"] == "unchanged":
        return finding("no", _sentence(row["reason"]))
    told = _spikes(row, config)
    if size is None:
        return finding("yes", f"The base is zero and the tuned matrix is not; {told}.")
    if limit is None or size > limit:
        beside = "" if not limit else f", against at most {_percent(limit)} by rounding in {row['dtype_rounding']}"
        return finding("yes", f"ΔW is {_percent(size)} of W{beside}; rank {row['delta_rank']} of {row['N']}; {told}.")
    small = (
        f"ΔW is {_percent(size)} of W, no more than rounding in {row['dtype_rounding']} can make ({_percent(limit)})"
    )
    if _beyond(row, STRICT):
        because = f"{small}, but rounding errors are independent of each other: {told}."
        return finding("yes", because, row["delta_p_adj"])
    return finding("no", f"{small}; {told}.", row["delta_p_adj"])


def _beyond(row: Row, level: float) -> bool:
    """Whether ΔW has directions that its resampled copies lack."""
    ranked = row["delta_p_rank"] is not None and row["delta_p_rank"] <= LEVEL
    return ranked and bool(row["delta_n_spikes"]) and row["delta_p_adj"] is not None and row["delta_p_adj"] <= level


def _spikes(row: Row, config: CompareConfig) -> str:
    """The spikes of ΔW in words."""
    count = row["delta_n_spikes"]
    copies = (
        "pairs with shuffled and with sign-flipped factors"
        if row["delta_null"] == "factors"
        else "shuffled and sign-flipped copies"
    )
    if count is None:
        return "no copy of it was drawn, so its directions stand beside nothing"
    if row["delta_null"] == "factors" and row["delta_rank"] == 1:
        return "a rank-one update is one direction, whatever its entries"
    if len(config.nulls) < 2 or row["delta_p_rank"] is None:
        if not count:
            return "no direction of it stands out of noise of its size"
        return f"{_directions(count)} beyond the copies that were drawn, too few for a test"
    if _beyond(row, LEVEL):
        verb = "stands" if count == 1 else "stand"
        return (
            f"{_directions(count)} {verb} out of {copies} (edge {row['delta_edge']:.3g}, "
            f"adjusted p {_p(row['delta_p_adj'])})"
        )
    if count and row["delta_p_rank"] <= LEVEL and row["delta_p_adj"] is not None:
        return (
            f"its largest singular value lies beyond {copies}, but not beyond chance among all layers of the run "
            f"(adjusted p {_p(row['delta_p_adj'])})"
        )
    return f"no direction of it stands out of {copies}: independent entries of the same sizes would do as much"


def _aligned(row: Row, changed: Finding, config: CompareConfig) -> Finding:
    side, p = row["overlap_side"], row["overlap_p_adj"]
    value = row[f"overlap_{side}"] if side else None

    def finding(verdict: Verdict, because: str) -> Finding:
        q, low, high = ask.ALIGNED, row["overlap_low"], row["overlap_high"]
        return Finding(row["layer_id"], q.id, value, q.unit, low, high, row["overlap_null"], p, verdict, because)

    if value is None or p is None:
        return finding("cannot say", _sentence(row["reason"] or "no directions were compared"))
    k, l = row["overlap_k"], row["overlap_l"]  # noqa: E741
    told = (
        f"{_percent(value)} of the {l} leading {side} directions of ΔW lie in the {k} leading ones of W, "
        f"against {_percent(row['overlap_null'])} of random directions"
    )
    if changed.verdict != "yes":
        return finding(
            "cannot say", f"{told}; but there is no change beyond rounding whose directions would mean anything."
        )
    if p > ALIGNED:
        verdict: Verdict = "no" if p > LEVEL else "cannot say"
        if value < row["overlap_low"]:
            return finding(verdict, f"{told}: fewer than chance, ΔW avoids them (adjusted p {_p(p)}).")
        return finding(verdict, f"{told}: within chance (adjusted p {_p(p)}).")
    if row["overlap_flip"] is None:
        return finding(
            "cannot say",
            f"{told} (adjusted p {_p(p)}); no sign-flipped copies tell what the scales of rows and columns do.",
        )
    beside = f"{told} and {_percent(row['overlap_flip'])} at most of copies with random signs"
    if row["overlap_flip_p_rank"] <= LEVEL and row["overlap_flip_p"] <= ALIGNED:
        rest, share = row["overlap_rest"], f"the share of W itself in ΔW (cosine {row['delta_cosine'] or 0:.2g})"
        if rest is None:
            return finding("yes", f"{beside} (adjusted p {_p(p)}).")
        if row["overlap_rest_p"] <= ALIGNED and rest > row["overlap_flip"]:
            return finding("yes", f"{beside}; {_percent(rest)} without {share} (adjusted p {_p(p)}).")
        word = "shrank or was replaced" if row["delta_cosine"] < 0 else "grew"
        return finding(
            "no", f"{beside}, but only {_percent(rest)} without {share}: W {word}, which lies along W by itself."
        )
    if row["overlap_flip_p_rank"] > LEVEL:
        return finding("no", f"{beside}: the scales of rows and columns explain it.")
    return finding(
        "cannot say", f"{beside}: the scales of rows and columns nearly explain it (p {_p(row['overlap_flip_p'])})."
    )


def run_findings(rows: Sequence[Row], findings: Sequence[Finding]) -> Iterator[Finding]:
    """What the matrices say together, subject `run`."""
    changed = [f for f in findings if f.question == ask.CHANGED.id]
    if not changed:
        return
    yes, no = (sum(f.verdict == word for f in changed) for word in ("yes", "no"))
    verdict: Verdict = "yes" if yes else "no" if no == len(changed) else "cannot say"
    measured = [row for row in rows if row["norm"] is not None and row["delta_norm"] is not None]
    total = sum(row["norm"] ** 2 for row in measured) ** 0.5
    size = sum(row["delta_norm"] ** 2 for row in measured) ** 0.5 / total if total else None
    limit = sum((row["rounding"] or 0.0) ** 2 * row["norm"] ** 2 for row in measured) ** 0.5 / total if total else None
    spiked = sum(bool(_beyond(row, LEVEL)) for row in rows)
    because = f"{yes} of {len(rows)} matrices changed beyond rounding, {no} did not; directions stand out of noise in {spiked}."
    q = ask.CHANGED
    yield Finding("run", q.id, size, q.unit, None, None, limit, None, verdict, because)
    aligned = [f for f in findings if f.question == ask.ALIGNED.id]
    known = [f for f in aligned if f.verdict != "cannot say"]
    along = sum(f.verdict == "yes" for f in aligned)
    ratios = sorted((f.estimate, f.null) for f in aligned if f.estimate is not None and f.null)
    middle = ratios[len(ratios) // 2] if ratios else (None, None)
    verdict = "cannot say" if not known else "yes" if along > len(known) / 2 else "no" if not along else "cannot say"
    because = f"The change lies along the leading directions of its matrix in {along} of {len(aligned)} matrices."
    q = ask.ALIGNED
    yield Finding("run", q.id, middle[0], q.unit, None, None, middle[1], None, verdict, because)


def _sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}."


def _directions(count: int) -> str:
    return "1 direction of it" if count == 1 else f"{count} directions of it"


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def _p(p: float) -> str:
    return f"{p:.2g}" if p >= 0.001 else "< .001"
