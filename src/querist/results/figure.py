"""Figures: plotly's JSON form (traces and layout as plain values), with the table they were drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["Figure"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    `name` is its file name without ending; `data` and `layout` are plotly traces and layout as plain JSON values without
    colours of text or background, which the page sets for light and dark; `table` names the table it was drawn from;
    `caption` says in plain words what it shows and how to read it; `frames` are plotly's animation frames, where it moves.
    """

    name: str
    title: str
    caption: str
    data: list[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)
    table: str | None = None
    frames: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All fields, data and layout as they are: `dataclasses.asdict` would copy every point, 10 ms a figure."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
