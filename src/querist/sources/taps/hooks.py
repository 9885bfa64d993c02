"""Torch modules: values read in hooks, before an activation in place can overwrite them; everything put back afterwards."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from querist.errors import BadInput, QueristError, ShapeMismatch
from querist.sources.taps.activations import is_activation
from querist.sources.taps.book import Book
from querist.sources.taps.functions import Watch, first_tensor, items
from querist.sources.taps.sites import Key, Receive, Survey

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["ModuleNetwork", "unwrapped"]


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside DataParallel, DistributedDataParallel and torch.compile."""
    import torch

    while True:
        if isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
            module = module.module
        elif hasattr(module, "_orig_mod"):
            module = module._orig_mod  # pyright: ignore[reportAssignmentType]
        else:
            return module


class ModuleNetwork:
    """A `torch.nn.Module`. Sites are the arguments of activation modules and functions, blocks, and outputs of modules."""

    form: str = "module"
    fixed_batch: int | None = None
    holds_all: bool = False

    def __init__(self, module: nn.Module, name: str = ""):
        import torch

        self.module = unwrapped(module)
        self.name = name or type(self.module).__qualname__
        named = dict(self.module.named_modules())
        self.scripted = [path for path, part in named.items() if isinstance(part, torch.jit.ScriptModule)]
        self.parts = {path: part for path, part in named.items() if path not in self.scripted}
        self.kinds = {path: type(part).__name__ if _torch_own(part) else "?" for path, part in self.parts.items()}
        self._mixed: set[str] = set()  # names that a module and a function called in its parent share
        self.children = {path: [name for name, _ in part.named_children()] for path, part in self.parts.items()}

    # ---------------------------------------------------------------------------------------------------------- state

    @contextmanager
    def ready(self, device: str) -> Iterator[list[str]]:
        """Evaluation mode on the device, float32 without TF32; flags, buffers, device and settings are put back."""
        import torch

        told: list[str] = []
        flags = [(part, part.training) for part in self.parts.values()]
        training = sum(flag for _, flag in flags)
        if training:
            told.append(f"{training} modules were in training mode; they were set to evaluation and put back")
        told += [f"{path} is TorchScript: nothing inside it can be read" for path in self.scripted]
        home = _home(self.module)
        buffers = _buffers(self.parts)
        mha, tf32 = torch.backends.mha, torch.backends.cudnn
        fast, conv = mha.get_fastpath_enabled(), tf32.allow_tf32
        try:
            self.module.eval()
            mha.set_fastpath_enabled(False)  # fused encoder layers would hide their activations
            tf32.allow_tf32 = False  # pyright: ignore[reportAttributeAccessIssue]
            if home is not None and torch.device(device) != home:
                self.module.to(device)
            yield told
        finally:
            if home is not None and torch.device(device) != home:
                self.module.to(home)
            for part, flag in flags:
                part.training = flag
            mha.set_fastpath_enabled(fast)
            tf32.allow_tf32 = conv  # pyright: ignore[reportAttributeAccessIssue]
            if changed := _restore(buffers, self.parts):
                told.append(
                    f"{len(changed)} buffers changed in evaluation mode and were put back, among them {changed[0]}"
                )

    # --------------------------------------------------------------------------------------------------------- survey

    def survey(self, inputs: Any) -> Survey:
        """Sites in the order in which their values exist. Raises ShapeMismatch where the network cannot take the inputs."""
        book = Book(self.parts, self.kinds, self.children)
        output = self._forward(inputs, book.sight, inference=False)
        self._mixed |= book.mixed
        return book.close(output)

    def run(self, inputs: Any, keys: Collection[Key], receive: Receive) -> None:
        """Hand over the values of these sites. Raises as `survey`."""
        import torch

        counts: dict[tuple[str, str], int] = {}
        wanted = set(keys)
        outputs = {(key[1], key[2]) for key in wanted if key[0] == "end"}

        def sight(what: str, base: str, operation: str, value: Any) -> None:
            if what == "result":
                return
            place = counts[what, base] = counts.get((what, base), 0) + 1
            if what == "end":
                if (base, place) in outputs:
                    for path, tensor in items(value):
                        if ("end", base, place, path) in wanted:
                            receive(("end", base, place, path), tensor)
            elif (what, base, place) in wanted and isinstance(value, torch.Tensor):
                receive((what, base, place), value)

        # Functions need every module watched, to know where they are called; modules alone only need their own hooks.
        named = {key[1] for key in wanted if key[0] in ("call", "end") and key[1] in self.parts}
        alone = all(key[0] == "output" or key[1] in named for key in wanted) and not named & self._mixed
        output = self._forward(inputs, sight, only=named if alone else None)
        if ("output",) in wanted and (tensor := first_tensor(output)) is not None:
            receive(("output",), tensor)

    def _forward(
        self,
        inputs: Any,
        sight: Callable[[str, str, str, Any], None],
        *,
        inference: bool = True,
        only: set[str] | None = None,
    ) -> Any:
        """One forward pass, watched. Hooks are gone when this returns.

        Without `inference`, tensors count their changes in place (gradients are off all the same). `only` names the modules
        that are watched; functions are not then.
        """
        import torch

        watch = Watch(sight)
        entered: list[tuple[str, _Given]] = []
        handles = []

        def before(path: str, active: bool) -> Callable[..., None]:
            operation = type(self.parts[path]).__name__

            def hook(_: Any, args: Any, kwargs: Any) -> None:
                value = args[0] if args else next(iter(kwargs.values()), None)
                watch.stack.append(path)
                entered.append((path, _Given.of(value)))  # the value itself would stay alive
                if active and not watch.inside:
                    sight("call", path, operation, value)
                watch.inside += active

            return hook

        def after(path: str, active: bool) -> Callable[..., None]:
            operation = type(self.parts[path]).__name__

            def hook(_: Any, args: Any, output: Any) -> None:
                watch.stack.pop()
                watch.inside -= active
                if active and not watch.inside:
                    sight("result", path, operation, output)
                sight("end", path, operation, output)

            return hook

        try:
            for path, part in self.parts.items():
                if only is not None and path not in only:
                    continue
                active = path != "" and is_activation(part)
                handles.append(part.register_forward_pre_hook(before(path, active), with_kwargs=True))
                handles.append(part.register_forward_hook(after(path, active), always_call=True))
            with torch.inference_mode() if inference else torch.no_grad(), watch if only is None else nullcontext():
                return self.call(inputs)
        except QueristError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError, AssertionError) as error:
            raise self._cannot(error, inputs, entered) from error
        finally:
            for handle in handles:
                handle.remove()

    def call(self, inputs: Any) -> Any:
        """A plain forward pass: a dict as keywords (a mask that forward does not take is left out), a tuple as arguments."""
        inputs = _as_parameters(inputs, self.module)
        if isinstance(inputs, Mapping):
            known = inspect.signature(self.module.forward).parameters
            open_ended = any(given.kind is given.VAR_KEYWORD for given in known.values())
            keep = {k: v for k, v in inputs.items() if open_ended or k in known or k != "attention_mask"}
            return self.module(**keep)
        return self.module(*inputs) if isinstance(inputs, tuple | list) else self.module(inputs)

    def _cannot(self, error: Exception, inputs: Any, entered: list[tuple[str, _Given]]) -> BadInput:
        """The error for a failed forward pass: at which module, what it takes, what came, which option mends it."""
        import torch

        words = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        path, value = next(((p, v) for p, v in reversed(entered) if not self.children[p]), ("", _Given.of(inputs)))
        part = self.parts[path]
        given = f"{path or 'the network'} was given {value.words}"
        pictures = isinstance(inputs, torch.Tensor) and inputs.ndim == 4
        if value.shape is not None and (takes := _takes(part, value.shape, value.floating)):
            mend = "Change the shape of the rows"
            if pictures:
                channels = "channels" in takes and value.shape == tuple(inputs.shape)
                need = getattr(part, "in_channels", "")
                mend = f"Give --channels {need}" if channels else "Give --size (and --pad) so that pictures fit"
                given = f"pictures have the shape {list(inputs.shape)}" if channels else given
            return ShapeMismatch(f"The network's {path} takes {takes}, but {given}", value=words, mend=mend)
        return BadInput(
            f"The network failed in {path or 'its forward pass'} ({type(error).__name__}); {given}", value=words
        )


