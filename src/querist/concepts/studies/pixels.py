"""The trigger made in the image: by search within ε, and drawn anew where a renderer draws it."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from querist.concepts.attacks import at_bottleneck, perturb, reachability, redrawn
from querist.concepts.configs import AuditConfig
from querist.concepts.data import ConceptData
from querist.concepts.model import CBM
from querist.concepts.studies.plan import Plan
from querist.concepts.triggers import Trigger
from querist.errors import BadInput
from querist.statistics import stream

__all__ = ["reached"]

IMAGES = {"fast": 48, "full": 100}
EPS = tuple(e / 255 for e in (2, 4, 8, 16, 32))
SHOWN, SHOWN_EPS, SIDE = 6, 8 / 255, 96


def reached(
    config: AuditConfig,
    plan: Plan,
    test: ConceptData,
    trigger: Trigger,
    attacked: CBM,
    clean: CBM,
    passed: Sequence[Mapping[str, str]],
) -> Mapping[str, Any]:
    """Tables reachability and pictures, of test images drawn by the seed."""
    if attacked.g is None:
        return {}
    order = stream(config.seed, "reachability").permutation(test.n)
    own = order[test.codes[order] == test.code(plan.worked)]
    if not own.size:
        reason = f"class {plan.worked} has no test image"
        return {"passed_over": [*passed, {"what": "reachability", "reason": reason}]}
    # One image of the target is always among them: a target without any row is refused as unknown.
    rows = np.sort(np.concatenate([own[:1], order[order != own[0]][: IMAGES[config.budget] - 1]]))
    some = test.subset(rows)
    physical = _redrawn(config, some, trigger)
    found = reachability(
        attacked, some, trigger, plan.worked, eps=EPS, baseline=clean, physical=physical, seed=config.seed
    )
    kept = (
        "hit",
        "low",
        "high",
        "asr",
        "collateral",
        "null_hit",
        "null_high",
        "null_asr",
        "clean_hit",
        "clean_high",
        "clean_asr",
    )
    made = [
        {"target": str(plan.worked), "eps": at.eps, "images": found.n, "natural": found.natural}
        | {name: getattr(at, name) for name in kept}
        | {"physical_asr": found.physical_asr}
        for at in found.at
    ]
    return {"reachability": made, "pictures": _shown(config, plan, some, rows, trigger, attacked, physical)}


def _redrawn(config: AuditConfig, some: ConceptData, trigger: Trigger) -> np.ndarray | None:
    """The images drawn anew, where DATA is drawn and its seed is known."""
    if not config.data.startswith("render:"):
        return None
    from querist.sources.address import parse

    try:
        return redrawn(some, trigger, seed=int(dict(parse(config.data).options).get("seed", 0)))
    except BadInput:
        return None


def _shown(
    config: AuditConfig,
    plan: Plan,
    some: ConceptData,
    rows: np.ndarray,
    trigger: Trigger,
    attacked: CBM,
    physical: np.ndarray | None,
) -> list[dict[str, Any]]:
    """A few images of other classes, as they are, drawn anew and changed."""
    import torch

    chosen = np.flatnonzero(some.codes != some.code(plan.worked))[:SHOWN]
    if not chosen.size:
        return []
    few = some.subset(chosen)
    images = np.asarray(few.images)
    plain = images.astype(np.float32) / 255 if images.dtype == np.uint8 else images.astype(np.float32)
    kinds = {"as it is": plain}
    if physical is not None:
        kinds["drawn anew"] = physical[chosen].astype(np.float32) / (255 if physical.dtype == np.uint8 else 1)
    moved = perturb(attacked, torch.as_tensor(plain), trigger, SHOWN_EPS, seed=config.seed)
    kinds[f"within {255 * SHOWN_EPS:.0f}/255"] = moved.numpy()
    made = []
    for kind, pictures in kinds.items():
        view = few.changed(images=pictures)
        seen = at_bottleneck(attacked, view)
        predicted = attacked.scores(seen.concepts).argmax(axis=1)
        cut = 0.0 if attacked.input == "logit" else 0.5
        cells = (seen.concepts[:, list(trigger.index)] > cut) == np.array(trigger.values, dtype=bool)
        made += [
            {
                "image": int(rows[chosen[i]]),
                "kind": kind,
                "label": str(few.labels[i]),
                "predicted": str(few.classes[predicted[i]]),
                "hits": int(cells[i].sum()),
                "size": len(trigger),
                "png": _png(pictures[i]),
            }
            for i in range(few.n)
        ]
    return made


def _png(picture: np.ndarray) -> str:
    """A picture [3 h w] in 0 … 1 at 96 pixels, as a PNG in base64; small ones grow by whole pixels."""
    from PIL import Image

    pixels = np.clip(np.rint(255 * picture.transpose(1, 2, 0)), 0, 255).astype(np.uint8)
    kept = io.BytesIO()
    Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.NEAREST).save(kept, "PNG")
    return base64.b64encode(kept.getvalue()).decode()
