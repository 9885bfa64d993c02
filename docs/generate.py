"""Write the reference pages from the code: commands, options, questions, tables, public names.

`python -m docs.generate` writes them; a test fails when they differ from what the code says.
"""

from __future__ import annotations

import importlib
import inspect
import io
from pathlib import Path

from querist.cli import ROOMS, app
from querist.results.question import Question
from querist.results.table import TableSpec

REFERENCE = Path(__file__).parent / "reference"
SHARED = (
    "querist",
    "querist.statistics",
    "querist.training",
    "querist.training.adapters",
    "querist.training.losses",
    "querist.errors",
)


def pages() -> dict[str, str]:
    """File name to content of every reference page."""
    return {"commands.md": commands(), "api.md": api(), **{f"{room}.md": room_page(room) for room in ROOMS}}


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
        if inspect.isclass(config):
            parts += [
                f"### {name}",
                "",
                inspect.getdoc(config) or "",
                "",
                "| field | default | meaning |",
                "| --- | --- | --- |",
            ]
            for field, info in config.model_fields.items():
                parts.append(f"| `{field}` | `{info.default!r}` | {cell(info.description or '')} |")
            parts.append("")
    parts += ["## Tables", ""]
    for table in members(f"querist.{room}.tables", TableSpec):
        parts += [
            f"### {table.name}",
            "",
            table.meaning,
            "",
            "| column | kind | unit | meaning |",
            "| --- | --- | --- | --- |",
        ]
        parts += [f"| `{c.name}` | {c.kind} | {c.unit} | {cell(c.meaning)} |" for c in table.columns]
        parts.append("")
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
