"""The loop in one process: beside loops written by hand, and everything a caller may rely on."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness import PATIENCE, Bad, check_bad_input
from tests.training.parts import (
    Diary,
    Net,
    Shaken,
    apart,
    line,
    linear,
    loss,
    mse,
    noisy_loss,
    same,
    table,
    tensors,
    weights_of,
)
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from querist.errors import BadOption, BadValues, NumericalFailure, ShapeMismatch, TooFewRows, UnknownName
from querist.statistics import stream
from querist.training import Hook, Schedule, fit
from querist.training.batches import Rows, _part, rows_of


def by_hand(model, data, make, *, batch, epochs, seed=0, each=lambda optimizer: None, clip=None):
    """The plain loop that everybody writes."""
    optimizer = make(model.parameters())
    x, y = data
    for epoch in range(epochs):
        order = torch.from_numpy(stream(seed, "training", "order", epoch).permutation(len(x)))
        for start in range(0, len(x), batch):
            rows = order[start : start + batch]
            optimizer.zero_grad()
            ((model(x[rows]).squeeze(-1) - y[rows]) ** 2).mean().backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            each(optimizer)
    return model


@pytest.mark.parametrize(
    ("options", "make"),
    [
        ({"optimizer": "adam"}, lambda p: torch.optim.Adam(p, lr=0.1)),
        ({"optimizer": "adamw", "weight_decay": 0.2}, lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.2)),
        ({"optimizer": "sgd", "clip": 0.5}, lambda p: torch.optim.SGD(p, lr=0.1)),
        (
            {"optimizer": lambda groups: torch.optim.SGD(groups, momentum=0.9)},
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        ),
    ],
)
def test_it_does_what_a_loop_by_hand_does(options, make):
    model = linear()
    fit(model, mse, line(), batch_size=7, epochs=3, lr=0.1, seed=5, **options)
    other = by_hand(linear(), line(), make, batch=7, epochs=3, seed=5, clip=options.get("clip"))
    assert apart(tensors(model), tensors(other)) < 1e-12


def test_an_optimiser_of_ones_own_trains_and_keeps_its_rate():
    model, other = linear(), linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fit(model, mse, line(), batch_size=7, epochs=3, optimizer=optimizer, schedule="linear")
    assert optimizer.param_groups[0]["lr"] == 0.1
    fit(other, mse, line(), batch_size=7, epochs=3, optimizer="sgd", lr=0.1, schedule="linear")
    assert same(model, other)


def test_each_term_is_divided_by_its_own_weight():
    data, model, other = table(), Net(), Net()
    fit(model, loss, data, batch_size=64, epochs=1, optimizer="sgd", lr=0.1, shuffle=False)
    inner = other(data["x"])
    weight, seen = data["weight"], data["seen"]
    visit = nn.functional.binary_cross_entropy_with_logits(
        other.visit(inner)[:, 0], data["visit"], weight, reduction="sum"
    )
    spend = (weight[seen] * (other.spend(inner)[seen, 0] - data["spend"][seen]) ** 2).sum() / weight[seen].sum()
    (visit / weight.sum() + spend).backward()
    expected = {n: p - 0.1 * (0 if p.grad is None else p.grad) for n, p in other.named_parameters()}
    assert apart({n: p.detach() for n, p in expected.items()}, tensors(model)) < 1e-12


@pytest.mark.parametrize("options", [{"accumulate": 2}, {"accumulate": 5}, {"accumulate": 3, "weights": weights_of}])
def test_micro_batches_are_one_large_batch(options):
    one, two = Net(), Net()
    base = {"batch_size": 17, "epochs": 3, "lr": 0.05, "clip": 1.0, "validation": table(rows=9)}
    a = fit(one, loss, table(), **base)
    b = fit(two, loss, table(), **base, **options)
    assert apart(tensors(one), tensors(two)) < 1e-10
    assert a.history.columns == b.history.columns
    assert max((a.history[name] - b.history[name]).abs().max() for name in a.history.columns) < 1e-10


def test_learning_weights_ahead_draws_nothing_and_touches_no_statistics():
    seen = []

    def spied(model, batch):
        seen.append((model.training, torch.is_grad_enabled(), float(torch.rand(()))))
        return loss(model, batch)

    model = Net(norm=True, dropout=0.5)
    fit(model, spied, table(), batch_size=53, epochs=1, accumulate=2)
    assert [(a, b) for a, b, _ in seen] == [(False, False)] * 2 + [(True, True)] * 2
    assert seen[0][2] == seen[2][2], "the draws of the look ahead were not undone"
    assert model.trunk[1].num_batches_tracked == 2


def test_weights_that_are_not_those_of_the_loss_are_refused():
    with pytest.raises(BadValues, match="weight of visit is not what was found before"):
        fit(Net(), loss, table(), epochs=1, accumulate=2, weights=lambda batch: {"visit": 1.0, "spend": 2.0})


@settings(deadline=None)
@given(rows=st.integers(0, 40), processes=st.integers(1, 5), accumulate=st.integers(1, 5))
def test_shares_together_are_the_batch(rows, processes, accumulate):
    batch = np.arange(rows) * 3
    shares = [_part(batch, rank, processes, accumulate) for rank in range(processes)]
    assert [row for share in shares for micro in share for row in micro] == batch.tolist()
    assert all(len(share) <= accumulate and all(len(micro) for micro in share) for share in shares)
    sizes = [sum(map(len, share)) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_an_epoch_is_every_row_once_in_an_order_of_its_own():
    source = rows_of(torch.arange(50), 8, seed=3)
    assert isinstance(source, Rows)
    epochs = [torch.cat([b for micro in source.epoch(e, 0, 0, 1, 1) for b in micro]).tolist() for e in range(2)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    rest = torch.cat([b for micro in source.epoch(1, 4, 0, 1, 1) for b in micro]).tolist()
    assert rest == epochs[1][32:]
    dropped = rows_of(torch.arange(50), 8, seed=3, drop_last=True, shuffle=False)
    assert dropped.steps == 6
    assert torch.cat([b for m in dropped.epoch(0, 0, 0, 1, 1) for b in m]).tolist() == list(range(48))


def test_the_global_generators_are_the_callers():
    torch.manual_seed(1)
    np.random.seed(2)  # noqa: NPY002
    random.seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    model, other = (Net(dropout=0.2, dtype=torch.float32) for _ in range(2))
    fit(model, noisy_loss, Shaken(), batch_size=16, epochs=1, validation=0.2, seed=4)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert random.getstate() == before[2]
    torch.rand(5)
    fit(other, noisy_loss, Shaken(), batch_size=16, epochs=1, validation=0.2, seed=4)
    assert same(model, other), "a training depends on its seed alone"
    third = Net(dropout=0.2, dtype=torch.float32)
    fit(third, noisy_loss, Shaken(), batch_size=16, epochs=1, validation=0.2, seed=5)
    assert not same(model, third)


def test_validating_changes_nothing_in_the_training():
    one, two = Net(dropout=0.3, norm=True), Net(dropout=0.3, norm=True)
    base = {"batch_size": 16, "max_steps": 7, "restore_best": False}
    fit(one, noisy_loss, table(), **base)
    done = fit(two, noisy_loss, table(), **base, validation=table(rows=9), validate_every=2)
    assert same(one, two)
    assert done.history["valid_total"].len() - done.history["valid_total"].null_count() == 4  # 2, 4, 6 and the last


@pytest.mark.parametrize("options", [{"workers": 1}, {"collate": lambda rows: torch.utils.data.default_collate(rows)}])
def test_random_transforms_do_not_depend_on_workers(options):
    one, two = Net(dtype=torch.float32), Net(dtype=torch.float32)
    fit(one, loss, Shaken(), batch_size=10, epochs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
        fit(two, loss, Shaken(), batch_size=10, epochs=2, **options)
    assert same(one, two)


def test_workers_read_training_and_validation_side_by_side():
    one, two = Net(dtype=torch.float32), Net(dtype=torch.float32)
    options = {"batch_size": 10, "max_steps": 7, "validation": 0.3, "validate_every": 2}
    a = fit(one, loss, Shaken(), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        b = fit(two, loss, Shaken(), **options, workers=1)
    assert same(one, two)
    assert a.history.equals(b.history)


def test_groups_may_come_from_advice():
    from querist.weights.advising import Advised, param_groups

    rates = []

    class Note(Hook):
        def on_step(self, state):
            rates.append({group["name"]: group["lr"] for group in state.optimizer.param_groups})

    model = linear()
    groups = param_groups(model.named_parameters(), [Advised("weight", 0.5)], lr=0.2)
    fit(model, mse, line(), batch_size=40, epochs=2, groups=groups, schedule="linear", hooks=[Note()])
    assert rates == [{"weight": 0.1, "others": 0.2}, {"weight": 0.05, "others": 0.1}]
    other = linear()
    with pytest.raises(BadOption, match="not the network's"):
        fit(other, mse, line(), epochs=1, groups=groups)


def test_the_page_of_the_manual_runs(tmp_path, monkeypatch, capsys):
    text = (Path(__file__).parents[2] / "docs/training.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    torch.manual_seed(0)
    names = {}
    exec(code, names)
    assert names["done"].metrics["error"] < 1
    assert len(names["hook"].norms) == names["done"].epochs
    assert (tmp_path / "checkpoints").is_dir()
    assert "step" in capsys.readouterr().out


def test_forms_of_batches():
    x, y = line()
    seen = []

    def spy(model, batch):
        seen.append(batch)
        first = batch if isinstance(batch, torch.Tensor) else batch["a"] if isinstance(batch, dict) else batch[0]
        return {"square": (model(first.double()).square().sum(), len(first))}

    frozen = np.asarray(x.numpy())
    frozen.flags.writeable = False
    big = x.numpy().astype(">f8")
    for data in (
        x,
        frozen,
        big,
        (x, y),
        [x.numpy(), y],
        {"a": x, "b": y},
        TensorDataset(x, y),
        list(zip(x, y, strict=True)),
    ):
        fit(linear(), spy, data, batch_size=40, epochs=1, shuffle=False)
    kinds = [type(batch) for batch in seen]
    assert kinds == [torch.Tensor] * 3 + [tuple, tuple, dict, tuple, list]
    for batch in seen[:3]:
        assert torch.equal(batch, x)
    assert torch.equal(seen[5]["b"], y)


def test_steps_and_schedules():
    rates = []

    class Note(Hook):
        def on_step(self, state):
            rates.append(state.optimizer.param_groups[0]["lr"])

    def run(schedule, **options):
        rates.clear()
        base = {"batch_size": 10, "epochs": 3, "lr": 0.8, "optimizer": "sgd", "hooks": [Note()]}
        done = fit(linear(), mse, line(), **(base | options), schedule=schedule)
        return list(rates), done

    def expected(make, count=12, every=1):
        parameter = nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([parameter], lr=0.8)
        scheduler = make(optimizer)
        found = []
        for i in range(count):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if (i + 1) % every == 0:
                scheduler.step()
        return found

    schedulers = torch.optim.lr_scheduler
    assert run("constant")[0] == [0.8] * 12
    cases = [
        ("cosine", lambda o: schedulers.CosineAnnealingLR(o, 12), 1),
        (Schedule("cosine", floor=0.25), lambda o: schedulers.CosineAnnealingLR(o, 12, eta_min=0.2), 1),
        (Schedule("linear", floor=0.5), lambda o: schedulers.LinearLR(o, 1.0, 0.5, 12), 1),
        (Schedule("step", gamma=0.3, every=5), lambda o: schedulers.StepLR(o, 5, 0.3), 1),
        (Schedule("step", gamma=0.9, every=1, unit="epoch"), lambda o: schedulers.StepLR(o, 1, 0.9), 4),
        (Schedule("cosine", unit="epoch"), lambda o: schedulers.CosineAnnealingLR(o, 3), 4),
        (lambda step: 1 / (1 + step), lambda o: schedulers.LambdaLR(o, lambda step: 1 / (1 + step)), 1),
    ]
    for schedule, make, every in cases:
        assert run(schedule)[0] == pytest.approx(expected(make, every=every), rel=1e-12), schedule
    warm = run(Schedule("cosine", warmup=4))[0]
    assert warm[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert warm[4:] == pytest.approx(expected(lambda o: schedulers.CosineAnnealingLR(o, 8), 8))
    found, done = run("linear", epochs=None, max_steps=6)
    assert found == pytest.approx(expected(lambda o: schedulers.LinearLR(o, 1.0, 0.0, 6), 6))
    assert (done.steps, done.epochs, done.reason) == (6, 1, "max_steps")


def test_a_plateau_lowers_rates_as_torchs_does():
    figures = iter([3.0, 2.0, 2.5, 1.95, 1.9, 2.0, 2.0, 2.0, 2.0, 0.5, 0.6, 0.7])
    told = []

    class Note(Hook):
        def on_epoch(self, state):
            told.append(state.metrics["score"])

    done = fit(
        linear(), mse, line(), batch_size=40, epochs=12, lr=0.4, optimizer="sgd", validation=line(8), hooks=[Note()],
        score=lambda model: {"score": next(figures)}, monitor="score", restore_best=False,
        schedule=Schedule("plateau", gamma=0.5, patience=1, min_delta=0.1),
    )  # fmt: skip
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.4)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=1, threshold=0.1, threshold_mode="abs"
    )
    expected = []
    for figure in told:
        expected.append(optimizer.param_groups[0]["lr"])
        scheduler.step(figure)
    assert done.history["lr"].to_list() == pytest.approx(expected)
    assert len(set(expected)) > 2


def test_early_stopping_restores_the_best_weights():
    figures = [5.0, 4.0, 3.95, 4.2, 3.0, 3.1, 2.95, 3.0, 3.3]
    kept = []

    class Keep(Hook):
        def on_epoch(self, state):
            kept.append({name: one.detach().clone() for name, one in tensors(state.model).items()})

        def on_end(self, state):
            kept.append({name: one.detach().clone() for name, one in tensors(state.model).items()})

    def run(**options):
        kept.clear()
        values = iter(figures)
        model = Net(norm=True)
        base = {
            "batch_size": 53,
            "epochs": 9,
            "lr": 0.1,
            "validation": table(rows=9),
            "hooks": [Keep()],
            "monitor": "s",
        }
        done = fit(model, loss, table(), **(base | options), score=lambda model: {"s": next(values)})
        return model, done

    model, done = run(patience=3, min_delta=0.1)
    assert (done.reason, done.epochs, done.best_epoch, done.best_step, done.best_value) == (
        "early-stopping",
        8,
        5,
        5,
        3.0,
    )
    assert done.restored
    assert done.metrics["s"] == 3.0
    assert all(torch.equal(tensors(model)[name], one) for name, one in kept[4].items())
    assert all(torch.equal(one, kept[4][name]) for name, one in kept[-1].items()), "on_end sees the best weights"
    model, done = run(patience=3, min_delta=0.1, restore_best=False)
    assert not done.restored
    assert all(torch.equal(tensors(model)[name], one) for name, one in kept[7].items())
    _, done = run(mode="max")
    assert (done.reason, done.best_epoch, done.best_value) == ("epochs", 1, 5.0)


def test_validation_is_a_mean_over_rows_in_eval_mode():
    held = table(rows=23)
    model = Net(norm=True, dropout=0.5)

    def metric(model, batch):
        assert not model.training
        assert not torch.is_grad_enabled()
        hit = (model.visit(model(batch["x"])).squeeze(1) > 0) == (batch["visit"] > 0)
        return {"accuracy": (hit.sum(), len(hit))}

    done = fit(model, loss, table(), batch_size=10, epochs=1, validation=held, metric=metric, restore_best=False)
    model.eval()
    with torch.no_grad():
        terms = {name: float(total / weight) for name, (total, weight) in loss(model, held).items()}
        accuracy = float(metric(model, held)["accuracy"][0]) / 23
    expected = terms | {"total": sum(terms.values()), "accuracy": accuracy}
    assert done.metrics == pytest.approx(expected, rel=1e-12)


def test_a_share_of_the_rows_is_set_aside():
    seen, held = [], []

    def spy(model, batch):
        (seen if model.training else held).extend(batch[0][:, 0].tolist())
        return mse(model, batch)

    x, y = line()
    fit(linear(), spy, (x, y), batch_size=8, epochs=1, validation=0.25, seed=9)
    assert len(held) == 10
    assert sorted(seen + held) == sorted(x[:, 0].tolist())


# ----------------------------------------------------------------------------------------------------------- freezing


def test_frozen_parts_stay_as_they_are_bit_for_bit():
    model = nn.Sequential()
    model.stem = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    model.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model.head = nn.Linear(4, 1)
    model.double()
    model.body[0].weight.requires_grad_(False)
    model.body[1].eval()
    before = {name: one.detach().clone() for name, one in tensors(model).items()}
    modes = []

    def spy(model, batch):
        modes.append((model.training, model.stem.training, model.stem[2].training, model.body[1].training))
        return mse(model, batch)

    fit(model, spy, line(), batch_size=8, epochs=2, weight_decay=0.3, validation=0.2, frozen=["stem", "head.bias"])
    during = {mode for mode in modes if mode[0]}
    assert during == {(True, False, False, True)}
    moved = {name for name, one in tensors(model).items() if not torch.equal(one, before[name])}
    assert moved == {
        "body.0.bias", "body.1.weight", "body.1.bias", "body.1.running_mean", "body.1.running_var",
        "body.1.num_batches_tracked", "head.weight",
    }  # fmt: skip
    # Given back as they were, though the training had them otherwise.
    assert [model.training, model.stem.training, model.body[1].training] == [True, True, False]
    still = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert still == ["body.0.weight"]
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("frozen", [["body.*"], ["body.0", "body.1"], ["body"], lambda model: [model.body]])
def test_frozen_parts_are_named_or_handed_over(frozen):
    model = nn.Sequential()
    model.body = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model.head = nn.Linear(3, 1)
    model.double()
    before = {name: one.detach().clone() for name, one in tensors(model).items()}
    fit(model, mse, line(), epochs=1, frozen=frozen(model) if callable(frozen) else frozen)
    moved = {name for name, one in tensors(model).items() if not torch.equal(one, before[name])}
    assert moved == {"head.weight", "head.bias"}


def test_modes_are_given_back_after_a_failure_as_well():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Linear(3, 1)).double().eval()
    with pytest.raises(ZeroDivisionError):
        fit(model, lambda model, batch: 1 / 0, line(), epochs=1, frozen=["0"])
    assert not any(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())


# -------------------------------------------------------------------------------------------------------------- hooks


def test_hooks_are_told_everything_in_order():
    told = []

    class First(Diary):
        def on_step(self, state):
            super().on_step(state)
            told.append(("first", state.step))

    class Second(Diary):
        def on_step(self, state):
            told.append(("second", state.step))
            assert state.is_main
            assert state.device == torch.device("cpu")
            assert state.model is model
            assert isinstance(state.optimizer, torch.optim.AdamW)

    model = Net()
    first = First()
    hooks = [first, Second()]
    fit(model, loss, table(), batch_size=20, epochs=2, validation=table(rows=9), hooks=hooks, weight_decay=0.1)
    assert told == [(name, step) for step in range(1, 7) for name in ("first", "second")]
    assert first.told == [
        "start 0 0",
        *[f"step {s} 0 ['spend', 'visit']" for s in (1, 2, 3)],
        "epoch 1 ['spend', 'total', 'visit']",
        *[f"step {s} 1 ['spend', 'visit']" for s in (4, 5, 6)],
        "epoch 2 ['spend', 'total', 'visit']",
        "end 6",
    ]


@pytest.mark.parametrize(("moment", "steps"), [("on_start", 0), ("on_step", 2), ("on_epoch", 3)])
def test_a_hook_may_end_the_training(moment, steps):
    class Stop(Hook):
        pass

    setattr(Stop, moment, lambda self, state: setattr(state, "stop", moment != "on_step" or state.step == 2))
    done = fit(Net(), loss, table(), batch_size=20, epochs=9, hooks=[Stop()])
    assert (done.steps, done.reason) == (steps, "hook")


def test_history_and_progress():
    said = []
    done = fit(
        linear(), mse, line(), batch_size=10, epochs=2, validation=line(8), log_every=3, lr=0.1,
        progress=lambda *args: said.append(args),
    )  # fmt: skip
    assert said == [(step, 8, f"epoch {1 + (step > 4)}") for step in range(1, 9)]
    history = done.history
    assert history.columns == ["step", "epoch", "lr", "train_total", "train_mse", "valid_total", "valid_mse"]
    assert history["step"].to_list() == [3, 4, 6, 8]
    assert history["epoch"].to_list() == [1, 1, 2, 2]
    assert history["valid_mse"].is_null().to_list() == [True, False, True, False]
    whole = fit(linear(), mse, line(), batch_size=10, epochs=1, lr=0.1).history["train_mse"][0]
    assert (3 * history["train_mse"][0] + history["train_mse"][1]) / 4 == pytest.approx(whole, rel=1e-12)


# ------------------------------------------------------------------------------------------------- device and precision


def test_trainings_in_several_precisions_follow_each_other():
    x, y = line(dtype=torch.float32)
    kinds = []

    class Spy(nn.Linear):
        def forward(self, x):
            out = super().forward(x)
            kinds.append(out.dtype)
            return out

    def run(precision):
        torch.manual_seed(0)
        model = nn.Sequential(Spy(3, 8), nn.Tanh(), nn.Linear(8, 1))
        kinds.clear()
        fit(model, mse, (x, y), batch_size=8, epochs=2, precision=precision, lr=0.01)
        assert "forward" not in vars(model)
        assert not hasattr(model, "_is_accelerate_prepared")
        return model, set(kinds)

    full, kind = run("no")
    assert kind == {torch.float32}
    half, kind = run("bf16")
    assert kind == {torch.bfloat16}
    assert all(parameter.dtype == torch.float32 for parameter in half.parameters())
    assert 1e-6 < apart(tensors(full), tensors(half)) < 0.05
    assert same(run("no")[0], full)


def test_an_accelerator_of_the_callers_own_is_not_disturbed():
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState, PartialState

    kinds = (AcceleratorState, GradientState, PartialState)
    before = [dict(kind._shared_state) for kind in kinds]
    try:
        own = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=4)
        fit(linear(), mse, line(), epochs=1)
        assert own.mixed_precision == "bf16"
        assert own.gradient_accumulation_steps == 4
        assert own.device == torch.device("cpu")
    finally:
        for kind, content in zip(kinds, before, strict=True):
            kind._shared_state.clear()
            kind._shared_state.update(content)


def test_what_a_launcher_leaves_in_the_environment_changes_no_gradient(monkeypatch):
    one, two = linear(), linear()
    fit(one, mse, line(), epochs=2)
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    fit(two, mse, line(), epochs=2)
    assert same(one, two)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_on_a_gpu(precision, tmp_path):
    x, y = line(dtype=torch.float32)
    model = linear(torch.float32)
    done = fit(model, mse, (x, y), batch_size=8, epochs=30, lr=0.1, precision=precision, clip=1.0, checkpoint=tmp_path)
    assert model.weight.device.type == "cuda"
    assert done.history["train_mse"][-1] < 1e-2
    again = linear(torch.float32)
    fit(
        again,
        mse,
        (x, y),
        batch_size=8,
        epochs=30,
        lr=0.1,
        precision=precision,
        clip=1.0,
        checkpoint=tmp_path,
        resume=True,
    )
    assert same(again, model)


# ------------------------------------------------------------------------------------------------------------ failures


def test_what_is_not_finite_is_told_with_step_and_term():
    x, y = line()
    bad = torch.where(torch.arange(40) == 25, torch.nan, y)
    with pytest.raises(NumericalFailure, match="at step 3: mse: sum nan, weight 10"):
        fit(linear(), mse, (x, bad), batch_size=10, epochs=1, shuffle=False)
    with pytest.raises(NumericalFailure, match="at step 3: mse"):
        fit(
            linear(),
            mse,
            (x, bad),
            batch_size=10,
            epochs=1,
            shuffle=False,
            accumulate=2,
            weights=lambda b: {"mse": len(b[0])},
        )
    with pytest.raises(NumericalFailure, match="validation after step 4 is not finite: mse"):
        fit(linear(), mse, (x, y), batch_size=10, epochs=1, validation=(x, bad))
    with pytest.raises(NumericalFailure, match=r"gradient is (nan|inf) at step 1"):
        fit(linear(), lambda m, b: {"root": (m(b[0]).sum().mul(0).sqrt(), 1)}, (x, y), epochs=1, clip=1.0)
    with pytest.raises(NumericalFailure, match="figure s is inf after step 1"):
        fit(linear(), mse, (x, y), epochs=1, validation=0.5, score=lambda m: {"s": float("inf")}, monitor="s")


def test_a_step_without_weight_is_no_step_backwards():
    model = linear()
    before = model.weight.detach().clone()
    done = fit(model, lambda m, b: {"none": (m(b[0]).sum() * 0, 0)}, line(), batch_size=20, epochs=1, weight_decay=0.5)
    assert torch.equal(model.weight, before)
    assert done.steps == 2
    assert done.history.columns == ["step", "epoch", "lr", "train_total"]


class Endless(IterableDataset):
    def __iter__(self):
        yield from ()


class Nothing:
    steps = None

    def describe(self):
        return {}

    def epoch(self, *place):
        return iter(())


def test_bad_input():
    x, y = line()
    other = nn.Linear(3, 1)

    def run(model=None, loss=mse, data=(x, y), **options):
        return fit(model or linear(), loss, data, **({"epochs": 1} | options))

    def say(value):
        return lambda model, batch: value

    def groups(model, **more):
        return [{"params": [model.weight], **more}]

    model = linear()
    frozen = linear().requires_grad_(False)
    own = torch.optim.SGD(other.parameters(), lr=0.1)
    check_bad_input(
        [
            (lambda: run(epochs=None), BadOption, ["no end"]),
            (lambda: run(epochs=0), BadOption, ["epochs >= 1"]),
            (lambda: run(epochs=1.5), BadOption, ["1.5"]),
            (lambda: run(max_steps=0), BadOption, ["max_steps"]),
            (lambda: run(batch_size=0), BadOption, ["at least one row"]),
            (lambda: run(accumulate=0), BadOption, ["accumulate"]),
            (lambda: run(keep=0), BadOption, ["keep"]),
            (lambda: run(log_every=-1), BadOption, ["log_every"]),
            (lambda: run(clip=0.0), BadOption, ["clip > 0"]),
            (lambda: run(hooks=[len]), BadOption, ["no hook", "builtin_function"]),
            (lambda: run(resume=True), BadOption, ["nothing to resume"]),
            (lambda: run(patience=2), BadOption, ["nothing to validate"]),
            (lambda: run(validate_every=2), BadOption, ["nothing to validate"]),
            (lambda: run(validation=0.2, patience=0), BadOption, ["patience >= 1"]),
            (lambda: run(validation=0.2, min_delta=-1), BadOption, ["min_delta"]),
            (lambda: run(validation=0.2, mode="less"), BadOption, ["min, max"]),
            (lambda: run(validation=0.2, monitor="mze"), UnknownName, ["mze", "mse"]),
            (lambda: run(validation=1.5), BadOption, ["above 0 and below 1"]),
            (lambda: run(data=(x[:1], y[:1]), validation=0.5), TooFewRows, ["at least 2"]),
            (lambda: run(validation=0.2, metric=mse), BadValues, ["name of a term of the loss", "mse"]),
            (lambda: run(validation=0.2, score=lambda m: {"mse": 1}), BadValues, ["share a name", "mse"]),
            (lambda: run(data=Nothing(), validation=0.2), BadOption, ["not split"]),
            (lambda: run(data=Nothing()), TooFewRows, ["no batches", "epoch 1"]),
            (lambda: run(optimizer="adagrad"), BadOption, ["adam, adamw, sgd", "adagrad"]),
            (lambda: run(optimizer=3), BadOption, ["no torch optimiser"]),
            (lambda: run(optimizer=lambda groups: 3), BadOption, ["no torch optimiser"]),
            (lambda: run(optimizer=own), BadOption, ["not the network's"]),
            (lambda: run(other, optimizer=own, lr=1.0), BadOption, ["own rates", "lr"]),
            (lambda: run(optimizer=lambda g: torch.optim.LBFGS(g[0]["params"])), BadOption, ["LBFGS"]),
            (lambda: run(lr=-1.0), BadOption, ["lr >= 0"]),
            (lambda: run(lr=float("nan")), BadOption, ["lr >= 0"]),
            (lambda: run(weight_decay=-1.0), BadOption, ["weight_decay >= 0"]),
            (lambda: run(model, groups=groups(model)), BadOption, ["in no group", "bias"]),
            (lambda: run(model, groups=groups(model) * 2), BadOption, ["two groups", "weight"]),
            (lambda: run(model, groups=groups(other, name="theirs")), BadOption, ["not the network's", "theirs"]),
            (lambda: run(frozen), BadValues, ["No parameter"]),
            (lambda: run(frozen=["*"]), BadValues, ["No parameter"]),
            (lambda: run(frozen=["wieght"]), UnknownName, ["wieght", "weight"]),
            (lambda: run(frozen=[other]), BadOption, ["not part of the network", "Linear"]),
            (lambda: run(frozen="weight"), BadOption, ["as a list"]),
            (lambda: run(nn.LazyLinear(1)), BadValues, ["no shape yet", "weight"]),
            (lambda: run(schedule="cosin"), BadOption, ["constant, linear, cosine"]),
            (lambda: run(schedule=3), BadOption, ["no schedule"]),
            (lambda: run(schedule="plateau"), BadOption, ["needs validation"]),
            (lambda: run(data=Nothing(), schedule="cosine"), BadOption, ["how long"]),
            (lambda: Schedule("step", gamma=0), BadOption, ["gamma > 0"]),
            (lambda: Schedule("step", every=0), BadOption, ["every >= 1"]),
            (lambda: Schedule(warmup=-1), BadOption, ["warmup >= 0"]),
            (lambda: Schedule(floor=2), BadOption, ["floor"]),
            (lambda: Schedule(unit="day"), BadOption, ["step, epoch"]),
            (lambda: run(precision="fp8"), BadOption, ["no, bf16, fp16"]),
            (lambda: run(precision="fp16", device="cpu"), BadOption, ["fp16 needs an accelerator", "cpu"]),
            (lambda: run(device="tpu"), BadOption, ["no such device", "tpu"]),
            (lambda: run(device="cuda:99"), BadOption, ["no such device", "cuda:99"]),
            (lambda: run(data=DataLoader([1])), BadOption, ["DataLoader", "batch_size"]),
            (lambda: run(data=Endless()), BadOption, ["Endless", "map-style"]),
            (lambda: run(data=iter([1])), BadOption, ["iterator"]),
            (lambda: run(data=3), BadOption, ["by row", "int"]),
            (lambda: run(data="table.csv"), BadOption, ["by row", "str"]),
            (lambda: run(data=(x, y[:-1])), ShapeMismatch, ["0: 40, 1: 39"]),
            (lambda: run(data={"x": x, "id": ["a"] * 40}), BadValues, ["batches['id']", "list"]),
            (lambda: run(data=np.array(["a", "b"])), BadValues, ["no numbers", "<U1"]),
            (lambda: run(data=torch.tensor(1.0)), ShapeMismatch, ["no rows"]),
            (lambda: run(data=np.ones(())), ShapeMismatch, ["no rows"]),
            (lambda: run(data=(x[:0], y[:0])), TooFewRows, ["no rows"]),
            (lambda: run(data={}), TooFewRows, ["no rows"]),
            (lambda: run(batch_size=50, drop_last=True), TooFewRows, ["at least 50 rows"]),
            (lambda: run(workers=2), BadOption, ["neither workers"]),
            (lambda: run(loss=say(1.0)), BadValues, ["something else than terms", "float"]),
            (lambda: run(loss=say({"a": torch.ones(())})), BadValues, ["no pair for a", "Tensor"]),
            (lambda: run(loss=say({"a": (torch.ones(3), 1)})), BadValues, ["no single number for a", "(3,)"]),
            (lambda: run(loss=say({"total": (1.0, 1)})), BadValues, ["usable name", "total"]),
            (lambda: run(loss=say({3: (1.0, 1)})), BadValues, ["usable name", "3"]),
            (lambda: run(loss=say({"a": (1.0, -1)})), BadValues, ["weight of a is negative at step 1"]),
            (lambda: run(loss=say({"a": (1.0, 1)})), BadValues, ["does not depend on any trainable", "a"]),
        ]
    )


def test_parallelism_of_parameters_is_refused(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    check_bad_input([Bad(lambda: fit(linear(), mse, line(), epochs=1), BadOption, ["ACCELERATE_USE_FSDP", "FSDP"])])


def test_importing_loads_no_torch():
    code = (
        "import sys, querist.training, querist.training.adapters, querist.training.hooks, querist.training.launch\n"
        "from querist.training import Hook, TrainState, Schedule, fit, launch_group\n"
        "assert sorted(querist.training.__all__) == querist.training.__all__\n"
        "assert set(querist.training.__all__) <= set(dir(querist.training))\n"
        "print(*[n for n in ('torch', 'accelerate', 'scipy', 'sklearn', 'polars', 'safetensors') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.strip() == ""
