"""The network of three parts, the refit that shrinks each by its own evidence, and the estimator of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.effects.network._architecture import Architecture
    from querist.effects.network._design import Design
    from querist.effects.network._estimator import MTMT
    from querist.effects.network._linear import Linear
    from querist.effects.network._net import Network
    from querist.effects.network._refit import Refit, refit

__all__ = ["MTMT", "Architecture", "Design", "Linear", "Network", "Refit", "refit"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "querist.effects.network._architecture": ("Architecture",),
        "querist.effects.network._design": ("Design",),
        "querist.effects.network._estimator": ("MTMT",),
        "querist.effects.network._linear": ("Linear",),
        "querist.effects.network._net": ("Network",),
        "querist.effects.network._refit": ("Refit", "refit"),
    },
)
