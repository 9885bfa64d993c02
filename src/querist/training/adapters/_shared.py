"""What the adapters have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from querist.errors import BadOption, MissingExtra
from querist.training.hooks import Hook

if TYPE_CHECKING:
    from torch import nn

__all__ = ["anywhere", "checked", "missing", "numbers", "unwrapped"]


def checked(hook: Any, name: str | None) -> str:
    """The name of an adapted hook. Raises BadOption for something that is no hook, or an empty name."""
    if not isinstance(hook, Hook):
        raise BadOption(
            "This is no hook", value=type(hook).__name__, allowed="an object of a subclass of training.Hook"
        )
    if name is not None and not name.isidentifier():
        raise BadOption("A hook's name is a word", value=name, allowed="letters, digits and underscores")
    return name or type(hook).__name__


def missing(package: str, extra: str) -> MissingExtra:
    """The error for a package that is not installed."""
    return MissingExtra(f"{package} is not installed", value=package, mend=f"pip install 'querist[{extra}]'")


def anywhere(flag: bool, device: Any) -> bool:
    """Whether any process of the trainer's group says so."""
    import torch

    group = torch.distributed
    if not (group.is_available() and group.is_initialized()) or group.get_world_size() == 1:
        return flag
    said = torch.tensor([float(flag)], device=device)
    group.all_reduce(said)
    return bool(said.item())


def unwrapped(model: nn.Module) -> nn.Module:
    """The network inside the wrappers that distribute or compile it."""
    import torch

    while True:
        if isinstance(model, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), torch.nn.Module):
            model = inner
        else:
            return model


def numbers(figures: Mapping[str, Any] | None) -> dict[str, float]:
    """The figures that are single numbers."""
    import torch

    found: dict[str, float] = {}
    for name, value in (figures or {}).items():
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            found[name] = value.item()
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = float(value)
    return found
