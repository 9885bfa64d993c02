"""The one training loop: batches, steps, validation, hooks, checkpoints, in any number of processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from querist.errors import BadOption
from querist.training.accelerate import Precision, Workplace, workplace
from querist.training.batches import Rows, rows_of, split
from querist.training.checkpoint import Store, differences
from querist.training.course import Course, Report
from querist.training.fitted import Fit
from querist.training.freezing import modes
from querist.training.hooks import Hook
from querist.training.optimizers import build
from querist.training.random_state import kept
from querist.training.schedules import Rate, Spec
from querist.training.step import Step
from querist.training.validation import Best, Validation, tensors_of

if TYPE_CHECKING:
    from torch import nn

    from querist.training.optimizers import Optimizer
    from querist.training.step import Weights
    from querist.training.totals import Loss
    from querist.training.validation import Score

__all__ = ["fit"]


def fit(
    model: nn.Module,
    loss: Loss,
    batches: Any,
    *,
    batch_size: int = 128,
    epochs: int | None = None,
    max_steps: int | None = None,
    shuffle: bool = True,
    drop_last: bool = False,
    collate: Callable[[list[Any]], Any] | None = None,
    workers: int = 0,
    validation: Any = None,
    validate_every: int | None = None,
    metric: Loss | None = None,
    score: Score | None = None,
    monitor: str = "total",
    mode: Literal["min", "max"] = "min",
    patience: int | None = None,
    min_delta: float = 0.0,
    restore_best: bool = True,
    optimizer: Optimizer = "adamw",
    lr: float | None = None,
    weight_decay: float | None = None,
    groups: Sequence[Mapping[str, Any]] | None = None,
    schedule: Spec = "constant",
    clip: float | None = None,
    accumulate: int = 1,
    weights: Weights | None = None,
    frozen: Sequence[str | nn.Module] = (),
    hooks: Sequence[Hook] = (),
    precision: Precision = "no",
    device: str = "auto",
    checkpoint: Path | str | None = None,
    checkpoint_every: int | None = None,
    keep: int = 2,
    resume: bool = False,
    log_every: int | None = None,
    seed: int = 0,
    progress: Report | None = None,
    name: str = "",
) -> Fit:
    """Train a network in place.

    Parameters
    ----------
    model: the network; it is moved to the device and stays there. Modes and `requires_grad` are given back as they were.
    loss: `loss(model, batch)` returns a dict of term -> (sum over rows, weight of those rows). Each sum is divided by its
        weight over all processes and micro-batches of the step, and the quotients are added up, so that shares of
        unequal size or weight give what one large batch gives. A term that is no sum over rows (a distance between
        groups of a batch) is averaged by weight over shares; that is not the large batch's value.
    batches: a tensor or array, a tuple or dict of them (first axes agree), or a map-style Dataset (`collate`, `workers`
        as in torch's DataLoader), or a source of one's own (`training.Batches`; batch_size, shuffle, drop_last
        are then its affair).
    batch_size: rows of one optimiser step, over all processes and micro-batches. The order of an epoch depends on seed
        and epoch alone.
    epochs, max_steps: training ends after either; one must be given.
    validation: data in a form that `batches` may have; or a number, the share of rows of `batches` set aside at random.
    validate_every: steps between validations; by default one after each epoch. A last one follows the last step.
    metric: figures of the validation beside the loss, in the same form. score: `score(model)` returns figures that are no
        means over rows; it is called in process 0, in eval mode, without gradients.
    monitor, mode, patience, min_delta: training ends after `patience` validations that did not improve the figure
        `monitor` by more than min_delta. restore_best: end with the weights of the best validation.
    optimizer, lr, weight_decay, groups: see `training.optimizers.build`; groups may come from layer-wise advice.
    schedule: see `training.Schedule`.
    clip: largest norm of the whole gradient.
    accumulate: micro-batches per step. weights: `weights(batch)` returns the weights that the loss would; without it each
        micro-batch is run once more, in eval mode, to learn them before the first gradient.
    frozen: modules, or globs over their names, that stay in eval mode and without gradients.
    hooks: see `training.Hook`; called in the order given.
    precision: "no", "bf16", or "fp16" (accelerators only), of `model(...)`; whatever else a loss calls runs in full precision.
        device: "auto", "cpu", "cuda", "cuda:N", "mps".
    checkpoint: folder for checkpoints, one after each epoch or every `checkpoint_every` steps, and one at the end; the last
        `keep` stay. resume: go on from the newest one, where there is one. It then ends with the same weights, bit for
        bit, as a training that was not interrupted, on a CPU and on devices whose kernels repeat; hooks go on from the
        state of process 0.
    log_every: steps per row of the history; by default one row per epoch and validation.
    seed: of data order, validation rows, and the global generators of torch, numpy and Python, which are seeded for the
        training (differently in each process) and given back to the caller as they were.
    progress: see `Report`. name: shown to hooks, where a verb makes several trainings (`TrainState.name`).

    In several processes (`training.launch_group`, torchrun, accelerate launch) every process calls this with the same
    arguments; the network begins with the weights of process 0, whose buffers (running statistics) hold before every
    step. Batch statistics of norm layers are those of a process's own rows.

    Raises
    ------
    NumericalFailure: a loss, gradient or monitored figure that is not finite, naming step and term.
    BadInput and its kinds: options out of range, data without rows, a checkpoint of another training (the differences
    named), a folder that another process writes to.
    """
    _check(epochs, max_steps, accumulate, validate_every, checkpoint_every, log_every, keep, clip, hooks)
    if resume and checkpoint is None:
        raise BadOption("There is nothing to resume from", value="resume=True", mend="Give checkpoint=, the folder")
    how: dict[str, Any] = {"collate": collate, "workers": workers, "seed": seed}
    source = rows_of(batches, batch_size, shuffle=shuffle, drop_last=drop_last, **how)
    held: Any = None
    if isinstance(validation, float | int) and not isinstance(validation, bool):
        if not isinstance(source, Rows):
            raise BadOption("A source of one's own is not split", value=validation, mend="Give validation data")
        source, held = split(source, float(validation), seed)
    elif validation is not None:
        held = rows_of(validation, batch_size, shuffle=False, what="validation", **how)
    if held is None and (patience is not None or metric or score or validate_every):
        raise BadOption("There is nothing to validate on", value="validation=None", mend="Give validation=")
    best = Best(monitor=monitor, mode=mode, patience=patience, min_delta=min_delta, restore=restore_best)
    with ExitStack() as stack:
        work = stack.enter_context(workplace(model, device=device, precision=precision))
        stack.enter_context(kept(work.device))
        state = stack.enter_context(modes(model, frozen))
        made = build(model, optimizer, lr=lr, weight_decay=weight_decay, groups=groups)
        work.from_main(tensors_of(model).values())
        work.prepare_optimizer(made)
        ends = _ends(source.steps, epochs, max_steps)
        course = Course(
            model=model,
            work=work,
            modes=state,
            source=source,
            optimizer=made,
            step=Step(work, state, loss, made, accumulate=accumulate, weights=weights, clip=clip),
            validation=Validation(work, state, held, loss, metric, score, seed=seed) if held is not None else None,
            best=best,
            rate=Rate(schedule, ends, validates=held is not None, better_is=mode),
            hooks=list(hooks),
            epochs=epochs,
            max_steps=max_steps,
            total=ends[0] or 0,
            every={"validate": validate_every, "checkpoint": checkpoint_every, "log": log_every},
            seed=seed,
            progress=progress if work.is_main else None,
            name=name,
        )
        config = course.describe(loss, accumulate, clip, precision) if checkpoint or work.processes > 1 else {}
        _same_everywhere(work, config)
        store = Store(checkpoint, keep=keep, resume=resume, writes=work.is_main) if checkpoint else None
        if store is not None:
            # Others look only when process 0 has the lock and has cleared what was left over.
            if work.is_main:
                stack.enter_context(store)
            work.any(False)
        return course.run(store, config)


def _check(
    epochs: Any,
    max_steps: Any,
    accumulate: Any,
    validate: Any,
    checkpoint: Any,
    log: Any,
    keep: Any,
    clip: Any,
    hooks: Any,
) -> None:
    if epochs is None and max_steps is None:
        raise BadOption("The training has no end", value="epochs=None, max_steps=None", allowed="at least one of them")
    given = {
        "epochs": epochs,
        "max_steps": max_steps,
        "accumulate": accumulate,
        "validate_every": validate,
        "checkpoint_every": checkpoint,
        "log_every": log,
        "keep": keep,
    }
    for name, value in given.items():
        if value is not None and (type(value) is not int or value < 1):
            raise BadOption(f"{name} counts from 1", value=value, allowed=f"{name} >= 1")
    if clip is not None and not clip > 0:
        raise BadOption("The largest norm of the gradient is not positive", value=clip, allowed="clip > 0, or None")
    for hook in hooks:
        if not isinstance(hook, Hook):
            raise BadOption(
                "This is no hook",
                value=type(hook).__name__,
                allowed="objects of classes made from querist.training.Hook",
            )


def _ends(per_epoch: int | None, epochs: int | None, max_steps: int | None) -> tuple[int | None, int | None]:
    """Steps and epochs after which the training ends at the latest, None where unknown."""
    steps = [one for one in (max_steps, epochs * per_epoch if epochs and per_epoch else None) if one]
    passes = [one for one in (epochs, -(-max_steps // per_epoch) if max_steps and per_epoch else None) if one]
    # With epochs of unknown length both ends may come first; a schedule that must know is then told what is certain.
    return (min(steps) if steps else None), (min(passes) if passes else None)


def _same_everywhere(work: Workplace, config: Mapping[str, Any]) -> None:
    if work.processes == 1:
        return
    texts = work.gather_text(json.dumps(config, sort_keys=True))
    for rank, text in enumerate(texts):
        if found := differences(json.loads(texts[0]), json.loads(text)):
            raise BadOption(
                f"Process {rank} trains something else than process 0",
                value="; ".join(found[:5])
                .replace(" in the checkpoint", f" in process {rank}")
                .replace(" here", " in process 0"),
                allowed="the same arguments in every process",
            )
