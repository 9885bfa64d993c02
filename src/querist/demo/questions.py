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


def ask_all(out: Path, *, engine: str, seed: int, progress: Any) -> Iterator[str]:
    """Run every part of the demo below `out`; yields a line when one is done or passed over."""
    yield from _weights(out, engine=engine, seed=seed, progress=progress)


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


def _told(findings: Any) -> str:
    run = [finding for finding in findings if finding.subject == "run"]
    return " ".join(finding.because for finding in run) or f"{len(findings)} findings."
