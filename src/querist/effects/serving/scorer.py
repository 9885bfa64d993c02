"""A model that scores tables: what every way of scoring many people calls."""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from querist.effects.serving.folder import load, model_folder
from querist.effects.serving.names import PARTS, column_name
from querist.errors import UnknownName, near

__all__ = ["FORM", "Scorer", "Tally", "model_hash"]

FORM = "querist.effects.scores/1"
DEFAULT = ("natural", "base", "incremental", "total")
"""Parts that are written unless columns are named: responses follow from them."""


@dataclass
class Tally:
    """What was met while scoring: rows, cells without a value, levels the model had not seen, columns that it does not use."""

    rows: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


class Scorer:
    """Scores of a model folder for Arrow tables: `Scorer(folder)(table)` gives a table of scores, ids first.

    columns: names or patterns of score columns (natural:OUTCOME, base:OUTCOME, incremental:ARM:OUTCOME, total:ARM:OUTCOME,
    response:ARM:OUTCOME); all but responses where none is named. ids: columns that are copied. A row's scores depend on that row
    alone. It is what Ray Data's `map_batches(Scorer, fn_constructor_args=(folder,), batch_format="pyarrow")` takes, and what
    `querist.effects.serving.spark` wraps. Raises UnknownName for a pattern that matches nothing.
    """

    def __init__(self, folder: Path | str, columns: Sequence[str] = (), ids: Sequence[str] = ()):
        self.folder = str(folder)
        self.model = load(folder)
        self.ids = tuple(ids)
        self.names = _chosen(self.model, columns)
        self.tally = Tally()

    def __reduce__(self) -> Any:
        return Scorer, (self.folder, tuple(self.names), self.ids)

    def __call__(self, table: pa.Table | pa.RecordBatch) -> pa.Table:
        """Score rows. Raises ColumnMissing where the model or `ids` name a column that is not there."""
        for name in self.ids:
            if name not in table.schema.names:
                raise UnknownName(
                    "The table has no such column", value=name, allowed=near(name, table.schema.names, 12)
                )
        encoded = self.model.columns_.encode(table)
        self._count(encoded)
        natural, total, spread = self.model._parts(encoded)
        effects = self.model._effects(natural, total, spread)
        made: dict[str, Any] = {name: table.column(name) for name in self.ids}
        for name, (part, arm, outcome) in self.names.items():
            made[name] = pa.array(_values(effects, part, arm, outcome), type=pa.float32(), from_pandas=True)
        return pa.table(made)

    def fresh(self) -> Tally:
        """A tally that begins anew, and is filled by the calls that follow."""
        self.tally = Tally()
        return self.tally

    @property
    def metadata(self) -> dict[str, str]:
        """What a file of scores says of itself."""
        about = {
            "form": FORM,
            "model": model_hash(self.folder),
            "control": str(self.model.control_),
            "arms": [str(arm) for arm in self.model.arms_],
            "outcomes": self.model.outcomes_,
        }
        return {"querist": json.dumps(about, ensure_ascii=False)}

    def _count(self, encoded: Any) -> None:
        self.tally.rows += len(encoded)
        for into, found in ((self.tally.missing, encoded.missing_counts), (self.tally.unknown, encoded.unknown_counts)):
            for name, count in found.items():
                into[name] = into.get(name, 0) + count
        self.tally.ignored = tuple(name for name in encoded.ignored if name not in self.ids)


def model_hash(folder: Path | str) -> str:
    """`sha256:` of a model folder's files but the hashes of its fit rows."""
    place, digest = model_folder(folder), hashlib.sha256()
    for name in ("model.json", "weights.safetensors"):
        digest.update((place / name).read_bytes())
    return f"sha256:{digest.hexdigest()}"


def _chosen(model: Any, patterns: Sequence[str]) -> dict[str, tuple[str, int | None, int]]:
    """Score columns by name, with the part, the arm's place and the outcome's."""
    known: dict[str, tuple[str, int | None, int]] = {}
    for part, (k, outcome) in ((part, one) for part in PARTS for one in enumerate(model.outcomes_)):
        if part in ("natural", "base"):
            known[column_name(part, outcome)] = (part, None, k)
            continue
        arms = [model.control_, *model.arms_] if part == "response" else model.arms_
        for m, arm in enumerate(arms):
            known[column_name(part, outcome, arm)] = (part, m, k)
    if not patterns:
        return {name: place for name, place in known.items() if place[0] in DEFAULT}
    wanted = set()
    for pattern in patterns:
        hits = {pattern} & set(known) or set(fnmatch.filter(known, pattern))
        if not hits:
            raise UnknownName("The model gives no such column", value=pattern, allowed=near(pattern, known, 12))
        wanted |= hits
    return {name: place for name, place in known.items() if name in wanted}


def _values(effects: Any, part: str, arm: int | None, outcome: int) -> Any:
    values = getattr(effects, part)
    return values[:, outcome] if arm is None else values[:, arm, outcome]
