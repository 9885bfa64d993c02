"""The document: everything a page is drawn from, read from a run folder or taken from memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from querist.results.figure import Figure
from querist.results.finding import Finding
from querist.results.layout import Layout

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Document"]


@dataclass(frozen=True, slots=True)
class Document:
    """A finished answer with its provenance.

    `header` is the content of run.json; `summary` that of summary.json, whose envelope every command shares.
    """

    header: Mapping[str, Any]
    layout: Layout
    findings: Sequence[Finding]
    tables: Mapping[str, pl.DataFrame]
    figures: Mapping[str, Figure]
    summary: Mapping[str, Any]
