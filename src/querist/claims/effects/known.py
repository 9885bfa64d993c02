"""The claim on children with simulated outcomes: both means of every child are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from querist.claims.claim import Claim, Family, Judgement, Number, Piece, Size, family_table
from querist.claims.effects.rules import Contrast, contrast, figure, judge, least, said
from querist.claims.judging import verdict_of
from querist.results.figure import Figure
from querist.results.table import Column

__all__ = ["FAMILY", "KNOWN", "MODELS", "ihdp", "ratios"]

MODELS = (
    "MTMT",
    "S-learner",
    "T-learner",
    "X-learner",
    "R-learner",
    "DR-learner",
    "TARNet",
    "CFRNet",
    "DragonNet",
    "M3TN",
    "EFIN-like",
    "FlexTENet",
    "MMoE",
    "PLE",
    "constant effect",
)
REPLICATIONS = 10
"""Those that the file holds."""

PEHE = family_table(
    "pehe",
    "Root mean squared error of predicted effects on children that no model has seen.",
    (
        Column("replication", "int", "Which simulation of outcomes."),
        Column("model", "str", "What was fitted."),
        Column("pehe", "float", "Root of the mean squared error of effects (root PEHE)."),
        Column("effect", "float", "Mean true effect."),
    ),
    ("model",),
)


def _work(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    from querist.claims.effects.known_measure import measure

    return measure(payload, seed, device)


FAMILY = Family("known means", (PEHE,), _work)


def _pieces(size: Size) -> Iterator[Piece]:
    base = {name: size[name] for name in ("preset", "folds", "epochs")}
    for replication in range(1, min(size.seeds, REPLICATIONS) + 1):
        for model in MODELS:
            slow = 3.0 if model in ("MTMT", "EFIN-like") else 1.5
            yield Piece(
                f"ihdp/{replication:02d}/{model.replace(' ', '-')}",
                base | {"replication": replication, "model": model},
                slow,
            )


def ratios(rows: pl.DataFrame) -> dict[str, list[float]]:
    """By model: root PEHE over that of constant effects, replication after replication."""
    constant = rows.filter(pl.col("model") == "constant effect").select("replication", base=pl.col("pehe"))
    both = rows.filter(pl.col("model") != "constant effect").join(constant, on="replication").sort("replication")
    both = both.with_columns(ratio=pl.col("pehe") / pl.col("base")).drop_nulls("ratio")
    return {
        model: both.filter(pl.col("model") == model)["ratio"].to_list()
        for model in both["model"].unique(maintain_order=True).to_list()
    }


def _contrast(rows: pl.DataFrame, model: str) -> Contrast:
    what = f"log root PEHE, {model} less constant effect"
    return contrast(what, rows, model, "constant effect", "pehe", log=True, by=("replication",))


def ihdp(tables: Mapping[str, pl.DataFrame], size: Size) -> Judgement:
    """The log ratio of MTMT's error to that of constant effects; its median over replications beside it."""
    rows = tables["pehe"]
    found, by_model = _contrast(rows, "MTMT"), ratios(rows)
    medians = {model: float(np.median(values)) for model, values in by_model.items()}
    numbers = [
        Number(f"{model}: median ratio", value, null=1.0, n=len(by_model[model])) for model, value in medians.items()
    ]
    numbers += [_contrast(rows, model).number(0.0) for model in medians if model != "MTMT"]
    median = medians.get("MTMT")
    side = found.side("below")
    if side is not None and (median is None or (median < 1) is not side):
        side = None
    best = min(medians, key=lambda model: medians[model], default=None)
    beside = "" if best is None else f"; the smallest median is that of {best}, {medians[best]:.3f}"
    because = (
        f"Root PEHE of MTMT over that of constant effects has the median {'unknown' if median is None else f'{median:.3f}'}, its logarithm "
        f"the mean {said(found)} over {found.n} replications{beside}."
    )
    return judge([found], "below", because, numbers, verdict=verdict_of([side]))


def _draw(tables: Mapping[str, pl.DataFrame], size: Size) -> Iterator[Figure]:
    rows = tables["pehe"]
    groups = {model: one for model in ratios(rows) if least([one := _contrast(rows, model)], "below")}
    if groups:
        yield figure(
            "ihdp.pehe",
            "Error of effects beside constant effects",
            "Mean over replications of log root PEHE less that of constant effects, with its 95 % interval. Below 0 the model errs less.",
            "log root PEHE, model less constant effect",
            groups,
            "pehe",
        )


IHDP = Claim(
    id="effects.ihdp",
    ask="Does MTMT predict the effects of a small study that was not randomised better than one effect for all?",
    statement="On the simulated outcomes of the Infant Health and Development Program MTMT errs less than constant effects do.",
    source="ours",
    reference="Data of Hill (2011), ten replications. Values published for 1,000 replications are no target.",
    protocol="Each replication's 747 children, 70 % to fit on, errors on the others by their known means. All models, propensities "
    "estimated. One replication has effects ten times as spread as others: medians and logarithms in place of means.",
    rule="Paired over replications, log root PEHE of MTMT less that of constant effects. Holds where its "
    "interval lies below 0 and the median "
    "ratio below 1, fails where the interval lies above 0 and the median ratio above 1. Else it cannot be told.",
    unit="log ratio of root PEHE",
    null="0",
    sizes={
        "small": Size(5, {"preset": "small", "folds": 2, "epochs": 50}, ("ihdp_npci_1_10",)),
        "full": Size(10, {"preset": None, "folds": 5, "epochs": 50}, ("ihdp_npci_1_10",)),
    },
    family=FAMILY,
    pieces=_pieces,
    judge=ihdp,
    draw=_draw,
)

KNOWN = (IHDP,)
