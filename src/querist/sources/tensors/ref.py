"""The tensor reference: one named tensor of a source, read when it is asked for and never before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from querist.errors import BadOption, UnknownName, UnsupportedFormat, near

if TYPE_CHECKING:
    import torch

__all__ = ["PassedOver", "Store", "TensorRef", "TensorSource"]


class PassedOver(NamedTuple):
    """Something of a source that is not read: its name, shape and dtype where it has them, and why."""

    what: str
    shape: tuple[int, ...] | None
    dtype: str | None
    reason: str


class Store(Protocol):
    """Where a tensor's content lies. Stores in files are picklable: they hold a path and numbers, no open file."""

    key: Any
    """Equal for two tensors that are the same storage, None where that cannot be."""

    def load(self) -> torch.Tensor:
        """The whole tensor on the CPU."""
        ...

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """Indices start to stop of axis 0, reading as little as the format allows."""
        ...

    def digest(self) -> str:
        """Hexadecimal sha256 of dtype, shape and content bytes (little endian, axis 0 slowest), streamed."""
        ...


@dataclass(frozen=True, slots=True)
class TensorRef:
    """One tensor of a source.

    `dtype` is torch's spelling ("float32", "bfloat16") or the quantisation's ("q8_0"); `aliases` are other names of the
    same storage. `reason` says why it cannot be read (unknown quantisation, never materialised), else None.

    `hints` is what the source knows and a state dict does not; every key may be absent:

    kind         "linear", "conv1d", "conv2d", "conv3d", "embedding", "lstm", "gru", "rnn", "attention", "norm"
    role         "weight", "bias", "weight_ih", "weight_hh", "bias_ih", "bias_hh", "in_proj", "q_proj", "k_proj", "v_proj"
    groups       groups of a convolution
    transposed   True: the first two axes are (in, out/groups), as a transposed convolution stores them
    layout       "in-out" where a linear matrix is stored with its inputs first; absent where outputs come first
    gates        gates stacked on `gate_axis` (0 where absent): 4 for LSTM, 3 for GRU
    gate_order   their names in order of storage, as "i", "f", "g", "o" or "r", "z", "n"
    directions   True where axis 0, of length 1 or 2, stacks the directions (ONNX)
    parts        blocks stacked on axis 0, as ((name, rows), ...): query, key, value of a fused projection
    columns      the same on axis 1, where `layout` is "in-out"
    weight_norm  {"base": name of the composed weight, "part": "g" or "v", "g": name, "v": name, "dim": axis kept or None}
    buffer       True for what the module registers as a buffer
    module       class of the module that holds it, where known
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    aliases: tuple[str, ...] = ()
    hints: Mapping[str, Any] = field(default_factory=dict, hash=False)
    reason: str | None = None
    store: Store | None = field(default=None, repr=False, compare=False)

    @property
    def numel(self) -> int:
        """Number of entries."""
        count = 1
        for side in self.shape:
            count *= side
        return count

    def load(self) -> torch.Tensor:
        """The whole tensor, on the CPU, in its own dtype (quantised: float32). It may be shared memory: do not change it.

        Raises UnsupportedFormat where `reason` is set, CorruptFile where the file has become shorter.
        """
        return self._store().load()

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """The slice [start:stop] of axis 0, reading only that range of the file where the format allows.

        Raises BadOption unless 0 <= start <= stop <= shape[0].
        """
        if not self.shape or not 0 <= start <= stop <= self.shape[0]:
            raise BadOption(
                f"The tensor {self.name} of shape {list(self.shape)} has no such rows",
                value=f"{start}:{stop}",
                allowed=f"0 <= start <= stop <= {self.shape[0]}" if self.shape else "tensors with at least one axis",
            )
        return self._store().rows(start, stop)

    def fingerprint(self) -> str:
        """`sha256:` and the hash of dtype, shape and content: equal for equal tensors, whatever format holds them."""
        return "sha256:" + self._store().digest()

    def _store(self) -> Store:
        if self.store is None or self.reason is not None:
            raise UnsupportedFormat(
                f"The tensor {self.name} cannot be read",
                value=self.reason or "no content",
                mend="Leave it out with --exclude",
            )
        return self.store


@dataclass(frozen=True, slots=True)
class TensorSource:
    """Every tensor of one source, in the source's order.

    `address` is what was opened, `format` one of the words that `open_source` documents. `passed_over` lists what is not
    a tensor, what a pattern left out, and tensors of absent shards. `metadata` holds what the source says of itself
    (`config` of a Hugging Face folder, `adapter` of a LoRA one, free text of a file), as plain JSON values.
    """

    address: str
    format: str
    refs: tuple[TensorRef, ...]
    passed_over: tuple[PassedOver, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __iter__(self) -> Iterator[TensorRef]:
        return iter(self.refs)

    def __len__(self) -> int:
        return len(self.refs)

    def __getitem__(self, name: str) -> TensorRef:
        for ref in self.refs:
            if name == ref.name or name in ref.aliases:
                return ref
        names = [ref.name for ref in self.refs]
        raise UnknownName(f"No such tensor in {self.address}", value=name, allowed=near(name, names))
