"""The CAT+ selector: greedily the (concept, value) that leaves the fewest rows of other classes with the trigger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from querist.concepts.data import ConceptData, class_sums
from querist.concepts.triggers._cat import filter_order
from querist.concepts.triggers._counts import PackedTable, pack
from querist.concepts.triggers._selection import Selection, auto_values, checked
from querist.concepts.triggers._trigger import Trigger
from querist.errors import BadOption

__all__ = ["Score", "TieBreak", "cat_plus", "cat_plus_all", "scores"]

TieBreak = Literal["filter", "rarest", "index"]
Score = Literal["release", "posterior", "bite"]


def cat_plus(
    data: ConceptData,
    target: Any,
    size: int,
    *,
    tie_break: TieBreak = "filter",
    score: Score = "release",
    constants: str = "exclude",
    binarise: str | None = None,
    seed: int = 0,
) -> Selection:
    """A trigger of `size` (concept, value) pairs, each the one after which fewest rows outside the target match.

    Every score of CAT+ falls strictly with that count, so the count alone decides; `score` is what the table reports.
    tie_break, where several leave as few: "filter" the least |coefficient| of `cat`, and its value first; "rarest" the lowest
    share of the value in the table; "index" the release's order, concept by concept, 0 before 1. On real tables nothing is
    left after about three steps (`saturated_at`), and the tie rule picks the rest. Unknown cells never match.

    Raises NotBinary (see `binarise` of `ConceptData.binary`), UnknownName, BadOption. Source: Lai et al. (arXiv 2410.04823)
    and its public release; its row count K + 1 in place of the negatives' number changes scores, not picks, and is mended.
    """
    return _select(data, [target], size, tie_break, score, constants, binarise, seed)[0]


def cat_plus_all(
    data: ConceptData,
    size: int,
    *,
    targets: Iterable[Any] | None = None,
    tie_break: TieBreak = "filter",
    score: Score = "release",
    constants: str = "exclude",
    binarise: str | None = None,
    seed: int = 0,
) -> list[Selection]:
    """`cat_plus` of every class that has rows (or of `targets`), each equal to the single call.

    Targets share what their prefixes have in common: the tree of prefixes is walked depth first, so at most `size` masks of
    n bits are held beside the packed table.
    """
    if targets is None:
        targets = [data.classes[code] for code in np.flatnonzero(data.class_sizes)]
    return _select(data, list(targets), size, tie_break, score, constants, binarise, seed)


def scores(cnt: Int[np.ndarray, "s"], n: int, n_target: int, score: Score = "release") -> Float[np.ndarray, "s"]:
    """A CAT+ score of triggers that leave `cnt` of the n − n_target other rows; NaN where every row is of the target.

    With p0 = n_target/n: "release" Z = (p1 − p0)·p1/(p0(1 − p0)), p1 = n/(n_target + cnt); "posterior" n_target/(n_target +
    cnt); "bite" (p1 − p0)/√(p0(1 − p0)/(n_target + cnt)) with p1 the posterior. All fall strictly with cnt.
    """
    if score not in ("release", "posterior", "bite"):
        raise BadOption("No such score", value=score, allowed="release, posterior, bite")
    cnt, p0 = np.asarray(cnt, dtype=float), n_target / n
    posterior = n_target / (n_target + cnt)
    if score == "posterior":
        return posterior
    if not 0 < p0 < 1:
        return np.full(cnt.shape, np.nan)
    if score == "bite":
        return (posterior - p0) / np.sqrt(p0 * (1 - p0) / (n_target + cnt))
    p1 = n / (n_target + cnt)
    return (p1 - p0) * p1 / (p0 * (1 - p0))


def _select(
    data: ConceptData,
    targets: Sequence[Any],
    size: int,
    tie_break: TieBreak,
    score: Score,
    constants: str,
    binarise: str | None,
    seed: int,
) -> list[Selection]:
    if tie_break not in ("filter", "rarest", "index"):
        raise BadOption("No such rule for ties", value=tie_break, allowed="filter, rarest, index")
    data = data.binary(binarise)
    codes = np.array([data.target(target) for target in targets], dtype=int)
    usable = checked(data, size, constants)
    scores(np.zeros(1, dtype=int), 2, 1, score)
    rank, coefs, warnings = _tie_ranks(data, codes, usable, tie_break, seed)
    picks, cnt = _walk(pack(data), codes, size, usable, rank)
    columns, place_of = np.unique(picks // 2, return_inverse=True)
    place_of = place_of.reshape(picks.shape)
    mean_in, mean_out = _means(data, columns)
    made = []
    for place, code in enumerate(codes):
        index, values = np.divmod(picks[place], 2)
        made.append(
            Selection(
                Trigger(tuple(index.tolist()), tuple(values.tolist())),
                int(code),
                selector="cat+",
                seed=seed if tie_break == "filter" else None,
                mean_in=mean_in[code, place_of[place]],
                mean_out=mean_out[code, place_of[place]],
                cnt=cnt[place],
                score=scores(cnt[place], data.n, int(data.class_sizes[code]), score),
                coef_abs=None if coefs is None else coefs[place][index],
                concept_names=data.concept_names,
                warnings=warnings[place],
            )
        )
    return made


def _means(data: ConceptData, columns: np.ndarray) -> tuple[Float[np.ndarray, "L c"], Float[np.ndarray, "L c"]]:
    """Means of these concepts over the known cells in each class and outside it; NaN where none is known."""
    cells = data.concepts[:, columns]
    if data.missing:
        unknown = np.isnan(cells)
        one = class_sums(np.where(unknown, 0, cells), data.codes, data.n_classes)
        known = class_sums(~unknown, data.codes, data.n_classes)
    else:
        one = class_sums(cells, data.codes, data.n_classes)
        known = np.repeat(data.class_sizes[:, None].astype(float), len(columns), axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return one / known, (one.sum(axis=0) - one) / (known.sum(axis=0) - known)


def _tie_ranks(
    data: ConceptData, codes: np.ndarray, usable: np.ndarray, tie_break: TieBreak, seed: int
) -> tuple[np.ndarray, list[np.ndarray] | None, list[tuple[str, ...]]]:
    """The order of candidates 2·concept + value when counts tie, [m 2k]; with the filter's coefficients and warnings."""
    k = data.k
    plain = np.arange(2 * k)
    nothing: list[tuple[str, ...]] = [()] * len(codes)
    if tie_break == "index":
        return np.broadcast_to(plain, (len(codes), 2 * k)), None, nothing
    if tie_break == "rarest":
        one = (data.concepts == 1).sum(axis=0)
        zero = (data.concepts == 0).sum(axis=0)
        share = np.stack([zero, one], axis=1).ravel()
        place = np.empty(2 * k, dtype=int)
        place[np.lexsort((plain, share))] = plain
        return np.broadcast_to(place, (len(codes), 2 * k)), None, nothing
    values = auto_values(data, "auto")
    other = (np.tile([0, 1], k) != np.repeat(values, 2)).astype(int)
    ranks, coefs, warnings = [], [], []
    for code in codes:
        found = filter_order(data, int(code), seed=seed)
        ranks.append(2 * np.repeat(found.place(), 2) + other)
        coefs.append(found.coef_abs)
        warnings.append(found.warnings)
    return np.stack(ranks), coefs, warnings


