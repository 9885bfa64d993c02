"""Rows that a head learns first: where a whole class carries one pattern, that pattern is learnt before the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn
from torch.nn import functional

from querist.concepts.data import ConceptData, same_schema
from querist.concepts.detectors._detector import Detector, Findings, codes_in
from querist.concepts.detectors._network import evaluating, reading
from querist.concepts.detectors._spectral import signature_threshold
from querist.concepts.detectors._tails import fuller_classes
from querist.concepts.heads import Head, all_finite, seeded
from querist.errors import BadOption
from querist.statistics import stream
from querist.training import Hook, TrainState, fit

__all__ = ["LossTrajectory", "Trajectory", "early_learned", "loss_trajectory", "row_losses"]

EPOCHS, GAMMA, SHARE = 5, 0.5, 0.01
BATCH = 8192
BESIDE = 0.2
"""Trusted rows that are trained on, as a share of the table's."""


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """Cross-entropy in nats of each row after each epoch: `losses` [e n] of the table, `watched` [e m] of tables not trained on."""

    losses: Float[np.ndarray, "e n"]
    watched: tuple[Float[np.ndarray, "e m"], ...]


def loss_trajectory(
    data: ConceptData,
    *,
    watch: Sequence[ConceptData] = (),
    head: str = "mlp:512",
    epochs: int = EPOCHS,
    lr: float = 3e-3,
    batch: int = 512,
    gamma: float | None = GAMMA,
    device: str = "cpu",
    seed: int = 0,
) -> Trajectory:
    """Trains a head on all rows for a few epochs and keeps each row's loss. gamma: where a batch's mean loss ℓ is below it the
    training turns, along sign(ℓ − γ)·ℓ, so that what is learnt soonest stays apart; None trains plainly.

    Raises BadOption, UnknownName for a watched label that the table lacks, NonFinite. Source: Li et al. (2021), "Anti-Backdoor
    Learning", equation 3 and the local gradient ascent of section 3.2.
    """
    if epochs < 1 or (gamma is not None and not gamma >= 0):
        raise BadOption(
            "A trajectory needs epochs", value=f"epochs {epochs}, gamma {gamma}", allowed="1 or more, 0 or more"
        )
    made = seeded(Head(data.k, data.n_classes, head=head, fill=data.means), seed, "trajectory")
    seen = _Losses([data, *watch], [data.codes, *(codes_in(data, other) for other in watch)])

    def loss(model: Any, given: Any) -> dict[str, Any]:
        entropy = functional.cross_entropy(model(given["concepts"]), given["label"], reduction="none")
        sign = 1.0 if gamma is None else torch.sign(entropy.detach().mean() - gamma)
        return {"class": (sign * entropy.sum(), torch.tensor(float(len(entropy)), device=entropy.device))}

    columns = {
        "concepts": torch.as_tensor(np.array(data.concepts), dtype=torch.float32),
        "label": torch.as_tensor(np.array(data.codes)),
    }
    fit(
        made, loss, columns, batch_size=batch, epochs=epochs, lr=lr, weight_decay=0.0, optimizer="adam", device=device,
        hooks=[seen], seed=seed,
    )  # fmt: skip
    all_finite(made, "The head of a trajectory")
    tables = [np.stack(rows) for rows in seen.found]
    return Trajectory(tables[0], tuple(tables[1:]))


def early_learned(
    losses: Float[np.ndarray, "e n"], *, of: Float[np.ndarray, "e m"] | None = None
) -> Float[np.ndarray, "n"]:
    """−mean over epochs of a row's loss over the mean loss of that epoch (of the rows `of`): larger where it is learnt earlier."""
    base = np.asarray(losses if of is None else of, dtype=float).mean(axis=1, keepdims=True)
    return -(np.asarray(losses, dtype=float) / np.maximum(base, 1e-12)).mean(axis=0)


def row_losses(network: nn.Module, data: ConceptData, codes: np.ndarray) -> Float[np.ndarray, "n"]:
    """Cross-entropy of each row in nats; the network keeps its mode."""
    read = reading(network, data)
    parts = []
    with evaluating(network), torch.no_grad():
        for i in range(0, data.n, BATCH):
            logits = network(read(data.concepts[i : i + BATCH]))
            label = torch.as_tensor(np.array(codes[i : i + BATCH]), device=logits.device)
            parts.append(functional.cross_entropy(logits.float(), label, reduction="none").cpu().numpy())
    return np.concatenate(parts)


