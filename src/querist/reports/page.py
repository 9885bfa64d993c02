"""The page: one self-contained HTML file drawn from a document. Verdicts first; nothing is fetched, nothing is sent."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from querist.errors import InvariantBroken
from querist.reports.budget import PAGE_BYTES, TABLE_BYTES, embed, fair_limit, fit_figures, table_json
from querist.reports.document import Document
from querist.reports.present import NEWS, chosen, full, groups, number, questions_of, tally
from querist.results.layout import Section
from querist.results.table import Column, TableSpec

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["asset", "draw", "fill", "prepare", "render", "reproduce", "specification"]

FINDING_ROWS = 2000
"""Findings that a page spells out, about 1000 bytes each; the others are counted and lie in findings.parquet."""
LISTED = 300
"""Entries of a list (passed over, warnings, inputs) that a page spells out."""
POSITIONAL = ("source", "base", "tuned", "model", "models", "data", "table", "run")
"""Config fields that commands take by position."""


def render(document: Document, *, reload: int | None = None) -> str:
    """A document as one HTML page of less than `PAGE_BYTES`, which opens without a network.

    `reload` makes the page load itself again after that many seconds. Figures and rows that would make the page too
    heavy are left out, each told with the file that holds it. Raises InvariantBroken where the layout names a table or
    figure that the document does not have, or where words alone exceed the budget.
    """
    room = PAGE_BYTES - len(_plotly()) - TABLE_BYTES - 250_000
    over = 0
    for _ in range(4):
        page = draw("page.html", _scripts(document), **_view(document, room), reload=reload)
        over = len(page.encode()) - PAGE_BYTES
        if over <= 0:
            return page
        room = max(0, room - over - 20_000)
    raise InvariantBroken(f"the page of {document.layout.title} is {over} bytes too heavy even without figures")


def prepare() -> None:
    """Load what the first page needs (the templates, plotly.js), for those who draw within a limit of time."""
    _plotly()
    _environment().get_template("page.html")


def draw(template: str, scripts: Iterable[str], **view: Any) -> str:
    """A template with the stylesheet and these scripts in it, and a policy that lets nothing else run or load."""
    code = [script.replace("\r", "") for script in scripts]
    policy = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; style-src 'unsafe-inline'"
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in code)
    policy += f"; script-src {hashes}" if code else ""
    return fill(template, policy=policy, style=asset("page.css"), scripts=code, **view)


def fill(template: str, **view: Any) -> str:
    """A template filled, every value escaped, letters that UTF-8 cannot hold replaced."""
    return _environment().get_template(template).render(**view).encode("utf-8", "replace").decode()


def asset(name: str) -> str:
    """The text of a file in `assets`."""
    return (files("querist.reports") / "assets" / name).read_text(encoding="utf-8")


def specification(document: Document, name: str) -> TableSpec:
    """How a table's columns are described; those of a table without a specification are named only."""
    for spec in document.layout.tables:
        if spec.name == name:
            return spec
    if name not in document.tables:
        raise InvariantBroken(f"the layout names a table {name} that the answer does not have")
    kinds = {"Int": "int", "UInt": "int", "Float": "float", "Boolean": "bool", "List": "list[str]"}
    columns = []
    for column, dtype in document.tables[name].schema.items():
        kind: Any = next((kind for start, kind in kinds.items() if str(dtype).startswith(start)), "str")
        columns.append(Column(column, kind, ""))
    return TableSpec(name, "", tuple(columns))


def reproduce(header: Mapping[str, Any]) -> str:
    """The command line that asks the same again: as it was typed, but for the folder, which is taken; else from the config."""
    if header.get("argv"):
        return shlex.join(["querist", *_without_folder([str(word) for word in header["argv"]])])
    config = dict(header.get("config") or {})
    words = ["querist", str(header["room"]), str(header["command"])]
    for name in POSITIONAL:
        value = config.pop(name, None)
        words += [str(one) for one in (value if isinstance(value, list | tuple) else [value]) if one not in (None, "")]
    config.setdefault("seed", header.get("seed"))
    for name, value in config.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else "--no-" + flag[2:])
        elif isinstance(value, list | tuple):
            words += [word for one in value for word in (flag, str(one))]
        elif isinstance(value, Mapping):
            words += [word for key, one in value.items() for word in (f"{flag}.{key}", str(one))]
        elif value is not None and (name, value) != ("device", "auto"):
            words += [flag, str(value)]
    return shlex.join(words)


def _without_folder(argv: Sequence[str]) -> Iterator[str]:
    """The words without --out and --resume: the folder they name holds the answer already."""
    words = iter(argv)
    for word in words:
        if word == "--out":
            next(words, None)
        elif word != "--resume" and not word.startswith("--out="):
            yield word


