"""A page holds everything of its document, safely, within its budget, and needs nothing from outside."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import polars as pl
import pytest
from tests.reports.sample import HOSTILE, LAYERS, document, header, names

from querist.errors import InvariantBroken
from querist.reports import budget
from querist.reports.fragment import fragment
from querist.reports.page import render, reproduce
from querist.reports.present import chosen, groups, news, number, questions_of, tally
from querist.results.figure import Figure
from querist.results.finding import Finding
from querist.results.layout import Layout, Section
from querist.results.question import Question
from querist.results.table import Column, TableSpec


class Page(HTMLParser):
    """What a browser would find: elements with attributes, headings in order, text, and what scripts hold."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.headings: list[int] = []
        self.words: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.inside = ""
        self.feed(text)
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self.inside != "style":
            self.words.append(data)

    def data(self, kind: str) -> list[dict]:
        return [json.loads(body) for attrs, body in self.scripts if (attrs.get("id") or "").startswith(kind)]

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture(scope="module")
def sample():
    return document()


@pytest.fixture(scope="module")
def html(sample):
    return render(sample)


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def without_code(html: str) -> str:
    return re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)


def test_hostile_names_stay_text(page, html):
    assert "onerror" not in {name for _, attrs in page.elements for name in attrs}
    assert not page.all("img")
    code = [body for attrs, body in page.scripts if attrs.get("type") != "application/json"]
    assert len(code) == 5
    assert not any("document.title=" in body for body in code)
    flat = page.text.replace(" ", "")
    assert flat.count(HOSTILE.replace(" ", "")) > 5
    assert page.data("table")[0]["values"][0][0] == HOSTILE


def test_the_policy_admits_exactly_the_scripts_of_the_page(page, html):
    policy = next(
        attrs["content"] for attrs in page.all("meta") if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:;")
    assert "unsafe-eval" not in policy
    assert policy.split("script-src ")[1].count("unsafe-inline") == 0
    bodies = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies]
    assert policy.split("script-src ")[1] == " ".join(f"'sha256-{one}'" for one in hashes)


def test_nothing_is_asked_of_the_network(page):
    assert {attrs.get("href", "")[:1] for attrs in page.all("a")} == {"#"}
    assert [attrs["href"] for attrs in page.all("link")] == ["data:,"]
    assert not any("src" in attrs for _, attrs in page.elements)
    assert not re.search(r"@import|url\(", next(w for w in [without_code(render(document()))]))


def test_plotly_is_inlined_once_and_only_where_there_are_figures(sample, html):
    assert html.count("* plotly.js v") == 1
    bare = replace(sample, layout=Layout("Title", "Lead", ()), figures={}, tables={}, findings=[])
    assert len(render(bare)) < 120_000


def test_ids_are_unique_and_every_link_leads_somewhere(page):
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = {(attrs["href"] or "")[1:] for attrs in page.all("a")}
    assert targets <= set(ids)


def test_headings_go_down_one_step_at_a_time(page):
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(page.headings, page.headings[1:], strict=False))


def test_every_header_cell_has_a_scope_and_every_figure_a_name(page):
    assert all(attrs.get("scope") in ("col", "row") for attrs in page.all("th"))
    canvases = [attrs for attrs in page.all("div") if attrs.get("class") == "canvas"]
    assert len(canvases) == 13
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in canvases)


def test_every_finding_is_spelled_out_with_its_reason(sample, page):
    for finding in sample.findings[:8]:
        assert finding.because in page.text
    rows = sum("findings" in (attrs.get("class") or "") for attrs in page.all("table"))
    assert rows >= 8
    assert "60 cannot say" in page.text
    assert "22 bad news" in page.text  # 21 untrained layers and one damaged


def test_findings_that_no_section_names_are_shown_all_the_same(page):
    assert "Further findings" in page.text
    assert "3 of 147456 entries are NaN." in page.text


def test_tables_behind_figures_are_shown_although_no_section_names_them(page):
    assert "Numbers behind the figures" in page.text
    assert [one["name"] for one in page.data("table")] == ["layers", "spectra"]