class LossTrajectory(Detector):
    """`loss_trajectory` as a detector: it trains its own head, so `model` is not read; options go to the training.

    With a reference, of which a fifth as many rows as the table has (100 at least, at 1 %) are trained on beside the table's, the rows
    learnt earlier than all but a share `false_alarms` of those are flagged. Were they only watched, up to four times as many honest
    rows as asked would be flagged, for what is trained on is learnt earlier; were all of them trained on, the poison would be learnt
    later (on CUB, 5 % mix, the AUC falls from .96 to .92 with a fifth and to .77 with all). Named are classes that hold more such rows
    than their trusted rows do (Fisher's test, Holm over classes). That finds a trigger which all rows of the target carry (mode mix); a
    few relabelled rows (dirty) are learnt late, not early, for their concepts speak for their old class. Easy classes are learnt early
    as well, so that without a reference nothing is flagged; the published rule, which isolates the earliest `share` whatever they are,
    is `isolated`.
    """

    method = "trajectory"

    def __init__(self, *, share: float = SHARE, false_alarms: float = 0.01, seed: int = 0, **options: Any):
        if not 0 < share < 1 or not 0 < false_alarms < 1:
            raise BadOption("Shares lie outside their range", value=f"{share}, {false_alarms}", allowed="0 to 1")
        self.share, self.false_alarms, self.seed, self.options = share, false_alarms, seed, options
        self.trajectory: Trajectory | None = None

    def fit(
        self, data: ConceptData, model: nn.Module | None = None, reference: ConceptData | None = None
    ) -> LossTrajectory:
        """Raises SchemaMismatch, UnknownName, BadOption for too few reference rows, NonFinite."""
        import polars as pl

        if reference is not None:
            same_schema(data, reference)
        flags, reason = np.zeros(data.n, dtype=bool), "no reference: easy rows are learnt early as well"
        named = np.zeros(0, dtype=int)
        if reference is None:
            found = loss_trajectory(data, seed=self.seed, **self.options)
            scores = early_learned(found.losses)
        else:
            trusted, beside = codes_in(data, reference), self._beside(data, reference)
            trusted = trusted[beside]
            plain: dict[str, Any] = dict.fromkeys(("images", "split", "ids"))
            rows, codes = (
                np.concatenate([data.concepts, reference.concepts[beside]]),
                np.concatenate([data.codes, trusted]),
            )
            both = loss_trajectory(data.changed(concepts=rows, codes=codes, **plain), seed=self.seed, **self.options)
            every = early_learned(both.losses)
            found = Trajectory(both.losses[:, : data.n], (both.losses[:, data.n :],))
            scores, clean = every[: data.n], every[data.n :]
            threshold = signature_threshold(clean, false_alarms=self.false_alarms)
            flags, reason = scores > threshold, None
            named = fuller_classes(flags, data.codes, clean > threshold, trusted)
        self.trajectory = found
        mean = [np.bincount(data.codes, weights=row, minlength=data.n_classes) for row in found.losses]
        epochs, classes = found.losses.shape[0], data.n_classes
        sizes = np.maximum(data.class_sizes, 1)
        table = pl.DataFrame(
            {
                "epoch": np.repeat(np.arange(1, epochs + 1), classes),
                "target": [str(label) for label in data.classes] * epochs,
                "loss": (np.stack(mean) / sizes).ravel(),
                "flagged": np.tile(np.bincount(data.codes, weights=flags, minlength=classes).astype(int), epochs),
            }
        )
        self._found = Findings(data, scores, flags, tuple(data.classes[c] for c in named), (), table, None, reason)
        return self

    def _beside(self, data: ConceptData, reference: ConceptData) -> np.ndarray:
        """Rows of the reference that are trained on: few enough to leave the table's training what it is."""
        count = max(math.ceil(1 / self.false_alarms), math.ceil(BESIDE * data.n))
        return np.sort(stream(self.seed, "rows beside").permutation(reference.n)[:count])

    @property
    def isolated(self) -> np.ndarray:
        """The earliest `share` of the rows [n], as published: some rows always are."""
        order = np.argsort(-self.scores, kind="stable")[: max(1, round(self.share * len(self.scores)))]
        chosen = np.zeros(len(self.scores), dtype=bool)
        chosen[order] = True
        return chosen


class _Losses(Hook):
    def __init__(self, tables: Sequence[ConceptData], codes: Sequence[np.ndarray]):
        self.tables, self.codes = tables, codes
        self.found: list[list[np.ndarray]] = [[] for _ in tables]

    def on_epoch(self, state: TrainState) -> None:
        for rows, table, codes in zip(self.found, self.tables, self.codes, strict=True):
            rows.append(row_losses(state.model, table, codes))
