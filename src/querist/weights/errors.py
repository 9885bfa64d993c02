"""Errors of the room, each derived from a shared one."""

from __future__ import annotations

from querist.errors import BadValues

__all__ = ["InvalidSpectrum"]


class InvalidSpectrum(BadValues):
    """Values that are no spectrum: negative, NaN, infinite or complex."""

    code = "invalid-spectrum"
