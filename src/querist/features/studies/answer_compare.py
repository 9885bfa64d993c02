"""From the joined tables of a comparison to its answer: families of tests, findings, summary."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from querist.errors import UndefinedMetric
from querist.features.captured import INPUT, Capture
from querist.features.configs import CompareConfig
from querist.features.profile import (
    Association,
    Consistency,
    Gap,
    GapDraws,
    association,
    gaps,
    judged,
    largest_gap,
)
from querist.features.questions import GAP
from querist.features.relation import related
from querist.features.studies import compare_verdicts as verdicts
from querist.features.studies.by_reference import reference_gaps
from querist.features.studies.over_repeats import spread, together
from querist.features.studies.plan_compare import REPEATED
from querist.features.studies.present_compare import draw, lay_out, summarise, warn
from querist.features.studies.profile_net import profile_from, profiled
from querist.features.tables import ASSOCIATION, CLASS_GAPS, COMPARE_TABLES, CONSISTENCY, GAPS, PASSED_OVER
from querist.files import replacing
from querist.results.finding import Finding
from querist.runs.study import Answer

__all__ = ["answer", "draws_from"]

Key = tuple[str, str]
Part = tuple[Mapping[Key, Capture], Sequence[str], Sequence[Mapping[str, str]]]
"""Of one repetition: captures, the layers that were compared, and those that were not, with reasons."""


@dataclass(frozen=True)
class _Repeat:
    """What one repetition found."""

    layers: Sequence[str]
    gaps: dict[Key, Gap]
    consistent: Consistency | None
    tables: dict[str, pl.DataFrame]
    findings: list[Finding]


def answer(config: CompareConfig, tables: Mapping[str, pl.DataFrame], parts: Sequence[Part]) -> Answer:
    """Join, adjust, judge, draw: every repetition by itself, then what they say together."""
    known = {spec.name: tables.get(spec.name, spec.frame([])) for spec in COMPARE_TABLES}
    repeats = [_repeat(config, known, repeat, layers) for repeat, (_, layers, _) in enumerate(parts)]
    captures, layers, _ = parts[0]
    by_class = draws_from(known["draws"].filter(pl.col("class") != ""), ("target", "class", "layer"))
    class_gaps = gaps(by_class, level=config.level) if by_class else {}
    associated, overall = _associations(config, repeats, known["probes"])
    passed_rows = [*(row for *_, passed in parts for row in passed), *known["passed_over"].to_dicts()]
    ready = {
        **known,
        **{name: pl.concat([one.tables[name] for one in repeats]) for name in repeats[0].tables},
        "class_gaps": _class_frame(config, class_gaps, known["draws"]),
        "association": ASSOCIATION.frame(associated),
        "passed_over": PASSED_OVER.frame(list({(r["model"], r["what"], r["reason"]): r for r in passed_rows}.values())),
    }
    ready["spread"] = spread(config, ready["gaps"])
    cells = config.repeats * (len(associated) - 1)
    findings = _findings(config, ready, captures, together([one.findings for one in repeats]), overall, cells)
    figures = draw(config, ready, captures, layers)
    if config.save_reference:
        _put_reference(config, known["captures"])
    return Answer(
        tables=ready,
        findings=findings,
        figures=figures,
        layout=lay_out(config, ready, findings, figures),
        summary=summarise(config, ready, captures),
        warnings=warn(config, ready, captures, layers),
        passed_over=[{"what": row["what"], "reason": row["reason"]} for row in ready["passed_over"].to_dicts()],
    )


def _repeat(config: CompareConfig, known: Mapping[str, pl.DataFrame], repeat: int, layers: Sequence[str]) -> _Repeat:
    """The gaps and consistency of one repetition, each a family of tests of its own."""
    mine = {name: known[name].filter(pl.col("repeat") == repeat) for name in REPEATED}
    mine["layers"] = known["layers"]
    whole = mine["draws"].filter(pl.col("class") == "")
    drawn = {} if config.reference else draws_from(whole, ("target", "layer"))
    found: dict[Key, Gap] = reference_gaps(config, whole) if config.reference else gaps(drawn, level=config.level)
    consistent = _consistency(config, mine, layers, found)
    rows = [{**_plain(row), "repeat": repeat} for row in consistent.rows] if consistent else []
    findings: list[Finding] = []
    single: list[Finding] = []
    for target in config.target:
        some = {layer: gap for (of, layer), gap in found.items() if of == target}
        if not some:
            continue
        if drawn:
            largest = largest_gap({key: one for key, one in drawn.items() if key[0] == target})
        else:
            largest = (max(gap.z or 0.0 for gap in some.values()), min(gap.p_adj for gap in some.values()))
        findings.append(verdicts.gap_any_finding(config, target, largest, some))
        single += [verdicts.gap_finding(config, target, layer, gap, len(some)) for layer, gap in some.items()]
    if not config.reference:
        findings += verdicts.consistency_findings(config, consistent.rows if consistent else [])
    frames = {"gaps": _gap_frame(config, found, mine, repeat), "consistency": CONSISTENCY.frame(rows)}
    return _Repeat(layers, found, consistent, frames, [*findings, *single])


def draws_from(frame: pl.DataFrame, key: Sequence[str]) -> dict[Any, GapDraws]:
    """Draws by the columns of `key`, from rows of the table `draws`."""
    found: dict[Any, GapDraws] = {}
    for row in frame.sort("target", "class", "index").to_dicts():
        arrays: dict[str, Any] = {name: np.array(row[name]) for name in ("raw", "null", "permuted")}
        plain: dict[str, Any] = {
            name: row[name] for name in ("order", "d", "n_c", "mc_se", "observed", "p", "se", "degrees")
        }
        found[tuple(row[name] for name in key)] = GapDraws(**plain, **arrays)
    return found


def _gap_frame(
    config: CompareConfig, found: Mapping[Key, Gap], known: Mapping[str, pl.DataFrame], repeat: int
) -> pl.DataFrame:
    inputs = {target: gap.excess for (target, layer), gap in found.items() if layer == INPUT}
    places = {row["layer"]: row for row in known["layers"].to_dicts() if row["model"] == "model"}
    probes = {(row["target"], row["layer"]): row for row in known["probes"].to_dicts()}
    rows = []
    for (target, layer), gap in found.items():
        probe = probes.get((target, layer), {})
        row = {"target": target, "layer": layer, "repeat": repeat, "model": "model"}
        row |= {"distance": config.distance, **_of_gap(gap)}
        row |= {name: places[layer][name] for name in ("index", "width")}
        row["relative"] = gap.excess / inputs[target] if inputs.get(target) else None
        row |= {"probe_accuracy": probe.get("accuracy"), "probe_low": probe.get("low"), "probe_high": probe.get("high")}
        rows.append(row)
    order = {name: i for i, name in enumerate(config.target)}
    return GAPS.frame(sorted(rows, key=lambda row: (order[row["target"]], row["index"])))


def _class_frame(config: CompareConfig, found: Mapping[Any, Gap], draws: pl.DataFrame) -> pl.DataFrame:
    index = {row["layer"]: row["index"] for row in draws.to_dicts()}
    return CLASS_GAPS.frame(
        {"target": t, "class": c, "layer": layer, "index": index[layer], "distance": config.distance, **_of_gap(gap)}
        for (t, c, layer), gap in found.items()
    )


def _of_gap(gap: Gap) -> dict[str, Any]:
    names = ("raw", "null_mean", "null_q95", "excess", "low", "high", "ratio", "p", "p_adj")
    return {name: getattr(gap, name) for name in (*names, *MORE)}


MORE = ("excess_p", "interval_kind", "w2_scale", "z", "mc_se", "n_c")


def _plain(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def _consistency(
    config: CompareConfig, known: Mapping[str, pl.DataFrame], layers: Sequence[str], found: Mapping[Key, Gap]
) -> Consistency | None:
    """The network's four statistics beside those of the random networks that could be measured."""
    evolution, excess = known["evolution"], known["net_profiles"]
    names = profiled(layers)
    if not evolution.height:
        return None
    own = profile_from("model", names, evolution, excess, found, config.level)
    others = sorted(set(evolution["model"].unique()) - {"model"})
    nulls = [profile_from(name, names, evolution, excess, None, config.level) for name in others]
    try:
        return judged(own, nulls)
    except UndefinedMetric:  # the source's law is the same in every layer
        return None


