"""What can be tapped: sites with names, the words and patterns that choose among them, blocks of a network."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, Protocol

from querist.errors import BadOption, UnknownName
from querist.sources.tensors.ref import PassedOver

if TYPE_CHECKING:
    import torch

__all__ = [
    "LAYER_WORDS",
    "Key",
    "Network",
    "Receive",
    "Site",
    "Survey",
    "block_of",
    "numbered",
    "renamed",
    "select",
    "surveyed",
]

LAYER_WORDS: Mapping[str, str] = {
    "preactivation": "the argument of every activation, and the logits",
    "blocks": "one value for each block, the activations outside of blocks, and the logits",
    "logits": "the network's output, before a softmax or sigmoid that ends it",
}
"""Words that choose layers, and what they mean."""

Kind = Literal["preactivation", "block", "output", "logits"]
Key = tuple[Any, ...]
"""How an engine finds a site again: hashable, equal in every forward pass."""
Receive = Callable[[Key, "torch.Tensor"], None]
"""Takes a value at the moment it exists. It may be overwritten in place right after: copy or reduce it at once."""

_CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")


@dataclass(frozen=True, slots=True)
class Site:
    """One place in a network whose value can be read.

    `shape` is that of one row, without the batch axis; `batch_axis` is where the batch axis stands (1 in recurrent networks
    that put time first). `layout` says where the units are when a row has several axes: "first" (C, H, W) behind
    convolutions, "last" (T, C) behind linear layers and embeddings. `operation` is the activation or the module's class.
    """

    name: str
    kind: Kind
    operation: str
    shape: tuple[int, ...]
    key: Key
    layout: Literal["first", "last"] = "first"
    batch_axis: int = 0
    block: str = ""

    @property
    def width(self) -> int:
        """Number of units."""
        if not self.shape:
            return 1
        return self.shape[0] if self.layout == "first" else self.shape[-1]


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything found in one forward pass, in its order.

    `silent` lists places that gave no usable value, with the kind of site they would have been; `row_bytes` is the size of
    the largest value of one row, in bytes of float32.
    """

    sites: tuple[Site, ...]
    silent: tuple[tuple[Kind, PassedOver], ...] = ()
    row_bytes: int = 0


class Network(Protocol):
    """A network of any form, ready to be looked at and run.

    `fixed_batch` is the one batch size that an exported program takes, None where any will do; `holds_all` says that all
    values of a batch exist at once (graphs with added outputs).
    """

    name: str
    form: str
    fixed_batch: int | None
    holds_all: bool

    def ready(self, device: str) -> AbstractContextManager[list[str]]:
        """Put the network into the state in which it is read, and back on exit. Gives what a user should be told."""
        ...

    def survey(self, inputs: Any) -> Survey:
        """Run once and say what there is."""
        ...

    def run(self, inputs: Any, keys: Collection[Key], receive: Receive) -> None:
        """Run once and hand over the values of these sites."""
        ...


def numbered(names: Sequence[str]) -> list[str]:
    """Names of calls in order: one that occurs once stays, others get `#1`, `#2`, ...

    >>> numbered(["stem", "relu", "relu"])
    ['stem', 'relu#1', 'relu#2']
    """
    total: dict[str, int] = {}
    for name in names:
        total[name] = total.get(name, 0) + 1
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if total[name] == 1 else f"{name}#{seen[name]}")
    return out


def surveyed(
    sites: Sequence[Site], silent: Iterable[tuple[Kind, PassedOver]], run: Callable[[list[Key], Receive], None]
) -> Survey:
    """The survey of a graph whose sites are known but for their shapes, by one run(keys, receive) of it.

    What the run does not reach is no site; a value that is empty or a single number is silent, as in a module.
    """
    shapes: dict[Key, tuple[int, ...]] = {}
    largest = 0

    def receive(key: Key, value: torch.Tensor) -> None:
        nonlocal largest
        shapes[key] = tuple(value.shape)
        largest = max(largest, 4 * value.numel())

    run([site.key for site in sites], receive)
    found, useless = [], []
    for site in sites:
        shape = shapes.get(site.key)
        if shape and 0 not in shape:
            found.append(replace(site, shape=shape))
        elif shape is not None:
            reason = "its value has length 0" if shape else "its value is a single number"
            useless.append((site.kind, PassedOver(site.name, shape, None, reason)))
    return Survey(tuple(found), (*silent, *useless), largest)


