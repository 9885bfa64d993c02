"""Who gets which arm under a budget: hulls, the path of all budgets, bisection, exact answers with side constraints."""

from querist.effects.budget._allocate import allocate
from querist.effects.budget._multi_arm import multi_arm_qini, spend_curve
from querist.effects.budget._path import Allocation, Path, budget_path

__all__ = ["Allocation", "Path", "allocate", "budget_path", "multi_arm_qini", "spend_curve"]
