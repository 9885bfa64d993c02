"""A survey: the events of one forward pass of a module become sites, with names, blocks and what is silent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from querist.sources.taps.activations import is_activation, layout_of
from querist.sources.taps.functions import first_tensor, items
from querist.sources.taps.sites import Key, Kind, Site, Survey, block_of, renamed
from querist.sources.tensors.ref import PassedOver

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Book"]


class Book:
    """Events of one forward pass, kept in order until they become sites."""

    def __init__(
        self, parts: Mapping[str, nn.Module], kinds: Mapping[str, str], children: Mapping[str, Collection[str]]
    ):
        self.parts, self.kinds, self.children = parts, kinds, children
        self.counts: dict[tuple[str, str], int] = {}
        self.rows: list[
            tuple[Kind, str, str, Key, Any, str, str]
        ] = []  # kind, name, operation, key, shape, layout, block
        self.made: dict[int, tuple[Key, Any, int]] = {}
        self.shapes: dict[Key, tuple[int, ...] | None] = {}
        self.seen: set[str] = set()
        self.mixed: set[str] = set()
        self.layout = "first"
        self.largest = 0
        self.pending: list[Key] = []

    def sight(self, what: str, base: str, operation: str, value: Any) -> None:
        """One event."""
        if what == "result":
            key, tensor = self.pending.pop(), first_tensor(value)
            if tensor is not None:  # it is held, so that its id stays its own
                self.made[id(tensor)] = (key, tensor, tensor._version)
            return
        place = self.counts[what, base] = self.counts.get((what, base), 0) + 1
        if what in ("call", "softmax"):
            key = (what, base, place)
            self.pending.append(key)
            tensor = first_tensor(value)
            self._note(tensor)
            self.shapes[key] = None if tensor is None else tuple(tensor.shape)
            if base in self.parts and operation != type(self.parts[base]).__name__:
                self.mixed.add(base)
            if what == "call":
                owner = base if base in self.parts else base.rpartition(".")[0]
                self.rows.append(("preactivation", base, operation, key, tensor, self.layout, self._block(owner)))
            return
        self.seen.add(base)
        self.layout = layout_of(self.parts[base]) or self.layout
        if base and self._block(base) == base:
            tensor = first_tensor(value)
            end = self._before(tensor, ("end", base, place, ""))
            self.rows.append(
                ("block", base, operation, end, _Shape.of(self.shapes.get(end)) or tensor, self.layout, base)
            )
        if base:
            found = items(value)
            for path, tensor in found:
                self._note(tensor)
                self.rows.append(
                    (
                        "output",
                        base + path,
                        operation,
                        ("end", base, place, path),
                        tensor,
                        self.layout,
                        self._block(base),
                    )
                )
            if not found:
                self.rows.append(
                    ("output", base, operation, ("end", base, place, ""), None, self.layout, self._block(base))
                )

    def close(self, output: Any) -> Survey:
        """Sites and what is silent."""
        tensor = first_tensor(output)
        end = self._before(tensor, ("output",))
        shape = _Shape.of(self.shapes.get(end)) or tensor
        self.rows.append(("logits", "logits", type(self.parts[""]).__name__, end, shape, self.layout, ""))
        sites: list[Site] = []
        silent: list[tuple[Kind, PassedOver]] = []
        for kind, name, operation, key, value, layout, block in self.rows:
            if value is None:
                silent.append((kind, PassedOver(name, None, None, "it returns no tensor")))
            elif not value.shape or 0 in value.shape:
                reason = "its value has length 0" if value.shape else "its value is a single number"
                silent.append((kind, PassedOver(name, tuple(value.shape), None, reason)))
            else:
                sites.append(Site(name, kind, operation, tuple(value.shape), key, layout, block=block))  # pyright: ignore[reportArgumentType]
        for path, part in self.parts.items():
            if path and path not in self.seen and not _only_holds(part):
                kind = "block" if self._block(path) == path else "preactivation" if is_activation(part) else "output"
                silent.append((kind, PassedOver(path, None, None, "it is never called")))
        return Survey(renamed(sites), tuple(silent), self.largest)

    def _before(self, tensor: Any, otherwise: Key) -> Key:
        """Where the argument of the activation that made this tensor is read, if one did and nothing has changed it since."""
        key, _, version = self.made.get(id(tensor), (otherwise, None, None))
        return key if version is not None and tensor._version == version else otherwise

    def _block(self, path: str) -> str:
        return block_of(path, self.kinds, self.children)

    def _note(self, tensor: Any) -> None:
        if tensor is not None:
            self.largest = max(self.largest, 4 * tensor.numel())


class _Shape:
    """Stands for a tensor of which only the shape is still known."""

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape

    @classmethod
    def of(cls, shape: tuple[int, ...] | None) -> _Shape | None:
        return None if shape is None else cls(shape)


def _only_holds(part: nn.Module) -> bool:
    """ModuleList and ModuleDict are never called."""
    from torch import nn

    return isinstance(part, nn.ModuleList | nn.ModuleDict | nn.ParameterList | nn.ParameterDict)
