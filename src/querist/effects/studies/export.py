"""The export of a model: one file for other programs, held against the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from querist.effects.configs import ExportConfig
from querist.effects.serving.folder import model_folder
from querist.effects.serving.scorer import model_hash
from querist.effects.tables.export import EXPORT_TABLES
from querist.errors import BadOption, MissingExtra
from querist.reports.words import command_words
from querist.results.layout import Layout, Section
from querist.runs.study import Answer, Study, Unit

__all__ = ["ExportStudy"]


class ExportStudy(Study[ExportConfig]):
    """`effects export`."""

    room = "effects"
    command = "export"
    tables = EXPORT_TABLES
    questions = ()

    def check(self, config: ExportConfig) -> None:
        """The model, and whether it has a form in the format."""
        from importlib import util

        from querist.effects.serving import load
        from querist.effects.serving.pipeline import pipeline_of

        if not config.model:
            raise BadOption("The model is not named", allowed="a model folder", mend="Name it first")
        if config.format == "onnx" and util.find_spec("onnx") is None:
            raise MissingExtra("Export to ONNX needs the package onnx", mend="pip install 'querist[formats]'")
        pipeline_of(load(config.model))

    def inputs(self, config: ExportConfig) -> Mapping[str, str]:
        """Content of the model."""
        return {"model": model_hash(config.model)}

    def argv(self, config: ExportConfig) -> Sequence[str]:
        """The command line of this export."""
        return command_words("effects export", config, positional=("model",))

    def units(self, config: ExportConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """One."""
        return [Unit("export", {}, 10.0)]

    def work(self, config: ExportConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """Write the file into the unit's folder, and hold it against the model."""
        from querist.effects.serving.export import SUFFIX, export

        place = folder / "export"
        path = place / f"model{SUFFIX[config.format]}"
        found = export(config.model, path, format=config.format, parity_rows=config.parity_rows, seed=config.seed)
        told = json.loads((place / "model.json").read_text(encoding="utf-8"))
        row = {
            "format": found.format,
            "model": told["model"],
            "path": str(place),
            "files": list(found.files),
            "rows": config.parity_rows,
            "max_abs": found.parity_max_abs,
            "max_sd": found.parity_max_sd,
        }
        numbers, codes = (one["columns"] for one in told["inputs"])
        columns = [{"input": "numbers", "place": k, "feature": name, "levels": None} for k, name in enumerate(numbers)]
        columns += [
            {"input": "codes", "place": k, "feature": one["name"], "levels": len(one["codes"])}
            for k, one in enumerate(codes)
        ]
        return {"exported": [row], "export_columns": columns}

    def finish(self, config: ExportConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Keep the files, and say what they are."""
        from querist.effects.serving.pipeline import OUTPUTS

        one = tables["exported"].row(0, named=True)
        summary: dict[str, Any] = {
            "format": one["format"],
            "files": [f"export/{name}" for name in one["files"]],
            "outputs": list(OUTPUTS),
            "parity_max_abs": one["max_abs"],
            "parity_max_sd": one["max_sd"],
            "model_hash": model_hash(config.model),
        }
        lead = (
            f"{one['model']} from {model_folder(config.model).name} as one graph in the folder `export` of this run: raw numbers and "
            f"codes of levels in, natural response, base effect, increments and totals out. On {one['rows']} made-up rows it differs "
            f"from the model by {one['max_abs']:.2g} at most, {one['max_sd']:.2g} sd of the outcome."
        )
        words = (
            "Numbers are given as they stand in a table, NaN where missing: they are standardised inside. Levels are given as the codes "
            "that the JSON file beside the graph lists; 0 is missing, 1 a level that it does not list. Any number of rows.",
        )
        section = Section("Inputs", words=words, tables=("export_columns", "exported"))
        return Answer(
            tables,
            (),
            (),
            Layout("The model for other programs", lead, (section,), EXPORT_TABLES, ()),
            summary,
            kept={"export": Path(one["path"])},
        )
