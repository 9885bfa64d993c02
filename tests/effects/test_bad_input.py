"""What a wrong table, label, price or share comes to: one row for each line of the room's list of bad input.

The message's code, the offending value and what is allowed; then what is no error but is told. The same through commands is held in the
files of each command (test_check, test_fit, test_evaluate, test_score, test_allocate, test_monitor).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from tests.effects.people import people
from tests.effects.tables import S, T, Y, table
from tests.harness import Bad, check_bad_input

from querist.effects import TLearner, allocate, check, evaluate, qini, simulate, uplift_at_k
from querist.effects.design import assignment_units, propensities
from querist.effects.reading import read_people, roles_of
from querist.sources.rows import open_rows

DATA = simulate(400, arms=2, base_scale=0.4, increment_scale=0.3, seed=2)
NAMES = np.array(["none", "call", "mail"])[DATA.arm]
REWARD, COST = np.ones((6, 2)), np.ones((6, 2))


def fit(X: Any = DATA.X, arm: Any = NAMES, Y: Any = DATA.Y, *, control: Any = "none", **options: Any):
    return TLearner(control=control, **options).fit(X, arm, Y)


def with_value(column: np.ndarray, row: int, value: Any) -> np.ndarray:
    found = column.astype(object) if value is None else column.copy()
    found[row] = value
    return found


def read(**changed: Any):
    frame = pl.DataFrame({"x": DATA.X[:, 0], "arm": NAMES, "y": DATA.Y[:, 0], "visit": (DATA.Y[:, 1] > 0).astype(int)})
    rows = open_rows(frame.with_columns(**{name: pl.Series(values) for name, values in changed.items()}))
    return rows, roles_of


def outcome(kind: str, **changed: Any):
    rows, roles = read(**changed)
    return read_people(rows, roles(rows, arm="arm", outcomes=[kind]))


REFUSED = {
    "control label absent": ("control-absent", lambda: fit(control="nnoe"), ["nnoe", "none", "call"]),
    "no rows under control": (
        "no-control",
        lambda: evaluate(
            DATA.truth, NAMES[NAMES != "none"], DATA.Y[NAMES != "none"], control="none", arms=["none", "call", "mail"]
        ),
        ["none"],
    ),
    "one arm only": ("no-treated", lambda: fit(arm=np.full(400, "none")), ["none"]),
    "no arm known in a row": (
        "arm-missing",
        lambda: fit(arm=with_value(NAMES, 7, None)),
        ["1 of 400", "row 7", "--drop-missing-arm"],
    ),
    "an outcome that is all missing": (
        "outcome-empty",
        lambda: fit(Y={"y": DATA.Y[:, 0], "z": np.full(400, np.nan)}),
        ["z", "missing in every row"],
    ),
    "half an event": (
        "outcome-kind",
        lambda: outcome("visit:binary", visit=with_value((DATA.Y[:, 1] > 0).astype(float), 5, 0.5)),
        ["0.5", "row 5", "0 and 1"],
    ),
    "less than no count": (
        "outcome-kind",
        lambda: outcome("y:count", y=with_value(np.ones(400), 3, -1.0)),
        ["-1", "row 3", "0 or more"],
    ),
    "words for an outcome": (
        "outcome-kind",
        lambda: outcome("visit:binary", visit=np.where(DATA.Y[:, 1] > 0, "yes", "no")),
        ["visit", "--positive"],
    ),
    "a chance of 1": (
        "propensity-range",
        lambda: propensities(
            with_value(np.full((400, 3), 1 / 3), 9, [1.0, 0.0, 0.0]), ["none", "call", "mail"], DATA.arm
        ),
        ["row 9"],
    ),
    "the arm among features": (
        "arm-in-features",
        lambda: fit(X=np.column_stack([DATA.X, np.array([5.0, 3.0, 9.0])[DATA.arm]])),
        ["x12", "arm"],
    ),
    "a cost below 0": ("cost-range", lambda: allocate(REWARD, -COST, 1), ["-1", "0 or more"]),
    "a cost that is no number": ("cost-range", lambda: allocate(REWARD, COST * np.nan, 1), ["nan"]),
    "a budget below 0": ("budget-range", lambda: allocate(REWARD, COST, -2), ["-2", "0 or more"]),
    "a budget that is no number": ("budget-range", lambda: allocate(REWARD, COST, float("nan")), ["nan"]),
    "a least share out of reach": (
        "infeasible",
        lambda: allocate(REWARD, COST, 3, group=list("aabbbb"), group_min=1.0),
        ["budget stands in the way", "at most 0.5"],
    ),
    "a share of everybody": ("k-range", lambda: uplift_at_k(Y, T, S, 1.0), ["1", "0 < k < 1"]),
    "other numbers of rows": ("length", lambda: qini(Y, T, S[:9]), ["score 9", "y 10"]),
    "a column that is gone": (
        "column-missing",
        lambda: fit(X=pl.DataFrame(DATA.X[:, :3], schema=["a", "b", "c"])).predict(
            pl.DataFrame(DATA.X[:, :2], schema=["a", "b"])
        ),
        ["c"],
    ),
    "a household in two arms": (
        "cluster-mixed",
        lambda: assignment_units(DATA.arm, np.arange(400) // 2, ["none", "call", "mail"]),
        ["several arms"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_its_code(name):
    from querist.errors import BadInput

    code, call, fragments = REFUSED[name]
    check_bad_input([Bad(call, BadInput, fragments)])
    with pytest.raises(BadInput) as caught:
        call()
    assert caught.value.code == code


def test_arms_in_the_message_have_their_counts():
    with pytest.raises(Exception, match="none") as caught:
        fit(control="non")
    assert str((NAMES == "none").sum()) in str(caught.value)


# -------------------------------------------------------------------------------------------------------- told, no error


def test_a_missing_outcome_or_feature_is_told_and_the_rest_is_used():
    Y, X = DATA.Y.copy(), DATA.X.copy()
    Y[3, 0] = X[8, 1] = X[9, 1] = np.nan
    model = fit(X=X, Y=Y)
    said = " | ".join(model.warnings_)
    assert "y0 is missing in 1 of 400 rows" in said
    assert "x1 is missing in 2 of 400 rows" in said
    result = check(X, NAMES, control="none", Y={"a": Y[:, 0]}, permutations=19)
    [finding] = [one for one in result.findings if one.question == "effects.attrition"]
    assert finding.subject == "a"


def test_an_outcome_that_an_arm_does_not_carry_is_null_and_listed():
    """Constant within an arm; fewer than 30 rows; fewer than 5 events."""
    constant = np.where(DATA.arm == 1, 2.0, DATA.Y[:, 0])
    few = np.where((DATA.arm == 1) & (np.cumsum(DATA.arm == 1) > 29), np.nan, DATA.Y[:, 0])
    rare = ((DATA.arm != 1) & (DATA.Y[:, 1] > 0)) | ((DATA.arm == 1) & (np.cumsum(DATA.arm == 1) <= 4))
    model = fit(Y={"constant": constant, "few": few, "rare": rare.astype(float)})
    assert [(one.arm, one.outcome) for one in model.not_estimable_] == [
        ("call", "constant"),
        ("call", "few"),
        ("call", "rare"),
    ]
    reasons = " | ".join(one.reason for one in model.not_estimable_)
    assert "in every row" in reasons
    assert "29 rows" in reasons
    assert "4 events" in reasons
    assert np.isnan(model.predict(DATA.X)[:, 0]).all()
    assert np.isfinite(model.predict(DATA.X)[:, 1]).all()


def test_further_columns_are_ignored_and_their_order_does_not_matter():
    frame = pl.DataFrame(DATA.X[:, :3], schema=["a", "b", "c"])
    model = fit(X=frame)
    other = frame.select("c", "a", "b").with_columns(more=pl.lit(1))
    assert (model.predict(other) == model.predict(frame)).all()
    assert model.columns_.encode(open_rows(other)).ignored == ("more",)


def test_a_column_measured_after_assignment_is_suspicious():
    """Knows the arm too well (AUC above .95); or the same for everybody under control, and not under treatment."""
    frame = people(600)
    treated = (frame["segment"] != "none").to_numpy()
    rng = np.random.default_rng(0)
    late = frame.select("x0").with_columns(
        knows=pl.Series(treated + 0.3 * rng.normal(size=600)),
        opened=pl.Series(np.where(treated, rng.integers(0, 2, 600), 0)),
    )
    result = check(late, frame["segment"].to_numpy(), control="none", permutations=19)
    assert set(result.summary["suspicious_columns"]) == {"knows", "opened"}
    assert any("looks measured after assignment" in warning for warning in result.warnings)


def test_a_column_that_never_changes_is_dropped_and_told():
    """g2004 of the social pressure experiment."""
    frame = table("social_pressure")[:2000]
    assert frame["g2004"].n_unique() == 1
    X = frame.select("yob", "g2000", "g2004")
    with pytest.warns(UserWarning, match="g2004"):
        model = TLearner(control="Control").fit(X, frame["treatment"], frame.select("voted"))
    assert model.features_ == ["g2000", "yob"]
    assert any("g2004 never changes" in warning for warning in model.warnings_)


def test_a_column_that_differs_in_every_row_looks_like_an_identifier():
    frame = people(400).with_columns(person=pl.int_range(400), code=pl.int_range(400).cast(pl.String))
    X = frame.select("x0", "person", "code", "city")
    result = check(X, frame["segment"].to_numpy(), control="none", permutations=19)
    told = [warning for warning in result.warnings if "identifier" in warning]
    assert [warning.split()[2] for warning in told] == ["person", "code"]
    assert "--drop person" in told[0]


def test_prediction_has_no_way_to_be_told_the_arm():
    with pytest.raises(TypeError):
        fit().predict(DATA.X, arm=NAMES)  # type: ignore[call-arg]


def test_arrow_columns_of_every_kind_are_taken():
    """Dictionaries, nulls, booleans and decimals."""
    rng = np.random.default_rng(0)
    city = rng.choice(["Bath", "Cork"], 400).tolist()
    columns = {
        "city": pa.array(city).dictionary_encode(),
        "age": pa.array([None if k % 9 == 0 else k % 70 for k in range(400)], pa.int32()),
        "member": pa.array([None if k % 7 == 0 else k % 2 == 0 for k in range(400)]),
        "cents": pa.array([Decimal(k % 50) / 100 for k in range(400)], pa.decimal128(6, 2)),
    }
    model = fit(X=pa.table(columns))
    assert set(model.features_) == set(columns)
    assert np.isfinite(model.predict(pa.table(columns))).all()
