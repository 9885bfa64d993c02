"""What a search for poison, and its power, can be told."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from querist.concepts.configs._shared import HeadOptions, PoisonMode, Selector, in_range, labels
from querist.runs.study import listed

__all__ = ["DetectConfig", "DetectOptions"]

Method = Literal[
    "pattern",
    "consistency",
    "conflicts",
    "spectral",
    "clustering",
    "trajectory",
    "cleanse",
    "two-sample",
]


class DetectOptions(HeadOptions):
    """Options of `concepts detect`."""

    model: str | None = Field(
        default=None,
        description="The model trained on DATA: a folder that CBM.save wrote, or g=MODEL,f=MODEL; none: a head is trained.",
    )
    reference: str | None = Field(
        default=None,
        description="Rows that are trusted, with the same concepts: a DATA address, read with the same options.",
    )
    methods: tuple[Method, ...] = Field(
        default=(),
        description="pattern, consistency, conflicts, spectral, clustering, trajectory, cleanse, two-sample; none: all that apply.",
    )
    truth: str | None = Field(
        default=None, description="truth.parquet of `concepts poison`: which rows are poisoned. Detectors never see it."
    )
    class_level: bool = Field(
        default=False, description="All rows of a class should be equal: any row that deviates is reported."
    )
    retrains: int = Field(default=0, ge=0, le=999, description="Clean retrains that calibrate the inversion.")
    permutations: int = Field(default=999, ge=19, description="Permutations of each test; p is at least 1/(1 + B).")
    power: int = Field(
        default=0,
        ge=0,
        le=999,
        description="Tries of what the methods would find here: each a clean resample, and the same rows with known poison at every rate. "
        "0: none; 20 tell the share within .2.",
    )
    targets: str = Field(
        default="",
        description="Classes that are planted in tries: all, how many of them, or their labels by commas (a comma after a single one). "
        "None: 5, of every class size.",
    )
    selectors: tuple[Selector, ...] = Field(
        default=(), description="How triggers of tries are chosen: cat, cat+, random, by commas. None: cat and cat+."
    )
    sizes: tuple[int, ...] = Field(default=(), description="Concepts in the triggers of tries, by commas. None: 5.")
    rates: tuple[float, ...] = Field(
        default=(), description="Rates of poisoning that are tried, in 0 … 1, by commas. None: .01,.05,.1."
    )
    poison_mode: PoisonMode = Field(
        default="mix", description="What is planted in tries: mix, dirty or clean, as in `concepts poison`."
    )

    @field_validator("methods", "selectors", "sizes", "rates", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return listed(value)

    @field_validator("targets", mode="before")
    @classmethod
    def _targets(cls, value: Any) -> Any:
        return labels(value)

    @field_validator("rates", "sizes")
    @classmethod
    def _grid(cls, value: tuple[Any, ...], info: Any) -> tuple[Any, ...]:
        return in_range(value, info.field_name)


class DetectConfig(DetectOptions):
    """What a search for poison is told: its data and its options."""

    data: str = Field(default="", description="The suspect table: a DATA address, or what one in memory was called.")
