"""What the documentation shows runs, on fewer people."""

from __future__ import annotations

import runpy
from pathlib import Path

from tests.effects.people import people

ROOT = Path(__file__).parents[2]


def test_the_example_goes_from_check_to_policy(capsys):
    path = ROOT / "examples" / "uplift.py"
    assert len(path.read_text().splitlines()) < 80
    result = runpy.run_path(str(path))["main"](n=4000, epochs=1, bootstrap=5)
    said = capsys.readouterr().out
    assert "effects.randomised (table)" in said
    assert "Womens E-Mail adds" in said
    assert {"MTMT", "T-learner", "natural response"} <= set(result.metrics["score"])
    assert said.count("best single e-mail") == 1


def test_several_arms_told_by_words(tmp_path):
    """The quick start on a table whose arms and outcomes are words."""
    from querist import effects

    frame = people(600)
    model = effects.SLearner(control="none").fit(
        frame.select("x0", "x1", "city"), frame["segment"], frame.select("visit")
    )
    assert model.arms_ == ["call", "mail"]
    assert model.predict(frame).shape == (600, 2, 1)
