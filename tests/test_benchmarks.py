"""The benchmarks' own bookkeeping: what is held, missed or absent, and that an earlier family's lines stay."""

import json
import sys

import numpy as np
import pytest
from benchmarks import peers
from benchmarks.ledger import Ledger, amount
from benchmarks.peers import peer
from benchmarks.timing import Ratio, Reported, budget, cost, gain, seconds

TIMES = {"ours": 2.0, "limit": 1.0, "peer": 8.0}


@pytest.mark.parametrize(
    ("ratio", "value", "verdict"),
    [
        (cost("a", TIMES, "limit", 2), 2, "held"),
        (cost("a", TIMES, "limit", 1.9), 2, "MISSED"),
        (cost("a", TIMES, "limit", 200, scale=100), 200, "held"),
        (gain("a", TIMES, "peer", 4), 4, "held"),
        (gain("a", TIMES, "peer", 4.1), 4, "MISSED"),
        (budget("a", 3, 4), 0.75, "held"),
        (Ratio("a", None, 1, named="peer", absent="not here"), None, "absent"),
    ],
)
def test_lines_are_held_missed_or_absent(ratio, value, verdict):
    assert ratio.value == value
    assert ratio.verdict == verdict
    assert ratio.held is (verdict == "held")


def test_seconds_are_medians_after_a_first_round_and_peers_report_their_own():
    told = iter([100.0, 3.0, 1.0, 2.0])
    assert seconds({"peer": lambda: Reported(next(told))}, rounds=3) == {"peer": 2.0}


def test_a_ledger_keeps_other_families_and_counts(tmp_path):
    path = tmp_path / "artefacts" / "bench.json"
    ledger = Ledger.read(("a", "b"), afresh=False, path=path)
    ledger.add("b", [cost("over limit", TIMES, "limit", 1)])
    ledger.add("b", [cost("over limit", TIMES, "limit", 3)], failed="BadInput: told")
    again = Ledger.read(("a", "b"), afresh=False, path=path)
    again.add("a", [Ratio("over peer", None, 1, named="Peer", absent="no environment")])
    assert again.counts() == {"held": 1, "missed": 0, "absent": 1, "failed": 1}
    assert not again.whole
    table = again.table().splitlines()
    assert table[1].startswith("over peer")
    assert table[1].endswith("absent")
    assert "Peer: no environment" in table[1]
    assert "2 s" in table[2]
    assert "1 s limit" in table[2]
    assert "b broke off: BadInput: told" in table
    assert json.loads(path.read_text())["counts"]["held"] == 1
    assert Ledger.read(("a", "b"), afresh=True, path=path).rows() == []


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [(2.5, "s", "2.5 s"), (0.0025, "s", "2.5 ms"), (2.5e-6, "s", "2.5 µs"), (12.34, "MB", "12.3 MB"), (None, "s", "")],
)
def test_amounts_are_read_in_their_unit(value, unit, said):
    assert amount(value, unit) == said


def test_a_missing_environment_or_package_is_a_reason_and_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "PYTHON", tmp_path / "none")
    with peer("scikit_uplift", {"y": np.zeros(2)}) as absent:
        assert not absent
        assert "make bench" in absent.absent
    monkeypatch.setattr(peers, "PYTHON", peers.Path(sys.executable))
    with peer("no_such_task", {"y": np.zeros(2)}) as absent:
        assert absent.absent == "KeyError: 'no_such_task'"
