"""`MTMT.fit_rows`: the same fit from a table that is read piece by piece."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.effects.arrays import arm_codes
from querist.effects.netrows import Table
from querist.effects.nettrain import batch_rows, in_runs, run_rows
from querist.effects.network._members import (
    by_rows,
    folder_of,
    latents_and_balance,
    member,
    name_of,
    ready,
    refuse_small_batches,
    stream_loss,
    validation_rate,
    watch,
)
from querist.effects.network._stream import Streamed
from querist.effects.network._survey import Plan, Survey, survey
from querist.effects.outcomes import prepare_outcomes
from querist.effects.reading import Roles
from querist.effects.sample import Sample, control_of, sample_of
from querist.errors import BadOption
from querist.sources.rows import Rows
from querist.statistics import torch_seed
from querist.training import fit as fit_network
from querist.training.batches import rows_of

if TYPE_CHECKING:
    from querist.effects.network._estimator import MTMT

__all__ = ["Source", "fit_streamed"]


class Source:
    """What takes the place of the rows in memory: makes a fold's batches, and tells how held rows were dealt."""

    def __init__(self, plan: Plan, surveyed: Survey, positions: Mapping[Any, int], shuffle: bool):
        self.plan, self.surveyed, self.positions, self.shuffle = plan, surveyed, positions, shuffle

    def rows(self, fold: int) -> np.ndarray:
        """Rows of each piece that are trained on."""
        groups = self.surveyed.groups
        return groups.sum(axis=1) - (groups[:, fold] if self.plan.folds > 1 else 0)

    def train(self, model: MTMT, sample: Sample, fold: int, one: int, hooks: Sequence[Any]) -> tuple[Any, Any, Any]:
        """One network; validation rows are those of the held ones that were set aside."""
        seed = torch_seed(sample.seed, "mtmt", fold, one) % 2**31
        net = member(model.architecture_, sample.arm, seed)
        held = np.flatnonzero(self.surveyed.valid & (self.surveyed.fold != fold))
        counts = self.rows(fold)
        size = batch_rows(int(counts.sum())) if model.batch_size == "auto" else int(model.batch_size)
        e = sample.propensity[0]
        # With propensities by arm both weightings are 1/e but for a factor.
        weigh = None if model.weighting == "none" else (lambda code: 1 / (e[code] * len(e)))
        batches = Streamed(
            self.plan,
            sample.columns,
            model.links_,
            self.positions,
            counts,
            fold,
            size,
            seed,
            self.surveyed.mean_weight,
            weigh,
            self.shuffle,
            usable=sample.estimable,
            kinds=sample.outcomes.kinds,
        )
        watched = watch(sample, np.flatnonzero(self.surveyed.fold != fold), model.links_, model.weighting, seed)
        observed = latents_and_balance(model.balance, model.balance_weight)
        given = Table(sample, model.links_, model.weighting)
        run = run_rows(net, given, observed, np.arange(sample.n), model.device)
        chosen: dict[str, Any] = {}
        if held.size:
            check = rows_of(given, min(size, run), seed=seed, shuffle=False, rows=held)
            chosen = {"validation": check, "patience": model.patience}
            if model.select == "rate":
                chosen |= {"score": validation_rate(sample, held, model.links_), "monitor": "rate", "mode": "max"}
        refuse_small_batches(model.architecture_, model.device)
        if by_rows(model.architecture_, model.balance):
            chosen |= in_runs(sample.outcomes.names, size, model.device, run)
        how = {**model._how, "checkpoint": folder_of(model._how["checkpoint"], fold, one)}
        result = fit_network(
            net,
            stream_loss(model.links_, sample.outcomes.names, dict(model.outcome_weights or {}), observed),
            batches,
            batch_size=size,
            epochs=model.epochs,
            lr=model.lr,
            weight_decay=1e-3,
            schedule="cosine",
            hooks=[*hooks, watched],
            device=model.device,
            seed=seed,
            name=name_of(fold, one),
            **chosen,
            **how,
        )
        return ready(net), result, watched


def fit_streamed(
    model: MTMT,
    rows: Rows,
    roles: Roles,
    *,
    propensity: Any,
    positive: Any,
    drop_missing_arm: bool,
    hooks: Sequence[Any],
    shuffle: bool,
) -> None:
    """See `MTMT.fit_rows`: rows of a table whose columns have these roles."""
    with tempfile.TemporaryDirectory(prefix="querist-rows-") as folder:
        plan = Plan(
            rows.grouped(folder), roles, model.folds, model.val_fraction, model.random_state, positive, drop_missing_arm
        )
        plan, found = survey(plan)
        sample, missing, notes = _sample(model, plan, found, propensity)
        positions = {label: m for m, label in enumerate(sample.labels)}
        for label in found.arms:
            if label not in positions:
                raise BadOption(
                    "An arm is too rare to be met among the rows held in memory", value=label, mend="Leave it out"
                )
        model._source = Source(plan, found, positions, shuffle)
        try:
            model._learn(sample, missing, notes, hooks)
        finally:
            del model._source


def _sample(model: MTMT, plan: Plan, found: Survey, propensity: Any) -> tuple[Sample, Any, list[str]]:
    """The held rows, with shares of arms counted over all rows."""
    control = control_of(found.arm, model.control)
    named = plan.roles.outcomes
    prepared = prepare_outcomes({name: found.outcomes[:, k] for k, name in enumerate(named)}, named)
    labels, _ = arm_codes(found.arm, control, model.arms)
    given = model.propensity if propensity is None else propensity
    if isinstance(given, str) and given == "estimate" and model.weighting != "none":
        raise BadOption(
            "Weights of streamed rows need propensities by arm",
            value='propensity="estimate"',
            allowed='"share", or arm to probability',
        )
    shares = np.array([found.arms.get(label, 0.0) for label in labels])
    if isinstance(given, str) and given == "share":
        given = (shares / shares.sum()).tolist()
    tier_weights = model.tier_weights
    if tier_weights is None and model._rule == "mean":
        tier_weights = (shares[1:] / shares[1:].sum()).tolist()
    sample, missing = sample_of(
        found.columns,
        found.columns.encode(found.features),
        found.arm,
        prepared,
        control=control,
        arms=model.arms,
        sample_weight=found.weight,
        cluster=found.cluster,
        propensity=given,
        tier=model._rule,
        reference_arm=model.reference_arm,
        tier_weights=tier_weights,
        min_rows=model.min_rows,
        min_events=model.min_events,
        seed=model.random_state,
    )
    notes = [*plan.rows.notes, *sample.columns.notes, *prepared.notes]
    if found.dropped:
        notes.append(f"{found.dropped} rows without an arm are left out")
    return sample, missing, notes
