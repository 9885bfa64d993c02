"""Hooks of querist inside other trainers: `lightning(hook)` and `transformers(hook)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from querist.training.hooks import Hook

__all__ = ["lightning", "transformers"]


def lightning(hook: Hook, *, name: str | None = None) -> Any:
    """A `lightning.pytorch.Callback` that shows a training of Lightning's Trainer to a hook.

    on_start is told by Lightning's `on_train_start` (weights and callbacks of a checkpoint are restored by then), on_step by
    `on_train_batch_end` where `trainer.global_step` has grown (with several optimisers it counts the steps of each),
    on_epoch by `on_train_epoch_end`, on_end by `on_train_end`. `losses` is the `loss` of the last micro-batch as
    `training_step` returned it, in this process; `metrics` are `trainer.callback_metrics` as of `on_validation_end`,
    sanity checks left out. `model` is the LightningModule, `optimizer` the first one. `stop` of any process sets
    `trainer.should_stop` in all. The hook's state travels in `state_dict` under the key `querist.<name>`.

    name: by default the class of the hook; two hooks of one class in one trainer need two names.
    Raises MissingExtra where Lightning is not installed, BadOption for something that is no hook.
    """
    from querist.training.adapters._lightning import adapt

    return adapt(hook, name)


def transformers(hook: Hook, *, name: str | None = None) -> Any:
    """A `transformers.TrainerCallback` that shows a training of Hugging Face's Trainer to a hook.

    on_start is told by `on_train_begin`, on_step by `on_step_end` (after the optimiser's step), on_epoch by `on_epoch_end`,
    on_end by `on_train_end`. `losses` holds the last logged `loss`, the trainer's mean over `logging_steps`, and is empty
    before the first log (`on_log`); `metrics` are the numbers of the last `on_evaluate`, which the Trainer calls after
    `on_epoch_end`: on_epoch sees those of the evaluation before. `stop` of any process sets
    `control.should_training_stop` in all. The hook's state travels as the callback's exportable state in
    `trainer_state.json`; the Trainer takes it up where `restore_callback_states_from_checkpoint=True`.

    name: by default the class of the hook; two hooks of one class in one trainer need two names.
    Raises MissingExtra where transformers is not installed, BadOption for something that is no hook.
    """
    from querist.training.adapters._transformers import adapt

    return adapt(hook, name)
