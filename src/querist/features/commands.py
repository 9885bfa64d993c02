"""The room's commands."""

from __future__ import annotations

from cyclopts import App

__all__ = ["app"]

app = App(name="features", help="What do a network's layers keep of the data they see?")
