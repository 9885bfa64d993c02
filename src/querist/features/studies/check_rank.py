"""What can be known to be wrong before a ranking begins, and before its scores are computed."""

from __future__ import annotations

from collections import Counter

import numpy as np

from querist.errors import BadOption, ShapeMismatch, TooFewRows
from querist.features.captured import Capture
from querist.features.configs import RankConfig
from querist.features.errors import BadLabels
from querist.features.freezing import no_labels
from querist.features.profile import LEAST, arm_size
from querist.features.reduction import Reduction
from querist.features.studies.opening import Material

__all__ = ["check_labels", "check_rank"]

FOLDS = 5


def check_rank(config: RankConfig, material: Material) -> None:
    """Raise BadInput for options that contradict each other, data that are too few, unlabelled or do not fit."""
    if not config.models or not all(config.models):
        raise BadOption("There is no network to rank", value=config.models, mend="Name one or more: MODEL...")
    if twice := [name for name, count in Counter(config.models).items() if count > 1]:
        raise BadOption("Two networks have one name", value=twice[0], allowed="each once")
    if not config.target:
        raise BadOption("A ranking needs labelled data", value=config.target, mend="Name them with --target B")
    if config.reduce.startswith("sites"):
        raise BadOption(
            "Scores take one row of each example",
            value=config.reduce,
            allowed="mean, cls, last, flat",
            mend="Places of one example are no independent rows",
        )
    Reduction.of(config.reduce, config.proj_dim)
    if config.truth:
        from querist.features.studies.rank_truth import read_truth

        read_truth(config.truth)
    data = material.data("target", config)
    if min(config.n, len(data)) < LEAST:
        raise TooFewRows("Too few examples of the target", value=min(config.n, len(data)), allowed=f"{LEAST} or more")
    if config.source:
        arm_size(min(config.n, len(material.data("source", config))), min(config.n, len(data)))
    for role in ("target", *(("source",) if config.source else ())):
        _look(config, material, role)


def _look(config: RankConfig, material: Material, role: str) -> None:
    from querist.sources.data import choose_ids
    from querist.sources.taps import Tap

    data = material.data(role, config)
    before = len(data.passed_over)
    few = data.read(choose_ids(data, config.n, seed=config.seed)[:3])
    del data.passed_over[before:]
    if role == "target" and few.labels is None and len(few.ids):
        raise no_labels(config.target)
    if not len(few.ids):
        return  # the capture tells what cannot be read, and whether it is too much
    for i in range(len(config.models)):
        with Tap(material.network(f"model-{i}"), layers=config.layers, device=config.device) as tap:
            try:
                tap.look(few.inputs)
            except ShapeMismatch as error:
                mend = error.mend or "Change the pictures: --size, --channels, --pad"
                what = f"{data.name}: {error.what}"
                raise type(error)(what, value=error.value, allowed=error.allowed, mend=mend) from None


def check_labels(captured: Capture) -> None:
    """Raises LabelsNeeded, BadLabels for a class of fewer rows than the probe has folds or for one class alone."""
    if captured.labels is None:
        raise no_labels(captured.data)
    labels, sizes = np.unique(captured.labels, return_counts=True)
    small = int(sizes.argmin())
    if len(labels) < 2 or sizes[small] < FOLDS:
        label = int(labels[small])
        known = captured.classes is not None and 0 <= label < len(captured.classes)
        name = f"{label} ({captured.classes[label]})" if known and captured.classes else str(label)
        raise BadLabels(
            f"A class of {captured.data} has too few rows" if len(labels) > 1 else f"{captured.data} has one class",
            value=f"class {name} has {int(sizes[small])}",
            allowed=f"{FOLDS} rows or more in each of two classes or more",
            mend="Raise --n, or leave the class out",
        )
