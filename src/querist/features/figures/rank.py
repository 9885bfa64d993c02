"""Figures of a ranking: ranks by score and baseline over what permuted labels give, values by depth, agreement with the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from querist.features.configs import RankConfig
from querist.results.charts import Axes, Series, bars, lines, stack
from querist.results.figure import Figure
from querist.results.traces import PALETTE

__all__ = ["draw"]

COLOURED = len(PALETTE)
"""Candidates with a colour of their own: the best probes; the others are grey."""
OTHERS = "others"
TICKS = (-100, -10, -2, 0, 2, 10, 100, 1000)
CLASS_WIDE = ("nce", "leep")
Candidate = tuple[str, str]


def draw(config: RankConfig, tables: Mapping[str, pl.DataFrame]) -> list[Figure]:
    """The slope chart, scores by layer, and agreement where there is a truth."""
    candidates = _candidates(tables)
    drawn = []
    if len(candidates) > 1:
        drawn.append(_ranks(config, tables, candidates))
    if tables["scores"].height:
        drawn.append(_by_layer(config, tables))
    if tables["agreement"].height:
        drawn.append(_agreement(config, tables["agreement"]))
    return drawn


def _candidates(tables: Mapping[str, pl.DataFrame]) -> list[Candidate]:
    """Networks and layers, the best probe first."""
    probes = tables["baselines"].filter(pl.col("score") == "probe")
    return probes.sort("value", descending=True, maintain_order=True).select("model", "layer").rows()


def _label(config: RankConfig, candidate: Candidate) -> str:
    model, layer = candidate
    return layer if len(config.models) == 1 else f"{_short(config, model)} {layer}"


def _short(config: RankConfig, model: str) -> str:
    """What tells a network from the others: the name of its weights, or the end of its own; numbered where two have one."""
    names = {name: name.rpartition("@")[2].rpartition(":")[2][-28:] for name in config.models}
    alike = list(names.values()).count(names[model]) > 1
    return f"{names[model]} ({config.models.index(model) + 1})" if alike else names[model]


def _told(config: RankConfig, tables: Mapping[str, pl.DataFrame]) -> str:
    return f"{int(tables['captures']['n'].min())} examples of {config.target}, iso normalisation, seed {config.seed}."  # type: ignore[arg-type]


def _ranks(config: RankConfig, tables: Mapping[str, pl.DataFrame], candidates: Sequence[Candidate]) -> Figure:
    rows = [*tables["scores"].to_dicts(), *tables["baselines"].to_dicts()]
    names = list(dict.fromkeys(row["score"] for row in rows if row["rank"] is not None))
    rank = {name: _of(rows, name, "rank", candidates) for name in names}
    # A name under which all are equal orders nothing.
    shown = [name for name in names if len({value for value in rank[name] if np.isfinite(value)}) > 1]
    x = np.arange(len(shown))
    ranks = np.array([rank[name] for name in shown]).reshape(len(shown), len(candidates))
    above = np.array([_standardised(rows, name, candidates) for name in shown]).reshape(ranks.shape)
    # The best probes come last, over the others.
    order = list(range(len(candidates)))[::-1]
    panels = []
    for title, values, axis in (
        ("Rank (1 is the best)", ranks, "rank"),
        ("Above permuted labels", _compressed(above), "sd of permuted labels"),
    ):
        drawn = [_slope(config, candidates[i], i < COLOURED, x, values[:, i]) for i in order]
        if axis != "rank":
            none, end = np.zeros(len(shown)), _compressed(np.full(len(shown), 1.96))
            drawn.append(Series("permuted labels, ±1.96 sd", x, none, -end, end, null=True))
        data, layout = lines(drawn, Axes("score or baseline", axis))
        for trace in data:
            if trace["name"] == OTHERS:
                trace |= {"opacity": 0.35, "line": {**trace["line"], "width": 1, "dash": "solid"}}
        layout["xaxis"] |= {"tickvals": list(x), "ticktext": list(shown), "range": [-0.3, len(shown) - 0.7]}
        if axis == "rank":
            layout["yaxis"] |= {"range": [float(np.nanmax(ranks)) + 0.5, 0.5]}
        else:
            layout["yaxis"] |= {"tickvals": [*_compressed(np.array(TICKS))], "ticktext": [f"{t:g}" for t in TICKS]}
        layout["xaxis"]["tickvals"] = [int(value) for value in x]
        panels.append((title, (data, layout)))
    data, layout = stack(panels)
    _once(data)
    left_out = [name for name in names if name not in shown]
    caption = (
        f"One line per network and layer; the {min(COLOURED, len(candidates))} best probes have colours. Above: its place by each "
        "score and baseline: lines that cross are orders that disagree. Below: how far each score lies above the same score of "
        f"{config.permutations} permuted labellings; baselines have no such null. {_told(config, tables)}"
    )
    if left_out:
        caption += f" Not drawn, since all are equal: {', '.join(left_out)}."
    return Figure("ranks", "Ranks by score and baseline", caption, data, layout, "scores")


def _of(rows: Sequence[Mapping[str, Any]], name: str, column: str, candidates: Sequence[Candidate]) -> list[float]:
    """A column of one score for each candidate, NaN where there is none; what a network has once counts for its layers."""
    table = {(row["model"], row["layer"]): row[column] for row in rows if row["score"] == name}
    found = [table.get((model, "logits" if name in CLASS_WIDE else layer)) for model, layer in candidates]
    return [float("nan") if value is None else float(value) for value in found]


def _standardised(rows: Sequence[Mapping[str, Any]], name: str, candidates: Sequence[Candidate]) -> np.ndarray:
    value, mean, sd = (np.array(_of(rows, name, column, candidates)) for column in ("value", "null_mean", "null_sd"))
    return np.divide(value - mean, sd, out=np.full(value.shape, np.nan), where=np.isfinite(sd) & (sd > 0))


def _slope(config: RankConfig, candidate: Candidate, coloured: bool, x: np.ndarray, y: np.ndarray) -> Series:
    name = _label(config, candidate) if coloured else OTHERS
    return Series(name, x, y, null=not coloured, points=coloured)


def _compressed(values: np.ndarray) -> np.ndarray:
    """sign(z)·log10(1 + |z|): one score lies ten sd above its null, another a thousand, and both ends matter."""
    return np.sign(values) * np.log10(1 + np.abs(values))


def _once(data: Sequence[dict[str, Any]]) -> None:
    """A name that several lines share stands in the legend once."""
    seen: set[str] = set()
    for trace in data:
        if trace.get("showlegend", True):
            trace["showlegend"] = trace["name"] not in seen
            seen.add(trace["name"])


def _by_layer(config: RankConfig, tables: Mapping[str, pl.DataFrame]) -> Figure:
    """Every score of layers by depth beside its null, and the probe."""
    rows = [*tables["scores"].to_dicts(), *tables["baselines"].filter(pl.col("score").is_in(["probe", "w"])).to_dicts()]
    names = [name for name in dict.fromkeys(row["score"] for row in rows) if name not in CLASS_WIDE]
    panels = []
    for name in names:
        drawn = []
        for model in config.models:
            mine = sorted((r for r in rows if r["score"] == name and r["model"] == model), key=lambda row: row["index"])
            if not mine:
                continue
            x = [row["index"] for row in mine]
            null = [np.nan if row["null_mean"] is None else row["null_mean"] for row in mine]
            sd = [0.0 if row["null_sd"] is None else row["null_sd"] for row in mine]
            low, high = np.array(null) - 1.96 * np.array(sd), np.array(null) + 1.96 * np.array(sd)
            drawn.append(Series(f"null of {_short(config, model)}", x, null, low, high, null=True))
            drawn.append(Series(_short(config, model), x, [row["value"] for row in mine], points=True))
        told = "probe accuracy" if name == "probe" else "w (distance to the source)" if name == "w" else str(name)
        panels.append((told, lines(drawn, Axes("layer, in forward order", told))))
    data, layout = stack(panels, columns=2)
    caption = (
        "Values by layer, a line per network. Grey: mean ± 1.96 sd of permuted labels; for the probe the largest class; for w two "
        f"parts of the source. {_told(config, tables)}"
    )
    return Figure("scores", "Scores by layer", caption, data, layout, "scores")


def _agreement(config: RankConfig, agreement: pl.DataFrame) -> Figure:
    rows = agreement.to_dicts()
    low, high = ([np.nan if row[end] is None else row[end] for row in rows] for end in ("low", "high"))
    data, layout = bars(
        {"weighted τ with the truth": [row["tau_w"] for row in rows]},
        [row["score"] for row in rows],
        Axes("score or baseline", "weighted Kendall τ"),
        low=low,
        high=high,
    )
    first = rows[0]
    return Figure(
        name="agreement",
        title="Agreement with what training reached",
        caption=f"Weighted Kendall τ over {first['candidates']} networks and layers, mean over {first['cells']} cells (target, seed) "
        f"with {100 * (1 - config.level):g} % bootstrap intervals. A score is of use where it beats depth. w counts with its sign turned.",
        data=data,
        layout=layout,
        table="agreement",
    )
