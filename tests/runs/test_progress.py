"""Progress: once per unit, a bar on a terminal, lines elsewhere, silence where it is asked for."""

from __future__ import annotations

import io
import sys
import time

import pytest
from tests.harness import PATIENCE
from tests.runs.small_study import SmallConfig, SmallStudy

from querist.reports.ask import ask
from querist.runs import progress
from querist.runs.progress import Progress

CONFIG = SmallConfig(blocks=5, side=8)


@pytest.mark.parametrize("engine", ["serial", "local:2"])
def test_it_is_called_once_per_unit(engine, capsys):
    seen = []
    ask(SmallStudy(), CONFIG, engine=engine, progress=lambda done, total, key: seen.append((done, total, key)))
    assert [(done, total) for done, total, _ in seen] == [(i, 5) for i in range(1, 6)] * 2
    assert {key for *_, key in seen[:5]} == {f"block {i}/5" for i in range(5)}
    assert capsys.readouterr() == ("", "")


def test_elsewhere_a_line_is_said_now_and_then_and_a_short_stage_says_nothing(monkeypatch, capsys):
    with Progress("weights scan", 4) as shown:
        shown.advance("a")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(progress, "EVERY", 0.05)
    heard = io.StringIO()
    monkeypatch.setattr(sys, "stderr", heard)
    end = time.monotonic() + PATIENCE
    with Progress("weights scan", 4, 1) as shown:
        shown.advance("a")
        while len(heard.getvalue().splitlines()) < 3:
            assert time.monotonic() < end
            time.sleep(0.01)
    lines = heard.getvalue().splitlines()
    # The first may have been said before the unit ended.
    assert all(line.startswith("weights scan: 2 of 4, ") and line.endswith(" s left") for line in lines[1:])
    time.sleep(0.2)
    assert heard.getvalue().splitlines() == lines, "nothing is said when the stage is over"
    assert capsys.readouterr() == ("", "")


def test_silence_and_nothing_to_do_say_nothing(monkeypatch, capsys):
    monkeypatch.setattr(progress, "EVERY", 0.02)
    for shown in (Progress("t", 4, report=False), Progress("t", 4, 4)):
        with shown:
            time.sleep(0.08)
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_goes_away_does_not_stop_the_work(monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(progress, "EVERY", 0.02)
    monkeypatch.setattr(sys, "stderr", Gone())
    with Progress("t", 4) as shown:
        time.sleep(0.06)
        shown.advance("a")
    assert shown.done == 1


def test_on_a_terminal_there_is_a_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with Progress("weights [scan]", 4) as shown:
        for key in "abc":
            shown.advance(key)
    assert "weights [scan]" in screen.getvalue()
    assert "3/4" in screen.getvalue()


def test_an_error_in_the_callable_ends_the_run_and_it_can_go_on(tmp_path):
    def angry(done, total, key):
        raise RuntimeError("no more")

    from tests.runs.asking import asked

    with pytest.raises(RuntimeError, match="no more"):
        ask(SmallStudy(), CONFIG, out=tmp_path / "run", progress=angry)
    assert asked(tmp_path / "run", CONFIG, resume=True).status == "done"
