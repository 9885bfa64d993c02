"""Names of models on the command line, and what each takes of the options of a fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import querist.effects as room
from querist.effects.configs import FitConfig
from querist.errors import BadOption, UnknownName, near

__all__ = ["MODELS", "ModelKind", "check_options", "made_model", "model_kind"]

_TRAINED = (
    "epochs",
    "batch_size",
    "lr",
    "val_fraction",
    "weighting",
    "link",
    "preset",
    "ensemble",
    "processes",
    "device",
)
_CROSSED = ("folds",)
_OWN = ("preset", "expert", "shrink", "folds", "link", "stream", *_TRAINED)


@dataclass(frozen=True)
class ModelKind:
    """A model's class, the options that are its own, and whether it is trained step by step."""

    name: str
    cls: str
    takes: tuple[str, ...] = ()

    @property
    def trained(self) -> bool:
        """Whether it is a network, which several processes may train and whose training a table tells of."""
        return "epochs" in self.takes

    @property
    def crossed(self) -> bool:
        """Whether its networks are units of their own."""
        return self.cls == "MTMT"


MODELS: Mapping[str, ModelKind] = MappingProxyType(
    {
        one.name: one
        for one in (
            ModelKind("mtmt", "MTMT", _OWN),
            ModelKind("s-learner", "SLearner"),
            ModelKind("t-learner", "TLearner"),
            ModelKind("x-learner", "XLearner", _CROSSED),
            ModelKind("r-learner", "RLearner", _CROSSED),
            ModelKind("dr-learner", "DRLearner", _CROSSED),
            ModelKind("tarnet", "TARNet", _TRAINED),
            ModelKind("cfrnet", "CFRNet", _TRAINED),
            ModelKind("dragonnet", "DragonNet", _TRAINED),
            ModelKind("m3tn", "M3TN", _TRAINED),
            ModelKind("efin-like", "EFINLike", _TRAINED),
            ModelKind("flextenet", "FlexTENet", _TRAINED),
            ModelKind("mmoe", "MMoE", _TRAINED),
            ModelKind("ple", "PLE", _TRAINED),
            ModelKind("constant", "ConstantEffect"),
            ModelKind("random", "RandomRank"),
            ModelKind("natural", "NaturalRank"),
            ModelKind("single-arm", "SingleArm"),
        )
    }
)
_OPTIONS = tuple(dict.fromkeys(_OWN))


def model_kind(name: str) -> ModelKind:
    """A model by its name on the command line. Raises UnknownName with near names."""
    if name not in MODELS:
        raise UnknownName(
            "No such model", value=name, allowed=near(name, MODELS, 6), mend="Name one of these (--model)"
        )
    return MODELS[name]


def check_options(config: FitConfig) -> None:
    """Refuse options that were changed and that the model does not take. Raises BadOption with all of them, UnknownName."""
    kind = model_kind(config.model)
    free = FitConfig()
    lost = [
        name
        for name in _OPTIONS
        if name not in kind.takes and name != "device" and getattr(config, name) != getattr(free, name)
    ]
    if lost:
        spelled = ", ".join(f"--{name.replace('_', '-')}" for name in lost)
        own = ", ".join(f"--{name.replace('_', '-')}" for name in kind.takes if name != "device")
        raise BadOption(
            f"{config.model} does not take {spelled}", value=config.model, allowed=own or "no options of its own"
        )
    if config.preset == "paper" and not kind.crossed:
        raise BadOption("Only mtmt has the preset of the paper", value=config.model, allowed="default, small")
    if config.reference_arm is not None and config.tier != "reference":
        raise BadOption(
            "Only a reference tier has a reference arm", value=config.reference_arm, mend="Give --tier reference"
        )


def made_model(config: FitConfig, *, control: Any, outcomes: Mapping[str, str] | None, propensity: Any) -> Any:
    """An estimator as the options say, not fitted. Its labels are those of the table. Raises as `check_options`."""
    kind = model_kind(config.model)
    given: dict[str, Any] = {
        "control": control,
        "outcomes": None if outcomes is None else dict(outcomes),
        "tier": config.tier,
        "propensity": propensity,
        "min_rows": config.min_rows,
        "min_events": config.min_events,
        "random_state": config.seed,
    }
    for name in kind.takes:
        if name not in ("stream", "processes"):
            given[name] = getattr(config, name)
    if given.get("batch_size", 0) is None:
        given["batch_size"] = "auto"
    if "preset" in given and config.preset == "default":
        given["preset"] = None
    if given.get("shrink") == "none":
        given["shrink"] = False
    if "folds" in given and config.folds is None:
        del given["folds"]
    return getattr(room, kind.cls)(**given)
