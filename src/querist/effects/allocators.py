"""Memory that allocators keep of what has been let go, given back between the phases of a fit."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import pyarrow as pa

__all__ = ["release"]


def release() -> None:
    """Give back what Arrow and the C library hold for later: as much as the outcomes of all rows, beside which the next phase would begin.

    Where the C library has no such call (only glibc has) its part is left alone.
    """
    pa.default_memory_pool().release_unused()
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # no such handle on Windows
        return None
