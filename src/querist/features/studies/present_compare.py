"""What a comparison shows, in which order, and the summary's own keys."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from querist.features.captured import Capture
from querist.features.configs import CompareConfig
from querist.features.figures.compare import Setting, compare_figures
from querist.features.questions import COMPARE_QUESTIONS, WARNING
from querist.features.studies.captures import POWER_IS_LOW, peak
from querist.features.studies.plan_compare import twins
from querist.features.tables import COMPARE_TABLES
from querist.results.figure import Figure
from querist.results.finding import Finding
from querist.results.layout import Layout, Section

__all__ = ["draw", "lay_out", "summarise", "warn"]

Tables = Mapping[str, pl.DataFrame]
Key = tuple[str, str]
FEW = 30


def draw(config: CompareConfig, tables: Tables, captures: Mapping[Key, Capture], layers: Sequence[str]) -> list[Figure]:
    """Every figure of the comparison."""
    first = {
        name: frame.filter(pl.col("repeat") == 0) if "repeat" in frame.columns else frame
        for name, frame in tables.items()
    }
    return list(compare_figures(first, Setting(config.target, _said(config, tables), config.level)))


def _said(config: CompareConfig, tables: Tables) -> str:
    arms = sorted(set(tables["gaps"]["n_c"].to_list()))
    arm = f", {'/'.join(str(size) for size in arms)} per arm" if arms else ""
    distance = {"sliced": f"sliced W{_order(config.p)}, {config.projections} projections"}.get(
        config.distance, f"{config.distance}, order {config.p:g}"
    )
    return (
        f"n = {config.n} examples a set at most{arm}; normalisation {config.normalise}; {distance}; seed {config.seed}."
    )


def _repeated(config: CompareConfig, figures: tuple[str, ...]) -> list[Section]:
    if config.repeats == 1:
        return []
    words = (
        f"{config.repeats} repetitions, each with its own choice of examples, directions, splits, relabellings, folds and random networks. "
        "A set that holds no more than n examples is the same in all of them. A verdict is yes or no where all repetitions agree, with the "
        "largest p and the interval that holds all of theirs. All other figures, single units, classes, spectra and a second network "
        "are of the first repetition.",
    )
    return [Section("Over repetitions", words=words, figures=figures, tables=("spread",))]


def _order(p: float) -> str:
    return {1.0: "₁", 2.0: "₂"}.get(p, f" of order {p:g}")


def lay_out(config: CompareConfig, tables: Tables, findings: Sequence[Finding], drawn: Sequence[Figure]) -> Layout:
    """The warning in the lead, then profiles, findings by question, what lies behind them, what was passed over."""
    names = [figure.name for figure in drawn]

    def of(*views: str) -> tuple[str, ...]:
        return tuple(name for name in names if any(name == v or name.startswith(f"{v}-") for v in views))

    against = of("network-gap", "matrix-against")
    asked = {finding.question for finding in findings}
    sections = [
        Section("Profile over layers", figures=of("profile"), tables=("gaps",)),
        *_repeated(config, of("spread")),
        Section("Findings, layer by layer", words=("One line per layer, target and question.",), open=False),
        *(
            Section(question.ask, words=(question.rule,), findings=(("*", question.id),), open=False, level=3)
            for question in COMPARE_QUESTIONS
            if question.id in asked
        ),
    ]
    if tables["evolution"].height:
        words = (
            "Contraction (does the gap shrink?) and consistency (do source and target move alike?) are different questions; both "
            "are answered, neither is chosen afterwards.",
        )
        sections.append(
            Section(
                "Evolution, contraction, consistency",
                words=words,
                figures=of("evolution", "contraction"),
                tables=("consistency",),
            )
        )
    if names_ := of("association"):
        sections.append(Section("Distance, probe and depth", figures=names_, tables=("association",)))
    if names_ := of("ridgeline"):
        sections.append(Section("Values of the layers", figures=names_, open=False))
    if names_ := tuple(name for name in of("matrix") if name not in against):
        sections.append(Section("Spectra, layer by layer", figures=names_, open=False))
    if names_ := of("units", "units-top"):
        sections.append(Section("Single units", figures=names_, tables=("units",), open=False))
    if tables["class_gaps"].height:
        words = ("Gaps within single classes that both sets name.",)
        sections.append(Section("Classes", words=words, figures=of("classes"), tables=("class_gaps",), open=False))
    if against or tables["network_gaps"].height:
        sections.append(Section("The second network", figures=against, tables=("network_gaps",)))
    if tables["passed_over"].height:
        words = ("What was not measured, each with its reason.",)
        sections.append(Section("Passed over", words=words, figures=of("skipped"), tables=("passed_over",), open=False))
    rest = ("layers", "captures", "probes", "evolution", "net_profiles", "matrix", "pooled", "draws")
    sections.append(Section("Tables behind the figures", tables=rest, open=False))
    known = config.reference or config.source
    lead = (
        f"{WARNING} Here: {tables['gaps']['layer'].n_unique()} layers of {config.model}, {', '.join(config.target)} beside {known}. "
        "Every distance stands beside that between two parts of the source."
    )
    return Layout(
        f"What do the layers keep of {', '.join(config.target)}?",
        lead,
        tuple(sections),
        COMPARE_TABLES,
        COMPARE_QUESTIONS,
    )


SUMMED = (
    "target",
    "layer",
    "index",
    "width",
    "raw",
    "null_mean",
    "null_q95",
    "excess",
    "low",
    "high",
    "ratio",
    "p",
    "p_adj",
)


def summarise(config: CompareConfig, tables: Tables, captures: Mapping[Key, Capture]) -> dict[str, Any]:
    """The summary's keys that belong to the comparison."""
    rows = tables["gaps"].filter(pl.col("repeat") == 0).to_dicts()
    mine = {role: one for (net, role), one in captures.items() if net == "model"}
    consistency = tables["consistency"].filter(pl.col("repeat") == 0).to_dicts()
    nets = any(row["n_null"] for row in consistency)
    kept = ("target", "statistic", "frame", "value", "floor", "p", "p_all", "n_null")
    association = tables["association"].filter(pl.col("target") != "").to_dicts()
    base = mine.get("source")
    size = base.n if base is not None else _reference_size(config)
    first = next(iter(mine.values()))
    return {
        "warning": WARNING,
        "capture": {
            "n": config.n,
            "reduction": config.reduce,
            "normalise": config.normalise,
            "ids_hash": (base or first).ids_hash,
            "bytes_bound": max(one.bytes_bound for one in captures.values()),
            "bytes_peak": peak(list(captures.values())),
        },
        "model": config.model,
        "source": {"name": config.source or str(config.reference), "n": size},
        "targets": [{"name": name, "n": mine[f"target-{i}"].n} for i, name in enumerate(config.target)],
        "level": config.level,
        "n_per_arm": min((row["n_c"] for row in rows), default=None),
        "permutations": config.permutations,
        "projections": config.projections,
        "layers": [{name: row[name] for name in (*SUMMED, "probe_accuracy")} for row in rows],
        "consistency": [{name: row[name] for name in kept} for row in consistency] if nets else [],
        "association": {row["target"]: {k: v for k, v in row.items() if k != "target"} for row in association},
        "max_gap_layer": {
            name: max((row for row in rows if row["target"] == name), key=lambda row: row["excess"])["layer"]
            for name in config.target
            if any(row["target"] == name for row in rows)
        },
        "max_gap": max((row["excess"] for row in rows), default=None),
        "min_p_adj": min((row["p_adj"] for row in rows), default=None),
        "slope": {
            name: next((r["value"] for r in consistency if r["statistic"] == "slope" and r["target"] == name), None)
            for name in config.target
        },
        "network_gap": [
            {name: row[name] for name in ("layer", "value", "null_mean", "p", "p_adj")}
            for row in tables["network_gaps"].filter(pl.col("data") == "source").sort("index").to_dicts()
        ],
        "repeats": config.repeats,
        "spread": tables["spread"].to_dicts(),
    }


