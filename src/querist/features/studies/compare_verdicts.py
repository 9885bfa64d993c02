"""From the numbers of a comparison to its findings: the rules of the room's questions, in one place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from querist.features import questions as ask
from querist.features.configs import CompareConfig
from querist.features.profile import Association, ConsistencyRow, Gap
from querist.results.finding import Finding, Verdict

__all__ = [
    "association_finding",
    "consistency_findings",
    "gap_any_finding",
    "gap_finding",
    "health_finding",
    "move_finding",
    "overlap_finding",
    "subject",
]

ENOUGH_NETS = 19
"""Random networks below which p cannot reach .05."""


def subject(config: CompareConfig, layer: str, target: str) -> str:
    """Of a finding on one layer: its name, with the target where there are several."""
    return layer if len(config.target) == 1 else f"{layer} ({target})"


def gap_verdict(gap: Gap, margin: float, level: float) -> Verdict:
    """No is tested first: an excess that is surely below the margin does not matter, however small its p."""
    if gap.high < margin:
        return "no"
    return "yes" if gap.p_adj <= level and gap.low > 0 else "cannot say"


def gap_finding(config: CompareConfig, target: str, layer: str, gap: Gap, layers: int) -> Finding:
    """One layer and target."""
    level = config.level / config.looks
    verdict = gap_verdict(gap, config.margin, level)
    times = f", {gap.ratio:.3g} times" if gap.ratio is not None and gap.ratio > 1 else ","
    where = (
        f"At {layer}, {target} lies {gap.raw:.3g} away{times} the {gap.null_mean:.3g} between two parts of the source"
    )
    family = f"over {layers} layers" + (f" and {len(config.target)} targets" if len(config.target) > 1 else "")
    test = f"p = {gap.p_adj:.2g} {family}"
    if config.looks > 1:
        test += f", held against {level:.3g} in each of {config.looks} looks"
    if verdict == "no":
        told = f"the excess is at most {gap.high:.3g}, below the margin {config.margin:g} ({test})."
    elif verdict == "yes":
        told = f"{test}. The law differs; this does not say that transfer is poor."
    elif gap.p_adj <= level:
        told = f"{test}, but the excess may be 0 (its interval begins there)."
    else:
        told = f"{test}: such a distance also arises by chance, and an excess of {gap.high:.3g} cannot be excluded."
    because = f"{where} ({gap.n_c} examples each); {told}"
    return Finding(
        subject(config, layer, target),
        ask.GAP.id,
        gap.excess,
        ask.GAP.unit,
        gap.low,
        gap.high,
        0.0,
        gap.p_adj,
        verdict,
        because,
    )


def gap_any_finding(
    config: CompareConfig, target: str, largest: tuple[float, float], gaps: Mapping[str, Gap]
) -> Finding:
    """Is there any layer? largest: the standardised statistic and its p over the layers of this target."""
    value, p = largest
    level = config.level / config.looks
    worst = max(gap.high for gap in gaps.values())
    at = max(gaps, key=lambda name: gaps[name].excess)
    verdict: Verdict = "cannot say"
    if worst < config.margin:
        verdict = "no"
        because = f"No layer of {len(gaps)} can hold an excess above {worst:.3g}, below the margin {config.margin:g}."
    elif p <= level:
        verdict = "yes"
        because = (
            f"The largest standardised distance to {target} over {len(gaps)} layers is {value:.3g} (p = {p:.2g}); the largest excess, "
            f"{gaps[at].excess:.3g}, is at {at}."
        )
    else:
        because = f"The largest standardised distance to {target} over {len(gaps)} layers is {value:.3g}; chance reaches it (p = {p:.2g})."
    return Finding(target, ask.GAP_ANY.id, value, ask.GAP_ANY.unit, None, None, 0.0, p, verdict, because)


def consistency_findings(config: CompareConfig, rows: Sequence[ConsistencyRow]) -> Iterator[Finding]:
    """Contraction, from the slopes, and consistency, from C in both frames; each over all targets at once."""
    slopes = [row for row in rows if row.statistic == "slope"]
    changes = [row for row in rows if row.statistic == "C"]
    yield _over_nets(config, ask.CONTRACTION, slopes, lambda row: row.value < 0, "The log excess changes by", "a layer")
    yield _over_nets(
        config,
        ask.CONSISTENCY,
        changes,
        lambda row: True,
        "Source and target differ by",
        "of the source's own steps from layer to layer",
    )


def _over_nets(
    config: CompareConfig, question: Any, rows: Sequence[ConsistencyRow], also: Any, words: str, unit: str
) -> Finding:
    known = [row for row in rows if row.value is not None]
    nets = rows[0].n_null if rows else 0
    p_all = rows[0].p_all if rows else None
    verdict: Verdict = "cannot say"
    if not known or len(known) < len(rows):
        value = floor = null = None
        told = (
            "It has no value for every target: fewer than four layers have a gap." if rows else "It was not measured."
        )
        return Finding("all targets", question.id, None, question.unit, None, None, None, None, verdict, told)
    worst = max(known, key=lambda row: row.value if row.value is not None else 0.0)
    value, floor, null = worst.value, worst.floor, worst.null_q50
    each = ", ".join(_named(row) for row in known)
    told = f"{words} {each} {unit}"
    told += f"; two halves of the source give {floor:.2g}" if floor is not None else ""
    if nets < ENOUGH_NETS:
        few = f"{nets} random networks cannot reach p = {config.level:g}" if nets else "no random network was drawn"
        because = f"{told}; {few}: at least {ENOUGH_NETS} are needed (--random-nets)."
    else:
        above = [row.null_q50 is not None and row.value is not None and row.value >= row.null_q50 for row in known]
        medians = ", ".join("none" if row.null_q50 is None else f"{row.null_q50:.3g}" for row in known)
        told += f"; the median of {nets} random networks is {medians}"
        if p_all is not None and p_all <= config.level and all(also(row) for row in known):
            verdict, because = "yes", f"{told} (largest p {p_all:.2g})."
        elif all(above):
            verdict, because = "no", f"{told}: no less in any of them (largest p {p_all:.2g})."
        else:
            because = f"{told} (largest p {p_all:.2g})."
    return Finding("all targets", question.id, value, question.unit, None, None, null, p_all, verdict, because)


def _named(row: ConsistencyRow) -> str:
    frame = f", {row.frame} frame" if row.frame else ""
    return f"{row.value:.3g} ({row.target}{frame})"


def association_finding(found: Association | None, cells: int) -> Finding:
    """Does the distance say more than depth? Only cells, never layers, can tell."""
    question = ask.W_PREDICTS_TRANSFER
    if found is None:
        because = "No target has labels and a probe on three layers or more."
        return Finding("all targets", question.id, None, question.unit, None, None, 0.0, None, "cannot say", because)
    verdict: Verdict = "cannot say"
    if found.low is not None and found.high is not None:
        verdict = "yes" if found.low > 0 else "no" if found.high < 0 else "cannot say"
    told = (
        f"Over {found.n_layers} layers Kendall τ of excess and probe accuracy is {found.tau_w_probe:.2f}, that of depth "
        f"{found.tau_depth_probe:.2f}"
    )
    if cells < 2:
        because = f"{told}; one target and seed is one cell, and layers are no replicates."
    else:
        interval = f"{found.difference:.2f} ({found.low:.2f} to {found.high:.2f})"
        because = f"{told} (means of {cells} cells, targets and seeds); the distance's lead over depth is {interval}."
    return Finding(
        "all targets",
        question.id,
        found.difference,
        question.unit,
        found.low,
        found.high,
        0.0,
        None,
        verdict,
        because,
    )


def move_finding(config: CompareConfig, row: Mapping[str, Any], data: str, layers: int) -> Finding:
    """Did the second network move this layer on these images?"""
    value, p = row["value"], row["p_adj"]
    verdict: Verdict = "cannot say"
    told = f"On {data} {row['layer']} moved by {value:.3g}; two halves of the examples lie {row['null_mean']:.3g} apart"
    if value == 0:
        verdict, because = "no", f"On {data} every value of {row['layer']} is equal in both networks."
    elif value < config.margin:
        verdict, because = (
            "no",
            f"{told}, and the move is below the margin {config.margin:g} (p = {p:.2g} over {layers} layers).",
        )
    elif p <= config.level:
        verdict, because = "yes", f"{told} (p = {p:.2g} over {layers} layers)."
    else:
        because = f"{told} (p = {p:.2g} over {layers} layers)."
    name = f"{row['layer']} ({data})"
    return Finding(
        name, ask.NETWORK_GAP.id, value, ask.NETWORK_GAP.unit, None, None, row["null_mean"], p, verdict, because
    )


def health_finding(net: str, captured: int, found: int, reasons: Sequence[Mapping[str, str]]) -> Finding:
    """Was every layer captured that was asked for?"""
    question = ask.CAPTURE_HEALTH
    share = captured / found if found else None
    if captured == found and not reasons:
        because = f"All {found} layers that were asked for were captured."
        return Finding(net, question.id, share, question.unit, None, None, 1.0, None, "yes", because)
    told = "; ".join(f"{row['what']}: {row['reason']}" for row in reasons[:3])
    more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    because = f"{captured} of {found} layers were captured ({told.rstrip('.')}{more})."
    return Finding(net, question.id, share, question.unit, None, None, 1.0, None, "no", because)


def overlap_finding(target: str, shared: int, kind: str, used: int) -> Finding:
    """Do source and target hold the same images?"""
    question = ask.OVERLAPPING_IDS
    if not shared:
        because = f"The source and {target} share no example that is known to be the same."
        return Finding(target, question.id, 0.0, question.unit, None, None, 0.0, None, "no", because)
    done = (
        f"the {used} shared ones are compared as pairs, labels swapped within them"
        if kind == "paired"
        else f"they were left out of the target, of which {used} remain"
    )
    because = f"The source and {target} share {shared} examples; {done}."
    return Finding(target, question.id, float(shared), question.unit, None, None, 0.0, None, "yes", because)
