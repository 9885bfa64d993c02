"""Tables of the room, a module per command."""

from __future__ import annotations

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

__all__ = ["ADVICE", "CURVES", "ENTRIES", "LAYERS", "NULL_DRAWS", "PASSED_OVER", "SCAN_TABLES", "SPECTRA"]
