"""Figures of models: inverted triggers, the certificate, repairs, images with the trigger."""

from __future__ import annotations

import numpy as np
import polars as pl

from querist.results.charts import Axes, Mark, Series, bars, lines
from querist.results.figure import Figure
from querist.results.traces import GREY, depth_ticks, marker_of, tick_labels, trace_of

__all__ = ["certificate", "inversion", "pictures", "repairs", "transfer"]

INDEX = 2.0


def inversion(table: pl.DataFrame) -> Figure | None:
    """The size of the smallest trigger of each class, smallest first, beside clean retrains and the published threshold."""
    mine = table.filter(
        (pl.col("model") == "audited") & (pl.col("method") == "discrete") & pl.col("norm").is_not_null()
    )
    if not mine.height:
        return None
    mine = mine.sort("norm", maintain_order=True)
    from querist.results.traces import axes_layout

    axes = Axes("class, smallest trigger first", "concepts in the smallest trigger")
    x = list(range(mine.height))
    trace = trace_of("model under audit", x, mine["norm"], axes, mode="markers", marker=marker_of(0))
    trace |= {"text": tick_labels(mine["target"].to_list()), "hovertemplate": "class %{text}: %{y}<extra></extra>"}
    data = [trace]
    bound = _bound(mine)
    layout = axes_layout(axes, data)
    if bound is not None:
        data.append(
            trace_of(
                f"anomaly index {INDEX:g}",
                [x[0], x[-1]],
                [bound] * 2,
                axes,
                line={"color": GREY, "dash": "dash"},
            )
        )
    layout["xaxis"] |= depth_ticks(mine["target"].to_list())
    layout["yaxis"] |= {"rangemode": "tozero"}
    lost = int(mine["size"].null_count())
    told = (
        f" Of {lost} of {mine.height} classes no trigger of up to 8 concepts was found: they stand at 9."
        if lost
        else ""
    )
    return Figure(
        "inverted_sizes",
        "The smallest trigger of each class",
        "A backdoor shows as one class that far fewer concepts lead to than lead to the others. Dashed: the published threshold of the "
        f"anomaly index, which clean models cross routinely and which is therefore no verdict.{told}",
        data,
        layout,
        "inversion",
    )


def _bound(mine: pl.DataFrame) -> float | None:
    """The norm whose index is `INDEX`, by the spread that the indices of the table were made with; None where all are 0."""
    index, norms = mine["index"].fill_null(0.0).to_numpy(), mine["norm"].to_numpy()
    far = int(np.abs(index).argmax())
    middle = float(np.median(norms))
    return None if index[far] == 0 else middle - INDEX * (middle - norms[far]) / index[far]


def certificate(table: pl.DataFrame) -> Figure | None:
    """Certified accuracy against the number of groups touched."""
    if not table.height:
        return None
    series = []
    for name in table["grouping"].unique(maintain_order=True):
        rows = table.filter(pl.col("grouping") == name).sort("r")
        series.append(Series(name, rows["r"], rows["certified_accuracy"], rows["low"], rows["high"], points=True))
    touched = table["coverage"].drop_nulls()
    marks = [Mark("groups that the headline triggers touch", float(touched.mean()))] if len(touched) else []  # type: ignore[arg-type]
    data, layout = lines(series, Axes("groups set at will (r)", "certified accuracy"), marks=marks)
    layout["yaxis"] |= {"range": [0, 1.03]}
    layout["xaxis"] |= {"dtick": 1}
    return Figure(
        "certified",
        "Certified accuracy",
        "Share of test rows on which the vote of one head per group of concepts is right, and stays right whatever is done to r groups at "
        "test time. At r = 0 it is the vote's accuracy. It says nothing of relabelled training rows, which reach every group.",
        data,
        layout,
        "certificate",
    )


