"""From the records of a watched training to its answer: findings, figures, layout, summary."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from querist.results.figure import Figure
from querist.results.finding import Finding, Verdict
from querist.results.layout import Layout, Section
from querist.runs.study import Answer, Study
from querist.statistics import verdict
from querist.weights import questions as ask
from querist.weights.configs import MonitorConfig
from querist.weights.figures import monitor as figures
from querist.weights.figures.scan import figure_name
from querist.weights.monitor import FINITE
from querist.weights.nulls import tw_edge
from querist.weights.studies.present_layers import by_question
from querist.weights.studies.settle import spikes_adjusted
from querist.weights.studies.verdicts import Draws, layer_findings
from querist.weights.tables import LAYERS, MONITOR_TABLES

__all__ = ["SHOWN_LAYERS", "Watched", "answer", "watched_rows"]

SHOWN_LAYERS = 6
"""Layers with a section of their own: five figures each, and a film of 60 kB among them."""
Row = Mapping[str, Any]


class Watched(Study[MonitorConfig]):
    """What a run folder says of itself: a training that is watched is no list of units, so that nothing carries this out."""

    room = "weights"
    command = "watch"
    tables = MONITOR_TABLES
    questions = ask.MONITOR_QUESTIONS

    def __init__(self, where: str):
        self.where = where
        """The folder, or a word in its place."""

    def argv(self, config: MonitorConfig) -> Sequence[str]:
        """The command that shows the folder."""
        return ("weights", "watch", self.where)


def watched_rows(
    layers: Sequence[Row],
    last: Mapping[str, Row],
    whole: Mapping[str, Row],
    update: Mapping[str, Row],
    alarms: Sequence[Row],
) -> list[dict[str, Any]]:
    """Rows of the table `watched`: what each layer is, and what the last look, the last whole one and the last update say."""
    counts = Counter(row["layer_id"] for row in alarms)
    rows = []
    for layer in layers:
        name = layer["layer_id"]
        now, all_, new = last.get(name, {}), whole.get(name, {}), update.get(name, {})
        rows.append(
            {
                **layer,
                "n_alarms": counts[name],
                **{
                    key: now.get(key)
                    for key in ("status", "reason", "step", "n_nonfinite", "lambda_max", "stable_rank")
                },
                **{
                    key: all_.get(key)
                    for key in ("n_spikes", "spike_p", "bulk_ks", "bulk_p", "alpha_hill", "alpha_hill_mp")
                },
                "rank_loss": all_.get("rank_loss"),
                "step_whole": all_.get("step"),
                "step_update": new.get("step"),
                "strength": new.get("strength"),
                "regime": new.get("regime"),
            }
        )
    for row, p in zip(rows, spikes_adjusted([(row["spike_p"], row["n_spikes"]) for row in rows]), strict=True):
        row["spike_p_adj"] = p
    return rows


def answer(
    config: MonitorConfig,
    tables: Mapping[str, pl.DataFrame],
    name: str,
    *,
    done: bool,
) -> Answer:
    """The answer as the tables stand."""
    whole = _latest(tables["trace"], (pl.col("event") == "whole") & (pl.col("status") != "nonfinite"))
    update = _latest(tables["trace"], pl.col("update_norm").is_not_null())
    watched, alarms = tables["watched"].to_dicts(), tables["alarms"].to_dicts()
    findings = list(_findings(watched, whole, update, tables["null_copies"], config.k))
    edges = [{"layer_id": row["layer_id"], "_edge": tw_edge(row["N"], row["M"], 0.99)} for row in watched]
    units = pl.DataFrame(edges, schema={"layer_id": pl.String(), "_edge": pl.Float64()})
    beyond = pl.when(pl.col("variance") > 0).then(pl.col("lambda_max") / (pl.col("variance") * pl.col("_edge")))
    trace = tables["trace"].join(units, on="layer_id", how="left").with_columns(beyond.alias("_beyond"))
    shown = _surprising(watched)
    drawn = list(
        figures.run_figures(
            trace, tables["alarms"], tables["events"], [r["layer_id"] for r in watched], config.max_overhead
        )
    )
    for row in shown:
        own = {key: tables[key].filter(pl.col("layer_id") == row["layer_id"]) for key in _OF_A_LAYER}
        mine = trace.filter(pl.col("layer_id") == row["layer_id"])
        drawn.extend(figures.layer_figures(row["layer_id"], mine, own, (row["N"], row["M"])))
    return Answer(
        tables=tables,
        findings=findings,
        figures=drawn,
        layout=_lay_out(name, tables, watched, alarms, shown, drawn, config.max_overhead, done),
        summary=_summary(tables, watched, alarms),
        warnings=_warnings(watched, whole, tables, config),
        passed_over=[{"what": row["what"], "reason": row["reason"]} for row in tables["passed_over"].to_dicts()],
    )


_OF_A_LAYER = ("histograms", "top_values", "update_overlaps")


# -------------------------------------------------------------------------------------------------------- findings


def _findings(
    watched: Sequence[Row], whole: Mapping[str, Row], update: Mapping[str, Row], copies: pl.DataFrame, k: int
) -> Iterator[Finding]:
    regimes = [_regime(row["layer_id"], update[row["layer_id"]], k) for row in watched if row["layer_id"] in update]
    if regimes:
        yield _run_regime(regimes, [update[finding.subject] for finding in regimes])
    yield from regimes
    wanted = {question.id for question in (ask.SPIKES, ask.BULK, ask.COLLAPSE)}
    draws = {key[0]: part.to_dicts() for key, part in copies.group_by("layer_id")}
    for row in watched:
        yield _damaged(row)
        seen = whole.get(row["layer_id"])
        if seen is None:
            continue
        columns = dict.fromkeys(column.name for column in LAYERS.columns) | {**row, **seen}
        columns |= {
            "status": "ok",
            "n_values": row["N"],
            "xmax": seen.get("lambda_max"),
            "spike_p_adj": row["spike_p_adj"],
        }
        own = [{**copy, "edge": None} for copy in draws.get(row["layer_id"], ())]
        for finding in layer_findings(columns, Draws.of(own), ("shuffle", "signflip")):
            if finding.question in wanted:
                yield finding


def _damaged(row: Row) -> Finding:
    count = row["n_nonfinite"] or 0
    because = f"{row['reason']}, at step {row['step']}." if count else f"Every entry is finite at step {row['step']}."
    return Finding(
        row["layer_id"], ask.DAMAGED.id, count, ask.DAMAGED.unit, None, None, 0, None, "yes" if count else "no", because
    )


def _regime(layer: str, row: Row, k: int) -> Finding:
    ratio = row.get("strength")
    steps = f"From step {row['update_from']} to {row['step']}"
    if row["update_norm"] == 0:
        because = f"{steps} the weights did not change."
        return Finding(layer, ask.REGIME.id, 0.0, ask.REGIME.unit, 0.0, 0.0, 1.0, None, "no", because)
    if ratio is None or not math.isfinite(ratio) or row["update_relative"] is None:
        because = f"{steps} the weights changed, but before it they had no bulk to hold the update against."
        return Finding(layer, ask.REGIME.id, None, ask.REGIME.unit, None, None, 1.0, None, "cannot say", because)
    low, high = (1 - FINITE) * ratio, (1 + FINITE) * ratio
    answer = verdict(low, high, yes_above=1.0)
    size = f"{row['regime']}: {steps.lower()} the update is {row['update_relative']:.2g} of the weights"
    told = f"its first direction has strength {ratio:.2g} of what leaves the bulk"
    because = f"{size[0].upper()}{size[1:]}; {told}{_beside(row, k)}."
    return Finding(layer, ask.REGIME.id, ratio, ask.REGIME.unit, low, high, 1.0, None, answer, because)


def _beside(row: Row, k: int) -> str:
    """λ₁ observed over predicted, where the prediction is meant to hold."""
    if row["spikes_before"]:
        count = f"{'at least ' if row['spikes_before'] >= k else ''}{row['spikes_before']}"
        return f"; {count} eigenvalues stood out before it, so the largest one is not predicted"
    if row["lambda_predicted"] is None or row["lambda_observed"] is None:
        return ""
    share = row["lambda_observed"] / row["lambda_predicted"]
    return f"; the largest eigenvalue is {share:.3g} of the predicted {row['lambda_predicted']:.4g}"


def _run_regime(findings: Sequence[Finding], rows: Sequence[Row]) -> Finding:
    known = [finding for finding in findings if finding.estimate is not None]
    counts = Counter(row["regime"] for row in rows if row["regime"])
    told = ", ".join(f"{counts[name]} {name}" for name in ("random", "spike", "heavy") if counts[name])
    yes = sum(finding.verdict == "yes" for finding in findings)
    answer: Verdict = "yes" if yes else "no" if all(finding.verdict == "no" for finding in findings) else "cannot say"
    if not known:
        return Finding(
            "run", ask.REGIME.id, None, ask.REGIME.unit, None, None, 1.0, None, answer, "No update was measured."
        )
    top = max(known, key=lambda finding: finding.estimate or 0.0)
    because = (
        f"The latest updates of {len(findings)} layers are {told or 'none'}; the strongest is that of {top.subject}, "
        f"{top.estimate:.2g}."
    )
    return Finding("run", ask.REGIME.id, top.estimate, ask.REGIME.unit, top.low, top.high, 1.0, None, answer, because)


# ------------------------------------------------------------------------------------------------------------ page


def _surprising(watched: Sequence[Row]) -> list[Row]:
    """Layers with alarms first, then those with the strongest spikes and updates; in order of the network."""
    order = {row["layer_id"]: i for i, row in enumerate(watched)}

    def surprise(row: Row) -> tuple[float, ...]:
        return (-row["n_alarms"], -(row["n_spikes"] or 0), -(row["strength"] or 0.0), order[row["layer_id"]])

    chosen = sorted(watched, key=surprise)[:SHOWN_LAYERS]
    return sorted(chosen, key=lambda row: order[row["layer_id"]])


def _lay_out(
    name: str,
    tables: Mapping[str, pl.DataFrame],
    watched: Sequence[Row],
    alarms: Sequence[Row],
    shown: Sequence[Row],
    drawn: Sequence[Figure],
    limit: float,
    done: bool,
) -> Layout:
    names = {figure.name for figure in drawn}
    last = tables["events"]["step"].max() if tables["events"].height else None
    told = f"{len(alarms)} alarms." if len(alarms) != 1 else "One alarm."
    sections = [
        Section("What happened", words=(told,), figures=_present(("alarms",), names), tables=("alarms",)),
        Section(
            "Is the rate random, spike or heavy?",
            words=("An update is the change of a layer's weights from one look to the next.",),
            findings=(("*", ask.REGIME.id),),
            figures=_present(("regimes",), names),
        ),
        Section("All layers", figures=_present(("edges",), names), tables=("watched",)),
        Section("Findings at the last look", words=("One line per layer and question.",), open=False),
        *by_question(question for question in ask.MONITOR_QUESTIONS if question is not ask.REGIME),
    ]
    if shown:
        words = f"{len(shown)} of {len(watched)} layers: those with alarms, spikes and strong updates first. The tables hold every one."
        sections.append(Section("Layer by layer", words=(words,)))
    for position, row in enumerate(shown):
        own = tuple(figure_name(row["layer_id"], view) for view in figures.LAYER_FIGURES)
        shape = " × ".join(str(side) for side in row["shape"])
        words = f"{row['kind']}, {shape}, {row['dtype']}."
        sections.append(Section(row["layer_id"], (words,), figures=_present(own, names), open=position == 0, level=3))
    sections.append(
        Section(
            "What looking costs",
            words=_price(tables["events"], limit),
            figures=_present(("overhead",), names),
            tables=("events",),
            open=False,
        )
    )
    rest = ("trace", "top_values", "histograms", "update_overlaps", "null_copies", "passed_over")
    sections.append(Section("Numbers", tables=rest, open=False))
    lead = (
        f"{len(watched)} matrices of {name}, {'watched to' if done else 'looked at up to'} step {last}. Every number stands beside "
        "what a random matrix of the same shape or a resampled copy gives."
    )
    return Layout(
        f"What does training do to the weights of {name}?", lead, tuple(sections), MONITOR_TABLES, ask.MONITOR_QUESTIONS
    )


def _price(events: pl.DataFrame, limit: float) -> tuple[str, ...]:
    """What training has waited for, beside the limit, and what came after it."""
    if not events.height:
        return ()
    last = events.row(-1, named=True)
    told = [f"Training has waited {_seconds(last['own_seconds'])} for the monitor"]
    if last["overhead"] is not None:
        told[0] += (
            f", {100 * last['overhead']:.3g} % of its own {_seconds(last['training_seconds'])}; the limit is {100 * limit:.3g} %"
        )
    if last["closing_seconds"]:
        told.append(
            f"After it had ended, looking took {_seconds(last['closing_seconds'])} more, drawing this page not counted; no step waited "
            "for that"
        )
    return (". ".join(told) + ".",)


def _seconds(value: float) -> str:
    return f"{value:.3g} s"


def _latest(trace: pl.DataFrame, wanted: pl.Expr) -> dict[str, Row]:
    """The last such row of each layer."""
    rows = trace.filter(wanted).sort("step", maintain_order=True).unique("layer_id", keep="last", maintain_order=True)
    return {row["layer_id"]: row for row in rows.iter_rows(named=True)}


def _present(wanted: Sequence[str], names: set[str]) -> tuple[str, ...]:
    return tuple(name for name in wanted if name in names)


def _summary(tables: Mapping[str, pl.DataFrame], watched: Sequence[Row], alarms: Sequence[Row]) -> dict[str, Any]:
    events = tables["events"].to_dicts()
    last = events[-1] if events else {}
    return {
        "step": last.get("step"),
        "looks": len(events),
        "training_seconds": last.get("training_seconds"),
        "own_seconds": last.get("own_seconds"),
        "overhead": last.get("overhead"),
        "closing_seconds": last.get("closing_seconds"),
        "alarms": list(alarms),
        "regimes": dict(Counter(row["regime"] for row in watched if row["regime"])),
        "layers": list(watched),
    }


def _warnings(
    watched: Sequence[Row], whole: Mapping[str, Row], tables: Mapping[str, pl.DataFrame], config: MonitorConfig
) -> list[str]:
    told = []
    damaged = sum(bool(row["n_nonfinite"]) for row in watched)
    if damaged:
        told.append(f"{damaged} of {len(watched)} layers hold NaN or infinite entries.")
    missing = sum(row["layer_id"] not in whole for row in watched)
    if missing:
        told.append(f"{missing} of {len(watched)} layers have no whole spectrum yet.")
    overhead = tables["events"]["overhead"].drop_nulls()
    if overhead.len() and overhead[-1] > config.max_overhead:
        told.append(
            f"Looking has cost {100 * overhead[-1]:.3g} % of the training time, above the limit of {100 * config.max_overhead:.3g} %: "
            "the weights are copied at the beginning whatever comes, and a look may take longer than those before it."
        )
    return told
