"""Hooks inside other trainers, against stand-ins that call callbacks in the order in which the real ones do.

The stand-ins follow lightning.pytorch 2.x (FitLoop, Callback) and transformers 4.46 and later (Trainer, CallbackHandler,
TrainerState.stateful_callbacks); neither package is needed here.
"""

from __future__ import annotations

import json
import sys
import types
from types import SimpleNamespace

import pytest
import torch
from tests.harness import Bad, check_bad_input
from torch import nn

from querist.errors import BadOption, MissingExtra
from querist.training import Hook, adapters


class Watcher(Hook):
    """Notes what it is shown; asks to stop at a step."""

    def __init__(self, stop=None, twin=None):
        self.told, self.stop_at, self.count = [], stop, torch.zeros(2, dtype=torch.float64)

    def note(self, what, state):
        self.told.append((what, state.step, state.epoch, dict(state.losses), dict(state.metrics)))
        self.model, self.optimizer, self.is_main, self.device = (
            state.model,
            state.optimizer,
            state.is_main,
            state.device,
        )

    def on_start(self, state):
        self.note("start", state)

    def on_step(self, state):
        self.note("step", state)
        self.count += state.step
        state.stop = state.step == self.stop_at

    def on_epoch(self, state):
        self.note("epoch", state)

    def on_end(self, state):
        self.note("end", state)

    def state(self):
        return {"count": self.count, "n": len(self.told)}

    def load_state(self, state):
        self.count, self.loaded = state["count"], state["n"]


# ---------------------------------------------------------------------------------------------------------- Lightning


class LightningCallback:
    @property
    def state_key(self):
        return type(self).__qualname__

    def state_dict(self):
        return {}

    def load_state_dict(self, state_dict):
        pass

    def __getattr__(self, name):
        if name.startswith("on_") or name in ("setup", "teardown"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)


class LightningTrainer:
    """The order of calls of `Trainer.fit`, with two micro-batches to a step."""

    accumulate_grad_batches = 2

    def __init__(self, callbacks, max_epochs=2):
        self.callbacks, self.max_epochs = callbacks, max_epochs
        self.global_step = self.current_epoch = 0
        self.should_stop = self.sanity_checking = False
        self.is_global_zero = True
        self.callback_metrics, self.optimizers, self.calls = {}, [], []

    def call(self, name, *args):
        self.calls.append(name)
        for callback in self.callbacks:
            getattr(callback, name)(self, self.module, *args)

    def fit(self, module, checkpoint=None):
        self.module = module
        self.optimizers = [torch.optim.SGD(module.parameters(), lr=0.1)]
        self.call("setup", "fit")
        for callback in self.callbacks if checkpoint else []:
            callback.load_state_dict(checkpoint["callbacks"].get(callback.state_key, {}))
        self.call("on_fit_start")
        self.sanity_checking = True
        self.callback_metrics = {"val_loss": torch.tensor(9.0)}
        self.call("on_validation_end")
        self.sanity_checking = False
        self.call("on_train_start")
        while self.current_epoch < self.max_epochs and not self.should_stop:
            for i in range(6):
                self.global_step += i % 2
                # The closure's result: divided by the number of micro-batches.
                self.call("on_train_batch_end", {"loss": torch.tensor(1.0 + self.global_step) / 2}, None, i)
                if self.should_stop:
                    break
            self.callback_metrics = {"val_loss": torch.tensor(0.5), "vector": torch.ones(3)}
            self.call("on_validation_end")
            self.call("on_train_epoch_end")
            self.current_epoch += 1
        self.call("on_train_end")

    def dump(self):
        return {"callbacks": {callback.state_key: callback.state_dict() for callback in self.callbacks}}


class LightningModule(nn.Linear):
    device = torch.device("cpu")


@pytest.fixture
def lightning(monkeypatch):
    package = types.ModuleType("lightning")
    package.pytorch = types.ModuleType("lightning.pytorch")
    package.pytorch.Callback = LightningCallback
    monkeypatch.setitem(sys.modules, "lightning", package)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", package.pytorch)


