"""Every repair that can be made, ranked on held-out rows by what inverted triggers still do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from querist.concepts.data import ConceptData
from querist.concepts.repairs._prune import fine_prune
from querist.concepts.repairs._repaired import Attack, Refit, Repaired, Trial, accepted
from querist.concepts.repairs._rows import drop_rows, mask_concepts, relabel, retrain
from querist.concepts.repairs._stability import stability_train
from querist.concepts.repairs._unlearn import unlearn
from querist.concepts.repairs._voters import concept_guard
from querist.errors import BadInput, NumericalFailure, UnknownName, near

__all__ = ["METHODS", "Ranking", "best_repair"]

METHODS = (
    "concept-guard",
    "fine-prune",
    "unlearn",
    "mask-concepts",
    "relabel",
    "drop-rows",
    "stability",
)
"""The repairs; "retrain", another seed and nothing else, is their null and never the best."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """`best` (None where no repair keeps its accuracy), all `repairs` that were made, their rows of table `repair` on the held-out
    rows, and what was `passed_over` with its reason."""

    best: Repaired | None
    repairs: list[Repaired]
    rows: list[dict[str, Any]]
    passed_over: list[dict[str, str]]


def best_repair(
    model: Any,
    data: ConceptData,
    triggers: Sequence[Attack],
    validation: ConceptData,
    *,
    methods: Iterable[str] = METHODS,
    reference: ConceptData | None = None,
    flags: ArrayLike | None = None,
    concepts: Sequence[int] | None = None,
    matrix: Any = None,
    recipe: Refit | None = None,
    clean: tuple[Any, ConceptData] | None = None,
    drop: float = 0.02,
    strength: str = "quantile",
    options: dict[str, dict[str, Any]] | None = None,
    seed: int = 0,
) -> Ranking:
    """Make each repair and rank them on `validation`: least excess of the inverted triggers, then least loss of accuracy.

    triggers: (trigger, target) pairs as inversion finds them; the true trigger, where it is known, is for measuring afterwards
    (`Repaired.measured`). validation: rows that neither the model nor a repair is trained on, so none of `data` and `reference`. A
    repair that loses more than `drop` of accuracy is not chosen. reference: trusted rows, for fine-pruning and unlearning (else
    `data`). flags [n], concepts: what detectors name (concepts: by default those of the triggers). options: further arguments of a
    method by its name. A method that cannot be made is passed over with the reason.

    Raises UnknownName for a method, BadOption without triggers.
    """
    trial = Trial(validation, tuple(triggers), strength=strength, seed=seed)
    named = sorted({i for trigger, _ in triggers for i in trigger.index}) if concepts is None else list(concepts)
    shared: dict[str, Any] = {"clean": clean, "seed": seed}
    trusted = data if reference is None else reference
    pure: dict[str, Any] = shared | {
        "clean": None if clean is None else (clean[0], clean[1] if reference is None else reference)
    }
    set_at: dict[str, Any] = pure | {"strength": strength}
    anew: dict[str, Any] = shared | {"seed": seed + 1}
    lacking = None if flags is not None else "no row is flagged"
    makers: dict[str, Callable[[dict[str, Any]], Repaired]] = {
        "concept-guard": lambda more: concept_guard(model, data, **(shared | more)),
        "fine-prune": lambda more: fine_prune(model, trusted, **(pure | more)),
        "unlearn": lambda more: unlearn(model, trusted, triggers, **(set_at | more)),
        "mask-concepts": lambda more: mask_concepts(model, data, named, recipe=recipe, **(shared | more)),
        "relabel": lambda more: relabel(
            model, data, _given(flags), concepts=named, matrix=matrix, recipe=recipe, **(shared | more)
        ),
        "drop-rows": lambda more: drop_rows(model, data, _given(flags), recipe=recipe, **(shared | more)),
        "stability": lambda more: stability_train(model, data, **(shared | more)),
        "retrain": lambda more: retrain(model, data, recipe=recipe, **(anew | more)),
    }
    made: list[Repaired] = []
    rows: list[dict[str, Any]] = []
    passed: list[dict[str, str]] = []
    ranked: list[tuple[tuple[float, float], int]] = []
    for name in methods:
        if name not in makers:
            raise UnknownName("No such repair", value=name, allowed=near(name, makers, 12))
        if name in ("relabel", "drop-rows") and lacking:
            passed.append({"what": name, "reason": lacking})
            continue
        try:
            one = makers[name]((options or {}).get(name) or {})
            found = one.measured(trial)
        except (BadInput, NumericalFailure) as error:
            passed.append({"what": name, "reason": str(error)})
            continue
        rows += found
        score = accepted(found, drop)
        if score is not None and name != "retrain":
            ranked.append((score, len(made)))
        made.append(one)
    return Ranking(made[min(ranked)[1]] if ranked else None, made, rows, passed)


def _given(flags: ArrayLike | None) -> ArrayLike:
    assert flags is not None
    return flags
