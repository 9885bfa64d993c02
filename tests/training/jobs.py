"""What the processes of a group do in tests: functions that another process can import."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import torch
from tests.training.parts import DieAt, Net, line, linear, loss, mse, table, tensors, weights_of

from querist.errors import BadOption, NumericalFailure
from querist.training import Hook, Schedule, fit


class StopInOne(Hook):
    """Only the last process asks to stop."""

    def on_step(self, state):
        if state.step == 3 and not state.is_main:
            state.stop = True


class Rows:
    """A source of one's own whose processes have different numbers of batches."""

    steps = None

    def __init__(self, data, sizes):
        self.data, self.sizes = data, sizes

    def describe(self):
        return {"sizes": self.sizes}

    def epoch(self, epoch, skip, rank, processes, accumulate):
        cuts = np.cumsum([0, *self.sizes])
        order = np.random.default_rng(epoch).permutation(len(self.data[0]))
        for step in range(skip, len(self.sizes)):
            rows = order[cuts[step] : cuts[step + 1]]
            if processes > 1 and step == len(self.sizes) - 1:  # the last batch is process 0's alone
                if rank == 0:
                    yield [tuple(column[rows] for column in self.data)]
                continue
            own = np.array_split(rows, processes)[rank]
            yield [tuple(column[own] for column in self.data)] if len(own) else []


def trainings(folder: str | None = None):
    """Trainings by name: each returns (network, fit)."""

    def two_heads(dtype, **options):
        model = Net(dtype=dtype)
        base = {"batch_size": 13, "epochs": 3, "lr": 0.05, "validation": table(dtype, 11), "seed": 2, "device": "cpu"}
        return model, fit(model, loss, table(dtype), **(base | options))

    def plain(data=None, **options):
        model = linear()
        base = {"batch_size": 8, "epochs": 2, "lr": 0.1, "device": "cpu"}
        return model, fit(model, mse, data or line(), **(base | options))

    return {
        # 53 rows in batches of 13: the last batch is one row, so the second process has none.
        "float64": lambda: two_heads(torch.float64, schedule=Schedule("cosine", warmup=2), clip=0.5),
        "float32": lambda: two_heads(torch.float32),
        "accumulate": lambda: two_heads(torch.float64, accumulate=3),
        "weights": lambda: two_heads(torch.float64, accumulate=2, weights=weights_of, optimizer="sgd"),
        "frozen": lambda: two_heads(torch.float64, frozen=["trunk"], weight_decay=0.1),
        "stopped": lambda: two_heads(torch.float64, epochs=30, patience=2, min_delta=0.3, lr=0.2),
        "score": lambda: plain(
            validation=0.4, score=lambda model: {"norm": float(model.weight.norm())}, monitor="norm"
        ),
        "source": lambda: plain(Rows(line(), [9, 1, 12, 4])),
        "steps": lambda: plain(max_steps=7, epochs=None, log_every=2, batch_size=3),
    }


def outcome(model, done):
    return {
        "tensors": {name: one.detach().clone() for name, one in tensors(model).items()},
        "history": done.history,
        "reason": done.reason,
        "metrics": done.metrics,
        "best": (done.best_step, done.best_epoch, done.restored),
    }


