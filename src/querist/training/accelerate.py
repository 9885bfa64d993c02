"""The one module that imports Accelerate: device, mixed precision, gradient scaling and the process group of a training.

Accelerate keeps one state per process. It is set aside while a training runs and put back afterwards, so that trainings
on other devices or in other precisions, and an Accelerator of the caller's own, do not disturb each other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Literal

from querist.errors import BadOption
from querist.runs.threads import environment

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["Precision", "Workplace", "workplace"]

Precision = Literal["no", "bf16", "fp16"]

BUCKET = 32 << 20
"""Bytes of gradients that are summed over processes in one go."""

_UNSUPPORTED = ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP", "ACCELERATE_USE_MEGATRON_LM")


class Workplace:
    """Where a training runs: its device, its place among the processes, and what they do together."""

    def __init__(self, accelerator: Any):
        self.accelerator = accelerator
        self.device: torch.device = accelerator.device
        self.rank: int = accelerator.process_index
        self.processes: int = accelerator.num_processes
        self.is_main = self.rank == 0
        self._optimizer: Any = None

    # ------------------------------------------------------------------------------------------------- collectives

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of a tensor over all processes, in place."""
        if self.processes > 1:
            import torch

            torch.distributed.all_reduce(tensor)
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether any process says so."""
        if self.processes == 1:
            return flag
        import torch

        return bool(self.total(torch.tensor([float(flag)], device=self.device)).item())

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The same tensor of every process, in order of rank; shapes must agree. Results are on the CPU."""
        import torch

        if self.processes == 1:
            return [tensor.cpu()]
        own = tensor.to(self.device)
        found = [torch.empty_like(own) for _ in range(self.processes)]
        torch.distributed.all_gather(found, own)
        return [one.cpu() for one in found]

    def gather_text(self, text: str) -> list[str]:
        """A text of every process."""
        if self.processes == 1:
            return [text]
        import torch

        raw = text.encode()
        longest = max(int(size.item()) for size in self.gather(torch.tensor([len(raw)])))
        padded = torch.zeros(longest + 1, dtype=torch.uint8)
        padded[: len(raw)] = torch.frombuffer(bytearray(raw), dtype=torch.uint8) if raw else 0
        padded[len(raw)] = 0
        return [bytes(one.tolist()).rstrip(b"\0").decode() for one in self.gather(padded)]

    def from_main(self, tensors: Iterable[torch.Tensor]) -> None:
        """Overwrite tensors with those of process 0."""
        if self.processes == 1:
            return
        import torch

        for bucket in _buckets(list(tensors)):
            flat = torch.cat([one.detach().reshape(-1) for one in bucket]).to(self.device)
            torch.distributed.broadcast(flat.view(torch.uint8), src=0)  # as bytes: not every backend knows every type
            _spread(flat, bucket)

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        """Sum gradients over all processes; returns the parameters that have one in any process.

        A parameter without a gradient here but with one elsewhere counts as zero here; one without a gradient anywhere
        keeps none, so that optimisers leave it alone.
        """
        import torch

        if self.processes == 1:
            return [one for one in parameters if one.grad is not None]
        has = torch.tensor([float(one.grad is not None) for one in parameters], device=self.device)
        live = [one for one, count in zip(parameters, self.total(has).tolist(), strict=True) if count]
        for one in live:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
            elif one.grad.is_sparse:
                one.grad = one.grad.to_dense()
        for bucket in _buckets([one.grad for one in live if one.grad is not None]):
            flat = torch.cat([one.reshape(-1) for one in bucket])
            torch.distributed.all_reduce(flat)
            _spread(flat, bucket)
        return live

    # ---------------------------------------------------------------------------------------------------- training

    def backward(self, objective: torch.Tensor | None) -> None:
        """Gradients of the objective, scaled where fp16 needs it; None where this process has nothing to add."""
        import torch

        if objective is not None and objective.requires_grad:
            self.accelerator.backward(objective)
        elif self.accelerator.scaler is not None:
            self.accelerator.scaler.scale(torch.zeros((), device=self.device))  # it sets itself up in its first call

    def prepare_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Put an optimiser's state on the device and give it the gradient scaler."""
        self._optimizer = self.accelerator.prepare_optimizer(optimizer)

    def clip(self, parameters: Sequence[nn.Parameter], most: float) -> float:
        """Scale gradients down to a total norm of at most `most`; returns the norm before."""
        return float(self.accelerator.clip_grad_norm_(parameters, most))

    def step(self) -> None:
        """One step of the optimiser; with fp16 it is left out where a gradient overflowed."""
        # Accelerate's step looks for optional packages each time: a fifth of a small network's step.
        (self._optimizer if self.scales else self._optimizer.optimizer).step()

    @property
    def scales(self) -> bool:
        """Whether gradients are scaled, so that an infinite one is no fault."""
        return self.accelerator.scaler is not None

    def state(self) -> dict[str, Any]:
        """State of the gradient scaler, empty without one."""
        return dict(self.accelerator.scaler.state_dict()) if self.scales else {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        if self.scales and state:
            self.accelerator.scaler.load_state_dict(state)


def _buckets(tensors: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Tensors of one type and device together, up to BUCKET bytes."""
    kinds: dict[tuple[Any, Any], list[torch.Tensor]] = {}
    for one in tensors:
        kinds.setdefault((one.dtype, one.device), []).append(one)
    for same in kinds.values():
        bucket: list[torch.Tensor] = []
        size = 0
        for one in same:
            bucket.append(one)
            size += one.numel() * one.element_size()
            if size >= BUCKET:
                yield bucket
                bucket, size = [], 0
        if bucket:
            yield bucket


def _spread(flat: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    import torch

    with torch.no_grad():
        start = 0
        for one in tensors:
            one.copy_(flat[start : start + one.numel()].view_as(one))
            start += one.numel()


@contextmanager
def workplace(model: nn.Module, *, device: str = "auto", precision: Precision = "no") -> Iterator[Workplace]:
    """Move a model to its device and make a `Workplace` for it; the model's forward is given back afterwards.

    device: "auto" (the accelerator that there is, else the CPU), "cpu", "cuda", "cuda:N", "mps". Under several processes
    each takes the device of its local rank. The model stays on the device. Raises BadOption.
    """
    _check(device, precision)
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState, PartialState
    from accelerate.utils import GradientAccumulationPlugin, InitProcessGroupKwargs

    shared = [state._shared_state for state in (PartialState, AcceleratorState, GradientState)]
    before = [dict(state) for state in shared]
    own = {name: model.__dict__.get(name) for name in ("forward", "_original_forward", "_is_accelerate_prepared")}
    for state in shared:
        state.clear()
    model.__dict__.pop("_is_accelerate_prepared", None)
    try:
        plain = on_cpu(device)
        with _environment(device):
            accelerator = Accelerator(
                cpu=plain,
                mixed_precision=precision,
                # Named, so that ACCELERATE_GRADIENT_ACCUMULATION_STEPS does not divide the loss: the loop does.
                gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
                kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")] if plain and _in_group() else None,
            )
        if device != "auto" and accelerator.device.type != torch.device(device).type:
            raise BadOption(
                "This process is part of a group on another device",
                value=f"{device} in a group on {accelerator.device.type}",
                mend="Leave `device` out, or start the group on that device",
            )
        if precision == "fp16" and accelerator.scaler is None:
            raise BadOption(
                "fp16 needs an accelerator", value=str(accelerator.device), allowed="fp16 on cuda; no or bf16 on a CPU"
            )
        # evaluation_mode leaves out DistributedDataParallel: the loop sums gradients itself (see `step`).
        accelerator.prepare_model(model, evaluation_mode=True)
        yield Workplace(accelerator)
    finally:
        for name, value in own.items():
            model.__dict__.pop(name, None)
            if value is not None:
                model.__dict__[name] = value
        for state, content in zip(shared, before, strict=True):
            state.clear()
            state.update(content)


def on_cpu(device: str) -> bool:
    """Whether a training on this device, as `training.fit` names it, takes place on the CPU."""
    import torch

    asked_for_cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes")
    return device == "cpu" or (device == "auto" and (asked_for_cpu or not torch.accelerator.is_available()))


def _in_group() -> bool:
    """Whether the environment says that this process is one of several, as Accelerate reads it."""
    return int(os.environ.get("LOCAL_RANK", -1)) != -1 or int(os.environ.get("WORLD_SIZE", 1)) > 1


def _check(device: str, precision: str) -> None:
    import torch

    if precision not in ("no", "bf16", "fp16"):
        raise BadOption("No such precision", value=precision, allowed="no, bf16, fp16")
    for name in _UNSUPPORTED:
        if os.environ.get(name, "").lower() == "true":
            raise BadOption(
                "The training loop shares data, not parameters, over processes",
                value=f"{name}={os.environ[name]}",
                allowed="accelerate launch or torchrun without DeepSpeed, FSDP and Megatron-LM",
            )
    if device in ("auto", "cpu"):
        return
    if ":" in device and _in_group():
        raise BadOption("In a group each process has the device of its rank", value=device, allowed="auto, cpu, cuda")
    try:
        asked = torch.device(device)
        there = asked.type == "cpu" or (
            {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}[asked.type]()
            and (asked.type != "cuda" or (asked.index or 0) < torch.cuda.device_count())
        )
    except (RuntimeError, KeyError):
        there = False
    if not there:
        raise BadOption("This machine has no such device", value=device, allowed="auto, cpu, cuda, cuda:N, mps")


def _environment(device: str) -> AbstractContextManager[None]:
    """What Accelerate reads from the environment: a device by name, and threads, which it would otherwise set itself."""
    import torch

    wanted = {} if os.environ.get("OMP_NUM_THREADS") else {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    group = torch.distributed
    if group.is_available() and group.is_initialized() and not _in_group():
        # A group that was made by hand: told by its environment, or each process would train alone.
        rank, size = str(group.get_rank()), str(group.get_world_size())
        wanted |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    if ":" in device:
        wanted["ACCELERATE_TORCH_DEVICE"] = device
    return environment(wanted)
