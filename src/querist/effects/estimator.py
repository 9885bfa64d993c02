"""The one frame of every estimator: what it is given, what it must answer, and that no answer sees the observed arm."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt64
from sklearn.base import BaseEstimator

from querist.effects.allocators import release
from querist.effects.outcomes import Outcomes, prepare_outcomes
from querist.effects.parts import Effects
from querist.effects.reading import Roles, read_people, roles_of
from querist.effects.sample import NotEstimable, Sample, control_of, sample_of
from querist.errors import BadOption, BadValues, NumericalFailure, near
from querist.sources.rows import Columns, Encoded, Rows, hash_rows, open_rows
from querist.statistics.arrays import in_blocks

__all__ = ["Estimator", "Parts", "refuse_hooks"]

BATCH = 16_384
"""Rows that are predicted at a time."""

HASHES = 100_000
"""Hashes of fit rows that are kept: the smallest ones, so that a share of rows seen can be had from those below the largest."""

Parts = tuple[Float[np.ndarray, "n K"], Float[np.ndarray, "n M K"], Float[np.ndarray, "n M K"] | None]
"""Natural responses, total effects, and the spread of members where there are several."""


class Estimator(BaseEstimator):
    """Effects of M arms on K outcomes, learnt from rows that were given one arm each; a scikit-learn estimator.

    Parameters
    ----------
    control: label of the arm without treatment; may be left out where it is 0 or False.
    arms: the other labels in the order in which effects come; sorted where left out.
    outcomes: name to kind ("binary", "continuous", "count", "hurdle"); by default found from the values.
    tier, reference_arm, tier_weights: how base and increments are told apart, see `parts.tier_of`; labels of arms here. By default
        the weights are the arms' shares of the treated rows.
    propensity: "share", "estimate" (cross-fitted), label to probability, or [n, M + 1] in the order (control, arms); what `fit` is
        given goes before.
    min_rows, min_events: an outcome of an arm (or of control) with fewer rows, or fewer of its rarer value, has no effect: null
        in every answer and listed in `not_estimable_`.
    random_state: seed of everything that is drawn.

    Attributes of a fitted one: arms_, control_, outcomes_ (name to kind), features_, tier_weights_ [M], not_estimable_, warnings_,
    rows_seen_ (sorted hashes of the features of fit rows, at most 100,000).
    """

    def __init__(
        self,
        *,
        control: Any = None,
        arms: Sequence[Any] | None = None,
        outcomes: Mapping[str, str] | None = None,
        tier: str = "mean",
        reference_arm: Any = None,
        tier_weights: Any = None,
        propensity: Any = "share",
        min_rows: int = 30,
        min_events: int = 5,
        random_state: int = 0,
    ):
        self.control = control
        self.arms = arms
        self.outcomes = outcomes
        self.tier = tier
        self.reference_arm = reference_arm
        self.tier_weights = tier_weights
        self.propensity = propensity
        self.min_rows = min_rows
        self.min_events = min_events
        self.random_state = random_state

    def __init_subclass__(cls, **kwargs: Any):
        """A class's `**common` stands for the keywords of the class above: say so in its signature, which scikit-learn reads."""
        own: Any = cls.__dict__.get("__init__")
        if own is not None:
            given = inspect.signature(own)
            named = [p for p in given.parameters.values() if p.kind is not p.VAR_KEYWORD]
            if len(named) < len(given.parameters):
                above: Any = cls.__mro__[1].__init__
                known = {p.name for p in named}
                rest = [p for p in inspect.signature(above).parameters.values() if p.name not in known]
                own.__signature__ = given.replace(parameters=[*named, *(p for p in rest if p.kind is p.KEYWORD_ONLY)])
        super().__init_subclass__(**kwargs)

    # ------------------------------------------------------------------------------------------------- what is fitted

    def fit(
        self,
        X: Any,
        arm: Any,
        Y: Any,
        *,
        sample_weight: Any = None,
        cluster: Any = None,
        propensity: Any = None,
        hooks: Sequence[Any] = (),
    ) -> Any:
        """Learn from n rows.

        X: frame, array [n, d] or `sources.rows.Rows`; NaN is a value like another. arm: labels [n]. Y: outcomes as frame, mapping or
        array [n, K]; a missing one is left out of that outcome alone. sample_weight [n], of any scale; cluster [n]: ids of rows
        that were given their arm together, which are never parted by folds or a validation split; propensity: see the class;
        hooks: `training.Hook`s that watch every network trained, refused by models that train none.

        Raises BadInput of many kinds: ControlAbsent, NoControl, NoTreated, ArmMissing, ArmInFeatures, LengthMismatch,
        PropensityRange, BadValues, UnknownName.
        """
        self._check_options()
        control = control_of(arm, self.control)
        outcomes = Y if isinstance(Y, Outcomes) else prepare_outcomes(Y, self.outcomes)
        release()
        columns, encoded, notes = self._columns(X)
        release()
        sample, missing = sample_of(
            columns,
            encoded,
            arm,
            outcomes,
            control=control,
            arms=self.arms,
            sample_weight=sample_weight,
            cluster=cluster,
            propensity=self.propensity if propensity is None else propensity,
            tier=self._rule,
            reference_arm=self.reference_arm,
            tier_weights=self.tier_weights,
            min_rows=self.min_rows,
            min_events=self.min_events,
            seed=self.random_state,
        )
        self._learn(sample, missing, (*notes, *_said(outcomes)), hooks)
        return self

    def fit_rows(
        self,
        rows: Any,
        *,
        arm: str | None = None,
        outcomes: Any = None,
        feature: Sequence[str] = (),
        drop: Sequence[str] = (),
        weight: str | None = None,
        cluster: str | None = None,
        propensity: Any = None,
        positive: Any = None,
        drop_missing_arm: bool = False,
        hooks: Sequence[Any] = (),
    ) -> Any:
        """Learn from a table by the names of its columns; `rows` is whatever `sources.rows.open_rows` takes.

        outcomes: names, "name:kind" texts or name to kind; those of the constructor where left out. feature, drop: names or
        patterns, see `reading.roles_of`; weight, cluster: columns. positive, drop_missing_arm: see `reading.read_people`. The rows are
        held in memory. Raises as these and as `fit`.
        """
        named = {"feature": feature, "drop": drop, "weight": weight, "cluster": cluster}
        opened, roles = self._roles(rows, arm, outcomes, named)
        people = read_people(opened, roles, positive=positive, drop_missing_arm=drop_missing_arm)
        self.fit(
            people.features,
            people.arm,
            people.outcomes,
            sample_weight=people.weight,
            cluster=people.cluster,
            propensity=propensity,
            hooks=hooks,
        )
        self.warnings_ = list(dict.fromkeys([*self.warnings_, *people.warnings]))
        return self

    def _check_options(self) -> None:
        """Refuse what can be told before a row is looked at; classes add their own. Raises BadOption."""
        if lost := [name for name in getattr(self, "not_kept_", {}) if getattr(self, name) is None]:
            raise BadOption(
                "A model folder keeps no such parameters", value=", ".join(lost), mend="Set them before another fit"
            )

    def _roles(self, rows: Any, arm: str | None, outcomes: Any, named: Mapping[str, Any]) -> tuple[Rows, Roles]:
        """A table opened and its columns by roles, options checked before; see `fit_rows`, whose arguments these are."""
        self._check_options()
        opened = open_rows(rows)
        given = outcomes if outcomes is not None else self.outcomes
        given = [given] if isinstance(given, str) else given if given is not None else ()
        roles = roles_of(opened, arm=arm, outcomes=given, **named)
        if not roles.outcomes:
            raise BadOption("No outcome is named", allowed=near("outcome", opened.names, 12), mend="Give outcomes=")
        return opened, roles

    @property
    def _rule(self) -> str:
        """The rule by which parts are told apart; `tier` where a class knows no other."""
        return self.tier

    def _learn(
        self, sample: Sample, missing: tuple[NotEstimable, ...], notes: Sequence[str], hooks: Sequence[Any]
    ) -> None:
        """Take up a checked sample: what all estimators keep of it, then `_fit`."""
        self.columns_ = sample.columns
        self.control_, self.arms_ = sample.labels[0], list(sample.labels[1:])
        self.outcomes_ = dict(zip(sample.outcomes.names, sample.outcomes.kinds, strict=True))
        self.tier_weights_ = sample.tier_weights
        self.not_estimable_ = list(missing)
        self.features_ = list(sample.columns.names)
        self.warnings_ = list(notes)
        self.rows_seen_ = _smallest(sample.encoded)
        self._fit(sample, hooks)

    def _columns(self, X: Any) -> tuple[Columns, Encoded, list[str]]:
        rows = open_rows(X)
        columns = rows.columns()
        if not columns.names:
            raise BadValues("No column of X varies", value=", ".join(columns.constant[:8]), allowed="one that does")
        if columns.constant:
            gone = ", ".join(columns.constant[:8])
            warnings.warn(f"Constant columns are dropped: {gone}", UserWarning, stacklevel=3)
        release()
        return columns, columns.encode(rows), list(columns.notes)

    def _fit(self, sample: Sample, hooks: Sequence[Any]) -> None:
        """Learn from a sample. Rows whose `outcomes.observed` is false for an outcome must not bear on that outcome."""
        raise NotImplementedError

    def _parts(self, encoded: Encoded) -> Parts:
        """Natural responses, total effects (and spread) of a batch of rows; a row's answer depends on that row alone.

        What the fit rows do not carry (`not_estimable_`) may be any number: it is made null by the caller.
        """
        raise NotImplementedError

    # --------------------------------------------------------------------------------------------- what is answered

    def predict(self, X: Any) -> Float[np.ndarray, "n M K"]:
        """Total effect of each arm against control, in outcome per person; NaN where it is not estimable.

        Raises ColumnMissing where a column of the fit is not there; further ones are ignored.
        """
        return self.predict_effects(X).total

    def predict_effects(self, X: Any) -> Effects:
        """Natural response, base effect, increments and their sum; arguments and errors of `predict`.

        Where some arms of an outcome are not estimable its base is the mean over the others, at their tier weights.
        """
        found = list(self.effects_batches(X))
        return Effects(
            np.concatenate([one.natural for one in found]),
            np.concatenate([one.base for one in found]),
            np.concatenate([one.incremental for one in found]),
            self.tier_weights_,
            None if found[0].spread is None else np.concatenate([np.asarray(one.spread) for one in found]),
        )

    def effects_batches(self, X: Any, rows: int = BATCH) -> Iterator[Effects]:
        """`predict_effects` of a table of any length, at most `rows` rows at a time; one empty part where it has none."""
        self._check_fitted()
        some = False
        for encoded in self.columns_.encoded_batches(X, rows):
            some = True
            yield self._effects(*self._parts(encoded))
        if not some:
            yield self._effects(*self._parts(self.columns_.encode(X)))

    def _effects(self, natural: Any, total: Any, spread: Any) -> Effects:
        natural, total = np.array(natural, dtype=float), np.array(total, dtype=float)
        arms, names = self.arms_, list(self.outcomes_)
        null = np.zeros((len(arms), len(names)), dtype=bool)
        for label, outcome, _ in self.not_estimable_:
            null[arms.index(label), names.index(outcome)] = True
        # An outcome without its control has no natural response; its arms are null already.
        lost = null.all(axis=0) & np.array([any(_of_control(self.not_estimable_, name)) for name in names])
        if not (np.isfinite(natural[:, ~lost]).all() and np.isfinite(total[:, ~null]).all()):
            raise NumericalFailure(f"{type(self).__name__} predicted an effect that is not finite")
        natural[:, lost] = np.nan
        total[:, null] = np.nan
        if spread is not None:
            spread = np.where(null, np.nan, np.asarray(spread, dtype=float))
        weights = np.where(null, 0.0, self.tier_weights_[:, None])
        whole = weights.sum(axis=0)
        weights = np.divide(weights, whole, out=np.full_like(weights, np.nan), where=whole > 0)
        base = np.einsum("nmk,mk->nk", np.where(null, 0.0, total), weights)
        return Effects(natural, base, total - base[:, None], self.tier_weights_, spread)

    # --------------------------------------------------------------------------------------------------- housekeeping

    def save(self, folder: Path | str) -> None:
        """Write a model folder, which `querist.effects.load` reads; nothing in it is a pickle. See `serving.folder.save`."""
        from querist.effects.serving.folder import save

        save(self, folder)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What `_parts` needs, as plain JSON values and arrays. Raises BadOption where it cannot be had."""
        raise BadOption("A model folder cannot hold this model", value=type(self).__name__)

    def _restore(self, state: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Take up what `_state` returned."""
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "arms_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise BadOption("This model has not been fitted", value=type(self).__name__, mend="Call fit first")


def refuse_hooks(model: Estimator, hooks: Sequence[Any]) -> None:
    """BadOption where hooks would never be called."""
    if hooks:
        raise BadOption(
            "Hooks watch the training of a network",
            value=type(model).__name__,
            allowed="a model that trains one",
            mend="Leave hooks out",
        )


def _smallest(encoded: Encoded) -> UInt64[np.ndarray, "h"]:
    """The smallest different hashes of rows, at most `HASHES`."""
    kept = np.empty(0, dtype=np.uint64)
    for part in in_blocks(len(encoded)):
        kept = np.unique(np.concatenate([kept, hash_rows(encoded[part])]))[:HASHES]
    return kept.copy()  # not a view of what was sorted


def _said(outcomes: Outcomes) -> list[str]:
    n = len(outcomes.values)
    missing = [f"The outcome {name} is missing in {count} of {n} rows" for name, count in outcomes.missing.items()]
    return [*outcomes.notes, *missing]


def _of_control(missing: Sequence[NotEstimable], outcome: str):
    return (one.reason.startswith("control: ") for one in missing if one.outcome == outcome)
