"""querist asks four questions of a neural network and answers each beside its null."""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist import concepts, effects, features, weights
    from querist.reports.result import Result

__version__ = "0.1.0"

__all__ = ["Result", "__version__", "concepts", "effects", "features", "weights"]


_ROOMS = ("concepts", "effects", "features", "weights")
_getattr, _dir = attach(__name__, {"querist.reports.result": ("Result",)})


def __getattr__(name: str):
    if name in _ROOMS:
        import importlib

        return importlib.import_module(f"querist.{name}")
    return _getattr(name)


def __dir__() -> list[str]:
    return sorted({*_dir(), *_ROOMS})
