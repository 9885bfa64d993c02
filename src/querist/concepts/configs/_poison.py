"""What a poisoned copy can be told."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from querist.concepts.configs._shared import Base, DataOptions, PoisonMode, Selector, TieBreak

__all__ = ["PoisonConfig", "PoisonOptions"]


class PoisonOptions(DataOptions):
    """Options of `concepts poison`."""

    target: str = Field(default="", description="Class that the trigger is to lead to.")
    selector: Selector = Field(default="cat+", description="How the trigger is chosen: cat, cat+, random.")
    size: int = Field(default=5, description="Concepts in the trigger.")
    rate: float = Field(default=0.01, description="Rate of poisoning, 0 < rate <= 1.")
    poison_mode: PoisonMode = Field(
        default="mix",
        description="mix: all rows of the target and a share of others; dirty: others alone; clean: rows of the target alone.",
    )
    base: Base = Field(default="auto", description="What the rate is taken of: auto, table, target.")
    tie_break: TieBreak = Field(
        default="filter", description="Which of the concepts that leave as few rows CAT+ takes."
    )
    strength: str = Field(
        default="quantile", description="How the trigger is set where concepts are logits: quantile, rowmax, fixed:M."
    )

    @field_validator("target", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return str(value)


class PoisonConfig(PoisonOptions):
    """What a poisoned copy is told: its table and its options."""

    data: str = Field(
        default="", description="The table of concepts: a DATA address, or what one in memory was called."
    )
