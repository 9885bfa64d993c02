"""The Ray engine, whose name is kept while it is not built."""

from __future__ import annotations

from querist.errors import MissingExtra

__all__ = ["Ray"]


class Ray:
    """Raises MissingExtra: this version has no Ray engine."""

    def __init__(self, address: str):
        raise MissingExtra(
            "The Ray engine is not built yet in this version",
            value=address,
            allowed="auto, serial, local, local:N",
            mend="Use local",
        )
