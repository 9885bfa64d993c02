"""Figures of the claims on customers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from querist.claims.claim import Number, Size
from querist.claims.effects import customers_rules as rules
from querist.claims.effects.rules import Contrast, contrast, figure, mean_of
from querist.results.figure import Figure

__all__ = ["criteo", "hillstrom", "leak"]

Tables = Mapping[str, pl.DataFrame]


def _as_contrast(number: Number) -> Contrast:
    return Contrast(number.what, number.value, number.low, number.high, number.n or 0)


def _models(rows: pl.DataFrame) -> Sequence[str]:
    return rows["model"].unique(maintain_order=True).to_list()


def leak(tables: Tables, size: Size) -> Iterator[Figure]:
    """Qini of one network scored in four ways, by arm."""
    rows = tables["leaks"]
    groups = {
        f"{how}, {arm}": _as_contrast(
            mean_of(how, rows.filter((pl.col("how") == how) & (pl.col("arm") == arm))["sklift"].to_list())
        )
        for how in rules.WAYS
        for arm in sorted(rows["arm"].unique().to_list())
    }
    yield figure(
        "leak.qini",
        "One network, scored with and without the arm that each row was given",
        "Normalised Qini of visits, mean over splits with its 95 % interval. What the observed arm adds is not knowledge of effects.",
        "normalised Qini",
        groups,
        "leaks",
    )


def hillstrom(tables: Tables, size: Size) -> Iterator[Figure]:
    """Every model beside natural response and beside one arm for all, on visits."""
    rows = rules.own_rows(tables["scored"])
    for place, (name, what) in enumerate(
        (("ranking", "qini less that of natural response"), ("choice", "value less that of the best single arm"))
    ):
        groups = {model: rules.versus_nothing(tables, model, "visit")[place] for model in _models(rows)}
        yield figure(
            f"hillstrom.{name}",
            f"Visits per person: {what}",
            "Mean over splits with its 95 % interval, splits taken as independent. Above 0 the model beats what needs no model of effects.",
            "visits per person",
            {model: one for model, one in groups.items() if one.n},
            "scored" if place == 0 else "valued",
        )


def criteo(tables: Tables, size: Size) -> Iterator[Figure]:
    """Every baseline beside MTMT."""
    rows = tables["scored"].filter((pl.col("table") == "criteo-uplift") & (pl.col("outcome") == "visit"))
    groups = {
        model: contrast(model, rows, "MTMT", model, "sklift", by=("split",))
        for model in _models(rows)
        if model != "MTMT"
    }
    if groups:
        yield figure(
            "criteo.qini",
            "Qini of visits, MTMT less each baseline",
            "Mean of the paired differences over folds with its 95 % interval. Above 0 MTMT ranks better.",
            "normalised Qini, MTMT less the other",
            groups,
            "scored",
        )
