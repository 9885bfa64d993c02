"""What the claims command can be told."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from querist.runs.study import StudyConfig

__all__ = ["SIZES", "ClaimsConfig", "ClaimsOptions", "SizeName"]

SIZES = ("small", "full")

SizeName = Literal["small", "full"]


class ClaimsOptions(StudyConfig):
    """Options of `querist claims`."""

    size: SizeName = Field(
        default="small", description="small: minutes on two cores; full: the sizes, rates and seeds of the source."
    )
    repeats: int | None = Field(
        default=None,
        ge=2,
        description="Draws, splits or seeds of every claim that repeats itself, in place of the size's own number.",
    )


class ClaimsConfig(ClaimsOptions):
    """What a study of claims is told: which ones, and at which size."""

    claims: tuple[str, ...] = Field(default=(), description="Ids of the claims, in the order of the ledger.")
