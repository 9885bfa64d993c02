"""One cell: a network with the first blocks frozen is trained on a target, at one rate or the best of several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from querist.errors import InvariantBroken, NumericalFailure, TooFewRows
from querist.features.freezing._prefix import Prefix, evaluating
from querist.features.freezing._rows import Held, Room
from querist.features.inputs import as_inputs
from querist.statistics import stream
from querist.training import fit
from querist.training.losses import cross_entropy

if TYPE_CHECKING:
    from querist.features.freezing._arms import Tuned
    from querist.features.freezing._blocks import Blocks
    from querist.training import Hook

__all__ = ["Plan", "Rate", "Trained", "train_cell"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How cells are trained: the same for every arm.

    rates: one learning rate, or several of which the one with the best accuracy on `validation` (a share of the training rows)
    is taken; each is given the same epochs. seed: of the order of rows; validation_seed: of the rows set aside.
    name: what hooks are told of the cell, its rate behind it.
    """

    epochs: int = 5
    batch_size: int = 32
    optimizer: str = "adam"
    rates: tuple[float, ...] = (1e-3,)
    weight_decay: float = 0.0
    validation: float = 0.2
    seed: int = 0
    validation_seed: int = 0
    device: str = "auto"
    cache: bool = True
    name: str = ""


@dataclass(frozen=True, slots=True)
class Rate:
    """One training: its rate, its status, and accuracy and loss on the validation rows (None where none were set aside)."""

    learning_rate: float
    status: str
    reason: str
    accuracy: float | None
    loss: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Trained:
    """What a cell ended with: accuracy and loss on the test rows, None where it diverged.

    status: "ok" or "diverged". cached: whether the prefix was run once (0 frozen blocks have none).
    """

    status: str
    reason: str
    learning_rate: float | None
    accuracy: float | None
    loss: float | None
    epochs: int
    trained_parameters: int
    cached: bool
    n_train: int
    n_validation: int
    n_test: int
    rates: tuple[Rate, ...]


def train_cell(
    model: Tuned,
    blocks: Blocks,
    k: int,
    train: Held,
    test: Held,
    plan: Plan,
    *,
    room: Room | None = None,
    hooks: Sequence[Hook] = (),
) -> Trained:
    """Train a network in place with its first k blocks frozen, and test it once.

    What is frozen stays in evaluation mode and without gradients. The prefix is run once for all epochs and rates (`Prefix`)
    where that is the same computation, and not where hooks watch: they are shown the whole network. A training whose loss
    stops being finite is kept as diverged. Raises InvariantBroken where a frozen tensor changed, TooFewRows.
    """
    frozen = [f"net.{name}" for name in blocks.frozen(k)]
    room = room or Room(1 << 62)
    fitting, held_out = np.arange(len(train)), np.arange(0)
    if len(plan.rates) > 1:
        fitting, held_out = _set_aside(len(train), plan)
    prefix = Prefix(model, blocks.within(k)) if k and plan.cache and not hooks else None
    if prefix is not None and not prefix.holds(train, plan.batch_size):
        prefix = None
    rows = _Rows(model, prefix, plan.batch_size)
    rows.add("train", train, room)
    rows.add("test", test, room)
    start = _state(model)
    best: tuple[tuple[float, float], float, dict[str, Any]] | None = None
    tried = []
    for rate in plan.rates:
        _restore(model, start)
        status, reason, seconds = _fitted(model, rows, fitting, frozen, rate, plan, hooks)
        found = rows.judge("train", held_out) if len(held_out) and status == "ok" else None
        if found is not None and not math.isfinite(found[1]):
            status, reason, found = "diverged", "the loss on the validation rows is not finite", None
        tried.append(Rate(rate, status, reason, *(found or (None, None)), seconds))
        if status == "ok":
            worth = (found[0], -found[1]) if found else (0.0, 0.0)
            if best is None or worth > best[0]:
                best = (worth, rate, _state(model) if len(plan.rates) > 1 else {})
    if best is not None and best[2]:
        _restore(model, best[2])
    _unchanged(model, start, frozen)
    tested = rows.judge("test", np.arange(len(test))) if best is not None else None
    if tested is not None and not math.isfinite(tested[1]):
        tested = None
        tried[-1:] = [_as_diverged(tried[-1], "the loss on the test rows is not finite")]
    return Trained(
        status="ok" if tested else "diverged",
        reason="" if tested else "; ".join(f"rate {one.learning_rate:g}: {one.reason}" for one in tried if one.reason),
        learning_rate=best[1] if best is not None else None,
        accuracy=tested[0] if tested else None,
        loss=tested[1] if tested else None,
        epochs=plan.epochs,
        trained_parameters=_trainable(model, frozen),
        cached=prefix is not None,
        n_train=len(fitting),
        n_validation=len(held_out),
        n_test=len(test),
        rates=tuple(tried),
    )


