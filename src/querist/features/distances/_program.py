"""Solvers of the transport program: scipy's HiGHS, and the network simplex of POT (extra `transport`)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.errors import MissingExtra, NumericalFailure

__all__ = ["linear_program", "network_simplex"]

_ITERATIONS = 100_000_000


def linear_program(
    C: Float[np.ndarray, "n m"], a: Float[np.ndarray, "n"], b: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "n m"]:
    """The flow of least cost with marginals a and b (each summing to one, none zero), a vertex found by HiGHS's simplex."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    n, m = C.shape
    largest = float(C.max()) or 1.0  # solver tolerances are absolute
    # The last equation follows from the others but for rounding, which would make the program infeasible.
    flow = np.arange(n * m)
    row, column = np.concatenate([flow // m, n + flow % m]), np.concatenate([flow, flow])
    kept = row < n + m - 1
    equations = csr_array((np.ones(np.count_nonzero(kept)), (row[kept], column[kept])), shape=(n + m - 1, n * m))
    answer = linprog(
        (C / largest).ravel(),
        A_eq=equations,
        b_eq=np.concatenate([a, b])[:-1],
        bounds=(0, None),
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.status != 0 or answer.x is None:
        raise NumericalFailure(f"The transport program was not solved: {answer.message}")
    return np.maximum(answer.x.reshape(n, m), 0)


def network_simplex(
    C: Float[np.ndarray, "n m"], a: Float[np.ndarray, "n"], b: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "n m"]:
    """The flow of least cost by POT's network simplex, run to its end.

    POT stops early by default (100,000 iterations: 972.440 where the optimum is 972.196) and only warns; here the limit is
    1e8 and any warning is an error. Raises MissingExtra, NumericalFailure.
    """
    try:
        import ot  # type: ignore[reportMissingImports]
    except ImportError:
        raise MissingExtra(
            f"Exact transport over {C.size} pairs needs POT",
            value="ot",
            allowed="250,000 pairs without it, or equal weights and up to 5,000 rows of each",
            mend='Install it: pip install "querist[transport]"',
        ) from None
    log: dict[str, Any]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        flow, log = ot.emd(a, b, C, numItermax=_ITERATIONS, log=True)
    said = [str(w.message) for w in said if issubclass(w.category, UserWarning)]
    if said or log.get("warning"):
        raise NumericalFailure(f"POT's network simplex did not finish: {log.get('warning') or said[0]}")
    return np.asarray(flow)
