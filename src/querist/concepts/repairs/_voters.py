"""ConceptGuard: one head for each group of concepts, a majority vote, and a certificate of what a trigger can still reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from querist.concepts.attacks import as_model, at_bottleneck
from querist.concepts.data import ConceptData
from querist.concepts.fit import fit_heads
from querist.concepts.heads import Head
from querist.concepts.model import CBM
from querist.concepts.repairs._certificate import Certificate, Ties, certified_accuracy, certify, check_ties
from querist.concepts.repairs._guard import Grouping, class_order, concept_groups, vote_counts
from querist.concepts.repairs._repaired import Repaired, repaired
from querist.concepts.repairs._training import with_f
from querist.concepts.triggers import Trigger
from querist.errors import BadOption

__all__ = ["ConceptGuard", "Voters", "concept_guard"]


class Voters(nn.Module):
    """Heads, each of which reads its own concepts alone, as one f: [n k] -> the votes of each class [n L], ties broken by less than
    one vote. `place` [L]: the fixed order of classes that decides ties ("rank", and what "logprob" leaves)."""

    place: torch.Tensor

    def __init__(self, heads: Sequence[nn.Module], place: np.ndarray, ties: Ties):
        super().__init__()
        check_ties(ties)
        self.heads, self.ties = nn.ModuleList(heads), ties
        self.register_buffer("place", torch.as_tensor(np.array(place)))

    def each(self, concepts: torch.Tensor) -> torch.Tensor:
        """Class logits of each head, [n m L]."""
        return torch.stack([head(concepts) for head in self.heads], dim=1)

    def forward(self, concepts: torch.Tensor) -> torch.Tensor:
        """[n k] -> [n L]."""
        logits = self.each(concepts)
        classes = logits.shape[-1]
        counts = nn.functional.one_hot(logits.argmax(dim=-1), classes).sum(dim=1).to(torch.float64)
        # Later places come first in a stable sort, so that the first place wins among equal sums.
        first = torch.argsort(self.place, descending=True)
        if self.ties == "rank":
            order = first.expand(len(logits), classes)
        else:
            total = torch.log_softmax(logits.double(), dim=-1).sum(dim=1)
            order = first[torch.argsort(total[:, first], dim=1, stable=True)]
        worth = torch.arange(classes, device=logits.device, dtype=torch.float64) / classes
        bonus = torch.zeros_like(counts).scatter_(1, order, worth.expand_as(counts))
        return counts + bonus


class ConceptGuard:
    """Groups of concepts with a head each, trained together as one stack.

    groups: how many; by: as in `concept_groups`. ties: "rank", by an order of classes drawn before any vote is seen, or "logprob".
    After `fit`: `groups_` [k] the group of each concept, `model`, a `CBM` whose f is `Voters`.

    Source: ConceptGuard (arXiv 2411.16512). Deviations: the certificate counts ties as lost where log-probabilities break them;
    ties by class id, which favour class 0, are not offered; what is certified is the test-time trigger alone.
    """

    def __init__(
        self,
        groups: int = 4,
        *,
        by: Grouping = "names",
        head: str = "mlp:512",
        ties: Ties = "rank",
        epochs: int = 20,
        lr: float = 3e-3,
        batch: int = 512,
        seed: int = 0,
    ):
        check_ties(ties)
        self.groups, self.head, self.seed = groups, head, seed
        self.by: Grouping = by
        self.ties: Ties = ties
        self.options = {"epochs": epochs, "lr": lr, "batch": batch}
        self.groups_: Int[np.ndarray, "k"]
        self.model: CBM

    def fit(self, data: ConceptData, model: Any = None) -> ConceptGuard:
        """Train on the part train (all rows without a split). model: its g, which stays as it is, says what the heads read.

        Raises BadOption for groups that cannot be, and for a g without pictures.
        """
        train = data.part("train") if data.split is not None and "train" in data.split else data
        held = None if model is None else as_model(model, data)
        table = (train if held is None else at_bottleneck(held, train)).changed(split=None, images=None)
        self.groups_ = concept_groups(train, self.groups, by=self.by, seed=self.seed)
        members = [self.groups_ == group for group in range(self.groups)]
        parts = [table.changed(concepts=np.where(own, table.concepts, 0)) for own in members]
        heads = fit_heads(parts, head=self.head, seed=self.seed, **self.options)
        for head, own in zip(heads, members, strict=True):
            _read_only(head, own)
        voters = Voters(heads, class_order(table.n_classes, seed=self.seed), self.ties)
        if held is None:
            names = {"concept_names": data.concept_names, "classes": data.classes}
            self.model = CBM(None, voters, mode="independent", input=table.space, **names).eval()
        else:
            self.model = with_f(held, voters)
        return self

    def votes(self, concepts: Float[np.ndarray, "n k"]) -> Int[np.ndarray, "n m"]:
        """The class that each group votes for, from what the heads read."""
        voters = self._voters()
        return CBM(None, _Each(voters)).scores(concepts).argmax(axis=2)

    def predict(self, concepts: Float[np.ndarray, "n k"]) -> Int[np.ndarray, "n"]:
        """The vote's class, from what the heads read."""
        self._voters()
        return self.model.scores(concepts).argmax(axis=1)

    def certificate(self, concepts: Float[np.ndarray, "n k"]) -> Certificate:
        """How many groups may be changed at will without changing the vote of each row."""
        counts = vote_counts(self.votes(concepts), len(self._voters().place))
        order = self._voters().place.cpu().numpy()
        return certify(counts, self.predict(concepts), ties=self.ties, order=order)

    def coverage(self, trigger: Trigger) -> int:
        """Groups that a trigger touches; above r the certificate says nothing."""
        return trigger.coverage(self.groups_.tolist())

    def table(self, data: ConceptData, trigger: Trigger | None = None) -> list[dict[str, Any]]:
        """Rows of table `certificate` on these rows, r = 0 … m: r, certified_accuracy, accuracy, groups, coverage, ties."""
        read = at_bottleneck(self.model, data)
        found = self.certificate(read.concepts)
        accuracy = float((found.winner == data.codes).mean())
        covered = None if trigger is None else self.coverage(trigger)
        return [
            {
                "r": r,
                "certified_accuracy": float(value),
                "accuracy": accuracy,
                "groups": found.groups,
                "coverage": covered,
                "ties": self.ties,
            }
            for r, value in enumerate(certified_accuracy(found, data.codes))
        ]

    def _voters(self) -> Voters:
        if not hasattr(self, "model"):
            raise BadOption("The guard is not trained", value="no model", mend="Call fit first")
        assert isinstance(self.model.f, Voters)
        return self.model.f


