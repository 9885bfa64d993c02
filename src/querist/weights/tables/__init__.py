"""Tables of the room, a module per command."""

from __future__ import annotations

from querist.weights.tables.compare import (
    ANGLES,
    COMPARE_TABLES,
    COMPARED,
    DELTA_DRAWS,
    DELTA_OVERLAPS,
    DELTA_SPECTRA,
    UNMATCHED,
)
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
    "ANGLES",
    "COMPARED",
    "COMPARE_TABLES",
    "CRAFT_TABLES",
    "CURVES",
    "DELTA_DRAWS",
    "DELTA_OVERLAPS",
    "DELTA_SPECTRA",
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
    "UNMATCHED",
    "WEIGHTS_HIST",
]
