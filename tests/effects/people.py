"""Small tables of people with known effects, which other processes can make as well."""

from __future__ import annotations

import numpy as np
import polars as pl

from querist.effects.studies.check import CheckStudy
from querist.effects.studies.fit import FitStudy

ARMS = np.array(["none", "call", "mail"])
ROLES = {"arm": "segment", "control": "none"}
BOTH = ("visit:binary", "spend:continuous")


def people(n: int = 1200, seed: int = 0) -> pl.DataFrame:
    """n people in three arms at random: `mail` makes visits .1 more likely, `call` .25 where x0 is positive; spend is x1 + .5·treated."""
    rng = np.random.default_rng([seed, 77])
    x = rng.standard_normal((n, 3))
    arm = rng.integers(0, 3, n)
    chance = 0.3 + 0.1 * (arm == 2) + 0.25 * (arm == 1) * (x[:, 0] > 0)
    age = np.where(rng.random(n) < 0.1, np.nan, x[:, 2])
    return pl.DataFrame(
        {
            "x0": x[:, 0],
            "x1": x[:, 1],
            "age": pl.Series(age).fill_nan(None),
            "city": rng.choice(["Bath", "Cork", "Delft"], n),
            "flat": np.ones(n),
            "home": np.arange(n) // 2,
            "segment": ARMS[arm],
            "visit": (rng.random(n) < chance).astype(int),
            "spend": x[:, 1] + 0.5 * (arm > 0) + rng.standard_normal(n),
        }
    )


def held_check() -> CheckStudy:
    """A check of a table in memory."""
    return CheckStudy(people().to_arrow())


def held_fit() -> FitStudy:
    """A fit of a table in memory."""
    return FitStudy(people(400).to_arrow())
