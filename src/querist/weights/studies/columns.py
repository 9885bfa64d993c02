"""What a measurement leaves: the rows of one matrix, and a fit as columns of its row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from querist.weights.fits import PLFit, finger_words

__all__ = ["SHORT_TAIL", "Measured", "fit_columns"]

SHORT_TAIL = 50
"""Fewer eigenvalues than this do not tell a power law from other tails."""


@dataclass
class Measured:
    """Rows of one matrix for the tables of the scan; spectra as columns, since there are thousands of them."""

    row: dict[str, Any]
    spectra: list[tuple[str, int | None, np.ndarray]] = field(default_factory=list)
    null_draws: list[dict[str, Any]] = field(default_factory=list)
    entries: np.ndarray | None = None


def fit_columns(fit: PLFit) -> dict[str, Any]:
    """A fit as the columns of a row. A finger is no part of it: it says something only where the tail is a power law."""
    return {
        "alpha": fit.alpha,
        "alpha_low": fit.low,
        "alpha_high": fit.high,
        "sigma": fit.sigma,
        "xmin": fit.xmin,
        "D": fit.D,
        "n_tail": fit.n_tail,
        "xmin_search": fit.xmin_search,
        "xmin_ambiguous": None if fit.alpha is None else fit.ambiguous,
        "fit_warnings": [words for words in fit.warnings if words != finger_words(fit.finger)],
    }