def block_of(path: str, kinds: Mapping[str, str], children: Mapping[str, Collection[str]]) -> str:
    """The block that a module belongs to: the outermost module above it (or itself) that is numbered and is no mere container.

    `kinds` maps module paths to class names, "" where it is not known; `children` to the names of their children. A
    Sequential counts as a block where all its children are leaves; where the class is unknown, one whose children are all
    numbers is taken for a container. Returns "" where there is none.

    >>> block_of("layer1.0.conv1", {"layer1": "Sequential", "layer1.0": "BasicBlock"}, {"layer1": "0", "layer1.0": ["conv1"]})
    'layer1.0'
    """
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        prefix = ".".join(parts[:end])
        below = children.get(prefix)
        if not parts[end - 1][-1:].isdigit() or not below:
            continue
        kind = kinds.get(prefix, "")
        if kind in _CONTAINERS and any(children.get(f"{prefix}.{child}") for child in below):
            continue
        if not kind and all(child.isdigit() for child in below):
            continue
        return prefix
    return ""


def select(survey: Survey, layers: str | Sequence[str]) -> tuple[tuple[Site, ...], tuple[PassedOver, ...]]:
    """The sites that words and patterns choose, in forward order, each once; and what they would have chosen but cannot.

    A pattern is looked for among the arguments of activations and the logits first, then among blocks, then among the
    outputs of all modules (`path:key` names one item of an output of several); the first of the three that has a match
    decides. Raises UnknownName with the nearest five names, BadOption for an empty list.
    """
    patterns = [
        piece.strip() for text in ([layers] if isinstance(layers, str) else layers) for piece in text.split(",")
    ]
    patterns = [pattern for pattern in patterns if pattern]
    if not patterns:
        raise BadOption(
            "No layers are chosen", value=layers, allowed=f"{', '.join(LAYER_WORDS)}, or a pattern of names"
        )
    chosen: dict[Key, Site] = {}
    missing: dict[str, PassedOver] = {}
    for pattern in patterns:
        sites, silent = _matches(survey, pattern)
        if not sites and not silent:
            names = [site.name for site in survey.sites] + list(LAYER_WORDS)
            raise UnknownName(
                "No layer of the network has such a name",
                value=pattern,
                allowed=_nearest(pattern, names),
                mend=f"Words are {', '.join(LAYER_WORDS)}; patterns are like layer2.*",
            )
        for site in sites:
            chosen.setdefault(site.key, site)
        missing |= {row.what: row for row in silent}
    order = {site.key: place for place, site in enumerate(survey.sites)}
    return tuple(sorted(chosen.values(), key=lambda site: order[site.key])), tuple(missing.values())


def _matches(survey: Survey, pattern: str) -> tuple[list[Site], list[PassedOver]]:
    of = {kind: [s for s in survey.sites if s.kind == kind] for kind in ("preactivation", "block", "output", "logits")}
    if pattern == "logits":
        return of["logits"], [row for kind, row in survey.silent if kind == "logits"]
    if pattern in ("preactivation", "blocks"):
        ends = {site.key for site in of["logits"]}
        outside = [s for s in of["preactivation"] if s.key not in ends]
        if pattern == "blocks" and of["block"]:
            outside = [s for s in outside if not s.block] + of["block"]
        kinds = ("preactivation", "logits") if pattern == "preactivation" else ("block", "logits")
        return outside + of["logits"], [row for kind, row in survey.silent if kind in kinds]
    for kinds in (("preactivation", "logits"), ("block",), ("output",)):
        sites = [site for kind in kinds for site in of[kind] if fnmatchcase(site.name, pattern)]
        if sites:
            return sites, []
    return [], [row for _, row in survey.silent if fnmatchcase(row.what, pattern)]


def _nearest(pattern: str, names: Iterable[str]) -> str:
    plain = re.sub(r"[*?\[\]]", "", pattern)
    return ", ".join(difflib.get_close_matches(plain, list(dict.fromkeys(names)), 5, cutoff=0.0))


def renamed(sites: Iterable[Site]) -> tuple[Site, ...]:
    """Sites with `#1`, `#2` behind names that occur several times among sites of one kind."""
    sites = list(sites)
    out: dict[int, Site] = {}
    for kind in ("preactivation", "block", "output", "logits"):
        places = [place for place, site in enumerate(sites) if site.kind == kind]
        for place, name in zip(places, numbered([sites[place].name for place in places]), strict=True):
            out[place] = replace(sites[place], name=name)
    return tuple(out[place] for place in range(len(sites)))
