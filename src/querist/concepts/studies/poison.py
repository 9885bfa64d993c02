"""A poisoned copy of the owner's table, for assessment: files with truth and trigger beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from querist.concepts.configs import PoisonConfig
from querist.concepts.data import ConceptData
from querist.concepts.figures import attack as figures
from querist.concepts.questions import POISON_QUESTIONS, PROTOCOL
from querist.concepts.studies.data_summary import data_warnings
from querist.concepts.studies.opening import Material, called
from querist.concepts.studies.stealth import shift_rows, stealth_finding, stealth_rows, stealth_summary
from querist.concepts.tables import POISON_TABLES
from querist.concepts.triggers import Poisoned, Selection, cat, cat_plus, poison, random_trigger
from querist.errors import BadOption, UnknownName, near
from querist.files import write_bytes, write_frame, write_json
from querist.reports.result import Result
from querist.reports.verb import answered
from querist.reports.words import command_words
from querist.results.layout import Layout, Section
from querist.runs.study import Answer, Study, Unit

__all__ = ["FILES", "PoisonStudy", "PoisonedCopy", "choose", "deliver", "poisoned_copy"]

FILES = {
    "poisoned.parquet": "The copy, stamped as an assessment copy, with its column roles.",
    "truth.parquet": "Which rows were poisoned, their old labels, how many of their cells changed.",
    "trigger.json": "The trigger, its target and how it was planted.",
}


def choose(
    data: ConceptData, target: Any, selector: str, size: int, *, tie_break: str, binarise: str | None, seed: int
) -> Selection:
    """The trigger of a selector. Raises what the selectors raise."""
    if selector == "cat":
        return cat(data, target, size, seed=seed)
    if selector == "random":
        return random_trigger(data, target, size, seed=seed)
    rule: Any = tie_break
    return cat_plus(data, target, size, tie_break=rule, binarise=binarise, seed=seed)


def planted(config: PoisonConfig, data: ConceptData, rows: np.ndarray) -> tuple[ConceptData, Poisoned, Selection]:
    """The copy (all rows), and what was done to the training rows."""
    train = data.subset(rows)
    target = train.classes[train.target(config.target)]
    options = {"tie_break": config.tie_break, "binarise": config.binarise, "seed": config.seed}
    found = choose(train, target, config.selector, config.size, **options)
    made = poison(
        train,
        found.trigger,
        target,
        config.rate,
        mode=config.poison_mode,
        base=config.base,
        strength=config.strength,
        seed=config.seed,
    )
    values, codes = data.concepts.copy(), data.codes.copy()
    values[rows], codes[rows] = made.data.concepts, made.data.codes
    return data.changed(concepts=values, codes=codes), made, found


class PoisonStudy(Study[PoisonConfig]):
    """`concepts poison`. `held` is a table in memory by role: data."""

    room = "concepts"
    command = "poison"
    stages = ("copy",)
    tables = POISON_TABLES
    questions = POISON_QUESTIONS

    def __init__(self, held: Mapping[str, Any] | None = None, material: Material | None = None):
        self.held = dict(held or {})
        self._material = material

    def __getstate__(self) -> dict[str, Any]:
        return {"held": {}, "_material": self._material}

    def material(self, config: PoisonConfig) -> Material:
        """The table, opened once per process."""
        if self._material is None:
            self._material = Material({"data": config.data}, self.held)
        return self._material

    def rows(self, config: PoisonConfig) -> np.ndarray:
        """Rows that may be poisoned: those a model learns from."""
        return self.material(config).suspect(config)[1]

    def check(self, config: PoisonConfig) -> None:
        """Plant once: everything that can be wrong is wrong there."""
        data = self.material(config).data(config)
        if not config.target:
            near_by = near("", [str(label) for label in data.classes], 12)
            raise BadOption(
                "A trigger leads to a class, and none is named", value="", allowed=near_by, mend="Name --target"
            )
        if config.target not in {str(label) for label in data.classes}:
            raise UnknownName(
                "No row has this class",
                value=config.target,
                allowed=near(config.target, [str(label) for label in data.classes], 12),
            )
        planted(config, data, self.rows(config))

    def inputs(self, config: PoisonConfig) -> Mapping[str, str]:
        """The table's hash."""
        return self.material(config).fingerprints(config)

    def argv(self, config: PoisonConfig) -> Sequence[str]:
        """The command line of this copy."""
        return command_words("concepts poison", config, positional=("data",))

    def portable(self, config: PoisonConfig, folder: Path) -> PoisonStudy:
        """A table in memory is written once."""
        return PoisonStudy(material=self.material(config).portable(config, folder))

    def units(self, config: PoisonConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """One."""
        return [Unit("copy", {}, 2.0)]

    def work(self, config: PoisonConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """Plant, write the files, compare."""
        data, rows = self.material(config).data(config), self.rows(config)
        copy, made, found = planted(config, data, rows)
        folder = folder / "files"  # the unit's own tables lie beside it, one of them truth.parquet
        folder.mkdir()
        copy.changed(images=None).to_parquet(folder / "poisoned.parquet", stamp="assessment copy")
        truth = _truth(data, copy, made, rows)
        write_frame(folder / "truth.parquet", truth)
        write_json(folder / "trigger.json", _trigger_file(config, made, found))
        label = str(copy.classes[made.target])
        own = found.table.with_columns(
            target=pl.lit(label), selector=pl.lit(config.selector), size=pl.lit(config.size), repeat=pl.lit(0)
        )
        before = data.subset(rows).concepts
        compared = stealth_rows(made, before, permutations=999, seed=config.seed)
        return {
            "copy": [{"file": name, "path": str(folder / name), "meaning": said} for name, said in FILES.items()],
            "selection": own.to_dicts(),
            "truth": truth.filter(pl.col("poisoned")),
            "stealth": compared,
            "shift": shift_rows(made, before),
            "facts": data.facts().to_dicts(),
        }

    def finish(self, config: PoisonConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """What was planted, how it was chosen, whether it can be seen."""
        data = self.material(config).data(config)
        where = dict(tables["copy"].select("file", "path").iter_rows())
        about = json.loads(Path(where["trigger.json"]).read_text("utf-8"))
        drawn = [figures.selection(tables["selection"]), figures.shifts(tables["shift"], tables["stealth"], "table")]
        kept = [figure for figure in drawn if figure is not None]
        names = [figure.name for figure in kept]
        reasons = [
            {"what": f"stealth: {row['comparison']}", "reason": row["reason"]}
            for row in tables["stealth"].to_dicts()
            if row["reason"]
        ]
        warnings = data_warnings(data)
        if data.images is not None:
            warnings.append("The copy holds the table alone: its images are those of DATA, which were not touched.")
        values = ", ".join(f"{n} = {v}" for n, v in zip(about["names"], about["values"], strict=True))
        lead = (
            f"{about['n_poisoned']} of {data.n} rows of this copy carry a trigger of {about['size']} concepts ({values}) "
            "that leads to class "
            f"{about['target']}. It is a copy for assessment: train on it what you would train on the table, and see whether you notice. "
            "Never train a model that serves people on it."
        )
        sections = (
            Section("The copy", words=PROTOCOL, tables=("copy", "truth")),
            Section(
                "How the trigger was chosen", figures=tuple(n for n in names if n == "selection"), tables=("selection",)
            ),
            Section(
                "Can it be seen?",
                findings=(("*", "concepts.stealthy"),),
                figures=tuple(n for n in names if n == "marginal_shift"),
                tables=("stealth", "shift"),
            ),
            Section("The table", tables=("facts",), open=False),
        )
        poisoned = {key: about[key] for key in SUMMARY}
        poisoned["trigger"] = {key: about[key] for key in ("index", "names", "values")}
        return Answer(
            tables=tables,
            findings=stealth_finding(tables["stealth"], about["target"]),
            figures=kept,
            layout=Layout("An assessment copy", lead, sections, POISON_TABLES, POISON_QUESTIONS),
            summary={"protocol": list(PROTOCOL), "stealth": stealth_summary(tables["stealth"]), "poison": poisoned},
            warnings=warnings,
            passed_over=reasons,
        )


SUMMARY = ("target", "selector", "size", "rate", "base", "mode", "n_poisoned", "n_changed_cells", "saturated_at")


def _truth(data: ConceptData, copy: ConceptData, made: Poisoned, rows: np.ndarray) -> pl.DataFrame:
    mask, changed = np.zeros(data.n, dtype=bool), np.zeros(data.n, dtype=int)
    mask[rows], changed[rows] = made.mask, made.changed.sum(axis=1)
    classes = [str(label) for label in data.classes]
    return pl.DataFrame(
        {
            "row": range(data.n),
            "id": [None] * data.n if data.ids is None else data.ids.tolist(),
            "poisoned": mask.tolist(),
            "old_label": [classes[code] for code in data.codes],
            "label": [classes[code] for code in copy.codes],
            "n_changed": changed.tolist(),
        },
        schema_overrides={"id": pl.String, "row": pl.Int64, "n_changed": pl.Int64},
    )


def _trigger_file(config: PoisonConfig, made: Poisoned, found: Selection) -> dict[str, Any]:
    return {
        "stamp": "assessment copy",
        "target": str(made.data.classes[made.target]),
        "selector": config.selector,
        "size": len(made.trigger),
        "rate": config.rate,
        "base": made.base,
        "mode": made.mode,
        "seed": config.seed,
        "n_poisoned": made.n_poisoned,
        "n_changed_cells": int(made.changed.sum()),
        "saturated_at": found.saturated_at,
        "index": list(made.trigger.index),
        "names": [made.data.concept_names[i] for i in made.trigger.index],
        "values": list(made.trigger.values),
    }


def deliver(result: Result, out: Path) -> None:
    """Put the copy's files where the run folder is, beside the report."""
    for row in result.tables["copy"].to_dicts():
        write_bytes(out / row["file"], Path(result.file(row["path"])).read_bytes())


class PoisonedCopy(Result):
    """A copy's answer; `data` is the poisoned table, `truth` the rows that were poisoned."""

    @property
    def data(self) -> ConceptData:
        """The poisoned table, as its file holds it."""
        where = dict(self.tables["copy"].select("file", "path").iter_rows())
        return ConceptData.from_table(self.file(where["poisoned.parquet"]))


def poisoned_copy(
    data: Any,
    *,
    target: Any,
    config: PoisonConfig | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> PoisonedCopy:
    """A poisoned copy of the owner's table with its truth, as `concepts poison` makes it; the table itself is never changed.

    data: a DATA address or ConceptData. target: a class. Further keywords are the fields of `PoisonConfig` (selector, size,
    rate, poison_mode, base, …); they replace those of `config`. out: a run folder; poisoned.parquet, truth.parquet and
    trigger.json are put there. The pure function on arrays is `poison`.

    Raises BadInput for data or options that are wrong.
    """
    names = {"data": called(data, "data"), "target": target}
    settings = PoisonConfig.build(config, **{**fields, **names})
    held = {} if isinstance(data, str | os.PathLike) else {"data": data}
    study = PoisonStudy(held)
    copy = answered(PoisonedCopy, study, settings, out=out, engine=engine, resume=resume, progress=progress)
    if out is not None:
        deliver(copy, Path(out))
    return copy
