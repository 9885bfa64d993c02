"""The documentation says what the code says."""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
from pathlib import Path

import pytest
from docs.generate import REFERENCE, SHARED, command_paths, members, pages

from querist.cli import ROOMS, app
from querist.results.question import Question
from querist.results.table import TableSpec
from querist.runs.study import StudyConfig

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", sorted(pages()))
def test_reference_pages_are_up_to_date(name):
    path = REFERENCE / name
    assert path.is_file(), "run python -m docs.generate"
    assert path.read_text(encoding="utf-8") == pages()[name] + "\n", "run python -m docs.generate"


def test_every_command_is_documented():
    text = (REFERENCE / "commands.md").read_text(encoding="utf-8")
    assert len(command_paths()) >= 6
    for path in command_paths():
        assert f"## querist {' '.join(path)}\n" in text


def test_the_readme_names_every_command():
    rows = re.findall(r"^\| `querist ([^`]+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {next(path for path in command_paths() if tuple(row.split()[: len(path)]) == path) for row in rows}
    assert named == set(command_paths())


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_commands_that_can_be_pasted_are_understood(page):
    blocks = re.findall(
        r"^```(?:sh|bash|text)?\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    lines = [
        line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("querist ")
    ]
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_every_field_column_and_question_has_its_meaning(room):
    configs = importlib.import_module(f"querist.{room}.configs")
    for name in configs.__all__:
        config = getattr(configs, name)
        if inspect.isclass(config) and issubclass(config, StudyConfig):
            for field, info in config.model_fields.items():
                assert info.description, f"{name}.{field}"
    for table in members(f"querist.{room}.tables", TableSpec):
        assert table.meaning.endswith(".")
        for column in table.columns:
            assert column.meaning.endswith((".", "…", ":")), f"{table.name}.{column.name}"
    for question in members(f"querist.{room}.questions", Question):
        assert question.id.startswith(f"{room}.")
        assert [other.id for other in members(f"querist.{room}.questions", Question)].count(question.id) == 1
        assert question.ask.endswith("?")


@pytest.mark.parametrize("module_name", [*SHARED, *[f"querist.{r}" for r in ROOMS]])
def test_every_public_name_has_a_docstring(module_name):
    module = importlib.import_module(module_name)
    bare = [name for name in module.__all__ if not name.startswith("__") and not inspect.getdoc(getattr(module, name))]
    assert bare == []


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_the_rooms_page_explains_every_question(room):
    text = (ROOT / "docs" / f"{room}.md").read_text(encoding="utf-8")
    for question in members(f"querist.{room}.questions", Question):
        assert f"`{question.id}`" in text


def test_the_claims_page_explains_every_claim():
    from querist.claims.registry import every_claim

    text = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    for claim in every_claim():
        assert f"`{claim}`" in text


def test_links_between_pages_lead_somewhere():
    pages_and_readme = [
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "ARCHITECTURE.md",
    ]
    broken = []
    for page in pages_and_readme:
        targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text(encoding="utf-8"))
        broken += [f"{page.name}: {target}" for target in targets if not (page.parent / target).exists()]
    assert broken == []