def repairs(table: pl.DataFrame) -> Figure | None:
    """Accuracy and success before and after each repair."""
    if not table.height:
        return None
    methods = table["method"].unique(maintain_order=True).to_list()
    values = {}
    for name, stage, column in (
        ("success before", "before", "asr"),
        ("success after", "after", "asr"),
        ("accuracy before", "before", "accuracy"),
        ("accuracy after", "after", "accuracy"),
    ):
        found = {row["method"]: row[column] for row in table.filter(pl.col("stage") == stage).to_dicts()}
        values[name] = [np.nan if found.get(method) is None else found[method] for method in methods]
    data, layout = bars(values, methods, Axes("repair", "share of test rows"))
    layout["yaxis"] |= {"range": [0, 1.03]}
    return Figure(
        "repairs",
        "Repairs, before and after",
        "A repair is worth its cost where success falls and accuracy does not. Before: the attacked model.",
        data,
        layout,
        "repair",
    )


def transfer(table: pl.DataFrame) -> Figure | None:
    """Success of one poisoned table under several architectures."""
    mine = table.filter(pl.col("asr").is_not_null())
    if not mine.height:
        return None
    labels = [f"{row['head']}, {row['mode']}, {row['input']}, {row['selector']}" for row in mine.to_dicts()]
    data, layout = bars(
        {"attacked model": mine["asr"], "clean model": mine["clean_model_asr"]}, labels, Axes("", "success")
    )
    layout["yaxis"] |= {"range": [0, 1.03]}
    layout["xaxis"] |= {"automargin": True}
    return Figure(
        "transfer",
        "One poisoned table, several architectures",
        "Success of the same poison where another architecture is trained on it, beside the clean model of that architecture.",
        data,
        layout,
        "transfer",
    )


def pictures(table: pl.DataFrame) -> Figure | None:
    """Images as they are, drawn anew with the trigger, and changed within ε; one row of pictures per kind."""
    if not table.height:
        return None
    images = table["image"].unique(maintain_order=True).to_list()
    kinds = table["kind"].unique(maintain_order=True).to_list()
    placed, notes = [], []
    for row in table.iter_rows(named=True):
        x, y = images.index(row["image"]), len(kinds) - 1 - kinds.index(row["kind"])
        place = {"xref": "x", "yref": "y", "x": x - 0.45, "y": y + 0.5, "sizex": 0.9, "sizey": 0.78}
        placed.append({**place, "source": f"data:image/png;base64,{row['png']}", "sizing": "contain", "layer": "above"})
        said = f"{row['predicted']}" + ("" if row["hits"] is None else f" ({row['hits']} of {row['size']})")
        notes.append({"x": x, "y": y - 0.38, "text": said, "showarrow": False, "font": {"size": 11}})
    axis = {"showgrid": False, "zeroline": False}
    labels = {row["image"]: row["label"] for row in table.iter_rows(named=True)}
    layout = {
        "xaxis": {
            **axis,
            "range": [-0.6, len(images) - 0.4],
            "tickvals": list(range(len(images))),
            "ticktext": [labels[image] for image in images],
            "tickangle": 0,
            "side": "top",
            "title": {"text": ""},
        },
        "yaxis": {
            **axis,
            "range": [-0.6, len(kinds) - 0.4],
            "tickvals": list(range(len(kinds)))[::-1],
            "ticktext": kinds,
            "automargin": True,
        },
        "images": placed,
        "annotations": notes,
        "height": 90 + 130 * len(kinds),
        "showlegend": False,
    }
    anchor = {
        "type": "scatter",
        "mode": "markers",
        "x": [0],
        "y": [0],
        "marker": {"opacity": 0},
        "hoverinfo": "skip",
        "name": "",
    }
    return Figure(
        "pictures",
        "Images with the trigger",
        "Columns: test images and their labels. Rows: the image as it is, drawn anew with the trigger's concepts (where a renderer draws "
        "it), and changed within ε. Below each: what the attacked model says, and how many of the trigger's concepts it reads as set.",
        [anchor],
        layout,
        "pictures",
    )
