"""Neural Cleanse among concepts: invert a trigger of every class, and ask whether clean retrains have one as small."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import nn

from querist.concepts.data import ConceptData, same_schema
from querist.concepts.detectors._anomaly import LEAST_CLASSES, CleanseTest, cleanse_test
from querist.concepts.detectors._detector import Detector, Findings
from querist.concepts.detectors._gradient import invert_gradient
from querist.concepts.detectors._inversion import Inversion, invert_discrete
from querist.concepts.fit import fit_heads
from querist.concepts.heads import Head, seeded
from querist.concepts.model import CBM
from querist.errors import BadOption
from querist.statistics import stream

__all__ = ["ConceptCleanse", "clean_indices"]

Method = Literal["discrete", "gradient"]
STACKED = 8
"""Retrains that are trained together."""


class ConceptCleanse(Detector):
    """Inverts a trigger for each class of the model's head and tests the largest anomaly index against clean retrains.

    method: "discrete" (`invert_discrete`) or "gradient" (`invert_gradient`); options go to it. null [B >= 19]: largest indices of
    clean retrains, from `clean_indices`; without it nothing is flagged and `reason` says so. level: of the test. Triggers are tried
    on the reference where one is given, else on the table.

    A row's score is the index of its class where it carries that class's inverted trigger, else the least of 0 and that index;
    flagged are the rows that carry the trigger of the class of the largest index, where p <= level. After `fit`: `inversion`, `test`.
    """

    method = "cleanse"

    def __init__(
        self,
        method: Method = "discrete",
        *,
        null: ArrayLike | None = None,
        level: float = 0.05,
        classes: Iterable[Any] | None = None,
        **options: Any,
    ):
        if method not in ("discrete", "gradient"):
            raise BadOption("No such inversion", value=method, allowed="discrete, gradient")
        self.how, self.level, self.only, self.options = method, level, classes, options
        self.null = None if null is None else np.asarray(null, dtype=float)
        self.inversion: Inversion | None = None
        self.test: CleanseTest | None = None

    def fit(
        self, data: ConceptData, model: nn.Module | None = None, reference: ConceptData | None = None
    ) -> ConceptCleanse:
        """Raises BadOption without a model, and what the inversion raises."""
        if model is None:
            raise BadOption("Inversion needs a model", value="model=None", allowed="a head, or a CBM")
        if reference is not None:
            same_schema(data, reference)
        invert = invert_discrete if self.how == "discrete" else invert_gradient
        found = invert(model, data if reference is None else reference, classes=self.only, **self.options)
        self.inversion, self.test, reason = found, None, None
        if len(found.codes) < LEAST_CLASSES:
            reason = f"{len(found.codes)} classes: an outlier needs {LEAST_CLASSES} or more"
        elif self.null is None:
            reason = "no clean retrains: an anomaly index alone is no verdict"
        else:
            self.test = cleanse_test(found.index, self.null)
        index = np.full(data.n_classes, 0.0)
        names = (data if reference is None else reference).classes
        place = {str(label): code for code, label in enumerate(data.classes)}
        carries = np.zeros(data.n, dtype=bool)
        own = [place.get(str(names[code])) for code in found.codes]
        for code, value, trigger in zip(own, found.index, found.triggers, strict=True):
            if code is not None:
                index[code] = value
                rows = np.flatnonzero(data.codes == code)
                if trigger is not None and rows.size:
                    carries[rows] = trigger.matches(data.concepts[rows], space=data.space)
        scores = np.where(carries, index[data.codes], np.minimum(index[data.codes], 0))
        top = int(found.index.argmax())
        sure = self.test is not None and self.test.p <= self.level
        pattern = found.triggers[top] if sure else None
        self._found = Findings(
            data,
            scores,
            carries & (data.codes == own[top]) if sure else np.zeros(data.n, dtype=bool),
            (names[found.codes[top]],) if sure else (),
            () if pattern is None else tuple(data.concept_names[i] for i in pattern.index),
            found.table(names, None if self.test is None else self.test.p),
            pattern,
            reason,
        )
        return self


def clean_indices(
    data: ConceptData,
    model: nn.Module | None = None,
    *,
    retrains: int = 19,
    method: Method = "discrete",
    on: ConceptData | None = None,
    head: str = "mlp:512",
    epochs: int = 20,
    lr: float = 3e-3,
    batch: int = 512,
    seed: int = 0,
    **options: Any,
) -> Float[np.ndarray, "B"]:
    """The largest anomaly index of each of `retrains` heads trained on trusted rows: the null of `cleanse_test`.

    Each head has weights of its own and a bootstrap of the table's rows. model: its kind of head is taken in place of `head`, where it is
    querist's own. on: the rows that triggers are tried on, as for the model itself; the table by default. options go to the inversion.
    A null of far fewer rows than the model was trained on is wider than it should be. Raises BadOption, NonFinite.
    """
    if retrains < 1 or method not in ("discrete", "gradient"):
        raise BadOption("No such retrains", value=f"{retrains}, {method}", allowed="1 or more; discrete, gradient")
    own = model.f if isinstance(model, CBM) else model
    kind = own.head if isinstance(own, Head) else head
    invert = invert_discrete if method == "discrete" else invert_gradient
    table = data.changed(split=None) if data.split is not None else data
    found = []
    for first in range(0, retrains, STACKED):
        numbers = range(first, min(first + STACKED, retrains))
        tables = [
            table.subset(stream(seed, "clean retrain", b).integers(0, table.n, table.n)).changed(ids=None)
            for b in numbers
        ]
        initial = [
            seeded(Head(t.k, t.n_classes, head=kind, fill=t.means), seed, "clean retrain", b)
            for t, b in zip(tables, numbers, strict=True)
        ]
        heads = fit_heads(tables, head=kind, seed=seed, initial=initial, epochs=epochs, lr=lr, batch=batch)
        found += [invert(made, table if on is None else on, seed=seed, **options).largest for made in heads]
    return np.array(found)
