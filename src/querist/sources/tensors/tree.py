"""Nested containers to named tensors: checkpoints flattened, wrappers and prefixes undone, the rest accounted for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from querist.errors import CorruptFile
from querist.sources.tensors.opcodes import words
from querist.sources.tensors.ref import PassedOver

__all__ = ["Leaf", "Tree", "flatten", "unwrapped"]

T = TypeVar("T")

WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights", "params", "module")
"""Keys under which checkpoints keep the network, in the order in which they are looked for."""
PREFIXES = ("module.", "_orig_mod.")
"""What DataParallel and torch.compile put before every name."""
DEEPEST = 100
LARGEST = 1_000_000


@dataclass(frozen=True, slots=True)
class Leaf(Generic[T]):
    """A tensor and the keys that lead to it; `owner` is what holds it directly."""

    path: tuple[str, ...]
    value: T
    owner: Any = None


@dataclass(slots=True)
class Tree(Generic[T]):
    """Tensors in order, and every largest part that holds none, with what it is."""

    leaves: list[Leaf[T]] = field(default_factory=list)
    others: list[tuple[tuple[str, ...], str]] = field(default_factory=list)


def flatten(
    root: Any,
    children: Callable[[Any], Sequence[tuple[Any, Any]] | None],
    tensor: Callable[[Any], T | None],
    *,
    source: str,
) -> Tree[T]:
    """Walk nested containers. `children` gives a container's (key, value) pairs, or None for what is none.

    Raises CorruptFile for more than 100 levels or a million entries, which only a file made to do harm has.
    """
    tree: Tree[T] = Tree()
    count = 0
    above: set[int] = set()
    barren: dict[int, Any] = {}  # containers without a tensor, kept so that no other takes their id

    def visit(node: Any, path: tuple[str, ...], owner: Any) -> bool:
        nonlocal count
        count += 1
        if count > LARGEST or len(path) > DEEPEST:
            raise CorruptFile(
                f"The checkpoint has more than {LARGEST} entries or {DEEPEST} levels",
                value=source,
                mend="Save its state dict alone",
            )
        found = tensor(node)
        if found is not None:
            tree.leaves.append(Leaf(path, found, owner))
            return True
        pairs = children(node)
        if pairs is None:
            tree.others.append((path, f"not a tensor ({_kind(node)})"))
            return False
        if id(node) in above:
            raise CorruptFile("The checkpoint holds a container inside itself", value=source)
        before = len(tree.others)
        holds = False
        if id(node) not in barren:
            above.add(id(node))
            for key, value in pairs:
                holds |= visit(value, (*path, words(key)), node)
            above.discard(id(node))
            if not holds:
                barren[id(node)] = node
        if not holds and path:
            del tree.others[before:]
            tree.others.append((path, f"holds no tensor ({len(pairs)} entries)"))
        return holds

    visit(root, (), None)
    return tree


def unwrapped(tree: Tree[T]) -> tuple[list[tuple[str, Leaf[T]]], list[PassedOver]]:
    """Names for the tensors, with the wrapper around the network and common prefixes undone; optimizers passed over."""
    passed: list[PassedOver] = []
    leaves, others = tree.leaves, tree.others
    start: tuple[str, ...] = ()
    while True:
        depth = len(start)
        inside = [leaf for leaf in leaves if leaf.path[:depth] == start]
        tops = list(dict.fromkeys(leaf.path[depth] for leaf in inside if len(leaf.path) > depth + 1))
        optimizers = [top for top in tops if "optim" in top.lower()]
        if optimizers and len(optimizers) < len(tops):
            gone = [leaf for leaf in inside if len(leaf.path) > depth + 1 and leaf.path[depth] in optimizers]
            for top in optimizers:
                count = sum(leaf.path[depth] == top for leaf in gone)
                passed.append(
                    PassedOver(".".join((*start, top)), None, None, f"state of an optimizer ({count} tensors)")
                )
            dropped = {id(leaf) for leaf in gone}
            leaves = [leaf for leaf in leaves if id(leaf) not in dropped]
            under = {(*start, top) for top in optimizers}
            others = [(path, reason) for path, reason in others if path[: depth + 1] not in under]
        wrapper = next((name for name in WRAPPERS if name in tops), None)
        if wrapper is None:
            break
        start = (*start, wrapper)
    passed = [PassedOver(".".join(path) or "the file", None, None, reason) for path, reason in others] + passed
    depth = len(start)
    network = [leaf for leaf in leaves if leaf.path[:depth] == start]
    names = {
        id(leaf): name
        for leaf, name in zip(network, _plain(".".join(leaf.path[depth:]) for leaf in network), strict=True)
    }
    return [(names.get(id(leaf), ".".join(leaf.path)), leaf) for leaf in leaves], passed


def _plain(names: Iterable[str]) -> list[str]:
    """Names without a prefix that every one of them has, where something is left behind it."""
    names = list(names)
    while names:
        prefix = next((p for p in PREFIXES if all(name.startswith(p) and len(name) > len(p) for name in names)), None)
        if prefix is None:
            break
        names = [name.removeprefix(prefix) for name in names]
    return names


def _kind(node: Any) -> str:
    if node is None:
        return "None"
    return f"{type(node).__name__} {words(node)[:40]}" if isinstance(node, (bool, int, float)) else type(node).__name__
