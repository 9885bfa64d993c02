"""A sample's rows as networks take them: made when a batch is asked for, as many at a time as their activations allow."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from querist.effects.design import balance_weights
from querist.effects.links import Links
from querist.effects.sample import Sample
from querist.sources.rows import Encoded
from querist.statistics.arrays import in_blocks

__all__ = ["ACTIVATIONS", "PREDICTED", "Batch", "Table", "batches_of", "encoded_tensors", "rows_within", "tensors_of"]

Batch = dict[str, torch.Tensor]

ACTIVATIONS = 1 << 24
"""Bytes of activations that are kept at a time on a CPU: two hundred rows of the default network on eighty columns, a thousand
of the small one on twelve. A quarter of it makes a fit a third slower, four times as much no faster."""

PREDICTED = 8_192
"""Most rows that go through a network at a time where nothing is learnt."""

PROBE = 8
"""Rows by which the activations of one row are found."""

FEWEST = 16
"""Rows that go through a network at a time however wide it is."""


class Table:
    """A sample as a data set of `training.rows_of`: a batch is made of the rows that are asked for, and beside the sample no more is
    held than weights of rows that are not its own.

    weighting: "none", "ipw", "overlap", see `tensors_of`. Raises BadOption.
    """

    def __init__(self, sample: Sample, links: Links, weighting: str = "none"):
        self.sample, self.links = sample, links
        self.weight = _row_weights(sample, weighting)  # of all rows: they are scaled by what all weigh

    def __len__(self) -> int:
        return self.sample.n

    def fetch(self, rows: Any) -> Batch:
        """These rows, a slice or numbers, as a batch: those of `tensors_of`."""
        sample = self.sample
        seen = sample.outcomes.observed[rows]
        y = self.links.targets(np.where(seen, sample.outcomes.values[rows], 0.0))
        numbers, missing, codes = encoded_tensors(sample.encoded[rows])
        return {
            "numbers": numbers,
            "missing": missing,
            "codes": codes,
            "arm": torch.as_tensor(sample.arm[rows].astype(np.int64, copy=False)),
            "y": torch.as_tensor(y.astype(np.float32)),
            "weight": torch.as_tensor((self.weight[rows][:, None] * seen).astype(np.float32)),
        }

    def about(self) -> dict[str, Any]:
        """Rows, and a checksum of every column."""
        digests: dict[str, Any] = {}
        for part in in_blocks(max(len(self), 1)):
            for name, value in self.fetch(part).items():
                digest = digests.setdefault(name, hashlib.sha256(f"{value.dtype} {list(value.shape[1:])}".encode()))
                digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return {"rows": len(self), "columns": {name: one.hexdigest()[:32] for name, one in digests.items()}}


def tensors_of(sample: Sample, links: Links, weighting: str = "none") -> Batch:
    """A whole sample as one batch: numbers, missing, codes, arm, y [n, K] (as `Links.targets`), weight [n, K].

    weighting: "none", "ipw", "overlap", times the row's own weight; 0 where the outcome is missing. Raises BadOption.
    """
    return Table(sample, links, weighting).fetch(slice(None))


def _row_weights(sample: Sample, weighting: str) -> Float[np.ndarray, "n"]:
    if weighting == "none":
        return sample.weight
    # Overlap weights are bounded whatever the chances, and tell by them who could have had any arm: clipped, nobody is left out.
    e = sample.propensity if weighting == "ipw" or sample.chances is None else sample.chances
    return sample.weight * balance_weights(e, sample.arm, weighting)  # pyright: ignore[reportArgumentType]


def encoded_tensors(encoded: Encoded) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(numbers, missing, codes) of rows."""
    return (
        torch.as_tensor(encoded.numbers, dtype=torch.float32),
        torch.as_tensor(encoded.missing),
        torch.as_tensor(encoded.codes, dtype=torch.long),
    )


def batches_of(
    encoded: Encoded, size: int = PREDICTED, rows: Int[np.ndarray, "r"] | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """(numbers, missing, codes) as tensors, in turn, of all rows or of those named; once with no rows where there are none."""
    n = len(encoded) if rows is None else len(rows)
    for start in range(0, max(n, 1), size):
        part = slice(start, start + size)
        yield encoded_tensors(encoded[part if rows is None else rows[part]])


def rows_within(net: nn.Module, asked: Callable[[Any], Any], encoded: Encoded, most: int) -> int:
    """How many rows go through a network at a time: at most `most`, and as many as keep `ACTIVATIONS` bytes.

    asked: what is asked of the network, from (numbers, missing, codes) to tensors; encoded: rows to try it on. What autograd keeps of
    a few rows is counted, in eval mode and without a draw; a pass without gradients holds less at any time.
    """
    if most <= FEWEST or len(encoded) <= 4 * FEWEST:
        return most
    kept = [_kept(net, asked, encoded[np.arange(count) % len(encoded)]) for count in (PROBE, 2 * PROBE)]
    return max(FEWEST, min(most, ACTIVATIONS * PROBE // max(kept[1] - kept[0], 1)))


def _kept(net: nn.Module, asked: Callable[[Any], Any], encoded: Encoded) -> int:
    """Bytes that autograd keeps of these rows."""
    found: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        # Detached: a node that kept its own output would never go.
        return found.setdefault(tensor.untyped_storage().data_ptr(), tensor.detach())

    modes = [(one, one.training) for one in net.modules()]
    net.eval()
    try:
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda kept: kept):
            said = asked(encoded_tensors(encoded))
    finally:
        for one, was in modes:
            one.training = was
    total = sum(one.untyped_storage().nbytes() for one in found.values())
    del said  # the graph was held until all was counted
    return total
