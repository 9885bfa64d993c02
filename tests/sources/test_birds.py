"""Drawn birds: a pure function of concepts and seed, in which every concept has its own part."""

from __future__ import annotations

import numpy as np
from tests.harness import check_bad_input

from querist.errors import BadOption, BadValues, ShapeMismatch
from querist.sources.datasets.birds import CLASSES, CONCEPTS, FLIPS, TEMPLATES, birds, render

NAME = {name: k for k, name in enumerate(CONCEPTS)}


def test_templates_are_far_apart_and_every_concept_is_used():
    distance = (TEMPLATES[:, None] != TEMPLATES[None]).sum(axis=2)
    assert TEMPLATES.shape == (len(CLASSES), len(CONCEPTS)) == (10, 16)
    assert distance[~np.eye(10, dtype=bool)].min() >= 4
    assert TEMPLATES.sum(axis=0).min() >= 3


def test_birds_are_templates_with_flips():
    concepts, labels = birds(5000, seed=3)
    flipped = concepts != TEMPLATES[labels]
    assert np.abs(flipped.mean(axis=0) - FLIPS).max() < 4 * np.sqrt(FLIPS * (1 - FLIPS) / 5000)
    assert np.array_equal(birds(20, seed=3)[0], birds(20, seed=3)[0])
    assert not (birds(50, flips=0)[0] != TEMPLATES[np.arange(50) % 10]).any()


def test_a_picture_depends_on_its_row_concepts_and_seed_alone():
    concepts, _ = birds(6)
    pictures = render(concepts, 1)
    assert pictures.shape == (6, 32, 32, 3)
    assert pictures.dtype == np.uint8
    assert np.array_equal(render(concepts[[4, 2]], 1, ids=[4, 2]), pictures[[4, 2]])
    assert not np.array_equal(render(concepts, 2), pictures)


def test_one_concept_changes_only_its_own_part():
    concepts = birds(12, seed=5)[0]
    base = render(concepts)
    changed = {}
    for name, k in NAME.items():
        other = concepts.copy()
        other[:, k] ^= 1
        changed[name] = (render(other) != base).any(axis=3)
        assert changed[name].any(axis=(1, 2)).all(), f"{name} cannot be seen"
        # A body colour is the largest part: three tenths of a picture; a mark is a few pixels.
        largest = 0.35 if "body" in name else 0.2 if name in ("water", "tree") else 0.12
        assert changed[name].mean(axis=(1, 2)).max() < largest, name
    for one, other in (
        ("crest", "long legs"),
        ("water", "eye ring"),
        ("forked tail", "cheek spot"),
        ("tree", "long bill"),
    ):
        assert not (changed[one] & changed[other]).any()


def test_edits_of_separate_parts_add_up():
    concepts = birds(8, seed=2)[0]

    def with_flips(*names):
        made = concepts.copy()
        made[:, [NAME[name] for name in names]] ^= 1
        return render(made).astype(int)

    both, plain = with_flips("crest", "water"), with_flips()
    assert np.array_equal(both - plain, (with_flips("crest") - plain) + (with_flips("water") - plain))


def test_bad_birds_are_refused():
    check_bad_input(
        [
            (lambda: birds(0), BadOption, ["n >= 1"]),
            (lambda: birds(5, flips=0.9), BadOption, ["0 to 0.5"]),
            (lambda: render(np.zeros((2, 3))), ShapeMismatch, ["16"]),
            (lambda: render(np.full((2, 16), 0.5)), BadValues, ["0, 1"]),
            (lambda: render(np.zeros((2, 16)), ids=[1]), ShapeMismatch, ["(2,)"]),
        ]
    )
