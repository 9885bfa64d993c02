"""What a training returns: its history and why it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from querist.training.totals import means

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Fit", "History"]

Reason = Literal["epochs", "max_steps", "early-stopping", "hook"]


@dataclass(frozen=True, slots=True)
class Fit:
    """The outcome of a training; the network itself was trained in place.

    history: a row per window of steps (see `log_every`), with `step` (the window's last), `epoch` (the pass that it is in,
        from 1), `lr` (of the first group, at that step), `train_total` and `train_<term>` (means over the window's rows),
        and `valid_total`, `valid_<term>`, `valid_<metric>` where the window ended with a validation.
    steps, epochs: optimiser steps done and passes completed.
    reason: "epochs", "max_steps", "early-stopping" or "hook".
    seconds: wall time, over all restarts.
    metrics: figures of the last validation. best_value, best_step, best_epoch: the best monitored figure, and the step
        and pass (from 1) after which it was seen; None without validation.
    restored: whether the network has the weights of the best validation.
    resumed_at: the step at which the training was taken up from a checkpoint, None where it was not.
    """

    history: pl.DataFrame
    steps: int
    epochs: int
    reason: Reason
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)
    best_value: float | None = None
    best_step: int | None = None
    best_epoch: int | None = None
    restored: bool = False
    resumed_at: int | None = None


class History:
    """Rows of a history; the window that is open is part of its state."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.window: dict[str, tuple[float, float]] = {}

    def add(self, totals: Mapping[str, tuple[float, float]]) -> None:
        """A step's sums and weights."""
        for name, (total, weight) in totals.items():
            before = self.window.get(name, (0.0, 0.0))
            self.window[name] = before[0] + total, before[1] + weight

    def close(self, step: int, epoch: int, lr: float, metrics: Mapping[str, float] | None = None) -> None:
        """End the window after a step; without steps since the last row, that row is given the metrics."""
        if not self.rows or self.rows[-1]["step"] != step:
            found = means(self.window)
            row: dict[str, float] = {"step": step, "epoch": epoch, "lr": lr}
            if found:
                row["train_total"] = sum(found.values())
            self.rows.append(row | {f"train_{name}": value for name, value in found.items()})
            self.window = {}
        if metrics:
            self.rows[-1].update({f"valid_{name}": value for name, value in metrics.items()})

    def frame(self) -> pl.DataFrame:
        """The rows as a frame; what a window lacks is null."""
        import polars as pl

        first = ["step", "epoch", "lr", "train_total"]
        names = dict.fromkeys(first + [name for row in self.rows for name in row])
        ordered = [
            *first,
            *(n for n in names if n[:6] == "train_" and n not in first),
            *(n for n in names if n[:6] == "valid_"),
        ]
        schema: dict[str, Any] = {name: pl.Int64 if name in ("step", "epoch") else pl.Float64 for name in ordered}
        return pl.DataFrame({name: [row.get(name) for row in self.rows] for name in ordered}, schema=schema)

    def state(self) -> dict[str, Any]:
        """State for the checkpoint."""
        return {"rows": self.rows, "window": self.window}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""
        self.rows, self.window = list(state["rows"]), dict(state["window"])
