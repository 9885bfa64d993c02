"""A table read by roles: who is a feature, arms of every kind, what is missing, the bundled experiments."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from querist.effects.errors import ArmMissing
from querist.effects.reading import arm_labels, read_people, roles_of
from querist.errors import BadOption, BadValues, UnknownName
from querist.sources.rows import open_rows

FRAME = pl.DataFrame(
    {
        "id": [1, 2, 3, 4],
        "age": [30.0, float("nan"), 50.0, None],
        "zip": ["a", "b", "a", None],
        "arm": ["none", "mail", "mail", "none"],
        "visit": [1, 0, None, 1],
        "house": [7, 7, 8, 8],
        "w": [1.0, 2.0, 1.0, 0.5],
    }
)


def read(frame=FRAME, drop_missing_arm=False, positive=None, **roles):
    rows = open_rows(frame)
    given = {"arm": "arm", "outcomes": ["visit:binary"], "drop": ["id"], "cluster": "house", "weight": "w"} | roles
    return read_people(rows, roles_of(rows, **given), drop_missing_arm=drop_missing_arm, positive=positive)


def test_columns_have_roles():
    people = read()
    assert people.features.column_names == ["age", "zip"]
    assert people.arm.tolist() == ["none", "mail", "mail", "none"]
    assert people.outcomes is not None
    assert people.outcomes.kinds == ("binary",)
    assert people.cluster is not None
    assert people.cluster.tolist() == [7, 7, 8, 8]
    assert people.weight is not None
    assert people.weight.tolist() == [1, 2, 1, 0.5]
    assert people.roles.left_out == ("id",)
    said = " ".join(people.warnings)
    assert "visit is missing in 1 of 4" in said
    assert "age is missing in 2 of 4" in said
    assert "zip is missing in 1 of 4" in said


def test_features_by_pattern():
    rows = open_rows(FRAME)
    assert roles_of(rows, arm="arm", feature=["a*", "zip"]).features == ("age", "zip")
    assert roles_of(rows, arm="arm", feature=["house", "age"], cluster="house").features == ("age", "house")
    assert roles_of(rows, arm="arm", feature=["*"], cluster="house", drop=["w", "id"]).features == (
        "age",
        "zip",
        "visit",
    )
    with pytest.raises(UnknownName, match="--feature"):
        roles_of(rows, arm="arm", feature=["ages"])
    with pytest.raises(UnknownName, match="--drop"):
        roles_of(rows, arm="arm", drop=["q*"])
    with pytest.raises(BadOption, match="is the arm"):
        roles_of(rows, arm="arm", feature=["arm"])
    with pytest.raises(BadOption, match="an outcome"):
        roles_of(rows, arm="arm", outcomes=["visit"], feature=["visit"])
    with pytest.raises(BadOption, match="No feature"):
        roles_of(rows, arm="arm", drop=["*"])
    with pytest.raises(BadOption, match="--arm"):
        roles_of(rows)
    with pytest.raises(UnknownName, match="arm"):
        roles_of(rows, arm="arms")


def test_an_address_says_the_roles(tmp_path):
    FRAME.write_parquet(tmp_path / "t.parquet")
    rows = open_rows(
        f"{tmp_path / 't.parquet'}?arm=arm&outcome=visit:binary&cluster=house", options=["arm", "outcome", "cluster"]
    )
    roles = roles_of(rows)
    assert (roles.arm, dict(roles.outcomes), roles.cluster) == ("arm", {"visit": "binary"}, "house")


def test_rows_without_an_arm():
    frame = FRAME.with_columns(arm=pl.Series(["none", None, "mail", "none"]))
    with pytest.raises(ArmMissing, match=r"1 of 4 rows.*row 1.*--drop-missing-arm"):
        read(frame)
    people = read(frame, drop_missing_arm=True)
    assert people.kept.tolist() == [0, 2, 3]
    assert people.arm.tolist() == ["none", "mail", "none"]
    assert len(people) == people.features.num_rows == 3
    assert "1 rows without an arm" in people.warnings[0]
    numbers = FRAME.with_columns(arm=pl.Series([0.0, float("nan"), 1.0, 0.0]))
    assert read(numbers, drop_missing_arm=True).arm.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (pa.array(["b", "a"]), ["b", "a"]),
        (pa.array(["b", "a"]).dictionary_encode(), ["b", "a"]),
        (pa.array([1, 0], pa.int8()), [1, 0]),
        (pa.array([1.0, 0.0]), [1, 0]),
        (pa.array([True, False]), [True, False]),
    ],
)
def test_labels_of_every_kind(column, labels):
    found, known = arm_labels(column)
    assert found.tolist() == labels
    assert known.all()


def test_what_cannot_be_read_is_named():
    with pytest.raises(BadValues, match=r"0\.5 in row 1"):
        arm_labels(pa.array([1.0, 0.5]))
    with pytest.raises(BadValues, match="house is missing in 1"):
        read(FRAME.with_columns(house=pl.Series([1, None, 2, 2])))
    with pytest.raises(BadValues, match=r"weight w.*-1 in row 0"):
        read(FRAME.with_columns(w=pl.Series([-1.0, 1, 1, 1])))


def test_bundled_experiments_are_tables_with_their_published_numbers():
    rows = open_rows("hillstrom")
    people = read_people(
        rows, roles_of(rows, arm="segment", outcomes=["visit:binary", "conversion:binary", "spend:hurdle"])
    )
    assert people.outcomes is not None
    counts = dict(zip(*np.unique(people.arm, return_counts=True), strict=True))
    assert counts == {"Mens E-Mail": 21_307, "No E-Mail": 21_306, "Womens E-Mail": 21_387}
    control = people.arm == "No E-Mail"
    assert people.outcomes.values[control].mean(axis=0) == pytest.approx([0.10617, 0.00573, 0.65279], abs=5e-6)
    nsw = open_rows("nsw_mixtape").table()
    treated = nsw.column("treat").to_numpy() == 1
    earned = nsw.column("re78").to_numpy().astype(float)
    assert (earned[treated].mean(), earned[~treated].mean()) == pytest.approx((6349.14, 4554.80), abs=0.005)
    assert open_rows("cps_mixtape").n == 15_992
    rows = open_rows("thornton_hiv")
    people = read_people(rows, roles_of(rows, arm="any", outcomes=["got:binary"]), drop_missing_arm=True)
    assert people.outcomes is not None
    got, seen = people.outcomes.values[:, 0], people.outcomes.observed[:, 0]
    for arm, mean, n in ((1, 0.789236, 2211), (0, 0.338684, 623)):
        assert int((seen & (people.arm == arm)).sum()) == n
        assert got[seen & (people.arm == arm)].mean() == pytest.approx(mean, abs=1e-6)
