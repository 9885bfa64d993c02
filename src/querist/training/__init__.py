"""One training loop for every room: exact resume, several processes, and hooks that watch it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.training.hooks import Hook, TrainState

__all__ = ["Hook", "TrainState"]

__getattr__, __dir__ = attach(__name__, {"querist.training.hooks": ("Hook", "TrainState")})