def _associations(
    config: CompareConfig, repeats: Sequence[_Repeat], probes: pl.DataFrame
) -> tuple[list[dict[str, Any]], Association | None]:
    """Rows of the table, a target each and the mean over all cells, and that mean. The input is no layer of the network."""
    accuracy = {(row["repeat"], row["target"], row["layer"]): row["accuracy"] for row in probes.to_dicts()}
    names = [name for name in repeats[0].layers if name != INPUT]
    rows, excesses, probed = [], [], []
    for target in config.target:
        keys = [(repeat, one, (target, name)) for repeat, one in enumerate(repeats) for name in names]
        if len(names) < 3 or any((r, *key) not in accuracy or key not in one.gaps for r, one, key in keys):
            continue
        W = [[one.gaps[target, name].excess for name in names] for one in repeats]
        A = [[accuracy[repeat, target, name] for name in names] for repeat in range(len(repeats))]
        excesses += W
        probed += A
        rows.append({"target": target, **_of_association(association(W, A, level=1 - config.level))})
    if not rows:
        return [], None
    overall = association(excesses, probed, level=1 - config.level)
    return [*rows, {"target": "", **_of_association(overall)}], overall


def _of_association(found: Association) -> dict[str, Any]:
    return {name: getattr(found, name) for name in ASSOCIATION.schema() if name != "target"}


