"""Claims on people whose effects are known: what tiers, the refit, and the parts of the network are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from querist.claims.claim import Claim, Family, Piece, Size, family_table
from querist.claims.effects import simulated_figures as figures
from querist.claims.effects import simulated_rules as rules
from querist.claims.effects.rules import PAPER
from querist.results.table import Column

__all__ = ["FAMILY", "SIMULATED", "fits"]

_WHERE = (
    Column("setting", "int", "Which setting of `simulate`, 1 to 4."),
    Column("n", "int", "People that were fitted on."),
    Column("repeat", "int", "Which draw of people, noise and weights."),
    Column("model", "str", "What was fitted."),
)
ERRORS = family_table(
    "errors",
    "Root mean squared error of predicted effects on people that no model has seen, all arms and outcomes together.",
    (
        *_WHERE,
        Column("increments", "float", "Of increments."),
        Column("totals", "float", "Of total effects."),
        Column("rare", "float", "Of total effects on the second outcome."),
    ),
    ("model",),
)
RANKS = family_table(
    "ranks",
    "How well predicted effects rank people, by their true effects.",
    (
        *_WHERE,
        Column("arm", "int", "Which arm."),
        Column("outcome", "int", "Which outcome, 1 or 2."),
        Column("qini", "float", "Rate qini with true effects in place of scores: no noise of outcomes in it."),
        Column("best", "float", "That of the true order."),
    ),
    ("model", "arm", "outcome"),
)


def _work(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    from querist.claims.effects.simulated_measure import measure

    return measure(payload, seed, device)


FAMILY = Family("known effects", (ERRORS, RANKS), _work)

_SECONDS = {"learners": 2e-5, "m3tn": 4e-4, "efin": 1.5e-3}
"""Per person, of one core."""


def fits(size: Size, names: Sequence[str]) -> Iterator[Piece]:
    """One piece per setting, draw and network that is trained; a network's refits come with it."""
    for setting, n in size["cells"]:
        for repeat in range(size.seeds):
            for fit in names:
                payload = {name: size[name] for name in ("people", "preset", "folds", "epochs", "first")}
                payload |= {"fit": fit, "setting": setting, "n": n, "repeat": repeat}
                payload |= {"correlation": size.numbers.get("correlation", 0.0), "rare": size.numbers.get("rare", 1.0)}
                told = "-rare" if "rare" in size.numbers else ""
                wide = 1 if size["preset"] == "small" else 8
                cost = 1 + n * wide * _SECONDS.get(fit, 6e-4 * size["folds"] / 2)
                yield Piece(f"known{told}/{setting}/{n}/{repeat}/{fit}", payload, cost)


def _pieces(*names: str) -> Callable[[Size], Iterator[Piece]]:
    def pieces(size: Size) -> Iterator[Piece]:
        yield from fits(size, names)

    return pieces


_SMALL: dict[str, Any] = {"people": 5000, "preset": "small", "folds": 2, "epochs": 50, "first": 100}
_FULL: dict[str, Any] = {"people": 10_000, "preset": None, "folds": 5, "epochs": 50, "first": 100}
_CELLS_SMALL = ((1, 20_000), (3, 5_000), (4, 5_000))
_CELLS_FULL = tuple((setting, n) for setting in (1, 2, 3, 4) for n in (20_000, 100_000))
_SIZES = {
    "small": Size(5, {"cells": _CELLS_SMALL, **_SMALL}),
    "full": Size(10, {"cells": _CELLS_FULL, **_FULL}),
}
_DRAWN = (
    "`effects.simulate`, three arms, two outcomes, the same draws for every model; settings: 1 strong base (b=.4, d=.1), 2 both alike "
    "(.2, .2), 3 strong increments (.05, .4), 4 nonlinear (.4, .1). Errors on new people."
)
_LINEAR = "The generator is nearly linear in its increments, but for setting 4, and so flatters a refit that is linear in the columns."

