"""What do the layers of a network keep of the data they see?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.features.capture import capture
    from querist.features.captured import Capture, CapturedLayer

__all__ = ["Capture", "CapturedLayer", "capture"]

__getattr__, __dir__ = attach(
    __name__,
    {"querist.features.capture": ("capture",), "querist.features.captured": ("Capture", "CapturedLayer")},
)
