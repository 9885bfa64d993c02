"""The vote of groups and its certificate, against every vote and every edit there is."""

from __future__ import annotations

from itertools import combinations, permutations, product

import numpy as np
import pytest
from tests.concepts.tables import random_table
from tests.harness import check_bad_input

from querist.concepts import ConceptData
from querist.concepts.repairs import certified_accuracy, certify, class_order, concept_groups, vote, vote_counts
from querist.errors import BadOption, BadValues, ShapeMismatch

SIZES = [(classes, groups) for classes in (1, 2, 3) for groups in (1, 2, 3, 4)]


def edited(votes, classes, r):
    """Every vote vector that differs from `votes` in at most r groups."""
    for touched in combinations(range(len(votes)), r):
        for new in product(range(classes), repeat=r):
            made = list(votes)
            for group, value in zip(touched, new, strict=True):
                made[group] = value
            yield made


@pytest.mark.parametrize(("classes", "groups"), SIZES)
def test_the_rank_certificate_is_sound_and_tight(classes, groups):
    every = np.array(list(product(range(classes), repeat=groups)))
    for place in permutations(range(classes)):
        order = np.array(place)
        winner = vote(every, classes, ties="rank", order=order)
        of = {tuple(v): int(w) for v, w in zip(every.tolist(), winner, strict=True)}
        found = certify(vote_counts(every, classes), winner, ties="rank", order=order)
        for votes, won, r in zip(every.tolist(), winner, found.r, strict=True):
            assert all(of[tuple(v)] == won for v in edited(votes, classes, int(r)))
            if r < groups:
                assert any(of[tuple(v)] != won for v in edited(votes, classes, int(r) + 1))


@pytest.mark.parametrize(("classes", "groups"), SIZES)
def test_the_logprob_certificate_is_sound_and_tight(classes, groups):
    """Touched groups may set their log-probabilities at will, so any tie they take part in can be lost.

    r = 0 is no claim about edits. For r >= 1 no edit of r groups may reach even a tie, and some edit of r + 1 must.
    """
    every = np.array(list(product(range(classes), repeat=groups)))
    counts = vote_counts(every, classes)
    for votes, count in zip(every.tolist(), counts, strict=True):
        for won in np.flatnonzero(count == count.max()):
            r = int(certify(count[None], np.array([won]), ties="logprob").r[0])

            def losable(made, won=won):
                total = np.bincount(made, minlength=classes)
                others = np.delete(total, won)
                return others.size > 0 and others.max() >= total[won]

            if r:
                assert not any(losable(made) for made in edited(votes, classes, r))
            if r < groups:
                assert any(losable(made) for made in edited(votes, classes, r + 1))


def test_the_rank_formula_is_unsound_under_log_probability_ties():
    # Three votes for a, one for b, one edit: 2 to 2, decided by a log-probability that the edited group sets.
    counts, order = np.array([[3, 1]]), np.array([0, 1])
    assert certify(counts, np.array([0]), ties="rank", order=order).r[0] == 1
    assert certify(counts, np.array([0]), ties="logprob").r[0] == 0
    before = np.array([[0, 0, 0, 1]])
    after = np.array([[0, 0, 1, 1]])
    calm = np.log(np.full((1, 4, 2), 0.5))
    bent = calm.copy()
    bent[0, 2] = [-50.0, 0.0]
    assert vote(before, 2, ties="logprob", logprob=calm).tolist() == [0]
    assert vote(after, 2, ties="logprob", logprob=bent).tolist() == [1]


def test_ties_go_by_the_rule_and_not_by_class_id():
    votes = np.array([[0, 1], [2, 1], [2, 2]])
    assert vote(votes, 3, order=np.array([2, 1, 0])).tolist() == [1, 2, 2]
    logprob = np.zeros((3, 2, 3))
    logprob[0, 0, 0] = 0.1
    assert vote(votes, 3, ties="logprob", logprob=logprob).tolist() == [0, 1, 2]
    firsts = [int(class_order(5, seed=s).argmin()) for s in range(200)]
    assert min(np.bincount(firsts, minlength=5)) > 15


def test_certified_accuracy_falls_with_the_groups_touched():
    votes = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [1, 1, 0, 0], [1, 1, 1, 1]])
    order = np.array([0, 1])
    winner = vote(votes, 2, order=order)
    found = certify(vote_counts(votes, 2), winner, ties="rank", order=order)
    assert winner.tolist() == [0, 0, 0, 1]
    assert found.r.tolist() == [2, 1, 0, 1]
    share = certified_accuracy(found, np.array([0, 0, 1, 1]))
    assert share == pytest.approx([0.75, 0.75, 0.25, 0, 0])
    assert np.isnan(certified_accuracy(found, np.array([]))).all()


@pytest.mark.parametrize("by", ["names", "correlation", "random", "column"])
def test_groups_are_all_used_and_seeded(by):
    data = random_table(80, 9, 2, concept_names=[f"{part} {i}" for part in ("wing", "tail", "bill") for i in range(3)])
    data = data.changed(groups=["w", "w", "w", "t", "t", "t", "b", "b", "c"])
    found = concept_groups(data, 3, by=by, seed=1)
    assert sorted(set(found.tolist())) == [0, 1, 2]
    assert np.array_equal(found, concept_groups(data, 3, by=by, seed=1))
    assert sorted(set(concept_groups(data, 1, by=by).tolist())) == [0]


def test_groups_by_name_and_correlation_find_what_belongs_together():
    rng = np.random.default_rng(0)
    base = rng.integers(0, 2, (200, 3))
    values = np.repeat(base, 3, axis=1).astype(float)
    values[rng.random(values.shape) < 0.05] = 0
    names = [f"{part} colour {c}" for part in ("wing", "tail", "bill") for c in ("x", "y", "z")]
    data = ConceptData(values, np.arange(200) % 2, concept_names=names)
    for by in ("names", "correlation"):
        found = concept_groups(data, 3, by=by)
        if by == "correlation":
            assert [len(set(found[i : i + 3])) for i in (0, 3, 6)] == [1, 1, 1]
        assert np.bincount(found).sum() == 9


def test_bad_votes_are_refused():
    votes = np.array([[0, 1]])
    check_bad_input(
        [
            (lambda: vote(votes, 2, ties="first", order=np.arange(2)), BadOption, ["rank", "logprob"]),
            (lambda: vote(votes, 2), BadOption, ["place of each class"]),
            (lambda: vote(votes, 2, ties="logprob"), ShapeMismatch, ["log-prob"]),
            (lambda: vote(votes, 1, order=np.arange(1)), BadValues, ["0 to 0"]),
            (lambda: vote(votes[0], 2), ShapeMismatch, ["[n m]"]),
            (lambda: certify(np.ones((2, 3)), np.zeros(3), ties="rank"), ShapeMismatch, ["[n L]"]),
            (lambda: concept_groups(random_table(), 9), BadOption, ["1 to 8"]),
            (lambda: concept_groups(random_table(), 2, by="column"), BadOption, ["group by names"]),
            (lambda: concept_groups(random_table(), 2, by="size"), BadOption, ["correlation"]),
        ]
    )
