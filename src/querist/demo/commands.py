"""`querist demo`: every question on real inputs, and one page that leads to the answers."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

__all__ = ["demo"]


def demo(
    *,
    out: Path = Path("runs/demo"),
    engine: str = "auto",
    seed: int = 0,
    open: Annotated[bool, Parameter(negative=())] = False,
    quiet: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Ask every question of bundled inputs, and write one page that leads to the answers.

    Parameters
    ----------
    out
        Folder of the demo; an earlier demo in it is replaced.
    engine
        auto, serial, local or local:N.
    seed
        Root of every random stream.
    open
        Open the page in a browser.
    quiet
        No progress on standard error.
    """
    from querist.demo.questions import ask_all
    from querist.errors import BadOption
    from querist.files import write_text
    from querist.reports.commands import open_page
    from querist.reports.index import gather, index

    if out.exists() and any(out.iterdir()):
        if not (out / MARK).is_file():
            raise BadOption(
                "The folder holds something that is not a demo",
                value=str(out),
                mend="Name an empty folder with --out, or remove it yourself",
            )
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).write_text("This folder is replaced by the next `querist demo`.\n", encoding="utf-8")
    for told in ask_all(out, engine=engine, seed=seed, progress=False if quiet else None):
        sys.stderr.write(told + "\n")
    page = out / "report.html"
    write_text(page, index(gather(out, relative_to=out), title="querist: four questions of real networks"))
    sys.stdout.write(f"{page}\n")
    if open:
        open_page(page)
    return 0


MARK = ".querist-demo"
