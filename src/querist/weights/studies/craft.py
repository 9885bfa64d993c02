"""The laboratory as a study: a grid of optimisers, rates and repeats, each run a unit."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from querist.errors import MemoryBound
from querist.reports.ask import ask
from querist.reports.result import Result
from querist.runs.capacity import available_memory
from querist.runs.study import Answer, Study, Unit
from querist.weights.configs import CraftConfig
from querist.weights.questions import CRAFT_QUESTIONS
from querist.weights.studies.craft_verdicts import craft_findings, predictions, setting
from querist.weights.tables import CRAFT_TABLES, PREDICTED

__all__ = ["CraftStudy", "Trajectory", "check_memory", "craft", "memory_needed", "rates", "tables_needed"]

CPU_FLOPS = 3e10
"""float64 operations a second of one core: only for the estimate by which units are ordered."""
RATES = 8


def rates(config: CraftConfig, optimizer: str) -> tuple[float, ...]:
    """The rates of an optimiser: those asked for, or eight from η_c/4 to the second scale, evenly in log η, three digits."""
    if config.eta:
        return config.eta
    from querist.weights.laboratory import predict_spike

    scale = predict_spike(config.h, config.d, config.n, optimizer, 1.0, rho=config.rho)
    low, high = sorted((scale.eta_critical / 4, scale.eta_second_scale))
    return tuple(float(f"{rate:.3g}") for rate in np.geomspace(low, high, RATES))


def memory_needed(config: CraftConfig) -> int:
    """Bytes that one run holds at its peak: data, features, weights with optimiser state and singular vectors, Gram matrices."""
    h, d, n = config.h, config.d, config.n
    small = 4 if config.dtype == "float32" else 8
    data = (2 * n + config.n_test) * (d + 1)
    features = (4 * n + 2 * config.n_test) * h
    weights = 9 * h * d
    exact = 8 * ((6 if config.overlaps else 3) * h * d + 4 * min(h, d) ** 2)
    return small * (data + features + weights + 3 * h * h) + exact


def tables_needed(config: CraftConfig) -> int:
    """Bytes of the answer's long tables, twice: eigenvalues, entries and overlaps of every measured step of every run."""
    runs = config.repeats * sum(len(rates(config, optimizer)) for optimizer in config.optimizer)
    blocks = 4 * min(config.h, config.d, 64) ** 2 if config.overlaps else 0
    rows = 56 * min(config.h, config.d) + 72 * 60 + 104 * blocks
    return 2 * runs * (2 + config.steps // config.probe_every) * rows


def check_memory(needed: int, what: str, mend: str = "Make h, d or n smaller, or give --dtype float32") -> None:
    """MemoryBound where this is more than the system has left."""
    there = available_memory()
    if needed > there:
        raise MemoryBound(
            f"{what} does not fit into memory",
            value=f"{needed / 2**30:.3g} GiB needed, {there / 2**30:.3g} GiB available",
            mend=mend,
        )


class CraftStudy(Study[CraftConfig]):
    """`weights craft`."""

    room = "weights"
    command = "craft"
    stages = ("runs",)
    tables = CRAFT_TABLES
    questions = CRAFT_QUESTIONS

    def check(self, config: CraftConfig) -> None:
        """A run that does not fit into memory, a device that is not there."""
        import torch

        from querist.weights.laboratory import device_for

        check_memory(memory_needed(config), f"A run with h={config.h}, d={config.d}, n={config.n}")
        fewer = "Measure fewer steps (--probe-every), or leave out --overlaps"
        check_memory(tables_needed(config), "The spectra of every measured step", fewer)
        device_for(config.device, "", torch.float32 if config.dtype == "float32" else torch.float64)

    def units(self, config: CraftConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """A unit per optimiser, rate and repeat. The first grid point of a repeat hands in what all of them share."""
        grid = [(optimizer, eta) for optimizer in config.optimizer for eta in rates(config, optimizer)]
        return [
            Unit(
                key=f"{setting(optimizer, eta)} repeat={repeat}",
                payload={"optimizer": optimizer, "eta": eta, "repeat": repeat, "first": position == 0},
                cost=_seconds(config),
            )
            for repeat in range(config.repeats)
            for position, (optimizer, eta) in enumerate(grid)
        ]

    def work(self, config: CraftConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """Train, probe, scan the last weights."""
        from querist.weights.studies.trajectory import run

        asked = unit.payload
        return run(config, asked["optimizer"], asked["eta"], asked["repeat"], unit.key, first=asked["first"])

    def finish(self, config: CraftConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Predictions beside runs, verdicts over repeats, figures."""
        from querist.weights.studies.craft_present import draw, lay_out, summarise, warn
        from querist.weights.studies.settle import settled

        order = ["optimizer", "eta", "repeat", "step"]
        steps = tables["steps"].sort([pl.col("optimizer") != config.optimizer[0], *order[1:]])
        layers = settled(tables["layers"], config.nulls) if tables["layers"].height else tables["layers"]
        predicted = predictions(config, {name: rates(config, name) for name in config.optimizer}, steps)
        findings = craft_findings(config, predicted, steps, layers, tables["null_draws"])
        tables = {**tables, "steps": steps, "layers": layers, "predicted": PREDICTED.frame(predicted)}
        tables = {spec.name: tables[spec.name] for spec in CRAFT_TABLES}
        drawn = draw(config, predicted, tables)
        return Answer(
            tables=tables,
            findings=findings,
            figures=drawn,
            layout=lay_out(config, predicted, drawn),
            summary=summarise(steps, predicted),
            warnings=warn(config, steps, predicted),
        )


class Trajectory(Result):
    """The answer of `craft`: `table` (steps) holds a row per run and measured step, `spectra` every eigenvalue."""


def craft(
    *,
    config: CraftConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> Trajectory:
    """Train small networks on a known teacher and watch bulk, spikes and tails of their weights grow, beside theory.

    Keywords are the fields of `CraftConfig` (sizes d, h, n; optimizer; eta, a list of rates; steps; repeats); they replace
    those of `config`. A rate and an optimiser may be given bare. out: a run folder, resumable. progress: a callable (done,
    total, key), None for a bar on standard error, False for silence.

    Raises BadInput: BadOption for a rate that is not above 0 or another option that is wrong, MemoryBound for a run that
    does not fit. A run whose loss stops being finite keeps its rows (status diverged).

    Source: set-up of arXiv 2406.04657; see docs/weights.md for what differs.
    """
    settings = CraftConfig.build(config, **fields)
    quiet = False if out is None and progress is None else progress
    result = ask(CraftStudy(), settings, out=out, engine=engine, resume=resume, progress=quiet)
    return Trajectory(**{field.name: getattr(result, field.name) for field in dataclasses.fields(result)})


def _seconds(config: CraftConfig) -> float:
    """Rough price of a run on one core: products of each step, and per probe features, Gram matrices and vectors."""
    h, d, n = config.h, config.d, config.n
    small = min(h, d)
    step = 4.0 * n * h * d
    probe = 6.0 * n * h * d + 8.0 * n * h * h + 8.0 * small * h * d + (60.0 if config.overlaps else 20.0) * small**3
    probes = 2 + config.steps / config.probe_every
    scan = (1 + 3 * len(config.nulls)) * (2.0 * small * h * d + 10.0 * small**3)
    return (config.steps * step + probes * probe + scan) / CPU_FLOPS + 0.05
