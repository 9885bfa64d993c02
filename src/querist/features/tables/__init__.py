"""Tables of the room, a module per command."""

from __future__ import annotations

from querist.features.tables.captures import CAPTURES, LAYERS, PASSED_OVER
from querist.features.tables.compare import (
    ASSOCIATION,
    CLASS_GAPS,
    COMPARE_TABLES,
    CONSISTENCY,
    DRAWS,
    EVOLUTION,
    GAPS,
    NET_GAPS,
    NET_MATRIX,
    NET_PROFILES,
    POOLED,
    PROBES,
    UNITS,
)

__all__ = [
    "ASSOCIATION",
    "CAPTURES",
    "CLASS_GAPS",
    "COMPARE_TABLES",
    "CONSISTENCY",
    "DRAWS",
    "EVOLUTION",
    "GAPS",
    "LAYERS",
    "NET_GAPS",
    "NET_MATRIX",
    "NET_PROFILES",
    "PASSED_OVER",
    "POOLED",
    "PROBES",
    "UNITS",
]
