"""The claim about advice: whether learning rates and sparsities by tail exponent beat the same for every layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from querist.claims.claim import Claim, Family, Judgement, Number, Piece, Size, family_table
from querist.claims.judging import verdict_of
from querist.claims.weights.rules import Interval, above, interval, number
from querist.results.charts import Axes, Mark, by_depth
from querist.results.figure import Figure
from querist.results.table import Column

__all__ = ["ADVICE", "ARMS", "FAMILY", "METHODS", "judge"]

METHODS = ("temp-balance", "alpha-pruning")
OWN = " (at its null left alone)"
"""The arm in which a layer whose exponent is its null's is left alone, as `querist weights scan --advise` does."""

ARMS = family_table(
    "advised",
    "Test accuracy of one network under one way of treating its layers.",
    (
        Column("repeat", "int", "Which draw of initial weights and order of data."),
        Column("method", "str", "temp-balance (learning rates) or alpha-pruning (sparsities)."),
        Column("arm", "str", "uniform, advised, permuted, or advised with layers at their null left alone."),
        Column("accuracy", "float", "Share of test pictures whose class is right."),
        Column("values", "list[float]", "Multipliers after the last epoch, or sparsities, in the order of the layers."),
    ),
    ("method", "arm"),
)


def _work(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    from querist.claims.weights.advice_measure import measure

    return measure(payload, seed, device)


FAMILY = Family("advised", (ARMS,), _work)


def _pieces(size: Size) -> Iterator[Piece]:
    names = ("width", "epochs", "batch", "lr", "target")
    base = {name: size[name] for name in names} | {"data": list(size.data)}
    steps = size["epochs"] * size["train"] / size["batch"]
    for repeat in range(size.seeds):
        yield Piece(f"advised/{repeat}", {"repeat": repeat} | base, cost=4 * steps * 0.003 + 1)


def judge(tables: Mapping[str, pl.DataFrame], size: Size) -> Judgement:
    """Advised less uniform and advised less permuted, paired over seeds, for both methods."""
    accuracy = tables["advised"]
    numbers: list[Number] = []
    better: dict[str, Interval | None] = {}
    sides: list[bool | None] = []
    told = []
    for method in METHODS:
        mine = _accuracies(accuracy, method)
        arms = ("uniform", "advised", "permuted", f"advised{OWN}")
        numbers += [number(f"{method}: accuracy, {arm}", interval(mine[arm].to_numpy())) for arm in arms]
        gains = {
            what: interval(mine[left].to_numpy() - mine[right].to_numpy())
            for what, left, right in (
                ("advised less uniform", "advised", "uniform"),
                ("advised less permuted", "advised", "permuted"),
                ("permuted less uniform", "permuted", "uniform"),
                (f"advised{OWN} less uniform", f"advised{OWN}", "uniform"),
            )
        }
        numbers += [number(f"{method}: {what}", gain, 0.0) for what, gain in gains.items()]
        better[method] = gains["advised less uniform"]
        sides += [above(gains[what], 0.0) for what in ("advised less uniform", "advised less permuted")]
        told.append(
            f"{method} gains {_points(gains['advised less uniform'])} over uniform and "
            f"{_points(gains['advised less permuted'])} over permuted"
        )
    because = f"In points of test accuracy, {'; '.join(told)}."
    known = [one for one in better.values() if one is not None]
    if not known:
        return Judgement("cannot say", None, None, None, 0.0, because, numbers=tuple(numbers))
    least = min(known, key=lambda one: one.estimate)
    return Judgement(verdict_of(sides), least.estimate, least.low, least.high, 0.0, because, numbers=tuple(numbers))


def _accuracies(advised: pl.DataFrame, method: str) -> pl.DataFrame:
    """One row per seed, one column per arm."""
    return advised.filter(pl.col("method") == method).pivot("arm", index="repeat", values="accuracy").sort("repeat")


def _points(gain: Interval | None) -> str:
    if gain is None:
        return "an unknown amount"
    return f"{100 * gain.estimate:.2f} [{100 * gain.low:.2f}, {100 * gain.high:.2f}]"


def _draw(tables: Mapping[str, pl.DataFrame], size: Size) -> Iterator[Figure]:
    labels, gains = [], []
    for method in METHODS:
        mine = _accuracies(tables["advised"], method)
        for arm in ("advised", "permuted", f"advised{OWN}"):
            gain = interval(mine[arm].to_numpy() - mine["uniform"].to_numpy())
            labels.append(f"{method}: {arm}")
            gains.append(gain or Interval(np.nan, np.nan, np.nan, 0))
    middle, low, high = ([getattr(gain, name) for gain in gains] for name in ("estimate", "low", "high"))
    axes = Axes("", "test accuracy less that of uniform")
    data, layout = by_depth({"gain": middle}, labels, axes, low=low, high=high, marks=[Mark("uniform", 0.0, "y")])
    yield Figure(
        "advice-helps.gains",
        "What each arm gains over uniform",
        "Mean of the paired differences over seeds with its 95 % interval. Advice helps where the advised arm lies above 0 and above "
        "the permuted one.",
        data,
        layout,
        "advised",
    )


HELPS = Claim(
    id="weights.advice-helps",
    ask="Do learning rates and sparsities by tail exponent beat uniform ones?",
    statement="Giving layers with heavier tails a lower learning rate (TempBalance) and a lower sparsity (AlphaPruning) makes a network "
    "more accurate than treating all layers alike.",
    source="literature",
    reference="Zhou et al., Temperature balancing (NeurIPS 2023); Lu et al., AlphaPruning (NeurIPS 2024).",
    protocol="A ReLU network of three hidden layers on Fashion-MNIST, by momentum. TempBalance: at the beginning of every epoch the "
    "multipliers of Hill's exponents of the layers, first and last layer excepted. AlphaPruning: one-shot magnitude pruning of the "
    "hidden layers of the network that was trained uniformly, to one overall sparsity. Permuted: the same multipliers given to other "
    "layers, by one random permutation per seed that is not the identity; for sparsities the exponents, the mean over all "
    "permutations but the identity. All arms of a seed share initial weights and the order of data. Exponents as published; beside it "
    "the arm in which layers at their null are left alone, which the rule does not look at.",
    rule="Paired differences of test accuracy over seeds. Holds where for both methods the intervals of advised less uniform and of "
    "advised less permuted lie above 0. Fails where any of the four lies wholly below 0. Else it cannot be told.",
    unit="gain in accuracy",
    null="0; the estimate is that of the method that gains less over uniform",
    sizes={
        "small": Size(
            5,
            {"width": 256, "epochs": 15, "batch": 64, "lr": 0.05, "target": 0.8, "train": 2000},
            ("fashion-mnist-small",),
        ),
        "full": Size(
            5,
            {"width": 512, "epochs": 15, "batch": 128, "lr": 0.05, "target": 0.9, "train": 60000},
            tuple(f"fashion-mnist-{part}-{what}" for part in ("train", "t10k") for what in ("images", "labels")),
        ),
    },
    family=FAMILY,
    pieces=_pieces,
    judge=judge,
    draw=_draw,
)

ADVICE = (HELPS,)
