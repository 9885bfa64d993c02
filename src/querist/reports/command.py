"""What every command does around its study: common options, gates, the word at the end, the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Protocol

from cyclopts import Parameter

from querist.results import gates
from querist.results.finding import Finding
from querist.runs.study import Study, StudyConfig

__all__ = ["EXIT_GATE", "TYPED", "CommonOptions", "Told", "carry_out", "closing_words", "default_folder"]

EXIT_GATE = 3
TYPED: ContextVar[tuple[str, ...] | None] = ContextVar("typed", default=None)
"""The words of the command line that is being carried out: what run.json records."""


@Parameter(name="*")
@dataclass(frozen=True)
class CommonOptions:
    """Options that every command takes."""

    out: Path | None = None
    """Run folder, report inside; by default runs/ROOM-COMMAND-TIME."""
    json: Annotated[bool, Parameter(negative=())] = False
    """Print the summary as JSON on standard output and nothing else there."""
    engine: str = "auto"
    """auto, serial, local, local:N, ray or ray://HOST:PORT; auto is local above 30 s of estimated work."""
    resume: Annotated[bool, Parameter(negative=())] = False
    """Go on with the run in --out; begin one where there is none."""
    quiet: Annotated[bool, Parameter(negative=())] = False
    """No progress and no closing words on standard error."""
    mlflow: str | None = None
    """Also log the run to this MLflow tracking address."""
    fail_if: tuple[str, ...] = ()
    """Exit with 3 where this holds, for example 'spikes.verdict == yes'; may be given several times."""


def carry_out(study: Study[Any], config: StudyConfig, common: CommonOptions) -> int:
    """Run a study as a command does and return its exit code: 0, or 3 where a gate tripped.

    Gates are read before the work, so that a misspelt question costs nothing.
    """
    from querist.reports.ask import ask

    wanted = gates.parse(common.fail_if, study.questions, study.room)
    out = common.out or default_folder(study.room, study.command)
    result = ask(
        study,
        config,
        out=out,
        engine=common.engine,
        resume=common.resume,
        progress=False if common.quiet else None,
        mlflow=common.mlflow,
        argv=TYPED.get(),
    )
    outcomes = gates.evaluate(wanted, result.findings, result.summary)
    if common.json:
        sys.stdout.write(json.dumps(result.summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    if not common.quiet:
        for line in closing_words(result, out, outcomes):
            sys.stderr.write(line + "\n")
    return EXIT_GATE if any(outcome.tripped for outcome in outcomes) else 0


def default_folder(room: str, command: str) -> Path:
    """A folder below `runs` that is not there yet."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = Path("runs") / f"{room}-{command}-{stamp}"
    for number in range(2, 100):
        if not folder.exists():
            break
        folder = folder.with_name(f"{room}-{command}-{stamp}-{number}")
    return folder


class Told(Protocol):
    """What closing words are made of: a result, or several together."""

    @property
    def findings(self) -> Sequence[Finding]:
        """Its findings."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Its warnings."""
        ...


def closing_words(result: Told, out: Path, outcomes: Iterable[gates.Outcome]) -> Iterable[str]:
    """What a command ends with on standard error: verdicts by question, warnings, gates, where the report lies."""
    verdicts: dict[str, dict[str, int]] = {}
    for finding in result.findings:
        counts = verdicts.setdefault(finding.question, {"yes": 0, "no": 0, "cannot say": 0})
        counts[finding.verdict] += 1
    width = max((len(question) for question in verdicts), default=0)
    for question, counts in verdicts.items():
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        yield f"{question:<{width}}  {told}"
    for warning in result.warnings:
        yield f"Warning: {warning}"
    for outcome in outcomes:
        yield outcome.sentence()
    yield f"Report: {out / 'report.html'}"
