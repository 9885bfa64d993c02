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
    SPREAD,
    UNITS,
)
from querist.features.tables.freeze import BLOCKS, CAPTURED, CELLS, EFFECTS, FREEZE_TABLES, LATENT, RATES, TARGETS
from querist.features.tables.rank import AGREEMENT, BASELINES, MODELS, RANK_TABLES, SCORES, TRUTH

__all__ = [
    "AGREEMENT",
    "ASSOCIATION",
    "BASELINES",
    "BLOCKS",
    "CAPTURED",
    "CAPTURES",
    "CELLS",
    "CLASS_GAPS",
    "COMPARE_TABLES",
    "CONSISTENCY",
    "DRAWS",
    "EFFECTS",
    "EVOLUTION",
    "FREEZE_TABLES",
    "GAPS",
    "LATENT",
    "LAYERS",
    "MODELS",
    "NET_GAPS",
    "NET_MATRIX",
    "NET_PROFILES",
    "PASSED_OVER",
    "POOLED",
    "PROBES",
    "RANK_TABLES",
    "RATES",
    "SCORES",
    "SPREAD",
    "TARGETS",
    "TRUTH",
    "UNITS",
]
