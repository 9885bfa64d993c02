"""Columns that many tables of the room have."""

from __future__ import annotations

from querist.results.table import Column

__all__ = ["INDEX", "LAYER", "LAYER_OR_INPUT", "MEMORY", "MODEL", "TARGET"]

MODEL = Column("model", "str", "Which network.")
TARGET = Column("target", "str", "Which target.")
LAYER = Column("layer", "str", "Name of the layer.")
LAYER_OR_INPUT = Column("layer", "str", "Name of the layer; <input> is the flattened input.")
INDEX = Column("index", "int", "Place in forward order; 0 is the input.")
MEMORY = Column("bytes_peak", "int", "Memory that was measured, where the system tells it.", "bytes")
