"""The networks of the effects room against dense products, against CausalML's DragonNet, and streamed batches against batches in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.peers import peer
from benchmarks.timing import Ratio, cost, gain, seconds
from querist.effects.baselines import DragonNet
from querist.effects.links import Link, Links
from querist.effects.network import MTMT, Architecture, Network
from querist.effects.network._members import latents_and_balance, stream_loss

DRAGONS = {"rows": 32_768, "batch": 1024, "width": 200, "epochs": 3}


def ratios() -> Iterator[Ratio]:
    """Arms at predict, a training step, whole trainings, the feed."""
    yield from network()
    yield from dragons()
    yield from feed()


def users(n: int, arms: int = 2) -> dict[str, torch.Tensor]:
    """Rows of twelve numbers, given one of the arms, with two outcomes."""
    drawn = torch.Generator().manual_seed(0)
    return {
        "numbers": torch.randn(n, 12, generator=drawn),
        "missing": torch.zeros(n, 12, dtype=torch.bool),
        "codes": torch.zeros(n, 0, dtype=torch.long),
        "arm": torch.randint(0, arms + 1, (n,), generator=drawn),
        "y": torch.randn(n, 2, generator=drawn),
        "weight": torch.ones(n, 2),
    }


def net(arms: int) -> Network:
    """The default network on twelve numbers."""
    return Network(Architecture(12, (), (), arms, (1, 1), (1 / arms,) * arms))


def network() -> Iterator[Ratio]:
    """One encoding of a user serves all arms; share of the dense products' speed that a training step reaches."""
    rows = users(4096)
    encoded = rows["numbers"], rows["missing"], rows["codes"]
    nets = {arms: net(arms).eval() for arms in (1, 8)}

    def predict(arms: int) -> None:
        with torch.no_grad():
            nets[arms](*encoded)

    times = seconds({"one arm": lambda: predict(1), "eight": lambda: predict(8)}, rounds=5)
    yield cost("Predict 4,096 rows: 8 arms over 1", times, "one arm", 1.5, ours="eight")
    learner = net(2)
    optimiser = torch.optim.AdamW(learner.parameters(), 1e-3)
    loss = stream_loss(Links([Link("identity"), Link("identity")]), ("a", "b"), {}, latents_and_balance(None, 1.0))

    def step() -> None:
        terms = loss(learner, rows)
        sum(total / weight for total, weight in terms.values()).backward()
        optimiser.step()
        optimiser.zero_grad()

    with FlopCounterMode(display=False) as count:
        step()
    square, limit = torch.randn(1024, 1024), "as many FLOPs in dense products"
    times = seconds({"ours": step, limit: lambda: square @ square}, rounds=3)
    times[limit] *= count.get_total_flops() / (2 * 1024**3)
    yield cost("Training step of MTMT, 4,096 rows: over dense products", times, limit, 2)


def dragons() -> Iterator[Ratio]:
    """Three epochs of the same network (three layers of 200, two of 100 for each arm, targeted regularisation) on the same rows.

    Ours is the whole fit, checks and set-up included; of the peer's only the epochs count, its steps being compiled before.
    """
    n, rng = DRAGONS["rows"], np.random.default_rng(0)
    x, t = rng.standard_normal((n, 12)), rng.integers(0, 2, n)
    y = x[:, 0] + t * x[:, 1] + rng.standard_normal(n)
    options = {"width": DRAGONS["width"], "epochs": DRAGONS["epochs"], "batch_size": DRAGONS["batch"]}
    common = {"val_fraction": 0.0, "control": 0}
    name = "CausalML's DragonNet"
    what = f"DragonNet, {n:,} x 12, {DRAGONS['epochs']} epochs: {name} over ours"
    with peer("dragonnet", {"x": x, "y": y, "t": t}, **DRAGONS) as causalml:
        if not causalml:
            yield Ratio(what, None, 1, False, named=name, absent=causalml.absent)
            return
        outcomes = {"y": y}
        times = seconds(
            {
                "ours": lambda: DragonNet(**options, **common).fit(x, t, outcomes),
                name: causalml.timed("epochs"),
            },
            rounds=3,
        )
    yield gain(what, times, name, 1)


def feed() -> Iterator[Ratio]:
    """Rows per second of a training from a Parquet file in eight pieces over those from memory.

    By CPU seconds, of all threads: what a reader does beside the training counts in full, though on a free core it costs no time.
    """
    n, names = 32_768, [f"x{i}" for i in range(12)]
    rows = users(n)
    frame = pl.DataFrame(rows["numbers"].numpy(), schema=names).with_columns(
        arm=pl.Series(rows["arm"].numpy()), a=pl.Series(rows["y"][:, 0].numpy()), b=pl.Series(rows["y"][:, 1].numpy())
    )
    options = {"epochs": 1, "folds": 1, "shrink": False, "val_fraction": 0.0, "batch_size": 1024, "control": 0}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        frame.write_parquet(path, row_group_size=n // 8)
        named = {"arm": "arm", "outcomes": {"a": "continuous", "b": "continuous"}}
        times = seconds(
            {
                "batches in memory": lambda: MTMT(**options).fit_rows(path, **named, stream=False),
                "ours": lambda: MTMT(**options).fit_rows(path, **named),
            },
            rounds=2,
        )
    what = "Fit 32,768 x 12: rows per second streamed over in memory"
    yield gain(what, times, "batches in memory", 0.9)
