"""The run: a folder and nothing else, that a process killed at any instant leaves fit to go on with.

A unit's files are written to a scratch folder, renamed to their place and only then journalled; what the journal does
not name is not there. The header `run.json` is written when the run begins and when it ends.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querist.errors import BadInput, BadOption, CorruptFile, RunBusy
from querist.files import Lock, encode_key, is_temporary, move_folder, temporary_folder, write_frame, write_json
from querist.results.figure import Figure
from querist.results.finding import FINDING_FIELDS, Finding
from querist.results.layout import Layout
from querist.results.summary import plain
from querist.runs.carry import UnitsFailed
from querist.runs.journal import Entry, Journal
from querist.runs.provenance import SCHEMA, now
from querist.runs.work import LASTING, Outcome, present_files

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Run", "read_header"]

HEADER = "run.json"
PRODUCTS = ("tables", "figures", "findings.parquet", "layout.json", "summary.json", "report.html")


class Run:
    """A locked run folder, used as a context.

    Raises RunBusy where another process writes to it or where it holds a run and `resume` is not given; BadOption where
    the folder holds other files.
    """

    keep = True

    def __init__(self, folder: Path, *, resume: bool = False):
        self.folder = Path(folder)
        self.resume = resume
        self.header: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.scratch = self.folder / "units" / ".scratch"
        self._journal = Journal(self.folder / "units.jsonl")
        self._entries: dict[tuple[str, str], Entry] = {}
        self._stack = ExitStack()
        self._made: list[Path] = []
        self._found: dict[str, Any] | None = None
        self._before = 0.0
        self._clock = time.perf_counter()

    # ------------------------------------------------------------------------------------------ begin and end

    def __enter__(self) -> Run:
        _refuse_foreign(self.folder)
        missing = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._made = missing
        self._stack.enter_context(Lock(self.folder))
        try:
            _refuse_foreign(self.folder)
            self._found = read_header(self.folder) if (self.folder / HEADER).exists() else None
            if self._found is not None and not self.resume:
                raise RunBusy(
                    f"The folder holds a run already ({self._found.get('status')})",
                    value=str(self.folder),
                    mend="Go on with it by --resume (resume=True), or use another folder",
                )
            self._entries = self._journal.entries()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None and self._found is None and isinstance(error, BadInput) and not self._entries:
            self._discard()
        elif error is not None and self.header.get("status") == "running":
            if isinstance(error, KeyboardInterrupt):
                self.end("interrupted")
            elif isinstance(error, UnitsFailed):
                self.end("failed", error.failed)
            else:
                self.end("failed", [{"unit": None, "error": f"{type(error).__name__}: {error}"}])
        self._stack.close()

    def begin(self, header: Mapping[str, Any]) -> None:
        """Begin the run, or go on with the one that is there.

        Raises BadOption naming each field, input or command that differs from what the run was begun with.
        """
        found = self._found
        if found is not None:
            _refuse_difference(self.folder, found, header)
        self.header = dict(header)
        if found is not None:
            self.warnings = [
                f"The run was begun with {name} {old} and went on with {new}"
                for name, old, new in _differences(found["versions"], header["versions"])
            ]
            self._before = float(found["seconds"])
            self.header |= {"started": found["started"], "argv": found.get("argv")}
            products = (*PRODUCTS, *found.get("kept", ()))
            if found["status"] == "done" and all((self.folder / name).exists() for name in products):
                self.header = found
                return
        shutil.rmtree(self.scratch, ignore_errors=True)
        for folder in (self.folder, self.folder / "tables", self.folder / "figures"):
            for path in folder.glob(".*"):
                if is_temporary(path):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        write_json(self.folder / HEADER, self.header)

    @property
    def seconds(self) -> float:
        """Time spent on this run so far, earlier sittings that ended by themselves included."""
        return self._before + time.perf_counter() - self._clock

    def end(self, status: str, failed: Sequence[Mapping[str, Any]] = (), *, seconds: float | None = None) -> None:
        """Close the run's books: done, failed or interrupted."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        if status == "done":
            shutil.rmtree(self.scratch.with_name(LASTING), ignore_errors=True)
        self.header |= {"status": status, "finished": now(), "seconds": seconds or self.seconds, "failed": list(failed)}
        write_json(self.folder / HEADER, self.header)

    def _discard(self) -> None:
        """Leave nothing of a run that bad input ended before its first unit."""
        shutil.rmtree(self.folder / "units", ignore_errors=True)
        (self.folder / HEADER).unlink(missing_ok=True)
        self._stack.close()
        for path in self._made:
            with suppress(OSError):
                path.rmdir()

    # ------------------------------------------------------------------------------------------------- units

    def done(self, stage: str) -> set[str]:
        """Keys of the stage's units that are done and whose tables are all there."""
        ended = {key: entry for (where, key), entry in self._entries.items() if where == stage}
        return {key for key, entry in ended.items() if entry.status == "done" and self._whole(entry)}

    def commit(self, stage: str, outcome: Outcome) -> None:
        """Put a unit's files in their place, then journal it."""
        done = outcome.error is None
        if done and outcome.folder is not None:
            move_folder(outcome.folder, self._place(stage, outcome.key))
        status = "done" if done else "failed"
        entry = Entry(stage, outcome.key, status, outcome.seconds, outcome.tables, outcome.error, outcome.trace)
        self._journal.append(entry)
        self._entries[stage, outcome.key] = entry

    def tables(self, stage: str, key: str) -> dict[str, pl.DataFrame]:
        """A finished unit's tables, paths in them fit to be opened. Raises CorruptFile."""
        import polars as pl

        frames = {}
        for name in self._entries[stage, key].tables:
            path = self._place(stage, key) / f"{name}.parquet"
            try:
                frames[name] = present_files(pl.read_parquet(path), self.folder)
            except (OSError, pl.exceptions.PolarsError) as error:
                raise CorruptFile(
                    f"A unit's table cannot be read ({error})",
                    value=str(path),
                    mend="Remove its folder; the unit is then done again",
                ) from error
        return frames

    def _place(self, stage: str, key: str) -> Path:
        return self.folder / "units" / stage / encode_key(key)

    def _whole(self, entry: Entry) -> bool:
        place = self._place(entry.stage, entry.key)
        return place.is_dir() and all((place / f"{name}.parquet").is_file() for name in entry.tables)

    # ------------------------------------------------------------------------------------------------ answer

    def keep_folders(self, folders: Mapping[str, Path]) -> None:
        """Copy folders that units left to their names in this run folder, each as a whole or not at all."""
        for name, source in folders.items():
            made = temporary_folder(self.folder)
            shutil.copytree(source, made, dirs_exist_ok=True)
            move_folder(made, self.folder / name)
        self.header |= {"kept": sorted(folders)} if folders else {}

    def write_answer(
        self,
        tables: Mapping[str, pl.DataFrame],
        findings: Iterable[Finding],
        figures: Iterable[Figure],
        layout: Layout,
        summary: Mapping[str, Any],
    ) -> None:
        """Write what the study ended with; `end` and the report come after it."""
        import polars as pl

        for name in ("tables", "figures"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        for name, frame in tables.items():
            write_frame(self.folder / "tables" / f"{name}.parquet", frame)
        text = {"subject", "question", "unit", "verdict", "because"}
        schema = {name: pl.String() if name in text else pl.Float64() for name in FINDING_FIELDS}
        rows = pl.DataFrame([finding.as_dict() for finding in findings], schema=schema)
        write_frame(self.folder / "findings.parquet", rows)
        for figure in figures:
            write_json(self.folder / "figures" / f"{figure.name}.json", plain(figure.as_dict()))
        write_json(self.folder / "layout.json", plain(layout.as_dict()))
        write_json(self.folder / "summary.json", summary)


def read_header(folder: Path) -> dict[str, Any]:
    """The content of a folder's run.json. Raises BadOption where there is none, CorruptFile where it cannot be read."""
    path = Path(folder) / HEADER
    try:
        value = json.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise BadOption(
            "The folder holds no run", value=str(folder), mend="Name a folder that --out was given"
        ) from None
    except (OSError, ValueError) as error:
        raise CorruptFile(f"The header of a run cannot be read ({error})", value=str(path)) from None
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        schema = value.get("schema") if isinstance(value, dict) else None
        raise CorruptFile("The header of a run is of another kind", value=str(schema), allowed=SCHEMA)
    return value


def _refuse_foreign(folder: Path) -> None:
    """Refuse a path that is a file, or a folder with files of somebody else in it."""
    if folder.exists() and not folder.is_dir():
        raise BadOption("The run folder is a file", value=str(folder), mend="Name a new folder")
    if not folder.is_dir() or (folder / HEADER).exists():
        return
    foreign = sorted(path.name for path in folder.iterdir() if path.name != Lock.NAME and not is_temporary(path))
    if foreign:
        raise BadOption(
            f"The folder holds other files and no run ({', '.join(foreign[:3])}{', ...' if len(foreign) > 3 else ''})",
            value=str(folder),
            allowed="a new folder, an empty one, or one that holds a run",
            mend="Name another folder; nothing was touched",
        )


def _refuse_difference(folder: Path, found: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    for name in ("room", "command", "study"):
        if found.get(name) != header[name]:
            raise BadOption(
                "The folder holds a run of another command",
                value=f"{name}: {found.get(name)} -> {header[name]}",
                mend=f"Use another folder than {folder}",
            )
    for what, field, mend in (
        ("The run was begun with another configuration", "config", "Give the old values, or use another folder than"),
        ("An input has changed since the run was begun", "inputs", "Restore it, or use another folder than"),
    ):
        changed = _differences(found[field], header[field])
        if changed:
            told = "; ".join(f"{name}: {_short(old)} -> {_short(new)}" for name, old, new in changed)
            raise BadOption(what, value=told, mend=f"{mend} {folder}")


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """(name, old, new) of every entry that differs; an entry on one side only counts as None on the other."""
    names = [*new, *(name for name in old if name not in new)]
    return [(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text.startswith("sha256:"):
        return text[:19]
    return text if len(text) <= 80 else text[:77] + "..."
