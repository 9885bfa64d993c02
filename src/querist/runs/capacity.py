"""Memory that this process may still use, as far as the system says."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["available_memory"]

_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def available_memory() -> int:
    """Bytes: the least of what the machine has free (Linux: MemAvailable; else half of its memory) and its group's limit."""
    found = [_free()]
    for limit, used in _GROUPS:
        most, now = _number(limit), _number(used)
        if most is not None and now is not None:
            found.append(max(0, most - now))
    return min(found)


def _free() -> int:
    try:
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text("ascii"))  # "max" is no number: no limit
    except (OSError, ValueError):
        return None
