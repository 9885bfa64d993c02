"""The blocks of a network in forward order, and what freezing the first k of them freezes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from querist.errors import BadOption, UnknownName, near
from querist.sources.taps.functions import first_tensor
from querist.sources.taps.hooks import ModuleNetwork
from querist.sources.taps.sites import block_of

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["WORDS", "Blocks", "find_blocks", "is_norm", "run"]

WORDS = ("blocks", "stages")
"""Words for blocks: the network's repeated parts, and the containers that hold several of them."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks 1 … K of a network.

    `names` are their module paths in forward order; `stages` the numbers of blocks at which a stage ends, K the last;
    `head` the path of the linear layer that gives the network's output, None where its output is no linear layer's.
    """

    names: tuple[str, ...]
    stages: tuple[int, ...]
    head: str | None
    _frozen: tuple[tuple[str, ...], ...] = field(repr=False)
    _within: tuple[tuple[str, ...], ...] = field(repr=False)

    @property
    def count(self) -> int:
        """K."""
        return len(self.names)

    def frozen(self, k: int) -> tuple[str, ...]:
        """Modules, outermost ones only, and parameters of their own of modules above them, on which the end of block k depends.

        That is more than blocks 1 … k: whatever is called before them (the stem) belongs to what is frozen.
        """
        return self._frozen[k - 1] if k else ()

    def within(self, k: int) -> tuple[str, ...]:
        """Modules whose every call is over at the end of block k, outermost ones only, in forward order; block k is among them."""
        return self._within[k - 1] if k else ()

    def numbers(self, asked: Sequence[str]) -> tuple[int, ...]:
        """Numbers of blocks from words: `stages` (0 and the end of each stage), `all`, or numbers. Raises BadOption."""
        found: set[int] = set()
        for word in asked:
            if word == "stages":
                found |= {0, *self.stages}
            elif word == "all":
                found |= set(range(self.count + 1))
            elif word.isdigit() and int(word) <= self.count:
                found.add(int(word))
            else:
                raise BadOption(
                    "No such number of blocks can be frozen",
                    value=word,
                    allowed=f"0 to {self.count} ({', '.join(self.names[:4])}{', …' if self.count > 4 else ''}), stages, all",
                    mend="--blocks says what the blocks are",
                )
        return tuple(sorted(found))


def find_blocks(module: nn.Module, inputs: Any, blocks: str = "blocks", head: str | None = None) -> Blocks:
    """The blocks of a module, from one forward pass in evaluation mode over a few rows.

    blocks: `blocks` (numbered parts, such as the residual blocks of each stage, as `Tap` names them; where there are none,
    each layer with weights together with the norm behind it), `stages` (the containers of those), or patterns of module
    names, by commas, of which the outermost matches count. head: path of the last linear layer; by default it is found.

    Raises UnknownName for a pattern that matches nothing and for a head that is not there, BadOption for a block that is not
    called, is called several times, or holds the head.
    """
    calls, output = run(module, inputs)
    names = dict(module.named_modules())
    found_head = _head(names, calls, output, head)
    paths = _chosen(module, names, calls, blocks, found_head)
    for path in paths:
        if len(calls[path].ends) != 1:
            often = f"{len(calls[path].ends)} times" if calls[path].ends else "never"
            raise BadOption(
                f"A block that is called {often} cannot be frozen by number", value=path, allowed="blocks called once"
            )
        if found_head is not None and _inside(found_head, path):
            raise BadOption(
                "The last linear layer is replaced for the target's classes, so it cannot be part of a block",
                value=path,
                mend="Leave it out of --blocks",
            )
    paths = sorted(paths, key=lambda path: calls[path].ends[0])
    ends = [calls[path].ends[0] for path in paths]
    frozen = [_outermost(names, {p for p, c in calls.items() if c.ends and c.ends[0] <= end}) for end in ends]
    within = [_outermost(names, {p for p, c in calls.items() if c.ends and c.ends[-1] <= end}) for end in ends]
    own = _own_parameters(module, inputs, paths, frozen)
    return Blocks(
        tuple(paths),
        _stages(paths),
        found_head,
        tuple((*tops, *more) for tops, more in zip(frozen, own, strict=True)),
        tuple(tuple(sorted(tops, key=lambda path: calls[path].ends[0])) for tops in within),
    )


@dataclass(slots=True)
class _Calls:
    """When the calls of a module ended, and whether the last one returned the given tensor."""

    ends: list[int] = field(default_factory=list)
    last: int = 0
    """`id` of what the last call returned; the tensor is held elsewhere."""


def run(module: nn.Module, inputs: Any) -> tuple[dict[str, _Calls], Tensor | None]:
    """One forward pass in evaluation mode: the ends of the calls of every module, and the network's first output tensor."""
    import torch

    calls: dict[str, _Calls] = {path: _Calls() for path, _ in module.named_modules()}
    kept: list[Any] = []
    clock = iter(range(1 << 60))

    def after(path: str) -> Any:
        def hook(_: Any, args: Any, value: Any) -> None:
            tensor = first_tensor(value)
            kept.append(tensor)
            calls[path].ends.append(next(clock))
            calls[path].last = id(tensor)

        return hook

    flags = [(part, part.training) for part in module.modules()]
    handles = [part.register_forward_hook(after(path)) for path, part in module.named_modules()]
    try:
        module.eval()
        with torch.no_grad():
            output = first_tensor(ModuleNetwork(module).call(inputs))
    finally:
        for handle in handles:
            handle.remove()
        for part, flag in flags:
            part.training = flag
    return calls, output


