"""Repairs of the table: concepts masked, rows given other labels or left out, and a model trained on what is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from torch import nn

from querist.concepts.attacks import at_bottleneck
from querist.concepts.data import ConceptData
from querist.concepts.heads import Head
from querist.concepts.model import CBM
from querist.concepts.repairs._repaired import Refit, Repaired, refit, repaired
from querist.concepts.repairs._training import copied, with_f
from querist.errors import BadOption, ShapeMismatch, TooFewRows

__all__ = ["Masked", "drop_rows", "mask_concepts", "new_labels", "relabel", "retrain"]

Clean = tuple[Any, ConceptData]


class Masked(nn.Module):
    """f that reads `fill` [k] wherever `masked` [k] is true, whatever stands there."""

    masked: torch.Tensor
    fill: torch.Tensor

    def __init__(self, f: nn.Module, masked: np.ndarray, fill: np.ndarray):
        super().__init__()
        self.f = f
        self.register_buffer("masked", torch.as_tensor(masked))
        self.register_buffer("fill", torch.as_tensor(fill, dtype=torch.float32))

    def forward(self, concepts: torch.Tensor) -> torch.Tensor:
        """[n k] -> [n L]."""
        return self.f(torch.where(self.masked, self.fill.to(concepts.dtype), concepts))


def mask_concepts(
    model: Any,
    data: ConceptData,
    concepts: Sequence[int],
    *,
    recipe: Refit | None = None,
    train: bool = False,
    clean: Clean | None = None,
    seed: int = 0,
) -> Repaired:
    """f no longer reads these concepts: their mean over the bottleneck's values of `data` stands there, whatever comes.

    A `Head` stays one, its first layer folded; another network is wrapped in `Masked`. train: the model is trained anew on the
    table with these concepts unknown, then masked in the same way (recipe as in `drop_rows`). Raises BadOption for positions outside
    0 … k − 1, and for all of them.
    """
    index = sorted({int(i) for i in concepts})
    if not index or index[0] < 0 or index[-1] >= data.k or len(index) == data.k:
        raise BadOption(
            "These concepts cannot be masked", value=str(list(concepts)), allowed=f"some of 0 … {data.k - 1}, not all"
        )
    masked = np.zeros(data.k, dtype=bool)
    masked[index] = True

    def repair(held: CBM, table: ConceptData) -> tuple[CBM, ConceptData | None, str]:
        said = ", ".join(data.concept_names[i] for i in index)
        mended = None
        if train:
            values = np.array(table.concepts)
            values[:, index] = np.nanmean(values[:, index], axis=0)
            mended = table.changed(concepts=values, space="prob" if table.space == "hard" else table.space)
            held = refit(held, mended, recipe, seed)
        fill = np.nan_to_num(at_bottleneck(held, _trained_on(table)).means)
        return with_f(held, _masked(copied(held), masked, fill)), mended, f"masked {said}"

    return repaired("mask-concepts", repair, model, data, clean)


def relabel(
    model: Any,
    data: ConceptData,
    flags: ArrayLike,
    *,
    concepts: Sequence[int] = (),
    neighbours: int = 5,
    matrix: np.ndarray | None = None,
    recipe: Refit | None = None,
    clean: Clean | None = None,
    seed: int = 0,
) -> Repaired:
    """The flagged rows get the labels of `new_labels`, and the model is trained anew (recipe as in `drop_rows`)."""
    mask = _flags(flags, data)

    def repair(held: CBM, table: ConceptData) -> tuple[CBM, ConceptData, str]:
        codes = new_labels(table, _flags(mask, table), concepts=concepts, neighbours=neighbours, matrix=matrix)
        mended = table.changed(codes=codes)
        how = "the class matrix" if matrix is not None else f"{neighbours} neighbours"
        changed = int((codes != table.codes).sum())
        return refit(held, mended, recipe, seed), mended, f"{changed} of {int(mask.sum())} rows relabelled by {how}"

    return repaired("relabel", repair, model, data, clean)


def drop_rows(
    model: Any,
    data: ConceptData,
    flags: ArrayLike,
    *,
    recipe: Refit | None = None,
    clean: Clean | None = None,
    seed: int = 0,
) -> Repaired:
    """The model trained anew without the flagged rows.

    flags [n]: a mask over the rows of `data`; the clean table is short of the same rows. recipe: a `Recipe`, or a function of a
    table and a seed that gives a model; querist's own networks are by default made as they were. Raises TooFewRows where every row
    (or every row of part train) is flagged, ShapeMismatch, BadOption for networks of others without a recipe.
    """
    mask = _flags(flags, data)

    def repair(held: CBM, table: ConceptData) -> tuple[CBM, ConceptData, str]:
        kept = table.subset(~_flags(mask, table))
        return refit(held, kept, recipe, seed), kept, f"{int(mask.sum())} of {table.n} rows dropped"

    return repaired("drop-rows", repair, model, data, clean)


def retrain(
    model: Any, data: ConceptData, *, recipe: Refit | None = None, clean: Clean | None = None, seed: int = 1
) -> Repaired:
    """The same table under another seed and nothing else: what a repair must do better than."""

    def repair(held: CBM, table: ConceptData) -> tuple[CBM, None, str]:
        return refit(held, table, recipe, seed), None, f"trained anew with seed {seed}"

    return repaired("retrain", repair, model, data, clean)


def new_labels(
    data: ConceptData,
    flags: Bool[np.ndarray, "n"],
    *,
    concepts: Sequence[int] = (),
    neighbours: int = 5,
    matrix: Float[np.ndarray, "L k"] | None = None,
) -> Int[np.ndarray, "n"]:
    """Codes [n] in which the flagged rows have the label of the rows most like them, in all concepts but `concepts`.

    By the `neighbours` nearest unflagged rows (of part train, where there is one): the commonest label, of several the one whose
    neighbours are nearer in sum, then the lower code. With a matrix of classes: the class nearest to the row. Distance: mean squared
    difference over the concepts known on both sides. A class all of whose rows are flagged (as mode mix leaves the target) has no
    neighbour left, so that its rows go to other classes: give a matrix then.

    Raises TooFewRows without an unflagged row, BadOption, ShapeMismatch.
    """
    if neighbours < 1:
        raise BadOption("No such number of neighbours", value=neighbours, allowed="1 or more")
    keep = np.setdiff1d(np.arange(data.k), np.asarray(list(concepts), dtype=int))
    if not keep.size:
        raise BadOption("No concept is left to compare rows by", value=f"{data.k} excluded", allowed="fewer")
    flagged, codes = np.flatnonzero(flags), data.codes.copy()
    if not flagged.size:
        return codes
    if matrix is not None:
        if np.shape(matrix) != (data.n_classes, data.k):
            raise ShapeMismatch(
                "The class matrix does not fit the table",
                value=np.shape(matrix),
                allowed=f"[{data.n_classes} {data.k}]",
            )
        codes[flagged] = _distances(data.concepts[flagged][:, keep], np.asarray(matrix)[:, keep]).argmin(axis=1)
        return codes
    free = ~flags if data.split is None or "train" not in data.split else ~flags & (data.split == "train")
    if not free.any():
        raise TooFewRows("Every row is flagged", value=int(flags.sum()), allowed="an unflagged row to compare with")
    pool = np.flatnonzero(free)
    distance = _distances(data.concepts[flagged][:, keep], data.concepts[pool][:, keep])
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :neighbours]
    rows = np.arange(len(flagged))[:, None]
    votes, far = np.zeros((2, len(flagged), data.n_classes))
    np.add.at(votes, (rows, data.codes[pool][nearest]), 1)
    np.add.at(far, (rows, data.codes[pool][nearest]), np.take_along_axis(distance, nearest, axis=1))
    codes[flagged] = np.where(votes == votes.max(axis=1, keepdims=True), far, np.inf).argmin(axis=1)
    return codes


def _distances(a: np.ndarray, b: np.ndarray) -> Float[np.ndarray, "n m"]:
    """Mean squared difference over the cells known on both sides; infinite where there is none."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    knows_a, knows_b = ~np.isnan(a), ~np.isnan(b)
    a, b = np.where(knows_a, a, 0), np.where(knows_b, b, 0)
    count = knows_a.astype(float) @ knows_b.T
    total = (a * a) @ knows_b.T + knows_a @ (b * b).T - 2 * a @ b.T
    # Rounded, so that equal distances are equal: a tie of neighbours is broken by their order in the table.
    return np.where(count > 0, np.round(np.maximum(total, 0) / np.maximum(count, 1), 12), np.inf)


def _masked(f: nn.Module, masked: np.ndarray, fill: np.ndarray) -> nn.Module:
    if type(f) is not Head:
        return Masked(f, masked, fill)
    first = f.layers[0]
    assert isinstance(first, nn.Linear)
    at = torch.as_tensor(np.flatnonzero(masked))
    with torch.no_grad():
        first.bias.add_(first.weight[:, at] @ torch.as_tensor(fill[masked], dtype=first.weight.dtype))
        first.weight[:, at] = 0
        f.fill[at] = 0
    return f.eval()


def _trained_on(data: ConceptData) -> ConceptData:
    return data.part("train") if data.split is not None and "train" in data.split else data


def _flags(flags: ArrayLike, data: ConceptData) -> Bool[np.ndarray, "n"]:
    mask = np.asarray(flags)
    if mask.shape != (data.n,) or mask.dtype != bool:
        raise ShapeMismatch(
            "Flags must be one yes or no per row", value=f"{mask.dtype} {mask.shape}", allowed=f"bool [{data.n}]"
        )
    if mask.all():
        raise TooFewRows("Every row is flagged", value=data.n, allowed="an unflagged row to train on")
    return mask
