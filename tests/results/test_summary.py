"""The envelope of every summary, and plain JSON values."""

from __future__ import annotations

import enum
import json
import math
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querist.errors import InvariantBroken
from querist.results.finding import Finding
from querist.results.summary import ENVELOPE, envelope, plain

HEADER = {
    "room": "weights",
    "command": "scan",
    "version": "0.1.0",
    "status": "done",
    "seed": 3,
    "seconds": 1.5,
    "config": {"eta": math.inf},
    "engine": "serial",
}
FINDING = Finding("layer", "weights.spikes", 3, "count", None, math.nan, 0, 0.05, "yes", "Three lie above.")


def made(**changes):
    values = {
        "schema": 2,
        "run": "runs/x",
        "warnings": ["w"],
        "passed_over": [{"what": "bias", "reason": "1-D"}],
        "tables": {"layers": "tables/layers.parquet"},
        "findings": [FINDING],
        "own": {"source": "x", "mean_alpha": math.nan},
    }
    return envelope(HEADER, **(values | changes))


def test_the_envelope_is_the_designs():
    assert made() == {
        "schema": "querist.weights.scan/2",
        "room": "weights",
        "command": "scan",
        "version": "0.1.0",
        "status": "done",
        "seed": 3,
        "run": "runs/x",
        "seconds": 1.5,
        "config": {"eta": None},
        "warnings": ["w"],
        "passed_over": [{"what": "bias", "reason": "1-D"}],
        "tables": {"layers": "tables/layers.parquet"},
        "findings": [
            {
                "subject": "layer",
                "question": "weights.spikes",
                "estimate": 3.0,
                "unit": "count",
                "low": None,
                "high": None,
                "null": 0.0,
                "p": 0.05,
                "verdict": "yes",
                "because": "Three lie above.",
            }
        ],
        "source": "x",
        "mean_alpha": None,
    }
    assert tuple(made()) == (*ENVELOPE, "source", "mean_alpha")


def test_the_rooms_keys_do_not_shadow_the_envelope():
    for name in set(ENVELOPE) - {"passed_over"}:
        with pytest.raises(InvariantBroken, match=name):
            made(own={name: 1})
    rows = [{"shape": [3], "reason": "1-D", "what": "bias"}]
    summary = made(own={"passed_over": rows})
    assert summary["passed_over"] == rows
    assert list(summary["passed_over"][0]) == ["what", "reason", "shape"]
    assert tuple(summary) == ENVELOPE


class Colour(enum.StrEnum):
    RED = "red"


class Old(str, enum.Enum):  # noqa: UP042 - the older spelling
    RED = "red"


@pytest.mark.parametrize(
    ("value", "json_value"),
    [
        (math.nan, None),
        (-math.inf, None),
        (np.float32("nan"), None),
        (np.float64(0.1), 0.1),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (True, True),
        (np.array([[1.0, math.inf]]), [[1.0, None]]),
        (np.array(2.5), 2.5),
        ((1, 2), [1, 2]),
        ({1: {"a": math.nan}}, {"1": {"a": None}}),
        (Path("a/b"), "a/b"),
        (date(2024, 1, 2), "2024-01-02"),
        (datetime(2024, 1, 2, tzinfo=UTC), "2024-01-02T00:00:00+00:00"),
        (Colour.RED, "red"),
        (Old.RED, "red"),
        (np.str_("x"), "x"),
        (pl.DataFrame({"a": [1.0, math.nan], "b": ["x", None]}), [{"a": 1.0, "b": "x"}, {"a": None, "b": None}]),
        (None, None),
    ],
)
def test_plain_values(value, json_value):
    made = plain(value)
    assert made == json_value
    assert type(made) is type(json_value)
    assert json.loads(json.dumps(made, allow_nan=False)) == json_value


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", 1j, {("a",): 1}])
def test_what_json_does_not_hold_is_told_with_its_place(value):
    with pytest.raises(InvariantBroken, match=r"^layers\[1\]\.x "):
        plain({"layers": [0, {"x": value}]})


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(_values)
def test_plain_is_json_and_changes_nothing_else(value):
    made = plain(value)
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert plain(made) == made
    assert _without_gaps(value) == made


def _without_gaps(value):
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_gaps(item) for key, item in value.items()}
    return [_without_gaps(item) for item in value] if isinstance(value, list) else value