def test_lightning_shows_a_training_to_a_hook(lightning):
    hook = Watcher()
    callback = adapters.lightning(hook)
    assert isinstance(callback, LightningCallback)
    assert callback.hook is hook
    trainer, module = LightningTrainer([callback]), LightningModule(2, 1)
    assert callback.state_dict() == {}
    trainer.fit(module)
    valid = {"val_loss": 0.5}
    assert hook.told == [
        ("start", 0, 0, {}, {}),
        *[("step", s, 0, {"loss": 1.0 + s}, {}) for s in (1, 2, 3)],
        ("epoch", 3, 1, {"loss": 4.0}, valid),
        *[("step", s, 1, {"loss": 1.0 + s}, valid) for s in (4, 5, 6)],
        ("epoch", 6, 2, {"loss": 7.0}, valid),
        ("end", 6, 2, {"loss": 7.0}, valid),
    ]
    assert hook.model is module
    assert hook.optimizer is trainer.optimizers[0]
    assert hook.is_main
    assert hook.device == torch.device("cpu")


def test_lightning_stops_and_takes_up_again(lightning):
    hook, other = Watcher(stop=2), Watcher()
    trainer = LightningTrainer([adapters.lightning(hook), adapters.lightning(other, name="other")])
    trainer.fit(LightningModule(2, 1))
    assert trainer.should_stop
    assert [told[0] for told in other.told] == ["start", "step", "step", "epoch", "end"]
    saved = trainer.dump()
    assert set(saved["callbacks"]) == {"querist.Watcher", "querist.other"}
    again, fresh = Watcher(), Watcher()
    second = LightningTrainer([adapters.lightning(again), adapters.lightning(fresh, name="third")], max_epochs=0)
    second.fit(LightningModule(2, 1), saved)
    assert again.count.tolist() == [3.0, 3.0]
    assert again.loaded == len(hook.told)
    assert not hasattr(fresh, "loaded"), "it was not part of that training"


# ------------------------------------------------------------------------------------------------------- transformers


class TrainerCallback:
    def __getattr__(self, name):
        if name.startswith("on_"):
            return lambda args, state, control, **kwargs: None
        raise AttributeError(name)


class ExportableState:
    def state(self):
        raise NotImplementedError


