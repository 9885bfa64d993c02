"""The scan: every matrix of a source, its spectrum beside its nulls."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from querist.errors import BadOption, UnknownName
from querist.reports.ask import ask
from querist.reports.result import Result
from querist.results.lazy import Lazy
from querist.runs.study import Answer, Study, Unit
from querist.weights.configs import ScanConfig
from querist.weights.questions import SCAN_QUESTIONS
from querist.weights.studies.entries import entry_rows
from querist.weights.studies.grouping import CPU_FLOPS, grouped
from querist.weights.studies.present import draw, lay_out, summarise, surprising, warn
from querist.weights.studies.settle import settled
from querist.weights.studies.verdicts import Draws, layer_findings, run_findings
from querist.weights.tables import ADVICE, CURVES, PASSED_OVER, SCAN_TABLES, SPECTRA

if TYPE_CHECKING:
    import pandas as pd

    from querist.sources.tensors import TensorSource
    from querist.weights.spectrum import LayerMatrix

__all__ = ["Scan", "ScanStudy", "scan"]


class ScanStudy(Study[ScanConfig]):
    """`weights scan`. `data` is an in-memory source (module, state dict, array), or None for an address in the config."""

    room = "weights"
    command = "scan"
    stages = ("layers",)
    tables = SCAN_TABLES
    questions = SCAN_QUESTIONS

    def __init__(self, data: Any = None, address: str | None = None):
        self.data = data
        """An in-memory source, or None."""
        self.address = address
        """Where the in-memory source was written, once it had to cross processes."""
        self._opened: tuple[ScanConfig, TensorSource, tuple[LayerMatrix, ...], tuple[Any, ...]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"data": self.data, "address": self.address, "_opened": None}

    def check(self, config: ScanConfig) -> None:
        """Everything that can be wrong before the work: options that contradict each other, an unreadable source."""
        if (config.advise == "alpha-pruning") != (config.target_sparsity is not None):
            raise BadOption(
                "advise=alpha-pruning and target_sparsity belong together",
                value=f"advise={config.advise}, target_sparsity={config.target_sparsity}",
                allowed="--advise alpha-pruning --target-sparsity .5",
            )
        if (config.conv == "operator") != (config.grid is not None):
            raise BadOption(
                "conv=operator and grid belong together",
                value=f"conv={config.conv}, grid={config.grid}",
                allowed="--conv operator --grid 32 --grid 32, one number per spatial axis",
            )
        self.open(config)

    def inputs(self, config: ScanConfig) -> Mapping[str, str]:
        """Content hash of every tensor that is read."""
        _, matrices, _ = self.open(config)
        refs = {ref.name: ref for matrix in matrices for ref in matrix.refs}
        return {name: ref.fingerprint() for name, ref in refs.items()}

    def portable(self, config: ScanConfig, folder: Path) -> ScanStudy:
        """In-memory tensors are written once as safetensors."""
        if self.data is None:
            return self
        from querist.sources.tensors import write_safetensors

        source, _, _ = self.open(config)
        return ScanStudy(address=str(write_safetensors(folder / "source.safetensors", source)))

    def open(self, config: ScanConfig) -> tuple[TensorSource, tuple[LayerMatrix, ...], tuple[Any, ...]]:
        """The source, its matrices and what was passed over; opened once per process."""
        if self._opened is None or self._opened[0] != config:
            from querist.sources.tensors import nothing_selected, open_source
            from querist.weights.spectrum import matrices

            what = self.data if self.data is not None else (self.address or config.source)
            source = open_source(what, include=config.include, exclude=config.exclude)
            found, passed = matrices(
                source.refs,
                conv=config.conv,
                grid=config.grid,
                split=config.split,
                min_side=config.min_side,
                config=source.metadata.get("config"),
            )
            passed = (*source.passed_over, *passed)
            if not found:
                raise nothing_selected(source.address, passed)
            self._opened = (config, source, found, passed)
        return self._opened[1:]

    def units(self, config: ScanConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """Matrices in groups of about half a second, longest first."""
        _, matrices, _ = self.open(config)
        made = grouped([_seconds(matrix, config) for matrix in matrices])
        units = [(cost, [matrices[i].layer_id for i in group]) for cost, group in made]
        return [Unit(key=names[0], payload={"layers": names}, cost=cost, parts=tuple(names)) for cost, names in units]

    def work(self, config: ScanConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """Measure the unit's matrices."""
        from querist.weights.studies.measure import measure

        _, matrices, _ = self.open(config)
        order = {matrix.layer_id: i for i, matrix in enumerate(matrices)}
        rows: list[dict[str, Any]] = []
        draws: list[dict[str, Any]] = []
        entries: dict[str, np.ndarray] = {}
        spectra: list[tuple[str, str, int | None, np.ndarray]] = []
        for layer in unit.payload["layers"]:
            measured = measure(matrices[order[layer]], config)
            rows.append({**measured.row, "position": order[layer]})
            draws.extend(measured.null_draws)
            if measured.entries is not None:
                entries[layer] = measured.entries
            spectra.extend((layer, *spectrum) for spectrum in measured.spectra)
        eigenvalues = _spectra(spectra) if spectra else SPECTRA.frame([])
        return {"layers": rows, "spectra": eigenvalues, "null_draws": draws, "entries": entry_rows(entries)}

    def finish(self, config: ScanConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Adjust over layers, advise, judge, draw."""
        source, _, passed = self.open(config)
        layers = settled(tables["layers"].sort("position"), config.nulls)
        advice: list[dict[str, Any]] = []
        if config.advise is not None:
            from querist.weights.studies.advise import advise

            layers, advice = advise(layers, config)
        rows = layers.to_dicts()
        draws = {key[0]: Draws.of(part.to_dicts()) for key, part in tables["null_draws"].group_by("layer_id")}
        nothing = Draws({}, {}, {})
        findings = [f for row in rows for f in layer_findings(row, draws.get(row["layer_id"], nothing), config.nulls)]
        findings = [*run_findings(rows, findings), *findings]
        passed_rows = [
            {"what": item.what, "shape": list(item.shape or ()), "dtype": item.dtype, "reason": item.reason}
            for item in passed
        ]
        shown = surprising(rows)
        ready = {
            **tables,
            "layers": layers,
            "passed_over": PASSED_OVER.frame(passed_rows),
            "advice": ADVICE.frame(advice),
        }
        answer = Lazy(
            {
                **{name: partial(ready.__getitem__, name) for name in ready},
                "curves": partial(_curves, shown, tables["spectra"]),
            }
        )
        drawn = draw(layers, shown, answer)
        return Answer(
            tables=answer,
            findings=findings,
            figures=drawn,
            layout=lay_out(source.address, rows, shown, drawn, bool(passed_rows), bool(advice)),
            summary=summarise(source, rows, passed_rows, advice),
            warnings=warn(rows, config),
            passed_over=[{"what": row["what"], "reason": row["reason"]} for row in passed_rows],
        )


class Scan(Result):
    """A scan's answer: `table` holds a row per matrix, `spectra` every eigenvalue."""

    def to_pandas(self, table: str | None = None, *, columns: str = "querist") -> pd.DataFrame:
        """A table as a pandas frame; columns="weightwatcher" gives the layers under that tool's names.

        Raises UnknownName for an unknown table or naming, MissingExtra without pandas.
        """
        frame = super().to_pandas(table)
        if columns == "querist":
            return frame
        if columns != "weightwatcher":
            raise UnknownName("No such naming of columns", value=columns, allowed="querist, weightwatcher")
        from querist.weights.weightwatcher import renamed

        return frame.rename(columns=renamed(list(frame.columns)))


def scan(
    source: Any,
    *,
    config: ScanConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> Scan:
    """Spectra of every matrix in a source: bulk, spikes, heavy tails, each beside its null.

    source: an address (file, folder, registered name, hf:ORG/NAME), an nn.Module, a state dict, or an array. Further
    keywords are the fields of `ScanConfig`; they replace those of `config`. out: a run folder, resumable. progress: a
    callable (done, total, layer), called once for each matrix; None for a bar on standard error, False for silence.

    Raises BadInput for a source or option that is wrong; a layer that is wrong costs its row.
    """
    named = isinstance(source, str | os.PathLike)
    address = os.fspath(source) if named else type(source).__name__
    settings = ScanConfig.build(config, **{"source": address, **fields})
    study = ScanStudy(None if named else source)
    quiet = False if out is None and progress is None else progress
    result = ask(study, settings, out=out, engine=engine, resume=resume, progress=quiet)
    return Scan(**{field.name: getattr(result, field.name) for field in dataclasses.fields(result)})


def _spectra(drawn: Sequence[tuple[str, str, int | None, np.ndarray]]) -> pl.DataFrame:
    """(layer, kind, replica, eigenvalues) of every spectrum as one frame, a row per eigenvalue."""
    sizes = np.array([evals.size for *_, evals in drawn], dtype=np.int64)
    of = np.repeat(np.arange(len(drawn)), sizes)
    labels = pl.DataFrame(
        {name: [spectrum[i] for spectrum in drawn] for i, name in enumerate(("layer_id", "kind", "replica"))},
        schema={"layer_id": pl.String, "kind": pl.String, "replica": pl.Int64},
    )
    return labels[of].with_columns(
        pl.Series("index", np.arange(of.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)),
        pl.Series("eigenvalue", np.concatenate([evals for *_, evals in drawn])),
    )


def _curves(shown: Sequence[Mapping[str, Any]], spectra: pl.DataFrame) -> pl.DataFrame:
    """D and Hill curves of the layers that are drawn; a full D curve costs more than the fit, so only theirs."""
    from querist.weights.fits import candidates, hill_curve

    frames = []
    for row in shown:
        of_layer = (pl.col("layer_id") == row["layer_id"]) & (pl.col("kind") == "real")
        evals = spectra.filter(of_layer)["eigenvalue"].to_numpy()
        if row["alpha"] is None or evals.size == 0:
            continue
        found = candidates(evals)
        k, hill = hill_curve(evals)
        frames.append(
            pl.DataFrame(
                {
                    "layer_id": [row["layer_id"]] * found.xmin.size,
                    "xmin": found.xmin,
                    "alpha": found.alpha,
                    "D": found.D,
                    "n_tail": found.n_tail,
                    "hill": hill[np.clip(found.n_tail, 1, k.size) - 1],
                }
            )
        )
    return CURVES.frame(pl.concat(frames) if frames else [])


def _seconds(matrix: LayerMatrix, config: ScanConfig) -> float:
    """Rough price of a matrix on one core: its Gram matrix and eigenvalues, once and for every copy."""
    n, m = sorted(matrix.shape)
    floor = matrix.count * (2.0 * n * n * m + 10.0 * n**3) / CPU_FLOPS
    copies = len(config.nulls) * (config.replicas + config.rank_replicas / 4)
    return floor * (1.2 + copies)
