"""Published and measured values of the registered tables."""

from __future__ import annotations

import numpy as np
import pytest

from querist.concepts import cat_plus, cat_plus_all
from querist.concepts.readers import registered
from querist.errors import SourceNotFound


def table(name):
    try:
        return registered(name)
    except SourceNotFound:
        return pytest.skip(f"{name} is not beside the checkout")


@pytest.fixture(scope="module")
def cub():
    return table("cub-concepts")


@pytest.fixture(scope="module")
def train(cub):
    return cub.part("train")


def test_cub_is_read_as_it_was_described(cub, train):
    assert (train.n, train.k, train.n_classes) == (5994, 98, 200)
    assert train.density == pytest.approx(0.24827, abs=5e-6)
    assert cub.density == pytest.approx(0.24865, abs=5e-6)


def test_cat_plus_on_cub_picks_what_was_recorded(train):
    found = cat_plus(train, 0, 5, tie_break="index")
    assert found.trigger.index == (49, 69, 3, 0, 1)
    assert found.trigger.values == (1, 1, 1, 0, 0)
    assert found.cnt.tolist() == [522, 18, 0, 0, 0]
    assert found.saturated_at == 3


def test_every_cub_class_is_saturated_after_three_steps(train):
    assert all(found.cnt[2] == 0 for found in cat_plus_all(train, 3, tie_break="index"))


def test_awa2_is_read_as_it_was_described():
    awa2 = table("awa2")
    assert awa2.concepts.shape == (50, 85)
    assert awa2.density == pytest.approx(0.36753, abs=5e-6)
    assert len(np.unique(awa2.concepts, axis=0)) == 50
