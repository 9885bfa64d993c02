"""The comparison: what each layer of a network holds of two data sets or more, every distance beside its null."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from querist.errors import BadInput, UndefinedMetric
from querist.features.captured import Capture
from querist.features.configs import CompareConfig
from querist.features.questions import COMPARE_QUESTIONS
from querist.features.studies.captures import capture_row, unread_rows
from querist.features.studies.check_compare import check_compare
from querist.features.studies.opening import Material, called
from querist.features.studies.plan_compare import REPEATED, data_roles, kinds, named, of_repeat, read_captures, usable
from querist.features.tables import COMPARE_TABLES
from querist.reports.result import Result
from querist.reports.verb import answered, several
from querist.runs.study import Answer, Study, Unit

__all__ = ["CompareStudy", "Comparison", "compare"]


class CompareStudy(Study[CompareConfig]):
    """`features compare`. `held` are networks and data in memory by role: model, against, source, target-0, target-1, …"""

    room = "features"
    command = "compare"
    stages = ("captures", "distances")
    tables = COMPARE_TABLES
    questions = COMPARE_QUESTIONS

    def __init__(self, held: Mapping[str, Any] | None = None, material: Material | None = None):
        self.held = dict(held or {})
        self._material = material

    def __getstate__(self) -> dict[str, Any]:
        return {"held": {}, "_material": self._material}

    def material(self, config: CompareConfig) -> Material:
        """Networks and data by role, opened once per process."""
        if self._material is None:
            addresses = {"model": config.model, "source": config.source, "against": config.against or ""}
            addresses |= {f"target-{i}": name for i, name in enumerate(config.target)}
            self._material = Material(addresses, self.held)
        return self._material

    def check(self, config: CompareConfig) -> None:
        """Everything that can be wrong before the work: options, data that do not fit, layers that are not there."""
        check_compare(config, self.material(config))

    def inputs(self, config: CompareConfig) -> Mapping[str, str]:
        """Content hashes of networks and of the chosen rows, and of the reference file."""
        from querist.files import fingerprint

        found = self.material(config).fingerprints(config, kinds(config))
        return found | ({"reference": fingerprint(config.reference)} if config.reference else {})

    def portable(self, config: CompareConfig, folder: Path) -> CompareStudy:
        """What is in memory is written once: networks as safetensors, chosen rows of data likewise."""
        return CompareStudy(material=self.material(config).portable(config, folder, kinds(config)))

    def units(self, config: CompareConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """First a network and data set each; then a layer each, a random network each, and what looks at all layers."""
        units = self._units(config, stage, done)
        for repeat in range(1, config.repeats):
            some = {
                name: frame.filter(pl.col("repeat") == repeat) for name, frame in done.items() if name == "captures"
            }
            for unit in self._units(of_repeat(config, repeat), stage, some):
                if unit.key != "matrix":
                    given = {**unit.payload, "repeat": repeat}
                    units.append(dataclasses.replace(unit, key=f"repeat-{repeat:02d}/{unit.key}", payload=given))
        return units

    def _units(self, config: CompareConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> list[Unit]:
        """Those of one repetition."""
        from querist.features.studies.costs import capture_seconds, layer_seconds, profile_seconds
        from querist.features.studies.profile_net import profiled

        data = data_roles(config)
        nets = ["model", *(["against"] if config.against else [])]
        if stage == "captures":
            seconds = capture_seconds(config)
            return [
                Unit(f"{net}/{role}", {"kind": "capture", "repeat": 0, "net": net, "data": role}, seconds)
                for net in nets
                for role in data
            ]
        mine = done["captures"].filter(pl.col("repeat") == done["captures"]["repeat"].min())
        paths = {f"{row['model']}/{row['data']}": row["path"] for row in mine.to_dicts()}
        captures = read_captures(paths)
        layers, _ = usable(config, captures, "model")
        given = {"repeat": 0, "paths": paths, "layers": layers}
        costs = [layer_seconds(config, captures, name) for name in layers]
        units = [
            Unit(f"layer/{i:04d}", {**given, "kind": "layer", "layer": name}, cost)
            for i, (name, cost) in enumerate(zip(layers, costs, strict=True))
        ]
        if config.reference:
            return units
        each = profile_seconds(config, captures, layers)
        if len(profiled(layers)) > 1:
            units.append(Unit("profile", {**given, "kind": "profile"}, each))
            units += [
                Unit(
                    f"random/{i:03d}",
                    {**given, "kind": "random", "number": i},
                    each + (1 + len(config.target)) * capture_seconds(config),
                )
                for i in range(1, config.random_nets + 1)
            ]
        units.append(Unit("matrix", {**given, "kind": "matrix"}, each / 2))
        if config.against:
            units += [Unit(f"move/{role}", {**given, "kind": "move", "data": role}, sum(costs) / 2) for role in data]
        if config.save_reference:
            units.append(Unit("reference", {**given, "kind": "reference"}, sum(costs)))
        return units

    def work(self, config: CompareConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """Capture, or measure what the unit names, in its repetition."""
        repeat = unit.payload["repeat"]
        found = dict(self._work(of_repeat(config, repeat), unit.payload, folder))
        for name in REPEATED:
            if name in found:
                found[name] = [{**row, "repeat": repeat} for row in found[name]]
        return {name: rows for name, rows in found.items() if repeat == 0 or name in (*REPEATED, "passed_over")}

    def _work(self, config: CompareConfig, payload: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
        from querist.features.studies import profile_net as profiles
        from querist.features.studies.measure_layer import measure_layer

        kind = payload["kind"]
        if kind == "capture":
            return self._capture(config, payload["net"], payload["data"], folder)
        captures, names = read_captures(payload["paths"]), named(config)
        targets = {names[role]: captures["model", role] for role in names}
        layers = payload["layers"]
        if config.reference:
            from querist.features.studies.by_reference import measure_against_reference

            return measure_against_reference(config, targets, payload["layer"])
        source = captures["model", "source"]
        if kind == "layer":
            return measure_layer(config, source, targets, payload["layer"])
        if kind == "profile":
            return profiles.measure_profile(config, "model", source, targets, layers)
        if kind == "random":
            return self._random(config, payload["number"], layers, folder)
        if kind == "reference":
            from querist.features.studies.by_reference import write_reference

            return write_reference(config, source, layers, folder)
        shared = usable(config, captures, "against")[0] if config.against else []
        if kind == "matrix":
            by_name = {(net, names.get(role, role)): one for (net, role), one in captures.items()}
            return profiles.measure_matrix(config, by_name, {"model": layers, "against": shared})
        role = payload["data"]
        both = [captures[net, role] for net in ("model", "against")]
        matched = [name for name in layers if name in shared and both[0][name].width == both[1][name].width]
        if not matched:
            return {}
        return profiles.measure_move(config, both[0], both[1], source, names.get(role) or role, matched)

    def _capture(self, config: CompareConfig, net: str, role: str, folder: Path) -> Mapping[str, Any]:
        begun = time.perf_counter()
        found = self._captured(config, self.material(config).network(net), role, folder)
        path = found.write(folder / "capture")
        _forget(folder)
        row = capture_row(found, time.perf_counter() - begun, model=net, data=role, path=str(path))
        return {"captures": [row], "passed_over": unread_rows(found, net, named(config).get(role, "source"))}

    def _captured(self, config: CompareConfig, network: Any, role: str, folder: Path) -> Capture:
        from querist.features.capturing import capture

        return capture(
            network,
            self.material(config).data(role, config),
            layers=config.layers,
            reduce=config.reduce,
            n=config.n,
            batch_size=config.batch_size,
            proj_dim=config.proj_dim,
            seed=config.seed,
            device=config.device,
            max_bytes=config.max_bytes,
            spill=folder / SPILL / role if config.spill else None,
        )

    def _random(self, config: CompareConfig, repeat: int, layers: Sequence[str], folder: Path) -> Mapping[str, Any]:
        from querist.features.random_nets import random_net
        from querist.features.studies.profile_net import measure_profile

        material, name = self.material(config), f"random-{repeat:03d}"
        options: dict[str, Any] = {"n": config.n, "batch_size": config.batch_size, "device": config.device}
        net = random_net(
            material.network("model"), material.data("source", config), repeat=repeat, seed=config.seed, **options
        )
        found = {role: self._captured(config, net, role, folder) for role in data_roles(config)}
        targets = {target: found[role] for role, target in named(config).items()}
        try:
            return measure_profile(config, name, found["source"], targets, layers)
        except (UndefinedMetric, BadInput) as error:
            return {"passed_over": [{"model": name, "what": "the whole network", "reason": str(error)}]}
        finally:
            del found, targets
            _forget(folder)

    def finish(self, config: CompareConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Join what was drawn into families, judge, draw."""
        from querist.features.studies.answer_compare import answer

        captured = tables["captures"].filter(pl.col("data") != "reference")
        parts = []
        for repeat in range(config.repeats):
            rows = captured.filter(pl.col("repeat") == repeat).to_dicts()
            captures = read_captures({f"{row['model']}/{row['data']}": row["path"] for row in rows})
            parts.append((captures, *usable(config, captures, "model")))
        return answer(config, tables, parts)