class HuggingFaceTrainer:
    """The order of calls of `Trainer.train`, its JSON state, and how it makes callbacks anew from it."""

    def __init__(self, model, callbacks, epochs=2, steps=3, log=2, restore=True):
        self.model, self.callbacks, self.epochs, self.steps, self.log = model, list(callbacks), epochs, steps, log
        self.restore = restore
        self.args = SimpleNamespace(device=torch.device("cpu"))
        self.control = SimpleNamespace(should_training_stop=False)
        self.state = SimpleNamespace(global_step=0, epoch=0, is_world_process_zero=True)
        self.state.stateful_callbacks = {
            type(c).__name__: c.state() for c in self.callbacks if isinstance(c, ExportableState)
        }
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        self.optimizer = SimpleNamespace(optimizer=inner)  # Accelerate's wrapper

    def call(self, event, **kwargs):
        for callback in self.callbacks:
            found = getattr(callback, event)(
                self.args, self.state, self.control, model=self.model, optimizer=self.optimizer, **kwargs
            )
            self.control = self.control if found is None else found

    def train(self, checkpoint=None):
        if checkpoint is not None:
            self.load(json.loads(checkpoint))
        self.call("on_train_begin")
        for epoch in range(self.state.global_step // self.steps, self.epochs):
            self.call("on_epoch_begin")
            for step in range(self.state.global_step % self.steps, self.steps):
                self.call("on_step_begin")
                self.call("on_optimizer_step")
                self.state.global_step += 1
                self.state.epoch = epoch + (step + 1) / self.steps
                self.call("on_step_end")
                if self.state.global_step % self.log == 0:
                    self.call("on_log", logs={"loss": float(self.state.global_step), "learning_rate": 0.1})
                if self.control.should_training_stop:
                    break
            self.call("on_epoch_end")
            self.call("on_evaluate", metrics={"eval_loss": 0.5 + epoch, "epoch": epoch, "kind": "text"})
            if self.control.should_training_stop:
                break
        self.call("on_train_end")

    def dump(self):
        for callback in self.callbacks:
            if isinstance(callback, ExportableState):
                # As the Trainer does: of a callback that it has not met it is a KeyError.
                assert type(callback).__name__ in self.state.stateful_callbacks
                self.state.stateful_callbacks[type(callback).__name__] = callback.state()
        return json.dumps({"global_step": self.state.global_step, "stateful_callbacks": self.state.stateful_callbacks})

    def load(self, saved):
        self.state.global_step = saved["global_step"]
        self.state.epoch = saved["global_step"] / self.steps
        self.state.stateful_callbacks = saved["stateful_callbacks"]
        made = []
        for name, data in saved["stateful_callbacks"].items() if self.restore else []:
            for callback in [c for c in self.callbacks if type(c).__name__ == name]:
                new = type(callback)(**data["args"])
                for attribute, value in data["attributes"].items():
                    setattr(new, attribute, value)
                made.append(new)
                self.callbacks = [c for c in self.callbacks if type(c) is not type(new)]
        self.callbacks += made


@pytest.fixture
def transformers(monkeypatch):
    package, inner = types.ModuleType("transformers"), types.ModuleType("transformers.trainer_callback")
    package.TrainerCallback = inner.TrainerCallback = TrainerCallback
    inner.ExportableState = ExportableState
    monkeypatch.setitem(sys.modules, "transformers", package)
    monkeypatch.setitem(sys.modules, "transformers.trainer_callback", inner)


def test_transformers_shows_a_training_to_a_hook(transformers):
    hook = Watcher()
    model = nn.Linear(2, 1)
    wrapped = nn.DataParallel(model)
    trainer = HuggingFaceTrainer(wrapped, [adapters.transformers(hook)])
    trainer.train()
    first = {"eval_loss": 0.5, "epoch": 0.0}
    second = {"eval_loss": 1.5, "epoch": 1.0}
    assert hook.told == [
        ("start", 0, 0, {}, {}),
        ("step", 1, 0, {}, {}),
        ("step", 2, 0, {}, {}),
        ("step", 3, 0, {"loss": 2.0}, {}),
        ("epoch", 3, 1, {"loss": 2.0}, {}),
        ("step", 4, 1, {"loss": 2.0}, first),
        ("step", 5, 1, {"loss": 4.0}, first),
        ("step", 6, 1, {"loss": 4.0}, first),
        ("epoch", 6, 2, {"loss": 6.0}, first),
        ("end", 6, 2, {"loss": 6.0}, second),
    ]
    assert hook.model is model
    assert isinstance(hook.optimizer, torch.optim.SGD)
    assert hook.is_main


def test_transformers_stops_and_takes_up_again(transformers):
    hook, other = Watcher(stop=4), Watcher()
    callbacks = [adapters.transformers(hook), adapters.transformers(other, name="other")]
    trainer = HuggingFaceTrainer(nn.Linear(2, 1), callbacks)
    trainer.train()
    assert trainer.control.should_training_stop
    assert trainer.state.global_step == 4
    saved = trainer.dump()
    assert set(json.loads(saved)["stateful_callbacks"]) == {"Querist_Watcher", "Querist_other"}
    again = [Watcher(), Watcher()]
    callbacks = [adapters.transformers(again[0]), adapters.transformers(again[1], name="other")]
    second = HuggingFaceTrainer(nn.Linear(2, 1), callbacks)
    second.train(saved)
    assert len(second.callbacks) == 2
    for new, old in zip(again, (hook, other), strict=True):
        assert new.loaded == len(old.told)
        assert new.count.tolist() == [10.0 + 5 + 6] * 2
        assert [told[:3] for told in new.told] == [
            ("start", 4, 1), ("step", 5, 1), ("step", 6, 1), ("epoch", 6, 2), ("end", 6, 2),
        ]  # fmt: skip
    third = HuggingFaceTrainer(nn.Linear(2, 1), [adapters.transformers(plain := Watcher())], restore=False)
    third.train(saved)
    assert not hasattr(plain, "loaded")
    assert plain.told[0][:3] == ("start", 4, 1)


# ---------------------------------------------------------------------------------------------------------- bad input


def test_refusals(monkeypatch):
    hook = Watcher()
    for name in ("lightning", "lightning.pytorch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    check_bad_input(
        [
            Bad(lambda: adapters.lightning(hook), MissingExtra, ["pip install 'querist[lightning]'"]),
            Bad(lambda: adapters.transformers(hook), MissingExtra, ["pip install 'querist[transformers]'"]),
            Bad(lambda: adapters.lightning(print), BadOption, ["no hook"]),
            Bad(lambda: adapters.transformers(hook, name="a b"), BadOption, ["a b"]),
        ]
    )
    assert callable(adapters.lightning)
    assert callable(adapters.transformers)
