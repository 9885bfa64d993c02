"""What the claims on averages measure: steps from letter to letter, and estimates of one effect by four methods."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float
from sklearn.linear_model import Ridge

from querist.effects import check
from querist.effects.baselines import TLearner
from querist.effects.design import CLIP, aipw_scores, estimated_propensity, tier_weights_of
from querist.effects.questions import OVERLAP
from querist.sources.datasets.registry import locate
from querist.statistics import Estimate, folds, mean_interval, torch_seed

__all__ = ["LETTERS", "estimates", "measure", "steps"]

LETTERS = ("Civic Duty", "Hawthorne", "Self", "Neighbors")
"""From the one that presses least to the one that presses most."""
VOTERS = ("sex", "yob", "g2000", "g2002", "p2000", "p2002", "p2004", "hh_size")
MEN = ("age", "educ", "black", "hisp", "marr", "nodegree", "re74", "re75")
PERMUTATIONS = 19
"""Of the classifier of arms, which is not what is asked here."""


def measure(payload: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """One of the two tables."""
    if payload["kind"] == "social":
        frame = pl.read_parquet(locate("social_pressure"))
        return {"steps": steps(frame, payload["folds"], seed)}
    treated = pl.read_parquet(locate("nsw_mixtape")).filter(pl.col("treat") == 1)
    frame = pl.concat([treated, pl.read_parquet(locate("cps_mixtape"))])
    X = frame.select(
        pl.col(MEN).cast(pl.Float64),
        none74=(pl.col("re74") == 0).cast(pl.Float64),
        none75=(pl.col("re75") == 0).cast(pl.Float64),
    )
    arm, y = frame["treat"].to_numpy().astype(int), frame["re78"].to_numpy().astype(float)
    result = check(X, arm, control=0, permutations=PERMUTATIONS, seed=seed)
    finding = next(one for one in result.findings if one.question == OVERLAP.id)
    overlaps = [{"verdict": finding.verdict, "share": finding.estimate, "because": finding.because}]
    rows = estimates(X.to_numpy(), arm, y, payload["crossings"], payload["benchmark"], seed)
    return {"estimates": rows, "overlaps": overlaps}


# ------------------------------------------------------------------------------------------------------------ letters


def steps(frame: pl.DataFrame, count: int, seed: int) -> list[dict[str, Any]]:
    """The base effect and the steps between letters; nuisances are fitted on other households."""
    X, household = frame.select(VOTERS), frame["hh_id"].to_numpy()
    arm, y = frame["treatment"].to_numpy(), frame["voted"].to_numpy().astype(float)
    fold = folds(y.size, count, clusters=household, seed=seed)
    mu = np.empty((y.size, len(LETTERS) + 1))
    for number in range(count):
        held, fitted = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
        model = TLearner(control="Control", arms=LETTERS, outcomes={"voted": "binary"}, random_state=seed)
        model.fit(X[fitted], arm[fitted], {"voted": y[fitted]}, cluster=household[fitted])
        mu[held] = model.predict_effects(X[held]).response[..., 0]
    gamma = aipw_scores(arm, y, control="Control", arms=LETTERS, mu=mu)
    codes = np.array([("Control", *LETTERS).index(label) for label in arm])
    base = (gamma[:, 1:] - gamma[:, :1]) @ tier_weights_of(codes, len(LETTERS) + 1)
    found = [_step("base", True, base, household)]
    for m, (lower, upper) in enumerate(itertools.pairwise(LETTERS), start=1):
        found.append(_step(f"{upper} less {lower}", False, gamma[:, m + 1] - gamma[:, m], household))
    return found


def _step(what: str, first: bool, values: np.ndarray, household: np.ndarray) -> dict[str, Any]:
    whole = mean_interval(values, cluster=household)
    numbers = {name: getattr(whole, name) for name in ("estimate", "low", "high", "p", "se")}
    return {"what": what, "first": first, **numbers, "se_naive": mean_interval(values).se, "households": whole.n}


# ---------------------------------------------------------------------------------------------------------------- men


def estimates(
    X: Float[np.ndarray, "n d"], arm: np.ndarray, y: np.ndarray, crossings: int, benchmark: float, seed: int
) -> list[dict[str, Any]]:
    """Four estimates with intervals, their errors, and what each saves beside the naive comparison, from influence values.

    Propensities and regressions are taken as known in the influence values, which for weights makes intervals too wide rather than
    too narrow (Lunceford & Davidian 2004). Means over crossings of estimate and influence.
    """
    several: dict[str, list[tuple[float, np.ndarray]]] = {}
    for crossing in range(crossings):
        drawn = torch_seed(seed, "claims", "crossing", crossing) % 2**31
        for name, one in _methods(X, arm, y, drawn).items():
            several.setdefault(name, []).append(one)
    whole = {
        name: (float(np.mean([value for value, _ in found])), np.mean([part for _, part in found], axis=0))
        for name, found in several.items()
    }
    naive, naive_influence = whole["naive"]
    rows = []
    for name, (value, influence) in whole.items():
        own = _interval(value, influence)
        error, before = value - benchmark, naive - benchmark
        saved = np.sign(before) * naive_influence - np.sign(error) * influence
        gain = _interval(abs(before) - abs(error), saved)
        row: dict[str, Any] = {"method": name, "estimate": value, "low": own.low, "high": own.high, "error": error}
        told = name != "naive"
        row |= {"gain": gain.estimate if told else None}
        rows.append(row | {"gain_low": gain.low if told else None, "gain_high": gain.high if told else None})
    return rows


def _interval(value: float, influence: np.ndarray) -> Estimate:
    return mean_interval(value + influence - influence.mean())


def _methods(X: np.ndarray, arm: np.ndarray, y: np.ndarray, seed: int) -> dict[str, tuple[float, np.ndarray]]:
    """Each method's value and influence values (mean 0) of one crossing."""
    t = arm.astype(float)
    # Weights that e or 1 − e bounds need no clipping, which would count nine of ten men ten times; only 1/e does.
    e = np.asarray(estimated_propensity(X, arm, 2, clip=None, seed=seed))[:, 1]
    clipped = np.clip(e, *CLIP)
    mu = np.empty((y.size, 2))
    fold = folds(y.size, 5, strata=arm, seed=seed)
    for number in range(5):
        held = fold == number
        centre, scale = X[~held].mean(axis=0), X[~held].std(axis=0) + 1e-12
        for m in (0, 1):
            mine = ~held & (arm == m)
            model = Ridge().fit((X[mine] - centre) / scale, y[mine])
            mu[held, m] = model.predict((X[held] - centre) / scale)
    share = t.mean()
    for_treated = (t * (y - mu[:, 0]) - (1 - t) * e / (1 - e) * (y - mu[:, 0])) / share
    treated = float(for_treated.mean())
    gamma = mu + np.column_stack([(1 - t) / (1 - clipped), t / clipped]) * (y[:, None] - mu)
    everyone = gamma[:, 1] - gamma[:, 0]
    return {
        "naive": _weighted(t, t, 1 - t, y),
        "overlap-weighted": _weighted(t, t * (1 - e), (1 - t) * e, y),
        "doubly robust, the treated": (treated, for_treated - t / share * treated),
        "doubly robust, everyone": (float(everyone.mean()), everyone - everyone.mean()),
    }


def _weighted(t: np.ndarray, one: np.ndarray, other: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Difference of two weighted means."""
    first, second = np.average(y, weights=one), np.average(y, weights=other)
    influence = one * (y - first) / one.mean() - other * (y - second) / other.mean()
    return float(first - second), influence
