"""A training under way: epochs, steps, validations, hooks and checkpoints in their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from querist.errors import TooFewRows
from querist.training.batches import Batches, Rows
from querist.training.fitted import Fit, History, Reason
from querist.training.hooks import Hook, TrainState
from querist.training.optimizers import describe
from querist.training.random_state import capture, restore, seed_all
from querist.training.totals import means
from querist.training.validation import Best, Validation, copy_into, tensors_of

if TYPE_CHECKING:
    import torch
    from torch import nn

    from querist.training.accelerate import Workplace
    from querist.training.checkpoint import Store
    from querist.training.freezing import Modes
    from querist.training.schedules import Rate
    from querist.training.step import Step

__all__ = ["Course", "Report"]

Report = Callable[[int, int, str], None]
"""`report(steps, of, "epoch 3")` after every step, in process 0; `of` is 0 where the number of steps is unknown."""


@dataclass
class Course:
    """A training at work; `position` is what a checkpoint must know of it beside the parts' own states."""

    model: nn.Module
    work: Workplace
    modes: Modes
    source: Rows | Batches
    optimizer: torch.optim.Optimizer
    step: Step
    validation: Validation | None
    best: Best
    rate: Rate
    hooks: list[Hook]
    epochs: int | None
    max_steps: int | None
    total: int
    every: dict[str, int | None]
    seed: int
    progress: Report | None
    name: str = ""

    def __post_init__(self) -> None:
        self.state = TrainState(
            self.model, self.optimizer, is_main=self.work.is_main, device=self.work.device, name=self.name
        )
        self.history = History()
        self.offset = 0  # steps done in this epoch
        self.validated_at = 0
        self.reason: Reason | None = None
        self.seconds = 0.0
        self.begun = time.monotonic()
        self.lrs = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.lr = self.lrs[0]

    def run(self, store: Store | None, config: Mapping[str, Any]) -> Fit:
        """Train to the end."""
        self.store, self.config = store, config
        seed_all(self.seed, "training", "draws", self.work.rank, device=self.work.device)
        saved = store.load(config) if store is not None else None
        resumed_at = None
        if saved is not None:
            self._load(saved)
            resumed_at = self.state.step
        self._tell("on_start")
        self.reason = self.reason or self._ended()
        while self.reason is None:
            if self._epoch():
                self._end_epoch()
        if self.validation is not None and self.validated_at != self.state.step:
            self._validate()
        if self.history.window:
            self.history.close(self.state.step, self.state.epoch + 1, self.lr)
        if resumed_at != self.state.step or saved is None or saved["reason"] != self.reason:
            self._save()
        self.best.put_back(self.model)
        self._tell("on_end")
        for group, lr in zip(self.optimizer.param_groups, self.lrs, strict=True):
            group["lr"] = lr  # an optimiser of the caller's own may train again
        assert self.reason is not None
        return Fit(
            history=self.history.frame(),
            steps=self.state.step,
            epochs=self.state.epoch,
            reason=self.reason,
            seconds=self._spent(),
            metrics=dict(self.state.metrics),
            best_value=self.best.value,
            best_step=self.best.step if self.best.value is not None else None,
            best_epoch=self.best.epoch if self.best.value is not None else None,
            restored=self.best.weights is not None,
            resumed_at=resumed_at,
        )

    # ------------------------------------------------------------------------------------------------------- steps

    def _epoch(self) -> bool:
        """The rest of an epoch; False where the training ended before it did."""
        work = self.work
        stream = self.source.epoch(self.state.epoch, self.offset, work.rank, work.processes, self.step.accumulate)
        while True:
            micro = next(stream, None)
            if micro is None and work.processes == 1:
                break
            factor = self.rate.factor(self.state.step, self.state.epoch)
            for group, lr in zip(self.optimizer.param_groups, self.lrs, strict=True):
                group["lr"] = lr * factor
            totals = self.step.take(micro, self.state.step + 1)
            if totals is None:
                break
            self._stepped(totals)
            if self.reason is not None:
                return self.offset == self.source.steps
        if self.offset == 0:
            raise TooFewRows(
                "An epoch had no batches", value=f"epoch {self.state.epoch + 1}", allowed="at least one batch"
            )
        return True

    def _stepped(self, totals: Mapping[str, tuple[float, float]]) -> None:
        state = self.state
        state.step += 1
        self.offset += 1
        state.losses = means(totals)
        self.lr = float(self.optimizer.param_groups[0]["lr"])
        self.history.add(totals)
        self._tell("on_step")
        if self._due("validate") and self.validation is not None:
            self._validate()
        elif self._due("log"):
            self.history.close(state.step, state.epoch + 1, self.lr)
        self.reason = self.reason or self._ended()
        if self.every["checkpoint"] is not None and self._due("checkpoint") and self.reason is None:
            self._save()
        if self.progress is not None:
            self.progress(state.step, self.total, f"epoch {state.epoch + 1}")

    def _end_epoch(self) -> None:
        state = self.state
        state.epoch += 1
        self.offset = 0
        if self.validation is not None and self.every["validate"] is None:
            self._validate()
        self.history.close(state.step, state.epoch, self.lr)
        self._tell("on_epoch")
        self.reason = self.reason or self._ended()
        if self.every["checkpoint"] is None and self.reason is None:
            self._save()

    def _validate(self) -> None:
        assert self.validation is not None
        state = self.state
        within = state.epoch + (self.offset > 0)
        state.metrics = self.validation.run(state.step)
        self.validated_at = state.step
        value = self.best.validated(state.metrics, state.step, within, self.model)
        self.rate.validated(value)
        self.history.close(state.step, within, self.lr, state.metrics)
        if self.best.exhausted and self.reason is None:
            self.reason = "early-stopping"

    def _ended(self) -> Reason | None:
        if self.state.stop:
            return "hook"
        if self.max_steps is not None and self.state.step >= self.max_steps:
            return "max_steps"
        if self.epochs is not None and self.state.epoch >= self.epochs:
            return "epochs"
        return None

    def _due(self, what: str) -> bool:
        every = self.every[what]
        return every is not None and self.state.step % every == 0

    def _tell(self, moment: str) -> None:
        for hook in self.hooks:
            getattr(hook, moment)(self.state)
        if self.hooks and moment != "on_end":
            self.state.stop = self.work.any(self.state.stop)

    # ------------------------------------------------------------------------------------------------- checkpoints

    def _spent(self) -> float:
        return self.seconds + time.monotonic() - self.begun

    def describe(self, loss: Any, accumulate: int, clip: float | None, precision: str) -> dict[str, Any]:
        """What a checkpoint's reader, and every process, must have in common."""
        tensors = tensors_of(self.model)
        valid = self.validation
        return {
            "model": {
                "class": f"{type(self.model).__module__}.{type(self.model).__qualname__}",
                "tensors": {name: f"{str(one.dtype)[6:]}{list(one.shape)}" for name, one in tensors.items()},
            },
            "loss": _name(loss),
            "frozen": [*self.modes.modules, *self.modes.parameters],
            "data": dict(self.source.describe()),
            "validation": None if valid is None else {**valid.source.describe(), **self.best.describe()},
            "metric": [_name(valid.metric), _name(valid.score)] if valid is not None else None,
            "optimizer": describe(self.optimizer, self.model),
            "schedule": self.rate.describe(),
            "hooks": [f"{type(hook).__module__}.{type(hook).__qualname__}" for hook in self.hooks],
            "every": {name: value for name, value in self.every.items() if name != "checkpoint"},
            "accumulate": accumulate,
            "clip": clip,
            "precision": precision,
            "processes": self.work.processes,
            "device": self.work.device.type,
            "seed": self.seed,
        }

    def _save(self) -> None:
        if self.store is None:
            return
        import torch

        own = capture(self.work.device)
        packed = torch.cat([one.reshape(-1).contiguous().view(torch.uint8) for one in own.values()])
        random_states = self.work.gather(packed)
        if not self.work.is_main:
            self.work.any(False)
            return
        state = {
            "position": {"step": self.state.step, "epoch": self.state.epoch, "offset": self.offset},
            "reason": self.reason,
            "seconds": self._spent(),
            "validated_at": self.validated_at,
            "losses": self.state.losses,
            "metrics": self.state.metrics,
            "lr": self.lr,
            "model": tensors_of(self.model),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.work.state(),
            "rate": self.rate.state(),
            "best": self.best.state(),
            "history": self.history.state(),
            "hooks": [hook.state() for hook in self.hooks],
            "random": random_states,
        }
        self.store.save(state, self.config)
        self.work.any(False)  # nobody goes on, and may be killed, before the checkpoint is whole

    def _load(self, saved: Mapping[str, Any]) -> None:
        copy_into(self.model, saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.work.load_state(saved["scaler"])
        self.rate.load_state(saved["rate"])
        self.best.load_state(saved["best"])
        self.history.load_state(saved["history"])
        for hook, state in zip(self.hooks, saved["hooks"], strict=True):
            hook.load_state(state)
        where = saved["position"]
        self.state.step, self.state.epoch, self.offset = where["step"], where["epoch"], where["offset"]
        self.state.losses, self.state.metrics = dict(saved["losses"]), dict(saved["metrics"])
        self.validated_at, self.seconds, self.lr = saved["validated_at"], saved["seconds"], saved["lr"]
        # A training that ended for want of steps may have been given more.
        self.reason = saved["reason"] if saved["reason"] in ("early-stopping", "hook") else None
        template = capture(self.work.device)
        flat = saved["random"][self.work.rank]
        found, start = {}, 0
        for name, one in template.items():
            size = one.numel() * one.element_size()
            found[name] = flat[start : start + size].clone().view(one.dtype)
            start += size
        restore(found, self.work.device)


def _name(function: Any) -> str | None:
    if function is None:
        return None
    plain = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', type(function).__module__)}.{plain}"
