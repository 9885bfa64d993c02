"""How a model is made from a table: one description that sweeps, transfers and repairs all train by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from querist.concepts.data import ConceptData, Space
from querist.concepts.fit import fit_cbm, fit_head, fit_heads
from querist.concepts.model import CBM, Mode
from querist.concepts.triggers import logit_scale
from querist.errors import BadOption

__all__ = ["Recipe"]

AT_ONCE = 32
"""Heads in one stack: more gain nothing on a CPU, and a stack holds a copy of the table for each."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A head on the table's own concepts (kind "head"), or a bottleneck model of its pictures ("cbm").

    head, epochs, lr, batch: as in `fit_head` and `fit_cbm`, whose defaults stand where they are None. mode, input, weight: of a
    bottleneck model, whose backbone is the small one. Training draws from the seed that `fit` is given and from nothing else.
    """

    kind: Literal["head", "cbm"] = "head"
    head: str | None = None
    epochs: int | None = None
    lr: float | None = None
    batch: int | None = None
    mode: Mode = "joint"
    input: Space = "logit"
    weight: float = 0.5
    device: str = "cpu"

    def __post_init__(self):
        if self.kind not in ("head", "cbm"):
            raise BadOption("No such kind of model", value=self.kind, allowed="head, cbm")

    @classmethod
    def of(cls, data: ConceptData, **fields: Any) -> Recipe:
        """A bottleneck model where the table has pictures, else a head."""
        kind: Any = fields.pop("kind", "head" if data.images is None else "cbm")
        return cls(kind, **fields)

    def changed(self, **fields: Any) -> Recipe:
        """The same recipe with some fields replaced."""
        return replace(self, **fields)

    def fit(self, data: ConceptData, *, seed: int, hooks: Sequence[Any] = ()) -> CBM:
        """The model of this table. Raises what `fit_head` and `fit_cbm` raise."""
        if self.kind == "head":
            return self._wrapped(fit_head(data, seed=seed, hooks=hooks, **self._options()), data)
        return fit_cbm(
            data, mode=self.mode, input=self.input, weight=self.weight, seed=seed, hooks=hooks, **self._options()
        )

    def fit_many(self, datas: Sequence[ConceptData], *, seed: int, at_once: int = AT_ONCE) -> list[CBM]:
        """The models of tables of one shape: heads in stacks of `at_once`, bottleneck models one by one."""
        if self.kind == "cbm":
            return [self.fit(data, seed=seed) for data in datas]
        made: list[CBM] = []
        for start in range(0, len(datas), at_once):
            part = datas[start : start + at_once]
            heads = fit_heads(part, seed=seed, **self._options())
            made += [self._wrapped(head, data) for head, data in zip(heads, part, strict=True)]
        return made

    def _options(self) -> dict[str, Any]:
        given = {"head": self.head, "epochs": self.epochs, "lr": self.lr, "batch": self.batch, "device": self.device}
        return {name: value for name, value in given.items() if value is not None}

    def _wrapped(self, head: torch.nn.Module, data: ConceptData) -> CBM:
        train = data.part("train") if data.split is not None and "train" in data.split else data
        scale = logit_scale(train.concepts) if data.space == "logit" else None
        return CBM(
            None,
            head,
            mode="independent",
            input=data.space,
            scale=scale,
            concept_names=data.concept_names,
            classes=data.classes,
        ).eval()
