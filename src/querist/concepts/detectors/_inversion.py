"""The smallest trigger of each class, found by looking at nothing but the head: a search over concepts and values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from torch import nn
from torch.nn import functional

from querist.concepts.data import ConceptData
from querist.concepts.detectors._anomaly import anomaly_index
from querist.concepts.detectors._network import Place, place_of
from querist.concepts.triggers import Trigger
from querist.errors import BadOption, NonFinite

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Inversion", "discrete_index", "invert_discrete"]

BEAM, SHORTLIST, LIMIT, ROWS, THRESHOLD = 4, 8, 8, 256, 0.9
SLOPES = 128
"""Rows that the first-order gains are averaged over: they only choose what is scored on all of them."""
BLOCK = 1 << 20
"""Hidden values that are held at once: blocks of a few MB stay near the cores."""
HALF = 0.5
"""Least MAD of sizes, in concepts: sizes are counts, and most classes often share one."""


@dataclass(frozen=True, slots=True, eq=False)
class Inversion:
    """Inverted triggers of the class codes `codes` [c].

    size: concepts of the trigger, 0 where the model needs none, `limit` + 1 where none was `found` ("> limit"). norm: ‖m‖₁ of a
    gradient mask; of a discrete trigger its size less the part of the last concept that success did not need,
    (size − 1) + (τ − a)/(a' − a), a' its success and a the best without one of its concepts. asr: success on the rows looked
    at, of a trigger that was not found the best seen. index: `anomaly_index` of the norms. triggers: None where there is none.
    """

    method: Literal["discrete", "gradient"]
    codes: Int[np.ndarray, "c"]
    size: Int[np.ndarray, "c"]
    norm: Float[np.ndarray, "c"]
    asr: Float[np.ndarray, "c"]
    found: Bool[np.ndarray, "c"]
    index: Float[np.ndarray, "c"]
    triggers: tuple[Trigger | None, ...]
    limit: int
    rows: int

    @property
    def largest(self) -> float:
        """The largest index: the statistic that is set beside clean retrains."""
        return float(self.index.max())

    def said(self, place: int) -> str:
        """The size as it is reported: a number, or "> limit"."""
        return str(int(self.size[place])) if self.found[place] else f"> {self.limit}"

    def table(self, classes: Iterable[Any], p: float | None = None) -> pl.DataFrame:
        """target, method, size (null for "> limit"), norm, index, p (of the model, at its largest index), trigger (JSON), asr."""
        import polars as pl

        names = [str(name) for name in classes]
        top = int(self.index.argmax())
        return pl.DataFrame(
            {
                "target": [names[code] for code in self.codes],
                "method": [self.method] * len(self.codes),
                "size": [int(s) if f else None for s, f in zip(self.size, self.found, strict=True)],
                "norm": self.norm.tolist(),
                "index": [float(i) if np.isfinite(i) else None for i in self.index],
                "p": [p if place == top else None for place in range(len(self.codes))],
                "trigger": [None if found is None else found.to_json() for found in self.triggers],
                "asr": self.asr.tolist(),
            },
            schema_overrides={"size": pl.Int64, "p": pl.Float64, "trigger": pl.String, "index": pl.Float64},
        )


@dataclass(slots=True)
class _Candidate:
    literals: tuple[int, ...]  # 2·concept + value, in the order of the picks
    asr: float
    loss: float


@dataclass(slots=True)
class _Search:
    """One class: its beam, and what came of it."""

    code: int
    beam: list[_Candidate]
    best: _Candidate
    found: _Candidate | None = None
    norm: float = 0.0


def invert_discrete(
    model: nn.Module,
    data: ConceptData,
    *,
    classes: Iterable[Any] | None = None,
    threshold: float = THRESHOLD,
    limit: int = LIMIT,
    beam: int = BEAM,
    shortlist: int | None = SHORTLIST,
    rows: int = ROWS,
    strength: str = "quantile",
    scale: np.ndarray | None = None,
    constants: str = "allow",
    seed: int = 0,
) -> Inversion:
    """For each class the fewest concepts and values that send at least `threshold` of other classes' rows to it.

    model: any network from concepts [n k] to logits [n L], or a CBM, whose f is searched. classes: labels, all by default. Beam
    search: a trigger grows by the `shortlist` literals of the largest first-order gain in mean log(1 + e^(−margin)), each scored
    exactly on at most `rows` rows; None scores every literal. A class ends at `limit` concepts, and what a trigger does not need is taken
    out of it again. Where the network begins with a
    linear layer only the changed column of it is worked out anew. Values in space logit by strength and scale, as in
    `Trigger.apply` (scale by default the model's, else the table's own quantiles).

    Raises BadOption, UnknownName, BadValues for a table in another range than the model reads, NonFinite naming the class.
    Source: ours, after Wang et al. (2019); a discrete mask, because concepts are set and not blended.
    """
    _check(threshold, limit, beam, shortlist, rows)
    place = place_of(model, data, rows=rows, strength=strength, scale=scale, seed=seed)
    usable = data.usable(constants)
    codes = np.arange(data.n_classes) if classes is None else np.array([data.code(c) for c in classes])
    with place.evaluated():
        searches = _started(place, codes, threshold)
        for search in searches:
            _finite(search, 0, data)
        for step in range(1, min(limit, len(usable)) + 1):
            going = [s for s in searches if s.found is None]
            if not going:
                break
            _grow(place, going, usable, shortlist)
            for search in going:
                _settle(search, step, threshold, beam, data)
        for search in searches:
            _prune(place, search, threshold)
    return _inversion(searches, place, threshold, limit, data)


def _started(place: Place, codes: np.ndarray, threshold: float) -> list[_Search]:
    logits = place.rest(place.hidden)
    found = []
    for code in codes.tolist():
        asr, loss = _score(logits[None], place.weight[code][None], np.array([code]))
        plain = _Candidate((), asr[0], loss[0])
        found.append(_Search(code, [plain], plain, plain if asr[0] >= threshold else None))
    return found


def _grow(place: Place, going: list[_Search], usable: np.ndarray, shortlist: int | None) -> None:
    """Replaces each beam by the scored children of its members, each set of literals once."""
    states = [(search, member) for search in going for member in search.beam]
    for search in going:
        search.beam = []
    per = place.n * max(place.hidden.shape[1], place.classes)
    seen: dict[int, set[frozenset[int]]] = {id(search): set() for search in going}  # a class may be asked for twice
    waiting: list[tuple[_Search, tuple[int, ...], int]] = []
    for block in _blocks(states, max(1, BLOCK // per)):
        every = usable.repeat(2) * 2 + np.tile([0, 1], len(usable))
        picks = [every.tolist()] * len(block) if shortlist is None else _shortlisted(place, block, usable, shortlist)
        for (search, member), literals in zip(block, picks, strict=True):
            taken = {literal // 2 for literal in member.literals}
            for literal in literals:
                key = frozenset((*member.literals, literal))
                if literal // 2 not in taken and key not in seen[id(search)]:
                    seen[id(search)].add(key)
                    waiting.append((search, member.literals, literal))
    for block in _blocks(waiting, max(1, BLOCK // per)):
        delta, columns = place.moved(np.array([literal for *_, literal in block]))
        hidden = torch.addcmul(_parents(place, block), delta[:, :, None], columns[:, None])
        codes = np.array([search.code for search, *_ in block])
        asr, loss = _score(place.rest(hidden), place.weight[codes], codes)
        for (search, parent, literal), a, b in zip(block, asr, loss, strict=True):
            search.beam.append(_Candidate((*parent, literal), a, b))


def _parents(place: Place, block: list[tuple[_Search, tuple[int, ...], int]]) -> torch.Tensor:
    """Hidden values of each child's parent [c n h]; a parent's are worked out once."""
    distinct = {parent: i for i, parent in enumerate(dict.fromkeys(parent for _, parent, _ in block))}
    states = torch.stack([place.state(parent) for parent in distinct])
    return states[[distinct[parent] for _, parent, _ in block]]


def _shortlisted(
    place: Place, block: list[tuple[_Search, _Candidate]], usable: np.ndarray, shortlist: int
) -> list[list[int]]:
    """The literals of the largest first-order gain of every state."""
    codes = np.array([search.code for search, _ in block])
    hidden = torch.stack([place.state(member.literals, SLOPES) for _, member in block]).requires_grad_()
    with torch.enable_grad():
        logits = place.rest(hidden)
        loss = (_losses(logits, codes) * place.weight[codes, :SLOPES]).sum()
        slope = torch.autograd.grad(loss, hidden)[0] @ place.columns  # [s n k]
    gain = torch.full((len(block), place.k, 2), -torch.inf)
    for value, cell in enumerate((place.low, place.high)):
        gain[:, usable, value] = -(slope * (cell - place.x[:SLOPES])).sum(dim=1)[:, usable].cpu()
    for row, (_, member) in enumerate(block):
        gain[row, [literal // 2 for literal in member.literals]] = -torch.inf
    flat = gain.flatten(1)
    best = torch.topk(flat, min(shortlist, flat.shape[1]), dim=1)
    return [
        [int(i) for i, g in zip(ids, gains, strict=True) if g > -torch.inf]
        for ids, gains in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def _losses(logits: torch.Tensor, codes: np.ndarray) -> torch.Tensor:
    """log(1 + e^(−margin)) [s n], margin over the strongest other class."""
    at = torch.as_tensor(codes, device=logits.device)[:, None, None].expand(*logits.shape[:2], 1)
    own = logits.gather(2, at)
    others = logits.scatter(2, at, -torch.inf).amax(dim=2)
    return functional.softplus(others - own[..., 0])


def _score(logits: torch.Tensor, weight: torch.Tensor, codes: np.ndarray) -> tuple[list[float], list[float]]:
    """Success and loss of each state [s] over the rows that count, from logits [s n L]."""
    total = weight.sum(dim=1).clamp(min=1)
    hits = (logits.argmax(dim=2) == torch.as_tensor(codes, device=logits.device)[:, None]).to(weight.dtype)
    loss = (_losses(logits, codes) * weight).sum(dim=1) / total
    rate = (hits * weight).sum(dim=1).double() / total.double()  # in half the bits 27 of 30 are less than 0.9
    return rate.tolist(), loss.tolist()


def _settle(search: _Search, step: int, threshold: float, beam: int, data: ConceptData) -> None:
    """Ends the class where a child reaches the threshold, else keeps the best as its beam."""
    _finite(search, step, data)
    best = max(search.beam, key=lambda c: (c.asr, -c.loss))
    search.best = best if best.asr > search.best.asr else search.best
    if best.asr >= threshold:
        search.found = best
    search.beam = sorted(search.beam, key=lambda c: c.loss)[:beam]


def _prune(place: Place, search: _Search, threshold: float) -> None:
    """Leaves out literals that the trigger does not need, and says how much of the last one it did."""
    while search.found is not None and search.found.literals:
        literals = search.found.literals
        fewer = [literals[:i] + literals[i + 1 :] for i in range(len(literals))]
        logits = place.rest(torch.stack([place.state(part) for part in fewer]))
        codes = np.full(len(fewer), search.code)
        parts = [_Candidate(*part) for part in zip(fewer, *_score(logits, place.weight[codes], codes), strict=True)]
        best = max(parts, key=lambda c: (c.asr, -c.loss))
        if best.asr < threshold:
            search.norm = len(fewer) - 1 + (threshold - best.asr) / (search.found.asr - best.asr)
            return
        search.found = best


def _finite(search: _Search, step: int, data: ConceptData) -> None:
    if not all(np.isfinite(member.loss) for member in search.beam):
        raise NonFinite(
            "The model's scores are not finite",
            value=f"class {data.classes[search.code]}, {step} concepts set",
            mend="Check the model's weights (learning rate) and the range of the concepts",
        )


def _inversion(searches: list[_Search], place: Place, threshold: float, limit: int, data: ConceptData) -> Inversion:
    found = np.array([s.found is not None for s in searches])
    size = np.array([len(s.found.literals) if s.found else limit + 1 for s in searches])
    norm = np.array([s.norm if s.found else limit + 1.0 for s in searches])
    codes = np.array([s.code for s in searches])
    return Inversion(
        "discrete",
        codes,
        size,
        norm,
        np.array([(s.found or s.best).asr for s in searches]),
        found,
        discrete_index(norm, names=[data.classes[c] for c in codes]),
        tuple(_trigger(s.found) for s in searches),
        limit,
        place.n,
    )


def discrete_index(norms: ArrayLike, *, names: Sequence[object] | None = None) -> Float[np.ndarray, "c"]:
    """`anomaly_index` of the norms of discrete triggers: searches of parts of the classes are put together by it."""
    return anomaly_index(norms, floor=HALF, names=names)


def _trigger(found: _Candidate | None) -> Trigger | None:
    if found is None or not found.literals:
        return None
    return Trigger(tuple(i // 2 for i in found.literals), tuple(i % 2 for i in found.literals))


def _blocks(things: list[Any], size: int) -> Iterable[list[Any]]:
    return (things[i : i + size] for i in range(0, len(things), size))


def _check(threshold: float, limit: int, beam: int, shortlist: int | None, rows: int) -> None:
    if not 0 < threshold <= 1:
        raise BadOption("A share of success lies outside its range", value=threshold, allowed="0 < threshold <= 1")
    counts: dict[str, int] = {
        "limit": limit,
        "beam": beam,
        "rows": rows,
        "shortlist": 1 if shortlist is None else shortlist,
    }
    for name, value in counts.items():
        if value < 1:
            raise BadOption(f"The search's {name} must be a number", value=value, allowed="1 or more")
