"""Several things given to a verb at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["several"]


def several(what: Any, name: str) -> dict[str, Any]:
    """Things by name: a dictionary of things, a list of them (numbered), or one. A dictionary of tensors is one thing."""
    if isinstance(what, Mapping) and not any(hasattr(one, "dtype") for one in what.values()):
        return {str(key): one for key, one in what.items()}
    if isinstance(what, list) and what:
        return {name: what[0]} if len(what) == 1 else {f"{name}-{i + 1}": one for i, one in enumerate(what)}
    return {name: what}
