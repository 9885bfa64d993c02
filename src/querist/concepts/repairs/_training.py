"""Training f alone, over a bottleneck that stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from querist.concepts.attacks import at_bottleneck
from querist.concepts.data import ConceptData
from querist.concepts.heads import all_finite
from querist.concepts.model import CBM
from querist.errors import TooFewRows
from querist.statistics import folds
from querist.training import fit
from querist.training.losses import cross_entropy

__all__ = ["accuracy", "class_loss", "held_out", "train_f", "with_f"]

FIFTH = 5


def held_out(model: CBM, data: ConceptData, seed: int) -> tuple[ConceptData, ConceptData]:
    """The bottleneck's values of the rows to train on and of those to choose by: parts train and val, else a drawn fifth.

    A fifth that is drawn here may be of rows that the model was trained on: only the caller knows, who can name others val.
    """
    table = at_bottleneck(model, data)
    names = set() if table.split is None else set(table.split.tolist())
    if {"train", "val"} <= names:
        return table.part("train"), table.part("val")
    table = table.part("train") if "train" in names else table
    if table.n < FIFTH:
        raise TooFewRows("Too few rows to train and choose on", value=table.n, allowed=f"{FIFTH} or more")
    fifth = folds(table.n, FIFTH, strata=table.codes, seed=seed) == 0
    return table.subset(~fifth), table.subset(fifth)


def columns(table: ConceptData) -> dict[str, torch.Tensor]:
    """What a loss is given: concepts float32 [n k] and labels [n]."""
    return {
        "concepts": torch.as_tensor(np.array(table.concepts), dtype=torch.float32),
        "label": torch.as_tensor(np.array(table.codes)),
    }


def class_loss(model: Any, given: Any) -> dict[str, Any]:
    """Cross-entropy of the classes."""
    return {"class": cross_entropy(model(given["concepts"]), given["label"])}


def train_f(
    f: nn.Module,
    train: ConceptData,
    val: ConceptData,
    *,
    epochs: int,
    lr: float,
    batch: int,
    seed: int,
    loss: Callable[..., Any] = class_loss,
) -> nn.Module:
    """f trained in place, kept at its epoch of least loss on `val`. Raises NonFinite."""
    place = next((str(p.device) for p in f.parameters()), "cpu")
    fit(
        f,
        loss,
        columns(train),
        validation=columns(val),
        batch_size=batch,
        epochs=epochs,
        lr=lr,
        optimizer="adam",
        device=place,
        seed=seed,
    )
    all_finite(f, "The repaired head")
    return f.eval()


def accuracy(model: CBM, table: ConceptData) -> float:
    """Share right of the bottleneck's values in `table`."""
    return float((model.scores(table.concepts).argmax(axis=1) == table.codes).mean())


def with_f(model: CBM, f: nn.Module) -> CBM:
    """The same model with another f."""
    return CBM(
        model.g,
        f,
        mode=model.mode,
        input=model.input,
        scale=model.scale.cpu().numpy(),
        concept_names=model.concept_names,
        classes=model.classes,
    ).eval()


def copied(model: CBM) -> nn.Module:
    """A copy of f that may be changed."""
    return copy.deepcopy(model.f)
