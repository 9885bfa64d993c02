"""The rules of the claims about laws over layers: pure functions of their tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from querist.claims.claim import ClaimVerdict, Judgement, Number, Size
from querist.features.configs import CompareConfig
from querist.statistics import rank_p

if TYPE_CHECKING:
    from querist.features.profile import ConsistencyRow, Gap

__all__ = ["compression", "consistent", "learns_input", "tested_gaps"]

Tables = Mapping[str, pl.DataFrame]
LEVEL = 0.05
MARGIN = 0.1
"""A gap whose upper end lies below is too small to matter, in units of z."""


def tested_gaps(tables: Tables, net: str) -> dict[tuple[str, str], Gap]:
    """Gaps of a network in the first repeat by (target, layer), one family."""
    from querist.features.profile import gaps
    from querist.features.studies.answer_compare import draws_from

    mine = tables["draws"].filter((pl.col("net") == net) & (pl.col("repeat") == 0))
    return gaps(draws_from(mine, ("target", "layer")), level=LEVEL) if mine.height else {}


# ------------------------------------------------------------------------------------------------------ learns-input


def learns_input(tables: Tables, size: Size) -> Judgement:
    """The log ratio of the last block's excess to the first one's, beside random networks."""
    numbers, rows, told = [], [], []
    for net in size["nets"]:
        profiles = _profiles(tables["net_profiles"], net)
        random = [model for model in profiles if model != "model"]
        for target in size["targets"]:
            value = log_ratio(profiles.get("model", {}).get(target, {}))
            known = [log_ratio(profiles[model].get(target, {})) for model in random]
            # A network without an excess in its first or last block counts as at least as extreme.
            null = [value if one is None else one for one in known]
            p = None if value is None or not random else rank_p(value, [one for one in null if one is not None], "less")
            found = [one for one in known if one is not None]
            median = float(np.median(found)) if found else None
            rows.append((value, median, p))
            what = f"{_short(net)}, {target}: log of last over first block's excess"
            numbers.append(Number(what, value, null=median, n=len(random)))
            numbers += [
                Number(f"{what}, random networks, {name}", float(np.quantile(found, q)), n=len(found))
                for name, q in (("least", 0.0), ("most", 1.0))
                if found
            ]
            numbers.append(Number(f"{what}, p", p, null=LEVEL))
            told.append(f"{_plain(value)} on {target}{_of(net, size)} (median of random networks {_plain(median)})")
    p_all = _largest([p for *_, p in rows])
    numbers.append(Number("largest p", p_all, null=LEVEL))
    verdict: ClaimVerdict = "cannot say"
    if p_all is not None and p_all <= LEVEL:
        verdict = "holds"
    elif all(value is not None and median is not None and value >= median for value, median, _ in rows):
        verdict = "fails"
    values = [value for value, *_ in rows if value is not None]
    worst = max(values) if values else None
    at = next((median for value, median, _ in rows if value == worst), None) if values else None
    because = (
        f"From the first block to the last the log excess changes by {', '.join(told)}; largest p {_plain(p_all)}."
    )
    return Judgement(verdict, worst, None, None, at, because, p_all, tuple(numbers))


def log_ratio(excess: Mapping[str, float]) -> float | None:
    """log(excess of the last block / excess of the first); None where one of them has none."""
    values = list(excess.values())
    if len(values) < 2 or values[0] <= 0 or values[-1] <= 0:
        return None
    return math.log(values[-1] / values[0])


def _profiles(frame: pl.DataFrame, net: str) -> dict[str, dict[str, dict[str, float]]]:
    """Excess by model, target and layer, layers in forward order."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in frame.filter((pl.col("net") == net) & (pl.col("repeat") == 0)).to_dicts():
        found.setdefault(row["model"], {}).setdefault(row["target"], {})[row["layer"]] = row["excess"]
    return found


# -------------------------------------------------------------------------------------------------------- consistent


def consistent(tables: Tables, size: Size) -> Judgement:
    """The findings contraction and consistency of a comparison, of every network."""
    from querist.features.studies.compare_verdicts import consistency_findings

    config = CompareConfig.build(level=LEVEL, target=tuple(size["targets"]))
    numbers: list[Number] = []
    verdicts: list[str] = []
    told: list[str] = []
    changes: list[ConsistencyRow] = []
    for net in size["nets"]:
        rows = statistics(tables, size, net)
        numbers += [_number(net, row) for row in rows]
        for finding in consistency_findings(config, rows):
            verdicts.append(finding.verdict)
            told.append(f"{finding.question.partition('.')[2]}{_of(net, size)}: {finding.verdict}. {finding.because}")
        changes += [row for row in rows if row.statistic == "C" and row.value is not None]
    verdict: ClaimVerdict = "cannot say"
    if verdicts and all(one == "yes" for one in verdicts):
        verdict = "holds"
    elif verdicts and all(one == "no" for one in verdicts):
        verdict = "fails"
    worst = max(changes, key=lambda row: row.value or 0.0, default=None)
    because = " ".join(told) or "Nothing was measured."
    if worst is None:
        return Judgement("cannot say", None, None, None, None, because, numbers=tuple(numbers))
    return Judgement(verdict, worst.value, None, None, worst.null_q50, because, worst.p_all, tuple(numbers))


