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
    from querist.sources.datasets.collections import COLLECTIONS
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
    for collection in COLLECTIONS.values():
        files = [DATA_SETS[file] for part in collection.parts.values() for file in part.files]
        where = [next(iter(places(data)), None) for data in files]
        rows.append(
            {
                "name": collection.name + (f" #{' #'.join(collection.parts)}" if len(collection.parts) > 1 else ""),
                "what": collection.what,
                "licence": collection.licence,
                "bytes": sum({data.name: data.bytes or 0 for data in files}.values()),
                "place": (None if None in where else where[0]) if files else "made",
                "path": None,
            }
        )
    if json:
        sys.stdout.write(_json.dumps(rows, indent=2) + "\n")
        return 0
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        size = "       ? MB" if row["bytes"] is None else f"{row['bytes'] / 1e6:8.1f} MB"
        sys.stdout.write(f"{row['name']:<{width}}  {row['place'] or 'not here':<8}  {size}  {row['what']}\n")
    return 0


@app.command
def fetch(name: str, /, *, source: Annotated[Path | None, Parameter(name="--from")] = None) -> int:
    """Download a data set into the cache, or copy it there from a file; the checksum must agree. Its licence is shown first.

    A name of several files, such as fashion-mnist, fetches each of them.

    Parameters
    ----------
    name
        A registered name; `querist data list` shows them.
    source
        A file to take instead of the download.
    """
    from querist.sources.datasets.collections import COLLECTIONS
    from querist.sources.datasets.fetch import fetch as bring
    from querist.sources.datasets.registry import DATA_SETS

    names = [name]
    if name in COLLECTIONS and name not in DATA_SETS and source is None:
        names = list(dict.fromkeys(file for part in COLLECTIONS[name].parts.values() for file in part.files))
    for one in names:
        if one in DATA_SETS:
            sys.stderr.write(f"{one}: licence {DATA_SETS[one].licence}\n")
        sys.stdout.write(f"{bring(one, source=source)}\n")
    return 0
