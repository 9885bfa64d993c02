"""The tables that the claims read, each opened or drawn once in a process."""

from __future__ import annotations

from functools import lru_cache

from querist.concepts.data import ConceptData
from querist.concepts.readers import birds, registered

__all__ = ["drawn", "opened"]


@lru_cache(maxsize=4)
def opened(name: str) -> ConceptData:
    """A registered table. Raises UnknownName, SourceNotFound."""
    return registered(name)


@lru_cache(maxsize=1)
def drawn(n: int, seed: int) -> ConceptData:
    """Rendered birds: two thirds train, a ninth val, the rest test; all repeats share the pictures."""
    return birds(n, seed=seed)