def statistics(tables: Tables, size: Size, net: str) -> tuple[ConsistencyRow, ...]:
    """C, τ, slope and κ of a network beside its random ones."""
    from querist.features.profile import judged
    from querist.features.studies.profile_net import profile_from

    evolution, excess = (
        tables[name].filter((pl.col("net") == net) & (pl.col("repeat") == 0)) for name in ("evolution", "net_profiles")
    )
    own = excess.filter((pl.col("model") == "model") & (pl.col("target") == size["targets"][0]))
    names = own["layer"].to_list()
    tested = tested_gaps(tables, net)
    models = evolution["model"].unique(maintain_order=True).to_list()
    profiles = {
        model: profile_from(model, names, evolution, excess, tested if model == "model" else None, LEVEL)
        for model in models
    }
    return judged(profiles["model"], [one for name, one in sorted(profiles.items()) if name != "model"]).rows


def _number(net: str, row: ConsistencyRow) -> Number:
    where = ", ".join(part for part in (row.target, f"{row.frame} frame" if row.frame else "") if part)
    floor = "" if row.floor is None else f", floor {row.floor:.2g}"
    p = "" if row.p is None else f", p {row.p:.2g}"
    what = f"{_short(net)}, {row.statistic}" + (f", {where}" if where else "") + floor + p
    return Number(what, row.value, null=row.null_q50, n=row.n_null)


# ------------------------------------------------------------------------------------------------------- compression


def compression(tables: Tables, size: Size) -> Judgement:
    """Is the gap of compressed copies there in the first stage, and below that to other pictures at every block?"""
    from querist.features.studies.compare_verdicts import gap_verdict

    changed, other = size["changed"], size["other"]
    numbers: list[Number] = []
    below: list[bool | None] = []
    first: list[str] = []
    worst: tuple[float, Gap, Gap, str] | None = None
    for net in size["nets"]:
        found = tested_gaps(tables, net)
        names = list(dict.fromkeys(layer for _, layer in found))
        for layer in names:
            near, far = found[changed, layer], found[other, layer]
            numbers += [
                Number(f"{_short(net)}, {layer}: excess, {name}", gap.excess, gap.low, gap.high, gap.null_mean, gap.n_c)
                for name, gap in ((changed, near), (other, far))
            ]
            below.append(True if near.high < far.low else False if near.low > far.high else None)
            if layer.startswith(size["stage"]):
                first.append(gap_verdict(near, MARGIN, LEVEL))
                numbers.append(Number(f"{_short(net)}, {layer}: p of {changed}", near.p_adj, null=LEVEL))
            ratio = near.excess / far.excess if far.excess > 0 else math.inf
            if worst is None or ratio > worst[0]:
                worst = (ratio, near, far, layer)
    verdict: ClaimVerdict = "cannot say"
    if first and all(one == "yes" for one in first) and all(one is True for one in below):
        verdict = "holds"
    elif any(one == "no" for one in first) or any(one is False for one in below):
        verdict = "fails"
    if worst is None:
        return Judgement("cannot say", None, None, None, 1.0, "Nothing was measured.", numbers=tuple(numbers))
    ratio, near, far, layer = worst
    because = (
        f"In the first stage the gap to copies at JPEG quality {size['quality']} is {_counted(first)}; it lies below the gap to {other} at "
        f"{sum(one is True for one in below)} of {len(below)} blocks. They come nearest at {layer}: {near.excess:.3g} "
        f"[{near.low:.3g}, {near.high:.3g}] and {far.excess:.3g} [{far.low:.3g}, {far.high:.3g}]."
    )
    return Judgement(verdict, ratio if math.isfinite(ratio) else None, None, None, 1.0, because, numbers=tuple(numbers))


def _counted(verdicts: Sequence[str]) -> str:
    return ", ".join(f"{word} at {n} blocks" for word in ("yes", "no", "cannot say") if (n := verdicts.count(word)))


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _short(net: str) -> str:
    return net.rpartition("@")[2].rpartition(":")[2]


def _of(net: str, size: Size) -> str:
    return f" with {_short(net)}" if len(size["nets"]) > 1 else ""


def _plain(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g}"
