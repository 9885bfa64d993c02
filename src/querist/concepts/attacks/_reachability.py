"""Can a trigger be made in the picture? Projected gradients on pixels, a picture drawn anew, and their nulls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from querist.concepts.attacks._pixels import BATCH, COLLATERAL, RESTARTS, STEPS, Pictures, concept_network, searched
from querist.concepts.data import ConceptData
from querist.concepts.model import CBM, as_input
from querist.concepts.triggers import Trigger
from querist.errors import BadOption
from querist.statistics import stream, wilson

if TYPE_CHECKING:
    import polars as pl

__all__ = ["EPS", "Reach", "Reachability", "reachability", "redrawn"]

Said = tuple[Float[np.ndarray, "n k"], Int[np.ndarray, "n"]]
"""Concept logits and class codes of pictures."""
EPS = tuple(e / 255 for e in (2, 4, 8, 16, 32))


@dataclass(frozen=True, slots=True)
class Reach:
    """One size of perturbation, `eps` in units of the full range of a pixel; fractions, None over no rows or without what it needs.

    `hit` [`low`, `high`] (95 % Wilson): all concepts of the trigger on their side of ½; `asr` predicted as the target, of rows of
    other classes; `collateral`: mean |σ(g(x + d)) − σ(g(x))| of the other concepts. `null_hit`, `null_asr`: random signs of the
    same size. `clean_hit`, `clean_asr`: the same search on the clean model.
    """

    eps: float
    hit: float
    low: float | None
    high: float | None
    asr: float | None
    collateral: float | None
    null_hit: float
    null_low: float | None
    null_high: float | None
    null_asr: float | None
    clean_hit: float | None
    clean_low: float | None
    clean_high: float | None
    clean_asr: float | None


@dataclass(frozen=True, slots=True)
class Reachability:
    """`at`: one `Reach` for each size. `natural`, `untriggered`: hit rate and target rate of the pictures as they are.

    `physical_hit`, `physical_asr`: of the pictures drawn anew with the trigger, `physical_clean_asr` the clean model's; None without
    them. `n` pictures, `n_other` of other classes.
    """

    target: Any
    n: int
    n_other: int
    at: tuple[Reach, ...]
    natural: float
    untriggered: float | None
    physical_hit: float | None
    physical_asr: float | None
    physical_clean_asr: float | None

    @property
    def table(self) -> pl.DataFrame:
        """eps, target, hit, low, high, asr, collateral, null_hit, null_asr, clean_hit, clean_asr, physical_asr."""
        import polars as pl

        names = ("hit", "low", "high", "asr", "collateral", "null_hit", "null_asr", "clean_hit", "clean_asr")
        rows = [
            {"eps": reach.eps, "target": str(self.target)}
            | {name: getattr(reach, name) for name in names}
            | {"physical_asr": self.physical_asr}
            for reach in self.at
        ]
        kinds = dict.fromkeys(("eps", *names, "physical_asr"), pl.Float64)
        return pl.DataFrame(rows, schema={"eps": pl.Float64, "target": pl.String} | kinds)


def reachability(
    model: CBM,
    data: ConceptData,
    trigger: Trigger,
    target: Any,
    *,
    eps: Sequence[float] = EPS,
    steps: int = STEPS,
    restarts: int = RESTARTS,
    mu: float = COLLATERAL,
    baseline: CBM | None = None,
    physical: Any = None,
    batch: int = BATCH,
    seed: int = 0,
) -> Reachability:
    """How often pixels within ε (of the full range) make g say the trigger, and what the whole model then says.

    data: a table with images [n 3 h w], uint8 or 0 … 1, any number of them: `batch` are held as floats at once. `perturb` searches on
    the model itself (white box). baseline: the clean model; the search is run on it anew. physical: pictures [n 3 h w] drawn anew
    with the trigger, as `redrawn` makes them.

    Raises BadOption for a model without g and for sizes, ShapeMismatch, BadValues for pixels out of range, UnknownName, NonFinite.
    Source: ours; the public release of CAT has no code for triggers in pictures. Search: Madry et al. (2018).
    """
    if not len(eps) or not all(0 < e <= 1 for e in eps):
        raise BadOption(
            "Sizes of perturbation lie outside their range", value=list(eps), allowed="0 < eps <= 1, one or more"
        )
    code = data.target(target)
    pictures = Pictures(data.images, data.n)
    for part in (model, baseline):
        if part is not None:
            concept_network(part, trigger)
    other = data.codes != code
    drawn = None if physical is None else Pictures(physical, data.n)
    plain = _said(model, pictures, batch)
    of_drawn = None if drawn is None else _said(model, drawn, batch)
    clean_drawn = None if drawn is None or baseline is None else _said(baseline, drawn, batch)
    at = []
    for size in eps:
        options: dict[str, Any] = {"steps": steps, "restarts": restarts, "mu": mu, "seed": seed}
        # The draws of successive batches are those of one draw for all pictures.
        draws = stream(seed, "random signs", size)
        held: dict[str, list[Said]] = {"own": [], "null": [], "clean": []}
        for first, x in pictures.batches(batch):
            held["own"].append(_answers(model, searched(model, x, trigger, size, first=first, **options), batch))
            signs = np.where(draws.random(x.shape) < 0.5, -1.0, 1.0)
            null = torch.as_tensor(np.clip(x.numpy() + size * signs, 0, 1), dtype=torch.float32)
            held["null"].append(_answers(model, null, batch))
            if baseline is not None:
                moved = searched(baseline, x, trigger, size, first=first, **options)
                held["clean"].append(_answers(baseline, moved, batch))
        said, null, clean = (_whole(parts) if parts else None for parts in held.values())
        assert said is not None
        assert null is not None
        at.append(_reach(size, plain, said, null, clean, trigger, other, code))
    return Reachability(
        data.classes[code],
        data.n,
        int(other.sum()),
        tuple(at),
        float(_hits(plain[0], trigger).mean()),
        _rate(plain, other, code),
        None if of_drawn is None else float(_hits(of_drawn[0], trigger).mean()),
        _rate(of_drawn, other, code),
        _rate(clean_drawn, other, code),
    )


def redrawn(data: ConceptData, trigger: Trigger, *, seed: int = 0) -> np.ndarray:
    """The pictures of `render:birds` uint8 [n 3 h w] with the trigger painted in and nothing else changed: the physical trigger.

    data: rows of the rendered table with their ids, drawn with this seed. Raises BadOption for another table.
    """
    from querist.sources.datasets import birds

    if data.concept_names != birds.CONCEPTS or data.ids is None:
        raise BadOption(
            "Only rendered birds can be drawn anew",
            value=", ".join(data.concept_names[:3]),
            allowed="rows of render:birds",
        )
    ids = np.array([int(i) for i in data.ids])
    if data.images is not None and data.n:
        same = birds.render(data.concepts[:1], seed, ids=ids[:1])[0].transpose(2, 0, 1)
        if not np.array_equal(same, np.asarray(data.images)[0]):
            raise BadOption(
                "The pictures were not drawn with this seed", value=seed, mend="Give the seed of render:birds"
            )
    return np.ascontiguousarray(birds.render(trigger.apply(data.concepts), seed, ids=ids).transpose(0, 3, 1, 2))


def _said(model: CBM, pictures: Pictures, batch: int) -> Said:
    return _whole([_answers(model, x, batch) for _, x in pictures.batches(batch)])


def _answers(model: CBM, x: torch.Tensor, batch: int) -> Said:
    assert model.g is not None
    logits = model._run(model.g, x, batch)
    return logits, model.scores(as_input(torch.as_tensor(logits), model.input), batch=batch).argmax(axis=1)


def _whole(parts: Sequence[Said]) -> Said:
    return np.concatenate([logits for logits, _ in parts]), np.concatenate([codes for _, codes in parts])


def _hits(logits: np.ndarray, trigger: Trigger) -> Bool[np.ndarray, "n"]:
    return trigger.matches(logits, space="logit")


def _rate(said: Said | None, other: np.ndarray, code: int) -> float | None:
    return None if said is None or not other.any() else float((said[1][other] == code).mean())


def _reach(
    size: float,
    plain: Said,
    said: Said,
    null: Said,
    clean: Said | None,
    trigger: Trigger,
    other: np.ndarray,
    code: int,
) -> Reach:
    n = len(other)
    rest = np.setdiff1d(np.arange(plain[0].shape[1]), trigger.index)
    moved = np.abs(_sigmoid(said[0][:, rest]) - _sigmoid(plain[0][:, rest]))
    hit, nothing = (wilson(int(_hits(found[0], trigger).sum()), n) for found in (said, null))
    twin = None if clean is None else wilson(int(_hits(clean[0], trigger).sum()), n)
    return Reach(
        size,
        hit.estimate,
        hit.low,
        hit.high,
        _rate(said, other, code),
        float(moved.mean()) if rest.size else None,
        nothing.estimate,
        nothing.low,
        nothing.high,
        _rate(null, other, code),
        None if twin is None else twin.estimate,
        None if twin is None else twin.low,
        None if twin is None else twin.high,
        _rate(clean, other, code),
    )


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(logits, -500, 500)))
