"""Parts of a network that a training leaves as they are: no gradients, and norm and dropout layers in eval mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from querist.errors import BadOption, BadValues, UnknownName, near

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Modes", "modes"]


class Modes:
    """Train and eval mode of a network in training.

    modules, parameters: names of what is frozen; a module's children are frozen with it.
    """

    def __init__(self, model: nn.Module, frozen: Sequence[str | nn.Module]):
        self.model = model
        self.modules, self.parameters = _chosen(model, frozen)
        named = dict(model.named_modules())
        self._tops = [named[name] for name in self.modules]

    def train(self) -> None:
        """Train mode, except where frozen."""
        self.model.train()
        for module in self._tops:
            module.eval()

    def evaluate(self) -> None:
        """Eval mode everywhere."""
        self.model.eval()


def _chosen(model: nn.Module, frozen: Sequence[str | nn.Module]) -> tuple[list[str], list[str]]:
    if isinstance(frozen, str) or not isinstance(frozen, Sequence):
        raise BadOption(
            "Frozen parts are given as a list", value=frozen, allowed="names, globs and modules of the network"
        )
    modules = dict(model.named_modules())
    parameters = [name for name, _ in model.named_parameters()]
    found: set[str] = set()
    single: set[str] = set()
    for one in frozen:
        if not isinstance(one, str):
            hits = [name for name, module in modules.items() if module is one]
            if not hits:
                raise BadOption(
                    "A module to freeze is not part of the network",
                    value=type(one).__name__,
                    allowed="one of its modules",
                )
            found.update(hits)
            continue
        hits = [name for name in modules if name and fnmatchcase(name, one)]
        alone = [name for name in parameters if fnmatchcase(name, one)] if not hits else []
        if not hits and not alone:
            raise UnknownName(
                "Nothing in the network has this name",
                value=one,
                allowed=near(one, [*filter(None, modules), *parameters], 8),
            )
        found.update(hits)
        single.update(alone)
    tops = [name for name in modules if name in found and not any(_inside(name, other) for other in found)]
    return tops, sorted(single)


def _inside(name: str, other: str) -> bool:
    return name != other and (other == "" or name.startswith(other + "."))


@contextmanager
def modes(model: nn.Module, frozen: Sequence[str | nn.Module]) -> Iterator[Modes]:
    """Freeze parts of a network for a training; modes and `requires_grad` are given back as they were.

    frozen: modules of the network, or globs over the names of its modules, or of single parameters where no module has
    such a name. Tied parameters are frozen if any of their owners is. Gradients that were there before are cleared.

    Raises BadOption for a module of another network, UnknownName for a name that matches nothing, BadValues for a
    parameter without a shape.
    """
    from torch.nn.parameter import is_lazy

    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise BadValues("A parameter has no shape yet", value=name, mend="Call the network once before training")
    made = Modes(model, frozen)
    training = [(module, module.training) for module in model.modules()]
    wanted = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    named = dict(model.named_parameters(remove_duplicate=False))
    try:
        model.zero_grad(set_to_none=True)
        for top in made._tops:
            for parameter in top.parameters():
                parameter.requires_grad_(False)
        for name in made.parameters:
            named[name].requires_grad_(False)
        made.train()
        yield made
    finally:
        for module, mode in training:
            module.training = mode
        for parameter, flag in wanted:
            parameter.requires_grad_(flag)
        model.zero_grad(set_to_none=True)
