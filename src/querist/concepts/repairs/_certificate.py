"""How many groups of concepts a trigger may touch before a vote can change: exact, under two rules for ties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from querist.errors import BadOption, ShapeMismatch

__all__ = ["Certificate", "Ties", "certified_accuracy", "certify", "check_ties"]

Ties = Literal["rank", "logprob"]


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """The vote's `winner` [n] and the groups `r` [n] that may be changed at will without changing it."""

    winner: Int[np.ndarray, "n"]
    r: Int[np.ndarray, "n"]
    ties: Ties
    groups: int


def certify(
    counts: Int[np.ndarray, "n L"], winner: Int[np.ndarray, "n"], *, ties: Ties, order: np.ndarray | None = None
) -> Certificate:
    """r(x) = max(0, ⌊gap/2⌋) from the votes of each class.

    rank: ties go to the class that comes first in `order` (its place [L], a fixed permutation); gap = min over b ≠ a of
    N_a − N_b − 1[b comes before a]. logprob: ties go by log-probabilities, which touched groups can set at will, so that every
    tie is counted lost: gap = min N_a − N_b − 1. The bound holds at test time for any trigger that touches at most r groups;
    it says nothing of relabelled training rows, which reach every group.

    Raises ShapeMismatch, BadOption. Source: majority votes as Levine & Feizi (2020) certify them; ConceptGuard (arXiv
    2411.16512) for groups of concepts. Deviation: the second rule, without which the bound is not sound.
    """
    check_ties(ties)
    counts, winner = np.asarray(counts), np.asarray(winner)
    if counts.ndim != 2 or winner.shape != counts.shape[:1]:
        raise ShapeMismatch(
            "Votes and winners do not match", value=f"{counts.shape}, {winner.shape}", allowed="[n L], [n]"
        )
    n, classes = counts.shape
    groups = int(counts[0].sum()) if n else 0
    own = counts[np.arange(n), winner]
    if ties == "rank":
        place = check_order(order, classes)
        before = place[None] < place[winner][:, None]
    else:
        before = np.ones((n, classes), dtype=bool)
    gap = own[:, None] - counts - before
    gap[np.arange(n), winner] = 2 * groups  # alone, a class cannot lose
    return Certificate(winner, np.maximum(0, gap.min(axis=1, initial=2 * groups) // 2), ties, groups)


def certified_accuracy(certificate: Certificate, codes: Int[np.ndarray, "n"]) -> Float[np.ndarray, "m+1"]:
    """Share of rows that are right and certified for r groups, r = 0 … m; NaN without rows."""
    if not len(codes):
        return np.full(certificate.groups + 1, np.nan)
    right = certificate.winner == np.asarray(codes)
    return np.array([(right & (certificate.r >= r)).mean() for r in range(certificate.groups + 1)])


def check_ties(ties: str) -> None:
    """Raises BadOption; the smallest class id is no rule, for it favours class 0."""
    if ties not in ("rank", "logprob"):
        raise BadOption("No such rule for ties", value=ties, allowed="rank (a fixed order of classes), logprob")


def check_order(order: np.ndarray | None, classes: int) -> Int[np.ndarray, "L"]:
    """The place of each class. Raises BadOption unless it is a permutation of 0 … L − 1."""
    place = np.asarray(order if order is not None else [])
    if place.shape != (classes,) or not np.array_equal(np.sort(place), np.arange(classes)):
        raise BadOption(
            "Ties by rank need the place of each class", value=str(order), allowed=f"a permutation of 0 … {classes - 1}"
        )
    return place
