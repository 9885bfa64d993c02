"""What did training leave in a network's weights?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.weights.studies.scan import Scan, scan

__all__ = ["Scan", "scan"]

__getattr__, __dir__ = attach(__name__, {"querist.weights.studies.scan": ("Scan", "scan")})
