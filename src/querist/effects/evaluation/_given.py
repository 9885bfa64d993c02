"""What an evaluation is given, checked once: arms, outcomes, propensities, effect scores, and the scores that it judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from querist.effects.arrays import arm_codes, lengths, matrix
from querist.effects.design import component_scores, corrected, effect_scores, gamma, propensities, tier_weights_of
from querist.effects.parts import Effects
from querist.errors import BadOption, ShapeMismatch
from querist.statistics.arrays import codes as id_codes
from querist.statistics.arrays import compact, refuse_nonfinite

__all__ = [
    "COMPONENTS",
    "NATURAL",
    "RANDOM",
    "Cell",
    "Coded",
    "Component",
    "Given",
    "Scored",
    "given",
    "reason_of",
    "scored",
]

Component = Literal["total", "base", "incremental"]
COMPONENTS = ("total", "base", "incremental")
NATURAL, RANDOM = "natural response", "random"
"""Names of the two rankings that every score is set beside."""


class Coded(NamedTuple):
    """Arms as numbers: labels with control first, and the place [n] of each row's among them."""

    labels: Sequence[Any]
    codes: Int[np.ndarray, "n"]


@dataclass(frozen=True)
class Scored:
    """What one model says of each row: `total` [n, M, K], and `natural` [n, K] where it says that as well.

    `own` weights [M] make its parts, equal to those of the evaluation where the model states none. `effects` says whether totals
    are in the outcome's unit (then they are calibrated and choose arms) or only rank.
    """

    name: str
    total: Float[np.ndarray, "n M K"]
    natural: Float[np.ndarray, "n K"] | None
    own: Float[np.ndarray, "M"] | None
    effects: bool = True

    def component(self, component: Component, k: int, tier_weights: np.ndarray) -> Float[np.ndarray, "n columns"]:
        """Predicted parts of outcome k: columns as `component_scores` has them."""
        return component_scores(self.total[:, :, k], component, tier_weights)


@dataclass(frozen=True)
class Cell:
    """One outcome's rows: those on which it was observed."""

    k: int
    name: str
    rows: Int[np.ndarray, "m"] | slice
    """Their numbers; the slice of all where it was observed on all, so that nothing is copied to take them."""
    y: Float[np.ndarray, "m"]
    arm: Int[np.ndarray, "m"]
    e: Float[np.ndarray, "m arms"]
    scores: Callable[[], Float[np.ndarray, "m arms"]]
    """Makes `gamma`."""
    cluster: Int[np.ndarray, "m"] | None
    block: np.ndarray | None
    reasons: tuple[str | None, ...]
    """Of each arm: why its effect cannot be told, None where it can."""

    @property
    def numbers(self) -> Int[np.ndarray, "m"]:
        """`rows` as numbers."""
        return np.arange(self.y.size) if isinstance(self.rows, slice) else self.rows

    @property
    def gamma(self) -> Float[np.ndarray, "m arms"]:
        """Scores Γ of control and every arm; made anew each time, as they are wider than what is made of them."""
        return self.scores()

    @cached_property
    def psi(self) -> Float[np.ndarray, "m M"]:
        """Effect scores Γ_m − Γ_0."""
        return effect_scores(self.gamma)

    @cached_property
    def dependence(self) -> dict[str, Any]:
        """Clusters and blocks for intervals."""
        return {"cluster": self.cluster, "block": self.block}


@dataclass(frozen=True)
class Given:
    """Rows with a known arm; outcomes as cells; labels with control first; tier weights [M]."""

    n: int
    labels: tuple[Any, ...]
    arm: Int[np.ndarray, "n"]
    cells: tuple[Cell, ...]
    tier_weights: Float[np.ndarray, "M"]
    cluster: Int[np.ndarray, "n"] | None
    seed: int

    @property
    def arms(self) -> tuple[Any, ...]:
        """Labels without control."""
        return self.labels[1:]

    def columns(self, component: Component) -> tuple[str | None, ...]:
        """What a component's columns stand for: arms, or None for the base."""
        return (None,) if component == "base" else tuple(str(label) for label in self.arms)


