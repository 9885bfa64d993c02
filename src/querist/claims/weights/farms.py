"""The claim about FARMS: whether windows of one aspect ratio free Hill's exponent from the shape of the matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from querist.claims.claim import Claim, Family, Judgement, Number, Piece, Size, family_table
from querist.claims.judging import side_of, verdict_of
from querist.claims.weights.rules import interval, number
from querist.results.charts import Axes, Series, lines
from querist.results.figure import Figure
from querist.results.table import Column

__all__ = ["FAMILY", "FARMS", "SHAPES", "judge"]

SHAPES = family_table(
    "shapes",
    "Exponents of random matrices of one long side and several aspect ratios.",
    (
        Column("repeat", "int", "Which draw."),
        Column("q", "float", "Shorter over longer side."),
        Column("N", "int", "Shorter side."),
        Column("M", "int", "Longer side."),
        Column("alpha_hill", "float", "Hill's exponent of the whole spectrum."),
        Column("alpha_farms", "float", "Hill's exponent of the pooled spectra of square windows."),
    ),
    ("q",),
)
QUARTER = 0.25


def _work(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    import torch

    from querist.statistics import stream
    from querist.weights.fits import farms, hill_exponent
    from querist.weights.spectrum import esd

    rows = []
    for q in payload["ratios"]:
        N, M = round(q * payload["side"]), payload["side"]
        W = torch.from_numpy(stream(seed, "claims", "shapes", payload["repeat"], N, M).standard_normal((N, M)))
        whole = hill_exponent(esd(W).evals)[0]
        row = {"repeat": payload["repeat"], "q": q, "N": N, "M": M}
        rows.append(row | {"alpha_hill": whole, "alpha_farms": farms(W).alpha})
    return {"shapes": rows}


FAMILY = Family("shapes", (SHAPES,), _work)


def _pieces(size: Size) -> Iterator[Piece]:
    cost = sum(15 * q * (q * size["side"]) ** 2 * size["side"] * 5e-10 + 0.01 for q in size["ratios"])
    for repeat in range(size.seeds):
        payload = {"repeat": repeat, "side": size["side"], "ratios": list(size["ratios"])}
        yield Piece(f"shapes/{size['side']}/{repeat}", payload, cost)


def spread(shapes: pl.DataFrame, column: str) -> float:
    """Largest less smallest over aspect ratios of the mean over draws."""
    means = shapes.group_by("q").agg(pl.col(column).mean())[column]
    return float(means.max() - means.min())  # type: ignore[operator]


def judge(tables: Mapping[str, pl.DataFrame], size: Size) -> Judgement:
    """The spread of one exponent over the spread of the other, with a jackknife over seeds."""
    from querist.statistics import jackknife

    shapes = tables["shapes"]
    plain, windows = spread(shapes, "alpha_hill"), spread(shapes, "alpha_farms")
    numbers = [Number("spread of Hill over aspect ratios", plain), Number("spread of FARMS", windows)]
    for q in size["ratios"]:
        rows = shapes.filter((pl.col("q") - q).abs() < 1e-9)
        numbers.append(number(f"q={q:g}: Hill", interval(rows["alpha_hill"].to_numpy())))
        numbers.append(number(f"q={q:g}: FARMS", interval(rows["alpha_farms"].to_numpy())))
    if size.seeds < 2:
        told = "One seed has no interval."
        return Judgement("cannot say", windows / plain, None, None, QUARTER, told, numbers=tuple(numbers))

    def ratio(keep: np.ndarray) -> float:
        kept = shapes.filter(pl.Series(keep))
        return spread(kept, "alpha_farms") / spread(kept, "alpha_hill")

    found = jackknife(shapes["repeat"].to_numpy(), ratio)
    verdict = verdict_of([side_of(found.low, found.high, QUARTER, "below")])
    because = (
        f"Over aspect ratios from {min(size['ratios']):g} to {max(size['ratios']):g} Hill's exponent of random matrices spreads by "
        f"{plain:.3f}, that of FARMS by {windows:.3f}: {found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}] of it."
    )
    return Judgement(verdict, found.estimate, found.low, found.high, QUARTER, because, numbers=tuple(numbers))


def _draw(tables: Mapping[str, pl.DataFrame], size: Size) -> Iterator[Figure]:
    series = []
    for name, column in (("Hill", "alpha_hill"), ("FARMS", "alpha_farms")):
        grouped = tables["shapes"].group_by("q").agg(pl.col(column)).sort("q")
        parts = [np.array(one, dtype=float) for one in grouped[column].to_list()]
        middle, low, high = ([float(f(part)) for part in parts] for f in (np.mean, np.min, np.max))
        series.append(Series(name, grouped["q"].to_numpy(), middle, low, high, points=True))
    data, layout = lines(series, Axes("aspect ratio q", "exponent"))
    yield Figure(
        "farms-unbiased.shapes",
        "Exponents of random matrices by aspect ratio",
        "Mean over draws with the range between them. There is nothing in these matrices: what changes with q is the shape.",
        data,
        layout,
        "shapes",
    )


_RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

UNBIASED = Claim(
    id="weights.farms-unbiased",
    ask="Does FARMS free Hill's exponent from the aspect ratio?",
    statement="Hill's exponent depends on the aspect ratio of a matrix even where there is nothing in it; pooling windows of one aspect "
    "ratio (FARMS) takes this bias away.",
    source="literature",
    reference="Hu et al., Eigenspectrum analysis of neural networks without aspect ratio bias (ICML 2025).",
    protocol="Gaussian matrices of one longer side and aspect ratios from .1 to 1; Hill's exponent of the whole spectrum and of the "
    "pooled spectra of square windows, the widest that fit. The spread is the largest less the smallest mean over aspect ratios.",
    rule="Holds where the spread of FARMS is below a quarter of the spread of plain Hill with its whole jackknife interval over seeds; "
    "fails where the whole interval lies above; else it cannot be told.",
    unit="ratio of spreads",
    null="0.25, the bound that the rule sets; 1 where FARMS changes nothing",
    sizes={
        "small": Size(10, {"side": 400, "ratios": _RATIOS}),
        "full": Size(5, {"side": 2000, "ratios": _RATIOS}),
    },
    family=FAMILY,
    pieces=_pieces,
    judge=judge,
    draw=_draw,
)

FARMS = (UNBIASED,)
