"""Unlearning: f is trained on rows that carry the inverted trigger and keep their own labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from querist.concepts.data import ConceptData
from querist.concepts.model import CBM
from querist.concepts.repairs._repaired import Attack, Repaired, repaired
from querist.concepts.repairs._training import copied, held_out, train_f, with_f
from querist.concepts.triggers import logit_scale
from querist.errors import BadOption
from querist.statistics import stream

__all__ = ["unlearn"]


def unlearn(
    model: Any,
    data: ConceptData,
    triggers: Sequence[Attack],
    *,
    strength: str = "quantile",
    epochs: int = 10,
    lr: float = 1e-3,
    batch: int = 128,
    clean: tuple[Any, ConceptData] | None = None,
    seed: int = 0,
) -> Repaired:
    """f trained on from where it is, on every row as it is and once more with one of the triggers, labels unchanged.

    triggers: (trigger, target) pairs as inversion finds them; each row carries one, drawn evenly. data: trusted rows, or the
    suspect table, in which the poisoned rows are then outnumbered by rows that carry the trigger under other labels. The held-out
    rows that choose the epoch carry triggers too (part val, which should be new to the model; else a fifth is drawn). g stays as it
    is. Raises BadOption without triggers, NonFinite.
    Source: Wang et al. (2019), "Neural Cleanse", section VI-C, at the bottleneck; every row, not a fifth, carries a trigger.
    """
    if not triggers:
        raise BadOption("There is no trigger to unlearn", value="none", allowed="one (trigger, target) or more")

    def repair(held: CBM, table: ConceptData) -> tuple[CBM, None, str]:
        train, val = held_out(held, table, seed)
        scale = held.scale.cpu().numpy() if len(held.scale) else None
        if scale is None and train.space == "logit":
            scale = logit_scale(train.concepts)
        made = with_f(held, copied(held))
        both = [_doubled(part, triggers, strength, scale, seed) for part in (train, val)]
        train_f(made.f, *both, epochs=epochs, lr=lr, batch=batch, seed=seed)
        return made, None, f"{len(triggers)} triggers unlearned on {train.n} rows"

    return repaired("unlearn", repair, model, data, clean)


def _doubled(
    table: ConceptData, triggers: Sequence[Attack], strength: str, scale: np.ndarray | None, seed: int
) -> ConceptData:
    """The rows, and the rows with a trigger each."""
    concepts = np.array(table.concepts)
    which = stream(seed, "unlearn").permutation(np.arange(table.n) % len(triggers))
    for place, (trigger, _) in enumerate(triggers):
        rows = which == place
        concepts[rows] = trigger.apply(table.concepts[rows], space=table.space, strength=strength, scale=scale)
    return table.changed(
        concepts=np.concatenate([table.concepts, concepts]),
        codes=np.concatenate([table.codes, table.codes]),
        images=None,
        ids=None,
        split=None,
    )