def _head(
    names: Mapping[str, nn.Module], calls: Mapping[str, _Calls], output: Tensor | None, head: str | None
) -> str | None:
    from torch import nn

    linear = [path for path, part in names.items() if isinstance(part, nn.Linear) and path]
    if head is not None:
        if head not in linear:
            raise UnknownName(
                "The network has no such linear layer", value=head, allowed=near(head, linear, 8) or "it has none"
            )
        return head
    return next((path for path in linear if calls[path].ends and calls[path].last == id(output)), None)


def _chosen(
    module: nn.Module, names: Mapping[str, nn.Module], calls: Mapping[str, _Calls], blocks: str, head: str | None
) -> list[str]:
    patterns = [piece.strip() for piece in blocks.split(",") if piece.strip()]
    if not patterns:
        raise BadOption("No blocks are chosen", value=blocks, allowed="blocks, stages, or patterns of module names")
    found: set[str] = set()
    for pattern in patterns:
        if pattern in WORDS:
            hits = _default(module, names, calls, head)
            if pattern == "stages":
                hits = _containers(hits, calls, head)
        else:
            hits = [name for name in names if name and fnmatchcase(name, pattern)]
            if not hits:
                raise UnknownName(
                    "No module of the network has such a name",
                    value=pattern,
                    allowed=near(pattern.strip("*."), filter(None, names), 8),
                    mend="Words are blocks, stages; patterns are like layer*.*",
                )
        found.update(hits)
    return _outermost(names, found)


def _default(
    module: nn.Module, names: Mapping[str, nn.Module], calls: Mapping[str, _Calls], head: str | None
) -> list[str]:
    network = ModuleNetwork(module)
    blocks = {block_of(path, network.kinds, network.children) for path in names if path}
    usable = [b for b in blocks if b and calls[b].ends and _weights(names[b]) and not (head and _inside(head, b))]
    if usable:
        return usable
    leaves = [
        path
        for path, part in names.items()
        if path and path != head and calls[path].ends and not list(part.children()) and _weights(part)
    ]
    return [path for path in leaves if not is_norm(names[path])] or leaves


def _containers(blocks: Sequence[str], calls: Mapping[str, _Calls], head: str | None) -> list[str]:
    """The parents of blocks where there are several, each called once; else the blocks."""
    parents = {path.rpartition(".")[0] for path in blocks}
    usable = [p for p in parents if p and len(calls[p].ends) == 1 and not (head and _inside(head, p))]
    return usable if len(usable) == len(parents) > 1 else list(blocks)


def _stages(paths: Sequence[str]) -> tuple[int, ...]:
    parents = [path.rpartition(".")[0] for path in paths]
    ends = [k for k in range(1, len(paths) + 1) if k == len(paths) or parents[k] != parents[k - 1]]
    return tuple(ends) if len(ends) > 1 else tuple(range(1, len(paths) + 1))


def _outermost(names: Mapping[str, nn.Module], chosen: set[str]) -> list[str]:
    """Those of these modules that lie in no other of them."""
    return [
        path
        for path in names
        if path in chosen and not any(path[:end] in chosen for end, letter in enumerate(path) if letter == ".")
    ]


def _own_parameters(
    module: nn.Module, inputs: Any, paths: Sequence[str], frozen: Sequence[Sequence[str]]
) -> list[tuple[str, ...]]:
    """Parameters of modules above the blocks on which the end of each block depends, such as embeddings of places that the
    network itself holds: the gradient tells."""
    import torch

    direct = {
        name: value
        for name, value in module.named_parameters()
        if value.is_floating_point()
        and _owner_is_above(name, paths)
        and not any(_inside(name, top) for top in frozen[-1])
    }
    if not direct:
        return [()] * len(paths)
    ends: dict[str, Tensor | None] = {}
    parts = dict(module.named_modules())
    handles = [
        parts[path].register_forward_hook(lambda _m, _a, value, path=path: ends.update({path: first_tensor(value)}))
        for path in paths
    ]
    flags = [(part, part.training) for part in module.modules()]
    wanted = [(value, value.requires_grad) for value in module.parameters()]
    try:
        module.eval()
        for value in direct.values():
            value.requires_grad_(True)
        with torch.enable_grad():
            ModuleNetwork(module).call(inputs)
            return [_reached(ends[path], direct) for path in paths]
    finally:
        for handle in handles:
            handle.remove()
        for part, flag in flags:
            part.training = flag
        for value, flag in wanted:
            value.requires_grad_(flag)


def _reached(value: Tensor | None, parameters: Mapping[str, Tensor]) -> tuple[str, ...]:
    import torch

    if value is None or not value.requires_grad:
        return ()
    grads = torch.autograd.grad(value.float().sum(), list(parameters.values()), retain_graph=True, allow_unused=True)
    return tuple(name for name, grad in zip(parameters, grads, strict=True) if grad is not None)


def _owner_is_above(parameter: str, paths: Sequence[str]) -> bool:
    owner = parameter.rpartition(".")[0]
    return any(owner == "" or _inside(path, owner) for path in paths)


def _inside(name: str, other: str) -> bool:
    return name == other or name.startswith(f"{other}.")


def _weights(part: nn.Module) -> bool:
    return any(True for _ in part.parameters())


def is_norm(part: Any) -> bool:
    """Whether a part normalises: by its class, or by the name of it."""
    from torch import nn
    from torch.nn.modules.batchnorm import _NormBase

    return isinstance(part, _NormBase | nn.GroupNorm | nn.LayerNorm) or "Norm" in type(part).__name__