TIER = Claim(
    id="effects.tier",
    ask="Does telling base from increments, each shrunk by its own evidence, predict increments better?",
    statement="Effects in two tiers, a base effect and increments, are predicted with less error than effects of separate arms.",
    source="paper",
    reference=PAPER + " The paper claims the tiers; the refit is ours.",
    protocol=f"{_DRAWN} MTMT beside the same network with flat heads and no refit, T- and S-learners (ridge), constant effects, and two "
    f"ablations: MTMT refitted on totals, flat heads with the tiered refit. {_LINEAR}",
    rule="Paired differences over draws of log RMSE of increments, MTMT less another. Holds where in every setting the intervals against "
    "flat heads, constant effects and the refit on totals lie below 0. Fails where one of them lies above 0. Else it cannot be told. "
    "Totals, learners and the other ablation are told beside it, and what the gain comes from.",
    unit="log ratio of RMSE of increments",
    null="0; the estimate is that against flat heads, in the setting that speaks least for it",
    sizes=_SIZES,
    family=FAMILY,
    pieces=_pieces("tiers", "flat", "learners"),
    judge=rules.tier,
    draw=figures.tier,
)
INTERACTION = Claim(
    id="effects.interaction",
    ask="Is attention between treatments and users worth more than pooling them?",
    statement="Letting treatments ask the tokens of a user predicts effects with less error than pooled tokens beside the treatment.",
    source="paper",
    reference=PAPER,
    protocol=f"{_DRAWN} MTMT with and without its interaction, both refitted.",
    rule="Paired differences over draws of log RMSE of total effects, MTMT less the network without interaction. Holds where the interval "
    "lies below 0 in every setting, fails where it lies above 0 in one. Else it cannot be told.",
    unit="log ratio of RMSE of totals",
    null="0; the estimate is that of the setting that speaks least for it",
    sizes=_SIZES,
    family=FAMILY,
    pieces=_pieces("tiers", "no-interaction"),
    judge=rules.interaction,
    draw=figures.interaction,
)
ENHANCER = Claim(
    id="effects.enhancer",
    ask="Does the network lose more without its interaction than without its enhancer?",
    statement="Taking the interaction out costs more than taking the enhancer out.",
    source="paper",
    reference=PAPER,
    protocol=f"{_DRAWN} MTMT, without its interaction, without its enhancer, all refitted. A loss is log RMSE of total effects without the "
    "part less with it.",
    rule="Paired differences over draws, loss of the interaction less loss of the enhancer. Holds where the interval lies above 0 in every "
    "setting, fails where it lies below 0 in one. Else it cannot be told. Each loss is told beside it.",
    unit="difference of losses in log RMSE",
    null="0; the estimate is that of the setting that speaks least for it",
    sizes=_SIZES,
    family=FAMILY,
    pieces=_pieces("tiers", "no-interaction", "no-enhancer"),
    judge=rules.enhancer,
    draw=figures.enhancer,
)
MULTITASK = Claim(
    id="effects.multitask",
    ask="Does a second outcome help where the first is rarely seen?",
    statement="Learning two outcomes together predicts effects on the rarely observed one with less error than learning it alone.",
    source="paper",
    reference=PAPER,
    protocol="`effects.simulate`, setting 1, noise of the outcomes correlated by .5, the second observed for a tenth of people. MTMT on "
    "both outcomes beside MTMT on the second alone; errors of total effects on the second outcome, of new people.",
    rule="Paired differences over draws of log RMSE, together less alone. Holds where the interval lies below 0, fails where above. Else "
    "it cannot be told.",
    unit="log ratio of RMSE on the rare outcome",
    null="0",
    sizes={
        "small": Size(5, {"cells": ((1, 20_000),), "correlation": 0.5, "rare": 0.1, **_SMALL}),
        "full": Size(10, {"cells": ((1, 20_000), (1, 100_000)), "correlation": 0.5, "rare": 0.1, **_FULL}),
    },
    family=FAMILY,
    pieces=_pieces("joint", "separate"),
    judge=rules.multitask,
    draw=figures.multitask,
)
MANY_ARMS = Claim(
    id="effects.many-arms",
    ask="Does MTMT rank people by the effect of each of several arms better than other networks for many arms?",
    statement="With several arms MTMT ranks people by effect better than M3TN and an EFIN-like network do, at every arm "
    "(in the paper: at one of two bonus arms, slightly worse at the other).",
    source="paper",
    reference=PAPER,
    protocol=f"{_DRAWN} Three arms; networks of about as many parameters, MTMT with its refit. Rate qini of each "
    "arm on the first outcome, by true effects.",
    rule="Paired differences over draws, MTMT less the other network, at every arm. Holds where all intervals lie above 0, fails where one "
    "lies below. Else it cannot be told.",
    unit="difference in rate qini, outcome per person",
    null="0; the estimate is that of the arm and network that speaks least for it",
    sizes={
        "small": Size(5, {"cells": ((3, 5_000),), **_SMALL}),
        "full": Size(10, {"cells": ((1, 20_000), (3, 20_000)), **_FULL}),
    },
    family=FAMILY,
    pieces=_pieces("tiers", "m3tn", "efin"),
    judge=rules.many_arms,
    draw=figures.many_arms,
)

SIMULATED = (TIER, INTERACTION, ENHANCER, MULTITASK, MANY_ARMS)
