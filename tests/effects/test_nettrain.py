"""How networks are trained: parts of a table without a copy of it, and a step in runs that is the step of the whole batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from querist import effects
from querist.effects import MTMT, nettrain
from querist.effects.simulation import SETTINGS, simulate

DRAWN = simulate(700, seed=0, **SETTINGS[1])


class Kept(MTMT):
    def _fit(self, sample, hooks):
        self.sample_ = sample
        super()._fit(sample, hooks)


def fitted(Y=DRAWN.Y, **options):
    settings = {"control": 0, "preset": "small", "epochs": 3, "shrink": False, "device": "cpu", "val_fraction": 0.2}
    return Kept(**{**settings, **options}).fit(DRAWN.X, DRAWN.arm, Y)


def test_rows_of_a_table_teach_what_a_table_of_these_rows_does():
    model = fitted(batch_size=64)
    sample, rows = model.sample_, np.flatnonzero(model.folds_ != 0)
    part = sample.take(rows)
    nets = []
    for given, chosen in ((sample, rows), (part, None)):
        net = nettrain.made(lambda: type(model.networks_[0][0])(model.architecture_), 5)
        nettrain.train(net, given, model.links_, rows=chosen, epochs=2, batch_size=64, device="cpu", seed=3)
        nets.append(net)
    for a, b in zip(*(net.state_dict().values() for net in nets), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    held = nettrain.validation_rows(sample, 0.2, rows)
    np.testing.assert_array_equal(held, nettrain.validation_rows(part, 0.2))
    np.testing.assert_array_equal(sample.folds(3, by_outcome=True, rows=rows), part.folds(3, by_outcome=True))


@pytest.mark.parametrize("missing", [False, True])
def test_a_step_in_runs_is_the_step_of_the_whole_batch(monkeypatch, missing):
    y = DRAWN.Y.copy()
    if missing:
        y[::3, 1] = np.nan
    whole = fitted(y, batch_size=256)
    asked = []
    own = nettrain.fit
    monkeypatch.setattr(nettrain, "RUN", 50)
    monkeypatch.setattr(nettrain, "fit", lambda *a, **k: (asked.append(k["accumulate"]), own(*a, **k))[1])
    runs = fitted(y, batch_size=256)
    assert asked == [6, 6]
    # Not weight by weight: Adam makes whole steps of rounding where a gradient is 0, as under a constant that cancels.
    np.testing.assert_allclose(runs.predict(DRAWN.X), whole.predict(DRAWN.X), atol=1e-4)


def test_what_looks_at_a_batch_as_one_is_not_cut(monkeypatch):
    asked = []
    own = nettrain.fit
    monkeypatch.setattr(nettrain, "RUN", 50)
    monkeypatch.setattr(nettrain, "fit", lambda *a, **k: (asked.append(k.get("accumulate")), own(*a, **k))[1])
    fitted(batch_size=256, balance="mmd", epochs=1)
    assert asked == [None, None]
    for kind, runs in (("TARNet", [6]), ("CFRNet", [None]), ("DragonNet", [None])):
        asked.clear()
        getattr(effects, kind)(control=0, epochs=1, batch_size=256, device="cpu").fit(DRAWN.X, DRAWN.arm, DRAWN.Y)
        assert asked == runs, kind
    assert nettrain.in_runs(["a"], 4096, "cuda") == {}
    assert nettrain.in_runs(["a"], 50, "cpu") == {}
    assert nettrain.in_runs(["a"], 51, "cpu")["accumulate"] == 2
