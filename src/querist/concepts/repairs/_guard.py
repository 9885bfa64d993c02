"""ConceptGuard's parts that need no network: grouping concepts, and the vote of the groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Float, Int

from querist.concepts.data import ConceptData
from querist.concepts.repairs._certificate import Ties, check_order, check_ties
from querist.errors import BadOption, BadValues, ShapeMismatch
from querist.statistics import stream, torch_seed

__all__ = ["Grouping", "class_order", "concept_groups", "vote", "vote_counts"]

Grouping = Literal["names", "correlation", "random", "column"]


def concept_groups(data: ConceptData, groups: int, *, by: Grouping = "names", seed: int = 0) -> Int[np.ndarray, "k"]:
    """A group 0 … m − 1 for each concept, none empty.

    names: TF-IDF of the words in the names, k-means, as published. correlation: average linkage on 1 − |correlation| (constant
    concepts correlate with none). random: even sizes. column: the table's own groups, dealt to the m smallest in turn, largest
    first. Raises BadOption for m outside 1 … k, for names without words and a table without groups.
    """
    if not 1 <= groups <= data.k:
        raise BadOption("No such number of groups", value=groups, allowed=f"1 to {data.k}, the concepts")
    if by == "random":
        return stream(seed, "concept groups").permutation(np.arange(data.k) % groups)
    if by == "column":
        return _dealt(data.groups, groups)
    if by == "correlation":
        return _filled(_correlated(data, groups), groups)
    if by != "names":
        raise BadOption("No such way to group", value=by, allowed="names, correlation, random, column")
    from sklearn.cluster import KMeans
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = [" ".join("".join(c if c.isalnum() else " " for c in name).split()) for name in data.concept_names]
    try:
        found = TfidfVectorizer(token_pattern=r"\b\w+\b").fit_transform(words)
    except ValueError:
        raise BadOption(
            "The concepts' names hold no words", value=str(data.concept_names[:3]), mend="Group by correlation"
        ) from None
    distinct = len({row.tobytes() for row in found.toarray()})
    state = torch_seed(seed, "concept groups") % 2**32
    means: Any = KMeans(n_clusters=min(groups, distinct), n_init=cast(Any, 10), random_state=state)
    return _filled(np.asarray(means.fit(found).labels_, dtype=int), groups)


def vote_counts(predictions: Int[np.ndarray, "n m"], classes: int) -> Int[np.ndarray, "n L"]:
    """Votes of each class. Raises ShapeMismatch, BadValues for a code outside 0 … L − 1."""
    votes = np.asarray(predictions)
    if votes.ndim != 2:
        raise ShapeMismatch("Votes must be one column per group", value=votes.shape, allowed="[n m]")
    if votes.size and not (votes.min() >= 0 and votes.max() < classes):
        raise BadValues("A vote is for no class", value=int(votes.max()), allowed=f"0 to {classes - 1}")
    flat = votes + classes * np.arange(len(votes))[:, None]
    return np.bincount(flat.ravel(), minlength=len(votes) * classes).reshape(len(votes), classes)


def class_order(classes: int, *, seed: int = 0) -> Int[np.ndarray, "L"]:
    """The place of each class in a seeded order, drawn before any vote is seen: the rule of ties "rank"."""
    return stream(seed, "class order").permutation(classes)


def vote(
    predictions: Int[np.ndarray, "n m"],
    classes: int,
    *,
    ties: Ties = "rank",
    order: np.ndarray | None = None,
    logprob: Float[np.ndarray, "n m L"] | None = None,
) -> Int[np.ndarray, "n"]:
    """The majority's class. Ties: rank, the class whose place in `order` is first; logprob, the largest sum of the groups'
    log-probabilities (then the first place in `order`, where given).

    Raises BadOption where the rule lacks what it needs, ShapeMismatch.
    """
    check_ties(ties)
    counts = vote_counts(predictions, classes)
    leading = counts == counts.max(axis=1, keepdims=True)
    if ties == "rank":
        return np.where(leading, check_order(order, classes), classes).argmin(axis=1)
    if logprob is None or np.shape(logprob) != (*np.shape(predictions), classes):
        raise ShapeMismatch(
            "Ties by log-probability need those of every group",
            value="none" if logprob is None else np.shape(logprob),
            allowed=f"{(*np.shape(predictions), classes)}",
        )
    total = np.where(leading, np.asarray(logprob).sum(axis=1), -np.inf)
    best = total == total.max(axis=1, keepdims=True)
    place = np.arange(classes) if order is None else check_order(order, classes)
    return np.where(best & leading, place, classes).argmin(axis=1)


def _dealt(names: Sequence[str] | None, groups: int) -> np.ndarray:
    if names is None or len(set(names)) < groups:
        raise BadOption(
            "The table has too few groups of concepts",
            value=0 if names is None else len(set(names)),
            allowed=f"{groups} or more",
            mend="Ask for fewer, or group by names",
        )
    sizes = {name: names.count(name) for name in dict.fromkeys(names)}
    load, place = np.zeros(groups, dtype=int), {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        place[name] = int(load.argmin())
        load[place[name]] += sizes[name]
    return np.array([place[name] for name in names])


def _correlated(data: ConceptData, groups: int) -> np.ndarray:
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if data.k == 1:
        return np.zeros(1, dtype=int)
    rows = np.where(np.isnan(data.concepts), np.nan_to_num(data.means), data.concepts).astype(float)
    rows -= rows.mean(axis=0)
    norm = np.sqrt((rows * rows).sum(axis=0))
    correlation = np.abs((rows / np.where(norm > 0, norm, 1)).T @ (rows / np.where(norm > 0, norm, 1)))
    distance = np.clip(1 - correlation, 0, 1)
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform((distance + distance.T) / 2, checks=False), "average")
    return fcluster(tree, groups, criterion="maxclust") - 1


def _filled(found: np.ndarray, groups: int) -> np.ndarray:
    """The same grouping with empty groups filled from the largest, a concept at a time."""
    found = found.copy()
    sizes = np.bincount(found, minlength=groups)
    for group in np.flatnonzero(sizes == 0):
        largest = int(sizes.argmax())
        found[np.flatnonzero(found == largest)[-1]] = group
        sizes = np.bincount(found, minlength=groups)
    return found
