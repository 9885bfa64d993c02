"""One poisoned table under every architecture: does a trigger chosen for one model work in others?"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from querist.concepts.attacks._attack import attack_report
from querist.concepts.attacks._parts import joined, repeat_parts, repeat_seed
from querist.concepts.attacks._subject import Subject
from querist.concepts.attacks._sweep import Setting, planted, select
from querist.concepts.data import SPACES, ConceptData, Space
from querist.concepts.fit import fit_cbm, fit_classes, fit_concepts, fit_head
from querist.concepts.model import CBM, Mode
from querist.errors import BadOption
from querist.runs.threads import limited

__all__ = ["ARCHITECTURES", "Architecture", "Transferred", "transfer_cell", "transfer_models", "transfer_table"]

HEADS = ("linear", "mlp:512")


@dataclass(frozen=True, slots=True, order=True)
class Architecture:
    """What f is, how both halves are trained, and what f reads."""

    head: str
    mode: Mode
    input: Space

    @property
    def name(self) -> str:
        """head, mode and input as text."""
        return f"{self.head}, {self.mode}, {self.input}"


ARCHITECTURES = tuple(Architecture(*parts) for parts in itertools.product(HEADS, get_args(Mode), SPACES))
"""{linear, MLP} x {joint, sequential, independent} x {logit, prob, hard}."""


@dataclass(frozen=True, slots=True, eq=False)
class Transferred:
    """A model of one table for each architecture that can be trained on it, and what was passed over, with its reason."""

    models: dict[Architecture, CBM] = field(default_factory=dict)
    passed_over: list[dict[str, str]] = field(default_factory=list)


def transfer_models(
    data: ConceptData,
    *,
    architectures: Iterable[Architecture] = ARCHITECTURES,
    epochs: int | None = None,
    batch: int | None = None,
    device: str = "cpu",
    seed: int,
) -> Transferred:
    """Train every architecture on the table's part train (all rows without a split), chosen by its part val where it has one.

    Sequential and independent models share one g, which does not depend on f. Joint training through hard concepts has no gradient.
    Without pictures there is no g: f alone is trained on the table's own concepts, which is independent training in the table's
    space; what would need pictures is passed over. epochs, batch: of g and of joint training, and of a head without pictures
    (None: their defaults).
    """
    made, asked = Transferred(), list(dict.fromkeys(architectures))
    options: dict[str, Any] = {"epochs": epochs, "batch": batch, "device": device, "seed": seed}
    options = {name: value for name, value in options.items() if value is not None}
    g = None
    for one in asked:
        reason = _impossible(one, data)
        if reason is not None:
            made.passed_over.append({"what": f"transfer: {one.name}", "reason": reason})
            continue
        if data.images is None:
            head = fit_head(data, head=one.head, **options)
            made.models[one] = CBM(None, head, mode="independent", input=data.space).eval()
        elif one.mode == "joint":
            made.models[one] = fit_cbm(data, head=one.head, mode="joint", input=one.input, **options)
        else:
            g = fit_concepts(data, **options) if g is None else g
            rest = {name: value for name, value in options.items() if name != "epochs"}
            if epochs is not None:
                rest["epochs"] = 3 * epochs
            made.models[one] = fit_classes(data, g, mode=one.mode, input=one.input, head=one.head, **rest)
    return made


def transfer_cell(
    data: ConceptData,
    target: Any,
    repeat: int,
    clean: Transferred,
    *,
    selectors: Sequence[str] = ("cat+",),
    size: int = 5,
    rate: float = 0.01,
    mode: str = "mix",
    base: Any = "auto",
    strength: str = "quantile",
    sources: Iterable[Any] | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    device: str = "cpu",
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Rows of table `transfer` for one target in one repeat: head, mode, input, selector, asr, clean_model_asr, with target, repeat.

    clean: `transfer_models(transfer_table(data, repeat), …)` of the same repeat; its architectures are those that are run. Each
    selector's poisoned copy is one and the same under all of them. Raises BadOption where no architecture can be trained, and what
    `poison` and the selectors raise.
    """
    if not clean.models:
        raise BadOption("No architecture can be trained on this table", value="none", mend="Give a table with pictures")
    draw, parts = repeat_seed(seed, repeat), repeat_parts(data, repeat, seed=seed)
    if sources is not None:
        sources = [source for source in sources if data.code(source) != data.code(target)]
    rows = []
    with limited(1):
        triggers = select(parts.train, target, [(selector, size) for selector in selectors], seed=draw)
        baselines = {one: Subject(model, parts.test, strength=strength) for one, model in clean.models.items()}
        for selector in selectors:
            trigger = triggers[selector, size].trigger
            made = planted(parts.train, trigger, target, Setting(selector, size, rate, mode), base=base, seed=draw).data
            table = made if parts.val is None else joined(made, parts.val)
            models = transfer_models(
                table, architectures=clean.models, epochs=epochs, batch=batch, device=device, seed=draw
            ).models
            for one, model in models.items():
                subject = Subject(model, parts.test, strength=strength)
                found = attack_report(subject, parts.test, trigger, target, sources=sources, baseline=baselines[one])
                rows.append(
                    {
                        "head": one.head,
                        "mode": one.mode,
                        "input": one.input,
                        "selector": selector,
                        "asr": found.asr,
                        "clean_model_asr": found.clean_model_asr,
                        "target": target,
                        "repeat": repeat,
                    }
                )
    return rows


def transfer_table(data: ConceptData, repeat: int, *, seed: int = 0) -> ConceptData:
    """The clean rows that the models of a repeat are trained on and chosen by."""
    parts = repeat_parts(data, repeat, seed=seed)
    return parts.train if parts.val is None else joined(parts.train, parts.val)


def _impossible(one: Architecture, data: ConceptData) -> str | None:
    if data.images is None:
        if one.mode != "independent":
            return "the table has no pictures to learn concepts from"
        if one.input != data.space:
            if {one.input, data.space} == {"hard", "prob"}:
                return f"without pictures f reads the table's own concepts, {data.space}, which it reads alike as {one.input}"
            return f"without pictures f reads the table's own concepts, {data.space}, which are no {one.input} values"
        return None
    if one.mode == "joint" and one.input == "hard":
        return "hard concepts have no gradient"
    return None
