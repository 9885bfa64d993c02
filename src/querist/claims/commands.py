"""`querist claims`: test the papers' claims and print the ledger."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from querist.claims.configs import ClaimsOptions
from querist.reports.command import CommonOptions

if TYPE_CHECKING:
    import polars as pl

    from querist.claims.rooms import Ledger

__all__ = ["claims"]

WIDTH = 140
"""Columns of the ledger where standard output is no terminal."""


def claims(
    *patterns: str,
    list: Annotated[bool, Parameter(name="--list", negative=())] = False,
    against: Path | None = None,
    options: Annotated[ClaimsOptions, Parameter(name="*")] = ClaimsOptions(),  # noqa: B008 - frozen
    common: CommonOptions = CommonOptions(),  # noqa: B008 - frozen
) -> int:
    """Test claims and print the ledger: holds, fails, or cannot say, each by a rule that was fixed before the run.

    Parameters
    ----------
    patterns
        Ids or globs of claims, for example weights.spike-predicted or 'weights.*'; all of them where none is given.
    list
        Print the claims with their rules, and test none.
    against
        Folder of an earlier ledger: say which verdicts changed.
    """
    from querist.claims.registry import select

    chosen = select(patterns)
    if list:
        return _list(chosen, options.size)
    from querist.claims.rooms import carry_out_rooms, earlier
    from querist.reports.command import EXIT_GATE, closing_words, default_folder
    from querist.results import gates

    questions = [claim.question for mine in chosen.values() for claim in mine]
    room = next(iter(chosen)) if len(chosen) == 1 else "claims"
    wanted = gates.parse(common.fail_if, questions, room)
    before = None if against is None else earlier(against)
    out = common.out or default_folder(room, "claims" if room != "claims" else "all")
    progress = False if common.quiet else None
    ledger = carry_out_rooms(
        chosen, options, out, engine=common.engine, resume=common.resume, progress=progress, mlflow=common.mlflow
    )
    outcomes = gates.evaluate(wanted, ledger.findings, ledger.summary)
    if common.json:
        import json

        sys.stdout.write(json.dumps(ledger.summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        _print(ledger, before)
    if not common.quiet:
        for line in (*_changes(ledger, before), *closing_words(ledger, out, outcomes)):
            sys.stderr.write(line + "\n")
    return EXIT_GATE if any(outcome.tripped for outcome in outcomes) else 0


def _list(chosen, size: str) -> int:
    from querist.claims.claim import SOURCES

    for mine in chosen.values():
        for claim in mine:
            sys.stdout.write(f"{claim.id}\n    {claim.statement}\n    Rule: {claim.rule}\n")
            sys.stdout.write(f"    {SOURCES[claim.source].capitalize()}; {size}: {claim.sizes[size].told()}\n")
    return 0


def _print(ledger: Ledger, before: pl.DataFrame | None) -> None:
    from rich.console import Console

    from querist.claims.ledger import render

    changed = None if before is None else dict(before.select("id", "verdict").iter_rows())
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDTH)
    console.print(render(ledger.table.to_dicts(), changed))


def _changes(ledger: Ledger, before: pl.DataFrame | None):
    if before is None:
        return
    rows = [row for row in ledger.against(before).to_dicts() if row["changed"] and row["verdict"] is not None]
    if not rows:
        yield "No verdict differs from the earlier ledger."
    for row in rows:
        yield f"{row['id']}: {row['verdict']}, before {row['verdict_before'] or 'not tested'}"
