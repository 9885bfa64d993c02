"""Training for a fit: single networks with checkpoints of their own, then the model as a whole; in a group where asked for."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querist.effects.configs import FitConfig
from querist.effects.sample import Sample
from querist.effects.studies.fit_models import made_model, model_kind
from querist.effects.studies.fit_table import Streaming
from querist.effects.studies.people import Opened
from querist.errors import BadOption, BadValues
from querist.sources.rows import open_rows

if TYPE_CHECKING:
    from querist.effects.studies.fit import FitStudy

__all__ = ["CHECKPOINT", "estimator_for", "fitted", "train_model", "train_network"]

CHECKPOINT = "checkpoint"


class _Trained(Exception):
    """One network is trained; the rest of the fit is not wanted."""


def estimator_for(config: FitConfig, table: Opened | Streaming) -> Any:
    """The estimator that the options ask for, its labels those of the table. Raises BadOption for a strange reference arm."""
    propensity: Any = config.propensity if table.shares is None else list(table.shares)
    # Kinds that were not named are found by the estimator where rows are streamed, and said to it where they are known.
    known = None if isinstance(table, Streaming) else dict(zip(table.outcomes.names, table.outcomes.kinds, strict=True))
    model = made_model(config, control=table.labels[0], outcomes=known, propensity=propensity)
    if config.reference_arm is not None:
        found = [label for label in table.labels[1:] if str(label) == config.reference_arm]
        if not found:
            raise BadOption("No such reference arm", value=config.reference_arm, allowed=", ".join(table.names[1:]))
        model.set_params(reference_arm=found[0])
    return model


def fitted(
    config: FitConfig,
    table: Opened | Streaming,
    *,
    checkpoint: Path | None = None,
    only: tuple[int, int] | None = None,
    hooks: Sequence[Any] = (),
) -> tuple[Any, Sample, Any]:
    """The fitted model, the sample that it was fitted on (of streamed rows those held in memory), and where a stream came from.

    only: (fold, member) of the one network that is trained; the model is then None. Raises what `Estimator.fit` raises.
    """
    model = estimator_for(config, table)
    caught: list[Any] = []
    own_fit = model._fit

    def fit(sample: Sample, given: Sequence[Any]) -> None:
        caught[:] = [sample, getattr(model, "_source", None)]
        own_fit(sample, given)

    model._fit = fit
    if only is not None:
        own_train = model._train

        def train(sample: Sample, fold: int, one: int, given: Sequence[Any]) -> None:
            own_train(sample, *only, given)
            raise _Trained

        model._train = train
    kept: dict[str, Any] = {}
    if model_kind(config.model).crossed and checkpoint is not None:
        kept = {"checkpoint": checkpoint, "resume": True}
    try:
        if isinstance(table, Streaming):
            _fit_streamed(config, model, table, hooks, kept)
        else:
            people = table.people
            names = list(table.columns.names)
            if not names:
                raise BadValues(
                    "No feature varies", value=", ".join(table.columns.constant[:8]), allowed="one that does"
                )
            model.fit(
                open_rows(people.features.select(names)),
                people.arm,
                people.outcomes,
                sample_weight=people.weight,
                cluster=people.cluster,
                hooks=hooks,
                **kept,
            )
    except _Trained:
        return None, caught[0], caught[1]
    finally:
        for name in ("_fit", "_train"):
            model.__dict__.pop(name, None)
    return model, caught[0], caught[1]


def _fit_streamed(
    config: FitConfig, model: Any, table: Streaming, hooks: Sequence[Any], kept: Mapping[str, Any]
) -> None:
    roles = table.roles
    model.fit_rows(
        table.rows,
        arm=roles.arm,
        outcomes=dict(roles.outcomes),
        feature=roles.features,
        cluster=roles.cluster,
        weight=roles.weight,
        positive=config.positive,
        drop_missing_arm=config.drop_missing_arm,
        hooks=hooks,
        **kept,
    )


def train_network(study: FitStudy, config: FitConfig, fold: int, member: int, folder: str) -> None:
    """One network of a cross-fitted model; its state stays in the folder, from which a killed training goes on."""
    fitted(config, study.opened(config), checkpoint=Path(folder) / CHECKPOINT, only=(fold, member))


def train_model(
    study: FitStudy, config: FitConfig, checkpoints: Sequence[str], folder: str
) -> Mapping[str, Any] | None:
    """The whole model, from networks that are trained already where there are any; written, and measured on its own rows.

    In a group of processes all of them train and process 0 alone writes and measures; the others return None.
    """
    from querist.effects.studies.fit_measure import measure

    own = Path(folder) / f"{CHECKPOINT}-{_rank()}"
    if checkpoints:
        shutil.rmtree(own, ignore_errors=True)
        for one in checkpoints:
            for network in Path(one).iterdir():
                shutil.copytree(network, own / network.name)
    table = study.opened(config)
    try:
        model, sample, source = fitted(config, table, checkpoint=own if checkpoints else None)
        if _rank():
            return None
        model.save(Path(folder) / "model")
        return measure(config, table, model, sample, source)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _rank() -> int:
    import torch

    group = torch.distributed
    return group.get_rank() if group.is_available() and group.is_initialized() else 0
