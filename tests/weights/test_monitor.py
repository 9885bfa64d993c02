"""The monitor on a training: bit for bit the same without it, within its limit, told of what happens, resumable."""

from __future__ import annotations

import io
import math
import random

import numpy as np
import polars as pl
import pytest
import torch
from tests.harness import Bad, check_bad_input
from torch import nn

from querist.errors import BadOption, UnknownName
from querist.results.gates import evaluate, parse
from querist.training import Hook, TrainState
from querist.weights import Monitor
from querist.weights import monitor as wing
from querist.weights.questions import MONITOR_QUESTIONS
from querist.weights.studies.monitor_folder import MonitorFolder
from querist.weights.tables import MONITOR_TABLES


def network() -> nn.Module:
    """Layers with state of their own: dropout draws, batch norm counts, one part in eval mode, one frozen."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(48, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(64, 40),
        nn.ReLU(),
        nn.Linear(40, 10),
    )
    net[4].requires_grad_(False)
    net.train()
    net[3].eval()
    return net


def global_numpy() -> list:
    return np.random.get_state()[1].tolist()  # noqa: NPY002 - the generator that a training may draw from


class Training:
    """A small training that can be stopped and gone on with."""

    def __init__(self, lr: float = 1e-2):
        self.net = network()
        self.optimizer = torch.optim.Adam([p for p in self.net.parameters() if p.requires_grad], lr=lr)
        torch.manual_seed(1)
        self.x, self.y = torch.randn(256, 48), torch.randint(0, 10, (256,))
        self.step = 0

    def one(self) -> None:
        self.net[3].train(self.step % 2 == 0)
        index = torch.randint(0, 256, (32,))
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(self.x[index]), self.y[index])
        loss.backward()
        self.optimizer.step()
        self.step += 1

    def run(self, monitor, steps: int) -> None:
        for _ in range(steps):
            self.one()
            if monitor is not None:
                monitor(self.step)

    def everything(self) -> list:
        parts = list(self.net.state_dict().values())
        parts += [p.grad for p in self.net.parameters() if p.grad is not None]
        for state in self.optimizer.state.values():
            parts += [value for value in state.values() if isinstance(value, torch.Tensor)]
        return parts


def ticking(monitor: Monitor, seconds: float = 0.0) -> None:
    """A clock that stands still unless it is read, so that no test depends on the machine."""
    now = [0.0]

    def clock() -> float:
        now[0] += seconds
        return now[0]

    monitor._looker.stopwatch.clock = clock


def generous(net: nn.Module, **options) -> Monitor:
    return Monitor(net, **{"every": 10, "k": 4, "full_every": 2, "max_overhead": 1e9, **options})


@pytest.fixture(scope="module")
def watched():
    training = Training()
    monitor = generous(training.net)
    ticking(monitor, 1.0)
    training.run(monitor, 60)
    monitor.close()
    return monitor, monitor.result()


# ---------------------------------------------------------------------------------------------------- undisturbed


def test_training_is_bit_for_bit_the_same_with_and_without(tmp_path):
    plain, looked = Training(), Training()
    torch.manual_seed(2)
    plain.run(None, 60)
    states = torch.get_rng_state(), global_numpy(), random.getstate()
    torch.manual_seed(2)
    monitor = generous(looked.net, every=7, full_every=2, out=tmp_path / "run")
    versions = []
    for _ in range(60):
        looked.one()
        before = [p._version for p in looked.net.parameters()], [m.training for m in looked.net.modules()]
        grads = [None if p.grad is None else p.grad.clone() for p in looked.net.parameters()]
        monitor(looked.step)
        versions.append(
            before == ([p._version for p in looked.net.parameters()], [m.training for m in looked.net.modules()])
        )
        for kept, p in zip(grads, looked.net.parameters(), strict=True):
            assert (kept is None) == (p.grad is None)
            assert kept is None or torch.equal(kept, p.grad)
    assert all(versions)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert global_numpy() == states[1]
    assert random.getstate() == states[2]
    for one, other in zip(plain.everything(), looked.everything(), strict=True):
        assert torch.equal(one, other)
    monitor.close()
    assert [p.requires_grad for p in looked.net.parameters()] == [p.requires_grad for p in plain.net.parameters()]


def test_autocast_precision_and_default_device_change_no_number_and_are_left_as_they_were(watched):
    training = Training()
    monitor = generous(training.net)
    ticking(monitor, 1.0)
    before = torch.get_float32_matmul_precision()
    try:
        for _ in range(60):
            torch.set_float32_matmul_precision(before)
            training.one()
            torch.set_float32_matmul_precision("medium")
            with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"):
                monitor(training.step)
                assert torch.is_autocast_enabled("cpu")
                assert torch.get_default_device().type == "meta"
            assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    monitor.close()
    same(monitor.result().tables, watched[1].tables)


def same(
    one, other, names=("watched", "trace", "top_values", "histograms", "update_overlaps", "null_copies", "alarms")
) -> None:
    for name in names:
        left, right = (frame.drop("seconds", strict=False) for frame in (one[name], other[name]))
        assert left.equals(right), name


# -------------------------------------------------------------------------------------------------- loop and hook


def test_a_hook_sees_what_a_plain_loop_sees(watched):
    """A loop gives the look before the first step by `monitor(0)`, a training through on_start."""
    assert issubclass(Monitor, Hook)
    results = []
    for hooked in (False, True):
        training = Training()
        monitor = generous(training.net)
        ticking(monitor, 1.0)
        state = TrainState(training.net, training.optimizer, device=torch.device("cpu"))
        if hooked:
            monitor.on_start(state)
        else:
            monitor(0)
        for _ in range(45):
            training.one()
            state.step = training.step
            if hooked:
                monitor.on_step(state)
            else:
                monitor(training.step)
        monitor.on_end(state) if hooked else monitor.close()
        results.append(monitor.result())
    same(results[0].tables, results[1].tables)
    assert results[0].findings == results[1].findings
    events = results[1].tables["events"]
    assert events["step"].to_list() == [0, 10, 20, 30, 40, 45]
    assert events["event"].to_list() == ["whole", "top", "whole", "top", "whole", "whole"]
    assert results[1].status == "done"


def test_a_process_that_is_not_main_does_nothing():
    training = Training()
    monitor = generous(training.net)
    state = TrainState(training.net, is_main=False)
    monitor.on_start(state)
    training.one()
    state.step = 1
    monitor.on_step(state)
    monitor.on_end(state)
    with pytest.raises(BadOption, match="Nothing was looked at"):
        monitor.result()


def test_a_network_inside_the_trainers_own_keeps_its_names():
    training = Training()
    monitor = generous(training.net, layers="0.*")
    outer = nn.Module()
    outer.inner = training.net
    monitor.on_start(TrainState(outer))
    assert monitor.result().table["layer_id"].to_list() == ["0.weight"]
    copied = generous(network())
    copied.on_start(TrainState(outer))
    assert copied.result().table["layer_id"].to_list() == ["inner.0.weight", "inner.4.weight", "inner.6.weight"]


def test_no_layer_depends_on_the_others(watched):
    training = Training()
    monitor = generous(training.net, layers=["6.weight", "0.weight"])
    ticking(monitor, 1.0)
    training.run(monitor, 60)
    monitor.close()
    for name in ("trace", "top_values", "histograms", "update_overlaps", "null_copies"):
        own = watched[1].tables[name].filter(pl.col("layer_id") != "4.weight").drop("seconds", strict=False)
        assert own.equals(monitor.result().tables[name].drop("seconds", strict=False)), name


# -------------------------------------------------------------------------------------------------------- answers


def test_the_answer_is_as_every_answer_is(watched):
    monitor, result = watched
    specs = {spec.name: spec for spec in MONITOR_TABLES}
    assert list(result.tables) == list(specs)
    for name, frame in result.tables.items():
        assert dict(frame.schema) == specs[name].schema()
    asked = {question.id for question in MONITOR_QUESTIONS}
    assert {finding.question for finding in result.findings} == asked
    for finding in result.findings:
        assert finding.because.endswith("."), finding.because
    for section in result.layout.sections:
        assert set(section.figures) <= set(result.figures)
        assert set(section.tables) <= set(result.tables)
    for figure in result.figures.values():
        assert figure.table in result.tables
        result.figure(figure.name)
    assert result.summary["schema"] == "querist.weights.watch/1"
    assert result.summary["looks"] == 7
    assert "0.weight" in result._repr_html_()
    assert result.table["layer_id"].to_list() == ["0.weight", "4.weight", "6.weight"]
    gates = parse(["regime[0.weight].estimate > 0", "alarms.kind == non-finite"], MONITOR_QUESTIONS, "weights")
    assert [outcome.tripped for outcome in evaluate(gates[:1], result.findings, result.summary)] == [True]
    assert monitor.overhead > 0
    passed = {row["what"]: row["reason"] for row in result.passed_over}
    assert passed["0.bias"] == "1-dimensional"


def test_findings_are_those_of_the_last_look(watched):
    result = watched[1]
    by = {(finding.subject, finding.question): finding for finding in result.findings}
    trace = {row["layer_id"]: row for row in result.tables["trace"].filter(pl.col("step") == 60).to_dicts()}
    frozen = by["4.weight", "weights.regime"]
    assert (frozen.verdict, frozen.estimate) == ("no", 0.0)
    assert "did not change" in frozen.because
    for layer, row in trace.items():
        assert by[layer, "weights.spikes"].estimate == row["n_spikes"]
        assert by[layer, "weights.bulk"].estimate == row["bulk_ks"]
        assert by[layer, "weights.damaged"].verdict == "no"
        assert by[layer, "weights.collapse"].verdict == "no"
        regime = by[layer, "weights.regime"]
        assert regime.null == 1.0
        assert regime.low == pytest.approx(0.85 * regime.estimate)
    run = by["run", "weights.regime"]
    assert run.estimate == max(by[layer, "weights.regime"].estimate for layer in trace)


def test_a_report_is_written_from_memory(watched, tmp_path):
    page = watched[1].report(tmp_path / "page.html").read_text()
    assert 'http-equiv="refresh"' not in page
    assert "moving.0.weight" in page


# -------------------------------------------------------------------------------------------------------- overhead


class Clock:
    """Training, looking and writing take what they are told to, whatever the machine does."""

    def __init__(self, monkeypatch, *, whole: float, top: float, tables: float = 0.0, page: float = 0.0):
        self.now = 0.0
        real = wing.look

        def look(W, matrix, memory, plan):
            seen = real(W, matrix, memory, plan)
            self.now += whole if plan.whole else top
            return seen

        monkeypatch.setattr(wing, "look", look)
        for name, cost in (("write_tables", tables), ("draw", page), ("settle", 0.0)):
            monkeypatch.setattr(MonitorFolder, name, lambda folder, *_, cost=cost, **__: self._pass(cost))

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def train(self, monitor: Monitor, training: Training, steps: int, seconds: float) -> None:
        monitor._looker.stopwatch.clock = lambda: self.now
        monitor.on_start(TrainState(training.net))
        for _ in range(steps):
            self.now += seconds
            training.one()
            monitor(training.step)


@pytest.mark.parametrize("limit", [0.02, 0.1])
@pytest.mark.parametrize("page", [0.05, 0.7])
@pytest.mark.parametrize(("steps", "seconds"), [(4, 0.02), (50, 0.02), (50, 0.3), (200, 0.3), (200, 6.0)])
def test_the_limit_holds_however_short_the_training_and_dear_the_page(
    monkeypatch, tmp_path, steps, seconds, page, limit
):
    """Three layers of .05 s, tables of .02 s: from trainings that can pay for no look to such as pay for all."""
    training = Training()
    monitor = Monitor(training.net, every=5, full_every=4, max_overhead=limit, k=4, out=tmp_path / "run")
    clock = Clock(monkeypatch, whole=0.05, top=0.02, tables=0.02, page=page)
    clock.train(monitor, training, steps, seconds)
    assert monitor.overhead is None or monitor.overhead <= limit
    ended = clock.now
    monitor.close()
    result = monitor.result()
    events = result.tables["events"]
    assert (events["overhead"] <= limit).all()
    assert result.summary["overhead"] == monitor.overhead <= limit
    assert result.summary["training_seconds"] == pytest.approx(steps * seconds)
    assert result.summary["closing_seconds"] == monitor.closing == pytest.approx(clock.now - ended, abs=0.05)
    assert not any("above the limit" in text for text in result.warnings)
    # Whatever it could not pay for while it went on, the first and the last look are there, and are what they would have been.
    assert events["step"].to_list()[:: events.height - 1] == [0, steps]
    assert events["event"][0] == events["event"][-1] == "whole"
    budget = limit * steps * seconds
    if budget > 20:  # a training that can pay for everything leaves nothing out
        assert events["step"].to_list() == list(range(0, steps + 1, 5))
    elif budget > 1:
        assert monitor._looker.pace.looked > 0.6 * budget


def test_a_last_look_at_the_step_of_a_small_one_completes_it():
    training = Training(lr=1e-4)
    monitor = generous(training.net, full_every=5)
    training.run(monitor, 20)
    before = monitor.result().tables["trace"].filter(pl.col("step") == 20)
    monitor.close()
    tables = monitor.result().tables
    after = tables["trace"].filter(pl.col("step") == 20)
    assert before["event"].to_list() == ["top"] * 3
    assert after["event"].to_list() == ["whole"] * 3
    for name in ("update_from", "update_norm", "strength", "regime"):
        assert before[name].equals(after[name]), name
    assert before["lambda_max"].to_list() == pytest.approx(after["lambda_max"].to_list(), rel=1e-9)
    assert after["n_spikes"].is_not_null().all()
    assert tables["events"]["step"].to_list() == [1, 10, 20]
    assert tables["update_overlaps"].filter(pl.col("step") == 20).height
    assert tables["top_values"].filter(pl.col("step") == 20).height == 12


def test_a_first_look_made_late_is_the_one_made_at_once(monkeypatch):
    """It sees the copy of the weights as they were before the first step."""
    traces = []
    for limit in (1e9, 0.05):
        training = Training()
        monitor = Monitor(training.net, every=5, full_every=4, max_overhead=limit, k=4)
        Clock(monkeypatch, whole=0.5, top=0.1).train(monitor, training, 60, 1.0)
        monitor.close()
        traces.append(monitor.result().tables)
        monkeypatch.undo()
    assert traces[0]["events"]["training_seconds"][0] == 0
    assert traces[1]["events"]["training_seconds"][0] > 20
    for name in ("trace", "top_values", "histograms"):
        first = [frame[name].filter(pl.col("step") == 0).drop("seconds", strict=False) for frame in traces]
        assert first[0].height >= 3
        assert first[0].equals(first[1]), name


def test_a_training_too_short_for_a_look_waits_for_the_copy_alone(monkeypatch):
    training = Training()
    monitor = Monitor(training.net, every=5, max_overhead=0.02, k=4)
    clock = Clock(monkeypatch, whole=2.0, top=0.5)
    clock.train(monitor, training, 20, 0.1)
    assert monitor.overhead == 0
    with pytest.raises(BadOption, match="Nothing was looked at"):
        Monitor(training.net).result()
    monitor.close()
    result = monitor.result()
    assert result.tables["events"]["step"].to_list() == [0, 20]
    assert result.tables["events"]["skipped"].to_list() == [4, 0]
    assert (result.summary["overhead"], result.summary["closing_seconds"]) == (0, 12.0)
    told = next(section for section in result.layout.sections if section.title == "What looking costs").words[0]
    assert "Training has waited 0 s for the monitor, 0 % of its own 2 s; the limit is 2 %." in told
    assert "looking took 12 s more" in told


def test_who_asks_before_the_first_look_is_earned_pays_for_it(monkeypatch):
    training = Training()
    monitor = Monitor(training.net, every=5, max_overhead=0.02, k=4)
    Clock(monkeypatch, whole=2.0, top=0.5).train(monitor, training, 10, 0.1)
    result = monitor.result()
    assert result.tables["events"]["step"].to_list() == [0]
    assert result.summary["own_seconds"] == 6.0
    assert any("above the limit of 2 %" in text for text in result.warnings)


def test_the_clock_is_read_after_the_devices_are_done(monkeypatch):
    order: list[str] = []
    training = Training()
    monitor = generous(training.net)
    monkeypatch.setattr(wing, "synchronise", lambda places: order.append("wait"))
    monitor._looker.stopwatch.clock = lambda: float(order.append("clock") or len(order))
    training.run(monitor, 1)
    assert order[0] == "wait"
    assert all(order[i - 1] in ("wait", "clock") for i, word in enumerate(order) if word == "clock" and i)
    assert order.count("wait") >= 3


def test_size_is_bounded_however_long_the_training_is():
    net = nn.Linear(10, 12, bias=False)
    monitor = Monitor(net, every=1, full_every=3, k=2, max_overhead=1e9)
    with torch.no_grad():
        for step in range(1, 700):
            net.weight += 0.01 * torch.randn(12, 10, generator=torch.Generator().manual_seed(step))
            monitor(step)
    tables = monitor.result().tables
    assert tables["trace"].height <= 400
    assert tables["events"].height <= 400
    assert tables["histograms"]["step"].n_unique() <= 60
    assert tables["update_overlaps"]["step"].n_unique() <= 12
    assert tables["trace"]["step"][-1] == 699
    assert max(len(str(figure.as_dict())) for figure in monitor.result().figures.values()) < 150_000


@pytest.mark.parametrize("layers", [1, 40, 1000])
def test_size_is_bounded_however_many_layers_there_are(layers):
    from querist.weights.monitor import Look
    from querist.weights.spectrum import LayerMatrix
    from querist.weights.studies.records import BINS_OF_A_LAYER, ROWS, Records

    records = Records(8)
    made = [LayerMatrix(f"{i}", f"{i}", "linear", "", (9, 9), (9, 9), "float32", ()) for i in range(layers)]
    records.begin(made, [])
    pairs = [{"i": i, "j": j} for i in range(8) for j in range(8)] * 4
    looks = [
        Look({"layer_id": f"{i}", "event": "top", "status": "ok"}, [{}] * 8, pairs, [{}] * BINS_OF_A_LAYER)
        for i in range(layers)
    ]
    for event in range(6 if layers > 100 else 450):
        records.add(looks if event < 5 or layers == 1 else looks[:1], {"step": event})
    per_look = {"trace": layers, "top_values": 8 * layers, "histograms": 80 * layers, "update_overlaps": 256 * layers}
    for name, kept in records.kept.items():
        assert len(list(kept)) <= max(ROWS, 2 * per_look.get(name, 1)), name
    assert len(list(records.kept["update_overlaps"])) <= max(ROWS, 2 * 16 * layers)


# ---------------------------------------------------------------------------------------------------------- alarms


def test_alarms_are_told_at_once_and_kept():
    training = Training(lr=0.0)
    told = []
    monitor = generous(training.net, on_alarm=told.append, full_every=1)
    training.run(monitor, 10)
    u = nn.functional.normalize(torch.randn(64, generator=torch.Generator().manual_seed(3)), dim=0)
    v = nn.functional.normalize(torch.randn(48, generator=torch.Generator().manual_seed(4)), dim=0)
    with torch.no_grad():
        training.net[0].weight += 6 * training.net[0].weight.std() * (64 * 48) ** 0.25 * torch.outer(u, v)
    training.run(monitor, 10)
    with torch.no_grad():
        training.net[4].weight[0, 0] = math.nan
        training.net[6].weight[:, 20:] = 0
        training.net[6].weight[5:] = 0
    monitor(30)  # without a step of training, which would carry the NaN through the network
    assert [(alarm.step, alarm.layer, alarm.kind) for alarm in told] == [
        (20, "0.weight", "spike-born"),
        (30, "4.weight", "non-finite"),
        (30, "6.weight", "rank-drop"),
    ]
    result = monitor.result()
    assert result.tables["alarms"]["kind"].to_list() == [alarm.kind for alarm in told]
    assert result.summary["alarms"] == monitor.alarms
    assert "alarms" in result.figures
    damaged = next(f for f in result.findings if (f.subject, f.question) == ("4.weight", "weights.damaged"))
    assert damaged.verdict == "yes"
    assert "(0, 0)" in damaged.because
    collapsed = next(f for f in result.findings if (f.subject, f.question) == ("6.weight", "weights.collapse"))
    assert (collapsed.verdict, collapsed.estimate) == ("yes", 0.5)


def test_what_a_callback_raises_ends_the_training():
    training = Training(lr=0.0)

    def stop(alarm):
        raise StopIteration(alarm.kind)

    monitor = generous(training.net, on_alarm=stop)
    training.run(monitor, 1)
    with torch.no_grad():
        training.net[0].weight[0, 0] = math.inf
    with pytest.raises(StopIteration, match="non-finite"):
        training.run(monitor, 20)


# ---------------------------------------------------------------------------------------------------------- resume


def through_a_checkpoint(state: dict) -> dict:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize("hooked", [False, True])
def test_a_restarted_training_goes_on_with_its_monitor(watched, hooked, tmp_path):
    training = Training()
    monitor = generous(training.net, out=tmp_path / "run")
    ticking(monitor, 1.0)
    training.run(monitor, 30)
    state = through_a_checkpoint(monitor.state())
    training_kept = [value.clone() for value in training.net.state_dict().values()]
    random_kept = torch.get_rng_state()
    optimizer_kept = training.optimizer.state_dict()
    checkpoint = io.BytesIO()
    torch.save({"net": training.net.state_dict(), "optimizer": optimizer_kept}, checkpoint)
    training.run(monitor, 12)  # looks after the checkpoint, which a restart forgets
    monitor._looker.folder.release()

    again = Training()
    checkpoint.seek(0)
    loaded = torch.load(checkpoint, weights_only=True)
    again.net.load_state_dict(loaded["net"])
    again.optimizer.load_state_dict(loaded["optimizer"])
    again.step = 30
    assert all(torch.equal(a, b) for a, b in zip(training_kept, again.net.state_dict().values(), strict=True))
    monitor = generous(again.net, out=tmp_path / "run")
    ticking(monitor, 1.0)
    monitor.load_state(state)
    torch.set_rng_state(random_kept)
    if hooked:
        seen = TrainState(again.net, again.optimizer, step=30)
        monitor.on_start(seen)
    for _ in range(30):
        again.one()
        if hooked:
            seen.step = again.step
            monitor.on_step(seen)
        else:
            monitor(again.step)
    monitor.close()
    whole, resumed = watched[1].tables, monitor.result().tables
    assert resumed["trace"]["step"].to_list() == whole["trace"]["step"].to_list()
    columns = [
        "step",
        "layer_id",
        "event",
        "lambda_max",
        "norm",
        "n_spikes",
        "bulk_ks",
        "rank",
        "alpha_hill",
        "spike_p",
    ]
    for name in columns:
        left, right = whole["trace"][name], resumed["trace"][name]
        if left.dtype == pl.Float64:
            assert left.is_null().to_list() == right.is_null().to_list(), name
            assert left.fill_null(0).to_list() == pytest.approx(right.fill_null(0).to_list(), rel=1e-6), name
        else:
            assert left.equals(right), name
    # In a plain loop nobody says where a restarted training begins: its first update counts from the first step told.
    begins = 30 if hooked else 31
    updates = dict(resumed["trace"].filter(pl.col("layer_id") == "0.weight").select("step", "update_from").iter_rows())
    assert updates[40] == begins
    assert updates[50] == 40


def test_another_configuration_is_not_gone_on_with():
    training = Training()
    monitor = generous(training.net)
    training.run(monitor, 1)
    with pytest.raises(BadOption, match="every: 10 -> 5"):
        generous(training.net, every=5).load_state(monitor.state())


def test_state_before_the_first_look_is_no_restart():
    training = Training()
    monitor = generous(training.net)
    other = generous(training.net)
    other.load_state(through_a_checkpoint(monitor.state()))
    training.run(other, 1)
    assert other.result().tables["events"]["step"].to_list() == [1]


# -------------------------------------------------------------------------------------------------------- bad input


def test_bad_input(tmp_path):
    net = nn.Linear(20, 20)
    (tmp_path / "file").write_text("x")

    def back():
        monitor = Monitor(net)
        monitor(5)
        monitor(5)

    check_bad_input(
        [
            Bad(lambda: Monitor("model.pt"), BadOption, ["no network", "str"]),
            Bad(lambda: Monitor(net, every=0), BadOption, ["every", "greater than or equal to 1"]),
            Bad(lambda: Monitor(net, max_overhead=0.0), BadOption, ["max_overhead", "greater than 0"]),
            Bad(lambda: Monitor(net, k=0), BadOption, ["k"]),
            Bad(lambda: Monitor(net, layers="decoder.*"), UnknownName, ["weight", "decoder.*"]),
            Bad(lambda: Monitor(net, out=tmp_path / "file"), BadOption, ["is a file"]),
            Bad(back, BadOption, ["5 after 5"]),
            Bad(lambda: Monitor(net).result(), BadOption, ["Nothing was looked at yet"]),
        ]
    )


def test_as_a_context_it_closes_itself():
    training = Training()
    with generous(training.net) as monitor:
        training.run(monitor, 3)
    assert monitor.result().status == "done"
    assert monitor.result().tables["events"]["step"].to_list() == [1, 3]
    monitor.close()
    assert monitor.result().tables["events"]["step"].to_list() == [1, 3]
    other = generous(training.net)
    other(1)
    with pytest.raises(RuntimeError, match="lost"), other:
        raise RuntimeError("lost")
    assert other.result().status == "failed"


def test_weights_that_begin_at_zero_have_no_bulk_to_hold_an_update_against():
    net = nn.Linear(20, 30, bias=False)
    nn.init.zeros_(net.weight)
    monitor = generous(net, every=1)
    monitor(1)
    with torch.no_grad():
        net.weight += torch.randn(30, 20, generator=torch.Generator().manual_seed(0))
    monitor(2)
    monitor.load_state(through_a_checkpoint(monitor.state()))
    result = monitor.result()
    regime = next(f for f in result.findings if (f.subject, f.question) == ("weight", "weights.regime"))
    assert (regime.verdict, regime.estimate) == ("cannot say", None)
    assert result.tables["trace"]["regime"].to_list() == [None, "heavy"]