def _reference_size(config: CompareConfig) -> int:
    from querist.features.reference import Reference

    return len(Reference.read(str(config.reference)).ids)


def warn(config: CompareConfig, tables: Tables, captures: Mapping[Key, Capture], layers: Sequence[str]) -> list[str]:
    """What a reader should know before trusting the numbers."""
    told = list(dict.fromkeys(note for one in captures.values() for note in one.notes))
    for name, twin in twins(next(one for (net, _), one in captures.items() if net == "model")).items():
        told.append(f"{name} holds the same values as {twin} and is compared once: the network has no head.")
    arms = tables["gaps"]["n_c"].to_list()
    if arms and min(arms) < POWER_IS_LOW:
        told.append(f"{min(arms)} examples per arm: below {POWER_IS_LOW} a gap must be large to be seen.")
    if config.distance == "sliced" and config.projections < FEW:
        told.append(
            f"Only {config.projections} projections: their error (mc_se) is large and itself poorly known; {FEW} or more tell."
        )
    level = config.level / config.looks
    draws = tables["draws"]["null"].list.len().min() if config.reference else config.permutations
    if isinstance(draws, int) and level * (draws + 1) < 1:
        what = "draws of the reference" if config.reference else "permutations"
        enough = math.ceil(1 / level - 1e-9) - 1
        told.append(f"{draws} {what} cannot reach p = {level:.3g}: no gap can be found; {enough} or more can.")
    known = tables["evolution"].filter(pl.col("model").str.starts_with("random-")).select("model", "repeat")
    nets, wanted = known.unique().height, config.random_nets * config.repeats
    if nets < wanted:
        told.append(f"{wanted - nets} of {wanted} random networks could not be measured.")
    if config.distance in ("max-sliced", "gaussian"):
        told.append(f"The {config.distance} distance is biased upwards at few examples: read it beside its null only.")
    if config.distance == "otdd" and config.against:
        told.append("The second network's move is measured by the sliced distance: OTDD compares classes.")
    slow = tables["probes"].filter(~pl.col("converged"))
    if slow.height:
        told.append(f"The probe of {slow.height} layers had not converged after 2,000 iterations.")
    unread = [row for row in tables["passed_over"].to_dicts() if " of " in row["what"] and row["model"] == "model"]
    broken = sum(not row["what"].startswith(("class ", "probe ")) for row in unread)
    if broken:
        told.append(f"{broken} examples could not be read; the table `passed_over` names them.")
    return told
