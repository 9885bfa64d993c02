"""The claim: a sentence that a study can prove wrong, with its protocol and its rule fixed before any number is seen.

A claim names pieces of work and judges their tables. Pieces belong to a family, which knows how they are done; claims of one
family that name the same piece share it. Neither knows of runs, folders or engines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from querist.claims.configs import SIZES
from querist.errors import InvariantBroken
from querist.results.figure import Figure
from querist.results.question import Question
from querist.results.table import Column, TableSpec

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "PIECE",
    "SOURCES",
    "Claim",
    "ClaimVerdict",
    "Family",
    "Judgement",
    "Number",
    "Piece",
    "Size",
    "family_table",
    "numbers_table",
]

ClaimVerdict = Literal["holds", "fails", "cannot say"]
Tables: TypeAlias = "Mapping[str, pl.DataFrame]"

SOURCES = {
    "paper": "a claim of the paper that the room is built on",
    "ours": "a claim of our own",
    "literature": "a claim of other published work",
}
PIECE = Column("piece", "str", "Key of the piece of work that the row comes from.")
_ID = re.compile(r"[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Size:
    """How large a claim is tested: `seeds` repetitions, the protocol's numbers by name, registered data sets it reads."""

    seeds: int
    numbers: Mapping[str, Any] = field(default_factory=dict)
    data: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """One of the protocol's numbers."""
        return self.numbers[name]

    def told(self) -> str:
        """The numbers in one line."""
        parts = [f"seeds {self.seeds}", *(f"{name} {_plain(value)}" for name, value in self.numbers.items())]
        parts += [f"data {', '.join(self.data)}"] if self.data else []
        return "; ".join(parts)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return "{" + ", ".join(_plain(item) for item in value) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Piece:
    """One independent piece of work: `key` is unique within its room, `payload` plain JSON values, `cost` seconds on one core."""

    key: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    cost: float = 1.0
    threads: int = 1


@dataclass(frozen=True)
class Family:
    """What does the pieces of some claims.

    `work(payload, seed, device, folder)` gives tables (name to rows or frame) without the column `piece`, which the study
    adds. `tables` are their specifications, made by `family_table`. `work` must be a function of a module.
    """

    name: str
    tables: tuple[TableSpec, ...]
    work: Callable[[Mapping[str, Any], int, str, Path], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Number:
    """One number that a rule looked at. `n` is how many independent pieces it rests on."""

    what: str
    value: float | None
    low: float | None = None
    high: float | None = None
    null: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class Judgement:
    """What a rule says of its tables. `because` is one plain sentence with the numbers in it; `numbers` are all it looked at."""

    verdict: ClaimVerdict
    estimate: float | None
    low: float | None
    high: float | None
    null: float | None
    because: str
    p: float | None = None
    numbers: tuple[Number, ...] = ()


@dataclass(frozen=True)
class Claim:
    """One claim.

    `id` is `room.kebab-name`; `ask` the claim as a question; `statement` the claim in our own words; `source` one of
    `SOURCES`, `reference` where it is made; `protocol` and `rule` in words, as they were fixed before the run; `unit` and
    `null` of the estimate; `sizes` what small and full mean.

    `pieces(size)` lists the work; `later(size, tables)`, where there is a second stage, the work that needs the tables of
    the first. `judge(tables, size)` is the rule: pure, given the rows of this claim's own pieces. `draw(tables, size)`, if any, gives
    figures, their names beginning with the claim's own.
    """

    id: str
    ask: str
    statement: str
    source: Literal["paper", "ours", "literature"]
    reference: str
    protocol: str
    rule: str
    unit: str
    null: str
    sizes: Mapping[str, Size]
    family: Family
    pieces: Callable[[Size], Iterable[Piece]]
    judge: Callable[[Tables, Size], Judgement]
    draw: Callable[[Tables, Size], Iterable[Figure]] | None = None
    later: Callable[[Size, Tables], Iterable[Piece]] | None = None

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise InvariantBroken(f"claim id {self.id!r} is not room.kebab-name")
        if self.source not in SOURCES or set(self.sizes) != set(SIZES):
            raise InvariantBroken(f"claim {self.id} needs a known source and the sizes {', '.join(SIZES)}")

    @property
    def room(self) -> str:
        """The room that the claim belongs to."""
        return self.id.partition(".")[0]

    @property
    def name(self) -> str:
        """The id without its room: name of the claim's table, and how the names of its figures begin."""
        return self.id.partition(".")[2]

    def repeated(self, seeds: int) -> Claim:
        """The same with another number of repetitions at either size; one that is done once stays so."""
        sizes = {name: size if size.seeds == 1 else replace(size, seeds=seeds) for name, size in self.sizes.items()}
        return replace(self, sizes=sizes)

    @property
    def question(self) -> Question:
        """The claim as a question; neither answer is good news."""
        return Question(self.id, self.ask, self.unit, self.null, self.rule, None)


def family_table(name: str, meaning: str, columns: Iterable[Column], key: tuple[str, ...] = ()) -> TableSpec:
    """A table that pieces of a family give: its columns after `piece`, which is part of the key."""
    return TableSpec(name, meaning, (PIECE, *columns), ("piece", *key) if key else ())


def numbers_table(claim: Claim) -> TableSpec:
    """The table of the numbers that a claim's rule looked at."""
    return TableSpec(
        claim.name,
        f"What the rule of {claim.id} looked at.",
        (
            Column("what", "str", "What the number is."),
            Column("value", "float", "Its value."),
            Column("low", "float", "Lower end of its interval."),
            Column("high", "float", "Upper end of its interval."),
            Column(
                "null", "float", "What it would be if there were nothing to find, or the bound that it is held against."
            ),
            Column("n", "int", "Independent pieces that it rests on."),
        ),
        ("what",),
    )
