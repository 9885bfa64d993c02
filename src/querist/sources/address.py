"""The one spelling of sources, models, data and tables: `[SCHEME:]PATH[?key=value&...][#split or #a:b]`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from querist.errors import BadOption, UnknownName, near

__all__ = ["SCHEMES", "Address", "parse"]

SCHEMES: Mapping[str, str] = {
    "npz": "arrays of a numpy archive",
    "idx": "images or labels in the format of MNIST",
    "csv": "a table as comma-separated values",
    "parquet": "a table as Parquet",
    "folder": "a folder of images, one folder inside it for each class",
    "text": "one text a line",
    "hf": "a model or data set of the Hugging Face hub",
    "render": "pictures drawn from a seed",
}
"""What stands before the first colon, and what it means."""

ENDINGS: Mapping[str, str] = {
    ".npz": "npz",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".txt": "text",
    ".jsonl": "text",
    "-ubyte": "idx",
    "-ubyte.gz": "idx",
    ".idx": "idx",
    ".idx.gz": "idx",
    ".pt2": "torch.export",
    ".ts": "torchscript",
    ".jit": "torchscript",
    ".onnx": "onnx",
}
"""What a path's ending means where no scheme is written."""

Kind = Literal["file", "name", "hub", "python"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+-]*):(.*)", re.DOTALL)
_PYTHON = re.compile(
    r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\?([^@]*))?(?:@(.+))?", re.DOTALL
)
_NAME = re.compile(r"[A-Za-z0-9][\w-]*")
_SPLIT = re.compile(r"[A-Za-z_][\w.-]*")
_ROWS = re.compile(r"(\d{0,18}):(\d{0,18})")
_KEY = re.compile(r"[A-Za-z_][\w.-]*")
FORM = "[SCHEME:]PATH[?key=value&...][#split or #a:b]"


@dataclass(frozen=True, slots=True)
class Address:
    """One parsed address. `str()` spells it again, so that `parse(str(address)) == address`.

    `kind` is "file", "name" (a registered data set), "hub" (hf:) or "python" (`package.module:factory`). `path` is the
    path, the name, `org/name`, or the module; `rows` the half-open range of `#a:b`, either end None where it is left out.
    """

    kind: Kind
    path: str
    scheme: str = ""
    options: tuple[tuple[str, str], ...] = ()
    split: str = ""
    rows: tuple[int | None, int | None] | None = None
    factory: str = ""
    weights: str = ""

    def __str__(self) -> str:
        query = "&".join(f"{key}={quote(value, safe='/:,+ ')}" for key, value in self.options)
        query = f"?{query}" if query else ""
        if self.kind == "python":
            return f"{self.path}:{self.factory}{query}" + (f"@{self.weights}" if self.weights else "")
        path = self.path.replace("%", "%25").replace("?", "%3F").replace("#", "%23")
        if self.kind == "file" and not self.scheme and (_NAME.fullmatch(path) or ":" in path.partition("/")[0]):
            path = f"./{path}"
        scheme = f"{self.scheme}:" if self.scheme else ""
        if self.rows is not None:
            return f"{scheme}{path}{query}#" + ":".join("" if end is None else str(end) for end in self.rows)
        return f"{scheme}{path}{query}" + (f"#{self.split}" if self.split else "")

    @property
    def format(self) -> str | None:
        """The scheme, or what the path's ending means; "folder" for a folder, None where neither says anything."""
        if self.scheme:
            return self.scheme
        lower = self.path.lower()
        found = [ending for ending in ENDINGS if lower.endswith(ending)]
        if found:
            return ENDINGS[max(found, key=len)]
        return "folder" if self.kind == "file" and self.local().is_dir() else None

    def local(self) -> Path:
        """The path on this machine: `~` expanded, a registered data set where it lies now.

        Raises UnknownName for a name that is not registered, SourceNotFound for one that is not here, BadOption for an address
        that is no path (hub, Python).
        """
        if self.kind == "name":
            from querist.sources.datasets.registry import locate

            return locate(self.path)
        if self.kind != "file":
            raise BadOption(
                "A path is needed here", value=str(self), allowed="a file, a folder or a registered data set"
            )
        return Path(self.path).expanduser()

    def option(self, key: str, default: str | None = None) -> str | None:
        """The value of one option."""
        return dict(self.options).get(key, default)

    def only(self, allowed: Iterable[str], *, split: bool = False) -> Address:
        """This address, where its options are among `allowed` and it has a split only where that means something.

        Raises UnknownName with near names, BadOption.
        """
        allowed = list(allowed)
        for key, _ in self.options:
            if key not in allowed:
                known = near(key, allowed) if allowed else "no options"
                raise UnknownName(f"The address {self} has an option that means nothing here", value=key, allowed=known)
        if not split and (self.split or self.rows is not None):
            raise BadOption("A part of it cannot be named here", value=str(self), mend="Leave out what follows #")
        return self