def test_tables_carry_every_digit_and_every_description(sample, page):
    layers = page.data("table")[0]
    frame = sample.tables["layers"]
    columns = [column[0] for column in layers["columns"]]
    assert columns == frame.columns
    assert layers["total"] == LAYERS
    assert layers["values"][columns.index("alpha")] == frame["alpha"].to_list()
    assert layers["values"][columns.index("parameters")][2] == "9007199254740993"
    assert layers["columns"][5] == ["lambda_plus", "float", "λ", "Upper edge of the fitted bulk."]


def test_provenance_is_complete(page):
    for text in (
        "0f0f0f",
        "local:2",
        "2.13.0",
        "bench <1>",
        "runs/weights-scan-1",
        "tables/spectra.parquet",
        "one axis <1-D>",
    ):
        assert text in page.text.replace("​", "")
    assert "querist weights scan 'models/mini lm.safetensors' --seed 7 --include '*' --no-farms --split" in page.text


@pytest.mark.parametrize(
    ("status", "words"),
    [("failed", "This run is failed."), ("running", "what was finished"), ("interrupted", "--resume")],
)
def test_a_run_that_is_not_done_says_so_on_top(status, words):
    failed = [{"unit": "layer <3>", "error": "ValueError: " + HOSTILE}] if status == "failed" else []
    page = Page(render(document(status=status, failed=failed)))
    assert words in page.text
    assert ("layer <3>" in page.text) == bool(failed)


def test_reload_is_asked_for_only_on_demand(html):
    assert 'http-equiv="refresh"' not in html
    assert '<meta http-equiv="refresh" content="5">' in render(document(), reload=5)


def test_a_layout_that_names_what_is_not_there_is_a_defect(sample):
    for section in (Section("x", tables=("none",)), Section("x", figures=("none",))):
        with pytest.raises(InvariantBroken, match="none"):
            render(replace(sample, layout=replace(sample.layout, sections=(section,))))


def test_a_page_stays_within_its_budget_and_tells_what_it_leaves_out(sample):
    heavy = {
        f"heavy.{i}": Figure(
            f"heavy.{i}", f"Heavy {i}", "Many points.", [{"type": "scatter", "y": [0.123456] * 40_000}]
        )
        for i in range(8)
    }
    columns = tuple(Column(name, "float", "A number.") for name in "abcdefgh")
    tables = {
        f"big{i}": pl.DataFrame({name: [1 / 3 + k for k in range(200_000)] for name in "abcdefgh"}) for i in range(4)
    }
    specs = tuple(TableSpec(name, "Large.", columns) for name in tables)
    many = [Finding(f"unit {i}", "q.x", 1, "", 0, 2, 0, 0.5, "no", "Because. " * 20) for i in range(6000)]
    section = Section("All", findings=(("*", "*"),), figures=tuple(heavy), tables=tuple(tables))
    whole = replace(
        sample, layout=Layout("T", "L", (section,), specs), figures=heavy, tables=tables, findings=many,
        summary={**sample.summary, "tables": {"big0": "tables/big0.parquet"}},
    )  # fmt: skip
    html = render(whole)
    page = Page(html)
    assert len(html.encode()) <= budget.PAGE_BYTES
    kept = len(page.data("figure-"))
    assert 0 < kept < 8
    assert page.text.count("more than this page has left") == 8 - kept
    assert "4,000 more of these 6,000 findings" in page.text
    for table in page.data("table-"):
        assert table["total"] == 200_000
        assert 500 < len(table["values"][0]) < 5001


def test_words_beyond_the_budget_are_a_defect_and_not_a_heavy_page(sample):
    layout = Layout("T", "L", (Section("x", words=("word " * 3_000_000,)),))
    with pytest.raises(InvariantBroken, match="too heavy"):
        render(replace(sample, layout=layout, findings=[], figures={}, tables={}))


def test_fair_shares_leave_small_tables_whole():
    assert budget.fair_limit([10, 100, 1000], 300) == 190
    assert budget.fair_limit([10, 100], 300) == float("inf")
    assert budget.fair_limit([500, 500], 300) == 150


@pytest.mark.parametrize("text", [HOSTILE, "<!--", "]]>", "a\u2028b", '"\\', "\ud800", "&lt;"])
def test_embedded_json_cannot_leave_its_element(text):
    made = budget.embed({"x": text, "y": float("nan")})
    assert not set("<>&\u2028\u2029") & set(made)
    assert json.loads(made) == {"x": text, "y": None}


