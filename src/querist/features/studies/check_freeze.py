"""What can be known to be wrong before a sweep begins, so that a mistake costs seconds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from querist.errors import BadOption, ShapeMismatch
from querist.features.configs import FreezeConfig
from querist.features.profile import arm_size
from querist.features.reduction import Reduction

if TYPE_CHECKING:
    from querist.features.studies.freeze import FreezeStudy

__all__ = ["check_freeze"]


def check_freeze(config: FreezeConfig, study: FreezeStudy) -> None:
    """Raise BadInput for options that contradict each other, data that are too few, unlabelled or do not fit, unknown blocks."""
    _options(config, study)
    material = study.material(config)
    network = material.network("model")
    if network.form != "module":
        raise BadOption(
            "Only a torch module can be trained",
            value=network.form,
            allowed="package.module:factory[@weights], a torch module",
            mend="Name the code that builds the network",
        )
    for i in range(len(config.target)):
        target = study.target(config, i)
        try:
            target.check()
            _fits(config, study, i)
            if i == 0:
                study.blocks(config).numbers(config.ks)
        except ShapeMismatch as error:
            mend = error.mend or "Change the pictures: --size, --channels, --pad"
            raise type(error)(
                f"{target.name}: {error.what}", value=error.value, allowed=error.allowed, mend=mend
            ) from None
        if config.source:
            arm_size(min(config.n, len(material.data("source", config))), len(target.measured()))


def _options(config: FreezeConfig, study: FreezeStudy) -> None:
    if not config.model:
        raise BadOption("There is no network to train", value=config.model, mend="Name MODEL")
    if not config.target:
        raise BadOption("A sweep needs a target", value=config.target, mend="Name one with --target B")
    for what, names in (("targets", config.target), ("arms", config.arms)):
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise BadOption(f"Two {what} have one name", value=twice[0], allowed="each once")
    if "*" in config.target:
        raise BadOption("A target cannot be called *, which stands for all of them", value="*", mend="Rename it")
    if config.test and len(config.test) != len(config.target):
        raise BadOption(
            "There must be test data for each target or for none",
            value=f"{len(config.test)} for {len(config.target)} targets",
            allowed="as many --test as --target",
        )
    if "pretrained" not in config.arms:
        raise BadOption(
            "The arms are compared with pretrained weights, which are not among them",
            value=", ".join(config.arms),
            allowed="arms with pretrained among them",
        )
    if config.spill:
        raise BadOption(
            "A sweep's captures are small, and held rows go to files by themselves",
            value="--spill",
            mend="Leave it out",
        )
    if study.hooks and config.processes > 1:
        raise BadOption("Hooks watch a training in this process", value=config.processes, allowed="--processes 1")
    if config.processes > 1 and config.device not in ("auto", "cpu", "cuda"):
        raise BadOption(
            "In a group each process has the device of its rank", value=config.device, allowed="auto, cpu, cuda"
        )
    Reduction.of(config.reduce, config.proj_dim)


def _fits(config: FreezeConfig, study: FreezeStudy, i: int) -> None:
    """Look at the network with the target's first rows, so that layers and shapes are known to be right."""
    from querist.features.studies.freeze_cell import few_rows
    from querist.sources.taps import Tap

    with Tap(study.material(config).network("model"), layers=config.layers, device=config.device) as tap:
        tap.look(few_rows(study.target(config, i)))
