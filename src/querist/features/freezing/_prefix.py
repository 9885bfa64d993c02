"""The frozen prefix, run once: what the end of block k gives is kept, and stands in for everything before it in training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from querist.errors import InvariantBroken
from querist.features.freezing._rows import Held, Room
from querist.features.inputs import as_inputs

if TYPE_CHECKING:
    from torch import Tensor

    from querist.features.freezing._arms import Tuned

__all__ = ["Prefix", "evaluating"]


class Prefix:
    """Blocks 1 … k of a network, frozen, and what they gave of rows that were run through them.

    Inside `standing_in`, the modules before the end of block k are replaced by ones that cost nothing: block k gives the kept
    values of the batch that `load` was told of, those before it give zeros of the right shape. So the network's own code
    runs, whatever it does between its modules. That is the same computation only where what follows depends on the rows
    through block k (and the inputs themselves) alone: `holds` tries it.
    """

    def __init__(self, model: Tuned, within: Sequence[str]):
        self.model, self.paths = model, tuple(within)
        self._last = _Replay()
        self._blanks: dict[str, _Blank] = {}
        self._shape: Any = None

    def holds(self, rows: Held, batch_size: int) -> bool:
        """Whether the network gives the same logits, bit for bit, with the prefix replaced; and learn the shapes of its parts."""
        part = slice(0, min(batch_size, len(rows)))
        inputs = self._inputs(rows, part)
        with evaluating(self.model):
            if not self._learn(inputs, len(rows.ids[part])):
                return False
            expected = self.model(inputs)
            kept = self._run(inputs)
            with self.standing_in():
                self._set(kept)
                try:
                    found = self.model(inputs)
                except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError):
                    return False
        return expected.shape == found.shape and bool(torch.equal(expected, found))

    def fill(self, rows: Held, room: Room, batch_size: int) -> list[np.ndarray]:
        """What block k gives of these rows, an array [n, ...] for each tensor; `holds` comes first."""
        arrays: list[np.ndarray] = []
        with evaluating(self.model):
            for start in range(0, len(rows), batch_size):
                part = slice(start, min(start + batch_size, len(rows)))
                kept = [value.cpu().numpy() for value in self._run(self._inputs(rows, part))]
                if not arrays:
                    arrays = [room.array((len(rows), *value.shape[1:]), value.dtype) for value in kept]
                for array, value in zip(arrays, kept, strict=True):
                    array[part] = value
        return arrays

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """Replace the prefix; the network is put together again on exit."""
        net = self.model.net
        originals = {path: net.get_submodule(path) for path in self.paths}
        stubs: Mapping[str, nn.Module] = {**self._blanks, self.paths[-1]: self._last}
        try:
            for path, stub in stubs.items():
                _put(net, path, stub)
            yield
        finally:
            self._last.value = None
            for path, original in originals.items():
                _put(net, path, original)

    def load(self, batch: Mapping[str, Tensor]) -> None:
        """Kept values of a batch, `z0`, `z1` …, for the next forward pass."""
        self._set([batch[f"z{i}"] for i in range(sum(name.startswith("z") for name in batch))])

    # ---------------------------------------------------------------------------------------------------------- inside

    def _set(self, kept: Sequence[Tensor]) -> None:
        leaves = iter(kept)
        self._last.value = _mapped(self._shape, lambda _: next(leaves))
        for blank in self._blanks.values():
            blank.rows, blank.call = len(kept[0]), 0

    def _inputs(self, rows: Held, part: slice) -> Any:
        where = next(self.model.parameters()).device
        return as_inputs({name: value.to(where) for name, value in rows.tensors(part).items()})

    def _learn(self, inputs: Any, count: int) -> bool:
        """Shapes of what every part of the prefix gives; False where block k's values have no row for each row of the batch."""
        seen: dict[str, list[Any]] = {path: [] for path in self.paths}
        handles = [
            self.model.net.get_submodule(path).register_forward_hook(
                lambda _m, _a, value, path=path: seen[path].append(value)
            )
            for path in self.paths
        ]
        try:
            self.model(inputs)
        finally:
            for handle in handles:
                handle.remove()
        self._shape = seen[self.paths[-1]][0]
        leaves = _leaves(self._shape)
        self._shape = _mapped(self._shape, lambda _: _Place())
        self._blanks = {path: _Blank(seen[path], count) for path in self.paths[:-1]}
        return bool(leaves) and all(leaf.ndim and len(leaf) == count for leaf in leaves)

    def _run(self, inputs: Any) -> list[Tensor]:
        """Run up to the end of block k, and no further."""

        def stop(_: Any, args: Any, value: Any) -> None:
            raise _Reached(value)

        handle = self.model.net.get_submodule(self.paths[-1]).register_forward_hook(stop)
        try:
            self.model(inputs)
        except _Reached as reached:
            return _leaves(reached.value)
        finally:
            handle.remove()
        raise InvariantBroken(f"the frozen blocks end at {self.paths[-1]}, which this batch did not reach")


class _Reached(BaseException):
    def __init__(self, value: Any):
        self.value = value


class _Replay(nn.Module):
    """Gives what it was told, whatever it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.value: Any = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.value


class _Blank(nn.Module):
    """Gives zeros of the shapes that a module gave, call by call, without memory of their own."""

    def __init__(self, values: Sequence[Any], count: int):
        super().__init__()
        self.rows, self.call = count, 0
        self._made = [_mapped(value, lambda leaf: _Zeros(leaf, count)) for value in values]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        made = self._made[self.call % len(self._made)]
        self.call += 1
        return _mapped(made, lambda zeros: zeros(self.rows))


class _Place:
    """Where a tensor stood."""


class _Zeros:
    def __init__(self, like: Tensor, count: int):
        self.one = torch.zeros((), dtype=like.dtype, device=like.device)
        self.first = like.ndim > 0 and len(like) == count
        self.shape = tuple(like.shape)

    def __call__(self, rows: int) -> Tensor:
        return self.one.expand((rows, *self.shape[1:]) if self.first else self.shape)


def _leaves(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _mapped(value, found.append)
    return found


def _mapped(value: Any, function: Any) -> Any:
    """The same structure with the function applied to its tensors (or to what stands for them)."""
    if isinstance(value, Mapping):
        changed = {key: _mapped(inner, function) for key, inner in value.items()}
        return type(value)(**changed) if hasattr(value, "to_tuple") else changed
    if isinstance(value, tuple | list):
        changed = [_mapped(inner, function) for inner in value]
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    return function(value) if isinstance(value, torch.Tensor | _Zeros | _Place) else value


def _put(net: nn.Module, path: str, module: nn.Module) -> None:
    owner, _, name = path.rpartition(".")
    net.get_submodule(owner)._modules[name] = module


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every part has its own mode again afterwards."""
    flags = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, flag in flags:
            part.training = flag
