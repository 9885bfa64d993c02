"""First sentences of public docstrings, read with `ast` from installed files: real text without a licence question.

No code is run: a package is found by its place, its files are parsed.
"""

from __future__ import annotations

import ast
import functools
import re
import sysconfig
import warnings
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

import numpy as np

from querist.errors import SourceNotFound

__all__ = ["sklearn", "stdlib"]

KINDS = ("module", "class", "function", "method")
"""Labels: what a sentence describes."""
SHORTEST, LONGEST = 4, 60
"""Words of a sentence that is kept."""
_LEFT_OUT = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "externals", "ensurepip"}
)
_END = re.compile(r"(?<=[.!?])\s")


def stdlib() -> tuple[list[str], np.ndarray]:
    """Sentences of Python's standard library and what each describes (index into KINDS)."""
    return _sentences(sysconfig.get_paths()["stdlib"])


def sklearn() -> tuple[list[str], np.ndarray]:
    """Sentences of scikit-learn. Raises SourceNotFound where it is not installed."""
    found = PathFinder.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise SourceNotFound(
            "scikit-learn is not installed", value="docstrings-sklearn", mend="pip install scikit-learn"
        )
    return _sentences(next(iter(found.submodule_search_locations)))


@functools.cache
def _sentences(folder: str) -> tuple[list[str], np.ndarray]:
    """Distinct sentences in order of path and line, the first of each kept."""
    kept: dict[str, int] = {}
    root = Path(folder)
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if _LEFT_OUT.isdisjoint(parts):
            for kind, text in _documented(path):
                if (sentence := _first(text)) is not None:
                    kept.setdefault(sentence, KINDS.index(kind))
    return list(kept), np.array(list(kept.values()), dtype=np.int64)


def _documented(path: Path) -> Iterator[tuple[str, str]]:
    """Public docstrings of one file; nothing for a file that cannot be parsed by this Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return
    if text := ast.get_docstring(tree):
        yield "module", text
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _text(node, "function")
        elif isinstance(node, ast.ClassDef):
            yield from _text(node, "class")
            for inner in node.body if not node.name.startswith("_") else ():
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield from _text(inner, "method")


def _text(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, kind: str) -> Iterator[tuple[str, str]]:
    text = None if node.name.startswith("_") else ast.get_docstring(node)
    if text:
        yield kind, text


def _first(text: str) -> str | None:
    """The first sentence on one line, if it is one of ordinary length."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    sentence = _END.split(paragraph, maxsplit=1)[0]
    return sentence if SHORTEST <= len(sentence.split()) <= LONGEST else None
