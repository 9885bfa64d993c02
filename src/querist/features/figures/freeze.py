"""Figures of a sweep: accuracy by frozen blocks and arm over A_l, paired differences, what the layers hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from querist.features.configs import FreezeConfig
from querist.results.charts import Axes, Chart, Mark, Series, lines, stack
from querist.results.figure import Figure
from querist.results.traces import depth_ticks, whiskers
from querist.statistics import mean_interval

__all__ = ["draw"]

Line = tuple[str, np.ndarray, np.ndarray, np.ndarray]
"""A name with means and the ends of their intervals."""


def draw(
    config: FreezeConfig, names: Sequence[str], ks: Sequence[int], tables: Mapping[str, pl.DataFrame]
) -> list[Figure]:
    """Two figures of each target, and one of all differences."""
    drawn = []
    for i, name in enumerate(names):
        mine = {table: tables[table].filter(pl.col("target") == name) for table in ("cells", "latent", "targets")}
        drawn.append(_accuracy(config, i, name, ks, mine, tables["blocks"]))
        if (figure := _latent(config, i, name, ks, mine["latent"])) is not None:
            drawn.append(figure)
    drawn.append(_effects(config, names, ks, tables["effects"]))
    return drawn


def _told(config: FreezeConfig, cells: pl.DataFrame) -> str:
    rows = cells.row(0, named=True)
    return (
        f"{rows['n_train']} training and {rows['n_test']} test examples, {config.repeats} repeats, {config.epochs} epochs, "
        f"seed {config.seed}."
    )


def _accuracy(
    config: FreezeConfig,
    i: int,
    name: str,
    ks: Sequence[int],
    tables: Mapping[str, pl.DataFrame],
    blocks: pl.DataFrame,
) -> Figure:
    cells, latent = tables["cells"], tables["latent"]
    drawn = []
    for arm in config.arms:
        if arm == "scratch":
            continue
        drawn.append(_line(arm, [_values(cells, arm, k, "accuracy") for k in ks], 1 - config.level))
    marks = [Mark("largest class", tables["targets"]["majority_accuracy"][0], axis="y")]
    if "scratch" in config.arms:
        values = _values(cells, "scratch", 0, "accuracy")
        marks.append(Mark("scratch", float(values.mean()) if values.size else None, axis="y"))
    panels = [("Accuracy on the test examples", _over_blocks(drawn, "accuracy", ks, marks, (0.0, 1.0)))]
    panels.append(_beside(config, ks, latent, blocks))
    data, layout = stack(panels)
    share = f"{100 * (1 - config.level):g}"
    second = (
        "Below: A_l where freezing ends, the sliced W₂ between source and target at the end of block k of the network with k frozen "
        "blocks, beside two parts of the source."
        if config.source
        else "Below: N_l of the logits, how far training moved the network's output on the test examples, beside two parts of them; "
        "A_l needs --source."
    )
    return Figure(
        name=f"accuracy.{i}",
        title=f"Accuracy by frozen blocks: {name}",
        caption=f"Mean over repeats with {share} % t intervals, an arm a line; {_told(config, cells)} {second} "
        f"{config.projections} directions, iso normalisation, {_images(latent)} examples.",
        data=data,
        layout=layout,
        table="cells",
    )


def _images(latent: pl.DataFrame) -> int:
    return int(latent["images"][0]) if latent.height else 0


def _beside(config: FreezeConfig, ks: Sequence[int], latent: pl.DataFrame, blocks: pl.DataFrame) -> tuple[str, Chart]:
    """The second panel: A_l at the end of block k; without source data N_l of the last captured layer."""
    what = "a" if config.source else "n"
    ends = dict(blocks.select("k", "layer").iter_rows())
    last = latent.sort("index")["layer"][-1] if latent.height else ""
    layers = {k: ends.get(k) if config.source else last for k in ks}
    arms = [arm for arm in config.arms if arm != "scratch"]
    drawn = []
    nulls = []
    for arm in arms:
        at = [latent.filter((pl.col("k") == k) & (pl.col("layer") == layers[k])) for k in ks]
        found = [_values(rows, arm, k, what) for k, rows in zip(ks, at, strict=True)]
        drawn.append(_line(arm, found, 1 - config.level))
        null = np.array([_mean(_values(rows, arm, k, f"{what}_null")) for k, rows in zip(ks, at, strict=True)])
        q95 = np.array([_mean(_values(rows, arm, k, f"{what}_null_q95")) for k, rows in zip(ks, at, strict=True)])
        nulls.append((null, q95))
    middle, upper = nulls[0]
    null = Series("two parts of one set (mean, 95 %)", list(ks), middle, middle, upper, null=True)
    title = "A_l where freezing ends" if config.source else "N_l of the last layer"
    return title, _over_blocks(drawn, "distance, units of z", ks, bounds=(0.0, np.inf), null=null)


def _over_blocks(
    drawn: Sequence[Line],
    y: str,
    ks: Sequence[int],
    marks: Sequence[Mark] = (),
    bounds: tuple[float, float] = (-np.inf, np.inf),
    null: Series | None = None,
) -> Chart:
    """Lines over the numbers of blocks, side by side, with whiskers cut at what is possible."""
    span = max(ks) - min(ks) or 1
    shifts = 0.012 * span * (np.arange(len(drawn)) - (len(drawn) - 1) / 2)
    series = [
        Series(name, np.array(ks) + shift, mean, points=True)
        for (name, mean, _, _), shift in zip(drawn, shifts, strict=True)
    ]
    # The null comes last: colours and dashes are then those of the other panel.
    data, layout = lines([*series, *([null] if null is not None else [])], Axes("frozen blocks", y), marks=marks)
    ends = {name: (mean, *(np.clip(end, *bounds) for end in (low, high))) for name, mean, low, high in drawn}
    for trace in data:
        if "markers" in trace.get("mode", "") and trace["name"] in ends:
            trace["error_y"] = whiskers(*ends[trace["name"]])
    layout["xaxis"] |= {"tickvals": list(ks), "range": [min(ks) - 0.08 * span, max(ks) + 0.08 * span]}
    return data, layout


def _latent(config: FreezeConfig, i: int, name: str, ks: Sequence[int], latent: pl.DataFrame) -> Figure | None:
    """A_l and N_l of the pretrained arm by layer, a line per number of frozen blocks."""
    mine = latent.filter(pl.col("arm") == "pretrained")
    if not mine.height:
        return None
    layers = mine.select("layer", "index").unique().sort("index")["layer"].to_list()
    panels = []
    for what, title in (("a", "A_l: source and target after training"), ("n", "N_l: before and after training")):
        if mine[what].null_count() == mine.height:
            continue
        drawn = [
            Series(f"k = {k}", np.arange(len(layers)), [_at(mine, k, layer, what) for layer in layers], points=True)
            for k in ks
        ]
        null, upper = ([_at(mine, ks[0], layer, f"{what}_{end}") for layer in layers] for end in ("null", "null_q95"))
        drawn.append(Series("two parts of one set (mean, 95 %)", np.arange(len(layers)), null, null, upper, null=True))
        data, layout = lines(drawn, Axes("layer, in forward order", "distance, units of z"))
        layout["xaxis"] |= depth_ticks(layers)
        panels.append((title, (data, layout)))
    data, layout = stack(panels)
    return Figure(
        name=f"latent.{i}",
        title=f"What the layers hold of {name}",
        caption=f"Pretrained arm, mean over {config.repeats} repeats; sliced W₂, {config.projections} directions, iso normalisation, "
        f"{_images(latent)} examples, seed {config.seed}. N_l is 0 in frozen layers. Grey: two parts of one set.",
        data=data,
        layout=layout,
        table="latent",
    )


def _at(latent: pl.DataFrame, k: int, layer: str, column: str) -> float:
    return _mean(_values(latent.filter(pl.col("layer") == layer), "pretrained", k, column))


def _effects(config: FreezeConfig, names: Sequence[str], ks: Sequence[int], effects: pl.DataFrame) -> Figure:
    """Paired differences by number of blocks, a panel per target."""
    groups = [*(["*"] if len(names) > 1 else []), *names]
    panels = list(_effect_panels(config, groups, ks, effects))
    data, layout = stack(panels)
    return Figure(
        name="effects",
        title="Pretrained weights less the others",
        caption=f"Mean paired difference in accuracy over cells (target, repeat) with {100 * (1 - config.level):g} % t intervals; "
        f"{config.repeats} repeats, seed {config.seed}. Below delta a difference does not matter.",
        data=data,
        layout=layout,
        table="effects",
    )


def _effect_panels(
    config: FreezeConfig, groups: Sequence[str], ks: Sequence[int], effects: pl.DataFrame
) -> Iterator[tuple[str, Chart]]:
    for group in groups:
        mine = effects.filter(pl.col("target") == group)
        drawn = []
        for contrast in mine["contrast"].unique(maintain_order=True).to_list():
            rows = mine.filter(pl.col("contrast") == contrast).sort("k")
            mean, low, high = (rows[name].cast(pl.Float64).to_numpy() for name in ("estimate", "low", "high"))
            drawn.append((contrast.replace(" - ", " − "), mean, low, high))
        marks = [Mark("delta", config.delta, axis="y"), Mark("nothing", 0.0, axis="y")]
        yield (
            ("All targets" if group == "*" else group),
            _over_blocks(drawn, "difference in accuracy", ks, marks, (-1.0, 1.0)),
        )


def _values(frame: pl.DataFrame, arm: str, k: int, column: str) -> np.ndarray:
    found = frame.filter((pl.col("arm") == arm) & (pl.col("k") == k))[column]
    return found.drop_nulls().to_numpy().astype(float)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else float("nan")


def _line(name: str, values: Sequence[np.ndarray], level: float) -> Line:
    """Means with their intervals, by number of blocks."""
    mean, low, high = (np.array(column) for column in zip(*(_interval(one, level) for one in values), strict=True))
    return name, mean, low, high


def _interval(values: np.ndarray, level: float) -> tuple[float, float, float]:
    """Mean and t interval; the ends are missing for fewer than two values."""
    if values.size < 2:
        return _mean(values), float("nan"), float("nan")
    found: Any = mean_interval(values, level=level)
    return found.estimate, found.low, found.high
