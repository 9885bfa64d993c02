"""The claims that the rooms rest on, each a study with its rule fixed beforehand: holds, fails, or cannot say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from querist._lazy import attach

if TYPE_CHECKING:
    from querist.claims.claim import Claim
    from querist.claims.ledger import LedgerRow
    from querist.claims.registry import select
    from querist.claims.rooms import Ledger, run

__all__ = ["Claim", "Ledger", "LedgerRow", "run", "select"]

__getattr__, __dir__ = attach(
    __name__,
    {
        "querist.claims.claim": ("Claim",),
        "querist.claims.ledger": ("LedgerRow",),
        "querist.claims.registry": ("select",),
        "querist.claims.rooms": ("Ledger", "run"),
    },
)
