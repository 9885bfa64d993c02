"""Write the reference pages from the code: commands, options, questions, tables, public names.

`python -m docs.generate` writes them; a test fails when they differ from what the code says.
"""

from __future__ import annotations

import importlib
import inspect
import io
from pathlib import Path

from querist.claims import ledger as claims_ledger
from querist.claims.claim import SOURCES
from querist.claims.configs import SIZES, ClaimsConfig
from querist.claims.registry import every_claim
from querist.cli import ROOMS, app
from querist.results.question import Question
from querist.results.table import TableSpec
from querist.runs.study import StudyConfig

REFERENCE = Path(__file__).parent / "reference"
SHARED = (
    "querist",
    "querist.statistics",
    "querist.training",
    "querist.training.adapters",
    "querist.training.losses",
    "querist.errors",
    "querist.claims",
)


def pages() -> dict[str, str]:
    """File name to content of every reference page."""
    rooms = {f"{room}.md": room_page(room) for room in ROOMS}
    return {"commands.md": commands(), "api.md": api(), "claims.md": claims_page(), **rooms}


def commands() -> str:
    """Every command with the text of its --help."""
    parts = [
        "# Commands",
        "",
        "Every command exits with 0 done, 1 failed, 2 bad input or usage, 3 a gate tripped, 130 interrupted.",
        "",
    ]
    for path in command_paths():
        parts += [f"## querist {' '.join(path)}", "", "```text", help_text(path), "```", ""]
    return "\n".join(parts)


def command_paths() -> list[tuple[str, ...]]:
    """Every command as a tuple of words, groups left out."""
    found: list[tuple[str, ...]] = []

    def walk(node, path: tuple[str, ...]) -> None:
        for name in node:
            if name.startswith("-"):
                continue
            child = node[name]
            if any(not inner.startswith("-") for inner in child):
                walk(child, (*path, name))
            else:
                found.append((*path, name))

    walk(app, ())
    return found


def help_text(path: tuple[str, ...]) -> str:
    """What --help prints, at 100 columns without colours."""
    from rich.console import Console

    out = io.StringIO()
    app.help_print([*path], console=Console(file=out, width=100, color_system=None, legacy_windows=False))
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())


def room_page(room: str) -> str:
    """Questions, options and tables of a room."""
    parts = [f"# {room}: questions, options, tables", "", ROOMS[room], "", "## Questions", ""]
    for question in members(f"querist.{room}.questions", Question):
        parts += [f"### {question.id}", "", question.ask, ""]
        parts += [f"- Unit of the estimate: {question.unit}", f"- Null: {question.null}", f"- Rule: {question.rule}"]
        parts += [f"- Good news: {question.welcome or 'neither answer'}", ""]
    configs = importlib.import_module(f"querist.{room}.configs")
    parts += ["## Options", ""]
    for name in configs.__all__:
        config = getattr(configs, name)
        if inspect.isclass(config) and issubclass(config, StudyConfig):
            parts += options(name, config)
    parts += ["## Tables", ""]
    for table in members(f"querist.{room}.tables", TableSpec):
        parts += columns(table)
    return "\n".join(parts)


def options(name: str, config: type) -> list[str]:
    """A config's fields."""
    head = [f"### {name}", "", inspect.getdoc(config) or "", "", "| field | default | meaning |", "| --- | --- | --- |"]
    fields = config.model_fields.items()  # type: ignore[attr-defined]
    return [*head, *(f"| `{field}` | `{i.default!r}` | {cell(i.description or '')} |" for field, i in fields), ""]


def columns(table: TableSpec) -> list[str]:
    """A table's columns."""
    head = [
        f"### {table.name}",
        "",
        table.meaning,
        "",
        "| column | kind | unit | meaning |",
        "| --- | --- | --- | --- |",
    ]
    return [*head, *(f"| `{c.name}` | {c.kind} | {c.unit} | {cell(c.meaning)} |" for c in table.columns), ""]


def claims_page() -> str:
    """Every claim with its source, protocol, rule and sizes; the options and the tables of a ledger."""
    parts = ["# Claims: what is claimed, how it is tested, by which rule", ""]
    for claim in every_claim().values():
        parts += [f"## {claim.id}", "", claim.statement, ""]
        parts += [f"- Source: {SOURCES[claim.source]}; {claim.reference}", f"- Protocol: {claim.protocol}"]
        parts += [f"- Rule: {claim.rule}", f"- Estimate: {claim.unit}; null: {claim.null}"]
        parts += [f"- {size}: {claim.sizes[size].told()}" for size in SIZES]
        parts.append("")
    parts += ["## Options", "", *options("ClaimsConfig", ClaimsConfig), "## Tables", ""]
    for table in (claims_ledger.LEDGER, claims_ledger.PIECES):
        parts += columns(table)
    families = {claim.family.name: claim.family for claim in every_claim().values()}
    for table in {table.name: table for family in families.values() for table in family.tables}.values():
        parts += columns(table)
    return "\n".join(parts)


def api() -> str:
    """Every public name with its signature and docstring."""
    parts = ["# Python API", ""]
    for module_name in (*SHARED, *(f"querist.{room}" for room in ROOMS)):
        module = importlib.import_module(module_name)
        parts += [f"## {module_name}", "", (inspect.getdoc(module) or "").strip(), ""]
        for name in module.__all__:
            value = getattr(module, name)
            if name.startswith("__") or inspect.ismodule(value):
                continue
            parts += [
                f"### {name}",
                "",
                "```text",
                f"{name}{signature(value)}",
                "",
                inspect.getdoc(value) or "",
                "```",
                "",
            ]
    return "\n".join(parts)


def signature(value: object) -> str:
    """The signature without its module paths, empty where there is none."""
    try:
        return str(inspect.signature(value)).replace("querist.", "")  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""


def members(module_name: str, kind: type) -> list:
    """The public members of a module that are of this kind, in the order of the file."""
    module = importlib.import_module(module_name)
    public = {id(getattr(module, name)) for name in module.__all__}
    return [value for value in vars(module).values() if isinstance(value, kind) and id(value) in public]


def cell(text: str) -> str:
    """Text that may stand in a Markdown table."""
    return text.replace("|", "\\|")


def main() -> None:
    """Write every page that differs."""
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        path = REFERENCE / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text + "\n":
            path.write_text(text + "\n", encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main()
