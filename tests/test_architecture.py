"""The house keeps its shape: lazy imports, sizes, no forbidden words, no unpickling, no stray skips."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.harness import PATIENCE

from querist.cli import ROOMS

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
HEAVY = ("torch", "sklearn", "scipy", "pandas", "matplotlib", "accelerate", "onnx", "gguf")


def imported_after(code: str) -> set[str]:
    """Heavy packages that a fresh interpreter has loaded after running this code."""
    program = f"import sys\n{code}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    return set(done.stdout.strip().splitlines()[-1].split()) if done.stdout.strip() else set()


@pytest.mark.parametrize(
    "code",
    [
        "import querist",
        "from querist import Result",
        *[f"import querist.{room}" for room in ROOMS],
        *[f"import querist.{room}.commands, querist.{room}.questions, querist.{room}.tables" for room in ROOMS],
        "import querist.claims.commands; from querist.claims.registry import every_claim; every_claim()",
        "import querist.reports.page, querist.reports.index, querist.reports.compare",
    ],
)
def test_importing_loads_nothing_heavy(code):
    assert imported_after(code) == set()


def test_help_of_every_command_loads_nothing_heavy():
    code = (
        "import io, contextlib\n"
        "from docs.generate import command_paths\n"
        "from querist.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    for path in command_paths():\n"
        "        assert main([*path, '--help']) == 0\n"
        "print()"
    )
    assert imported_after(f"sys.path.insert(0, {str(ROOT)!r})\n{code}") == set()


def test_no_module_outgrows_one_idea():
    long = {str(path.relative_to(ROOT)): n for path in SOURCES if (n := len(path.read_text().splitlines())) > 400}
    assert long == {}


def test_every_module_says_what_it_is_and_imports_annotations_late():
    silent = [path for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_nothing_is_unpickled_and_no_code_from_data_runs():
    # TorchScript runs in an interpreter of its own; its pickle has been read as data by then, its code looked through.
    allowed = {"src/querist/sources/taps/torchscript.py: torch.jit.load"}
    banned = re.compile(
        r"pickle\.loads?\(|Unpickler\(\s*\w+\s*\)\.load|allow_pickle=True|weights_only=False|torch\.jit\.load|torch\.export\.load"
        r"|joblib\.load|(?<![\w.])eval\(|(?<![\w.])exec\("
    )
    hits = [f"{path.relative_to(ROOT)}: {m[0]}" for path in SOURCES for m in banned.finditer(path.read_text())]
    assert set(hits) <= allowed


def test_every_all_is_sorted_and_true():
    wrong = []
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
                names = ast.literal_eval(node.value)
                if len(set(names)) != len(names):
                    wrong.append(str(path))
    assert wrong == []


def imported_names(path: Path, base: Path) -> list[str]:
    """Full names of what a file imports from querist, relative imports resolved."""
    place = path.relative_to(base).with_suffix("").parts
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            above = place[: len(place) - node.level] if node.level else ()
            source = ".".join([*above, *([node.module] if node.module else [])])
            found += [f"{source}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return [name for name in found if name.startswith("querist.")]


def borrowed(name: str, own: str) -> bool:
    """Whether the full name of something imported by the module `own` is private to a package that it is no part of."""
    parts = name.split(".")
    owners = [".".join(parts[:i]) for i, part in enumerate(parts) if part.startswith("_") and not part.startswith("__")]
    return not all(own == owner or own.startswith(f"{owner}.") for owner in owners)


def test_a_borrowed_name_is_told_from_a_name_of_the_house():
    wing = "querist.concepts.detectors"
    assert borrowed(f"{wing}._audits.apart_by", "querist.concepts.studies.evidence")
    assert borrowed(f"{wing}._audits._filled", f"{wing}._evaluate")
    assert not borrowed(f"{wing}._audits.apart_by", f"{wing}._evaluate")
    assert not borrowed(f"{wing}.apart_by", "querist.concepts.studies.evidence")
    assert not borrowed("querist.__version__", "querist.cli")


def test_private_modules_and_names_are_imported_in_their_own_package_only():
    # Benchmarks time the inner parts of wings, so for them the underscore of a module counts for nothing, that of a name does.
    house, outside = [], []
    for path in SOURCES:
        own = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        house += [f"{own}: {name}" for name in imported_names(path, ROOT / "src") if borrowed(name, own)]
    for folder in ("benchmarks", "docs", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            private = [name for name in imported_names(path, ROOT) if re.match(r"_[^_]", name.rpartition(".")[2])]
            outside += [f"{path.relative_to(ROOT)}: {name}" for name in private]
    assert house == []
    assert outside == []


def test_the_tree_speaks_of_the_project_alone():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    words = re.compile(
        r"(^|[^A-Za-z0-9_.])/(work|farm)/|pypi\.org|pythonhosted|registry\.npmjs|deb\.debian\.org", re.MULTILINE
    )
    hits = []
    for name in listed:
        path = ROOT / name
        text = path.suffix in {".py", ".md", ".toml", ".txt", ".cff", ".html", ".css", ".js", ".sh"}
        if (text or name in ("Makefile", ".ci/run")) and path != Path(__file__) and path.is_file():
            hits += [name] if words.search(path.read_text(encoding="utf-8")) else []
    assert hits == []


def test_every_skip_is_listed_with_its_reason():
    listed = (ROOT / "tests/SKIPS.md").read_text()
    found = set()
    for path in (ROOT / "tests").rglob("*.py"):
        if path == Path(__file__):
            continue
        for match in re.finditer(r"(?:pytest\.skip|skipif|importorskip|mark\.skip|mark\.xfail)\b", path.read_text()):
            found.add((path.relative_to(ROOT).as_posix(), match[0]))
    missing = sorted({name for name, _ in found if f"`{name}`" not in listed})
    assert missing == []
