"""What an audit does with its budget: targets, settings, repeats, the parts that are run and those that are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from querist.concepts.attacks import Setting, choose_targets, grid
from querist.concepts.configs import DEFAULT_HEADLINE, AuditConfig, Headline, headline_of
from querist.concepts.data import ConceptData
from querist.errors import BadOption

__all__ = ["Plan", "plan_of", "targets_of"]

FULL_SIZES, FULL_RATES, MODES = (2, 5, 10, 20), (0.01, 0.05, 0.1), ("mix", "dirty", "clean")
SELECTORS = ("cat", "cat+", "random")


@dataclass(frozen=True)
class Plan:
    """The headline as it fits the table, the targets, the settings of every target, and how often."""

    headline: Headline
    targets: tuple[Any, ...]
    settings: tuple[Setting, ...]
    repeats: int
    retrains: int
    gradient: bool
    transfer: bool
    space: str
    """Of what heads read: with pictures the logits that each model's own g says, else the table's own."""
    warnings: tuple[str, ...]

    @property
    def worked(self) -> Any:
        """The target that is looked at closely: one in the middle."""
        return self.targets[len(self.targets) // 2]

    @property
    def selectors(self) -> tuple[str, ...]:
        """Selectors of the sweep."""
        return tuple(dict.fromkeys(one.selector for one in self.settings))


def plan_of(config: AuditConfig, data: ConceptData) -> Plan:
    """Raises BadOption for sizes beyond the usable concepts, UnknownName for a target without rows."""
    full = config.budget == "full"
    headline = headline_of(config.headline)
    usable = len(data.usable())
    warnings: list[str] = []
    if headline.size > usable and headline_of(DEFAULT_HEADLINE).size == headline.size and usable:
        headline = headline._replace(size=usable)
        warnings.append(f"The headline's trigger has {usable} concepts: the table has no more that change.")
    sizes = config.sizes or (FULL_SIZES if full else (headline.size,))
    if not config.sizes:
        sizes = tuple(size for size in sizes if size <= usable)
    for size in (*sizes, headline.size):
        if size > usable:
            raise BadOption("No trigger has this size here", value=size, allowed=f"1 to {usable}, the usable concepts")
    rates = config.rates or (FULL_RATES if full else (headline.rate,))
    selectors = config.selectors or (SELECTORS if full else ("cat+", "random"))
    modes = config.poison_mode or (MODES if full else (headline.mode,))
    main = headline.mode if headline.mode in modes else modes[0]
    settings = grid(selectors, sizes, rates, (main,))
    settings += grid(selectors, (headline.size,), (headline.rate,), [mode for mode in modes if mode != main])
    settings += grid(
        dict.fromkeys((*selectors, headline.selector)), (headline.size,), (headline.rate,), (headline.mode,)
    )
    targets = targets_of(config, data)
    return Plan(
        headline,
        tuple(targets),
        tuple(dict.fromkeys(settings)),
        config.repeats or (3 if full else 1),
        (19 if full else 0) if config.retrains is None else config.retrains,
        full,
        full,
        data.space if data.images is None else "logit",
        tuple(warnings),
    )


def targets_of(config: AuditConfig, data: ConceptData) -> list[Any]:
    """The classes attacked, as `targets` names them; sources are left out."""
    text = config.targets.strip()
    sources = [data.classes[data.target(label)] for label in config.sources]
    if text in ("", "all"):
        found = choose_targets(data, text or config.budget, seed=config.seed)
    elif text.isdigit():
        found = choose_targets(data, int(text), seed=config.seed)
    else:
        found = choose_targets(data, [part.strip() for part in text.split(",") if part.strip()], seed=config.seed)
    kept = [label for label in found if label not in sources]
    if not kept or (sources and len(kept) < len(found) and text not in ("", "all") and not text.isdigit()):
        raise BadOption(
            "A target cannot be a source",
            value=", ".join(map(str, sources)),
            allowed="other classes",
            mend="Name other --sources",
        )
    return kept
