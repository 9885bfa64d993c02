"""`querist data`: what is registered, and how to get it."""

from __future__ import annotations

import json as _json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

__all__ = ["app"]

app = App(name="data", help="Registered data sets: list them, fetch one.")


@app.command(name="list")
def list_(*, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Every registered data set: what it is, its licence, and where it lies now.

    Parameters
    ----------
    json
        Print the list as JSON on standard output.
    """
    from querist.sources.datasets.registry import DATA_SETS, places

    rows = []
    for data in DATA_SETS.values():
        here = places(data)
        place = next(iter(here), None)
        rows.append(
            {
                "name": data.name,
                "what": data.what,
                "licence": data.licence,
                "bytes": data.bytes,
                "place": place,
                "path": str(here[place]) if place else None,
            }
        )
    if json:
        sys.stdout.write(_json.dumps(rows, indent=2) + "\n")
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        size = f"{row['bytes'] / 1e6:8.1f} MB"
        sys.stdout.write(f"{row['name']:<{width}}  {row['place'] or 'not here':<8}  {size}  {row['what']}\n")
    return 0


@app.command
def fetch(name: str, /, *, source: Annotated[Path | None, Parameter(name="--from")] = None) -> int:
    """Download a data set into the cache, or copy it there from a file; the checksum must agree.

    Parameters
    ----------
    name
        A registered name; `querist data list` shows them.
    source
        A file to take instead of the download.
    """
    from querist.sources.datasets.fetch import fetch as bring

    sys.stdout.write(f"{bring(name, source=source)}\n")
    return 0