def _walk(
    table: PackedTable, codes: np.ndarray, size: int, usable: np.ndarray, rank: np.ndarray
) -> tuple[Int[np.ndarray, "m size"], Int[np.ndarray, "m size"]]:
    """Picks 2·concept + value and counts of every target: depth first over the tree of prefixes that targets share."""
    picks, cnt = np.zeros((len(codes), size), dtype=int), np.zeros((len(codes), size), dtype=int)
    free = np.zeros(2 * table.k, dtype=bool)
    free[2 * usable] = free[2 * usable + 1] = True

    # A stack, not recursion: where copies of a target's rows bear other labels the depth is the size. A parent's mask is narrowed
    # when a child is taken up, so that only the masks of one path are held.
    waiting: list[tuple[np.ndarray, int | None, np.ndarray, int]] = [(table.rows, None, np.arange(len(codes)), 0)]
    while waiting:
        mask, pick, members, step = waiting.pop()
        if step == size or not members.size:
            continue
        if pick is not None:
            mask = table.narrow(mask, pick // 2, pick % 2)
        found = table.counts(mask, codes[members])
        counts = (found.table[None] - found.classes).reshape(len(members), -1)
        allowed = np.repeat(free[None], len(members), axis=0)
        for done in range(step):
            taken = picks[members, done] // 2
            allowed[np.arange(len(members)), 2 * taken] = allowed[np.arange(len(members)), 2 * taken + 1] = False
        big = np.iinfo(np.int64).max
        counts = np.where(allowed, counts, big)
        least = counts.min(axis=1, keepdims=True)
        chosen = np.where(counts == least, rank[members], big).argmin(axis=1)
        picks[members, step], cnt[members, step] = chosen, least[:, 0]
        for row in np.flatnonzero(least[:, 0] == 0):  # nothing is left to count: the tie rule picks the rest
            _rest(picks[members[row]], step + 1, allowed[row], rank[members[row]])
        going = least[:, 0] > 0
        for pick in np.unique(chosen[going]):
            same = members[going & (chosen == pick)]
            waiting.append((mask, int(pick), same, step + 1))
    return picks, cnt


def _rest(picks: np.ndarray, step: int, allowed: np.ndarray, rank: np.ndarray) -> None:
    allowed = allowed.copy()
    taken = picks[step - 1] // 2
    allowed[[2 * taken, 2 * taken + 1]] = False
    order = np.argsort(rank, kind="stable")
    order = order[allowed[order]]
    _, first = np.unique(order // 2, return_index=True)  # the better value of each concept
    wanted = len(picks) - step
    picks[step:] = order[np.sort(first)[:wanted]]