def parse(text: str) -> Address:
    """Parse an address. What exists as a path, letter for letter, is that path.

    >>> parse("csv:people.csv?arm=segment#train")
    Address(kind='file', path='people.csv', scheme='csv', options=(('arm', 'segment'),), split='train', rows=None, factory='', weights='')

    Raises BadOption for what is no address, UnknownName for a scheme that does not exist, with near names.
    """
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise BadOption("An empty address", value=text, allowed=FORM)
    if _exists(text):
        return Address("file", _plain(text))
    scheme, rest = "", text
    match, python = _SCHEME.fullmatch(text), _PYTHON.fullmatch(text)
    if match and match[1] in SCHEMES:
        scheme, rest = match[1], match[2]
    elif python and not difflib.get_close_matches(python[1].lower(), SCHEMES, 1, 0.8):
        options = _options(python[3] or "", "&", text)
        return Address("python", python[1], options=options, factory=python[2], weights=python[4] or "")
    elif match:
        raise _unknown_scheme(match[1], text)
    rest, hash_, fragment = rest.partition("#")
    path, mark, query = rest.partition("?")
    if not path:
        raise BadOption("An address without a path", value=text, allowed=FORM)
    options = _options(query, "&", text) if mark else ()
    split, rows = _part(fragment, text) if hash_ else ("", None)
    path = path.replace("%3F", "?").replace("%3f", "?").replace("%23", "#").replace("%25", "%")
    if scheme == "hf":
        return Address("hub", path, scheme, options, split, rows)
    bare = not scheme and _NAME.fullmatch(path) is not None and not _exists(path)
    return Address("name" if bare else "file", path if bare else _plain(path), scheme, options, split, rows)


def _exists(text: str) -> bool:
    try:
        return Path(text).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # too long, or a home folder of nobody
        return False


def _plain(path: str) -> str:
    """A path without leading `./`, which `str()` puts back where it is needed to tell a path from a name."""
    while path.startswith("./") and path[2:].lstrip("/"):
        path = path[2:].lstrip("/")
    return path


def _unknown_scheme(scheme: str, text: str) -> UnknownName:
    return UnknownName(
        f"No such scheme in the address {text}",
        value=scheme,
        allowed=near(scheme, SCHEMES, len(SCHEMES)),
        mend="Write ./ before a path that holds a colon",
    )


def _options(query: str, separator: str, text: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for item in query.split(separator) if query else ():
        key, equals, value = item.partition("=")
        if not equals or not _KEY.fullmatch(key):
            raise BadOption(f"The address {text} has an option that cannot be read", value=item, allowed="key=value")
        pairs.append((key, unquote(value)))
    _distinct(pairs, text)
    return tuple(pairs)


def _distinct(pairs: Iterable[tuple[str, str]], text: str) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise BadOption(f"The address {text} gives one option twice", value=key, allowed="each option once")
        seen.add(key)


def _part(fragment: str, text: str) -> tuple[str, tuple[int | None, int | None] | None]:
    if match := _ROWS.fullmatch(fragment):
        start, stop = (int(end) if end else None for end in match.groups())
        if stop is not None and (start or 0) >= stop:
            raise BadOption(f"The address {text} names no rows", value=fragment, allowed="#a:b with a below b")
        return "", (start, stop)
    if _SPLIT.fullmatch(fragment):
        return fragment, None
    raise BadOption(f"The address {text} names a part that cannot be read", value=fragment, allowed="#split or #a:b")
