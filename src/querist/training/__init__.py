"""One training loop for every room: exact resume, several processes, and hooks that watch it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.training.batches import Batches
    from querist.training.fitted import Fit
    from querist.training.hooks import Each, Hook, TrainState
    from querist.training.launch import launch_group
    from querist.training.loop import fit
    from querist.training.schedules import Schedule

__all__ = ["Batches", "Each", "Fit", "Hook", "Schedule", "TrainState", "fit", "launch_group"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "querist.training.batches": ("Batches",),
        "querist.training.fitted": ("Fit",),
        "querist.training.hooks": ("Each", "Hook", "TrainState"),
        "querist.training.launch": ("launch_group",),
        "querist.training.loop": ("fit",),
        "querist.training.schedules": ("Schedule",),
    },
)
