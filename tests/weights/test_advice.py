"""Advice: its closed forms, what it leaves alone, and that a budget is met exactly."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.harness import check_bad_input

from querist.errors import BadOption, BadValues, UnknownName
from querist.sources.datasets.matrices import gaussian, inverse_wishart
from querist.weights import advice, scan
from querist.weights.advising import Advised, LayerTail, alpha_pruning, param_groups, temp_balance


def tail(name, alpha, *, null=9.0, side=100, parameters=1000, half=0.2):
    low, high = (None, None) if alpha is None else (alpha - half, alpha + half)
    return LayerTail(name, alpha, null, low, high, side, parameters)


LAYERS = [tail("first", 2.0), tail("a", 2.0), tail("b", 3.0), tail("c", 4.0), tail("last", 5.0)]


def multipliers(layers, **options):
    return {one.name: one.value for one in temp_balance(layers, **options)}


def test_linear_multipliers():
    assert multipliers(LAYERS) == {"first": 1, "a": 0.5, "b": 1.0, "c": 1.5, "last": 1}
    values = multipliers([*LAYERS[:2], tail("b", 2.5), *LAYERS[3:]], low=0.8, high=1.2)
    assert values["b"] == pytest.approx(0.9)


@pytest.mark.parametrize(("form", "shape"), [("sqrt", math.sqrt), ("log2", math.log2)])
def test_multipliers_over_their_mean(form, shape):
    """As in the method's ablation: the shaped exponent over the mean of the shaped exponents."""
    values = multipliers(LAYERS, form=form)
    mean = (shape(2) + shape(3) + shape(4)) / 3
    assert [values[name] for name in "abc"] == pytest.approx([shape(x) / mean for x in (2, 3, 4)])
    assert (values["first"], values["last"]) == (1, 1)


def test_multipliers_by_rank():
    layers = [tail("f", 2), tail("a", 3.0), tail("b", 2.0), tail("c", 3.0), tail("d", 9.5), tail("l", 2)]
    values = multipliers(layers, form="step")
    assert [values[name] for name in "bacd"] == pytest.approx([0.5, 1.0, 1.0, 1.5])


def test_equal_exponents_are_left_at_one():
    for form in ("linear", "sqrt", "log2", "step"):
        assert set(multipliers([tail(name, 3.0) for name in "abcd"], form=form).values()) == {1.0}
    assert temp_balance([]) == []


def test_every_part_of_the_first_and_last_tensor_is_left_alone():
    names = ["in:q", "in:k", "in:v", "mid", "mid2", "out:gate_i", "out:gate_f"]
    told = {one.name: one.reason for one in temp_balance([tail(n, 2 + i) for i, n in enumerate(names)])}
    assert [name for name, reason in told.items() if reason is None] == ["mid", "mid2"]
    assert told["in:v"] == "the first layer"
    assert told["out:gate_i"] == "the last layer"


def test_the_null_has_a_band():
    apart = LayerTail("a", 3.0, 4.0, 2.8, 3.2, 100, 10)
    assert apart.distinguishable
    assert not replace(apart, null_low=3.1, null_high=4.9).distinguishable
    assert not replace(apart, alpha_null=3.1).distinguishable
    assert not replace(apart, alpha_null=None).distinguishable
    assert replace(apart, alpha_null=2.0, null_low=1.9, null_high=2.1).distinguishable


def test_estimators_are_never_mixed():
    mixed = [tail("a", 2.0), replace(tail("b", 4.0), estimator="csn"), tail("c", 3.0)]
    with pytest.raises(BadOption, match="csn, hill"):
        temp_balance(mixed)
    with pytest.raises(BadOption, match="estimators"):
        alpha_pruning(mixed, 0.5)
    with pytest.raises(BadValues, match="exponent of b"):
        temp_balance([tail("a", 2.0), tail("b", 1.0), tail("c", 3.0)])


def test_block_means_decide():
    layers = [replace(tail(f"{b}.{i}", a), block=b) for b, i, a in (("x", 0, 2), ("x", 1, 4), ("y", 0, 5), ("y", 1, 3))]
    layers.append(tail("z", 6))
    values = {one.name: one.value for one in alpha_pruning(layers, 0.5)}
    assert values["x.0"] == values["x.1"]
    assert values["y.0"] == values["y.1"]
    # Means 3, 4, 6 become shares .8, .8 + .4/3, 1.2; all layers hold as many parameters.
    shares = [0.8, 0.8, 0.8 + 0.4 / 3, 0.8 + 0.4 / 3, 1.2]
    assert list(values.values()) == pytest.approx([0.5 * share * 5 / sum(shares) for share in shares])


def test_what_exceeds_the_most_is_shared_out():
    layers = [tail("small", 2.0, parameters=10), tail("large", 6.0, parameters=1000)]
    values = [one.value for one in alpha_pruning(layers, 0.95)]
    assert values[0] * 10 + values[1] * 1000 == pytest.approx(0.95 * 1010)
    layers = [tail("a", 2.0, parameters=1000), tail("b", 6.0, parameters=10)]
    values = [one.value for one in alpha_pruning(layers, 0.9)]
    assert values[1] == 0.99
    assert values[0] * 1000 + values[1] * 10 == pytest.approx(0.9 * 1010)
    assert [one.value for one in alpha_pruning(layers, 0.99)] == pytest.approx([0.99, 0.99])


