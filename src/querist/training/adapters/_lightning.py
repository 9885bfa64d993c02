"""A hook as a callback of Lightning's Trainer."""

from __future__ import annotations

from typing import Any

from querist.training.adapters._shared import anywhere, checked, missing, numbers
from querist.training.hooks import Hook, TrainState

__all__ = ["adapt"]


def adapt(hook: Hook, name: str | None) -> Any:
    """See `querist.training.adapters.lightning`."""
    name = checked(hook, name)
    try:
        from lightning.pytorch import Callback  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise missing("lightning", "lightning") from None

    class HookCallback(Callback):
        """One hook of querist."""

        def __init__(self) -> None:
            super().__init__()
            self.hook = hook
            self._seen: TrainState | None = None

        @property
        def state_key(self) -> str:
            return f"querist.{name}"

        def state_dict(self) -> dict[str, Any]:
            return hook.state() if self._seen is not None else {}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            if state_dict:
                hook.load_state(state_dict)

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._seen = TrainState(
                pl_module, step=trainer.global_step, is_main=trainer.is_global_zero, device=pl_module.device
            )
            self._show("on_start", trainer, trainer.current_epoch)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            seen = self._state()
            if trainer.global_step == seen.step:
                return  # a micro-batch whose gradients are still gathered
            seen.step = trainer.global_step
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            # Lightning hands over the loss divided by the number of micro-batches.
            seen.losses = {k: v * trainer.accumulate_grad_batches for k, v in numbers({"loss": loss}).items()}
            self._show("on_step", trainer, trainer.current_epoch)

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            if self._seen is not None and not trainer.sanity_checking:
                self._seen.metrics = numbers(trainer.callback_metrics)

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self._show("on_epoch", trainer, trainer.current_epoch + 1)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            # By now the trainer has counted the last epoch.
            self._show("on_end", trainer, trainer.current_epoch)

        def _state(self) -> TrainState:
            assert self._seen is not None
            return self._seen

        def _show(self, moment: str, trainer: Any, epoch: int) -> None:
            seen = self._state()
            seen.epoch = epoch
            seen.optimizer = trainer.optimizers[0] if trainer.optimizers else None
            getattr(hook, moment)(seen)
            if moment != "on_end" and anywhere(seen.stop, seen.device):
                seen.stop = trainer.should_stop = True

    HookCallback.__qualname__ = f"HookCallback[{name}]"
    return HookCallback()
