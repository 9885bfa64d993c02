"""Models in use: their folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.effects.serving.folder import load, save

__all__ = ["load", "save"]

__getattr__, __dir__ = attach(__name__, {"querist.effects.serving.folder": ("load", "save")})
