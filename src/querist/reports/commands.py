"""`querist report` and `querist runs`: draw what run folders hold."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

__all__ = ["open_page", "report", "runs"]


def report(
    run: Path,
    /,
    *,
    against: Path | None = None,
    out: Path | None = None,
    open: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Draw the report of a run folder again, or of two runs side by side.

    Parameters
    ----------
    run
        A run folder.
    against
        A second run folder of the same command: draw what changed from it to RUN.
    out
        File to write; by default RUN/report.html, or RUN/compare.html with --against.
    open
        Open the page in a browser.
    """
    from querist.files import write_text
    from querist.reports.result import Result

    result = Result.open(run)
    if against is None:
        from querist.reports.page import render

        page, target = render(result.document()), out or run / "report.html"
    else:
        from querist.reports.compare import compare

        page, target = compare(Result.open(against).document(), result.document()), out or run / "compare.html"
    write_text(target, page)
    sys.stdout.write(f"{target}\n")
    if open:
        open_page(target)
    return 0


def runs(
    folder: Path = Path("runs"),
    /,
    *,
    out: Path | None = None,
    open: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """One page over all run folders below a folder; a run that cannot be read is listed with its reason.

    Parameters
    ----------
    folder
        Where run folders are looked for, at any depth.
    out
        File to write; by default FOLDER/index.html.
    open
        Open the page in a browser.
    """
    from querist.errors import SourceNotFound
    from querist.files import write_text
    from querist.reports.index import gather, index

    if not folder.is_dir():
        raise SourceNotFound("There is no folder here", value=str(folder), mend="Name the folder that holds your runs")
    target = out or folder / "index.html"
    rows = gather(folder, relative_to=target.parent)
    write_text(target, index(rows))
    for row in rows:
        sys.stdout.write(f"{row['folder']}  {row['room']} {row['command']}  {row['status']}\n")
    sys.stdout.write(f"{target}\n")
    if open:
        open_page(target)
    return 0


def open_page(path: Path) -> None:
    """Open a page in the user's browser, where there is one; a machine without a screen is no fault."""
    import os
    import webbrowser

    if sys.platform != "darwin" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    webbrowser.open(path.resolve().as_uri())
