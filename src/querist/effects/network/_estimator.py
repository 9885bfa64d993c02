"""MTMT: cross-fitted networks of three parts, and the refit of what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from querist.effects.allocators import release
from querist.effects.estimator import Estimator, Parts
from querist.effects.nettrain import links_for, train, validation_rows
from querist.effects.network._architecture import preset_options
from querist.effects.network._design import Design
from querist.effects.network._evidence import Evidence, evidence
from querist.effects.network._keeping import history_of, restore, shrinkage_of, state_of, summary_of
from querist.effects.network._members import (
    architecture_of,
    by_fold,
    by_rows,
    folder_of,
    latents_and_balance,
    mean_response,
    member,
    name_of,
    ready,
    refuse_small_batches,
    validation_rate,
    watch,
)
from querist.effects.network._refit import Refit, refit
from querist.effects.network._streamed import fit_streamed
from querist.effects.sample import Sample
from querist.errors import BadOption
from querist.statistics import torch_seed
from querist.statistics.arrays import index_type

__all__ = ["MTMT"]

AT_ONCE = 4_096
"""Rows whose out-of-fold answers become scores at a time."""

BALANCES = (None, "wasserstein", "mmd")
SHRINK = ("tier", "flat", "slope", False)


class MTMT(Estimator):
    """Natural response, base effect and increments of many arms on many outcomes, from networks that share one encoder.

    Parameters
    ----------
    control, arms, outcomes, reference_arm, tier_weights, propensity, min_rows, min_events, random_state: see `Estimator`.
    tier: "mean" (increments cancel under the tier weights), "reference" (they are those beyond `reference_arm`), both in training
        as well; "none": flat heads, one per arm and no base, taken apart afterwards by the mean.
    expert: "mlp"; "ft", a token per column; "resnet1d". n_experts, d_model, n_tokens, n_heads: sizes.
    link: "auto", "identity", or outcome to link, see `links.link_of`. winsorise: quantile at which values of continuous outcomes,
        counts and sizes are cut off in training, on both sides. huber: errors beyond so many control sd count linearly; the
        response is then no mean where the outcome is skewed. class_weight: "balanced" or the weight of an event;
        predictions are corrected for it exactly. outcome_weights: λ of outcomes by name, 1 where left out.
    weighting: of the loss; "none", "ipw", "overlap". detach_natural: treated rows teach nothing to the natural part.
    interaction, enhancer: False takes the part out (ablations).
    shrink: "tier", the tiered refit; "flat", of total effects; "slope"; False. Whatever is said, the natural part stays.
    folds: J networks, each trained without one fold; predictions are their mean, the refit sees what each says of its own fold.
    balance: "wasserstein" or "mmd": distance between arms in the mean token, added to the loss `balance_weight` times.
    ensemble: S networks per fold from other seeds; `spread` is the sd over them of total effects before the refit, not an
        interval. epochs, batch_size, lr, val_fraction, patience: see `nettrain.train`; select: "loss", or "rate", the qini of the
        validation rows. preset: "small" or "paper" set sizes that were left at their defaults. device: as in `training.fit`.

    Fitted attributes beside those of `Estimator`: networks_ (fold by member), links_, architecture_, refit_ (None without),
    shrinkage_, history_ and trainings_ (tables), parameters_ (per network), folds_ [n].

    Source: Zhao et al. (2024), arXiv 2408.12803; the refit, the tiers and counterfactual scoring are ours.
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
        expert: str = "mlp",
        n_experts: int = 4,
        d_model: int = 64,
        n_tokens: int = 8,
        n_heads: int = 4,
        link: str | Mapping[str, str] = "auto",
        propensity: Any = "share",
        weighting: str = "none",
        detach_natural: bool = True,
        interaction: bool = True,
        enhancer: bool = True,
        shrink: str | bool = "tier",
        folds: int = 2,
        balance: str | None = None,
        balance_weight: float = 1.0,
        ensemble: int = 1,
        epochs: int = 50,
        batch_size: int | str = "auto",
        lr: float = 1e-3,
        val_fraction: float = 0.1,
        patience: int | None = 10,
        select: str = "loss",
        winsorise: float | None = None,
        huber: float | None = None,
        class_weight: str | float | None = None,
        outcome_weights: Mapping[str, float] | None = None,
        min_rows: int = 30,
        min_events: int = 5,
        preset: str | None = None,
        device: str = "auto",
        random_state: int = 0,
    ):
        super().__init__(
            control=control,
            arms=arms,
            outcomes=outcomes,
            tier=tier,
            reference_arm=reference_arm,
            tier_weights=tier_weights,
            propensity=propensity,
            min_rows=min_rows,
            min_events=min_events,
            random_state=random_state,
        )
        self.expert = expert
        self.n_experts = n_experts
        self.d_model = d_model
        self.n_tokens = n_tokens
        self.n_heads = n_heads
        self.link = link
        self.weighting = weighting
        self.detach_natural = detach_natural
        self.interaction = interaction
        self.enhancer = enhancer
        self.shrink = shrink
        self.folds = folds
        self.balance = balance
        self.balance_weight = balance_weight
        self.ensemble = ensemble
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.val_fraction = val_fraction
        self.patience = patience
        self.select = select
        self.winsorise = winsorise
        self.huber = huber
        self.class_weight = class_weight
        self.outcome_weights = outcome_weights
        self.preset = preset
        self.device = device

    _how: dict[str, Any]
    _source: Any

    # ---------------------------------------------------------------------------------------------------------- fit

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
        checkpoint: Path | str | None = None,
        resume: bool = False,
        progress: Any = None,
    ) -> MTMT:
        """Learn from n rows; see `Estimator.fit`.

        checkpoint: folder in which every network keeps its state; resume: go on from there, to the same weights, bit for bit.
        progress: see `training.fit`. In a group of processes (`training.launch_group`) each calls this with the same arguments.
        """
        # `fit_rows` has said how already where it comes through here.
        self._how = getattr(self, "_how", {"checkpoint": checkpoint, "resume": resume, "progress": progress})
        try:
            return super().fit(
                X, arm, Y, sample_weight=sample_weight, cluster=cluster, propensity=propensity, hooks=hooks
            )
        finally:
            del self._how

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
        checkpoint: Path | str | None = None,
        resume: bool = False,
        progress: Any = None,
        stream: bool = True,
        shuffle: bool = True,
    ) -> MTMT:
        """Learn from a table that may be larger than memory; every column is read once before training. See `Estimator.fit_rows`.

        stream: False holds the rows in memory and is `fit`. A table that cannot be read in pieces is written as Parquet first. Epochs
        take the table's pieces in an order of their own, eight at a time, and mix their rows (shuffle=False: as they lie). Rows, or
        whole clusters, are dealt to folds and validation by a hash. Links, validation and the refit use at most a million rows,
        drawn by a hash as well; shares of arms count all rows. propensity: "share", arm to probability, or "estimate" for the
        refit alone. Others, and what is raised: see `fit`.
        """
        self._how = {"checkpoint": checkpoint, "resume": resume, "progress": progress}
        named = {"feature": feature, "drop": drop, "weight": weight, "cluster": cluster}
        told = {"positive": positive, "drop_missing_arm": drop_missing_arm, "propensity": propensity, "hooks": hooks}
        try:
            if stream:
                fit_streamed(self, *self._roles(rows, arm, outcomes, named), shuffle=shuffle, **told)
            else:
                super().fit_rows(rows, arm=arm, outcomes=outcomes, **named, **told)
        finally:
            self.__dict__.pop("_how", None)
        return self

    def _check_options(self) -> None:
        super()._check_options()
        for name, fine, allowed in (
            ("tier", self.tier in ("mean", "reference", "none"), "mean, reference, none"),
            ("shrink", self.shrink in SHRINK and self.shrink is not True, '"tier", "flat", "slope", False'),
            ("balance", self.balance in BALANCES, "None, wasserstein, mmd"),
            ("select", self.select in ("loss", "rate"), "loss, rate"),
            ("folds", isinstance(self.folds, int) and self.folds >= 1, "1 or more"),
            ("ensemble", isinstance(self.ensemble, int) and self.ensemble >= 1, "1 or more"),
            ("balance_weight", self.balance_weight >= 0, "0 or more"),
        ):
            if not fine:
                raise BadOption(f"{name} lies outside its range", value=getattr(self, name), allowed=allowed)
        if self.shrink and self.folds == 1:
            raise BadOption(
                "The refit needs rows that a network was not trained on",
                value="folds=1",
                allowed="2 or more folds, or shrink=False",
            )
        if self.select == "rate" and not self.val_fraction > 0:
            raise BadOption("There are no rows to select by", value=self.val_fraction, allowed="val_fraction above 0")

    @property
    def _rule(self) -> str:
        # Flat heads are taken apart by the mean.
        return "mean" if self.tier == "none" else self.tier

    def _sizes(self) -> dict[str, Any]:
        """Options of the architecture and the link, those of the preset where nothing else was asked for."""
        chosen = preset_options(self.preset)
        defaults = {"expert": "mlp", "n_experts": 4, "d_model": 64, "n_tokens": 8, "n_heads": 4, "link": "auto"}
        own = {name: getattr(self, name) for name in defaults}
        return {**chosen, **{k: v for k, v in own.items() if k not in chosen or v != defaults[k]}}

    def _fit(self, sample: Sample, hooks: Sequence[Any]) -> None:
        sizes = self._sizes()
        self.links_ = links_for(
            sample,
            sizes.pop("link"),
            winsorise=self.winsorise,
            huber=self.huber,
            class_weight=self.class_weight,
        )
        self.architecture_ = architecture_of(
            sample.columns,
            sample.arms,
            self.links_,
            sample.tier_weights.tolist(),
            tier=self.tier,
            interaction=self.interaction,
            enhancer=self.enhancer,
            detach_natural=self.detach_natural,
            **sizes,
        )
        self.folds_ = self._split(sample)
        self.networks_, told = [], []
        for fold in range(self.folds):
            made = [self._train(sample, fold, one, hooks) for one in range(self.ensemble)]
            self.networks_.append([net for net, *_ in made])
            told += [(fold, one, result, watched.rows) for one, (_, result, watched) in enumerate(made)]
        self.parameters_ = sum(one.numel() for one in self.networks_[0][0].parameters())
        self.refit_, self.design_ = None, Design.of(sample.encoded)
        if self.shrink:
            self.refit_ = self._shrink(sample)
        self.history_ = history_of([(fold, one, result.history, seen) for fold, one, result, seen in told])
        self.trainings_ = summary_of(told)
        self.shrinkage_ = shrinkage_of(self.refit_, self.arms_, list(self.outcomes_))

    def _split(self, sample: Sample) -> np.ndarray:
        source = getattr(self, "_source", None)
        if source is not None:
            return source.surveyed.fold
        if self.folds == 1:
            return np.full(sample.n, -1)
        dealt = sample.folds(self.folds, by_outcome=True, seed=sample.seed)
        return dealt.astype(np.min_scalar_type(-self.folds))

    def _train(self, sample: Sample, fold: int, one: int, hooks: Sequence[Any]) -> tuple[Any, Any, Any]:
        """One network, trained on all rows that are not of its fold; what `fit` returned; what was watched."""
        if (source := getattr(self, "_source", None)) is not None:
            return source.train(self, sample, fold, one, hooks)
        seed = torch_seed(sample.seed, "mtmt", fold, one) % 2**31
        rows = np.flatnonzero(self.folds_ != fold).astype(index_type(sample.n))
        net = member(self.architecture_, sample.arm, seed)
        chosen: dict[str, Any] = refuse_small_batches(self.architecture_, self.device)
        if self.select == "rate":
            held = rows[validation_rows(sample, self.val_fraction, rows)]
            chosen |= {"score": validation_rate(sample, held, self.links_), "monitor": "rate", "mode": "max"}
        watched = watch(sample, rows, self.links_, self.weighting, seed)
        how = {**self._how, "checkpoint": folder_of(self._how["checkpoint"], fold, one)}
        result = train(
            net,
            sample,
            self.links_,
            rows=rows,
            observed=latents_and_balance(self.balance, self.balance_weight),
            runs=by_rows(self.architecture_, self.balance),
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            val_fraction=self.val_fraction,
            patience=self.patience,
            weighting=self.weighting,
            outcome_weights=self.outcome_weights,
            hooks=[*hooks, watched],
            device=self.device,
            seed=seed,
            name=name_of(fold, one),
            **how,
            **chosen,
        )
        return ready(net), result, watched

    def _shrink(self, sample: Sample) -> Refit:
        release()  # what training has let go
        return refit(self._evidence(sample), self.shrink)  # pyright: ignore[reportArgumentType]

    def _evidence(self, sample: Sample) -> Evidence:
        def out_of_fold(rows: Int[np.ndarray, "r"]) -> Float[np.ndarray, "r M+1 K"]:
            if not len(rows):
                return np.empty((0, sample.arms + 1, len(sample.outcomes.names)))
            return mean_response(self.networks_[self.folds_[rows[0]]], self.links_, sample.encoded, rows)

        return evidence(
            lambda rows: self.design_.at(sample.encoded[rows]),
            out_of_fold,
            sample.arm,
            lambda rows: np.where(sample.outcomes.observed[rows], sample.outcomes.values[rows], np.nan),
            sample.propensity,
            sample.tier_weights,
            estimable=sample.estimable[1:] & sample.estimable[:1],
            weight=sample.weight,
            cluster=sample.cluster,
            dtype=np.float32,
            parts=by_fold(self.folds_, AT_ONCE),
        )

    # ------------------------------------------------------------------------------------------------------ predict

    def _parts(self, encoded: Any) -> Parts:
        several = np.stack(
            [
                mean_response([nets[one] for nets in self.networks_], self.links_, encoded)
                for one in range(self.ensemble)
            ]
        )
        totals = several[:, :, 1:] - several[:, :, :1]
        spread = totals.std(axis=0, ddof=1) if self.ensemble > 1 else None
        natural, total = several.mean(axis=0)[:, 0], totals.mean(axis=0)
        if self.refit_ is not None:
            base = np.einsum("nmk,mk->nk", total, self.refit_.tier_weights)
            base, increments = self.refit_.apply(self.design_.at(encoded), base, total - base[:, None])
            total = base[:, None] + increments
        return natural, total, spread

    # -------------------------------------------------------------------------------------------------- model folder

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return state_of(self)

    def _restore(self, state: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        restore(self, state, arrays)
