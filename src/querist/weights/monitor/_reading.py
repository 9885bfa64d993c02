"""The matrices of a network in training, where they lie, read without touching anything that training depends on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from querist.errors import BadOption
from querist.sources.tensors.found import finish
from querist.sources.tensors.module import read_module
from querist.sources.tensors.ref import PassedOver, TensorRef
from querist.sources.tensors.select import Selection, nothing_selected
from querist.weights.spectrum import LayerMatrix, matrices

__all__ = ["dense", "devices", "is_sharded", "synchronise", "unchanged", "unwrapped", "watched"]


def unwrapped(model: nn.Module) -> nn.Module:
    """The network inside DataParallel, DistributedDataParallel and torch.compile, however they are nested.

    Raises BadOption for what is no module, and for FullyShardedDataParallel, whose flat parameters are no matrices.
    """
    if not isinstance(model, nn.Module):
        raise BadOption("This is no network to watch", value=type(model).__qualname__, allowed="a torch module")
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if inner is None:
            break
        model = inner
    for module in model.modules():
        if type(module).__name__ == "FullyShardedDataParallel":
            raise BadOption(
                "FullyShardedDataParallel keeps flat pieces of parameters, which are no matrices",
                value=type(module).__qualname__,
                mend="Shard the network by torch.distributed.fsdp.fully_shard",
            )
    return model


def watched(model: nn.Module, layers: Sequence[str]) -> tuple[tuple[LayerMatrix, ...], tuple[PassedOver, ...]]:
    """Every matrix of the network as it is now, and what is passed over. Their tensors are read where they lie.

    A DTensor is gathered when it is loaded, which every process must do in the same order. Raises UnknownName where
    nothing is left to watch.
    """
    found = read_module(model)
    live = dict(_tensors(model))
    found.refs = [_at_place(ref, live.get(ref.name)) for ref in found.refs]
    source = finish(f"module {type(model).__qualname__}", found, Selection.of(layers))
    made, passed = matrices(source.refs)
    passed = (*source.passed_over, *passed)
    if not made:
        raise nothing_selected(source.address, passed)
    return made, passed


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _at_place(ref: TensorRef, tensor: Tensor | None) -> TensorRef:
    """The ref with a store that leaves the tensor on its device."""
    if tensor is None or torch.nn.parameter.is_lazy(tensor):
        return ref
    if _is_dtensor(tensor):
        return replace(ref, reason=None, store=_Gathered(tensor))
    return ref if ref.reason is not None else replace(ref, store=_Live(tensor.detach()))


def _is_dtensor(tensor: Any) -> bool:
    return hasattr(tensor, "full_tensor") and hasattr(tensor, "device_mesh")


def is_sharded(model: nn.Module) -> bool:
    """Whether a parameter is spread over processes, so that reading it takes all of them."""
    return any(_is_dtensor(parameter) for parameter in model.parameters())


@dataclass(frozen=True, slots=True, eq=False)
class _Live:
    """A tensor where it lies."""

    tensor: Tensor

    @property
    def key(self) -> Any:
        """The place in memory, which tied tensors share."""
        t = self.tensor
        return ("memory", str(t.device), t.data_ptr(), t.dtype, tuple(t.shape), t.stride()) if t.numel() else None

    def load(self) -> Tensor:
        """The tensor itself, not a copy; on the CPU where its device has no float64."""
        t = self.tensor.resolve_conj().resolve_neg()
        return t.cpu() if t.device.type == "mps" else t

    def rows(self, start: int, stop: int) -> Tensor:
        """A view of rows."""
        return self.load()[start:stop]

    def digest(self) -> str:
        """Nothing asks for the fingerprint of weights in motion."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class _Gathered(_Live):
    """A tensor that is spread over processes: `load` gathers it, in all of them."""

    @property
    def key(self) -> Any:
        """The parameter object."""
        return ("sharded", id(self.tensor))

    def load(self) -> Tensor:
        """The whole tensor."""
        whole: Tensor = self.tensor.detach().full_tensor()  # type: ignore[attr-defined]
        return whole.cpu() if whole.device.type == "mps" else whole


def dense(matrix: LayerMatrix) -> Tensor:
    """The matrix [h, d] itself: of a low-rank pair the product, whose directions its core does not tell. Not to be changed."""
    if not matrix.low_rank:
        return matrix.load()
    a, b, *alpha = (ref.load() for ref in matrix.refs)
    scale = float(alpha[0]) / a.shape[0] if alpha else matrix.scale
    wide = torch.float64 if a.dtype == torch.float64 else torch.float32
    return scale * (b.to(wide).flatten(1) @ a.to(wide).flatten(1))


def devices(model: nn.Module) -> tuple[torch.device, ...]:
    """Every device that holds a parameter, once."""
    return tuple(dict.fromkeys(parameter.device for parameter in model.parameters()))


def synchronise(places: Sequence[torch.device]) -> None:
    """Wait until every device has done what it was told: work that is only queued would be booked on whoever comes next."""
    for place in places:
        if place.type == "cuda":
            torch.cuda.synchronize(place)
        elif place.type == "mps":
            torch.mps.synchronize()
        elif place.type == "xpu":
            torch.xpu.synchronize(place)


@contextmanager
def unchanged(places: Sequence[torch.device]) -> Iterator[None]:
    """No gradient is recorded, no autocast and no reduced precision changes a number; all as before on leaving."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        for kind in {place.type for place in places} | {"cpu"}:
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(_full_precision())
        yield


@contextmanager
def _full_precision() -> Iterator[None]:
    """Products in float32 keep float32's digits: with TF32 a resampled copy's edge would be off by a part in a thousand."""
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # set by the newer, per-backend switches, which may not be mixed with the older one
        with _full_precision_by_backend():
            yield
        return
    if before == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def _full_precision_by_backend() -> Iterator[None]:
    switches: list[Any] = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
    before = [switch.fp32_precision for switch in switches]
    for switch in switches:
        switch.fp32_precision = "ieee"
    try:
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value
