"""Tables of the room, a module per command."""

from __future__ import annotations

from querist.weights.tables.compare import (
    ANGLES,
    COMPARE_TABLES,
    COMPARED,
    DELTA_DRAWS,
    DELTA_SPECTRA,
    OVERLAPS,
    UNMATCHED,
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
    "CURVES",
    "DELTA_DRAWS",
    "DELTA_SPECTRA",
    "ENTRIES",
    "LAYERS",
    "NULL_DRAWS",
    "OVERLAPS",
    "PASSED_OVER",
    "SCAN_TABLES",
    "SPECTRA",
    "UNMATCHED",
]
