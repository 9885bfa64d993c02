"""The room's own error classes."""

from __future__ import annotations

from querist.errors import BadInput, BadValues, ShapeMismatch

__all__ = ["BadLabels", "BadWeights", "DimensionMismatch", "LabelsNeeded"]


class DimensionMismatch(ShapeMismatch):
    """Two sets of rows whose units must match one by one and whose widths differ."""

    code = "dimension-mismatch"


class BadWeights(BadValues):
    """Weights of rows that are negative, not finite, all zero, or of two different totals."""

    code = "bad-weights"


class BadLabels(BadValues):
    """Labels that a score or distance cannot take: a class too small, one class alone, or one that was never seen."""

    code = "bad-labels"


class LabelsNeeded(BadInput):
    """A question about classes asked of rows without labels."""

    code = "labels-needed"
