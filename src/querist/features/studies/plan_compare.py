"""What a comparison is made of: roles of networks and data, captures by role, and the layers that can be compared."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from querist.errors import UndefinedMetric
from querist.features.captured import Capture
from querist.features.configs import CompareConfig
from querist.features.normalise import fit_normaliser
from querist.features.relation import rows_of, sites_of

__all__ = ["REPEATED", "data_roles", "kinds", "named", "of_repeat", "read_captures", "twins", "usable"]

REPEATED = ("captures", "draws", "probes", "evolution", "net_profiles")
"""Tables that every repetition adds to; all others are of the first one alone."""


def of_repeat(config: CompareConfig, repeat: int) -> CompareConfig:
    """What one repetition is told: the first is the comparison itself, later ones have seeds of their own and fewer tables."""
    if repeat == 0:
        return config
    less = {"against": None, "save_reference": None, "class_gaps": False}
    return config.model_copy(update={"seed": config.seeds[repeat], "repeats": 1, **less})


def data_roles(config: CompareConfig) -> list[str]:
    """Roles of the data sets: the source unless a reference stands for it, and every target."""
    return [*([] if config.reference else ["source"]), *named(config)]


def named(config: CompareConfig) -> dict[str, str]:
    """Roles of the targets, each with its name."""
    return {f"target-{i}": name for i, name in enumerate(config.target)}


def kinds(config: CompareConfig) -> dict[str, str]:
    """Every role, as "model" or "data"."""
    nets = ["model", *(["against"] if config.against else [])]
    return dict.fromkeys(nets, "model") | dict.fromkeys(data_roles(config), "data")


def read_captures(paths: Mapping[str, str]) -> dict[tuple[str, str], Capture]:
    """Captures by (network, role), from their folders by "network/role"."""
    found = {}
    for key, path in paths.items():
        net, _, role = key.partition("/")
        found[net, role] = Capture.read(path)
    return found


def usable(
    config: CompareConfig, captures: Mapping[tuple[str, str], Capture], net: str
) -> tuple[list[str], list[dict[str, str]]]:
    """Layers that can be compared, in forward order: captured for every set and not constant over the source; and the others.

    Logits that are the values of a layer before them, as those of an encoder without a head, are that layer and not in either.
    """
    mine = {role: one for (of, role), one in captures.items() if of == net}
    base = mine.get("source") or next(iter(mine.values()))
    kept, passed, twin = [], [], twins(base)
    for layer in base.names:
        if layer in twin:
            continue
        missing = [role for role, one in mine.items() if layer not in one.names]
        reason = f"it was not captured for {', '.join(missing)}" if missing else ""
        reason = reason or ("" if config.reference else _constant(base, mine, layer))
        if reason:
            passed.append({"model": net, "what": layer, "reason": reason})
        else:
            kept.append(layer)
    return kept, passed


def twins(capture: Capture) -> dict[str, str]:
    """Logits whose rows equal those of an earlier layer, with its name."""
    found = {}
    for place, layer in enumerate(capture.layers):
        before = capture.layers[:place] if layer.kind == "logits" else ()
        same = next((one.name for one in before if np.array_equal(one.rows, layer.rows)), None)
        if same is not None:
            found[layer.name] = same
    return found


def _constant(base: Capture, mine: Mapping[str, Capture], layer: str) -> str:
    try:
        fit_normaliser(rows_of(base, layer, sites_of(mine, layer)), "iso")
    except UndefinedMetric:
        return "it is constant over the source"
    return ""
