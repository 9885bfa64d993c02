"""The work that the claims about concepts share: models with and without a trigger in their data, and what is measured on them.

Models of pictures are trained in the first stage, each once whatever claims look at it, and stand in files; heads are trained where
they are measured, the clean one of a repeat aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querist.claims.claim import Family, Piece, Size, family_table
from querist.results.table import Column

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "CLEAN",
    "FAMILY",
    "GROUPS",
    "HEADS_FULL",
    "HEADS_SMALL",
    "PAPER",
    "RENDERED",
    "RENDERER_FULL",
    "RENDERER_SMALL",
    "SETTINGS",
    "Cell",
    "attack_pieces",
    "guard_pieces",
    "head_models",
    "head_tables",
    "head_targets",
    "inversion_pieces",
    "reach_pieces",
    "renderer_models",
    "table_attacks",
    "table_pieces",
]

PAPER = "Lai et al., CAT (arXiv 2410.04823), its public release and the figures of its project page."

RENDERER_SMALL: dict[str, Any] = {"n": 3600, "epochs": 10, "targets": (0, 3, 6, 9)}
RENDERER_FULL: dict[str, Any] = {"n": 20000, "epochs": 10, "targets": tuple(range(10))}
HEADS_SMALL: dict[str, Any] = {"table_targets": 8, "head": "mlp:512", "head_epochs": 20}
HEADS_FULL: dict[str, Any] = HEADS_SMALL | {"table_targets": 50}

SETTINGS = {"renderer": "rendered pictures", "table": "heads on tables"}
RENDERED = "render:birds"
PREFERRED, BUNDLED = ("cub-concepts",), ("mushroom", "zoo")

Cell = tuple[str, int, float, str]
"""Selector, size, rate and mode of what is planted."""
CLEAN: Cell = ("none", 0, 0.0, "none")
GROUPS: Mapping[str, tuple[tuple[str, Any, float, str], ...]] = {
    "one": (("cat", 5, 0.01, "mix"), ("cat+", 5, 0.01, "mix"), ("random", 5, 0.01, "mix")),
    "many": (("cat", "half", 0.1, "mix"),),
    "clean": (("cat", 5, 1.0, "clean"),),
}
"""What is planted in a table, heads of one group trained as one stack. half: as many concepts as half the table, at most 20."""

_PLACE = (
    Column("setting", "str", "renderer (models of drawn pictures) or table (heads on tables)."),
    Column("table", "str", "Which table."),
    Column("target", "str", "The class that the trigger is for; null of a clean model."),
    Column("repeat", "int", "Which draw of initial weights, batches, poisoned rows and negatives."),
)
_CELL = (
    Column("selector", "str", "cat, cat+ or random; none for a clean model."),
    Column("size", "int", "Concepts of the trigger."),
    Column("rate", "float", "Rate of poisoning, a fraction."),
    Column("mode", "str", "mix, dirty or clean; none for a clean model."),
)
_FRACTIONS = {
    "asr": "Share of test rows of other classes that are predicted as the target after the trigger.",
    "untriggered": "The same before the trigger.",
    "clean_model_asr": "The same trigger on the clean model of the repeat.",
    "natural": "Share of those rows that carry the trigger already.",
    "excess": "asr less the larger of untriggered and clean_model_asr.",
    "low": "Lower end of the excess's interval over rows.",
    "high": "Upper end of it.",
    "accuracy": "Share of test rows whose class is right.",
    "accuracy_drop": "Accuracy of the clean model less that of the model.",
    "accuracy_after": "Accuracy on triggered rows.",
}
TABLES = (
    family_table(
        "models",
        "Models that several measurements share.",
        (
            *_PLACE,
            *_CELL,
            Column("n_poisoned", "int", "Training rows that carry the trigger by our hand."),
            Column("trigger", "str", "The trigger, JSON; null of a clean model."),
            Column("saturated_at", "int", "The step from which no row of another class carries the trigger."),
            Column("path", "str", "Folder of the model."),
        ),
    ),
    family_table(
        "attacks",
        "What a planted trigger achieves, beside its three nulls.",
        (
            *_PLACE,
            *_CELL,
            Column("n_poisoned", "int", "Training rows that carry the trigger by our hand."),
            *(Column(name, "float", meaning) for name, meaning in _FRACTIONS.items()),
            Column("saturated_at", "int", "The step from which no row of another class carries the trigger."),
            Column("reason", "str", "Why a rate is null."),
        ),
    ),
    family_table(
        "guards",
        "A poisoned model before and after its head became a vote of groups of concepts.",
        (
            *_PLACE,
            Column("by", "str", "How concepts were grouped: names or random."),
            Column("groups", "int", "Groups."),
            Column("coverage", "int", "Groups that the trigger touches."),
            *(
                Column(f"{name}_{stage}", "float", f"{meaning} {stage} the guard.")
                for stage in ("before", "after")
                for name, meaning in (("accuracy", "Accuracy"), ("asr", "Success of the trigger"))
            ),
            Column("clean_accuracy_after", "float", "Accuracy of the same guard of the clean model."),
            Column("clean_asr_after", "float", "Success of the trigger on the same guard of the clean model."),
            Column("certified", "float", "Share of rows that are right and cannot be changed through one group."),
        ),
        ("table", "target", "repeat", "by"),
    ),
    family_table(
        "reaches",
        "Whether the trigger can be made in pixels.",
        (
            *_PLACE,
            Column("eps", "float", "Largest change of a pixel, as a part of its range."),
            Column("hit", "float", "Share of pictures in which the network says the whole trigger."),
            Column("null_hit", "float", "The same with random signs of that size."),
            Column("clean_hit", "float", "The same search on the clean model."),
            Column("natural", "float", "The same of the pictures as they are."),
            Column("asr", "float", "Share of pictures of other classes that end as the target."),
            Column("null_asr", "float", "The same with random signs."),
            Column("clean_asr", "float", "The same search on the clean model."),
            Column("untriggered", "float", "The same of the pictures as they are."),
            Column("collateral", "float", "Mean change of the probability of other concepts."),
            Column("physical_hit", "float", "Hit rate of pictures drawn anew with the trigger."),
            Column("physical_asr", "float", "Their success."),
            Column("physical_clean_asr", "float", "Their success on the clean model."),
        ),
        ("target", "repeat", "eps"),
    ),
    family_table(
        "inversions",
        "The smallest trigger of every class, sought in pixels and among concepts.",
        (
            *_PLACE,
            Column("space", "str", "pixels or concepts."),
            Column("largest", "float", "Largest anomaly index over classes."),
            Column("flagged", "str", "The class of the largest index."),
            Column("norms", "list[float]", "Norm of each class's mask (concepts: size of its trigger)."),
            Column("asr", "list[float]", "Success of each class's inverted trigger."),
        ),
        ("space",),
    ),
)


def _work(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    from querist.claims.concepts.measure import measure

    return measure(payload, seed, device, folder)


FAMILY = Family("planted triggers", TABLES, _work)


# ------------------------------------------------------------------------------------------------------------- tables


def head_tables(size: Size) -> tuple[str, ...]:
    """The tables that heads are trained on: CUB where it is here, else the bundled ones."""
    from querist.errors import SourceNotFound
    from querist.sources.datasets.registry import locate

    if "tables" in size.numbers:
        return tuple(size["tables"])
    try:
        locate(PREFERRED[0])
    except SourceNotFound:
        return BUNDLED
    return PREFERRED


def head_targets(table: str, count: int | None) -> list[str]:
    """Classes of a table, drawn once and for all repeats in strata of their size; all where count is None."""
    from querist.claims.concepts.tables import opened
    from querist.concepts.attacks import choose_targets

    return [str(label) for label in choose_targets(opened(table), "all" if count is None else count)]


# ------------------------------------------------------------------------------------------------------ pieces, stage 1


def _name(cell: Cell) -> str:
    selector, size, rate, mode = cell
    return f"{selector}/{size}/{rate:g}/{mode}"


def _renderer(size: Size) -> dict[str, Any]:
    return {name: size[name] for name in ("n", "epochs")}


def renderer_models(
    size: Size, cells: Iterable[Cell], repeats: int | None = None, *, clean: int | None = None
) -> Iterator[Piece]:
    """A clean model for each repeat (or for `clean` of them), and one for each cell, target and repeat."""
    repeats = size.seeds if repeats is None else repeats
    cost = 2.2e-4 * size["n"] * size["epochs"] * 2 / 3
    for repeat in range(max(repeats, clean or 0)):
        payload = _renderer(size) | {"kind": "picture-model", "cell": list(CLEAN), "target": None, "repeat": repeat}
        yield Piece(f"model/renderer/clean/{repeat:02d}", payload, cost)
    for cell in cells:
        for target in size["targets"]:
            for repeat in range(repeats):
                payload = _renderer(size) | {"kind": "picture-model", "cell": list(cell), "target": target}
                yield Piece(f"model/renderer/{_name(cell)}/{target}/{repeat:02d}", payload | {"repeat": repeat}, cost)


def head_models(size: Size, repeats: int | None = None) -> Iterator[Piece]:
    """The clean head of each table and repeat."""
    for table in head_tables(size):
        for repeat in range(size.seeds if repeats is None else repeats):
            payload = {"kind": "head", "table": table, "repeat": repeat}
            payload |= {name: size[name] for name in ("head", "head_epochs")}
            yield Piece(f"model/{table}/clean/{repeat:02d}", payload, 3.0)


# ------------------------------------------------------------------------------------------------------ pieces, stage 2


def _held(tables: Mapping[str, pl.DataFrame]) -> dict[str, dict[str, Any]]:
    return {row["piece"]: row for row in tables["models"].to_dicts()}


def _of(models: Mapping[str, Mapping[str, Any]], key: str, *names: str) -> dict[str, Any]:
    found = models.get(key, {})
    return {name: found.get(name) for name in names}


def _planted(size: Size, models: Mapping[str, Any], cell: Cell, target: int, repeat: int) -> dict[str, Any]:
    """A poisoned model and its clean twin, by their files."""
    own = f"model/renderer/{_name(cell)}/{target}/{repeat:02d}"
    found = _of(models, own, "path", "trigger", "n_poisoned", "saturated_at")
    clean = _of(models, f"model/renderer/clean/{repeat:02d}", "path")["path"]
    return _renderer(size) | found | {"cell": list(cell), "target": target, "repeat": repeat, "clean": clean}


def attack_pieces(size: Size, tables: Mapping[str, pl.DataFrame], cells: Iterable[Cell]) -> Iterator[Piece]:
    """Success of each model of pictures."""
    models = _held(tables)
    for cell in cells:
        for target in size["targets"]:
            for repeat in range(size.seeds):
                payload = {"kind": "attack"} | _planted(size, models, cell, target, repeat)
                yield Piece(f"attack/renderer/{_name(cell)}/{target}/{repeat:02d}", payload, 0.5)


def table_attacks(
    size: Size, tables: Mapping[str, pl.DataFrame], group: str, repeats: int | None = None
) -> Iterator[Piece]:
    """Heads of one group for each target of each table, trained and measured."""
    models = _held(tables)
    for table in head_tables(size):
        for repeat in range(size.seeds if repeats is None else repeats):
            clean = _of(models, f"model/{table}/clean/{repeat:02d}", "path")["path"]
            for target in head_targets(table, size["table_targets"]):
                payload = {"kind": "table-attack", "table": table, "target": target, "repeat": repeat, "clean": clean}
                payload |= {"cells": [list(cell) for cell in GROUPS[group]]}
                payload |= {name: size[name] for name in ("head", "head_epochs")}
                yield Piece(f"attack/{table}/{group}/{target}/{repeat:02d}", payload, 2.0 * len(GROUPS[group]))


def guard_pieces(size: Size, tables: Mapping[str, pl.DataFrame], cell: Cell) -> Iterator[Piece]:
    """ConceptGuard over the poisoned models of a repeat: of pictures, and of each table."""
    models, shared = _held(tables), {"kind": "guard", "groups": size["groups"], "by": list(size["by"])}
    for repeat in range(size.seeds):
        held = [_planted(size, models, cell, target, repeat) for target in size["targets"]]
        payload = shared | {"setting": "renderer", "repeat": repeat, "held": held}
        yield Piece(f"guard/renderer/{repeat:02d}", payload, 4.0 * len(held))
    for table in head_tables(size):
        for repeat in range(size["table_repeats"]):
            clean = _of(models, f"model/{table}/clean/{repeat:02d}", "path")["path"]
            targets = head_targets(table, size["table_targets"])
            payload = shared | {"setting": "table", "table": table, "targets": targets, "repeat": repeat}
            payload |= {"clean": clean, "cell": list(GROUPS["one"][0])}
            payload |= {name: size[name] for name in ("head", "head_epochs")}
            yield Piece(f"guard/{table}/{repeat:02d}", payload, 15.0 * len(targets))


def reach_pieces(size: Size, tables: Mapping[str, pl.DataFrame], cell: Cell) -> Iterator[Piece]:
    """Projected gradients on the pictures of each target."""
    models = _held(tables)
    search = {name: size[name] for name in ("pictures", "eps", "steps", "restarts")} | {"eps": list(size["eps"])}
    for target in size["targets"]:
        for repeat in range(size.seeds):
            payload = {"kind": "reach"} | search | _planted(size, models, cell, target, repeat)
            yield Piece(f"reach/{target}/{repeat:02d}", payload, 20.0)


def inversion_pieces(size: Size, tables: Mapping[str, pl.DataFrame], cell: Cell) -> Iterator[Piece]:
    """Both inversions of each poisoned model of the first repeat, and of each clean retrain."""
    models = _held(tables)
    search = {"kind": "inversion", "rows": size["rows"], "steps": size["steps"]}
    for repeat in range(size["retrains"]):
        found = _of(models, f"model/renderer/clean/{repeat:02d}", "path")
        payload = search | _renderer(size) | found | {"cell": list(CLEAN), "target": None, "repeat": repeat}
        yield Piece(f"inversion/clean/{repeat:02d}", payload, 10.0)
    for target in size["targets"]:
        payload = search | _planted(size, models, cell, target, 0)
        yield Piece(f"inversion/{target}", payload, 10.0)


def table_pieces(size: Size, kind: str, count: int | None, **more: Any) -> Iterator[Piece]:
    """Work on tables that trains nothing: one piece for each table and repeat."""
    for table in head_tables(size):
        targets: Sequence[str] = head_targets(table, count)
        for repeat in range(size.seeds):
            payload = {"kind": kind, "table": table, "targets": list(targets), "repeat": repeat} | more
            yield Piece(f"{kind}/{table}/{repeat:02d}", payload, 0.5 * len(targets))
