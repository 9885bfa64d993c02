"""The room's own error classes."""

from __future__ import annotations

from querist.errors import BadValues

__all__ = ["InvalidSpectrum"]


class InvalidSpectrum(BadValues):
    """Values that are not a spectrum a fit can take: negative, NaN, infinite, complex, or all alike."""

    code = "invalid-spectrum"