def test_layers_at_their_null_take_the_middle():
    layers = [tail("a", 2.0), tail("noise", 8.95), tail("b", 4.0), tail("none", None)]
    told = {one.name: one for one in alpha_pruning(layers, 0.5)}
    assert told["noise"].value == told["none"].value == pytest.approx(0.5)
    assert told["a"].value == pytest.approx(0.4)
    assert told["b"].value == pytest.approx(0.6)
    assert told["noise"].reason
    assert told["none"].reason == "no exponent"
    assert [one.value for one in alpha_pruning(layers[1:2], 0.3)] == pytest.approx([0.3])


def test_composed_weights_reach_their_parameters():
    model = torch.nn.Sequential(
        torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4)), torch.nn.Linear(4, 4, bias=False)
    )
    names = dict(model.named_parameters())
    names |= {"q.lora_A.mine.weight": names["1.weight"].clone(), "q.lora_B.mine.weight": names["1.weight"].clone()}
    advised = [Advised("0.weight", 0.5), Advised("q.lora.mine", 1.5)]
    groups = {group["name"]: group for group in param_groups(names.items(), advised, lr=1.0)}
    assert {name: len(group["params"]) for name, group in groups.items()} == {
        "0.weight": 2,
        "q.lora.mine": 2,
        "others": 2,
    }
    with pytest.raises(BadOption, match="learning rate"):
        param_groups(names.items(), advised, lr=0.0)


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


def sample(**options):
    network = {
        "in.weight": gaussian(80, 120),
        "b.0.weight": inverse_wishart(160, 80, freedom=1.1),
        "b.1.weight": inverse_wishart(160, 80, freedom=2.0),
        "b.2.weight": gaussian(160, 80),
        "out.weight": gaussian(60, 80),
    }
    return scan(network, nulls=(), **options)


def test_advice_on_a_finished_scan_is_that_of_the_scan():
    found = sample(advise="temp-balance")
    told = advice(found)
    assert told.table.equals(found.tables["advice"])
    assert dict(told.values) == dict(zip(found.table["layer_id"], found.table["lr_multiplier"], strict=True))
    assert advice(found.table).values == told.values
    pruned = sample(advise="alpha-pruning", target_sparsity=0.6)
    assert advice(found, "alpha-pruning", target=0.6).table.equals(pruned.tables["advice"])
    assert "5 layers, 3 left alone" in repr(told)


def test_every_option_of_advice_is_heard():
    found = sample(farms=True)
    plain = advice(found).values
    assert advice(found, form="step").values != advice(found, form="sqrt").values
    assert advice(found, low=0.9, high=1.1).values["b.0.weight"] == 0.9
    assert advice(found, alpha="farms").tails[1].alpha == found.table["alpha_farms"][1]
    assert plain["b.0.weight"] == 0.5
    sizes = found.table["N"] * found.table["M"]
    narrow = advice(found, "alpha-pruning", target=0.5, low=0.95, high=1.05).values
    wide = advice(found, "alpha-pruning", target=0.5).values
    assert max(narrow.values()) < max(wide.values())
    for values in (narrow, wide):
        mean = sum(value * size for value, size in zip(values.values(), sizes, strict=True)) / sum(sizes)
        assert mean == pytest.approx(0.5)


def test_parameter_groups_train_each_layer_at_its_rate():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(60, 60) for _ in range(4)))
    with torch.no_grad():
        model[1].weight.copy_(torch.from_numpy(inverse_wishart(60, 60, freedom=1.1)))
        model[2].weight.copy_(torch.from_numpy(inverse_wishart(60, 60, freedom=2.0)))
    told = advice(scan(model, nulls=()))
    groups = {group["name"]: group for group in told.param_groups(model, lr=0.2)}
    assert groups["1.weight"]["lr"] == pytest.approx(0.2 * told.values["1.weight"])
    assert groups["1.weight"]["lr"] < groups["2.weight"]["lr"]
    assert groups["others"]["lr"] == 0.2
    assert sum(len(group["params"]) for group in groups.values()) == 8
    torch.optim.AdamW(told.param_groups(model, lr=0.2))


def test_bad_advice():
    found = sample()
    check_bad_input(
        [
            (lambda: advice(found, "dropout"), UnknownName, ["temp-balance, alpha-pruning"]),
            (lambda: advice(found, alpha="csn"), UnknownName, ["hill, farms"]),
            (lambda: advice(found, "alpha-pruning"), BadOption, ["target"]),
            (lambda: advice(found, target=0.5), BadOption, ["target"]),
            (lambda: advice(found, alpha="farms"), BadOption, ["farms=True"]),
            (lambda: advice(found.table.drop("alpha_hill")), BadOption, ["alpha_hill"]),
            (lambda: advice(found, low=1.2), BadOption, ["must hold 1"]),
            (
                lambda: advice(found, "alpha-pruning", target=0.5).param_groups(torch.nn.Linear(2, 2), lr=0.1),
                BadOption,
                ["temp-balance"],
            ),
        ]
    )


def test_public_functions_stay_functions_after_their_modules_were_imported():
    import querist.weights.advising
    import querist.weights.shrinkage
    import querist.weights.studies.advise
    import querist.weights.studies.scan

    for name in querist.weights.__all__:
        assert callable(getattr(querist.weights, name)), name
