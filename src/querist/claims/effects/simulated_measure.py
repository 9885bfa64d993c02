"""What the claims on known effects measure: one training, its refits, and their errors on new people."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from querist.effects.baselines import M3TN, ConstantEffect, EFINLike, SLearner, TLearner
from querist.effects.metrics import rate
from querist.effects.network import MTMT
from querist.effects.parts import Effects
from querist.effects.sample import Sample
from querist.effects.simulation import SETTINGS, Simulated, simulate

__all__ = ["KeptMTMT", "measure", "refitted"]

ARMS = 3
OTHER_PEOPLE = 1_000_000
"""Between the seeds of people that are fitted on and of those that errors are taken on."""

TRAINED: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "tiers": ({}, {"MTMT": "tier", "MTMT, refit on totals": "flat", "tiers, no refit": False}),
    "flat": ({"tier": "none"}, {"flat heads": False, "flat heads, tiered refit": "tier"}),
    "no-interaction": ({"interaction": False}, {"without interaction": "tier"}),
    "no-enhancer": ({"enhancer": False}, {"without enhancer": "tier"}),
    "joint": ({}, {"together": "tier"}),
    "separate": ({}, {"alone": "tier"}),
}
"""Options of the network that is trained, and what its refits are called."""


class KeptMTMT(MTMT):
    """MTMT that keeps its checked sample, so that one training can be refitted in several ways."""

    def _fit(self, sample: Sample, hooks: Sequence[Any]) -> None:
        super()._fit(sample, hooks)
        self.sample_ = sample


def refitted(model: KeptMTMT, shrink: str | bool) -> KeptMTMT:
    """The same networks with another refit: what a fit with `shrink` would be."""
    again = copy.copy(model)
    again.shrink = shrink
    again.refit_ = again._shrink(model.sample_) if shrink else None
    return again


def measure(payload: Mapping[str, Any], seed: int, device: str) -> Mapping[str, Any]:
    """One piece."""
    number = 1000 * seed + payload["first"] + payload["repeat"]
    drawn: dict[str, Any] = {**SETTINGS[payload["setting"]], "arms": ARMS}
    people = simulate(payload["n"], seed=number, correlation=payload["correlation"], rare=payload["rare"], **drawn)
    new = simulate(payload["people"], seed=number + OTHER_PEOPLE, **drawn)
    of = {name: payload[name] for name in ("setting", "n", "repeat")}
    errors, ranks = [], []
    for name, found in _answers(payload, people, new.X, number, device):
        alone = payload["fit"] == "separate"
        truth = _second(new.truth) if alone else new.truth
        errors.append(
            {
                **of,
                "model": name,
                "increments": _rmse(found.incremental, truth.incremental),
                "totals": _rmse(found.total, truth.total),
                "rare": _rmse(found.total[..., -1:], truth.total[..., -1:]),
            }
        )
        if payload["rare"] == 1:
            ranks += [{**of, "model": name, **row} for row in _ranks(found, new.truth)]
    return {"errors": errors, "ranks": ranks}


def _answers(
    payload: Mapping[str, Any], people: Simulated, X: np.ndarray, number: int, device: str
) -> Iterator[tuple[str, Effects]]:
    fit, common = payload["fit"], dict[str, Any](control=0, random_state=number)
    if fit == "learners":
        for name, made in (("T-learner", TLearner), ("S-learner", SLearner), ("constant effect", ConstantEffect)):
            yield name, made(**common).fit(people.X, people.arm, people.Y).predict_effects(X)
        return
    common |= {"preset": payload["preset"], "epochs": payload["epochs"], "device": device}
    if fit in ("m3tn", "efin"):
        made = M3TN if fit == "m3tn" else EFINLike
        name = "M3TN" if fit == "m3tn" else "EFIN-like"
        yield name, made(**common).fit(people.X, people.arm, people.Y).predict_effects(X)
        return
    options, ways = TRAINED[fit]
    Y, arm, features = people.Y, people.arm, people.X
    if fit == "separate":
        seen = np.isfinite(Y[:, 1])
        Y, arm, features = Y[seen, 1:], arm[seen], features[seen]
    model = KeptMTMT(folds=payload["folds"], shrink=False, **options, **common)
    model.fit(features, arm, Y)
    for name, shrink in ways.items():
        yield name, refitted(model, shrink).predict_effects(X)


def _second(truth: Effects) -> Effects:
    """The truth of the second outcome alone."""
    return Effects(truth.natural[:, 1:], truth.base[:, 1:], truth.incremental[..., 1:], truth.tier_weights)


def _rmse(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.sqrt(np.mean((a - b) ** 2)))


def _ranks(found: Effects, truth: Effects) -> Iterator[dict[str, Any]]:
    for m in range(truth.total.shape[1]):
        for k in range(truth.total.shape[2]):
            true = truth.total[:, m, k]
            yield {
                "arm": m + 1,
                "outcome": k + 1,
                "qini": rate(true, found.total[:, m, k]).estimate,
                "best": rate(true, true).estimate,
            }
