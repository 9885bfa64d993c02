"""Running claims: one study per room, and the ledger over all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from querist.claims.claim import Claim
from querist.claims.configs import ClaimsConfig, ClaimsOptions
from querist.claims.ledger import LEDGER, compare, counts, told
from querist.claims.registry import select, study_of
from querist.errors import BadOption, RunBusy
from querist.files import write_json, write_text
from querist.reports.ask import ask
from querist.reports.result import Result
from querist.results.finding import Finding
from querist.results.summary import envelope

__all__ = ["Ledger", "carry_out_rooms", "earlier", "run"]


@dataclass(frozen=True, repr=False)
class Ledger:
    """What became of claims: `results` by room, `folder` where it lies, None in memory."""

    results: Mapping[str, Result]
    summary: Mapping[str, Any]
    folder: Path | None = None

    @property
    def table(self) -> pl.DataFrame:
        """One row per claim, room after room; columns of the table `ledger`."""
        return pl.concat([result.tables[LEDGER.name] for result in self.results.values()])

    @property
    def findings(self) -> tuple[Finding, ...]:
        """One finding per claim: holds is yes, fails is no."""
        return tuple(finding for result in self.results.values() for finding in result.findings)

    @property
    def warnings(self) -> list[str]:
        """What a reader should know before trusting the numbers."""
        return [warning for result in self.results.values() for warning in result.warnings]

    def against(self, other: Ledger | pl.DataFrame) -> pl.DataFrame:
        """This ledger beside an earlier one; see `querist.claims.ledger.compare`."""
        return compare(self.table, other.table if isinstance(other, Ledger) else other)

    def __repr__(self) -> str:
        rows = self.table.to_dicts()
        width = max((len(row["id"]) for row in rows), default=0)
        lines = [f"  {row['id']:<{width}}  {row['verdict']}: {row['because']}" for row in rows]
        return "\n".join([f"claims: {told(counts(rows))}", *lines])


def run(
    *claims: str,
    config: ClaimsOptions | None = None,
    out: str | os.PathLike[str] | None = None,
    engine: str = "serial",
    resume: bool = False,
    progress: Any = None,
    **fields: Any,
) -> Ledger:
    """Test claims, named by ids or globs (all of them where none is given), and return their ledger.

    Further keywords are `size` ("small" or "full"), `seed` and `device`; they replace those of `config`. out: the run folder;
    where claims of several rooms are tested, it holds a run folder for each of them. progress: a callable (done, total,
    key), None for a bar on standard error, False for silence.

    Raises UnknownName for an id that is not known, SourceNotFound where no claim's data are here, and what `ask` raises.
    """
    options = ClaimsOptions.build(config, **fields)
    folder = None if out is None else Path(out)
    quiet = False if out is None and progress is None else progress
    return carry_out_rooms(select(claims), options, folder, engine=engine, resume=resume, progress=quiet)


def carry_out_rooms(
    chosen: Mapping[str, Sequence[Claim]],
    options: ClaimsOptions,
    out: Path | None,
    *,
    engine: str,
    resume: bool,
    progress: Any,
    mlflow: str | None = None,
) -> Ledger:
    """One study per room, in `out` itself where there is one room, else in `out`/ROOM with a page that leads to all."""
    from querist.runs.provenance import now, versions

    many = len(chosen) > 1
    if many and out is not None:
        _check_folder(out, chosen, resume)
    results = {}
    for room, claims in chosen.items():
        settings = ClaimsConfig.build(**options.model_dump(), claims=tuple(claim.id for claim in claims))
        folder = out / room if many and out is not None else out
        results[room] = ask(
            study_of(room), settings, out=folder, engine=engine, resume=resume, progress=progress, mlflow=mlflow
        )
    if not many:
        return Ledger(results, next(iter(results.values())).summary, out)
    rows = [row for result in results.values() for row in result.summary["ledger"]]
    summary = envelope(
        {
            "room": "claims",
            "command": "claims",
            "version": versions()["querist"],
            "status": "done",
            "seed": options.seed,
            "seconds": sum(result.seconds for result in results.values()),
            "config": {**options.model_dump(mode="json"), "claims": [row["id"] for row in rows]},
            "finished": now(),
        },
        schema=1,
        run=None if out is None else str(out),
        warnings=[warning for result in results.values() for warning in result.warnings],
        passed_over=[row for result in results.values() for row in result.passed_over],
        tables={
            f"{room}.{name}": None if path is None else f"{room}/{path}"
            for room, result in results.items()
            for name, path in result.summary["tables"].items()
        },
        findings=[finding for result in results.values() for finding in result.findings],
        own={
            "size": options.size,
            "claims": [row["id"] for row in rows],
            "counts": counts(rows),
            "ledger": rows,
            "rooms": {room: result.summary["run"] for room, result in results.items()},
        },
    )
    if out is not None:
        from querist.reports.index import gather, index

        write_json(out / "summary.json", summary)
        lead = f"Size {options.size}: {told(counts(rows))}."
        write_text(out / "report.html", index(gather(out, relative_to=out), title="Do the claims hold?", lead=lead))
    return Ledger(results, summary, out)


def _check_folder(out: Path, rooms: Mapping[str, Any], resume: bool) -> None:
    """A folder of several runs holds those and our page, nothing else."""
    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if "run.json" in names or names - set(rooms) - {"summary.json", "report.html"}:
        raise BadOption(
            "The folder holds something else than runs of these rooms' claims",
            value=str(out),
            allowed=f"an empty folder, or one with {', '.join(rooms)}",
            mend="Name another folder with --out",
        )
    if names and not resume:
        raise RunBusy(
            "The folder holds runs already",
            value=str(out),
            mend="Go on with them by --resume (resume=True), or use another folder",
        )


def earlier(folder: Path) -> pl.DataFrame:
    """The ledger of a folder that `run` wrote, whether of one room or of several. Raises BadOption, CorruptFile."""
    alone = (folder / "run.json").is_file()
    folders = [folder] if alone else sorted(path.parent for path in folder.glob("*/run.json"))
    frames = [result.tables[LEDGER.name] for found in folders if LEDGER.name in (result := Result.open(found)).tables]
    if not frames:
        raise BadOption(
            "The folder holds no ledger", value=str(folder), mend="Name a folder that `querist claims` wrote"
        )
    return pl.concat(frames)
