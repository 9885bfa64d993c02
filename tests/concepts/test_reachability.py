"""Triggers in pictures: closed forms of a linear g, the ball, the nulls, and the bird drawn anew."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.harness import check_bad_input

from querist.concepts import ConceptData, Trigger, fit_cbm, poison
from querist.concepts.attacks import EPS, perturb, reachability, redrawn
from querist.concepts.heads import Head, SmallBackbone
from querist.concepts.model import CBM
from querist.concepts.readers import birds
from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch, UnknownName
from querist.sources.datasets.birds import render


class LinearG(torch.nn.Module):
    """Concept logits linear in pixels."""

    def __init__(self, k=4, edge=3, seed=0):
        super().__init__()
        self.k = k
        weight = torch.randn(k, 3 * edge * edge, generator=torch.Generator().manual_seed(seed))
        self.weight = torch.nn.Parameter(weight)

    def forward(self, x):
        return (x.flatten(1) - 0.5) @ self.weight.T


def grey(n=6, edge=3, seed=0):
    rng = np.random.default_rng(seed)
    return torch.as_tensor(0.4 + 0.2 * rng.random((n, 3, edge, edge)), dtype=torch.float32)


@pytest.mark.parametrize("value", [0, 1])
def test_one_concept_of_a_linear_model_moves_along_the_sign(value):
    """Without a price on the others the best d is ±ε·sign(w), wherever no pixel meets its range."""
    g, x, eps = LinearG(), grey(), 0.05
    moved = perturb(g, x, Trigger((2,), (value,)), eps, mu=0.0, restarts=2)
    sign = torch.sign(g.weight[2]).reshape(3, 3, 3) * (1 if value else -1)
    assert torch.allclose(moved - x, (eps * sign).expand(6, -1, -1, -1).detach(), atol=1e-6)


def test_pictures_stay_in_the_ball_and_in_range():
    g = SmallBackbone(5, width=4)
    x = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    before = x.clone()
    g.train()
    for eps in (2 / 255, 0.4):
        moved = perturb(g, x, Trigger((0, 3), (1, 0)), eps, steps=8)
        assert float((moved - x).abs().max()) <= eps + 1e-6
        assert float(moved.min()) >= 0
        assert float(moved.max()) <= 1
    assert torch.equal(x, before)
    assert g.training
    assert all(p.grad is None for p in g.parameters())
    again = perturb(g, x, Trigger((0, 3), (1, 0)), 0.4, steps=8)
    assert torch.equal(again, moved)
    parts = perturb(g, x, Trigger((0, 3), (1, 0)), 0.4, steps=8, batch=2)
    assert torch.allclose(parts, moved, atol=1e-5), "a picture's answer does not depend on its batch"


def test_a_price_on_the_others_lessens_what_they_move():
    g, x = LinearG(k=6, seed=3), grey(20)
    moves = []
    for mu in (0.0, 200.0):
        moved = perturb(g, x, Trigger((1,), (1,)), 0.1, mu=mu, restarts=1)
        with torch.no_grad():
            change = (torch.sigmoid(g(moved)) - torch.sigmoid(g(x))).abs()
        moves.append(float(change[:, [0, 2, 3, 4, 5]].mean()))
    assert moves[1] < 0.8 * moves[0]


def known_model():
    """g linear, class 1 exactly where concepts 0 and 1 are on: everything can be worked out by hand."""
    g = LinearG()
    f = Head(4, 2)
    with torch.no_grad():
        f.layers[0].weight.copy_(torch.tensor([[0.0, 0, 0, 0], [2.0, 2.0, 0, 0]]))
        f.layers[0].bias.copy_(torch.tensor([0.0, -3.0]))
    return CBM(g, f, input="hard")


def test_rates_are_those_counted_by_hand():
    model, trigger = known_model(), Trigger((0, 1), (1, 1))
    x = grey(40, seed=2)
    data = ConceptData(np.zeros((40, 4)) + np.arange(4) % 2, np.arange(40) % 2, images=x.numpy())
    found = reachability(model, data, trigger, 1, eps=(0.02, 0.2), steps=20, baseline=model)
    for reach in found.at:
        moved = perturb(model, x, trigger, reach.eps, steps=20)
        with torch.no_grad():
            logits = model.g(moved).numpy()
            plain = model.g(x).numpy()
        hit = (logits[:, :2] > 0).all(axis=1)
        assert reach.hit == hit.mean()
        assert reach.low <= reach.hit <= reach.high
        other = data.codes != 1
        assert reach.asr == hit[other].mean()
        sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
        assert reach.collateral == pytest.approx(np.abs(sigmoid(logits) - sigmoid(plain))[:, 2:].mean(), abs=1e-6)
        assert (reach.clean_hit, reach.clean_asr) == (reach.hit, reach.asr)
        assert reach.hit >= reach.null_hit
    assert found.at[1].hit == 1
    assert found.natural == (plain[:, :2] > 0).all(axis=1).mean()
    assert found.n_other == 20
    assert found.table.columns[:5] == ["eps", "target", "hit", "low", "high"]
    assert found.table["physical_asr"].null_count() == 2
    alone = reachability(model, data.subset(np.flatnonzero(data.codes == 1)), trigger, 1, eps=(0.1,), steps=2)
    assert alone.at[0].asr is None
    assert alone.at[0].clean_hit is None


@pytest.fixture(scope="module")
def few():
    return birds(120, seed=4)


def test_a_bird_is_drawn_anew_with_its_trigger_alone(few):
    part = few.subset(np.array([3, 50, 97]))
    trigger = Trigger((8, 15), (1, 1))
    drawn = redrawn(part, trigger, seed=4)
    expected = render(trigger.apply(few.concepts), 4)[[3, 50, 97]].transpose(0, 3, 1, 2)
    assert np.array_equal(drawn, expected)
    carries = trigger.matches(part.concepts)
    assert np.array_equal(drawn[carries], np.asarray(part.images)[carries])
    assert (drawn[~carries] != np.asarray(part.images)[~carries]).any(axis=(1, 2, 3)).all()


def test_bad_pictures_are_refused(few):
    model, trigger = known_model(), Trigger((0, 1), (1, 1))
    data = ConceptData(np.eye(4), [0, 1, 0, 1], images=grey(4).numpy())
    broken = known_model()
    with torch.no_grad():
        broken.g.weight.fill_(float("nan"))
    check_bad_input(
        [
            (lambda: reachability(CBM(None, Head(4, 2)), data, trigger, 1), BadOption, ["g=None"]),
            (lambda: reachability(model, data.changed(images=None), trigger, 1), BadOption, ["images=None"]),
            (lambda: reachability(model, data, trigger, 1, eps=()), BadOption, ["one or more"]),
            (lambda: reachability(model, data, trigger, 1, eps=(8,)), BadOption, ["0 < eps <= 1"]),
            (lambda: reachability(model, data, trigger, 7), UnknownName, ["7"]),
            (lambda: reachability(model, data, Trigger((4,), (1,)), 1), ShapeMismatch, ["0 to 3"]),
            (lambda: reachability(model, data, trigger, 1, physical=grey(3)), ShapeMismatch, ["[4 3 h w]"]),
            (lambda: perturb(model, grey(2) * 255, trigger, 0.1), BadValues, ["uint8"]),
            (lambda: perturb(model, grey(2), trigger, 0.1, steps=0), BadOption, ["1 or more"]),
            (lambda: perturb(broken, grey(2), trigger, 0.1), NonFinite, ["weights"]),
            (lambda: redrawn(data, trigger), BadOption, ["render:birds"]),
            (lambda: redrawn(few, trigger, seed=5), BadOption, ["seed"]),
        ]
    )


@pytest.mark.slow
def test_a_planted_trigger_is_reached_in_pictures_of_birds():
    """A joint model on 2,400 birds, mix 5 %: pixels within 8/255 reach it, random signs do not, and a drawn one fools it."""
    data = birds(3600, seed=0)
    train, test = data.part("train").changed(split=None), data.part("test")
    trigger = Trigger((8, 15), (1, 1))
    poisoned = poison(train, trigger, "plum", 0.05, seed=0).data
    bad, clean = (fit_cbm(table, seed=0, epochs=8) for table in (poisoned, train))
    rows = test.subset(np.arange(100))
    found = reachability(
        bad, rows, trigger, "plum", eps=EPS[2:3], baseline=clean, physical=redrawn(rows, trigger), seed=0
    )
    (reach,) = found.at
    assert reach.low > reach.null_high
    assert reach.hit > found.natural
    assert found.physical_hit > 0.3


class OnDisk:
    """Pictures that are never read whole, as those of a memory map larger than memory."""

    def __init__(self, images):
        self._images, self.shape, self.dtype, self.largest = images, images.shape, images.dtype, 0

    def __len__(self):
        return len(self._images)

    def __array__(self, *_, **__):
        raise AssertionError("read whole")

    def __getitem__(self, rows):
        part = self._images[rows]
        self.largest = max(self.largest, len(part))
        return part


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_any_number_of_pictures_is_read_in_batches(kind):
    """1,000 pictures, 64 at a time: as many are held, and what is found is what one batch of all finds."""
    rng = np.random.default_rng(5)
    images = rng.integers(90, 170, (1000, 3, 3, 3), dtype=np.uint8)
    images = images if kind is np.uint8 else (images / 255).astype(np.float32)
    model, trigger = known_model(), Trigger((0, 1), (1, 1))
    labels, concepts = np.arange(1000) % 2, rng.integers(0, 2, (1000, 4))
    options = {"eps": (8 / 255,), "steps": 3, "baseline": model}
    stored = OnDisk(images)
    found = reachability(model, ConceptData(concepts, labels, images=stored), trigger, 1, batch=64, **options)
    assert stored.largest <= 128
    whole = reachability(model, ConceptData(concepts, labels, images=images), trigger, 1, batch=1000, **options)
    assert found.n == 1000
    assert found.at[0].collateral == pytest.approx(whole.at[0].collateral)
    for name in ("hit", "asr", "null_hit", "null_asr", "clean_hit"):
        assert getattr(found.at[0], name) == pytest.approx(getattr(whole.at[0], name), abs=2e-3), name
    stored = OnDisk(images)
    said = model.predict_concepts(stored, batch=64)
    assert stored.largest == 64
    assert np.array_equal(said, model.predict_concepts(images, batch=64))
