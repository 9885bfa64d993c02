"""The study: what is asked, cut into independent units, and how their tables become an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from querist.errors import BadOption, UnknownName, near
from querist.results.figure import Figure
from querist.results.finding import Finding
from querist.results.layout import Layout
from querist.results.question import Question
from querist.results.table import TableSpec

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Answer", "Study", "StudyConfig", "Unit", "bad_option", "listed"]


class StudyConfig(BaseModel):
    """What every study is told: fields that change its numbers, and nothing else."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=False)

    seed: int = Field(default=0, ge=0, description="Root of every random stream.")
    device: str = Field(default="auto", description="Where tensors are computed: auto, cpu, cuda, cuda:N or mps.")

    @classmethod
    def build(cls, config: Self | None = None, /, **fields: Any) -> Self:
        """A config from fields, or from another config with some fields replaced.

        Raises UnknownName for a field that does not exist and BadOption for a value that is not allowed.
        """
        unknown = sorted(set(fields) - set(cls.model_fields))
        if unknown:
            raise UnknownName(
                "No such option",
                value=unknown[0],
                allowed=near(unknown[0], cls.model_fields, 8),
                mend="Name one of these",
            )
        try:
            return cls(**{**(config.model_dump() if config is not None else {}), **fields})
        except ValidationError as error:
            raise bad_option(error) from None


def listed(value: Any) -> Any:
    """An option's values as a tuple: one, several divided by commas, or a list of such; empty ones and None are none."""
    items = value if isinstance(value, list | tuple) else () if value is None else (value,)
    split = (item.split(",") if isinstance(item, str) else [item] for item in items)
    parts = (part.strip() if isinstance(part, str) else part for group in split for part in group)
    return tuple(part for part in parts if part != "")


def bad_option(error: ValidationError) -> BadOption:
    """pydantic's report of the first bad field as one message of ours."""
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"]) or "options"
    wanted = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    # A bad item also makes its list too short: what is wrong twice is told once.
    others = len({one["loc"][0] for one in error.errors() if one["loc"]} - {first["loc"][0] if first["loc"] else None})
    return BadOption(
        f"The option {name} cannot be this",
        value=first["input"],
        allowed=wanted,
        mend=f"{others} other option{' is' if others == 1 else 's are'} wrong too" if others else None,
    )


C = TypeVar("C", bound=StudyConfig)


@dataclass(frozen=True, slots=True)
class Unit:
    """One independent piece of a study.

    `key` is stable and unique within its stage; `payload` plain JSON values; `cost` an estimate in seconds on one core;
    `threads` the number of threads it may use (1 unless the study asks for more); `parts` what progress counts it as,
    such as the layers that it measures: itself where empty. `lasting`: the folder of a unit that was killed is kept as it
    was left, and the unit finds it when the run goes on: for long work with checkpoints of its own.
    """

    key: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    cost: float = 0.0
    threads: int = 1
    parts: tuple[str, ...] = ()
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a study ends with. `summary` holds the room's own keys; `passed_over` is a list of {what, reason}.

    `kept` names folders that units left, such as a model: a run folder holds a copy of each under its name.

    Tables and figures may be given as a `Lazy` mapping: a run folder writes all of them, an answer in memory makes those that
    are asked for.
    """

    tables: Mapping[str, pl.DataFrame]
    findings: Sequence[Finding]
    figures: Sequence[Figure] | Mapping[str, Figure]
    layout: Layout
    summary: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    passed_over: Sequence[Mapping[str, str]] = ()
    kept: Mapping[str, Path] = field(default_factory=dict)


class Study(Generic[C]):
    """Base of every study: pure functions of its config (and of data held in memory), unaware of any run folder.

    A study is picklable. One that holds data in memory overrides `portable`, which writes them once into `folder` and
    returns a study that reads them from there, so that units can cross processes.
    """

    room: ClassVar[str]
    command: ClassVar[str]
    version: ClassVar[int] = 1
    stages: ClassVar[tuple[str, ...]] = ("work",)
    tables: ClassVar[tuple[TableSpec, ...]] = ()
    """Specifications of every table that units or `finish` return."""
    questions: ClassVar[tuple[Question, ...]] = ()

    def check(self, config: C) -> None:
        """Raise BadInput for anything that can be known to be wrong before the work."""

    def inputs(self, config: C) -> Mapping[str, str]:
        """Name to content fingerprint of everything read: what a resumed run must find unchanged."""
        return {}

    def argv(self, config: C) -> Sequence[str] | None:
        """The words after `querist` that ask the same again, where they are not made of room, command and config."""
        return None

    def portable(self, config: C, folder: Path) -> Study[C]:
        """A study equal to this one that needs nothing from this process's memory."""
        return self

    def units(self, config: C, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """The stage's independent units. `done` holds the joined tables of the stages before it."""
        raise NotImplementedError

    def work(self, config: C, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """One unit's tables (name to rows or frame). Large arrays go into `folder`, their paths into a table."""
        raise NotImplementedError

    def finish(self, config: C, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Tables of all units, joined in key order, to the answer."""
        raise NotImplementedError
