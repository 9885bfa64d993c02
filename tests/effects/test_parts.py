"""Parts of effects and the generator: identities, round trips, and the sizes that the reference measurements imply."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querist.effects.parts import compose, decompose, retier, tier_of
from querist.effects.simulation import SETTINGS, simulate
from querist.errors import BadOption, BadValues, ShapeMismatch


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 3))
def test_parts_add_up_and_go_round(seed, arms, outcomes):
    rng = np.random.default_rng(seed)
    response = rng.normal(size=(7, arms + 1, outcomes))
    w = rng.dirichlet(np.ones(arms))
    effects = compose(response, tier_weights=w)
    assert effects.response == pytest.approx(response)
    assert (effects.response[:, 0] == effects.natural).all()
    assert effects.total == pytest.approx(effects.base[:, None] + effects.incremental)
    assert np.einsum("nmk,m->nk", effects.incremental, w) == pytest.approx(np.zeros((7, outcomes)), abs=1e-12)
    other = retier(effects, tier="reference", reference_arm=arms - 1)
    assert other.incremental[:, -1] == pytest.approx(np.zeros((7, outcomes)), abs=1e-12)
    assert other.total == pytest.approx(effects.total)
    back = retier(other, tier="mean", tier_weights=w)
    assert back.base == pytest.approx(effects.base)
    assert back.incremental == pytest.approx(effects.incremental)
    if arms == 1:
        assert effects.incremental == pytest.approx(np.zeros((7, 1, outcomes)), abs=1e-12)


def test_parts_refuse():
    with pytest.raises(ShapeMismatch):
        decompose(np.zeros((3, 2)), np.zeros((3, 2, 1)))
    with pytest.raises(BadValues):
        tier_of(2, "mean", tier_weights=[0.5, 0.6])
    with pytest.raises(BadOption):
        tier_of(2, "reference", reference_arm=2)
    with pytest.raises(BadOption):
        tier_of(2, "flat")  # type: ignore[arg-type]


@pytest.mark.parametrize(("setting", "increments"), [(1, 0.047), (3, 0.185), (4, 0.057)])
def test_the_generator_has_the_spread_of_the_reference(setting, increments):
    """Constant increments err by the spread of the true ones: measured elsewhere as .047, .185 and about .057."""
    values = simulate(20_000, seed=0, **SETTINGS[setting]).truth.incremental
    assert np.sqrt(((values - values.mean(axis=0)) ** 2).mean()) == pytest.approx(increments, abs=0.002)


def test_the_generator():
    one = simulate(5000, seed=3, **SETTINGS[1])
    assert one.X.shape == (5000, 12)
    assert one.propensity == pytest.approx(np.full((5000, 4), 0.25))
    assert np.bincount(one.arm).min() > 1100
    rows = np.arange(5000)
    noise = one.Y - one.truth.response[rows, one.arm]
    assert noise.std(axis=0) == pytest.approx([1, 1], abs=0.04)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.05
    tied = simulate(5000, seed=3, correlation=0.5, rare=0.1, **SETTINGS[1])
    assert np.isnan(tied.Y[:, 1]).mean() == pytest.approx(0.9, abs=0.02)
    assert (tied.arm == one.arm).all()
    whole = simulate(5000, seed=3, correlation=0.5, noise_sd=2.0, **SETTINGS[2])
    noise = whole.Y - whole.truth.response[rows, whole.arm]
    assert np.corrcoef(noise.T)[0, 1] == pytest.approx(0.5, abs=0.04)
    assert noise.std() == pytest.approx(2, abs=0.06)
    mixed = simulate(5000, seed=3, confounding=1.0, **SETTINGS[1])
    assert np.corrcoef(mixed.arm, mixed.truth.natural[:, 0])[0, 1] > 0.2
    assert mixed.propensity.sum(axis=1) == pytest.approx(np.ones(5000))
    logit = np.log(mixed.propensity[:, 3] / mixed.propensity[:, 0])
    assert logit == pytest.approx(mixed.truth.natural[:, 0])
    single = simulate(50, arms=1, seed=0, **SETTINGS[1]).truth
    assert single.incremental == pytest.approx(np.zeros((50, 1, 2)), abs=1e-14)
    with pytest.raises(BadOption):
        simulate(5, rare=0.0, seed=0, **SETTINGS[1])
