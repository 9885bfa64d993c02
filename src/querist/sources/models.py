"""Networks: `package.module:factory[?key=value][@weights]`, `.pt2`, `.ts`, `.onnx`, or a network in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from querist.errors import BadOption, SourceNotFound, UnsupportedFormat
from querist.sources.address import Address, parse

if TYPE_CHECKING:
    from torch import nn

    from querist.sources.taps import Network

__all__ = ["build_module", "call_factory", "open_model"]

ALLOWED = "package.module:factory[?key=value][@weights.safetensors|.pt|.th], a .pt2, .ts or .onnx file, a torch module"


def open_model(what: Any) -> Network:
    """A network that can be tapped.

    `what` is a MODEL address, a torch module, an ExportedProgram, a ScriptModule, or a Network. Weights behind `@` are a file
    or a registered name, read as data; a `state_dict` key and the prefix `module.` are taken off. Nothing is unpickled.

    Raises SourceNotFound, UnknownName, WeightsMismatch, UnsafeFile, CorruptFile, UnsupportedFormat (a pickled module, or a
    state dict without its network), MissingExtra.
    """
    if isinstance(what, str | Path | Address):
        return _at(what if isinstance(what, Address) else parse(str(what)))
    import torch

    if isinstance(what, torch.jit.ScriptModule):
        from querist.sources.taps.torchscript import ScriptNetwork

        return ScriptNetwork(what, str(getattr(what, "original_name", "script")))
    if isinstance(what, torch.nn.Module):
        from querist.sources.taps.hooks import ModuleNetwork

        return ModuleNetwork(what)
    if isinstance(what, torch.export.ExportedProgram):
        from querist.sources.taps.export import of_program

        return of_program(what)
    if all(hasattr(what, name) for name in ("ready", "survey", "run", "form")):
        return what
    raise BadOption("This is no network", value=type(what).__qualname__, allowed=ALLOWED)


def _at(address: Address) -> Network:
    if address.kind == "python":
        from querist.sources.taps.hooks import ModuleNetwork

        return ModuleNetwork(build_module(address), str(address))
    form = address.format
    if address.kind == "file" and form in ("torch.export", "torchscript", "onnx"):
        path = address.only([]).local()
        if not path.is_file():
            raise SourceNotFound("There is no file here", value=str(path))
        if form == "torch.export":
            from querist.sources.taps.export import read_exported_program as read
        elif form == "torchscript":
            from querist.sources.taps.torchscript import read_script as read
        else:
            from querist.sources.taps.onnx import read_onnx_network as read
        return read(path)
    weights = address.kind == "name" or Path(address.path).suffix in (
        ".pt",
        ".pth",
        ".th",
        ".bin",
        ".safetensors",
        ".ckpt",
    )
    raise UnsupportedFormat(
        "Weights alone are no network" if weights else "This names no network",
        value=str(address),
        allowed=ALLOWED,
        mend=f"Name the code that builds it: package.module:factory@{address.path}" if weights else None,
    )


def build_module(address: Address | str) -> nn.Module:
    """The torch module of `package.module:factory[?key=value][@weights]`. Raises as `open_model`."""
    from querist.sources.tensors import open_source
    from querist.sources.tensors.factory import build

    address = address if isinstance(address, Address) else parse(address)
    if address.kind != "python":
        raise BadOption(
            "A torch module is needed here", value=str(address), allowed="package.module:factory[?key=value][@weights]"
        )
    return build(address, open_source)


def call_factory(address: Address) -> Any:
    """What `package.module:factory[?key=value]` returns, whatever it is. Raises SourceNotFound, UnknownName, BadOption."""
    from querist.sources.tensors.factory import called

    if address.weights:
        raise BadOption("Weights mean nothing here", value=str(address), mend="Leave out what follows @")
    return called(address)
