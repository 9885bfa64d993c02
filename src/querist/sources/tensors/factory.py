"""`package.module:factory[?k=v][@weights]`: a network that the user's own Python builds."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querist.errors import BadOption, SourceNotFound, UnknownName, WeightsMismatch, near
from querist.sources.address import Address
from querist.sources.tensors.found import Found
from querist.sources.tensors.module import read_module
from querist.sources.tensors.ref import TensorSource

if TYPE_CHECKING:
    from torch import nn

__all__ = ["build", "called", "read_factory"]


def read_factory(address: Address, opened: Callable[[str], TensorSource]) -> Found:
    """The tensors of the network that an address builds. `opened` opens the weights that follow `@`."""
    return read_module(build(address, opened))


def build(address: Address, opened: Callable[[str], TensorSource]) -> nn.Module:
    """Import the module (the current folder counts), call the factory with the options, load the weights, all of them.

    Values of options are Python literals where they are spelled as one, else texts. Raises SourceNotFound for a module that
    cannot be imported, UnknownName for a factory or option that it lacks, BadOption where it returns no torch module,
    WeightsMismatch where names or shapes of the weights are not the network's.
    """
    import torch

    made = called(address)
    if not isinstance(made, torch.nn.Module):
        raise BadOption(
            "The factory returned no torch module", value=type(made).__qualname__, allowed="a torch.nn.Module"
        )
    if address.weights:
        _load(made, opened(address.weights), address)
    return made


def called(address: Address) -> Any:
    """What the factory returns; a torch module that the address names is taken as it is. Raises as `build`."""
    import torch

    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        made: Any = importlib.import_module(address.path)
    except ImportError as error:
        raise SourceNotFound(
            f"The module {address.path} cannot be imported ({error})",
            value=str(address),
            mend="Run from its folder, or install it",
        ) from None
    for name in address.factory.split("."):
        if not hasattr(made, name):
            names = [known for known in dir(made) if not known.startswith("_")]
            raise UnknownName(f"{address.path} has no such factory", value=name, allowed=near(name, names))
        made = getattr(made, name)
    return made if isinstance(made, torch.nn.Module) else _called(made, address)


def _called(factory: Any, address: Address) -> Any:
    options = {key: _value(text) for key, text in address.options}
    if not callable(factory):
        raise BadOption(
            "The factory cannot be called", value=str(address), allowed="a function, a class or a torch module"
        )
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        known = list(inspect.signature(factory).parameters)
        raise BadOption(
            f"The factory cannot take these options ({error})", value=str(address), allowed=", ".join(known)
        ) from None
    except ValueError:  # a callable of C, which has no signature to look at
        pass
    return factory(**options)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _load(module: nn.Module, weights: TensorSource, address: Address) -> None:
    given = {name: ref for ref in weights.refs for name in (ref.name, *ref.aliases)}
    state = module.state_dict()
    # Files older than torch 0.4.1 lack the counters of batches, which no result depends on.
    absent = sorted(name for name in set(state) - set(given) if not name.endswith("num_batches_tracked"))
    extra = sorted(set(given) - set(state))
    wrong = [name for name in state if name in given and tuple(state[name].shape) != given[name].shape]
    if absent or extra or wrong:
        parts = [
            f"{len(names)} {what}: {', '.join(names[:5])}"
            for what, names in (("missing", absent), ("unexpected", extra))
            if names
        ]
        parts += [f"{name} is {list(given[name].shape)} and should be {list(state[name].shape)}" for name in wrong[:5]]
        raise WeightsMismatch("The weights do not fit the network (" + "; ".join(parts) + ")", value=str(address))
    module.load_state_dict({name: given[name].load() if name in given else state[name] for name in state})
