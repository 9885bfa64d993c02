"""What an audit, and a sweep alone, can be told."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from querist.concepts.configs._headline import DEFAULT_HEADLINE, headline_of
from querist.concepts.configs._shared import Base, HeadOptions, PoisonMode, Selector, TieBreak, in_range, labels, texts
from querist.runs.study import listed

__all__ = ["AuditConfig", "AuditOptions"]


class AuditOptions(HeadOptions):
    """Options of `concepts audit`."""

    model: str | None = Field(
        default=None,
        description="The model under audit: a folder that CBM.save wrote, or g=MODEL,f=MODEL; none: one is trained.",
    )
    reference: str | None = Field(
        default=None,
        description="Rows that are trusted, with the same concepts: a DATA address, read with the same options.",
    )
    targets: str = Field(
        default="",
        description="Classes attacked: all, how many of them, or their labels by commas (a comma after a single one: '3,'); "
        "none: all of up to 50, else 10 (fast) or 20 (full).",
    )
    sources: tuple[str, ...] = Field(
        default=(), description="Only rows of these classes are counted in success rates; by commas. None: all others."
    )
    selectors: tuple[Selector, ...] = Field(
        default=(),
        description="How triggers are chosen: cat, cat+, random. None: cat+ and random (fast), or all (full).",
    )
    sizes: tuple[int, ...] = Field(
        default=(), description="Concepts in a trigger, by commas. None: the headline's (fast), or 2,5,10,20 (full)."
    )
    rates: tuple[float, ...] = Field(
        default=(),
        description="Rates of poisoning in 0 … 1, by commas. None: the headline's (fast), or .01,.05,.1 (full).",
    )
    poison_mode: tuple[PoisonMode, ...] = Field(
        default=(),
        description="mix, dirty, clean; of the modes that are not the headline's only its size and rate are tried. None: the "
        "headline's (fast), or all (full).",
    )
    base: Base = Field(default="auto", description="What a rate is taken of: auto, table, target.")
    tie_break: TieBreak = Field(
        default="filter", description="Which of the concepts that leave as few rows CAT+ takes."
    )
    repeats: int | None = Field(
        default=None, ge=1, description="Repetitions: splits, initial weights, draws. None: 1 (fast) or 3 (full)."
    )
    headline: str = Field(
        default=DEFAULT_HEADLINE,
        description="The attack that findings speak of; what is not named is as in the default.",
    )
    asr_limit: float = Field(
        default=0.1, gt=0, lt=1, description="Excess success above which the data count as exposed, as a fraction."
    )
    budget: Literal["fast", "full"] = Field(
        default="fast",
        description="fast: the headline, 10 targets, no clean retrains; full: the whole grid, calibrated.",
    )
    retrains: int | None = Field(
        default=None,
        ge=0,
        le=999,
        description="Clean retrains that calibrate the inversion. None: 0 (fast) or 19 (full); 99 are needed for a no.",
    )
    repair: Literal["none", "best", "all"] = Field(
        default="none", description="Repairs that are tried on an attacked copy: none, a first choice (best), all."
    )
    groups: int = Field(default=4, ge=1, description="Groups of concepts of the certified vote.")
    class_level: bool = Field(
        default=False, description="All rows of a class should be equal: any row that deviates is reported."
    )
    permutations: int = Field(default=999, ge=19, description="Permutations of each test; p is at least 1/(1 + B).")

    @field_validator("sources", "selectors", "sizes", "rates", "poison_mode", mode="before")
    @classmethod
    def _several(cls, value: Any, info: Any) -> Any:
        return texts(value) if info.field_name == "sources" else listed(value)

    @field_validator("targets", mode="before")
    @classmethod
    def _targets(cls, value: Any) -> Any:
        return labels(value)

    @field_validator("headline")
    @classmethod
    def _headline(cls, value: str) -> str:
        return str(headline_of(value))

    @field_validator("rates", "sizes")
    @classmethod
    def _grid(cls, value: tuple[Any, ...], info: Any) -> tuple[Any, ...]:
        return in_range(value, info.field_name)


class AuditConfig(AuditOptions):
    """What an audit is told: its data and its options."""

    data: str = Field(
        default="", description="The table of concepts: a DATA address, or what one in memory was called."
    )