def given(
    arm: Any,
    outcomes: Mapping[str, Any],
    *,
    control: Any = None,
    arms: Sequence[Any] | None = None,
    propensity: Any = None,
    mu: Any = None,
    cluster: Any = None,
    tier_weights: Any = None,
    min_rows: int = 30,
    min_events: int = 5,
    seed: int = 0,
) -> Given:
    """Check the rows. arm: labels [n], or `Coded` where they have been numbered; outcomes: name to
    column [n], NaN where unobserved; mu: [n, M+1, K] of a model that never saw these rows, or a `Scored` that states responses.

    With propensities as arm shares, arms count as given in fixed numbers: each row's arm is its block, which keeps 5 % tests at
    5 % (see `rate`). Raises what `arm_codes`, `propensities` and `matrix` raise.
    """
    labels, codes = arm if isinstance(arm, Coded) else arm_codes(arm, control, arms)
    n, count = codes.size, len(labels)
    codes = compact(codes, count)
    lengths(arm=codes, cluster=cluster)
    for name, column in outcomes.items():
        lengths(arm=codes, **{name if name != "arm" else "outcome": column})
    share = propensity is None or (isinstance(propensity, str) and propensity == "share")
    e = propensities("share" if share else propensity, labels, codes)
    nuisance = None
    if mu is not None:
        nuisance = _whole_columns(mu, (n, count, len(outcomes)))
    ids = None if cluster is None else id_codes(cluster, "Clusters")[0]
    cells = []
    for k, (name, column) in enumerate(outcomes.items()):
        y = np.asarray(column, dtype=float)
        seen = np.isfinite(y)
        if not seen.all() and np.isinf(y).any():
            matrix(y[:, None], f"outcome {name}", (n, 1))  # raises, with the row
        rows = slice(None) if seen.all() else np.flatnonzero(seen)
        mine, value = codes[rows], y[rows]
        at = propensities("share", labels, mine) if share and value.size else e[rows]
        reasons = _reasons(value, mine, count, min_rows, min_events, labels)
        response = None if nuisance is None or k not in nuisance else partial(_response, mu, rows, k)
        cells.append(
            Cell(
                k,
                name,
                rows,
                value,
                mine,
                np.asarray(at),
                partial(_scores, mine, value, at, response),
                None if ids is None else ids[rows],
                mine if share and ids is None else None,
                reasons,
            )
        )
    weights = tier_weights_of(codes, count) if tier_weights is None else np.asarray(tier_weights, dtype=float)
    component_scores(np.zeros((1, count - 1)), "base", weights)  # raises for weights that are no shares
    return Given(n, tuple(labels), codes, tuple(cells), weights, ids, seed)


def _whole_columns(mu: Any, shape: tuple[int, int, int]) -> set[int]:
    """Outcomes of which responses are stated for every arm.

    Where a model's own rows did not carry an effect its column is empty as a whole: means of arms serve that outcome. Raises
    ShapeMismatch, and NonFinite for a column that is empty in part.
    """
    if isinstance(mu, Scored):
        assert mu.natural is not None
        columns = [[mu.natural[:, k], *mu.total[:, :, k].T] for k in range(shape[2])]
    else:
        array = np.asarray(mu, dtype=float)
        if array.shape != shape or not shape[0]:
            matrix(array, "mu", shape)  # raises where another shape was given
            return set()
        columns = [list(array[:, :, k].T) for k in range(shape[2])]
    found = set()
    for k, those in enumerate(columns):
        empty = [bool(np.isnan(one).all()) for one in those]
        for m, (one, none) in enumerate(zip(those, empty, strict=True)):
            if not none and not np.isfinite(one).all():
                refuse_nonfinite(one, f"mu of arm {m} and outcome {k}")
        if not any(empty):
            found.add(k)
    return found


def _response(mu: Any, rows: Int[np.ndarray, "m"] | slice, k: int) -> Float[np.ndarray, "m arms"]:
    """Responses under control and every arm, as an array of its own."""
    if not isinstance(mu, Scored):
        return np.array(np.asarray(mu, dtype=float)[rows, :, k], order="C")
    assert mu.natural is not None
    natural, total = mu.natural[rows, k], mu.total[rows, :, k]
    found = np.empty((natural.size, 1 + total.shape[1]))
    found[:, 0] = natural
    np.add(natural[:, None], total, out=found[:, 1:])
    return found


