"""Everything a scan measures on one matrix: pure, one call, plain rows out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from querist.errors import NumericalFailure
from querist.weights.configs import ScanConfig
from querist.weights.fits import InvalidSpectrum, PLFit, erg, farms, fit_powerlaw, hill_curve
from querist.weights.nulls import MPFit, SpikeTest, fit_mp, mp_quantiles, phase, shuffle_distance, spike_test
from querist.weights.shrink import shrink
from querist.weights.spectrum import ESD, LayerMatrix, esd, nonfinite, norms, slq

__all__ = ["Measured", "measure"]

SHORT_TAIL = 50
CURVE_POINTS = 200
ENTRY_BINS = np.linspace(-6, 6, 61)


@dataclass
class Measured:
    """Rows of one matrix for the tables of the scan."""

    row: dict[str, Any]
    spectra: list[dict[str, Any]] = field(default_factory=list)
    curves: list[dict[str, Any]] = field(default_factory=list)
    null_draws: list[dict[str, Any]] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