def _as_diverged(one: Rate, reason: str) -> Rate:
    return Rate(one.learning_rate, "diverged", reason, None, None, one.seconds)


def _set_aside(n: int, plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    count = max(1, round(plan.validation * n))
    if count >= n:
        raise TooFewRows("No rows are left to train on", value=n, allowed="2 or more for several rates")
    drawn = stream(plan.validation_seed, "freeze", "validation").permutation(n)
    return np.sort(drawn[count:]), np.sort(drawn[:count])


class _Rows:
    """Rows as the network is given them: inputs, and beside them what the prefix gave of them."""

    def __init__(self, model: Tuned, prefix: Prefix | None, batch_size: int):
        self.model, self.prefix, self.batch_size = model, prefix, batch_size
        self.sets: dict[str, dict[str, np.ndarray]] = {}

    def add(self, name: str, rows: Held, room: Room) -> None:
        """Hold a set."""
        kept = self.prefix.fill(rows, room, self.batch_size) if self.prefix is not None else []
        self.sets[name] = {**rows.inputs, **{f"z{i}": one for i, one in enumerate(kept)}, "y": rows.labels}

    def logits(self, model: Any, batch: Mapping[str, Any]) -> torch.Tensor:
        """What the network says of a batch."""
        if self.prefix is not None:
            self.prefix.load(batch)
        return model(as_inputs(batch))

    def loss(self, model: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Cross-entropy in nats, for `fit`."""
        return {"cross_entropy": cross_entropy(self.logits(model, batch), batch["y"])}

    def judge(self, name: str, rows: np.ndarray) -> tuple[float, float]:
        """Accuracy and mean loss on rows of a set, in evaluation mode; the loss may not be finite."""
        where = next(self.model.parameters()).device
        right, total = 0, 0.0
        with evaluating(self.model), _standing(self.prefix):
            for start in range(0, len(rows), self.batch_size):
                part = rows[start : start + self.batch_size]
                batch = {
                    key: torch.from_numpy(np.array(value[part])).to(where) for key, value in self.sets[name].items()
                }
                logits = self.logits(self.model, batch).double()
                right += int((logits.argmax(1) == batch["y"]).sum())
                total += float(torch.nn.functional.cross_entropy(logits, batch["y"], reduction="sum"))
        return right / len(rows), total / len(rows)


def _standing(prefix: Prefix | None) -> Any:
    from contextlib import nullcontext

    return nullcontext() if prefix is None else prefix.standing_in()


def _fitted(
    model: Tuned,
    rows: _Rows,
    fitting: np.ndarray,
    frozen: Sequence[str],
    rate: float,
    plan: Plan,
    hooks: Sequence[Hook],
) -> tuple[str, str, float]:
    whole = len(fitting) == len(rows.sets["train"]["y"])
    data = {name: value if whole else value[fitting] for name, value in rows.sets["train"].items()}
    if rows.prefix is not None:  # its modules are not there while they are replaced
        away = [f"net.{path}" for path in rows.prefix.paths]
        frozen = [name for name in frozen if not any(name == top or name.startswith(f"{top}.") for top in away)]
    with _standing(rows.prefix):
        try:
            done = fit(
                model,
                rows.loss,
                data,
                batch_size=plan.batch_size,
                epochs=plan.epochs,
                optimizer=plan.optimizer,
                lr=rate,
                weight_decay=plan.weight_decay,
                frozen=frozen,
                hooks=hooks,
                device=plan.device,
                seed=plan.seed,
                name=f"{plan.name} rate={rate:g}".strip(),
            )
        except NumericalFailure as error:
            return "diverged", str(error), 0.0
    return "ok", "", done.seconds


# ---------------------------------------------------------------------------------------------------------- weights


def _state(model: Tuned) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in _tensors(model).items()}


def _tensors(model: Tuned) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _restore(model: Tuned, state: Mapping[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, value in _tensors(model).items():
            value.copy_(state[name])


def _within(name: str, frozen: Sequence[str]) -> bool:
    return any(name == top or name.startswith(f"{top}.") for top in frozen)


def _unchanged(model: Tuned, start: Mapping[str, torch.Tensor], frozen: Sequence[str]) -> None:
    for name, value in _tensors(model).items():
        before = start[name].to(value.device)
        if _within(name, frozen) and not torch.equal(_bits(value), _bits(before)):
            raise InvariantBroken(f"The frozen tensor {name.removeprefix('net.')} was changed by training")


def _bits(value: torch.Tensor) -> torch.Tensor:
    return value.detach().contiguous().reshape(-1).view(torch.uint8)


def _trainable(model: Tuned, frozen: Sequence[str]) -> int:
    return sum(
        value.numel() for name, value in model.named_parameters() if value.requires_grad and not _within(name, frozen)
    )
