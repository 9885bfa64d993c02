"""Does a prediction stand on a few concepts alone? Its entropy when all the others are taken from other rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from querist.concepts.data import ConceptData
from querist.concepts.detectors._network import evaluating, head_of, reading, same_space
from querist.errors import BadOption, NonFinite
from querist.statistics import stream

__all__ = ["Perturbation"]

BLOCK = 1 << 21


class Perturbation:
    """Entropy in nats of the mean prediction over copies of a row whose concepts, but for the suspect ones, come from clean rows.

    suspects: concepts that are kept in every copy; without them each row keeps its own `keep` most telling ones, by
    |slope of the margin · (value − clean mean)|. `copies` clean rows are drawn once by the seed, so that memory is constant and
    equal rows have equal entropies. A trigger among the kept concepts holds the prediction, and the entropy stays low.

    Raises BadOption. Source: STRIP (Gao et al. 2019), section 3; concepts are replaced where pictures are blended, and the entropy
    is that of the mean prediction, which also falls where every copy is sure of the same class.
    """

    def __init__(
        self,
        model: nn.Module,
        clean: ConceptData,
        *,
        suspects: Sequence[int] | None = None,
        keep: int = 5,
        copies: int = 32,
        seed: int = 0,
    ):
        if not 1 <= keep < clean.k or copies < 2 or clean.n < 2:
            raise BadOption(
                "Perturbing needs concepts to keep, and rows to take the others from",
                value=f"keep {keep}, copies {copies}, {clean.n} rows",
                allowed=f"keep 1 to {clean.k - 1}, copies 2 or more, 2 rows or more",
            )
        if suspects is not None and not (set(suspects) <= set(range(clean.k)) and 0 < len(set(suspects)) < clean.k):
            raise BadOption(
                "Suspects must be some of the concepts", value=list(suspects), allowed=f"0 to {clean.k - 1}"
            )
        same_space(model, clean)
        self.network, self.keep = head_of(model), keep
        self.suspects = None if suspects is None else sorted(set(suspects))
        self.read = reading(self.network, clean)
        rows = stream(seed, "perturbation").permutation(clean.n)[:copies]
        self.donors, self.mean = self.read(clean.concepts[rows]), self.read(clean.means[None])[0]

    def entropy(self, concepts: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n"]:
        """Raises NonFinite where the head's scores are not finite."""
        x = self.read(concepts)
        per = max(1, BLOCK // (self.donors.numel() + 1))
        with evaluating(self.network):
            found = [self._entropy(x[i : i + per]) for i in range(0, len(x), per)]
        made = torch.cat(found).double().cpu().numpy() if found else np.zeros(0)
        if not np.isfinite(made).all():
            raise NonFinite("The head's scores are not finite", value="NaN", mend="Check the model's weights")
        return made

    def _entropy(self, x: torch.Tensor) -> torch.Tensor:
        held = self._held(x)
        with torch.no_grad():
            copies = torch.where(held[:, None], x[:, None], self.donors[None])
            share = torch.softmax(self.network(copies.flatten(0, 1)), dim=1).unflatten(0, copies.shape[:2]).mean(dim=1)
            return torch.special.entr(share).sum(dim=1)

    def _held(self, x: torch.Tensor) -> torch.Tensor:
        """The concepts that each row keeps [n k]."""
        held = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
        if self.suspects is not None:
            held[:, self.suspects] = True
            return held
        cells = x.detach().clone().requires_grad_()
        with torch.enable_grad():
            top = self.network(cells).topk(2, dim=1).values
            slope = torch.autograd.grad((top[:, 0] - top[:, 1]).sum(), cells)[0]
        telling = (slope * (x - self.mean)).abs().topk(self.keep, dim=1).indices
        return held.scatter(1, telling, True)
