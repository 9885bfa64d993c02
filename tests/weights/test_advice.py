"""Advice: its closed forms, what it leaves alone, and that a budget is met exactly."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from querist.errors import BadOption, UnknownName
from querist.sources.datasets.matrices import gaussian, inverse_wishart
from querist.weights import scan
from querist.weights.advice import Advised, LayerTail, alpha_pruning, param_groups, temp_balance


def tail(name, alpha, *, null=9.0, side=100, parameters=1000, half=0.2):
    low, high = (None, None) if alpha is None else (alpha - half, alpha + half)
    return LayerTail(name, alpha, null, low, high, side, parameters)


LAYERS = [tail("first", 2.0), tail("a", 2.0), tail("b", 3.0), tail("c", 4.0), tail("last", 5.0)]


@pytest.mark.parametrize(("form", "middle"), [("linear", 1.0), ("sqrt", 1.0425), ("log2", 1.0850), ("step", 1.0)])
def test_multipliers_between_their_ends(form, middle):
    values = {one.name: one.value for one in temp_balance(LAYERS, form=form)}
    assert (values["a"], values["c"]) == (0.5, 1.5)
    assert values["b"] == pytest.approx(middle, abs=1e-4)
    assert (values["first"], values["last"]) == (1, 1)


def test_what_is_left_alone_says_why():
    layers = [
        tail("f", 2),
        tail("noise", 8.95),
        tail("small", 3, side=40),
        tail("none", None),
        tail("a", 2),
        tail("b", 3),
        tail("l", 2),
    ]
    told = {one.name: one for one in temp_balance(layers)}
    assert "null" in told["noise"].reason
    assert "40" in told["small"].reason
    assert told["none"].reason == "no exponent"
    assert [told[n].value for n in ("noise", "small", "none")] == [1, 1, 1]
    assert (told["a"].value, told["b"].value) == (0.5, 1.5)


@given(
    st.lists(st.tuples(st.floats(1.5, 8), st.integers(10, 5000)), min_size=1, max_size=12),
    st.floats(0.05, 0.98),
)
def test_sparsity_meets_its_budget_exactly(layers, target):
    tails = [tail(str(i), alpha, parameters=size) for i, (alpha, size) in enumerate(layers)]
    values = [one.value for one in alpha_pruning(tails, target)]
    total = sum(size for _, size in layers)
    assert sum(value * size for value, (_, size) in zip(values, layers, strict=True)) / total == pytest.approx(target)
    assert all(0 <= value <= 0.99 + 1e-12 for value in values)
    if len({alpha for alpha, _ in layers}) > 1 and max(values) < 0.99:
        order = sorted(range(len(layers)), key=lambda i: layers[i][0])
        assert values[order[0]] <= values[order[-1]]


def test_bad_targets():
    for target in (0, 1.0, -1):
        with pytest.raises(BadOption, match="target"):
            alpha_pruning(LAYERS, target)
    with pytest.raises(BadOption, match="form"):
        temp_balance(LAYERS, form="cubic")


def test_parameter_groups_hold_every_parameter_once():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    groups = param_groups(model.named_parameters(), [Advised("0.weight", 0.5), Advised("1.weight:q", 1.5)], lr=0.1)
    assert [group["lr"] for group in groups] == pytest.approx([0.05, 0.15, 0.1])
    assert sum(len(group["params"]) for group in groups) == 4
    torch.optim.SGD(groups)
    with pytest.raises(UnknownName, match=r"0\.weight"):
        param_groups(model.named_parameters(), [Advised("0.wight", 1)], lr=0.1)


def test_advice_is_part_of_a_scan():
    network = {
        "in.weight": gaussian(80, 120),
        "b.0.weight": inverse_wishart(160, 80, freedom=1.1),
        "b.1.weight": inverse_wishart(160, 80, freedom=2.0),
        "b.2.weight": gaussian(160, 80),
        "out.weight": gaussian(60, 80),
    }
    rates = scan(network, nulls=(), advise="temp-balance")
    values = dict(zip(rates.table["layer_id"], rates.table["lr_multiplier"], strict=True))
    assert values["b.0.weight"] < values["b.1.weight"]
    assert values["b.2.weight"] == 1
    assert len(rates.summary["advice"]) == 5
    pruned = scan(network, nulls=(), advise="alpha-pruning", target_sparsity=0.6)
    table = pruned.table
    sizes = table["N"] * table["M"]
    assert (table["sparsity"] * sizes).sum() / sizes.sum() == pytest.approx(0.6)
    verdicts = {f.subject: f.verdict for f in rates.findings if f.question == "weights.advice"}
    assert verdicts["b.2.weight"] == "cannot say"
