"""The table looked at without a model: facts, evidence of each class, and the tests that a verdict is taken from."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from querist.concepts.configs import AuditOptions, DetectOptions
from querist.concepts.data import ConceptData
from querist.concepts.detectors import (
    AgreementTest,
    Association,
    PatternExcess,
    agreement_test,
    apart_by,
    association,
    conflicts,
    consistency_check,
    masked_agreement,
    pattern_excess,
    reference_test,
    size_outlier,
)
from querist.concepts.triggers import poison, random_trigger
from querist.errors import BadOption, TooFewRows
from querist.statistics import stream

__all__ = ["POWER", "SIMULATED", "class_statistics", "clean_range", "measure_evidence", "table_facts"]

LEVEL = 0.05
RESAMPLES = 19
SIMULATED = 20
"""Attacks on the reference by which the power of its test is estimated."""
POWER = 0.8
Rows = list[dict[str, Any]]


def table_facts(data: ConceptData) -> Rows:
    """Counts of the whole table, each with what it says."""
    found = conflicts(data)
    sizes = data.class_sizes[data.class_sizes > 0]
    return [
        {"fact": name, "value": None if value is None else float(value), "meaning": meaning}
        for name, value, meaning in (
            ("n", data.n, "Rows."),
            ("k", data.k, "Concepts."),
            ("classes", int((data.class_sizes > 0).sum()), "Classes that have rows."),
            ("density", data.density, "Mean over all known cells."),
            ("missing", data.missing, "Cells that are unknown."),
            ("class_size_min", int(sizes.min()), "Rows of the smallest class."),
            ("class_size_median", float(np.median(sizes)), "Rows of the middle class."),
            ("class_size_max", int(sizes.max()), "Rows of the largest class."),
            ("profiles", found.profiles, "Distinct rows of concepts."),
            ("conflicting_profiles", found.conflicting_profiles, "Those that bear several labels."),
            ("conflicting_rows", found.conflicting_rows, "Rows with such a profile."),
            (
                "accuracy_ceiling",
                found.accuracy_ceiling,
                "Accuracy that no model of these concepts can exceed on these rows.",
            ),
        )
    ]


def class_statistics(
    data: ConceptData, binarise: str | None, seed: int, clusters: np.ndarray | None = None
) -> tuple[dict[str, np.ndarray], PatternExcess | None]:
    """Size, D and 1 − A of every class, larger where more suspicious; D and A only of a table that is or can be made binary."""
    found = {"size": np.where(data.class_sizes > 0, size_outlier(data.class_sizes), np.nan)}
    if not data.binary_values and binarise is None:
        return found, None
    binary = data.binary(binarise)
    pattern = pattern_excess(binary)
    found["pattern excess"] = np.where(data.class_sizes > 0, pattern.excess, np.nan)
    with contextlib.suppress(TooFewRows):
        found["1 − masked agreement"] = 1 - masked_agreement(binary, clusters=clusters, seed=seed)
    return found, pattern


def measure_evidence(
    config: AuditOptions | DetectOptions, data: ConceptData, rows: np.ndarray, reference: ConceptData | None
) -> Mapping[str, Any]:
    """Tables class_evidence, tests, association, rows (pattern, consistency, conflicts), facts, table_facts.

    `data` is what is searched, `rows` [n] its places in DATA.
    """
    said = association(data)
    statistics, pattern = class_statistics(data, config.binarise, config.seed)
    evidence = _class_rows(data, said, statistics, pattern)
    tests: Rows = []
    flagged: Rows = []
    if reference is not None:
        tests += _reference(config, data, reference, evidence)
    level = consistency_check(data, declared=config.class_level)
    if config.class_level or level.class_level:
        tests.append(_class_level(config, data, level, evidence))
        flagged += _deviating(data, rows, level)
    agreement = _agreement(config, data, statistics)
    for code, rank in zip(agreement.ranking, range(1, data.n_classes + 1), strict=True):
        evidence[int(code)]["rank"] = rank
    tests.append(_agreement_row(data, agreement))
    if pattern is not None:
        flagged += _pattern_rows(config, data, rows, pattern, reference, _suspects(tests), evidence)
    flagged += _conflict_rows(data, rows)
    return {
        "class_evidence": sorted((row for row in evidence if row["n"]), key=lambda row: row["rank"]),
        "tests": tests,
        "association": _association_rows(data, said),
        "rows": flagged,
        "facts": data.facts().to_dicts(),
        "table_facts": table_facts(data),
    }


def _suspects(tests: Rows) -> set[str]:
    """Classes that a test points at; a class-level table names its rows itself, and honest ones carry the pattern there."""
    return {
        row["target"]
        for row in tests
        if row["verdict"] == "yes" and row.get("target") is not None and row["test"] != "class-level"
    }


def _class_rows(
    data: ConceptData, said: Association, statistics: Mapping[str, np.ndarray], pattern: PatternExcess | None
) -> Rows:
    agreement = statistics.get("1 − masked agreement")
    made = []
    for code, label in enumerate(data.classes):
        own = None if pattern is None else pattern.patterns[code]
        z = float(said.z_max[code])
        made.append(
            {
                "target": str(label),
                "n": int(data.class_sizes[code]),
                "size_outlier": float(statistics["size"][code]),
                "pattern_excess": None if pattern is None else float(pattern.excess[code]),
                "pattern": None if own is None else own.to_json(),
                "share_in": None if pattern is None or own is None else float(pattern.share_in[code]),
                "share_out": None if pattern is None or own is None else float(pattern.share_out[code]),
                "masked_agreement": None if agreement is None else 1 - float(agreement[code]),
                "constant": int(said.constant[code]),
                "z_max": None if math.isnan(z) else z,
                "rank": code + 1,
            }
        )
    return made


def _reference(config: AuditOptions | DetectOptions, data: ConceptData, reference: ConceptData, evidence: Rows) -> Rows:
    classes = int((data.class_sizes > 0).sum())
    draws = max(
        config.permutations, 2 * math.ceil(classes / LEVEL)
    )  # Holm's smallest p must be able to reach the level
    found = reference_test(data, reference, permutations=draws, seed=config.seed)
    for code, row in enumerate(evidence):
        row |= {
            "z_max": float(found.statistic[code]),
            "p": float(found.p[code]),
            "p_adj": float(found.p_adj[code]),
            "reason": found.reasons[code],
        }
    if np.isnan(found.p_adj).all():
        return [
            {"test": "reference", "verdict": "cannot say", "because": "no class has rows on both sides"},
        ]
    code = int(np.nanargmin(np.where(np.isnan(found.p_adj), np.inf, found.p_adj + 1e-9 / (1 + found.statistic))))
    p = float(found.p_adj[code])
    powers = {mode: _power(config, reference, classes, draws, mode) for mode in ("mix", "dirty")}
    power = powers["mix"]
    yes = p <= LEVEL
    lacking = sum(reason is not None for reason in found.reasons)
    verdict = "yes" if yes else ("no" if power is not None and power >= POWER and not lacking else "cannot say")
    because = f"largest |z| {found.statistic[code]:.2f} (concept {data.concept_names[int(found.concept[code])]}), Holm's p {p:.3g}"
    if not yes:
        because += f"; power {'unknown' if power is None else f'{power:.2f}'} for 1 % mix at size 5"
        because += f"; {lacking} classes could not be compared" if lacking else ""
    rows = [
        {
            "test": "reference",
            "target": str(data.classes[code]),
            "statistic": float(found.statistic[code]),
            "p": p,
            "verdict": verdict,
            "because": because,
        }
    ]
    for mode, share in powers.items():
        if share is not None:
            said = f"{SIMULATED} attacks on halves of the reference (1 % {mode}, size 5, random triggers) were each sought by the same test"
            named = "power" if mode == "mix" else f"power, {mode}"
            rows.append({"test": named, "statistic": share, "null": LEVEL, "verdict": "cannot say", "because": said})
    return rows


def _power(
    config: AuditOptions | DetectOptions, reference: ConceptData, classes: int, draws: int, mode: Any
) -> float | None:
    """Share of 1 % attacks of size 5 on half of the reference that the other half finds; None where halves are too small."""
    found = 0
    for run in range(SIMULATED):
        rng = stream(config.seed, "power", run)
        half = np.zeros(reference.n, dtype=bool)
        half[rng.permutation(reference.n)[: reference.n // 2]] = True
        suspect, trusted = reference.subset(half).changed(split=None), reference.subset(~half).changed(split=None)
        both = np.flatnonzero((suspect.class_sizes > 0) & (trusted.class_sizes > 0))
        if not both.size or not suspect.usable().size:
            return None
        code = int(rng.choice(both))
        trigger = random_trigger(suspect, suspect.classes[code], min(5, suspect.usable().size), seed=run).trigger
        try:
            made = poison(suspect, trigger, suspect.classes[code], 0.01, mode=mode, seed=run).data
        except BadOption:
            return None
        mine, others = made.subset(made.codes == code), trusted.subset(trusted.codes == code)
        p = reference_test(mine, others, permutations=draws, seed=run).p[code]
        found += bool(p * classes <= LEVEL)
    return found / SIMULATED


def _class_level(config: AuditOptions | DetectOptions, data: ConceptData, found: Any, evidence: Rows) -> dict[str, Any]:
    for code, row in enumerate(evidence):
        row["deviating"] = int(found.deviating[data.codes == code].sum())
    count = int(found.deviating.sum())
    row = {"test": "class-level", "statistic": float(count), "null": 0.0, "verdict": "cannot say"}
    if not found.class_level:
        return row | {
            "statistic": None,
            "because": "most rows differ from their class's commonest row: the table is not class-level",
        }
    undecided = f"; {len(found.undecided)} classes have no commonest row" if len(found.undecided) else ""
    if not count:
        return row | {
            "because": f"no row deviates from its class's row; a class edited as a whole would not either{undecided}"
        }
    worst = int(np.bincount(data.codes[found.deviating], minlength=data.n_classes).argmax())
    names = ", ".join(str(data.classes[code]) for code in found.classes[:5])
    return row | {
        "target": str(data.classes[worst]),
        "verdict": "yes",
        "because": f"{count} rows deviate from the row of their class, in {len(found.classes)} classes ({names}){undecided}",
    }


def _agreement(
    config: AuditOptions | DetectOptions, data: ConceptData, statistics: Mapping[str, np.ndarray]
) -> AgreementTest:
    """With the range of clean resamples: rows of all classes but the first-placed one, drawn with replacement."""
    if len(statistics) < 2:
        ranking = np.argsort(-np.nan_to_num(statistics["size"], nan=-np.inf), kind="stable")
        said = "concepts are not binary, so that sizes alone can be compared (--binarise)"
        return AgreementTest(int(ranking[0]), 0, (), 1.0, "cannot say", said, ranking)
    first = agreement_test(statistics)
    clean = clean_range(data, config.binarise, config.seed, first)
    return first if clean is None else agreement_test(statistics, clean=clean)


def clean_range(data: ConceptData, binarise: str | None, seed: int, first: AgreementTest) -> dict[str, float] | None:
    """The largest of each statistic on resamples of the rows of all classes but the first-placed; None where they cannot matter."""
    rows = np.flatnonzero(data.codes != first.code)
    if first.m < 2 or first.p > LEVEL or len(np.unique(data.codes[rows])) < 2:
        return None
    clean: dict[str, float] = {}
    for b in range(RESAMPLES):
        drawn = stream(seed, "clean resample", b).choice(rows, len(rows))
        values, _ = class_statistics(data.subset(drawn).changed(ids=None), binarise, seed, clusters=drawn)
        for name, array in values.items():
            clean[name] = max(clean.get(name, -np.inf), float(np.nanmax(array)))
    return clean


def _agreement_row(data: ConceptData, found: AgreementTest) -> dict[str, Any]:
    return {
        "test": "agreement",
        "target": str(data.classes[found.code]),
        "statistic": float(found.m),
        "null": 1.0,
        "p": found.p,
        "verdict": found.verdict,
        "because": found.because,
    }


def _association_rows(data: ConceptData, said: Association) -> Rows:
    made = []
    for code in np.flatnonzero(data.class_sizes):
        for k, concept in enumerate(data.concept_names):
            values = {"z": said.z, "p": said.p, "p_adj": said.p_adj, "mean_in": said.mean_in}
            row = {name: float(array[code, k]) for name, array in values.items()}
            made.append(
                {"target": str(data.classes[code]), "concept": concept, **row, "mean_all": float(said.mean_all[k])}
            )
    return made


def _row(
    data: ConceptData, rows: np.ndarray, i: Any, method: str, score: float, flag: bool, reason: str
) -> dict[str, Any]:
    made = {"row": int(rows[i]), "id": None if data.ids is None else str(data.ids[i]), "label": str(data.labels[i])}
    return made | {"method": method, "score": score, "flag": flag, "reason": reason}


def _deviating(data: ConceptData, rows: np.ndarray, found: Any) -> Rows:
    cells = found.cells.sum(axis=1)
    said = "concepts differ from the row of its class"
    return [
        _row(data, rows, i, "consistency", float(cells[i]), True, f"{cells[i]} {said}")
        for i in np.flatnonzero(found.deviating)
    ]


def _pattern_rows(
    config: AuditOptions | DetectOptions,
    data: ConceptData,
    rows: np.ndarray,
    found: PatternExcess,
    reference: ConceptData | None,
    suspects: set[str],
    evidence: Rows,
) -> Rows:
    """Rows of suspect classes that carry what sets the class apart: from its trusted rows with a reference, else from all others.

    Classes that the reference names one by one are suspects too. Without a suspect nothing is flagged and none is listed.
    """
    named = suspects | {row["target"] for row in evidence if (row.get("p_adj") or 1.0) <= LEVEL}
    binary = data.binary(config.binarise)
    trusted = None if reference is None else reference.binary(config.binarise)
    made = []
    for code in (code for code, label in enumerate(data.classes) if str(label) in named):
        pattern, excess = found.patterns[code], float(found.excess[code])
        if trusted is not None:
            pattern, excess = apart_by(binary, trusted, code)
            evidence[code]["planted"] = None if pattern is None else pattern.to_json()
        if pattern is None:
            continue
        mine = np.flatnonzero(data.codes == code)
        carriers = mine[pattern.matches(binary.concepts[mine])]
        made += [_row(data, rows, i, "pattern", excess, True, "carries what sets its class apart") for i in carriers]
    return made


def _conflict_rows(data: ConceptData, rows: np.ndarray) -> Rows:
    mask = conflicts(data).mask
    said = "its concepts are those of a row with another label"
    return [_row(data, rows, i, "conflicts", 1.0, False, said) for i in np.flatnonzero(mask)[:200]]
