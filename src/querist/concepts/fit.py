"""Training heads, stacks of heads, and whole bottleneck models, all by `training.fit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from querist.concepts.data import ConceptData, Space
from querist.concepts.heads import Head, SmallBackbone, StackedHeads, all_finite, seeded
from querist.concepts.model import CBM, Mode, as_input
from querist.concepts.triggers import logit_scale
from querist.errors import BadOption, ShapeMismatch
from querist.training import Hook, fit
from querist.training.losses import binary_cross_entropy, cross_entropy

__all__ = ["fit_cbm", "fit_classes", "fit_concepts", "fit_head", "fit_heads"]

Batch = dict[str, torch.Tensor]


def fit_head(
    data: ConceptData,
    *,
    head: str = "mlp:512",
    seed: int,
    epochs: int = 20,
    lr: float = 3e-3,
    batch: int = 512,
    weight_decay: float = 0.0,
    optimizer: Any = "adam",
    device: str = "cpu",
    hooks: Sequence[Hook] = (),
) -> Head:
    """A head on the table's own concepts, in its space.

    Trains on the rows of part "train" and keeps the weights of the epoch with the least loss on part "val", where the split names
    them; else on all rows, to the last epoch. Never on rows of other parts. Initial weights and the order of batches depend on
    the seed and on the number of rows, so a poisoned copy starts and goes like the table itself. Raises BadOption, NonFinite.
    """
    train, held = _parts(data)
    made = seeded(Head(data.k, data.n_classes, head=head, fill=train.means), seed, "head")
    options = {"epochs": epochs, "lr": lr, "weight_decay": weight_decay, "optimizer": optimizer, "device": device}
    valid = None if held is None else _columns(held)
    _train(made, "The head", _head_loss, _columns(train), valid, batch, hooks=hooks, seed=seed, **options)
    return made.eval()


def fit_heads(
    datas: Sequence[ConceptData],
    *,
    head: str = "mlp:512",
    seed: int,
    initial: Sequence[Head] | None = None,
    epochs: int = 20,
    lr: float = 3e-3,
    batch: int = 512,
    weight_decay: float = 0.0,
    optimizer: Any = "adam",
    device: str = "cpu",
) -> list[Head]:
    """Heads on several tables of one shape at once, by stacked parameters: each as `fit_head` makes it, within rounding.

    The tables have the same rows in the same order (copies with other poison), and no part "val", for a stack has one last epoch.
    initial: heads to start from, in place of those of the seed. Raises ShapeMismatch, BadOption.
    """
    parts = [_parts(data) for data in datas]
    shapes = {(train.n, train.k, train.n_classes) for train, _ in parts}
    if len(shapes) != 1:
        raise ShapeMismatch(
            "Stacked heads need tables of one shape", value=str(sorted(shapes)), allowed="one n, k and L"
        )
    if any(held is not None for _, held in parts):
        raise BadOption("A stack of heads has no validation", value="val", allowed="tables without a part val")
    heads = initial or [
        seeded(Head(train.k, train.n_classes, head=head, fill=train.means), seed, "head") for train, _ in parts
    ]
    stack = StackedHeads(heads)
    columns = {
        "concepts": torch.as_tensor(np.stack([train.concepts for train, _ in parts], axis=1), dtype=torch.float32),
        "label": torch.as_tensor(np.stack([train.codes for train, _ in parts], axis=1)),
    }
    options = {"epochs": epochs, "lr": lr, "weight_decay": weight_decay, "optimizer": optimizer, "device": device}
    _train(stack, "A stack of heads", _stack_loss, columns, None, batch, seed=seed, **options)
    return stack.unstack()


def fit_cbm(
    data: ConceptData,
    *,
    mode: Mode = "joint",
    input: Space = "logit",
    backbone: nn.Module | str = "small",
    head: str = "linear",
    weight: float = 0.5,
    seed: int,
    epochs: int = 10,
    lr: float = 2e-3,
    batch: int = 64,
    device: str = "cpu",
    hooks: Sequence[Hook] = (),
) -> CBM:
    """A bottleneck model of the table's pictures, its weights those of the best validation loss where there is a part "val".

    joint: cross-entropy of the classes + weight · mean binary cross-entropy of the known concepts, together. sequential: g on
    concepts, then f on what g says of the training rows. independent: f on the true concepts; where f reads logits, a true 1
    stands as the 95 % and a true 0 as the 5 % quantile of g's logits. backbone: "small", or a network to concept logits, which is
    trained in place from where it is.

    Raises BadOption without pictures, and for joint training through hard concepts, which have no gradient; NonFinite.
    Source: Koh et al. (2020), section 3; weight 0.5 and checkpoints by validation (not test) accuracy after the CAT release.
    """
    _check_pictures(data)
    if mode == "joint" and input == "hard":
        raise BadOption(
            "Hard concepts have no gradient", value="joint, hard", allowed="sequential or independent with hard"
        )
    options: dict[str, Any] = {"batch": batch, "device": device, "seed": seed}
    if mode != "joint":
        g = fit_concepts(data, backbone=backbone, epochs=epochs, lr=lr, hooks=hooks, **options)
        return fit_classes(data, g, mode=mode, input=input, head=head, epochs=3 * epochs, lr=lr, **options)
    g = _backbone(backbone, data.k, seed)
    f = seeded(Head(data.k, data.n_classes, head=head), seed, "head")
    made = CBM(g, f, mode=mode, input=input, concept_names=data.concept_names, classes=data.classes)

    def joint(model: Any, given: Batch) -> dict[str, Any]:
        logits = model.g(given["image"])
        total, count = _concept_loss(logits, given)
        classes = cross_entropy(model.f(as_input(logits, input)), given["label"])
        return {"class": classes, "concept": (weight * total, count)}

    train, held = _parts(data)
    rows, valid = _columns(train, pictures=True), None if held is None else _columns(held, pictures=True)
    _train(
        made,
        "The bottleneck model",
        joint,
        rows,
        valid,
        batch,
        epochs=epochs,
        lr=lr,
        hooks=hooks,
        device=device,
        seed=seed,
    )
    made.scale = torch.as_tensor(logit_scale(_logits(g, train)), dtype=torch.float32)
    return made.eval()


def fit_concepts(
    data: ConceptData,
    *,
    backbone: nn.Module | str = "small",
    seed: int,
    epochs: int = 10,
    lr: float = 2e-3,
    batch: int = 64,
    device: str = "cpu",
    hooks: Sequence[Hook] = (),
) -> nn.Module:
    """g alone: pictures to concept logits, by the binary cross-entropy of the known concepts; as the first half of `fit_cbm`."""
    _check_pictures(data)
    train, held = _parts(data)
    g = _backbone(backbone, data.k, seed)

    def loss(net: Any, given: Batch) -> dict[str, Any]:
        return {"concept": _concept_loss(net(given["image"]), given)}

    rows, valid = _columns(train, pictures=True), None if held is None else _columns(held, pictures=True)
    _train(
        g,
        "The network of concepts",
        loss,
        rows,
        valid,
        batch,
        epochs=epochs,
        lr=lr,
        hooks=hooks,
        device=device,
        seed=seed,
    )
    return g.eval()


def fit_classes(
    data: ConceptData,
    g: nn.Module,
    *,
    mode: Mode = "sequential",
    input: Space = "logit",
    head: str = "linear",
    seed: int,
    epochs: int = 30,
    lr: float = 2e-3,
    batch: int = 64,
    device: str = "cpu",
) -> CBM:
    """f over a g that stays as it is: on what g says (sequential) or on the true concepts (independent).

    f is small and its inputs are fixed: `fit_cbm` gives it three times the epochs of g. Raises BadOption for mode joint.
    """
    _check_pictures(data)
    if mode == "joint":
        raise BadOption("Joint training trains g too", value=mode, allowed="sequential, independent", mend="fit_cbm")
    train, held = _parts(data)
    f = seeded(Head(data.k, data.n_classes, head=head), seed, "head")
    made = CBM(g, f, mode=mode, input=input, concept_names=data.concept_names, classes=data.classes)
    logits = _logits(g, train)
    scale = logit_scale(logits)
    rows = {"concepts": _read(train, logits, mode, input, scale), "label": torch.as_tensor(np.array(train.codes))}
    valid = None
    if held is not None:
        concepts = _read(held, _logits(g, held), mode, input, scale)
        valid = {"concepts": concepts, "label": torch.as_tensor(np.array(held.codes))}
    _train(
        f, "The bottleneck model's head", _head_loss, rows, valid, batch, epochs=epochs, lr=lr, device=device, seed=seed
    )
    made.scale = torch.as_tensor(scale, dtype=torch.float32)
    return made.eval()


def _check_pictures(data: ConceptData) -> None:
    if data.images is None:
        raise BadOption(
            "A bottleneck model needs pictures", value="images=None", allowed="a table with images, or fit_head"
        )
    if data.space == "logit":
        raise BadOption("Concepts must be 0 … 1 to be learnt", value="space logit", allowed="space hard or prob")


def _backbone(backbone: nn.Module | str, k: int, seed: int) -> nn.Module:
    if not isinstance(backbone, str):
        return backbone
    if backbone != "small":
        raise BadOption("No such backbone", value=backbone, allowed="small, or a torch module")
    return seeded(SmallBackbone(k), seed, "backbone")


def _parts(data: ConceptData) -> tuple[ConceptData, ConceptData | None]:
    names = set() if data.split is None else set(data.split.tolist())
    return (data.part("train") if "train" in names else data), (data.part("val") if {"train", "val"} <= names else None)


def _train(
    network: nn.Module,
    what: str,
    loss: Any,
    rows: Batch,
    held: Batch | None,
    batch: int,
    *,
    optimizer: Any = "adam",
    **options: Any,
) -> None:
    """In place, kept at its epoch of least loss on `held` where there are such rows. Raises NonFinite for weights that are not."""
    fit(network, loss, rows, validation=held, batch_size=batch, optimizer=optimizer, **options)
    all_finite(network, what)


def _columns(data: ConceptData, *, pictures: bool = False) -> Batch:
    made = {
        "concepts": torch.as_tensor(np.array(data.concepts), dtype=torch.float32),
        "label": torch.as_tensor(np.array(data.codes)),
    }
    return made | ({"image": torch.as_tensor(data.images)} if pictures else {})


def _head_loss(model: Any, given: Any) -> dict[str, Any]:
    return {"class": cross_entropy(model(given["concepts"]), given["label"])}


def _stack_loss(model: Any, given: Any) -> dict[str, Any]:
    """Σ over heads of each one's mean: the weight is the rows, so that a head's gradient is what it would be alone."""
    logits = model(given["concepts"])
    total, _ = cross_entropy(logits.flatten(0, 1), given["label"].flatten())
    return {"class": (total, torch.tensor(float(len(logits)), device=total.device))}


def _concept_loss(logits: torch.Tensor, given: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    known = ~torch.isnan(given["concepts"])
    return binary_cross_entropy(logits, given["concepts"], known.float())


def _logits(g: nn.Module, data: ConceptData) -> np.ndarray:
    return CBM(g, nn.Identity()).predict_concepts(data.images)


def _read(data: ConceptData, logits: np.ndarray, mode: Mode, input: Space, scale: np.ndarray) -> torch.Tensor:
    """What f is trained on: g's values, or the true concepts in f's space."""
    if mode == "sequential":
        return as_input(torch.as_tensor(logits), input)
    true = torch.as_tensor(np.array(data.concepts), dtype=torch.float32)
    if input != "logit":
        return true
    low, high = (torch.as_tensor(scale[:, i], dtype=torch.float32) for i in (0, 1))
    return torch.where(torch.isnan(true), true, low + (high - low) * true)