def test_numbers_read_as_people_write_them():
    cases = {
        0.0: "0", 1.0: "1", 12345: "12,345", 123456.7: "123,500", 0.00123456: "0.001235", 0.0009: "9e−4", 1.5e-300: "1.5e−300",
        -2.50: "−2.5", 999.96: "1,000", 2e9: "2e9", 1234567.8: "1.235e6", 2.4999e-7: "2.5e−7",
    }  # fmt: skip
    assert {value: number(value) for value in cases} == cases
    assert number(None) == number(float("nan")) == "–"


def test_news_follow_what_is_welcome():
    q = [Question("a", "", "", "", "", "yes"), Question("b", "", "", "", "", "no"), Question("c", "", "", "", "")]
    seen = {
        (question.welcome, verdict): news(Finding("s", question.id, 1, "", 0, 2, 0, None, verdict, ""), question)
        for question in q
        for verdict in ("yes", "no", "cannot say")
    }
    assert [seen["yes", v] for v in ("yes", "no", "cannot say")] == ["good", "bad", "open"]
    assert [seen["no", v] for v in ("yes", "no", "cannot say")] == ["bad", "good", "open"]
    assert [seen[None, v] for v in ("yes", "no", "cannot say")] == ["plain", "plain", "open"]


def test_counts_of_the_strip_are_those_of_the_findings(sample):
    questions = questions_of(sample.findings, sample.layout.questions)
    for row in tally(sample.findings, questions):
        mine = [f for f in sample.findings if f.question == row["question"].id]
        assert row["total"] == len(mine)
        for part in row["parts"]:
            assert part["count"] == sum(f.verdict == part["verdict"] for f in mine)


def test_bad_news_come_first_and_gauges_keep_order(sample):
    questions = questions_of(sample.findings, sample.layout.questions)
    trained = next(g for g in groups(sample.findings, questions) if g.question and g.question.id == "weights.trained")
    kinds = [row.news for row in trained.rows]
    assert kinds == sorted(kinds)  # bad before good
    for row in trained.rows:
        assert row.gauge
        assert 0 <= row.gauge.low <= row.gauge.estimate <= row.gauge.high <= 100


def test_a_subject_with_brackets_is_found_by_its_own_name(sample):
    name = names()[1]
    assert "[" in name
    assert len(chosen(sample.findings, [(name, "*")])) == 3


def test_an_undeclared_question_is_shown_under_its_id(sample):
    page = Page(render(replace(sample, findings=[Finding("s", "x.new", 1, "", 0, 2, 0, None, "yes", "So it is.")])))
    assert "x.new" in page.text
    assert "So it is." in page.text


def test_commands_can_be_typed_again():
    assert reproduce(header(argv=["weights", "scan", "a b", "--farms"])) == "querist weights scan 'a b' --farms"
    folder = ["weights", "scan", "a", "--out", "b c", "--resume", "--out=d", "--farms"]
    assert reproduce(header(argv=folder)) == "querist weights scan a --farms"
    config = {"model": ["m1", "m2"], "target": "b.npz", "eta": [0.1, 1.0], "seed": 3, "rate": None, "on": True}
    made = reproduce(header(room="features", command="rank", config=config))
    assert made == "querist features rank m1 m2 --target b.npz --eta 0.1 --eta 1.0 --seed 3 --on"


def test_the_fragment_is_small_and_runs_nothing(sample):
    html = fragment(sample)
    page = Page(html)
    assert len(html) < 40_000
    assert not page.scripts
    assert not page.all("style")
    assert "15 of 182 findings" in page.text
    assert "5 of 60 rows, 9 of 40 columns" in page.text
    assert fragment(replace(sample, findings=[], tables={}))


def test_rendering_loads_neither_torch_nor_scikit_learn():
    code = (
        "import sys; from tests.reports.sample import document, second\n"
        "from querist.reports.page import render; from querist.reports.compare import compare\n"
        "from querist.reports.index import index; from querist.reports.fragment import fragment\n"
        "d = document(); render(d); compare(d, second(d)); fragment(d); index([])\n"
        "print([n for n in ('torch', 'sklearn', 'scipy', 'pandas') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
