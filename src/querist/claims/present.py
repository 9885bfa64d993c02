"""What the report of a ledger shows: the ledger, then a section per claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from querist.claims.claim import SOURCES, Claim
from querist.claims.ledger import LedgerRow, counts, told
from querist.results.figure import Figure
from querist.results.layout import Layout, Section
from querist.results.table import TableSpec

__all__ = ["lay_out"]

LEAD = (
    "Each claim was written down with its protocol and its rule before it was run. A claim holds or fails only where its rule says "
    "so; everything else cannot be told. Small sizes can differ from full ones."
)


def lay_out(
    room: str,
    size: str,
    claims: Sequence[Claim],
    rows: Sequence[LedgerRow],
    drawn: Mapping[str, Sequence[Figure]],
    tables: Sequence[str],
    specs: Sequence[TableSpec],
) -> Layout:
    """The ledger first, then per claim what is claimed, how it was tested, and what came out; the measurements last."""
    own = {claim.name for claim in claims}
    count = counts([{"verdict": row.verdict} for row in rows])
    sections = [Section("Ledger", (f"At size {size}: {told(count)}.",), tables=("ledger",))]
    for claim, row in zip(claims, rows, strict=True):
        sections.append(
            Section(
                f"{claim.id}: {row.verdict}",
                words=_words(claim, size),
                findings=(("*", claim.id),),
                figures=tuple(figure.name for figure in drawn.get(claim.id, ())),
                tables=(claim.name,) if claim.name in tables else (),
            )
        )
    rest = tuple(name for name in tables if name not in own and name != "ledger")
    sections.append(Section("Measurements", ("Every row names its piece of work.",), tables=rest, open=False))
    shown = tuple(spec for spec in specs if spec.name in tables)
    title = f"Do the claims of the room {room} hold? {told(count)}"
    return Layout(title, LEAD, tuple(sections), shown, tuple(claim.question for claim in claims))


def _words(claim: Claim, size: str) -> tuple[str, ...]:
    return (
        f"Claim: {claim.statement}",
        f"Source: {SOURCES[claim.source]}; {claim.reference}",
        f"Protocol: {claim.protocol}",
        f"Rule, fixed before the run: {claim.rule}",
        f"Numbers of size {size}: {claim.sizes[size].told()}.",
    )
