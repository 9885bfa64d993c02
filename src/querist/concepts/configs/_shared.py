"""Options that several commands take: how DATA is read, how models are trained, and what a grid of attacks may hold."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from querist.runs.study import StudyConfig, listed

__all__ = ["Base", "DataOptions", "HeadOptions", "PoisonMode", "Selector", "TieBreak", "in_range", "labels", "texts"]

Selector = Literal["cat", "cat+", "random"]
PoisonMode = Literal["mix", "dirty", "clean"]
Base = Literal["auto", "table", "target"]
TieBreak = Literal["filter", "rarest", "index"]


def texts(value: Any) -> Any:
    return tuple(str(part) for part in listed(value))


def labels(value: Any) -> Any:
    """Labels as one text; a single one keeps a comma, so that 3 is a number of classes and "3," a class."""
    if isinstance(value, list | tuple):
        return ",".join(str(part) for part in value) + ("," if len(value) == 1 else "")
    return str(value)


def in_range(value: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if name == "rates" and any(not 0 < rate <= 1 for rate in value):
        raise ValueError("rates with 0 < rate <= 1")
    if name == "sizes" and any(size < 1 for size in value):
        raise ValueError("sizes of 1 or more")
    return value


class DataOptions(StudyConfig):
    """How DATA is read; every command of the room takes them. A file that querist wrote needs none."""

    label: str | None = Field(default=None, description="Column of the class labels.")
    concepts: tuple[str, ...] = Field(
        default=(),
        description="Columns that are concepts: names or patterns, by commas; none: all that have no other role.",
    )
    id: str | None = Field(default=None, description="Column that names the rows.")
    split: str | None = Field(
        default=None,
        description="Column that says of each row train, val or test; none: each repeat draws 70, 10 and 20 % of each class. "
        "Where it names no val, rows to choose by are set aside: the report says how many, and of which.",
    )
    missing: tuple[str, ...] = Field(default=(), description="Texts that mean unknown, beside empty cells; by commas.")
    one_hot: bool = Field(
        default=False, description="Columns that are not 0/1 become one concept for each of their values."
    )
    npz: str | None = Field(default=None, description="Keys of a numpy archive: concepts=KEY,labels=KEY,split=KEY.")
    space: Literal["hard", "prob", "logit"] = Field(
        default="hard", description="What the concepts' values are: 0/1 (hard), 0 … 1 (prob), or any number (logit)."
    )
    binarise: str | None = Field(
        default=None,
        description="Where concepts are more than 0/1, how CAT+ and the pattern miner read them: a cut, or quantile:q.",
    )

    @field_validator("concepts", "missing", mode="before")
    @classmethod
    def _columns(cls, value: Any) -> Any:
        return texts(value)


class HeadOptions(DataOptions):
    """How the models are trained that commands train themselves."""

    head: str = Field(default="mlp:512", description="From concepts to classes: linear, mlp:512, mlp:256,64.")
    epochs: int = Field(default=20, ge=1, description="Passes over the training rows of each head.")
    strength: str = Field(
        default="quantile",
        description="How a trigger is set where concepts are logits: quantile (5 % or 95 % of each), rowmax, fixed:M.",
    )
