"""Outcomes: kinds found or checked, labels of text, what is missing left as missing."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from querist.effects.errors import OutcomeEmpty, OutcomeKind
from querist.effects.outcomes import parse_outcomes, prepare_outcomes
from querist.errors import BadOption, NonFinite, ShapeMismatch, UnknownName
from querist.sources.rows import open_rows

FRAME = pl.DataFrame(
    {"visit": [1, 0, None, 1], "spend": [0.0, 2.5, 0.0, None], "clicks": [3, 0, 1, 2], "gain": [-1.5, 0.5, 2.0, 0.0]}
)
KINDS = {"visit": "binary", "spend": "hurdle", "clicks": "count", "gain": "continuous"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: FRAME,
        lambda: FRAME.to_pandas(),
        lambda: FRAME.to_arrow(),
        lambda: FRAME.to_arrow().to_batches()[0],
        lambda: FRAME.to_dict(as_series=False),
        lambda: open_rows(FRAME),
        lambda: FRAME.to_numpy(),
        lambda: FRAME.select("gain", "spend", "clicks", "visit").with_columns(other=pl.lit("x")),
    ],
)
def test_every_table_gives_the_same_outcomes(make):
    Y = make()
    found = prepare_outcomes(Y, KINDS)
    assert found.names == tuple(KINDS)
    assert found.kinds == tuple(KINDS.values())
    assert found.values.dtype == float
    np.testing.assert_array_equal(found.values, FRAME.to_numpy())
    assert np.array_equal(found.observed, ~np.isnan(FRAME.to_numpy()))
    assert found.missing == {"visit": 1, "spend": 1}
    assert found.notes == ()
    assert len(found.take([0, 3])) == 2


def test_kinds_are_found_and_told():
    found = prepare_outcomes(FRAME)
    assert found.kinds == ("binary", "continuous", "continuous", "continuous")
    assert len(found.notes) == 4
    assert "visit is taken as binary" in found.notes[0]
    assert prepare_outcomes(FRAME, ["spend", "visit:binary"]).kinds == ("continuous", "binary")


@pytest.mark.parametrize(
    ("Y", "names"),
    [
        ([0, 1, 1], ("y",)),
        (np.array([0.0, 1.0]), ("y",)),
        (np.zeros((3, 2)), ("y0", "y1")),
        (pd.Series([0, 1], name="bought"), ("bought",)),
        (pd.Series([0, 1]), ("y",)),
        (pl.Series("bought", [True, False]), ("bought",)),
        (pa.array([1, 0]), ("y",)),
        ([[0, 1], [1, 0]], ("y0", "y1")),
    ],
)
def test_names_where_there_are_none(Y, names):
    found = prepare_outcomes(Y)
    assert found.names == names
    assert set(found.kinds) == {"binary"}


def test_text_needs_the_label_that_counts_as_one():
    Y = {"bought": ["Yes", "No", None, "Yes"], "spend": [1.0, 2.0, 3.0, 4.0], "flag": [0, 1, 1, 0]}
    with pytest.raises(OutcomeKind, match=r"'Yes' in row 0.*--positive LABEL, one of No, Yes"):
        prepare_outcomes(Y)
    for positive in ("Yes", {"bought": "Yes"}):
        found = prepare_outcomes(Y, positive=positive)
        np.testing.assert_array_equal(found.values[:, 0], [1, 0, np.nan, 1])
        assert found.kinds == ("binary", "continuous", "binary")
        assert "1 where it is Yes" in found.notes[0]
    with pytest.raises(OutcomeKind, match="No, Yes"):
        prepare_outcomes(Y, positive="yes")
    with pytest.raises(OutcomeKind, match="more than two"):
        prepare_outcomes({"y": ["a", "b", "c"]}, positive="a")
    as_levels = prepare_outcomes({"y": pa.array(Y["bought"]).dictionary_encode()}, positive="Yes")
    np.testing.assert_array_equal(as_levels.values[:, 0], [1, 0, np.nan, 1])
    two = prepare_outcomes({"y": [1, 2, 2]}, {"y": "binary"}, positive=2)
    assert two.values[:, 0].tolist() == [0, 1, 1]


def test_what_arrow_columns_may_hold():
    found = prepare_outcomes(
        {
            "flag": pa.array([True, None, False]),
            "cents": [Decimal("1.50"), Decimal("0"), None],
            "few": pd.array([1, 0, None], dtype="Int8"),
        }
    )
    np.testing.assert_array_equal(found.values, [[1, 1.5, 1], [np.nan, 0, 0], [0, np.nan, np.nan]])
    assert found.kinds == ("binary", "continuous", "binary")


@pytest.mark.parametrize(
    ("Y", "kinds", "error", "said"),
    [
        ({"y": [0, 1, 0.5]}, {"y": "binary"}, OutcomeKind, r"0.5 in row 2.*0 and 1"),
        ({"y": [1, 2, 1]}, {"y": "binary"}, OutcomeKind, r"2 in row 1.*--positive 2"),
        ({"y": [1, np.nan, -1]}, {"y": "count"}, OutcomeKind, r"-1 in row 2.*whole numbers"),
        ({"y": [1, 1.5]}, {"y": "count"}, OutcomeKind, "1.5 in row 1"),
        ({"y": [0, 3, -2.5]}, {"y": "hurdle"}, OutcomeKind, "-2.5 in row 2"),
        ({"y": [1.0, np.inf]}, None, NonFinite, "inf in row 1"),
        ({"y": [None, np.nan]}, None, OutcomeEmpty, "missing in every row: y"),
        ({"y": [1, 0]}, {"y": "binomial"}, OutcomeKind, "binary"),
        ({"y": [1, 0]}, {"z": "binary"}, UnknownName, "y"),
        ({"y": [1, 0]}, ["y:binry"], OutcomeKind, "nearest is binary"),
        ({"y": [1, 0]}, ["y", "y:count"], BadOption, "twice"),
        ({"y": [1, 0]}, [":count"], BadOption, "without a name"),
        ({"y": [1, 0]}, [], BadOption, "No outcome"),
        (np.zeros((2, 2, 2)), None, ShapeMismatch, r"\[n, K\]"),
    ],
)
def test_an_outcome_that_is_not_of_its_kind(Y, kinds, error, said):
    with pytest.raises(error, match=said):
        prepare_outcomes(Y, kinds)


def test_codes_are_those_of_the_specification():
    assert (OutcomeKind.code, OutcomeEmpty.code) == ("outcome-kind", "outcome-empty")


def test_names_with_a_colon():
    assert parse_outcomes(["a:b:auto", "c:d:count"]) == {"a:b": None, "c:d": "count"}
    with pytest.raises(OutcomeKind, match="a:b:auto"):
        parse_outcomes(["a:b"])
