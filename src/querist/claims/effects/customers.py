"""Claims on tables of customers: what the observed arm does to a score, and whether models beat what needs none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from querist.claims.claim import Claim, Family, Piece, Size, family_table
from querist.claims.effects import customers_figures as figures
from querist.claims.effects import customers_rules as rules
from querist.claims.effects.rules import PAPER
from querist.results.table import Column

__all__ = ["CUSTOMERS", "FAMILY", "MODELS"]

_WHERE = (
    Column("table", "str", "The table of customers."),
    Column("split", "int", "Which split of it into rows that are fitted on and rows that are scored."),
    Column("model", "str", "What was fitted."),
)
SCORED = family_table(
    "scored",
    "Rankings of rows that no model was fitted on.",
    (
        *_WHERE,
        Column("arm", "str", "Which arm."),
        Column("outcome", "str", "Which outcome."),
        Column("sklift", "float", "Normalised Qini, convention sklift; null for outcomes that are not 0 or 1."),
        Column("qini", "float", "Rate qini, outcome per person; scores are doubly robust."),
        Column("se", "float", "Its standard error, by influence values."),
        Column("over_natural", "float", "Rate qini less that of natural response, on the same rows."),
        Column("over_natural_low", "float", "Lower end of its interval, by paired influence values."),
        Column("over_natural_high", "float", "Upper end of it."),
    ),
    ("model", "arm", "outcome"),
)
VALUED = family_table(
    "valued",
    "Worth of giving each person the arm that a model predicts best.",
    (
        *_WHERE,
        Column("outcome", "str", "Which outcome."),
        Column("value", "float", "Doubly robust value, outcome per person."),
        Column("arm", "str", "The best single arm, chosen on rows that were fitted on."),
        Column("over_arm", "float", "Value less that of the single arm for all."),
        Column("over_arm_low", "float", "Lower end of its interval, by paired influence values."),
        Column("over_arm_high", "float", "Upper end of it."),
    ),
    ("model", "outcome"),
)
LEAKS = family_table(
    "leaks",
    "One trained network scored in several ways.",
    (
        Column("split", "int", "Which split."),
        Column("how", "str", "How its score was made."),
        Column("arm", "str", "Which arm."),
        Column("sklift", "float", "Normalised Qini of visits, convention sklift."),
    ),
    ("how", "arm"),
)


def _work(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    from querist.claims.effects.customers_measure import measure

    return measure(payload, seed, device)


FAMILY = Family("customers", (SCORED, VALUED, LEAKS), _work)

MODELS = {
    "MTMT": 8e-4,
    "S-learner": 1e-4,
    "T-learner": 1e-4,
    "X-learner": 2e-4,
    "R-learner": 2e-4,
    "DR-learner": 2e-4,
    "TARNet": 4e-4,
    "CFRNet": 5e-4,
    "DragonNet": 4e-4,
    "M3TN": 4e-4,
    "EFIN-like": 1.5e-3,
    "FlexTENet": 5e-4,
    "MMoE": 4e-4,
    "PLE": 5e-4,
    "natural rank": 1e-4,
    "random rank": 1e-4,
    "single arm": 1e-4,
    "constant effect": 1e-4,
}
"""Every model, and seconds of one core for each row that it is fitted on."""


def _fitted(size: Size, table: str, models: tuple[str, ...]) -> Iterator[Piece]:
    for split in range(size.seeds):
        for model in models:
            payload = {name: size[name] for name in ("rows", "preset", "folds", "epochs")}
            payload |= {"table": table, "split": split, "splits": size.seeds, "model": model}
            cost = 1 + (size["rows"] or 64_000) * (1 if size["preset"] == "small" else 8) * MODELS[model]
            yield Piece(f"{table}/{size['rows'] or 'all'}/{split}/{model.replace(' ', '-')}", payload, cost)


def _leak(size: Size) -> Iterator[Piece]:
    yield from _fitted(size, "hillstrom", ("MTMT",))


def _hillstrom(size: Size) -> Iterator[Piece]:
    yield from _fitted(size, "hillstrom", tuple(MODELS))
    for split in range(size["published"]):
        payload = {
            "table": "hillstrom",
            "rows": None,
            "split": split,
            "splits": size["published"],
            "model": "T-learner",
        }
        yield Piece(f"published/{split}", payload | {"preset": None, "folds": 2, "epochs": 1}, 5.0)


def _criteo(size: Size) -> Iterator[Piece]:
    yield from _fitted(size, "criteo-uplift", ("MTMT", "S-learner", "T-learner", "TARNet", "EFIN-like", "single arm"))


_SMALL: dict[str, Any] = {"rows": 20_000, "preset": "small", "folds": 2, "epochs": 50}
_FULL: dict[str, Any] = {"rows": None, "preset": None, "folds": 5, "epochs": 50}
_SPLIT = (
    "Hillstrom's table: 70 % of rows to fit on, the others scored; columns recency, history, its logarithm, mens, womens, newbie, "
    "zip code, channel."
)

LEAK = Claim(
    id="effects.leak",
    ask="Does a score that is fed the observed arm look better than the same network scored counterfactually?",
    statement="A network whose base embedding is indexed by the arm that a row was given ranks treated and control "
    "people by two functions, "
    "one of them never trained, and so reaches a Qini that its predictions of effects do not.",
    source="ours",
    reference="The released code of arXiv 2408.12803 validates in this way; whether its printed numbers came from it is not known.",
    protocol=f"{_SPLIT} MTMT's networks, once trained, before any refit. Counterfactual: each row's effect of an arm against control, "
    "whatever the row was given. Observed: treated people by base and arm embedding of their arm, control people by index 0 of both, "
    "which no loss ever reached and which therefore keeps its random initial values. Beside it the same with arms exchanged between "
    "people before they are fed in, and natural response with the sign of the arm.",
    rule="Normalised Qini of visits (sklift), mean over arms, observed less counterfactual, paired over splits. Holds where the interval "
    "lies above 0, fails where below. Else it cannot be told.",
    unit="difference in normalised Qini",
    null="0",
    sizes={"small": Size(3, _SMALL, ("hillstrom",)), "full": Size(10, _FULL, ("hillstrom",))},
    family=FAMILY,
    pieces=_leak,
    judge=rules.leak,
    draw=figures.leak,
)
HILLSTROM = Claim(
    id="effects.hillstrom",
    ask="Does MTMT rank better than natural response, and choose arms better than one arm for all, on a real experiment?",
    statement="On Hillstrom's e-mail experiment MTMT ranks people by effect better than their natural response "
    "does, and its choice of arms "
    "is worth more than the best single arm.",
    source="ours",
    reference="No publication: the two questions that every model must answer, with every baseline beside it.",
    protocol=f"{_SPLIT} Every model and reference on the same rows; nuisances of scores from logistic and ridge T-learners of the rows "
    "fitted on. Natural response is learnt from control rows; the single arm is chosen on rows fitted "
    "on. As a check of the path, T-learners on "
    "all rows, ten splits, visits: sklift Qini .0090 (sd .0126) and .0638 (.0114) for the two arms were measured before.",
    rule="On visits, paired over splits: rate qini of MTMT less that of natural response, mean over arms, and "
    "value of its choice less that "
    "of the single arm. Holds where both intervals lie above 0, fails where one lies below. Else, and where the T-learner's mean Qini is "
    "not within one sd of what was measured before at both arms, it cannot be told. Other outcomes and models are told beside it.",
    unit="difference, visits per person",
    null="0; the estimate is the smaller of the two",
    sizes={
        "small": Size(3, {**_SMALL, "published": 10}, ("hillstrom",)),
        "full": Size(10, {**_FULL, "published": 10}, ("hillstrom",)),
    },
    family=FAMILY,
    pieces=_hillstrom,
    judge=rules.hillstrom,
    draw=figures.hillstrom,
)
CRITEO = Claim(
    id="effects.criteo",
    ask="Does MTMT rank the users of Criteo's data better than the best baseline, scored without their arm?",
    statement="On Criteo's uplift data MTMT, scored counterfactually, ranks visits better than every baseline does.",
    source="paper",
    reference=PAPER
    + " It prints a Qini of .164 (best baseline .0779), which is shown beside and no target: how it was scored is not known.",
    protocol="Criteo uplift v2.1, a file that the user brings, checked against its checksum and cell counts. "
    "Folds of the rows, each scored "
    "by models of the others; visits; exposure is no feature. MTMT beside S- and T-learners, TARNet, an EFIN-like network.",
    rule="Normalised Qini (sklift), MTMT less the baseline with the largest mean, paired over folds. Holds "
    "where the interval lies above 0, "
    "fails where below. Else, and where S- or T-learners are not within .01 of the .070 that is published for them, it cannot be told.",
    unit="difference in normalised Qini",
    null="0",
    sizes={"small": Size(3, _SMALL, ("criteo-uplift",)), "full": Size(5, _FULL, ("criteo-uplift",))},
    family=FAMILY,
    pieces=_criteo,
    judge=rules.criteo,
    draw=figures.criteo,
)

CUSTOMERS = (LEAK, HILLSTROM, CRITEO)
