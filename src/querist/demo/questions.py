"""What the demo asks, room by room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from querist.errors import SourceNotFound

__all__ = ["ask_all"]

CHECKPOINTS = {
    "weights-minilm-l6": "minilm-l6",
    "weights-resnet20": "resnet20-cifar10",
}

FROZEN = "querist.features.nets:cifar_resnet?depth=20@resnet20-cifar10"
KNOWN = "fashion-mnist-small#train"
NEW = ("fashion-mnist-small#test", "digits")
PICTURES: dict[str, Any] = {"size": 32, "channels": 3, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
LOOKED_AT: dict[str, Any] = {"layers": "blocks", "n": 300, "random_nets": 3, "class_gaps": False}


PEOPLE = "hillstrom"
HALVES = ("#0:32000", "#32000:64000")
ROLES: dict[str, Any] = {"arm": "segment", "control": "No E-Mail", "outcome": ("visit:binary", "spend:hurdle")}
LEFT_OUT = ("conversion", "history_segment")
FITTED: dict[str, Any] = {"preset": "small", "epochs": 6}
JUDGED: dict[str, Any] = {"bootstrap": 50, "convention": ("rate", "sklift")}


def ask_all(out: Path, *, engine: str, seed: int, progress: Any) -> Iterator[str]:
    """Run every part of the demo below `out`; yields a line when one is done or passed over."""
    yield from _weights(out, engine=engine, seed=seed, progress=progress)
    yield from _features(out, engine=engine, seed=seed, progress=progress)
    yield from _effects(out, engine=engine, seed=seed, progress=progress)


def _weights(out: Path, **options: Any) -> Iterator[str]:
    from querist.sources.datasets.registry import locate
    from querist.weights.studies.scan import scan

    for folder, name in CHECKPOINTS.items():
        try:
            locate(name)
        except SourceNotFound as error:
            yield f"Passed over: {error}"
            continue
        result = scan(name, out=out / folder, **options)
        yield f"{out / folder / 'report.html'}: {_told(result.findings)}"


def _features(out: Path, **options: Any) -> Iterator[str]:
    """A frozen network on new pictures of the kind it is held against, and on pictures of another kind."""
    from querist.features.studies.compare import compare
    from querist.sources.datasets.registry import locate

    try:
        locate(FROZEN.partition("@")[2])
        locate(KNOWN.partition("#")[0])
    except SourceNotFound as error:
        yield f"Passed over: {error}"
        return
    folder = out / "features-resnet20"
    result = compare(FROZEN, source=KNOWN, target=list(NEW), out=folder, **PICTURES, **LOOKED_AT, **options)
    said = [finding.because for finding in result.findings if finding.question == "features.gap-any"]
    yield f"{folder / 'report.html'}: {' '.join(said)}"


def _effects(out: Path, *, seed: int, **options: Any) -> Iterator[str]:
    """An experiment with two e-mails and a control: can its arms be compared, a model of one half, judged on the other."""
    from querist.effects.configs import CheckConfig, EvaluateConfig, FitConfig
    from querist.effects.studies.check import CheckStudy
    from querist.effects.studies.evaluate import EvaluateStudy
    from querist.effects.studies.fit import FitStudy
    from querist.reports.ask import ask
    from querist.sources.datasets.registry import locate

    try:
        locate(PEOPLE)
    except SourceNotFound as error:
        yield f"Passed over: {error}"
        return
    roles, (first, second) = {**ROLES, "drop": LEFT_OUT, "seed": seed}, HALVES
    arms = ("No E-Mail=1", "Mens E-Mail=1", "Womens E-Mail=1")
    model = out / "effects-fit"
    asked = {
        "effects-check": (CheckStudy(), CheckConfig.build(table=PEOPLE, design=arms, **roles), "effects.randomised"),
        "effects-fit": (FitStudy(), FitConfig.build(table=PEOPLE + first, **roles, **FITTED), "effects.any-effect"),
        "effects-evaluate": (
            EvaluateStudy(),
            EvaluateConfig.build(source=str(model), table=PEOPLE + second, **roles, **JUDGED),
            "effects.beats-single-arm",
        ),
    }
    for folder, (study, config, question) in asked.items():
        result = ask(study, config, out=out / folder, **options)
        said = [finding.because for finding in result.findings if finding.question == question]
        yield f"{out / folder / 'report.html'}: {' '.join(said)}"


def _told(findings: Any) -> str:
    run = [finding for finding in findings if finding.subject == "run"]
    return " ".join(finding.because for finding in run) or f"{len(findings)} findings."