def _findings(
    config: CompareConfig,
    ready: Mapping[str, pl.DataFrame],
    captures: Mapping[Key, Capture],
    found: Sequence[Finding],
    overall: Association | None,
    cells: int,
) -> list[Finding]:
    single = [finding for finding in found if finding.question == GAP.id]
    findings = [finding for finding in found if finding.question != GAP.id]
    if not config.reference:
        for i, target in enumerate(config.target):
            relation = related(captures["model", "source"], captures["model", f"target-{i}"], config.paired)
            single.append(verdicts.overlap_finding(target, relation.shared, relation.kind, len(relation.target)))
    findings.append(verdicts.association_finding(overall, cells))
    moves = ready["network_gaps"].to_dicts()
    for row in moves:
        layers = sum(other["data"] == row["data"] for other in moves)
        single.append(verdicts.move_finding(config, row, row["data"], layers))
    for net in dict.fromkeys(net for net, _ in captures):
        health = [one.health for (of, _), one in captures.items() if of == net]
        missing = {row.what: {"what": row.what, "reason": row.reason} for one in health for row in one.reasons}
        lost = ready["passed_over"].filter(pl.col("model") == net).to_dicts()
        names = {name for (of, _), one in captures.items() if of == net for name in one.names}
        missing |= {row["what"]: row for row in lost if row["what"] in names}
        total = max(one.found for one in health)
        kept = len({name for name in names if name != INPUT} - set(missing))
        findings.append(verdicts.health_finding(net, kept, max(total, kept), list(missing.values())))
    return [*findings, *single]


def _put_reference(config: CompareConfig, captures: pl.DataFrame) -> None:
    made = captures.filter(pl.col("data") == "reference")["path"][0]
    with replacing(Path(str(config.save_reference)).expanduser()) as temporary:
        shutil.copyfile(made, temporary)
