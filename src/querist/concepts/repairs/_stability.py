"""Stability training: a head whose loss hardly moves with its concepts has less room for a trigger."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch.nn import functional

from querist.concepts.data import ConceptData
from querist.concepts.heads import Head, seeded
from querist.concepts.model import CBM
from querist.concepts.repairs._repaired import Repaired, repaired
from querist.concepts.repairs._training import copied, held_out, train_f, with_f
from querist.errors import BadOption
from querist.training.losses import cross_entropy

__all__ = ["stability_loss", "stability_train"]

Slope = Literal["margin", "loss"]
SLOPES: tuple[Slope, ...] = ("margin", "loss")
TINY = 1e-12
"""Under the root: the norm's own gradient is undefined at 0."""


def stability_train(
    model: Any,
    data: ConceptData,
    *,
    penalty: float = 0.3,
    of: Slope = "margin",
    epochs: int = 20,
    lr: float = 3e-3,
    batch: int = 256,
    clean: tuple[Any, ConceptData] | None = None,
    seed: int = 0,
) -> Repaired:
    """f trained anew (a network that is not querist's own: from where it is) on the bottleneck's values of `data` with the loss
    CE + penalty · mean over rows of ‖∂h/∂c‖₂. g stays as it is.

    of: "margin", h the logit of the label less the largest other one, whose slope bounds how near a change of answer is; "loss", h the
    cross-entropy itself, whose slope vanishes on rows that are fitted. The epoch is chosen by the cross-entropy of the held-out
    rows. Neither takes a consistent backdoor out, for poisoned rows are fitted like any others: what remains is measured.

    Raises BadOption for a negative penalty and another `of`, NonFinite. Source: stability regularisation of the concept layer (arXiv
    2605.25304), whose loss is not public in full: both readings are ours; double backpropagation after Drucker & Le Cun (1992).
    """
    if of not in SLOPES:
        raise BadOption("No such slope", value=of, allowed=", ".join(SLOPES))
    if penalty < 0:
        raise BadOption("A penalty cannot be negative", value=penalty, allowed="0 or more")

    def repair(held: CBM, table: ConceptData) -> tuple[CBM, None, str]:
        train, val = held_out(held, table, seed)
        f = copied(held)
        if type(f) is Head:
            f = seeded(Head(f.k, f.classes, head=f.head, fill=train.means), seed, "head")
        made = with_f(held, f)
        loss = stability_loss(penalty, of)
        train_f(made.f, train, val, epochs=epochs, lr=lr, batch=batch, seed=seed, loss=loss)
        return made, None, f"penalty {penalty:g} of the {of} on {train.n} rows"

    return repaired("stability", repair, model, data, clean)


def stability_loss(penalty: float, of: Slope = "margin") -> Any:
    """The loss for `training.fit`; where no gradient is taken (validation) it is the cross-entropy alone."""

    def loss(model: Any, given: Any) -> dict[str, Any]:
        if not torch.is_grad_enabled():
            total, count = cross_entropy(model(given["concepts"]), given["label"])
            return {"class": (total, count), "gradient": (torch.zeros_like(total), count)}
        concepts = given["concepts"].detach().clone().requires_grad_(True)
        logits = model(concepts)
        total, count = cross_entropy(logits, given["label"])
        height = functional.cross_entropy(logits, given["label"], reduction="sum") if of == "loss" else None
        (slope,) = torch.autograd.grad(
            _margin(logits, given["label"]).sum() if height is None else height, concepts, create_graph=True
        )
        norms = (slope.pow(2).sum(dim=1) + TINY).sqrt()
        return {"class": (total, count), "gradient": (penalty * norms.sum(), count)}

    return loss


def _margin(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """The label's logit less the largest of the others, [n]; less nothing where there is one class."""
    own = logits.gather(1, label[:, None])[:, 0]
    if logits.shape[1] == 1:
        return own
    others = logits.masked_fill(functional.one_hot(label, logits.shape[1]).bool(), -torch.inf)
    return own - others.max(dim=1).values
