"""From runs to findings: each run judged as a scan would, a setting by what more than half of its runs say."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from querist.results.finding import Finding, Verdict
from querist.weights import questions as ask
from querist.weights.configs import CraftConfig
from querist.weights.studies.verdicts import Draws, layer_findings

__all__ = ["FINITE_SIZE", "craft_findings", "predictions", "regime_finding", "setting"]

FINITE_SIZE = 0.15
"""How far the strength of a step may be from theory at the sizes of the laboratory."""
Row = Mapping[str, Any]


def setting(optimizer: str, eta: float) -> str:
    """What findings and figures call an optimiser at a rate."""
    return f"{optimizer} eta={repr(float(eta)).removesuffix('.0')}"


def predictions(config: Any, rates: Mapping[str, Sequence[float]], steps: pl.DataFrame) -> list[dict[str, Any]]:
    """A row of the table `predicted` per optimiser and rate; `steps` holds what exact first steps did (rows of step 1)."""
    from querist.weights.laboratory import predict_spike

    first = steps.filter((pl.col("step") == 1) & pl.col("lambda1").is_not_null())
    rows = []
    for optimizer, etas in rates.items():
        for eta in etas:
            told = predict_spike(config.h, config.d, config.n, optimizer, eta, rho=config.rho).as_dict()
            row = {name: value for name, value in told.items() if name not in ("h", "d", "n")}
            mine = first.filter((pl.col("optimizer") == optimizer) & (pl.col("eta") == eta))
            rows.append(row | observed(row, mine))
    return rows


def observed(row: Row, mine: pl.DataFrame) -> dict[str, Any]:
    """What exact steps did, beside the prediction `row`. `mine`: columns lambda1, sim, theta_e, a row per run."""
    if not mine.height:
        return {"runs": 0}
    tops, mean = mine["lambda1"], float(mine["lambda1"].mean())  # type: ignore[arg-type]
    return {
        "runs": mine.height,
        "theta_e_observed": mine["theta_e"].mean(),
        "lambda_observed": mean,
        "lambda_low": tops.min(),
        "lambda_high": tops.max(),
        "lambda_ratio": mean / row["lambda_predicted"],
        "sim_observed": mine["sim"].mean(),
    }


def regime_finding(row: Row, h: int, d: int) -> Finding:
    """Whether one step is strong enough for a spike: its own strength where steps were made, else that of theory."""
    seen = row.get("theta_e_observed")
    strength = (row["theta_effective"] if seen is None else seen) / (h * d) ** 0.25
    low, high = strength * (1 - FINITE_SIZE), strength * (1 + FINITE_SIZE)
    verdict: Verdict = "yes" if low > 1 else "no" if high < 1 else "cannot say"
    because = (
        f"A step of {row['optimizer']} at rate {row['eta']:g} has {strength:.3g} times the strength that a spike needs "
        f"(regime {row['regime']}; threshold at rate {row['eta_critical']:.3g})"
    )
    if row.get("lambda_observed") is None:
        because += f"; λ₁ predicted {row['lambda_predicted']:.4g}, the bulk ends at {row['lambda_edge']:.4g}."
    else:
        runs = f"{row['runs']} run{'s' if row['runs'] > 1 else ''}"
        because += (
            f"; λ₁ after it {row['lambda_observed']:.4g} on average over {runs}, predicted {row['lambda_predicted']:.4g} "
            f"(ratio {row['lambda_ratio']:.3g})."
        )
    subject = setting(row["optimizer"], row["eta"])
    return Finding(subject, ask.REGIME.id, strength, ask.REGIME.unit, low, high, 1.0, None, verdict, because)


def craft_findings(
    config: CraftConfig, predicted: Sequence[Row], steps: pl.DataFrame, layers: pl.DataFrame, draws: pl.DataFrame
) -> list[Finding]:
    """Regime of every setting, then spikes, bulk and tail of its last weights."""
    findings = [regime_finding(row, config.h, config.d) for row in predicted]
    copies = {key[0]: Draws.of(part.to_dicts()) for key, part in draws.group_by("layer_id")}
    rows = {row["layer_id"]: row for row in layers.to_dicts()}
    nothing = Draws({}, {}, {})
    for row in predicted:
        name = setting(row["optimizer"], row["eta"])
        keys = [f"{name} repeat={repeat}" for repeat in range(config.repeats)]
        runs = {
            key: list(layer_findings(rows[key], copies.get(key, nothing), config.nulls)) for key in keys if key in rows
        }
        findings.extend(_over_repeats(name, runs, config.repeats))
    return findings


def _over_repeats(name: str, runs: Mapping[str, Sequence[Finding]], repeats: int) -> Iterator[Finding]:
    for question in (ask.SPIKES, ask.BULK, ask.HEAVY_TAIL):
        mine = [finding for found in runs.values() for finding in found if finding.question == question.id]
        if not mine:
            because = f"None of {repeats} runs reached its last step with finite weights that could be scanned."
            yield Finding(name, question.id, None, question.unit, None, None, None, None, "cannot say", because)
            continue
        counts = {verdict: sum(one.verdict == verdict for one in mine) for verdict in ("yes", "no", "cannot say")}
        verdict = next((one for one, count in counts.items() if 2 * count > len(mine)), "cannot say")
        values = [one.estimate for one in mine if one.estimate is not None]
        middle = statistics.median_low(values) if values else None
        typical = next((one for one in mine if one.estimate == middle and one.verdict == verdict), None)
        typical = typical or next((one for one in mine if one.verdict == verdict), mine[0])
        told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        lost = f" ({repeats - len(mine)} diverged)" if len(mine) < repeats else ""
        which = typical.subject.rpartition(" ")[2].replace("=", " ")
        yield Finding(
            name,
            question.id,
            middle,
            question.unit,
            min(values, default=None),
            max(values, default=None),
            _median(one.null for one in mine),
            _median(one.p for one in mine),
            verdict,  # type: ignore[arg-type]
            f"Of {len(mine)} runs{lost}: {told}. In {which}: {typical.because}",
        )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
