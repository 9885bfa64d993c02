"""Networks, data and trainings that several tests share, also in processes of their own."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from querist.training import Hook, Schedule, fit
from querist.training.losses import binary_cross_entropy, squared_error

ROWS, WIDTH = 53, 5


class Net(nn.Module):
    """Two heads on one trunk, and a part that no loss uses."""

    def __init__(self, *, dropout: float = 0.0, norm: bool = False, dtype=torch.float64):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(11)
            self.trunk = nn.Sequential(
                nn.Linear(WIDTH, 8), nn.BatchNorm1d(8) if norm else nn.Identity(), nn.Tanh(), nn.Dropout(dropout)
            )
            self.spend, self.visit, self.idle = nn.Linear(8, 1), nn.Linear(8, 1), nn.Linear(8, 2)
        self.to(dtype)

    def forward(self, x):
        return self.trunk(x)


def table(dtype=torch.float64, rows: int = ROWS) -> dict[str, torch.Tensor]:
    """Features, two outcomes of which one is often missing, and uneven weights."""
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(rows, WIDTH, generator=draw, dtype=torch.float64)
    spend = x @ torch.arange(1.0, WIDTH + 1, dtype=torch.float64) + torch.randn(
        rows, generator=draw, dtype=torch.float64
    )
    visit = (x[:, 0] > 0).double()
    weight = torch.rand(rows, generator=draw, dtype=torch.float64) ** 3 * 5
    seen = torch.rand(rows, generator=draw, dtype=torch.float64) < 0.3
    spend = torch.where(seen, spend, torch.nan)
    return {
        "x": x.to(dtype),
        "spend": spend.to(dtype),
        "visit": visit.to(dtype),
        "weight": weight.to(dtype),
        "seen": seen,
    }


def loss(model, batch):
    """Calls parts of the network, weighs rows unevenly, and leaves a term out where nobody has it."""
    inner = model(batch["x"])
    terms = {"visit": binary_cross_entropy(model.visit(inner).squeeze(1), batch["visit"], batch["weight"])}
    if batch["seen"].any():
        weight = batch["weight"] * batch["seen"]
        terms["spend"] = squared_error(model.spend(inner).squeeze(1), batch["spend"], weight)
    return terms


def weights_of(batch):
    return {"visit": batch["weight"].sum(), "spend": (batch["weight"] * batch["seen"]).sum()}


class Diary(Hook):
    """Notes what it was shown; its state has tensors, numbers and nested lists."""

    def __init__(self):
        self.told: list[str] = []
        self.norms: list[float] = []
        self.sum = torch.zeros(3, dtype=torch.float64)

    def on_start(self, state):
        self.told.append(f"start {state.step} {state.epoch}")

    def on_step(self, state):
        self.told.append(f"step {state.step} {state.epoch} {sorted(state.losses)}")
        self.norms.append(sum(float(p.detach().double().norm()) for p in state.model.parameters()))
        self.sum += torch.tensor([state.step, state.losses["visit"], state.optimizer.param_groups[0]["lr"]]).double()

    def on_epoch(self, state):
        self.told.append(f"epoch {state.epoch} {sorted(state.metrics)}")

    def on_end(self, state):
        self.told.append(f"end {state.step}")

    def state(self):
        return {"told": self.told, "norms": self.norms, "sum": self.sum}

    def load_state(self, state):
        self.told, self.norms, self.sum = list(state["told"]), list(state["norms"]), state["sum"].clone()


class DieAt(Hook):
    """Ends its own process by SIGKILL after a step."""

    def __init__(self, step: int):
        self.step = step

    def on_step(self, state):
        if state.step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


class Shaken(torch.utils.data.Dataset):
    """Rows with noise from all three global generators."""

    def __init__(self, rows: int = ROWS):
        self.table = table(torch.float32, rows)

    def __len__(self):
        return len(self.table["x"])

    def __getitem__(self, i):
        row = {name: column[i] for name, column in self.table.items()}
        noise = torch.rand(WIDTH) + np.random.rand() + random.random()  # noqa: NPY002
        return row | {"x": row["x"] + 0.1 * noise}


def noisy_loss(model, batch):
    """A loss that draws from all three global generators itself."""
    shift = torch.rand(()) + np.random.rand() + random.gauss(0, 1)  # noqa: NPY002
    return loss(model, {**batch, "x": batch["x"] + 0.01 * shift})


def long_training(
    checkpoint: Path | None, *, resume: bool = True, extra=(), progress=None, every: int | None = 3, **more
):
    """Everything that a resumed training has to take up at once. Returns (network, fit, diary)."""
    model, diary = Net(dropout=0.3, norm=True, dtype=torch.float32), Diary()
    options = {
        "batch_size": 8,
        "epochs": 4,
        "validation": table(torch.float32, 20),
        "patience": 3,
        "optimizer": "adamw",
        "lr": 3e-2,
        "weight_decay": 0.01,
        "schedule": Schedule("step", gamma=0.5, every=9, warmup=4),
        "clip": 1.0,
        "accumulate": 2,
        "log_every": 4,
        "checkpoint_every": every,
        "seed": 7,
        "device": "cpu",
    }
    hooks = [diary, *extra]
    done = fit(
        model, noisy_loss, Shaken(), hooks=hooks, checkpoint=checkpoint, resume=resume and checkpoint is not None,
        progress=progress, **{**options, **more},
    )  # fmt: skip
    return model, done, diary


def tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: one.detach() for name, one in (*model.named_parameters(), *model.named_buffers())}


def same(one: nn.Module, other: nn.Module) -> bool:
    """Bit for bit."""
    a, b = tensors(one), tensors(other)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def apart(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The largest difference of two sets of tensors, relative to the largest entry."""
    return max(float((one[n] - other[n]).abs().max() / one[n].abs().max().clamp(min=1.0)) for n in one)


def mse(model, batch):
    x, y = batch
    error = functional.mse_loss(model(x).squeeze(-1), y, reduction="sum")
    return {"mse": (error, float(len(x)))}


def line(rows: int = 40, dtype=torch.float64):
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(rows, 3, generator=draw, dtype=dtype)
    return x, x @ torch.tensor([1.0, -2.0, 0.5], dtype=dtype) + 0.1


def linear(dtype=torch.float64) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Linear(3, 1).to(dtype)