SPILL = "spill"


class Comparison(Result):
    """A comparison's answer: `table` holds a row per layer and target, `evolution` the steps from layer to layer."""


def compare(
    model: Any,
    *,
    source: Any = None,
    target: Any,
    config: CompareConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> Comparison:
    """What a network's layers hold of new data beside data it knows, layer by layer, each distance beside its null.

    model: a MODEL address, a torch module, an exported program. source, target: DATA addresses, arrays, tensors, pairs (rows,
    labels), datasets, open data; target may be several: a list, or a dictionary from name to data. against: a second network of
    the same lineage, an address or in memory. Further keywords are the fields of `CompareConfig`; they replace those of
    `config`. out: a run folder, resumable. progress: a callable (done, total, key), None for a bar on standard error, False
    for silence.

    The answer is that of a frozen network: nothing is trained but the probes. A small distance does not by itself mean good
    transfer; the summary's `warning` says why.

    Raises BadInput for a network, data or options that are wrong (LabelsNeeded, DimensionMismatch, ShapeMismatch, TooFewRows,
    NonFinite, UnknownName, …), UnitsFailed where the work itself failed.
    """
    targets = several(target, "target")
    against = fields.get("against")
    held = {"model": model, "source": source, "against": against}
    held |= {f"target-{i}": what for i, what in enumerate(targets.values())}
    names = {"model": called(model, "model"), "target": tuple(called(w, name) for name, w in targets.items())}
    names |= {} if source is None else {"source": called(source, "source")}
    names |= {} if against is None else {"against": called(against, "against")}
    settings = CompareConfig.build(config, **{**fields, **names})
    study = CompareStudy({k: what for k, what in held.items() if not isinstance(what, str | os.PathLike)})
    return answered(Comparison, study, settings, out=out, engine=engine, resume=resume, progress=progress)


def _forget(folder: Path) -> None:
    """Rows that were kept in files while they were captured have been written where they belong."""
    shutil.rmtree(folder / SPILL, ignore_errors=True)