def _scores(
    codes: np.ndarray,
    y: np.ndarray,
    e: Float[np.ndarray, "m arms"],
    response: Callable[[], Float[np.ndarray, "m arms"]] | None,
) -> Float[np.ndarray, "m arms"]:
    """Γ of the arms that have rows, NaN for the others: they have no mean to begin from."""
    arms = e.shape[1]
    mu = None if response is None else response()
    present = np.flatnonzero(np.bincount(codes, minlength=arms))
    if mu is not None and present.size == arms:
        return corrected(mu, codes, y, e)
    found = np.full((codes.size, arms), np.nan)
    if present.size:
        place = np.zeros(arms, dtype=int)
        place[present] = np.arange(present.size)
        found[:, present] = gamma(place[codes], y, e[:, present], "arm" if mu is None else mu[:, present])
    return found


def _reasons(
    y: np.ndarray, arm: np.ndarray, arms: int, min_rows: int, min_events: int, labels: Sequence[Any]
) -> tuple[str | None, ...]:
    """Why the effect of each arm other than control cannot be told."""
    binary = bool(((y == 0) | (y == 1)).all())

    def short(code: int) -> str | None:
        mine = y[arm == code]
        if mine.size < min_rows:
            return f"{mine.size} rows of {labels[code]}, fewer than {min_rows}"
        rarer = min(int((mine == 1).sum()), int((mine == 0).sum())) if binary else None
        if rarer is not None and rarer < min_events:
            return f"{rarer} events of {labels[code]}, fewer than {min_events}"
        if not binary and mine.min() == mine.max():
            return f"the outcome is constant in {labels[code]}"
        return None

    control = short(0)
    return tuple(control or short(code) for code in range(1, arms))


def scored(scores: Any, rows: Given, *, name: str = "model") -> dict[str, Scored]:
    """Scores as they may be given: `Effects`, an array [n, M, K] (or [n, M], [n] where the rest is one), or a mapping of names.

    Raises ShapeMismatch, NonFinite, BadOption for a reserved name.
    """
    if not isinstance(scores, Mapping):
        scores = {name: scores}
    if not scores:
        raise BadOption("There are no scores to evaluate", value="{}", allowed="one or more, by name")
    return {str(key): _one(str(key), value, rows) for key, value in scores.items()}


def _one(name: str, value: Any, rows: Given) -> Scored:
    if name in (NATURAL, RANDOM):
        raise BadOption("A score bears a reserved name", value=name, mend="Give it another name")
    shape = (rows.n, len(rows.arms), len(rows.cells))
    if isinstance(value, Scored):
        value, natural, own, effects = value.total, value.natural, value.own, value.effects
    elif isinstance(value, Effects):
        value, natural, own, effects = value.total, value.natural, value.tier_weights, True
    else:
        natural, own, effects = None, None, True
    total = np.asarray(value, dtype=float)
    effects = effects and total.ndim == 3  # one column for several arms or outcomes ranks people, and predicts nothing
    total = total.reshape(*total.shape, *[1] * (3 - total.ndim))
    if (
        total.ndim == 3
        and total.shape[0] == rows.n
        and all(a in (1, b) for a, b in zip(total.shape, shape, strict=True))
    ):
        total = np.broadcast_to(total, shape)
    if total.shape != shape:
        raise ShapeMismatch(
            f"The score {name} has another shape", value=total.shape, allowed=f"{shape}: rows, arms, outcomes"
        )
    # A model has no effect for an arm and outcome that its own rows did not carry: that column is empty as a whole.
    if not np.isfinite(total).all():
        matrix(np.where(np.isnan(total).all(axis=0), 0.0, total), f"score {name}", shape)
    if natural is not None:
        natural = np.asarray(natural, dtype=float)
        whole = np.where(np.isnan(natural).all(axis=0), 0.0, natural) if np.isnan(natural).any() else natural
        matrix(whole, f"natural response of {name}", (shape[0], shape[2]))
    return Scored(name, total, natural, own, effects)


def reason_of(cell: Cell, component: Component, column: int, predicted: np.ndarray | None = None) -> str | None:
    """Why a part of an effect cannot be told: base and increments need every arm; `predicted` are a score's values for it."""
    if component == "total" and cell.reasons[column] is not None:
        return cell.reasons[column]
    if component != "total" and any(cell.reasons):
        return next(reason for reason in cell.reasons if reason is not None)
    if predicted is not None and not np.isfinite(predicted).all():
        return "the score has no value here"
    return None
