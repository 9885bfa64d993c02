"""Matrices in units: many small ones together, each large one alone."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["CPU_FLOPS", "grouped"]

CPU_FLOPS = 3e10
"""float64 operations a second of one core: only for the estimate by which units are ordered."""
GROUP_SECONDS = 0.5
"""Matrices are grouped into units of about this much work: what a kill can cost, and far above the price of a unit."""


def grouped(seconds: Sequence[float]) -> list[tuple[float, list[int]]]:
    """(cost, places) of each unit: matrices of these prices, longest first, together while they stay within half a second."""
    groups: list[list[int]] = []
    costs: list[float] = []
    for price, i in sorted(((price, i) for i, price in enumerate(seconds)), key=lambda one: (-one[0], one[1])):
        if groups and costs[-1] + price <= GROUP_SECONDS:
            groups[-1].append(i)
            costs[-1] += price
        else:
            groups.append([i])
            costs.append(price)
    return list(zip(costs, groups, strict=True))
