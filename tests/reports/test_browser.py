"""Pages in a browser: they load nothing, log nothing, sort, filter, fold, change theme, and print."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from tests.harness import patient, started
from tests.reports.sample import HOSTILE, LAYERS, document, names, second

from querist.reports.compare import compare
from querist.reports.index import index
from querist.reports.page import render

pytestmark = pytest.mark.browser

ARTEFACTS = Path(__file__).parents[2] / "artefacts" / "reports"


@pytest.fixture(scope="module")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        chrome = started(play, chromium)
        yield chrome
        chrome.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, one = tmp_path_factory.mktemp("pages"), document()
    row = {"room": "weights", "command": "scan", "status": "done", "news": {"bad": 1, "good": 2, "open": 0, "plain": 0}}
    runs = [
        {**row, "folder": name, "started": f"2026-01-0{i}T00:00:00Z", "seconds": seconds}
        for i, (name, seconds) in enumerate([("b", 9.5), ("a", 100.0), (HOSTILE, None)], 1)
    ]
    sections = tuple(replace(section, figures=()) for section in one.layout.sections)
    drawn = replace(one, figures={}, layout=replace(one.layout, sections=sections))
    specs = tuple(replace(spec, shown=("alpha", "empty")) if spec.key else spec for spec in one.layout.tables)
    narrow = replace(drawn, layout=replace(drawn.layout, tables=specs))
    pages = {
        "report": render(one),
        "words": render(drawn),
        "narrow": render(narrow),
        "compare": compare(one, second(one)),
        "index": index(runs),
    }
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


class Tab:
    """A tab that counts what the page asks for and what it complains of."""

    def __init__(self, browser, path: Path, **options) -> None:
        self.context = patient(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}))
        self.page = self.context.new_page()
        self.told: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.told.append(message.text))
        self.page.on("pageerror", lambda error: self.told.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.own = path.as_uri()

    def outside(self) -> list[str]:
        return [url for url in self.asked if url.split("#")[0] != self.own and not url.startswith(("data:", "blob:"))]

    def table(self):
        root = self.page.locator('[data-table="1"]')
        root.scroll_into_view_if_needed()
        root.locator("table").wait_for()
        return root

    def column(self, root, number: int) -> list[str]:
        return root.locator(f"tbody tr > :nth-child({number})").all_inner_texts()


@pytest.fixture
def tab(browser, files, request):
    made = []

    def open_tab(name: str = "report", **options) -> Tab:
        made.append(Tab(browser, files / f"{name}.html", **options))
        return made[-1]

    yield open_tab
    for one in made:
        assert one.told == [], "the console stays empty"
        assert one.outside() == [], "nothing is asked of the network"
        assert "owned" not in one.page.title()
        one.context.close()


def draw_all(page) -> None:
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    for canvas in page.locator(".canvas").all():
        canvas.scroll_into_view_if_needed()
        canvas.locator(".main-svg").first.wait_for()


@pytest.mark.parametrize("name", ["report", "compare", "index"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_quiet_in_both_themes(tab, name, scheme):
    one = tab(name, color_scheme=scheme)
    if name == "report":
        draw_all(one.page)
        assert one.page.locator(".canvas .main-svg").count() >= 13
    one.page.evaluate("scrollTo(0, 0)")
    one.page.screenshot(path=ARTEFACTS / f"{name}-{scheme}.png", full_page=True)
    assert one.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_figures_are_drawn_only_when_they_come_into_view(tab):
    page = tab().page
    page.wait_for_timeout(300)
    assert page.locator(".main-svg").count() == 0
    page.locator("#f1").scroll_into_view_if_needed()
    page.locator("#f1 .main-svg").first.wait_for()
    assert page.locator("#f10 .main-svg").count() == 0


def test_a_click_sorts_and_another_turns_the_order(tab):
    one = tab("words")
    root = one.table()
    head = root.locator("thead th", has_text="n_spikes")
    assert head.get_attribute("aria-sort") == "none"
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    values = [int(text) for text in one.column(root, 4)]
    assert values == sorted(values, reverse=True)
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    values = [int(text) for text in one.column(root, 4)]
    assert values == sorted(values)
    head.locator("button").press("Enter")
    assert one.column(root, 1)[:2] == names()[:2]


def test_rows_without_a_value_stay_last_either_way(tab):
    one = tab("words")
    root = one.table()
    root.get_by_label("Rows per page").select_option("100")
    for _ in range(2):
        root.locator("thead th", has_text="alpha").locator("button").click()
        values = one.column(root, 5)
        assert len(values) == LAYERS
        missing = [text == "–" for text in values]
        assert missing == sorted(missing)
        assert any(missing)


def test_the_filter_takes_words_and_comparisons(tab):
    one = tab("words")
    root = one.table()
    search = root.get_by_role("searchbox")
    search.fill("self.query")
    assert all("self.query" in name for name in one.column(root, 1))
    search.fill("n_spikes>=5 dense")
    assert all(int(text) >= 5 for text in one.column(root, 4))
    assert all("dense" in name for name in one.column(root, 1))
    search.fill("nothing has this")
    assert root.locator(".count").inner_text().startswith("No row matches the filter.")


def test_pages_columns_and_digits(tab):
    one = tab("words")
    root = one.table()
    assert root.locator(".count").inner_text() == "Rows 1–25 of 60 · 1 column without any value hidden at first"
    root.get_by_role("button", name="Next").click()
    assert one.column(root, 1)[0] == names()[25]
    cell = root.locator("tbody tr").first.locator("td.num").nth(1)
    assert len(cell.get_attribute("title")) > len(cell.inner_text())
    root.locator(".chooser summary").click()
    root.locator(".boxes").get_by_role("button", name="None").click()
    assert root.locator("thead th").count() == 1
    root.locator(".boxes").get_by_label("alpha", exact=True).check()
    assert root.locator("thead th").all_inner_texts() == ["layer_id", "alpha"]
    page = one.page
    page.keyboard.press("Escape")
    assert not root.locator(".boxes").is_visible()


def test_a_wide_table_shows_the_columns_that_its_specification_names(tab):
    root = tab("narrow").table()
    assert root.locator("thead th").all_inner_texts() == ["layer_id", "alpha"]
    assert (
        root.locator(".count").inner_text()
        == "Rows 1–25 of 60 · 37 more columns under Columns · 1 column without any value hidden at first"
    )
    root.locator(".chooser summary").click()
    root.locator(".boxes").get_by_label("n_spikes", exact=True).check()
    assert root.locator("thead th").all_inner_texts() == ["layer_id", "n_spikes count", "alpha"]


def test_csv_holds_the_filtered_rows_with_every_digit(tab, tmp_path):
    one = tab("words")
    root = one.table()
    root.get_by_role("searchbox").fill("intermediate")
    with one.page.expect_download() as waiting:
        root.get_by_role("button", name="CSV").click()
    waiting.value.save_as(tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    frame = document().tables["layers"]
    wanted = frame.filter(frame["layer_id"].str.contains("intermediate"))
    assert [row["layer_id"] for row in rows] == wanted["layer_id"].to_list()
    assert [float(row["alpha"]) if row["alpha"] else None for row in rows] == wanted["alpha"].to_list()
    assert list(rows[0]) == frame.columns


def test_numbers_read_the_same_in_the_browser_and_on_the_server(tab):
    from querist.reports.present import number

    values = [
        0,
        1,
        12345,
        123456.7,
        0.00123456,
        0.0009,
        1.5e-300,
        -2.5,
        999.96,
        2e9,
        1234567.8,
        2.4999e-7,
        0.1,
        33.333333,
        1e6,
    ]
    assert tab("words").page.evaluate("values => values.map(querist.number)", values) == [
        number(value) for value in values
    ]


def test_the_theme_turns_text_and_figures_and_is_remembered(tab):
    page = tab(color_scheme="light").page
    page.locator("#f1").scroll_into_view_if_needed()
    page.locator("#f1 .main-svg").first.wait_for()

    def colours() -> list[str]:
        return page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,"
            " getComputedStyle(document.querySelector('#f1 .xtick text, #f1 .ytick text')).fill]"
        )

    light = colours()
    page.get_by_role("button", name="Switch between light and dark").click()
    dark = colours()
    assert not set(light) & set(dark)
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(tab, scheme):
    """WCAG 2.2, 1.4.3: 4.5 for text; every text colour against the background it stands on."""
    page = tab("words", color_scheme=scheme).page
    one = page.evaluate(CONTRAST)
    assert one["checked"] > 300
    assert one["low"] == []


def test_a_link_unfolds_what_it_leads_to(tab):
    page = tab("words").page
    page.locator("#fold").click()
    assert page.locator("details.section[open]").count() == 0
    page.locator(".toc a", has_text="output.dense").last.click()
    section = page.locator("details.level3[open]")
    section.wait_for()
    assert section.count() == 1
    assert section.evaluate("node => node.parentElement.closest('details').open")


def test_findings_are_filtered_where_they_are_many(tab):
    page = tab("words").page
    group = page.locator(".group").first
    group.get_by_role("searchbox").fill("intermediate no")
    shown = [row for row in group.locator("tbody tr").all() if row.is_visible()]
    assert shown
    assert all("intermediate" in row.inner_text() for row in shown)


def test_everything_is_reached_by_keyboard(tab):
    page = tab("words").page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator("[tabindex]:not([tabindex='0']):not([tabindex='-1'])").count() == 0


def test_a_narrow_screen_shows_everything_without_scrolling_sideways(tab):
    one = tab(viewport={"width": 400, "height": 800})
    draw_all(one.page)
    one.page.evaluate("scrollTo(0, 0)")
    one.page.screenshot(path=ARTEFACTS / "report-narrow.png", full_page=True)
    assert one.page.evaluate("document.documentElement.scrollWidth") <= 400


def test_print_draws_every_figure_and_every_table_and_restores_the_page(tab):
    one = tab(color_scheme="dark")
    page = one.page
    page.locator("#fold").click()
    page.evaluate("window.counted = []; addEventListener('beforeprint', () => counted.push("
                  "[document.querySelectorAll('.canvas .main-svg').length > 12, document.querySelectorAll('.paper table').length,"
                  " document.querySelectorAll('main details:not([open]):not(.chooser)').length]))")  # fmt: skip
    pdf = page.pdf(path=ARTEFACTS / "report.pdf", prefer_css_page_size=True, print_background=True)
    drawn, tables, folded = page.evaluate("counted[0]")
    assert drawn
    assert tables >= 6  # 40 columns take several blocks on A4
    assert folded == 0
    assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") + pdf.count(b"/Type /Page/") >= 10
    assert page.locator(".paper").count() == 0
    assert page.locator("details.section[open]").count() == 0
    assert page.evaluate("document.documentElement.dataset.theme ?? ''") == ""


def test_the_index_sorts_numbers_as_numbers(tab):
    page = tab("index").page
    head = page.locator("th", has_text="Seconds")
    head.get_by_role("button").click()
    assert page.locator("tbody tr td.num").all_inner_texts() == ["9.5", "100", "–"]
    head.get_by_role("button").click()
    assert page.locator("tbody tr td.num").all_inner_texts() == ["100", "9.5", "–"]
    assert head.get_attribute("aria-sort") == "descending"


CONTRAST = """() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3]));
  const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const low = []; let checked = 0;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !node.checkVisibility() || node.closest("script, .sr, svg, :disabled")) continue;
    const layers = [];
    for (let up = node; up; up = up.parentElement) layers.unshift(parse(getComputedStyle(up).backgroundColor));
    const back = layers.reduce((under, top) => over(top, under), [255, 255, 255]);
    const ink = over(parse(getComputedStyle(node).color), back);
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
    checked += 1;
    if ((a + 0.05) / (b + 0.05) < 4.5) low.push(`${node.tagName}.${node.className}: ${((a + 0.05) / (b + 0.05)).toFixed(2)}`);
  }
  return { checked, low: [...new Set(low)] };
}"""
