"""Several trainings of one verb: each with a hook of its own, under a name; monitors of one training refuse a second."""

from __future__ import annotations

import pytest
import torch

from querist.errors import BadOption
from querist.training import Each, Hook, fit
from querist.training.losses import squared_error


class Log(Hook):
    def __init__(self, name: str = ""):
        self.name, self.seen = name, []

    def on_start(self, state):
        self.seen.append(("start", state.name, state.step))

    def on_step(self, state):
        self.seen.append(("step", state.name, state.step))

    def on_epoch(self, state):
        self.seen.append(("epoch", state.name, state.epoch))

    def on_end(self, state):
        self.seen.append(("end", state.name, state.step))

    def state(self):
        return {"seen": [list(one) for one in self.seen]}

    def load_state(self, state):
        self.seen = [tuple(one) for one in state["seen"]]


def network():
    return torch.nn.Sequential(torch.nn.Linear(12, 10), torch.nn.Linear(10, 1))


def trained(hooks, name="", *, epochs=2, **more):
    torch.manual_seed(0)
    x = torch.randn(40, 12)
    net = network()
    fit(
        net,
        lambda model, batch: {"error": squared_error(model(batch["x"]), batch["y"])},
        {"x": x, "y": x.sum(1, keepdim=True)},
        batch_size=20,
        epochs=epochs,
        lr=1e-2,
        hooks=hooks,
        name=name,
        **more,
    )
    return net


def test_each_training_has_a_hook_of_its_own():
    each = Each(lambda state: Log(state.name))
    for name in ("a", "b", "a"):
        trained([each], name)
    assert list(each.hooks) == ["a", "b", "a (2)"]
    assert [hook.name for hook in each.hooks.values()] == ["a", "b", "a"]
    wanted = ["start", "step", "step", "epoch", "step", "step", "epoch", "end"]
    for hook in each.hooks.values():
        assert [kind for kind, _, _ in hook.seen] == wanted
        assert {name for _, name, _ in hook.seen} == {hook.name}


def test_a_resumed_training_hands_its_own_hook_what_was_kept(tmp_path):
    whole, cut = Each(lambda state: Log(state.name)), Each(lambda state: Log(state.name))
    trained([whole], "a", epochs=3)
    trained([cut], "a", epochs=3, max_steps=4, checkpoint=tmp_path)
    again = Each(lambda state: Log(state.name))
    trained([again], "a", epochs=3, checkpoint=tmp_path, resume=True)
    steps = [one for one in again.hooks["a"].seen if one[0] == "step"]
    assert steps == [one for one in whole.hooks["a"].seen if one[0] == "step"]


def monitors(tmp_path):
    import numpy as np

    import querist
    from querist.concepts import ConceptData, ConceptMonitor, fit_head

    rng = np.random.default_rng(0)
    data = ConceptData((rng.random((60, 5)) < 0.5).astype(float), np.arange(60) % 3)

    def head(hook, seed):
        fit_head(data, head="linear", epochs=2, batch=30, seed=seed, hooks=[hook])

    yield lambda: ConceptMonitor(data, every=2), head
    net = network()
    yield lambda: querist.weights.Monitor(net, every=2, max_overhead=1), lambda hook, seed: trained([hook], f"n{seed}")


def test_a_monitor_of_one_training_refuses_a_second_and_names_the_way(tmp_path):
    for make, train in monitors(tmp_path):
        hook = make()
        train(hook, 0)
        with pytest.raises(BadOption, match=r"watches one training.*after step \d+.*training\.Each"):
            train(hook, 1)
        each = Each(lambda state, make=make: make())
        train(each, 0)
        train(each, 1)
        assert len(each.hooks) == 2


def test_the_spectra_of_an_uplift_model_are_watched_while_it_trains(tmp_path):
    """Two rooms together: the hook of one is handed to a verb of the other, which trains a network for each fold."""
    import querist

    data = querist.effects.simulate(400, arms=2, base_scale=0.4, increment_scale=0.1, seed=0)
    each = Each(lambda state: querist.weights.Monitor(state.model, every=4, max_overhead=1, out=tmp_path / state.name))
    model = querist.effects.MTMT(preset="small", epochs=2, folds=2, device="cpu")
    watched = model.fit(data.X, data.arm, data.Y, hooks=[each]).predict(data.X)
    assert list(each.hooks) == ["network-0-0", "network-1-0"]
    for name, monitor in each.hooks.items():
        assert (tmp_path / name / "report.html").is_file()
        assert "events" in monitor.result().tables
    alone = querist.effects.MTMT(preset="small", epochs=2, folds=2, device="cpu").fit(data.X, data.arm, data.Y)
    assert (alone.predict(data.X) == watched).all()
