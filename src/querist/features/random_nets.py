"""The null of what training gives: the same architecture with random weights, its norms set on the source data."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from querist.errors import BadOption
from querist.statistics import torch_seed

if TYPE_CHECKING:
    from torch import nn

__all__ = ["random_net", "redrawn", "set_norms"]


def random_net(
    model: Any,
    data: Any,
    *,
    repeat: int,
    seed: int = 0,
    n: int | None = 2000,
    batch_size: int = 128,
    device: str = "auto",
) -> nn.Module:
    """A copy of a network with new random weights, its running statistics set by one pass over the source.

    `model` is a torch module or `package.module:factory` address (weights behind `@` are read, then drawn over); `repeat` says
    which of the random networks, so that number 3 is the same whoever asks. Modules draw their weights with their own
    `reset_parameters`; one of a module above them decides for all below it. Parameters that no such method reaches become
    normal with sd 0.02, or keep 1 and 0 where they are the scale and shift of a norm.

    Raises BadOption for exported networks, which have no initialisation.
    """
    from querist.sources.models import open_model

    network = open_model(model)
    if network.form != "module":
        raise BadOption(
            "Only a torch module can be initialised again",
            value=network.form,
            allowed="package.module:factory, a torch module",
        )
    fresh = redrawn(network.module, repeat=repeat, seed=seed)  # pyright: ignore[reportAttributeAccessIssue]
    set_norms(fresh, data, n=n, batch_size=batch_size, seed=seed, device=device)
    return fresh


def redrawn(module: nn.Module, *, repeat: int, seed: int = 0) -> nn.Module:
    """A copy of a module with new random weights, as `random_net` draws them; running statistics are not set yet."""
    import torch

    fresh = copy.deepcopy(module)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(torch_seed(seed, "random-nets", repeat))
        _redraw(fresh)
    return fresh


def _redraw(module: nn.Module) -> None:
    """New weights, all of them, drawn in the order of the modules on the CPU."""
    done: set[int] = set()
    for part in module.modules():
        if id(part) in done or not callable(getattr(part, "reset_parameters", None)):
            continue
        part.reset_parameters()  # pyright: ignore[reportCallIssue]
        done |= {id(below) for below in part.modules()}
    reached = {id(value) for part in module.modules() if id(part) in done for value in part.parameters(recurse=False)}
    for name, value in module.named_parameters():
        if id(value) not in reached and value.is_floating_point():
            if value.ndim < 2:
                value.fill_(0.0 if name.endswith("bias") else 1.0)
            else:
                value.normal_(0, 0.02)


def set_norms(
    module: nn.Module, data: Any, *, n: int | None = 2000, batch_size: int = 128, seed: int = 0, device: str = "auto"
) -> int:
    """Set running means and variances to those of one pass over data (cumulative average of batches, all else in evaluation
    mode), in place; how many norms there are. Rows are those that `capture` would choose; a last batch of one row, which has no
    variance, is left out.
    """
    import torch
    from torch.nn.modules.batchnorm import _NormBase

    from querist.sources.data import batches, choose_ids, open_data
    from querist.sources.taps.hooks import ModuleNetwork
    from querist.sources.taps.tap import device_of

    norms = [part for part in module.modules() if isinstance(part, _NormBase) and part.track_running_stats]
    if not norms:
        return 0
    network = ModuleNetwork(module)
    where = device_of(device, network)
    rows = open_data(data)
    flags = [(part, part.training) for part in module.modules()]
    momenta = [part.momentum for part in norms]
    home = next(module.parameters()).device
    try:
        module.eval().to(where)
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum, norm.training = None, True
        with torch.no_grad():
            for batch in batches(rows, choose_ids(rows, n, seed=seed), batch_size):
                if len(batch.ids) > 1:
                    network.call(batch.inputs)
    finally:
        module.to(home)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for part, flag in flags:
            part.training = flag
    return len(norms)
