"""Two runs: what turned, what moved, what was asked differently, and rows joined on their key."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.reports.sample import document, names, second
from tests.reports.test_page import Page

from querist.reports.compare import changes, compare, join, settings
from querist.results.finding import Finding
from querist.results.table import Column, TableSpec


@pytest.fixture(scope="module")
def one():
    return document()


@pytest.fixture(scope="module")
def two(one):
    return second(one)


def finding(estimate, low=None, high=None, verdict="yes", subject="s"):
    return Finding(subject, "q.x", estimate, "", low, high, 0, None, verdict, "because")


def kinds(a, b, one):
    made = changes(replace(one, findings=a), replace(one, findings=b))
    return [(change.kind, change.why) for change in made]


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [
        (finding(1, 0, 2), finding(2.5, 1.9, 3), "same"),
        (finding(1, 0, 2), finding(3, 2.1, 4), "moved"),
        (finding(3, 2.1, 4), finding(1, 0, 2), "moved"),
        (finding(1, 0, 2), finding(1.5), "same"),
        (finding(1, 0, 2), finding(2.5), "moved"),
        (finding(2.5), finding(1, 0, 2), "moved"),
        (finding(1), finding(1), "same"),
        (finding(1), finding(1.0001), "moved"),
        (finding(None), finding(None), "same"),
        (finding(None), finding(1), "moved"),
        (finding(1, 0, 2), finding(1, 0, 2, verdict="no"), "verdict"),
        (finding(1, 0, 2), finding(1, 0, 2, verdict="cannot say"), "verdict"),
    ],
)
def test_what_counts_as_a_change(a, b, kind, one):
    assert kinds([a], [b], one)[0][0] == kind


def test_findings_of_one_run_only_are_named_so(one):
    made = kinds([finding(1), finding(1, subject="a")], [finding(1), finding(1, subject="b")], one)
    assert [kind for kind, _ in made] == ["same", "only-b", "only-a"]


def test_the_sample_shows_every_kind(one, two):
    made = changes(one, two)
    counts = {kind: sum(c.kind == kind for c in made) for kind in ("verdict", "moved", "only-a", "only-b", "same")}
    assert counts == {"verdict": 1, "moved": 1, "only-a": 3, "only-b": 0, "same": len(one.findings) - 5}


def test_settings_list_only_what_differs(one, two):
    assert settings(one, one) == []
    assert settings(one, two) == [("farms", "False", "True"), ("replicas", "3", "5")]


SPEC = TableSpec(
    "t",
    "",
    (
        Column("k", "str", "Key."),
        Column("shape", "list[int]", "Key too."),
        Column("x", "float", "Number.", "m"),
        Column("s", "str", "Text."),
        Column("same", "int", "Never differs."),
        Column("seconds", "float", "Time."),
    ),
    ("k", "shape"),
)


def row(k, x, s="a", seconds=1.0):
    return {"k": k, "shape": [1, 2], "x": x, "s": s, "same": 7, "seconds": seconds}


def test_rows_are_joined_on_their_key_and_equal_ones_left_out():
    spec, rows = join(
        SPEC,
        [row("p", 1.0), row("q", 2.0), row("gone", 0.0)],
        [row("q", 2.5), row("p", 1.0, seconds=9.0), row("new", None)],
    )
    assert [column.name for column in spec.columns] == ["k", "shape", "where", "x.a", "x.b", "x.change"]
    assert rows == [
        {"k": "q", "shape": [1, 2], "where": "both", "x.a": 2.0, "x.b": 2.5, "x.change": 0.5},
        {"k": "new", "shape": [1, 2], "where": "B only", "x.a": None, "x.b": None, "x.change": None},
        {"k": "gone", "shape": [1, 2], "where": "A only", "x.a": 0.0, "x.b": None, "x.change": None},
    ]  # fmt: skip
    assert spec.columns[3].unit == "m"


def test_text_that_differs_has_no_difference_column():
    spec, rows = join(SPEC, [row("p", 1.0)], [row("p", 1.0, s="b")])
    assert [column.name for column in spec.columns] == ["k", "shape", "where", "s.a", "s.b"]
    assert rows[0]["s.b"] == "b"


def test_equal_tables_have_no_rows(one, two):
    assert join(SPEC, [row("p", 1.0)], [row("p", 1.0, seconds=5.0)])[1] == []
    page = Page(compare(one, one))
    assert "No verdict turned and no estimate moved" in page.text
    assert page.data("table-") == []


def test_the_page_tells_what_changed(one, two):
    html = compare(one, two)
    page = Page(html)
    assert "1 verdict turned, 1 estimate moved" in page.text
    assert "no became yes." in page.text
    assert "The intervals do not meet." in page.text
    (layers,) = page.data("table-")
    columns = [column[0] for column in layers["columns"]]
    assert columns == ["layer_id", "where", "alpha.a", "alpha.b", "alpha.change"]
    changed = [value for value in layers["values"][4] if value is not None]
    assert changed == pytest.approx([0.5] * len(changed))
    assert layers["values"][0].count(names()[-1]) == 1
    assert "its rows cannot be told from one another" in page.text  # spectra has no key
    assert len(html) < 2_000_000
    assert not page.all("img")


def test_ids_are_unique(one, two):
    ids = [attrs["id"] for _, attrs in Page(compare(one, two)).elements if "id" in attrs]
    assert len(ids) == len(set(ids))
