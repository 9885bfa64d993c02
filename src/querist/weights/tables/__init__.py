"""Tables of the room, a module per command."""

from __future__ import annotations

from querist.weights.tables.laboratory import (
    CRAFT_TABLES,
    OBSERVED,
    OVERLAPS,
    PREDICT_TABLES,
    PREDICTED,
    PROFILE,
    STEP_SPECTRA,
    STEPS,
    WEIGHTS_HIST,
)
from querist.weights.tables.scan import (
    ADVICE,
    CURVES,
    ENTRIES,
    LAYERS,
    NULL_DRAWS,
    PASSED_OVER,
    SCAN_TABLES,
    SPECTRA,
)

__all__ = [
    "ADVICE",
    "CRAFT_TABLES",
    "CURVES",
    "ENTRIES",
    "LAYERS",
    "NULL_DRAWS",
    "OBSERVED",
    "OVERLAPS",
    "PASSED_OVER",
    "PREDICTED",
    "PREDICT_TABLES",
    "PROFILE",
    "SCAN_TABLES",
    "SPECTRA",
    "STEPS",
    "STEP_SPECTRA",
    "WEIGHTS_HIST",
]
