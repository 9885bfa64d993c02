"""Table specifications: exact schemas, no number that is not finite, row keys; and what a layout keeps of them."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querist.errors import InvariantBroken
from querist.results.figure import Figure
from querist.results.finding import FINDING_FIELDS, Finding
from querist.results.layout import Layout, Section
from querist.results.question import Question
from querist.results.table import Column, TableSpec

ALL = TableSpec(
    "all",
    "Every kind.",
    (
        Column("name", "str", "A name."),
        Column("n", "int", "A count."),
        Column("x", "float", "A number.", "s"),
        Column("ok", "bool", "A flag."),
        Column("words", "list[str]", "Words."),
        Column("shape", "list[int]", "A shape."),
        Column("curve", "list[float]", "A curve."),
    ),
    ("name",),
)
SCHEMA = {
    "name": pl.String(),
    "n": pl.Int64(),
    "x": pl.Float64(),
    "ok": pl.Boolean(),
    "words": pl.List(pl.String()),
    "shape": pl.List(pl.Int64()),
    "curve": pl.List(pl.Float64()),
}


def test_rows_become_exactly_the_schema():
    row = {
        "name": "a",
        "n": np.int32(3),
        "x": np.float32(0.5),
        "ok": np.bool_(True),
        "words": ("u",),
        "shape": (2, 3),
        "curve": [0.1],
    }
    frame = ALL.frame([row, {"name": "b"}])
    assert dict(frame.schema) == SCHEMA
    assert frame.rows() == [("a", 3, 0.5, True, ["u"], [2, 3], [0.1]), ("b", None, None, None, None, None, None)]


@pytest.mark.parametrize("rows", [[], pl.DataFrame(), pl.DataFrame(schema={"n": pl.Int32})])
def test_no_rows_keep_the_schema(rows):
    frame = ALL.frame(rows)
    assert dict(frame.schema) == SCHEMA
    assert frame.is_empty()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf")])
def test_a_number_that_does_not_exist_is_null(bad):
    assert ALL.frame([{"name": "a", "x": bad}])["x"].to_list() == [None]
    assert ALL.frame(pl.DataFrame({"name": ["a"], "x": [float(bad)]}))["x"].to_list() == [None]


def test_a_frame_is_put_in_order_cast_and_completed():
    frame = ALL.frame(pl.DataFrame({"n": [1], "name": ["a"]}, schema_overrides={"n": pl.Int8}))
    assert dict(frame.schema) == SCHEMA
    assert frame.row(0)[:2] == ("a", 1)


def test_undeclared_columns_and_repeated_keys_are_defects():
    with pytest.raises(InvariantBroken, match="table all has no column y"):
        ALL.frame([{"name": "a", "y": 1}])
    with pytest.raises(InvariantBroken, match="table all has no column y"):
        ALL.frame(pl.DataFrame({"y": [1]}))
    with pytest.raises(InvariantBroken, match="two rows with the same name"):
        ALL.frame([{"name": "a"}, {"name": "a"}])


@given(st.lists(st.floats(), max_size=5))
def test_finite_numbers_are_kept_bit_for_bit(values):
    frame = ALL.frame([{"name": str(i), "x": value} for i, value in enumerate(values)])
    kept = [value if math.isfinite(value) else None for value in values]
    assert [(v, math.copysign(1, v)) if v is not None else None for v in frame["x"]] == [
        (v, math.copysign(1, v)) if v is not None else None for v in kept
    ]
    assert ALL.frame(frame).equals(frame)


def test_a_layout_comes_back_from_its_plain_form():
    import json

    question = Question("weights.spikes", "Are there spikes?", "count", "0", "both nulls", None)
    section = Section("One", ("words",), (("*", "weights.*"),), ("f",), ("all",), False, 3)
    layout = Layout("Title", "Lead.", (section, Section("Two")), (ALL,), (question,))
    assert Layout.from_dict(json.loads(json.dumps(layout.as_dict()))) == layout


def test_findings_hold_finite_numbers_and_one_of_three_verdicts():
    finding = Finding("a", "r.q", np.float32(2), "count", -math.inf, math.nan, None, 0, "no", "So.")
    assert tuple(finding.as_dict()) == FINDING_FIELDS
    assert (finding.estimate, finding.low, finding.high, finding.p) == (2.0, None, None, 0.0)
    with pytest.raises(InvariantBroken, match="maybe"):
        Finding("a", "r.q", None, "", None, None, None, None, "maybe", "So.")


def test_a_figure_is_its_plain_form():
    figure = Figure("f", "Title", "Caption.", [{"type": "bar"}], {"x": 1}, "all")
    assert Figure(**figure.as_dict()) == figure