def everything(folder: str) -> None:
    """All trainings and what only a group can show, written to a file per process."""
    rank = torch.distributed.get_rank()
    found = {name: outcome(*train()) for name, train in trainings().items()}
    found["hook"] = fit(linear(), mse, line(), batch_size=8, epochs=5, hooks=[StopInOne()], device="cpu").reason

    # Norm layers: each process has its own running statistics, and process 0's hold.
    norm = Net(norm=True, dropout=0.2)
    first = {name: one.clone() for name, one in norm.state_dict().items()}
    if rank:
        with torch.no_grad():
            norm.spend.weight.zero_()  # the network of process 0 is the one that counts
    fit(norm, loss, table(), batch_size=13, epochs=2, drop_last=True, device="cpu")
    found["norm"] = dict(norm.state_dict())
    norm.load_state_dict(first)

    # Interrupted and taken up again, in the group.
    def long(at, checkpoint, resume=False):
        model = Net(dropout=0.3, norm=True)
        options = {
            "batch_size": 13,
            "epochs": 3,
            "checkpoint_every": 2,
            "patience": 9,
            "validation": table(rows=11),
            "drop_last": True,
        }
        done = fit(
            model, loss, table(), hooks=[Break(at)], checkpoint=checkpoint, resume=resume, device="cpu", **options
        )
        return outcome(model, done) | {"resumed_at": done.resumed_at}

    found["whole"] = long(0, None)
    try:
        long(8, f"{folder}/checkpoint")
    except KeyboardInterrupt:
        found["again"] = long(0, f"{folder}/checkpoint", resume=True)

    for name, options in {"seed": {"seed": rank}, "lr": {"lr": 0.1 + rank}}.items():
        try:
            fit(linear(), mse, line(), epochs=1, device="cpu", **options)
        except BadOption as error:
            found[f"unlike {name}"] = str(error)
    x, y = line()
    try:  # a row of one process only
        fit(
            linear(),
            mse,
            (x, torch.where(torch.arange(40) == 39, torch.inf, y)),
            batch_size=40,
            epochs=1,
            shuffle=False,
        )
    except NumericalFailure as error:
        found["infinite"] = str(error)
    torch.save(found | {"threads": torch.get_num_threads()}, f"{folder}/rank-{rank}.pt")


class Break(Hook):
    def __init__(self, step):
        self.step = step

    def on_step(self, state):
        if state.step == self.step:
            raise KeyboardInterrupt


# ------------------------------------------------------------------------------------------------------- launching


def greet(word: str, *, times: int = 1):
    """A sum over the group, and what process 0 knows of it."""
    ones = torch.ones(1)
    torch.distributed.all_reduce(ones)
    return word * times, ones.item(), os.environ["RANK"], torch.distributed.get_backend()


def fail(folder: str, kind: str) -> None:
    """The second process fails while the first one waits for it."""
    Path(folder, f"pid-{os.getpid()}").touch()
    if torch.distributed.get_rank() == 1:
        if kind == "killed":
            DieAt(0).on_step(type("State", (), {"step": 0}))
        if kind == "plain":
            raise KeyError("no such column")
        if kind == "odd":
            raise Odd(1, 2)
        raise NumericalFailure("The loss is not finite at step 4: mse: sum nan")
    torch.distributed.all_reduce(torch.ones(1))


class Odd(Exception):
    """Pickles, and cannot be read again."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def trained_here(name: str):
    """The networks of every launcher, in a process that leaves a file where relative paths lead."""
    from tests.effects.jobs import train_everywhere

    Path(f"{name}-{torch.distributed.get_rank()}").touch()
    threads = torch.get_num_threads()
    return {"trained": train_everywhere(), "threads": threads, "backend": torch.distributed.get_backend()}


def wait_for_ever(folder: str) -> None:
    """Says that it is here, and stays."""
    Path(folder, f"pid-{os.getpid()}").touch()
    time.sleep(600)


def train_in_group(folder: str) -> str:
    """A training that is killed in one process where the folder says so."""
    model = linear()
    die, once = Path(folder, "die").exists(), Path(folder, "die-once")
    if torch.distributed.get_rank() == 1:
        die |= once.exists()
        once.unlink(missing_ok=True)
    else:
        die = False
    done = fit(
        model, mse, line(), batch_size=8, epochs=4, checkpoint=f"{folder}/checkpoint", checkpoint_every=3, resume=True,
        hooks=[DieAt(11 if die else 0)], device="cpu",
    )  # fmt: skip
    if torch.distributed.get_rank() == 0:
        torch.save(model.state_dict(), f"{folder}/model.pt")
    return f"{done.resumed_at} {done.steps}"
