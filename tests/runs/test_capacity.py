"""Memory that is left: what the machine says, and no more than a group of processes may use."""

from __future__ import annotations

import pytest

from querist.runs import capacity


def test_some_memory_is_left_and_less_than_there_is():
    assert 2**20 < capacity.available_memory() < 2**50


@pytest.mark.parametrize(("limit", "expected"), [("3000000", 2_000_000), ("500000", 0), ("max", None)])
def test_a_group_s_limit_counts(tmp_path, monkeypatch, limit, expected):
    most, used = tmp_path / "memory.max", tmp_path / "memory.current"
    most.write_text(f"{limit}\n")
    used.write_text("1000000\n")
    monkeypatch.setattr(capacity, "_GROUPS", ((str(most), str(used)),))
    left = capacity.available_memory()
    assert left == expected if expected is not None else left > 2**20
