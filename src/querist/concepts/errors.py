"""The room's own error classes."""

from __future__ import annotations

from querist.errors import BadInput, BadValues, ShapeMismatch

__all__ = ["DuplicateName", "NotBinary", "SchemaMismatch"]


class NotBinary(BadValues):
    """Concepts that hold more than 0, 1 and unknown where a count of matches is asked for."""

    code = "not-binary"


class DuplicateName(BadInput):
    """Concepts, classes or rows that share a name."""

    code = "duplicate-name"


class SchemaMismatch(ShapeMismatch):
    """Two tables whose concepts have different names."""

    code = "schema-mismatch"
