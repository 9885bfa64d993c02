"""The ranking: which network and layer to start from, by scores beside permuted labels, and by plain baselines."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from querist.features.captured import Capture
from querist.features.configs import RankConfig
from querist.features.questions import RANK_QUESTIONS
from querist.features.studies.captures import capture_row, unread_rows
from querist.features.studies.opening import Material, called
from querist.features.tables import RANK_TABLES
from querist.reports.result import Result
from querist.reports.verb import answered, several
from querist.reports.words import command_words
from querist.runs.study import Answer, Study, Unit

__all__ = ["RankStudy", "Ranking", "rank"]

PER_ROW = 1.5e-3
"""Seconds of one core for reading a picture and running a network of the size of ResNet20 over it."""
PER_LABELLING = 2e-8
"""Seconds of one core for a number of a layer's rows in one labelling; only to order units by."""


class RankStudy(Study[RankConfig]):
    """`features rank`. `held` are networks and data in memory by role: model-0, model-1, …, target, source."""

    room = "features"
    command = "rank"
    stages = ("captures", "scores")
    tables = RANK_TABLES
    questions = RANK_QUESTIONS

    def __init__(self, held: Mapping[str, Any] | None = None, material: Material | None = None):
        self.held = dict(held or {})
        self._material = material

    def __getstate__(self) -> dict[str, Any]:
        return {"held": {}, "_material": self._material}

    def material(self, config: RankConfig) -> Material:
        """Networks and data by role, opened once per process."""
        if self._material is None:
            addresses = {f"model-{i}": name for i, name in enumerate(config.models)} | {"target": config.target}
            addresses |= {"source": config.source} if config.source else {}
            self._material = Material(addresses, self.held)
        return self._material

    def check(self, config: RankConfig) -> None:
        """Everything that can be wrong before the work: options, labels, data that do not fit, layers that are not there."""
        from querist.features.studies.check_rank import check_rank

        check_rank(config, self.material(config))

    def inputs(self, config: RankConfig) -> Mapping[str, str]:
        """Content hashes of networks, chosen rows and the truth."""
        from querist.features.studies.rank_truth import truth_fingerprints

        found = self.material(config).fingerprints(config, _kinds(config))
        return found | truth_fingerprints(config.truth)

    def argv(self, config: RankConfig) -> Sequence[str]:
        """The command line of this ranking."""
        return command_words("features rank", config, positional=("models",))

    def portable(self, config: RankConfig, folder: Path) -> RankStudy:
        """What is in memory is written once: networks and chosen rows."""
        return RankStudy(material=self.material(config).portable(config, folder, _kinds(config)))

    def units(self, config: RankConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """First a network and data set each; then a layer of a network each, and what a network's own classes say."""
        if stage == "captures":
            data = ["target", *(["source"] if config.source else [])]
            return [
                Unit(f"{i:03d}/{role}", {"model": i, "data": role}, config.n * PER_ROW)
                for i in range(len(config.models))
                for role in data
            ]
        from querist.features.studies.check_rank import check_labels

        found: list[Unit] = []
        for i, name in enumerate(config.models):
            paths = paths_of(done, name)
            captured = Capture.read(paths["target"])
            check_labels(captured)
            given = {"model": i, "paths": paths}
            for layer in captured:
                if layer.kind != "input" and layer.name in done["layers"].filter(pl.col("model") == name)["layer"]:
                    cost = PER_LABELLING * config.permutations * layer.rows.size * len(layer.mean)
                    key = f"{i:03d}/layer/{layer.index:04d}"
                    found.append(Unit(key, {**given, "layer": layer.name}, cost))
            classes = done["models"].filter(pl.col("model") == name)["classes"][0]
            found.append(Unit(f"{i:03d}/classes", {**given, "layer": None, "classes": classes}, 0.1))
        return found

    def work(self, config: RankConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """Capture, or score what the unit names."""
        if "data" in unit.payload:
            return self._capture(config, unit.payload["model"], unit.payload["data"], folder)
        from querist.features.studies.rank_measure import measure_classes, measure_layer

        name, paths, layer = config.models[unit.payload["model"]], unit.payload["paths"], unit.payload["layer"]
        captures = {role: Capture.read(path) for role, path in paths.items()}
        if layer is None:
            return measure_classes(config, name, captures, unit.payload["classes"])
        return measure_layer(config, name, captures, layer)

    def _capture(self, config: RankConfig, i: int, role: str, folder: Path) -> Mapping[str, Any]:
        from querist.features.capturing import capture
        from querist.features.studies.rank_measure import describe_network

        begun, name = time.perf_counter(), config.models[i]
        network, data = self.material(config).network(f"model-{i}"), self.material(config).data(role, config)
        captured = capture(
            network,
            data,
            layers=f"{config.layers},logits",  # what the network itself says is needed for its classes
            reduce=config.reduce,
            n=config.n,
            batch_size=config.batch_size,
            proj_dim=config.proj_dim,
            seed=config.seed,
            device=config.device,
            max_bytes=config.max_bytes,
            spill=folder / "spill" if config.spill else None,
        )
        path = captured.write(folder / "capture")
        row = capture_row(captured, time.perf_counter() - begun, model=name, data=role, path=str(path), repeat=0)
        tables: dict[str, Any] = {"captures": [row], "passed_over": unread_rows(captured, name, role)}
        if role == "target":
            few = data.read(captured.ids[:3]).inputs
            tables |= describe_network(config, name, network, captured, few)
        if config.spill:
            import shutil

            shutil.rmtree(folder / "spill", ignore_errors=True)
        return tables

    def finish(self, config: RankConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Rank, compare with the truth, judge, draw."""
        from querist.features.studies.rank_answer import answer

        shared = 0 if config.source else None
        if config.source:
            target, source = (self.material(config).data(role, config) for role in ("target", "source"))
            if target.source == source.source:
                paths = paths_of(tables, config.models[0])
                shared = int(np.intersect1d(Capture.read(paths["target"]).ids, Capture.read(paths["source"]).ids).size)
        return answer(config, tables, shared)


def paths_of(tables: Mapping[str, pl.DataFrame], model: str) -> dict[str, str]:
    """Folders of a network's captures by the data's role."""
    return {row["data"]: row["path"] for row in tables["captures"].to_dicts() if row["model"] == model}


def _kinds(config: RankConfig) -> dict[str, str]:
    kinds = {f"model-{i}": "model" for i in range(len(config.models))} | {"target": "data"}
    return kinds | ({"source": "data"} if config.source else {})


class Ranking(Result):
    """A ranking's answer: `table` (scores) holds a row per score, network and layer; `baselines` what they must beat."""


def rank(
    models: Any,
    *,
    target: Any,
    source: Any = None,
    config: RankConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> Ranking:
    """Which network and layer to start from for labelled data, by scores that train nothing, beside their nulls and baselines.

    models: a MODEL address or a torch module; several as a list or as a dictionary from name to network. target: labelled
    data, an address, (rows, labels), a dataset. source: data that the networks know; with it the distance to the target
    (W) stands among the baselines, which never ranks. truth: what training reached, a table or a run of `freeze`, with which
    scores are compared. Further keywords are the fields of `RankConfig`; they replace those of `config`. out: a run folder,
    resumable. progress: a callable (done, total, key), None for a bar on standard error, False for silence.

    Layers are scored on rows reduced as captures are, after `iso` on the target's own rows. Each score stands beside the same
    score of permuted labels (`permutations`).

    Raises BadInput for networks, data or options that are wrong (LabelsNeeded, BadLabels, TooFewRows, ShapeMismatch, …),
    UnitsFailed where the work itself failed.

    Source: the scores' papers, see `querist.features.nce` … `gbc`; that plain heuristics beat scores on public leaderboards,
    arXiv 2510.06448.
    """
    networks = several(models, "model")
    held = {f"model-{i}": what for i, what in enumerate(networks.values())} | {"target": target, "source": source}
    names: dict[str, Any] = {"models": tuple(called(what, name) for name, what in networks.items())}
    names["target"] = called(target, "target")
    names |= {} if source is None else {"source": called(source, "source")}
    settings = RankConfig.build(config, **{**fields, **names})
    in_memory = {k: what for k, what in held.items() if what is not None and not isinstance(what, str | os.PathLike)}
    study = RankStudy(in_memory)
    return answered(Ranking, study, settings, out=out, engine=engine, resume=resume, progress=progress)
