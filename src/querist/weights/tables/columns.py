"""Columns that many tables of the room have, and columns of one kind written briefly."""

from __future__ import annotations

from querist.results.table import Column, Kind

__all__ = ["EDGE", "EIGENVALUE", "LAYER_ID", "MATRIX_SPECTRUM", "SPECTRUM", "described"]


def described(kind: Kind, *columns: tuple[str, str, str]) -> tuple[Column, ...]:
    """Columns of one kind, each as name, unit, meaning."""
    return tuple(Column(name, kind, meaning, unit) for name, unit, meaning in columns)


LAYER_ID = Column("layer_id", "str", "Which matrix.")
EIGENVALUE = Column("eigenvalue", "float", "Squared singular value.", "λ")
SPECTRUM = (Column("index", "int", "Position in ascending order."), EIGENVALUE)
MATRIX_SPECTRUM = (
    Column("kind", "str", "real, shuffle or signflip."),
    Column("replica", "int", "Index of the resampled copy; null for the real one."),
    *SPECTRUM,
)
EDGE = (
    Column("lambda_max", "float", "Its largest eigenvalue.", "λ"),
    Column("edge", "float", "Its own fitted .99 Tracy–Widom edge, where its whole spectrum was computed.", "λ"),
)
