"""The comparison: every matrix that two sources share, its change beside its nulls, and where the change lies."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from querist.errors import BadOption
from querist.reports.ask import ask
from querist.reports.result import Result
from querist.runs.study import Answer, Study, Unit
from querist.weights.configs import CompareConfig
from querist.weights.delta import MatrixPair
from querist.weights.questions import COMPARE_QUESTIONS
from querist.weights.studies.changes import change_findings, run_findings
from querist.weights.studies.grouping import CPU_FLOPS, grouped
from querist.weights.studies.pairing import Opened, adapter_of, address_of, open_pair
from querist.weights.studies.present_compare import draw, lay_out, summarise, surprising, warn
from querist.weights.studies.settle import adjusted, spikes_adjusted
from querist.weights.tables import COMPARE_TABLES, DELTA_SPECTRA, PASSED_OVER, UNMATCHED

__all__ = ["CompareStudy", "Comparison", "compare"]


class CompareStudy(Study[CompareConfig]):
    """`weights compare`. `base` and `tuned` are in-memory sources, or None for the addresses of the config."""

    room = "weights"
    command = "compare"
    stages = ("layers",)
    tables = COMPARE_TABLES
    questions = COMPARE_QUESTIONS

    def __init__(self, base: Any = None, tuned: Any = None, adapters: tuple[Mapping, Mapping] | None = None):
        self.base, self.tuned = base, tuned
        """In-memory sources, or None; where they had to cross processes, where they were written."""
        self.adapters = adapters or (adapter_of(base), adapter_of(tuned))
        """What in-memory networks say of their adapters."""
        self._opened: tuple[CompareConfig, Opened] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def check(self, config: CompareConfig) -> None:
        """Everything that can be wrong before the work: options that contradict each other, sources that do not fit."""
        if (config.conv == "operator") != (config.grid is not None):
            raise BadOption(
                "conv=operator and grid belong together",
                value=f"conv={config.conv}, grid={config.grid}",
                allowed="--conv operator --grid 32 --grid 32, one number per spatial axis",
            )
        self.open(config)

    def inputs(self, config: CompareConfig) -> Mapping[str, str]:
        """Content hash of every tensor that is read, and of what says how low-rank pairs are scaled."""
        opened, found = self.open(config), {}
        for pair in opened.pairs:
            for side, matrices in (
                ("base", [pair.base, *(low.pair for low in pair.base_low)]),
                ("tuned", [pair.tuned, *(low.pair for low in pair.tuned_low)]),
            ):
                refs = [ref for matrix in matrices if matrix is not None for ref in matrix.refs]
                found |= {f"{side}: {ref.name}": ref for ref in refs}
        hashes = {name: ref.fingerprint() for name, ref in found.items()}
        for side, source, own in zip(("base", "tuned"), (opened.base, opened.tuned), self.adapters, strict=True):
            if adapter := source.metadata.get("adapter") or own:
                text = json.dumps(dict(adapter), sort_keys=True, default=str)
                hashes[f"{side}: adapter_config"] = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
        return hashes

    def portable(self, config: CompareConfig, folder: Path) -> CompareStudy:
        """In-memory tensors are written once as safetensors."""
        from querist.sources.tensors import write_safetensors

        opened = self.open(config)
        sources = (("base", self.base, opened.base), ("tuned", self.tuned, opened.tuned))
        moved = [
            what
            if what is None or isinstance(what, str)
            else str(write_safetensors(folder / f"{name}.safetensors", source))
            for name, what, source in sources
        ]
        said = (opened.base.metadata.get("adapter"), opened.tuned.metadata.get("adapter"))
        adapters = tuple(own or more for own, more in zip(said, self.adapters, strict=True))
        return CompareStudy(moved[0], moved[1], (adapters[0], adapters[1]))

    def open(self, config: CompareConfig) -> Opened:
        """Both sources and their pairs; opened once per process."""
        if self._opened is None or self._opened[0] != config:
            base = self.base if self.base is not None else config.base
            tuned = self.tuned if self.tuned is not None else config.tuned
            self._opened = (config, open_pair(base, tuned, config, self.adapters))
        return self._opened[1]

    def units(self, config: CompareConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """Pairs in groups of about half a second, longest first."""
        pairs = self.open(config).pairs
        made = grouped([_seconds(pair, config) for pair in pairs])
        units = [(cost, [pairs[i].layer_id for i in group]) for cost, group in made]
        return [Unit(key=names[0], payload={"layers": names}, cost=cost, parts=tuple(names)) for cost, names in units]

    def work(self, config: CompareConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """Measure the unit's pairs."""
        from querist.weights.studies.difference import difference

        pairs = self.open(config).pairs
        order = {pair.layer_id: i for i, pair in enumerate(pairs)}
        tables: dict[str, list] = {name: [] for name in ("layers", "null_draws", "overlaps", "angles")}
        spectra = [DELTA_SPECTRA.frame([])]
        for layer in unit.payload["layers"]:
            found = difference(pairs[order[layer]], config)
            tables["layers"].append({**found.row, "position": order[layer]})
            tables["null_draws"].extend(found.draws[key] for key in sorted(found.draws, key=_copy_order))
            tables["overlaps"].extend(found.overlaps)
            tables["angles"].extend(found.angles)
            spectra.extend(_spectrum(layer, *spectrum) for spectrum in found.spectra)
        return {**tables, "spectra": pl.concat(spectra)}

    def finish(self, config: CompareConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Adjust over layers, judge, draw."""
        opened = self.open(config)
        layers = _named(_adjusted(tables["layers"].sort("position")), opened)
        rows = layers.to_dicts()
        findings = [finding for row in rows for finding in change_findings(row, config)]
        findings = [*run_findings(rows, findings), *findings]
        unmatched = UNMATCHED.frame([_shaped(dataclasses.asdict(other)) for other in opened.unmatched])
        passed = [
            {"what": item.what, "shape": list(item.shape or ()), "dtype": item.dtype, "reason": item.reason}
            for item in opened.passed
        ]
        shown = surprising(rows)
        ordered = {name: tables[name] for name in ("spectra", "null_draws", "overlaps", "angles")}
        drawn = draw(layers, shown, ordered)
        return Answer(
            tables={"layers": layers, "unmatched": unmatched, **ordered, "passed_over": PASSED_OVER.frame(passed)},
            findings=findings,
            figures=drawn,
            layout=lay_out(opened, rows, shown, drawn, unmatched.height, bool(passed)),
            summary=summarise(opened, rows, unmatched.to_dicts()),
            warnings=warn(rows, opened, config),
            passed_over=[{"what": row["what"], "reason": row["reason"]} for row in passed],
        )


class Comparison(Result):
    """A comparison's answer: `table` holds a row per matrix that both sources hold, `unmatched` those of one alone."""


def compare(
    base: Any,
    tuned: Any,
    *,
    config: CompareConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> Comparison:
    """What tuning changed: each matrix's update beside its nulls, and where it lies in the matrix it changed.

    base: a source of weights as `scan` takes it (file, folder, registered name, module, state dict, array). tuned: the same
    network later, whole, or with unmerged low-rank pairs, or an adapter alone (LoRA: folder or file with
    adapter_config.json, a state dict of pairs). Matrices are paired by name, prefixes and wrappers undone.

    k: leading directions of a matrix that its update is compared with. lora_alpha: numerator of the scale alpha/r, in
    place of the adapter's own. Further keywords are the fields of `CompareConfig`; they replace those of `config`. out: a
    run folder, resumable. progress: a callable (done, total, key), None for a bar on standard error, False for silence.

    Raises SourceNotFound for a source that is not there and for an adapter of which BASE holds no layer, ShapeMismatch for
    a low-rank pair of two ranks, UnknownName where the sources have no matrix in common, BadInput for other mistakes. A
    matrix that is wrong, or whose shapes differ, costs its row.
    """
    settings = CompareConfig.build(config, **{"base": address_of(base), "tuned": address_of(tuned), **fields})
    held = [None if isinstance(what, str | os.PathLike) else what for what in (base, tuned)]
    quiet = False if out is None and progress is None else progress
    result = ask(CompareStudy(*held), settings, out=out, engine=engine, resume=resume, progress=quiet)
    return Comparison(**{field.name: getattr(result, field.name) for field in dataclasses.fields(result)})


def _copy_order(key: tuple[str, int | None]) -> tuple[bool, str, int]:
    null, replica = key
    return null != "real", null, -1 if replica is None else replica


def _spectrum(layer: str, matrix: str, kind: str, replica: int | None, evals: np.ndarray) -> pl.DataFrame:
    n = evals.size
    return pl.DataFrame(
        {
            "layer_id": pl.repeat(layer, n, dtype=pl.String, eager=True),
            "matrix": pl.repeat(matrix, n, dtype=pl.String, eager=True),
            "kind": pl.repeat(kind, n, dtype=pl.String, eager=True),
            "replica": pl.repeat(replica, n, dtype=pl.Int64, eager=True),
            "index": np.arange(n),
            "eigenvalue": evals,
        }
    )


def _adjusted(layers: pl.DataFrame) -> pl.DataFrame:
    """Benjamini–Hochberg over layers, of the test of spikes and of the test of alignment.

    A layer whose ΔW stays below the .95 Tracy–Widom edge was not resampled: it stays in the family with p = 1.
    """
    rows = layers.select("delta_p", pl.when(pl.col("status") != "unchanged").then("delta_n_spikes")).iter_rows()
    families = {"delta_p_adj": spikes_adjusted(list(rows)), "overlap_p_adj": adjusted(layers["overlap_p"].to_list())}
    return layers.with_columns(pl.Series(name, p, dtype=pl.Float64) for name, p in families.items())


def _named(layers: pl.DataFrame, opened: Opened) -> pl.DataFrame:
    """Names as the files have them; the ids stay those under which the matrices were paired."""
    base, tuned = opened.names
    return layers.with_columns(
        pl.Series("name", [base.get(name, name) for name in layers["name"]], dtype=pl.String),
        pl.Series("tuned_name", [tuned.get(name, name) for name in layers["tuned_name"]], dtype=pl.String),
    )


def _shaped(row: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()}


def _seconds(pair: MatrixPair, config: CompareConfig) -> float:
    """Rough price of a pair on one core: three spectra, two of them with vectors, and copies of the difference."""
    n, m = sorted(pair.shape)
    count = math.prod(pair.matrix.tensor_shape) / (n * m) if pair.base is not None else 1
    floor = count * (2.0 * n * n * m + 10.0 * n**3) / CPU_FLOPS
    if pair.tuned is None:
        return 5 * floor
    return floor * (6 + len(config.nulls) * (config.replicas + config.rank_replicas / 2))
