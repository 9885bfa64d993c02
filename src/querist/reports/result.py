"""The result: an answer in memory, or read from a run folder; the same object either way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from querist.errors import BadOption, CorruptFile, MissingExtra, UnknownName, near
from querist.files import write_text
from querist.reports.document import Document
from querist.results.figure import Figure
from querist.results.finding import Finding
from querist.results.layout import Layout
from querist.results.lazy import Lazy
from querist.runs.run import read_header
from querist.runs.work import FILES

if TYPE_CHECKING:
    import os

    import pandas as pd
    import plotly.graph_objects as go
    import polars as pl

__all__ = ["Result"]


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """What a study answered. Each table is an attribute of its name as well (`result.spectra`).

    `header` is the content of run.json, `summary` that of summary.json, `folder` the run folder, None in memory.
    """

    header: Mapping[str, Any]
    layout: Layout
    findings: tuple[Finding, ...]
    tables: Mapping[str, pl.DataFrame]
    figures: Mapping[str, Figure]
    summary: Mapping[str, Any]
    folder: Path | None = None
    _keep: object = field(default=None)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, unfinished: bool = False) -> Self:
        """Read a finished run, or with `unfinished` one that already shows what it has. Tables are read when asked for.

        Raises BadOption for a folder without a run or whose run has no answer yet, CorruptFile for one that lacks files.
        """
        folder = Path(folder)
        header = read_header(folder)
        if header["status"] != "done" and not (unfinished and (folder / "summary.json").is_file()):
            raise BadOption(
                f"The run has no answer: it is {header['status']}",
                value=str(folder),
                mend="Go on with it by the same command with --resume",
            )
        try:
            return cls._read(folder, header)
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise CorruptFile(f"The run cannot be read ({error})", value=str(folder)) from error

    @classmethod
    def _read(cls, folder: Path, header: Mapping[str, Any]) -> Self:
        import polars as pl

        summary = json.loads((folder / "summary.json").read_text("utf-8"))
        layout = Layout.from_dict(json.loads((folder / "layout.json").read_text("utf-8")))
        findings = tuple(Finding(**row) for row in pl.read_parquet(folder / "findings.parquet").to_dicts())
        drawn = [name for section in layout.sections for name in section.figures]
        paths = {path.stem: path for path in sorted((folder / "figures").glob("*.json"))}
        names = [name for name in dict.fromkeys([*drawn, *paths]) if name in paths]
        figures = {name: Figure(**json.loads(paths[name].read_text("utf-8"))) for name in names}
        tables = Lazy({name: partial(_read_table, folder / path) for name, path in summary["tables"].items()})
        return cls(header, layout, findings, tables, figures, summary, folder)

    @property
    def room(self) -> str:
        """The room that was asked."""
        return self.header["room"]

    @property
    def command(self) -> str:
        """The command, without its room."""
        return self.header["command"]

    @property
    def config(self) -> Mapping[str, Any]:
        """What the study was told, as plain JSON values."""
        return self.header["config"]

    @property
    def seed(self) -> int:
        """Root of every random stream."""
        return self.header["seed"]

    @property
    def status(self) -> str:
        """`done`; of a run that is watched while it goes on, `running`, `interrupted` or `failed`."""
        return self.header["status"]

    @property
    def seconds(self) -> float:
        """Time that the work took."""
        return self.header["seconds"]

    @property
    def warnings(self) -> list[str]:
        """What a reader should know before trusting the numbers."""
        return self.summary["warnings"]

    @property
    def passed_over(self) -> list[dict[str, Any]]:
        """What was not measured, and why."""
        return self.summary["passed_over"]

    @property
    def table(self) -> pl.DataFrame:
        """The first table."""
        return self._table(None)

    def __getattr__(self, name: str) -> pl.DataFrame:
        if not name.startswith("_") and name in self.__dict__.get("tables", ()):
            return self.tables[name]
        raise AttributeError(f"{type(self).__name__} has no attribute or table {name!r}")

    def _table(self, name: str | None) -> pl.DataFrame:
        known = list(self.tables)
        if name is None and known:
            name = known[0]
        if name is None or name not in self.tables:
            raise UnknownName("No such table", value=name, allowed=near(name or "", known, 20) or "there are no tables")
        return self.tables[name]

    def to_pandas(self, table: str | None = None) -> pd.DataFrame:
        """A table (the first by default) as a pandas frame. Raises UnknownName, and MissingExtra without pandas."""
        frame = self._table(table)
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise MissingExtra("pandas is not installed", mend="pip install pandas, or use the polars frames") from None
        return frame.to_pandas()

    def figure(self, name: str) -> go.Figure:
        """A figure as a plotly figure. Raises UnknownName."""
        if name not in self.figures:
            known = near(name, self.figures, 12) or "there are no figures"
            raise UnknownName("No such figure", value=name, allowed=known)
        import plotly.graph_objects as go

        drawn = self.figures[name]
        layout = {"title": {"text": drawn.title}, **drawn.layout}
        return go.Figure(data=drawn.data, layout=layout, frames=drawn.frames)

    def file(self, path: str) -> Path:
        """Where a file lies whose path a table holds (`run:units/...`). Raises BadOption for another text."""
        root = self.folder if self.folder is not None else getattr(self._keep, "folder", None)
        if not path.startswith(FILES) or root is None:
            raise BadOption("This is no file of the run", value=path, allowed=f"a text that begins with {FILES}")
        return Path(root) / path.removeprefix(FILES)

    def document(self) -> Document:
        """Everything a page is drawn from."""
        return Document(self.header, self.layout, self.findings, self.tables, self.figures, self.summary)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report, one self-contained page, to `path`, and return it."""
        from querist.reports.page import render

        write_text(path := Path(path), render(self.document()))
        return path

    def _repr_html_(self) -> str:
        from querist.reports.fragment import fragment

        return fragment(self.document())

    def __repr__(self) -> str:
        counts: dict[str, dict[str, int]] = {}
        for finding in self.findings:
            verdicts = counts.setdefault(finding.question, {})
            verdicts[finding.verdict] = verdicts.get(finding.verdict, 0) + 1
        lines = [f"{self.room} {self.command}: {self.layout.title}"]
        width = max(map(len, counts), default=0)
        for question, verdicts in counts.items():
            lines.append(
                f"  {question:<{width}}  {', '.join(f'{count} {verdict}' for verdict, count in verdicts.items())}"
            )
        lines.append(f"  tables: {', '.join(self.tables) or 'none'}; figures: {len(self.figures)}")
        lines.extend(f"  warning: {warning}" for warning in self.warnings)
        if self.folder is not None:
            lines.append(f"  {self.folder / 'report.html'}")
        return "\n".join(lines)


def _read_table(path: Path) -> pl.DataFrame:
    import polars as pl

    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CorruptFile(f"A table cannot be read ({error})", value=str(path)) from error