def concept_guard(
    model: Any,
    data: ConceptData,
    *,
    groups: int = 4,
    by: Grouping = "names",
    ties: Ties = "rank",
    clean: tuple[Any, ConceptData] | None = None,
    seed: int = 0,
    **options: Any,
) -> Repaired:
    """The model with its f replaced by a `ConceptGuard` trained on `data`; options as there."""

    def repair(held: CBM, table: ConceptData) -> tuple[CBM, None, str]:
        given: dict[str, Any] = ({"head": held.f.head} if type(held.f) is Head else {}) | options
        guard = ConceptGuard(groups, by=by, ties=ties, seed=seed, **given).fit(table, held)
        return guard.model, None, f"{groups} groups by {by}, ties by {ties}"

    return repaired("concept-guard", repair, model, data, clean)


class _Each(nn.Module):
    def __init__(self, voters: Voters):
        super().__init__()
        self.voters = voters

    def forward(self, concepts: torch.Tensor) -> torch.Tensor:
        return self.voters.each(concepts)


def _read_only(head: Head, own: np.ndarray) -> None:
    """The first layer reads nothing outside the group; there it was trained on zeros, so that answers stay as they were."""
    first = head.layers[0]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.weight[:, torch.as_tensor(~own)] = 0
        head.fill[torch.as_tensor(~own)] = 0