def _scripts(document: Document) -> list[str]:
    own = [asset(name) for name in ("theme.js", "tables.js", "page.js")]
    return [*own, _plotly(), asset("figures.js")] if document.figures else own


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    code = get_plotlyjs()
    if "</script" in code or "<!--" in code:
        raise InvariantBroken("this version of plotly.js cannot stand inside a page")
    return code


@cache
def _environment():
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("querist.reports", "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"number": number, "full": full, "embed": embed, "breakable": _breakable}
    made.globals |= {"NEWS": NEWS, "LISTED": LISTED}
    return made


def _breakable(text: str) -> Markup:
    """A dotted or slashed name that may break after its parts rather than inside a word."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([./:_-]+)(?=\w)", r"\1<wbr>", str(escape(text))))


def _view(document: Document, room: int) -> dict[str, Any]:
    """Everything the template shows, as plain values. `room` is what figures may weigh, in bytes."""
    layout, findings = document.layout, list(document.findings)
    questions = questions_of(findings, layout.questions)
    sections = _sections(document)
    names = list(dict.fromkeys(name for section in sections for name in section.figures))
    for name in names:
        if name not in document.figures:
            raise InvariantBroken(f"the layout names a figure {name} that the answer does not have")
    tables = _tables(document, sections)
    rows_left, view, where = FINDING_ROWS, [], {}
    for position, section in enumerate(sections):
        shown = groups(chosen(findings, section.findings), questions)
        cut = []
        for group in shown:
            cut.append({"question": group.question, "rows": group.rows[: max(rows_left, 0)], "total": len(group.rows)})
            rows_left -= len(group.rows)
            for row in group.rows:
                where.setdefault(row.finding.question, f"s{position + 1}")
        view.append({"id": f"s{position + 1}", "section": section, "groups": cut})
    spelled = (row.finding for one in view for group in one["groups"] for row in group["rows"])
    spent = sum(880 + len(finding.because) + len(finding.subject) for finding in spelled)
    kept, heavy = fit_figures(names, document.figures, room - spent)
    return {
        "document": document,
        "header": document.header,
        "summary": document.summary,
        "layout": layout,
        "tally": tally(findings, questions),
        "totals": _totals(findings, questions),
        "where": where,
        "tree": _tree(view),
        "tables": tables,
        "figures": {name: (number_, document.figures[name]) for number_, name in enumerate(names, 1)},
        "kept": kept,
        "heavy": heavy,
        "command": reproduce(document.header),
        "paths": document.summary.get("tables") or {},
    }


def _sections(document: Document) -> list[Section]:
    """The layout's sections, then findings that none of them shows and tables that only figures refer to."""
    sections = list(document.layout.sections)
    pairs = [pair for section in sections for pair in section.findings]
    seen = {id(finding) for finding in chosen(document.findings, pairs)}
    rest = tuple(dict.fromkeys((f.subject, f.question) for f in document.findings if id(f) not in seen))
    if rest:
        sections.append(Section("Further findings", findings=rest))
    told = {name for section in sections for name in section.tables}
    drawn = (document.figures.get(name) for section in sections for name in section.figures)
    behind = dict.fromkeys(f.table for f in drawn if f is not None and f.table and f.table not in told)
    behind = tuple(name for name in behind if name in document.tables)
    if behind:
        sections.append(Section("Numbers behind the figures", tables=behind, open=False))
    return sections


def _tables(document: Document, sections: Iterable[Section]) -> dict[str, dict[str, Any]]:
    names = list(dict.fromkeys(name for section in sections for name in section.tables))
    specs = {name: specification(document, name) for name in names}
    paths = document.summary.get("tables") or {}
    texts = {}
    for name, spec in specs.items():
        if name not in document.tables:
            raise InvariantBroken(f"the layout names a table {name} that the answer does not have")
        texts[name] = table_json(spec, document.tables[name], TABLE_BYTES, paths.get(name))
    limit = fair_limit(map(len, texts.values()), TABLE_BYTES)
    for name, text in texts.items():
        if len(text) > limit:
            texts[name] = table_json(specs[name], document.tables[name], limit, paths.get(name))
    return {
        name: {"number": position, "spec": specs[name], "json": texts[name], "height": document.tables[name].height}
        for position, name in enumerate(names, 1)
    }


def _totals(findings: Iterable[Any], questions: Mapping[str, Any]) -> dict[str, int]:
    counts = dict.fromkeys(NEWS, 0)
    for row in tally(findings, questions):
        for part in row["parts"]:
            counts[part["news"]] += part["count"]
    return counts


def _tree(view: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sections of level 3 inside the section of level 2 that they follow, so that headings are in order."""
    tree: list[dict[str, Any]] = []
    for one in view:
        one["children"] = []
        if one["section"].level > 2 and tree:
            tree[-1]["children"].append(one)
        else:
            tree.append(one)
    return tree
