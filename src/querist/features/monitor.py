"""A hook that follows the laws of a network's layers while it trains: how far from the reference, how far from the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.errors import BadOption
from querist.features.capturing import capture
from querist.features.distances import sliced_wasserstein
from querist.features.reference import Reference, joined
from querist.training.hooks import Looking, TrainState

if TYPE_CHECKING:
    import polars as pl

    from querist.features.captured import Capture

__all__ = ["LatentMonitor"]

PROJECTIONS = 100
"""Directions of N_l: it is logged to be followed, and a look must be cheap beside a hundred steps."""


class LatentMonitor(Looking):
    """Logs, for each layer, A_l and N_l of the network under training on a fixed choice of images.

    Parameters
    ----------
    reference: a `Reference` or its file. Its layers are followed, those that the network has.
    data: the images that are looked at, data or a DATA address. Where it is left out, the reference's own source is opened.
    every: steps between two looks. A look is one forward pass over `n` images in evaluation mode, and sorts.
    n: images of a look, chosen by a seeded hash of their ids; at least 25.

    A_l: excess of the distance between the layer's rows now and the reference's quantiles over its null at that number of images,
    and p of the largest (max-T over layers), in units of the reference's normalisation. N_l: sliced Wasserstein distance between
    rows now and at the start of the training, same images, same normalisation: exactly 0 for a layer that did not change.

    The looks are in `log` (rows) and `table()`; they go into checkpoints and are taken up again. The network's mode, weights and
    the global random generators are left as they were. The first look is at step 0. In a group of processes the main one looks.

    Raises BadOption, TooFewRows, and what opening the data raises, when training starts.
    """

    def __init__(
        self,
        reference: Reference | Any,
        data: Any = None,
        *,
        every: int = 100,
        n: int = 128,
        layers: Sequence[str] | None = None,
        batch_size: int = 128,
        transform: Any = None,
        tokenizer: Any = None,
    ):
        super().__init__(every)
        self.reference = reference if isinstance(reference, Reference) else Reference.read(reference)
        self.data, self.n, self.batch_size = data, n, batch_size
        self.only, self.transform, self.tokenizer = layers, transform, tokenizer
        self._rows: Any = None
        self._first: dict[str, np.ndarray] | None = None

    def _unseen(self) -> bool:
        """After a restart as well where the start of the whole training, which stays what it was, is not known."""
        return self._first is None or super()._unseen()

    def state(self) -> dict[str, Any]:
        """The log and the rows at the start."""
        import torch

        first = {name: torch.from_numpy(np.array(rows)) for name, rows in (self._first or {}).items()}
        return {"log": self.log, "first": first}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on with a log."""
        self.log = [dict(row) for row in state["log"]]
        self._first = {name: rows.numpy() for name, rows in state["first"].items()} or None

    def table(self) -> pl.DataFrame:
        """One row per look and layer: step, layer, index, excess, raw, null_mean, p_adj, moved."""
        import polars as pl

        return pl.DataFrame(self.log)

    def _look(self, state: TrainState) -> None:
        from querist.features.relation import rows_of

        found = self._capture(state.model)
        names = [
            name for name in self.reference.names if name in found.names and (self.only is None or name in self.only)
        ]
        if not names:
            raise BadOption(
                "The network has none of the reference's layers",
                value=", ".join(found.names[:5]),
                allowed=", ".join(self.reference.names[:5]),
            )
        rows = {name: np.asarray(rows_of(found, name, self.reference[name].sites)) for name in names}
        gaps = joined({name: self.reference.draws(name, rows[name], most=1, jackknifed=False) for name in names})
        if self._first is None:
            self._first = rows
        for name in names:
            layer, gap = self.reference[name], gaps[name]
            self.log.append(
                {
                    "step": state.step,
                    "layer": name,
                    "index": layer.index,
                    "excess": gap.excess,
                    "raw": gap.raw,
                    "null_mean": gap.null_mean,
                    "p_adj": gap.p_adj,
                    "moved": self._moved(name, rows[name]),
                }
            )

    def _moved(self, name: str, rows: np.ndarray) -> float:
        assert self._first is not None
        first, layer = self._first[name], self.reference[name]
        if np.array_equal(first, rows):
            return 0.0
        one, other = (layer.scale(part).reshape(-1, layer.directions.shape[1]) for part in (first, rows))
        return sliced_wasserstein(one, other, self.reference.p, directions=layer.directions[:PROJECTIONS]).value

    def _capture(self, model: Any) -> Capture:
        from querist.sources.data import open_data

        reference = self.reference
        if self._rows is None:
            what = self.data if self.data is not None else reference.source
            self._rows = open_data(what, transform=self.transform, tokenizer=self.tokenizer)
        return capture(
            model,
            self._rows,
            layers=reference.captured,
            reduce=reference.reduce,
            proj_dim=reference.proj_dim,
            n=self.n,
            seed=reference.seed,
            batch_size=self.batch_size,
        )
