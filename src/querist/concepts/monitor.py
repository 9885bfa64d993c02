"""A hook that follows a head while it trains: each class's loss, and the smallest trigger that it has so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.concepts.data import ConceptData
from querist.errors import BadOption, ShapeMismatch
from querist.statistics import stream
from querist.training.hooks import Looking, TrainState

if TYPE_CHECKING:
    import polars as pl
    from torch import nn

__all__ = ["ConceptMonitor"]

WATCHED = 20
LIMIT, ROWS, BOUND = 3, 128, 2.0


class ConceptMonitor(Looking):
    """Looks every so many steps at a head, or at a bottleneck model trained jointly, on clean validation rows.

    Parameters
    ----------
    data: trusted rows that are not trained on. Where the model reads pictures and the rows have them, its own concepts of them
    are looked at; else the rows' concepts.
    every: steps between two looks. classes: labels that are watched; by default all, of more than 20 a seeded choice of 20.
    limit, rows: concepts of a trigger at most, and rows that it is tried on (`detectors.invert_discrete`).
    bound: the anomaly index beyond which a class whose trigger was found is flagged.

    A look logs, for each watched class, the mean loss of its rows, the smallest trigger found within the limit with its success
    on the rows of other classes (of the best trigger where none is found), its anomaly index and a flag. A flag is a reason to
    look, no verdict: clean models pass an index of 2 as well, and the test against clean retrains is `ConceptCleanse`.

    The looks are in `log` (rows) and `table()`, go into checkpoints and are taken up again. Weights, modes and global generators
    stay as they were. In a group of processes the main one looks. Raises BadOption when made, or when training starts on a network
    that does not give the classes of the rows, as in the first stage of a model that is not trained jointly.
    """

    def __init__(
        self,
        data: ConceptData,
        *,
        every: int = 100,
        classes: Sequence[Any] | None = None,
        limit: int = LIMIT,
        rows: int = ROWS,
        bound: float = BOUND,
        seed: int = 0,
    ):
        super().__init__(every)
        self.data, self.limit, self.rows, self.bound, self.seed = data, limit, rows, bound, seed
        if classes is None:
            present = np.flatnonzero(data.class_sizes)
            chosen = stream(seed, "watched classes").permutation(present)[:WATCHED]
            self.classes = [data.classes[code] for code in np.sort(chosen)]
        else:
            self.classes = [data.classes[data.target(label)] for label in classes]

    @property
    def passed_over(self) -> tuple[Any, ...]:
        """Labels that are not watched."""
        watched = {str(label) for label in self.classes}
        return tuple(label for label in self.data.classes if str(label) not in watched)

    @property
    def flags(self) -> tuple[Any, ...]:
        """Labels that the last look flagged."""
        if not self.log:
            return ()
        last = self.log[-1]["step"]
        flagged = {row["target"] for row in self.log if row["step"] == last and row["flag"]}
        return tuple(label for label in self.classes if str(label) in flagged)

    def state(self) -> dict[str, Any]:
        """The log."""
        return {"log": self.log}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on with a log."""
        self.log = [dict(row) for row in state["log"]]

    def table(self) -> pl.DataFrame:
        """One row per look and class: step, target, n, loss, size (null for none within the limit), asr, index, trigger (JSON), flag."""
        import polars as pl

        kinds = {"step": pl.Int64, "target": pl.String, "n": pl.Int64, "loss": pl.Float64, "size": pl.Int64}
        kinds |= {"asr": pl.Float64, "index": pl.Float64, "trigger": pl.String, "flag": pl.Boolean}
        return pl.DataFrame(self.log, schema=kinds)

    def _look(self, state: TrainState) -> None:
        from querist.concepts.detectors import head_of, invert_discrete, row_losses

        rows = self._rows(state.model)
        try:
            found = invert_discrete(
                state.model, rows, classes=self.classes, limit=self.limit, rows=self.rows, seed=self.seed
            )
            losses = row_losses(head_of(state.model), rows, rows.codes)
        except (ShapeMismatch, RuntimeError, IndexError) as error:
            raise BadOption(
                "The network in training does not give classes from the rows' concepts",
                value=f"{type(state.model).__name__}: {str(error).splitlines()[0]}",
                allowed="a head, or a CBM trained jointly",
            ) from error
        for place, code in enumerate(found.codes):
            mine, trigger = rows.codes == code, found.triggers[place]
            index = float(found.index[place]) if np.isfinite(found.index[place]) else None
            self.log.append(
                {
                    "step": state.step,
                    "target": str(rows.classes[code]),
                    "n": int(mine.sum()),
                    "loss": float(losses[mine].mean()),
                    "size": int(found.size[place]) if found.found[place] else None,
                    "asr": float(found.asr[place]),
                    "index": index,
                    "trigger": None if trigger is None else trigger.to_json(),
                    "flag": trigger is not None and (index is None or index > self.bound),
                }
            )

    def _rows(self, model: nn.Module) -> ConceptData:
        from querist.concepts.model import CBM

        if not isinstance(model, CBM) or model.g is None or self.data.images is None:
            return self.data
        return self.data.changed(concepts=model.predict_concepts(self.data.images), space=model.input)
