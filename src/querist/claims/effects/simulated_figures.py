"""Figures of the claims on known effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from querist.claims.claim import Size
from querist.claims.effects import simulated_rules as rules
from querist.claims.effects.rules import figure, panels
from querist.results.figure import Figure

__all__ = ["enhancer", "interaction", "many_arms", "multitask", "tier"]

Tables = Mapping[str, pl.DataFrame]
PAIRED = "Mean of the paired differences over draws with its 95 % interval."


def tier(tables: Tables, size: Size) -> Iterator[Figure]:
    """MTMT beside every other, setting after setting."""
    others = (*rules.RIVALS, *rules.BESIDE)
    found = rules.tier_contrasts(tables, size, "increments", others)
    cells = {cell: {other: found[other][cell] for other in others} for cell in found[others[0]]}
    yield panels(
        "tier.increments",
        "Error of increments beside other models",
        f"Log RMSE of MTMT less that of the model named. {PAIRED} Below 0 MTMT errs less; panels have their own scale. {rules.LINEAR}",
        "log RMSE",
        cells,
        "errors",
    )


def interaction(tables: Tables, size: Size) -> Iterator[Figure]:
    """With less without."""
    yield figure(
        "interaction.totals",
        "What attention between treatments and users changes",
        f"Log RMSE of total effects with the interaction less without. {PAIRED} Below 0 it helps.",
        "log RMSE, with less without",
        rules.interaction_contrasts(tables, size),
        "errors",
    )


def enhancer(tables: Tables, size: Size) -> Iterator[Figure]:
    """One loss less the other."""
    yield figure(
        "enhancer.losses",
        "Loss of the interaction less that of the enhancer",
        f"In log RMSE of total effects. {PAIRED} Above 0 the interaction is worth more.",
        "difference of losses",
        rules.enhancer_contrasts(tables, size),
        "errors",
    )


def multitask(tables: Tables, size: Size) -> Iterator[Figure]:
    """Together less alone."""
    yield figure(
        "multitask.rare",
        "Error on the rare outcome, learnt together less alone",
        f"Log RMSE of total effects on the outcome that a tenth of people show. {PAIRED} Below 0 learning together helps.",
        "log RMSE, together less alone",
        rules.multitask_contrasts(tables, size),
        "errors",
    )


def many_arms(tables: Tables, size: Size) -> Iterator[Figure]:
    """Arm after arm beside either network."""
    yield figure(
        "many-arms.qini",
        "Ranking by the effect of each arm, beside other networks",
        f"Rate qini by true effects, MTMT less the network named. {PAIRED} Above 0 MTMT ranks better.",
        "difference in qini, outcome per person",
        rules.many_arms_contrasts(tables, size),
        "ranks",
    )
