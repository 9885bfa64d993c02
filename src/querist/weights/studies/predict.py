"""One step foretold: theory's place of the spike, beside exact steps where they were asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from querist.results.layout import Layout, Section
from querist.runs.study import Answer, Study, Unit
from querist.weights.configs import CraftConfig, PredictConfig
from querist.weights.questions import PREDICT_QUESTIONS
from querist.weights.studies.craft import CPU_FLOPS, check_memory, memory_needed
from querist.weights.tables import PREDICT_TABLES, PREDICTED

__all__ = ["PredictStudy"]

CURVE = 200


class PredictStudy(Study[PredictConfig]):
    """`weights predict-spike`."""

    room = "weights"
    command = "predict-spike"
    stages = ("steps",)
    tables = PREDICT_TABLES
    questions = PREDICT_QUESTIONS

    def check(self, config: PredictConfig) -> None:
        """Exact steps that do not fit into memory, a device that is not there."""
        if config.observe:
            from querist.weights.laboratory import device_for

            sizes = CraftConfig(h=config.h, d=config.d, n=config.n, n_test=1)
            check_memory(memory_needed(sizes), f"A step with h={config.h}, d={config.d}, n={config.n}")
            device_for(config.device, "")

    def units(self, config: PredictConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """Theory, and a unit per exact step."""
        small = min(config.h, config.d)
        flops = 4.0 * config.n * config.h * config.d + 8.0 * small * config.h * config.d + 40.0 * small**3
        steps = [
            Unit(f"repeat={repeat}", {"repeat": repeat}, cost=flops / CPU_FLOPS) for repeat in range(config.observe)
        ]
        return [Unit("theory"), *steps]

    def work(self, config: PredictConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """The prediction's row, or what one exact step did."""
        if unit.key == "theory":
            return {"predicted": [_predicted(config, config.eta)], "observed": []}
        return {"predicted": [], "observed": [_exact(config, unit.payload["repeat"], unit.key)]}

    def finish(self, config: PredictConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """The prediction beside what was observed."""
        from querist.weights.figures.laboratory import one_step
        from querist.weights.studies.craft_verdicts import observed, regime_finding

        steps = tables["observed"].sort("repeat")
        row = {**tables["predicted"].to_dicts()[0], **observed(tables["predicted"].to_dicts()[0], steps)}
        ends = (min(config.eta, row["eta_critical"]) / 4, max(config.eta, row["eta_second_scale"]) * 2)
        curve = [_predicted(config, float(eta)) for eta in np.geomspace(*ends, CURVE)]
        figure = one_step(row, curve, steps.to_dicts())
        keys = ("theta", "theta_effective", "eta_critical", "eta_second_scale", "lambda_edge", "lambda_predicted")
        return Answer(
            tables={"predicted": PREDICTED.frame([row]), "observed": steps},
            findings=[regime_finding(row, config.h, config.d)],
            figures=[figure],
            layout=_layout(config, bool(config.observe)),
            summary={
                **{name: getattr(config, name) for name in ("h", "d", "n", "optimizer", "eta")},
                **{name: row[name] for name in (*keys, "sim_predicted", "regime")},
                "observed": steps.to_dicts(),
            },
        )


def _predicted(config: PredictConfig, eta: float) -> dict[str, Any]:
    from querist.weights.laboratory import predict_spike

    told = predict_spike(config.h, config.d, config.n, config.optimizer, eta, rho=config.rho).as_dict()
    return {name: value for name, value in told.items() if name not in ("h", "d", "n")}


def _exact(config: PredictConfig, repeat: int, key: str) -> dict[str, Any]:
    """One exact step of one repeat; teacher, data and weights are those that `weights craft` draws from the same seed."""
    from querist.weights.laboratory import device_for, draw_problem, first_direction, outlier, strength, top_triple

    device = device_for(config.device, key)
    problem = draw_problem(config.h, config.d, config.n, 1, config.rho, seed=config.seed, repeat=repeat, device=device)
    update = config.eta * first_direction(config.optimizer, problem.W, problem.a, problem.train)
    theta, inner = strength(problem.W, update)
    squared, told, _ = outlier(config.h, config.d, theta, inner)
    sigma, _, v = top_triple(problem.W + update)
    return {
        "repeat": repeat,
        "theta": theta,
        "theta_e": max(squared, 0.0) ** 0.5,
        "lambda_exact": told,
        "lambda1": sigma**2,
        "sim": abs(float(v @ problem.beta)),
    }


def _layout(config: PredictConfig, exact: bool) -> Layout:
    sections = [
        Section(
            "One step by theory",
            words=(
                "The leading rank-one part of the first update replaces a row of W. It leaves the bulk once its effective "
                "strength passes the fourth root of hd; theory then gives its eigenvalue and how far it points at the teacher.",
            ),
            findings=(("*", "weights.regime"),),
            figures=("one-step",),
            tables=("predicted",),
        )
    ]
    if exact:
        words = ("Exact steps from fresh draws of teacher, data and weights, each beside its own update's prediction.",)
        sections.append(Section("Exact steps", words=words, tables=("observed",)))
    lead = (
        f"{config.optimizer} at rate {config.eta:g}: {config.h} hidden units, {config.d} inputs, {config.n} examples, label noise "
        f"{config.rho:g}, before training."
    )
    return Layout("Will one step make a spike?", lead, tuple(sections), PREDICT_TABLES, PREDICT_QUESTIONS)
