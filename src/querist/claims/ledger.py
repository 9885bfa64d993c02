"""The ledger: one row per claim, as a table, as findings, on a terminal, and beside an earlier ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from querist.claims.claim import Claim, ClaimVerdict, Judgement
from querist.errors import InvariantBroken
from querist.results.finding import Finding, Verdict
from querist.results.table import Column, TableSpec

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

__all__ = ["CLAIM_VERDICTS", "LEDGER", "PIECES", "LedgerRow", "compare", "counts", "render", "told"]

CLAIM_VERDICTS: Mapping[str, Verdict] = {"holds": "yes", "fails": "no", "cannot say": "cannot say"}
"""What a claim's verdict is as the verdict of a finding."""

LEDGER = TableSpec(
    "ledger",
    "One row per claim.",
    (
        Column("id", "str", "The claim."),
        Column("verdict", "str", "holds, fails or cannot say."),
        Column("estimate", "float", "The number that the rule was taken from, in `unit`."),
        Column("low", "float", "Lower end of its interval."),
        Column("high", "float", "Upper end of its interval."),
        Column(
            "null", "float", "What it would be if there were nothing to find, or the bound that it is held against."
        ),
        Column("because", "str", "Why, in one sentence with the numbers."),
        Column("p", "float", "The p value that the verdict was taken from, where the rule is a test."),
        Column("unit", "str", "Unit of the estimate."),
        Column("source", "str", "paper, ours or literature: who makes the claim."),
        Column("size", "str", "small or full."),
        Column("seeds", "int", "Repetitions."),
        Column("seconds", "float", "Time of the claim's pieces added up, those that it shares included.", "s"),
    ),
    ("id",),
)
PIECES = TableSpec(
    "pieces",
    "One row per piece of work.",
    (
        Column("piece", "str", "Its key."),
        Column("family", "str", "The family of claims that does it."),
        Column("claims", "list[str]", "The claims that look at it."),
        Column("seconds", "float", "Time taken.", "s"),
    ),
    ("piece",),
)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """What became of one claim. Numbers are in the claim's unit; one that does not exist is None."""

    id: str
    verdict: ClaimVerdict
    estimate: float | None
    low: float | None
    high: float | None
    null: float | None
    because: str
    size: str
    seeds: int
    seconds: float | None
    p: float | None = None

    def __post_init__(self) -> None:
        if self.verdict not in CLAIM_VERDICTS:
            raise InvariantBroken(f"claim {self.id} ends with {self.verdict!r}")

    @classmethod
    def of(cls, claim: Claim, judgement: Judgement, size: str, seconds: float | None) -> LedgerRow:
        """A judgement with its size, seeds and time."""
        return cls(
            id=claim.id,
            verdict=judgement.verdict,
            estimate=judgement.estimate,
            low=judgement.low,
            high=judgement.high,
            null=judgement.null,
            because=judgement.because,
            size=size,
            seeds=claim.sizes[size].seeds,
            seconds=seconds,
            p=judgement.p,
        )

    def row(self, claim: Claim) -> dict[str, Any]:
        """The row of the table `ledger`."""
        return {**asdict(self), "unit": claim.unit, "source": claim.source}

    def finding(self, claim: Claim) -> Finding:
        """The row as a finding whose subject is the size: holds is yes, fails is no."""
        numbers = (self.estimate, claim.unit, self.low, self.high, self.null, self.p)
        return Finding(self.size, self.id, *numbers, CLAIM_VERDICTS[self.verdict], self.because)


def counts(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many claims hold, fail, and cannot be told."""
    found = dict.fromkeys(CLAIM_VERDICTS, 0)
    for row in rows:
        found[row["verdict"]] += 1
    return found


def told(count: Mapping[str, int]) -> str:
    """The counts in words.

    >>> told({"holds": 3, "fails": 1, "cannot say": 0})
    '3 hold, 1 fails'
    """
    words = {"holds": ("holds", "hold"), "fails": ("fails", "fail"), "cannot say": ("cannot be told",) * 2}
    parts = [f"{n} {words[verdict][n != 1]}" for verdict, n in count.items() if n]
    return ", ".join(parts) or "no claim"


_STYLES = {"holds": "green", "fails": "red", "cannot say": "yellow"}


def render(rows: Sequence[Mapping[str, Any]], changed: Mapping[str, str] | None = None) -> Table:
    """The ledger for a terminal. `changed`: claim to its verdict in an earlier ledger."""
    from rich.table import Table
    from rich.text import Text

    from querist.reports.present import number

    table = Table(pad_edge=False, show_lines=True)
    for name in ("claim", "verdict", "estimate", "null"):
        table.add_column(name, overflow="fold", no_wrap=name == "verdict")
    table.add_column("because", overflow="fold", ratio=1)
    for row in rows:
        verdict = Text(row["verdict"], _STYLES[row["verdict"]])
        if changed is not None and changed.get(row["id"], row["verdict"]) != row["verdict"]:
            verdict.append(f"\n(was {changed[row['id']]})", "bold")
        interval = "" if row["low"] is None else f"\n[{number(row['low'])}, {number(row['high'])}]"
        value = Text(f"{number(row['estimate'])}{interval}")
        table.add_row(Text(row["id"]), verdict, value, Text(number(row["null"])), Text(row["because"]))
    return table


def compare(ledger: pl.DataFrame, earlier: pl.DataFrame) -> pl.DataFrame:
    """Claims of either ledger: `id, verdict, verdict_before, estimate, estimate_before, changed`; None where one lacks it."""
    import polars as pl

    columns = ["id", "verdict", "estimate"]
    both = ledger.select(columns).join(
        earlier.select(columns), on="id", how="full", coalesce=True, suffix="_before", maintain_order="left_right"
    )
    both = both.with_columns(changed=pl.col("verdict").ne_missing(pl.col("verdict_before")))
    return both.select("id", "verdict", "verdict_before", "estimate", "estimate_before", "changed")
