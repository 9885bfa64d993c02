"""Two-sample tests of poisoned rows, and the first picks of CAT+ for every class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from querist.claims.concepts.tables import opened
from querist.concepts.attacks import Setting, planted, repeat_parts, repeat_seed, select, two_sample
from querist.concepts.triggers import cat_plus_all
from querist.errors import BadOption, TooFewRows

__all__ = ["measure"]

DIRTY = Setting("cat", 5, 0.05, "dirty")
_NAMES = ("n_a", "n_b", "auc", "low", "high", "p", "mmd2", "p_mmd", "shift_mean", "shift_max")


def measure(payload: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """One table in one repeat."""
    data = opened(payload["table"])
    train = repeat_parts(data, payload["repeat"], seed=seed).train
    place = {"table": payload["table"], "repeat": payload["repeat"]}
    draw = repeat_seed(seed, payload["repeat"])
    if payload["kind"] == "stealth":
        rows = [
            place | {"target": target} | _tested(train, target, payload["permutations"], draw)
            for target in payload["targets"]
        ]
        return {"stealth_tests": rows}
    usable = len(train.usable())
    found = {str(train.classes[one.target]): one for one in cat_plus_all(train, 1, seed=draw)}
    return {
        "first_picks": [
            place
            | {"target": target, "concept": one.concept_names[one.trigger.index[0]], "index": one.trigger.index[0]}
            | {"value": one.trigger.values[0], "cnt": int(one.cnt[0]), "concepts": usable}
            for target, one in found.items()
        ]
    }


def _tested(train: Any, target: str, permutations: int, draw: int) -> dict[str, Any]:
    trigger = select(train, target, [(DIRTY.selector, DIRTY.size)], seed=draw)[DIRTY.selector, DIRTY.size].trigger
    try:
        copy = planted(train, trigger, target, DIRTY, seed=draw)
        honest = copy.data.concepts[~copy.mask & (copy.data.codes == copy.target)]
        found = two_sample(honest, copy.data.concepts[copy.mask], permutations=permutations, seed=draw)
    except (BadOption, TooFewRows) as error:
        return {"reason": str(error)}
    return {name: getattr(found, name) for name in _NAMES} | {"reason": None}