class _Given(NamedTuple):
    """What a module was given: shape and kind of a tensor, and how to say it."""

    shape: tuple[int, ...] | None
    floating: bool
    words: str

    @classmethod
    def of(cls, value: Any) -> _Given:
        import torch

        if isinstance(value, torch.Tensor):
            return cls(tuple(value.shape), value.is_floating_point(), str(list(value.shape)))
        return cls(None, False, type(value).__name__)


def _torch_own(part: nn.Module) -> bool:
    return type(part).__module__.startswith("torch.nn")


def _home(module: nn.Module) -> Any:
    devices = {value.device for value in [*module.parameters(), *module.buffers()]}
    return devices.pop() if len(devices) == 1 else None


def _buffers(parts: Mapping[str, nn.Module]) -> dict[tuple[str, str], tuple[Tensor, Tensor]]:
    """Every buffer with a copy of its values."""
    return {
        (path, name): (value, value.clone())
        for path, part in parts.items()
        for name, value in part._buffers.items()
        if value is not None
    }


def _restore(before: Mapping[tuple[str, str], tuple[Tensor, Tensor]], parts: Mapping[str, nn.Module]) -> list[str]:
    """Put buffers back that are others now; their names."""
    import torch

    changed = []
    for (path, name), (original, copy) in before.items():
        now = parts[path]._buffers.get(name)
        if (
            now is not None
            and now.shape == copy.shape
            and bool(torch.isclose(now.to(copy.device), copy, 0, 0, True).all())
        ):
            continue
        with torch.no_grad():
            original.copy_(copy)
        parts[path]._buffers[name] = original
        changed.append(f"{path}.{name}".removeprefix("."))
    return changed


def _as_parameters(inputs: Any, module: nn.Module) -> Any:
    """Floating inputs in the type and on the device of the network's parameters."""
    import torch

    like = next((p for p in module.parameters() if p.is_floating_point()), None)

    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or like is None:
            return value
        return value.to(like.device, like.dtype) if value.is_floating_point() else value.to(like.device)

    if isinstance(inputs, Mapping):
        return {key: one(value) for key, value in inputs.items()}
    return type(inputs)(one(value) for value in inputs) if isinstance(inputs, tuple | list) else one(inputs)


def _takes(part: Any, shape: tuple[int, ...], floating: bool) -> str | None:
    """What a layer takes, where the value of this shape is something else."""
    from torch import nn
    from torch.nn.modules.batchnorm import _NormBase
    from torch.nn.modules.conv import _ConvNd

    if isinstance(part, _ConvNd) and (len(shape) < 2 or shape[1] != part.in_channels):
        sides = ", ".join("DHW"[-len(part.kernel_size) :])
        return f"{part.in_channels} channels [n, {part.in_channels}, {sides}]"
    if isinstance(part, nn.Linear) and shape[-1:] != (part.in_features,):
        return f"{part.in_features} features"
    if isinstance(part, _NormBase) and len(shape) > 1 and shape[1] != part.num_features:
        return f"{part.num_features} channels"
    if isinstance(part, nn.Embedding) and floating:
        return "whole numbers (token ids)"
    return None
