"""What can be known to be wrong before an audit begins, so that a mistake costs seconds."""

from __future__ import annotations

from querist.concepts.attacks import repeat_parts, with_validation
from querist.concepts.configs import AuditConfig
from querist.concepts.data import ConceptData
from querist.concepts.heads import head_widths
from querist.concepts.repairs import concept_groups
from querist.concepts.studies.opening import Material
from querist.concepts.studies.plan import Plan
from querist.concepts.triggers import poison, random_trigger
from querist.errors import BadOption, TooFewRows

__all__ = ["check_audit", "check_strength"]


def check_audit(config: AuditConfig, material: Material, plan: Plan) -> None:
    """Raise BadInput for a table that the selectors cannot read, rates that no class has, a reference or model of other concepts."""
    data = material.data(config)
    head_widths(config.head)
    check_strength(config.strength, data)
    if not len(data.usable()):
        raise BadOption(
            "No concept changes, so that no trigger can be chosen", value=data.k, allowed="concepts of two values"
        )
    if "cat+" in plan.selectors:
        data.binary(config.binarise)
    material.reference(config)
    material.model(config)
    parts = repeat_parts(data, 0, seed=config.seed)
    for what, part in (("training", parts.train), ("test", parts.test)):
        if int((part.class_sizes > 0).sum()) < 2:
            raise TooFewRows(
                f"The {what} rows need two classes", value=int((part.class_sizes > 0).sum()), allowed="2 or more"
            )
    with_validation(parts, seed=config.seed)
    concept_groups(data, min(config.groups, data.k), by="random", seed=config.seed)
    if config.groups > data.k:
        raise BadOption("There are more groups than concepts", value=config.groups, allowed=f"1 to {data.k}")
    _rates(config, plan, parts.train)


def check_strength(strength: str, data: ConceptData) -> None:
    """Raises BadOption for a strength that triggers do not know."""
    if data.space != "logit" or strength in ("quantile", "rowmax"):
        return
    random_trigger(data, data.classes[int(data.codes[0])], 1, seed=0).trigger.apply(
        data.concepts[:1], space="logit", strength=strength
    )


def _rates(config: AuditConfig, plan: Plan, train: ConceptData) -> None:
    """The headline must be possible for one target at least; a forced base that no class can meet is said before the work."""
    refused: BadOption | None = None
    one = plan.headline
    for target in plan.targets:
        if not train.class_sizes[train.code(target)]:
            continue
        mode, base = one.mode, config.base
        trigger = random_trigger(train, target, 1, seed=config.seed).trigger
        try:
            poison(train, trigger, target, one.rate, mode=mode, base=base, strength=config.strength, seed=0)  # type: ignore[arg-type]
        except BadOption as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise refused
