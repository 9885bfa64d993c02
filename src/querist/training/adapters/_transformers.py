"""A hook as a callback of Hugging Face's Trainer."""

from __future__ import annotations

import base64
import math
from typing import Any

from querist.training.adapters._shared import anywhere, checked, missing, numbers, unwrapped
from querist.training.hooks import Hook, TrainState
from querist.training.tree import flatten, unflatten

__all__ = ["adapt"]


def adapt(hook: Hook, name: str | None) -> Any:
    """See `querist.training.adapters.transformers`.

    A class of its own per hook: when the Trainer takes up a checkpoint it makes a new callback of the same class, without
    arguments but those that it read from JSON, and tells callbacks apart by the names of their classes.
    """
    name = checked(hook, name)
    try:
        from transformers import TrainerCallback  # pyright: ignore[reportMissingImports]
        from transformers.trainer_callback import ExportableState  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise missing("transformers", "transformers") from None

    class HookCallback(TrainerCallback, ExportableState):
        """One hook of querist."""

        def __init__(self) -> None:
            self.hook = hook
            self._seen: TrainState | None = None

        # The Trainer saves `state()` as JSON and sets the attributes that it names on a new callback.
        def state(self) -> dict[str, Any]:
            if self._seen is None:
                return {"args": {}, "attributes": {}}  # asked for as soon as the Trainer is made
            return {"args": {}, "attributes": {"hook_state": _packed(hook.state())}}

        @property
        def hook_state(self) -> dict[str, Any]:
            return _packed(hook.state())

        @hook_state.setter
        def hook_state(self, packed: dict[str, Any]) -> None:
            hook.load_state(_unpacked(packed))

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            model = unwrapped(kwargs["model"])
            self._seen = TrainState(model, is_main=state.is_world_process_zero, device=args.device)
            # A checkpoint from before this hook does not know it, and the Trainer's next one would fail over that.
            state.stateful_callbacks.setdefault(type(self).__name__, self.state())
            return self._show("on_start", state, control, _passes(state), kwargs)

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._state().epoch = _passes(state)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            return self._show("on_step", state, control, self._state().epoch, kwargs)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if self._seen is not None and logs and "loss" in logs:
                self._seen.losses = numbers({"loss": logs["loss"]})

        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
            if self._seen is not None:
                self._seen.metrics = numbers(metrics)

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            return self._show("on_epoch", state, control, self._state().epoch + 1, kwargs)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            return self._show("on_end", state, control, self._state().epoch, kwargs)

        def _state(self) -> TrainState:
            assert self._seen is not None
            return self._seen

        def _show(self, moment: str, state: Any, control: Any, epoch: int, kwargs: dict[str, Any]) -> Any:
            seen = self._state()
            seen.step, seen.epoch = state.global_step, epoch
            optimizer = kwargs.get("optimizer")
            seen.optimizer = getattr(optimizer, "optimizer", optimizer)  # Accelerate's wrapper holds the real one
            getattr(hook, moment)(seen)
            if moment != "on_end" and anywhere(seen.stop, seen.device):
                seen.stop = control.should_training_stop = True
            return control

    HookCallback.__name__ = HookCallback.__qualname__ = f"Querist_{name}"
    return HookCallback()


def _passes(state: Any) -> int:
    """Passes completed; the Trainer counts them in fractions."""
    return math.floor((state.epoch or 0) + 1e-6)


def _packed(state: dict[str, Any]) -> dict[str, Any]:
    from safetensors.torch import save

    plain, tensors = flatten(state)
    return {"plain": plain, "tensors": base64.b64encode(save(tensors)).decode("ascii")}


def _unpacked(packed: dict[str, Any]) -> dict[str, Any]:
    from safetensors.torch import load

    return unflatten(packed["plain"], load(base64.b64decode(packed["tensors"])))
