"""The room's own error classes."""

from __future__ import annotations

from querist.errors import BadOption, BadValues, ShapeMismatch, UnknownName

__all__ = [
    "ArmInFeatures",
    "ArmMissing",
    "BudgetRange",
    "ClusterMixed",
    "ControlAbsent",
    "CostRange",
    "Infeasible",
    "LengthMismatch",
    "NoControl",
    "NoTreated",
    "OutcomeEmpty",
    "OutcomeKind",
    "PropensityRange",
    "ShareRange",
]


class ControlAbsent(UnknownName):
    """The label named as control is not among the arms seen."""

    code = "control-absent"


class NoControl(BadValues):
    """No row is under control."""

    code = "no-control"


class NoTreated(BadValues):
    """No row is treated: one arm only."""

    code = "no-treated"


class ArmInFeatures(BadValues):
    """A feature that is the arm by another name."""

    code = "arm-in-features"


class ArmMissing(BadValues):
    """Rows whose arm is not known."""

    code = "arm-missing"


class ClusterMixed(BadValues):
    """A cluster named as the unit of assignment whose rows lie in several arms."""

    code = "cluster-mixed"


class OutcomeKind(BadValues):
    """A value that the outcome's kind does not allow."""

    code = "outcome-kind"


class OutcomeEmpty(BadValues):
    """An outcome that is missing in every row."""

    code = "outcome-empty"


class PropensityRange(BadOption):
    """A propensity that is not strictly between 0 and 1, or propensities that do not sum to 1."""

    code = "propensity-range"


class CostRange(BadOption):
    """A cost that is negative or not a number."""

    code = "cost-range"


class BudgetRange(BadOption):
    """A budget that is negative or not a number."""

    code = "budget-range"


class Infeasible(BadOption):
    """Side constraints that no allocation meets."""

    code = "infeasible"


class ShareRange(BadOption):
    """A share of the ranking outside (0, 1)."""

    code = "k-range"


class LengthMismatch(ShapeMismatch):
    """Columns of one table with other numbers of rows."""

    code = "length"
