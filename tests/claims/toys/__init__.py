"""A family of toy claims about means of normal samples: one of each verdict, shared pieces, a second stage, absent data."""

from __future__ import annotations

import os
from pathlib import Path

from querist.claims.claim import Claim, Family, Judgement, Number, Piece, Size, family_table
from querist.results.charts import Axes, bars
from querist.results.figure import Figure
from querist.results.table import Column
from querist.statistics import mean_interval, stream, verdict

SAMPLES = family_table(
    "samples",
    "One draw per row.",
    (Column("seed_index", "int", "Which seed."), Column("row", "int", "Which draw."), Column("value", "float", "It.")),
    ("row",),
)
SUMS = family_table("sums", "Sums of samples.", (Column("total", "float", "The sum."),))


def measure(payload, seed, device, folder: Path):
    trouble = os.environ.get("TOY_TROUBLE")
    if trouble and trouble == f"{payload['kind']}-{payload.get('index')}":
        raise ValueError("trouble")
    if payload["kind"] == "sum":
        return {"sums": [{"total": payload["total"]}]}
    draws = stream(seed, "toys", payload["index"]).standard_normal(payload["n"])
    rows = [{"seed_index": payload["index"], "row": i, "value": float(x)} for i, x in enumerate(draws)]
    return {"samples": rows}


DRAWS = Family("draws", (SAMPLES, SUMS), measure)


def pieces(size):
    yield from (
        Piece(f"sample/{i}", {"kind": "sample", "index": i, "n": size["n"]}, cost=0.1) for i in range(size.seeds)
    )


def later(size, tables):
    totals = tables["samples"].select("seed_index", "value").group_by("seed_index", maintain_order=True).sum()
    for row in totals.to_dicts():
        yield Piece(f"sum/{row['seed_index']}", {"kind": "sum", "index": row["seed_index"], "total": row["value"]})


def above(bound):
    def judge(tables, size):
        samples = tables["samples"].select("seed_index", "value")
        means = samples.group_by("seed_index", maintain_order=True).mean()["value"].to_numpy()
        found = mean_interval(means)
        word = {"yes": "holds", "no": "fails"}.get(verdict(found.low, found.high, yes_above=bound), "cannot say")
        told = f"The mean of {means.size} means is {found.estimate:.3g}."
        numbers = (Number("mean", found.estimate, found.low, found.high, bound, found.n),)
        return Judgement(word, found.estimate, found.low, found.high, bound, told, found.p, numbers)

    return judge


def summed(tables, size):
    totals = tables["sums"]["total"]
    assert len(totals) == size.seeds
    return Judgement("holds", float(totals.sum()), None, None, 0.0, f"{len(totals)} sums.")


def drawn(tables, size):
    data, layout = bars({"value": tables["samples"]["value"]}, tables["samples"]["row"].to_list(), Axes("row", "value"))
    yield Figure("above-minus-one.values", "Draws", "Every draw.", data, layout, "samples")


def claim(name, judge, **more):
    return Claim(
        id=f"toys.{name}",
        ask="Is the mean above the bound?",
        statement="The mean lies above the bound.",
        source="ours",
        reference="a toy.",
        protocol="Draw normal samples.",
        rule="Holds where the interval of the mean lies above the bound, fails where below.",
        unit="mean",
        null="0",
        sizes=more.pop("sizes", {"small": Size(4, {"n": 50}), "full": Size(8, {"n": 100, "rates": (0.1, 1.0)})}),
        family=DRAWS,
        pieces=pieces,
        judge=judge,
        **more,
    )


CLAIMS = (
    claim("above-minus-one", above(-1.0), draw=drawn),
    claim("above-one", above(1.0)),
    claim("above-zero", above(0.0)),
    claim("summed", summed, later=later),
    claim("absent", above(0.0), sizes={name: Size(4, {"n": 50}, ("toy-absent",)) for name in ("small", "full")}),
)
