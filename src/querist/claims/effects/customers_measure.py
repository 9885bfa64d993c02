"""What the claims on customers measure: one model of one split, how it ranks, what its choice is worth, how it may be scored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from jaxtyping import Float, Int

from querist.effects import baselines
from querist.effects.arrays import arm_codes
from querist.effects.design import aipw_scores
from querist.effects.estimator import Estimator
from querist.effects.metrics import best_arm, qini, rate, rate_difference
from querist.effects.netrows import batches_of
from querist.effects.network import MTMT
from querist.errors import UndefinedMetric
from querist.sources.datasets.registry import locate
from querist.statistics import folds, mean_interval, stream

__all__ = ["Customers", "leak_rows", "measure", "observed_scores", "read_table"]

MADE: Mapping[str, Any] = {
    "S-learner": baselines.SLearner,
    "T-learner": baselines.TLearner,
    "X-learner": baselines.XLearner,
    "R-learner": baselines.RLearner,
    "DR-learner": baselines.DRLearner,
    "TARNet": baselines.TARNet,
    "CFRNet": baselines.CFRNet,
    "DragonNet": baselines.DragonNet,
    "M3TN": baselines.M3TN,
    "EFIN-like": baselines.EFINLike,
    "FlexTENet": baselines.FlexTENet,
    "MMoE": baselines.MMoE,
    "PLE": baselines.PLE,
    "natural rank": baselines.NaturalRank,
    "random rank": baselines.RandomRank,
    "single arm": baselines.SingleArm,
    "constant effect": baselines.ConstantEffect,
}
NETWORKS = ("TARNet", "CFRNet", "DragonNet", "M3TN", "EFIN-like", "FlexTENet", "MMoE", "PLE")
RANKS_ONLY = ("natural rank", "random rank")
"""Scores that are no effects, and so choose no arm."""
HELD = 0.3
"""Share of rows that are scored."""


@dataclass(frozen=True)
class Customers:
    """Rows of a table: features, labels of arms, outcomes by name with their kinds, what is control."""

    X: pl.DataFrame
    arm: np.ndarray
    Y: dict[str, np.ndarray]
    kinds: dict[str, str]
    control: Any

    def take(self, rows: np.ndarray) -> Customers:
        """Some of the rows."""
        return Customers(
            self.X[rows], self.arm[rows], {k: v[rows] for k, v in self.Y.items()}, self.kinds, self.control
        )


def measure(payload: Mapping[str, Any], seed: int, device: str) -> Mapping[str, Any]:
    """One model of one split."""
    whole = read_table(payload["table"], payload["rows"], seed, payload["split"])
    fitted, held = _parts(payload, whole, seed)
    name, number = payload["model"], 1000 * seed + payload["split"]
    common: dict[str, Any] = {"control": whole.control, "outcomes": whole.kinds, "random_state": number}
    model = _model(name, payload, common, device).fit(fitted.X, fitted.arm, fitted.Y)
    nuisance = baselines.TLearner(**common).fit(fitted.X, fitted.arm, fitted.Y)
    of = {"table": payload["table"], "split": payload["split"], "model": name}
    found = _judged(name, model, nuisance, fitted, held)
    tables = {key: [{**of, **row} for row in rows] for key, rows in found.items()}
    if name == "MTMT" and payload["table"] == "hillstrom":
        tables["leaks"] = [{"split": payload["split"], **row} for row in leak_rows(model, held, seed, payload["split"])]
    return tables


def _model(name: str, payload: Mapping[str, Any], common: Mapping[str, Any], device: str) -> Estimator:
    training = {"preset": payload["preset"], "epochs": payload["epochs"], "device": device}
    if name == "MTMT":
        return MTMT(folds=payload["folds"], **training, **common)
    return MADE[name](**(training if name in NETWORKS else {}), **common)


def read_table(name: str, rows: int | None, seed: int, split: int) -> Customers:
    """Hillstrom's table or Criteo's; of more rows than wanted a draw of the split, without replacement."""
    if name == "hillstrom":
        frame = pl.read_parquet(locate(name))
        if rows is not None and rows < frame.height:
            draw = stream(seed, "claims", name, "rows", split).choice(frame.height, rows, replace=False)
            frame = frame[np.sort(draw)]
        X = frame.select(
            "recency",
            "history",
            pl.col("history").log1p().alias("log_history"),
            "mens",
            "womens",
            "newbie",
            "zip_code",
            "channel",
        )
        kinds = {"visit": "binary", "conversion": "binary", "spend": "hurdle"}
        return Customers(X, frame["segment"].to_numpy(), {k: frame[k].to_numpy() for k in kinds}, kinds, "No E-Mail")
    return _criteo(rows, seed)


def _criteo(rows: int | None, seed: int) -> Customers:
    """The same rows for every fold."""
    from querist.effects.criteo import FEATURES, read_criteo

    opened = read_criteo(locate("criteo-uplift"))
    parts, draw = [], stream(seed, "claims", "criteo", "rows")
    share = 1.0 if rows is None else min(1.0, 1.2 * rows / (opened.n or rows))
    for batch in opened.batches([*FEATURES, "treatment", "visit"]):
        mine = pl.DataFrame(pl.from_arrow(batch))
        parts.append(mine.filter(pl.Series(draw.random(mine.height) < share)))
    frame = pl.concat(parts).with_columns(pl.col(FEATURES).cast(pl.Float32))
    frame = frame if rows is None else frame.head(rows)
    visit = {"visit": frame["visit"].to_numpy()}
    return Customers(frame.select(FEATURES), frame["treatment"].to_numpy(), visit, {"visit": "binary"}, 0)


def _parts(payload: Mapping[str, Any], whole: Customers, seed: int) -> tuple[Customers, Customers]:
    """Rows to fit on and rows to score: a random 70 % and the rest, or all folds but one and that one."""
    n, split = whole.arm.size, payload["split"]
    if payload["table"] == "hillstrom":
        order = stream(seed, "claims", "hillstrom", "split", split).permutation(n)
        cut = round(n * (1 - HELD))
        return whole.take(np.sort(order[:cut])), whole.take(np.sort(order[cut:]))
    fold = folds(n, payload["splits"], strata=whole.arm, seed=seed)
    return whole.take(np.flatnonzero(fold != split)), whole.take(np.flatnonzero(fold == split))


# ------------------------------------------------------------------------------------------------------------- judged


def _judged(
    name: str, model: Estimator, nuisance: Estimator, fitted: Customers, held: Customers
) -> dict[str, list[dict[str, Any]]]:
    effects, nuisances = model.predict_effects(held.X), nuisance.predict_effects(held.X)
    labels, codes = arm_codes(held.arm, held.control)
    scored, valued = [], []
    for k, outcome in enumerate(held.Y):
        y = np.asarray(held.Y[outcome], dtype=float)
        mu = nuisances.response[..., k]  # null where the rows fitted on do not carry the outcome: arm means then
        gamma = aipw_scores(held.arm, y, control=held.control, mu=mu if np.isfinite(mu).all() else "arm")
        natural = nuisances.natural[:, k]
        for m, arm in enumerate(labels[1:]):
            score = effects.total[:, m, k]
            row = {"arm": str(arm), "outcome": outcome}
            scored.append(row | _ranked(gamma[:, m + 1] - gamma[:, 0], score, natural, y, codes, m + 1))
        if name in RANKS_ONLY or not np.isfinite(effects.total[..., k]).all():
            continue
        learnt = np.asarray(fitted.Y[outcome], dtype=float)
        single = best_arm(aipw_scores(fitted.arm, learnt, control=held.control))
        best = np.argmax(effects.total[..., k], axis=1)
        chosen = np.where(effects.total[np.arange(y.size), best, k] > 0, best + 1, 0)
        worth = gamma[np.arange(y.size), chosen]
        gain = mean_interval(worth - gamma[:, single], block=codes)
        valued.append(
            {
                "outcome": outcome,
                "value": float(worth.mean()),
                "arm": str(labels[single]),
                "over_arm": gain.estimate,
                "over_arm_low": gain.low,
                "over_arm_high": gain.high,
            }
        )
    return {"scored": scored, "valued": valued}


def _ranked(
    psi: np.ndarray, score: np.ndarray, natural: np.ndarray, y: np.ndarray, codes: np.ndarray, arm: int
) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(
        ("sklift", "qini", "se", "over_natural", "over_natural_low", "over_natural_high")
    )
    if np.isfinite(score).all():
        own = rate(psi, score, block=codes)
        found |= {"sklift": _sklift(y, codes, arm, score), "qini": own.estimate, "se": own.se}
        if np.isfinite(natural).all():
            gain = rate_difference(psi, score, natural, block=codes)
            found |= {"over_natural": gain.estimate, "over_natural_low": gain.low, "over_natural_high": gain.high}
    return found


def _sklift(y: np.ndarray, codes: np.ndarray, arm: int, score: np.ndarray) -> float | None:
    """Normalised Qini among the rows of an arm and of control; None where it is undefined."""
    pair = (codes == 0) | (codes == arm)
    if not np.isin(y, (0.0, 1.0)).all():
        return None
    try:
        return qini(y[pair], (codes[pair] > 0).astype(int), score[pair])
    except UndefinedMetric:
        return None


# --------------------------------------------------------------------------------------------------------------- leak


def leak_rows(model: MTMT, held: Customers, seed: int, split: int) -> Iterator[dict[str, Any]]:
    """Qini of visits of one model's networks, scored in four ways."""
    labels, codes = arm_codes(held.arm, held.control)
    y = np.asarray(held.Y["visit"], dtype=float)
    exchanged = stream(seed, "claims", "leak", "exchanged", split).permutation(codes)
    effect, observed, natural = observed_scores(model, held.X, codes, seed, split)
    _, blind, _ = observed_scores(model, held.X, exchanged, seed, split)
    for m, arm in enumerate(labels[1:]):
        ways = {
            "counterfactual": effect[:, m],
            "observed": observed,
            "observed, arms exchanged": blind,
            "natural response with the arm's sign": np.where(codes > 0, natural, -natural),
        }
        for how, score in ways.items():
            yield {"how": how, "arm": str(arm), "sklift": _sklift(y, codes, m + 1, score)}


def observed_scores(
    model: MTMT, X: Any, codes: Int[np.ndarray, "n"], seed: int, *names: Any
) -> tuple[Float[np.ndarray, "n M"], Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """On the first outcome: effects of every arm; what each row's own arm would score it by; natural response.

    The score of a row by its own arm asks with the base and arm embedding of that arm; for control with index 0 of both, drawn as
    initial embeddings are, since no loss reaches them. Means over the networks of all folds, before any refit.
    """
    encoded, draw = model.columns_.encode(X), stream(seed, "claims", "leak", "untrained", *names)
    found = [_asked(net, model, encoded, codes, draw) for nets in model.networks_ for net in nets]
    effect, observed, natural = (np.mean([one[part] for one in found], axis=0) for part in range(3))
    return effect, observed, natural


def _asked(net: Any, model: MTMT, encoded: Any, codes: np.ndarray, draw: np.random.Generator) -> tuple[np.ndarray, ...]:
    wide = net.treated.shape[1]
    never = torch.as_tensor(draw.standard_normal((2, 1, wide)) / math.sqrt(wide), dtype=torch.float32)
    weights = net.tier_weights
    means: list[list[np.ndarray]] = [[], [], []]
    start = 0
    net.eval()
    with torch.no_grad():
        for batch in batches_of(encoded):
            own = torch.as_tensor(codes[start : start + len(batch[0])])
            start += len(batch[0])
            tokens = net.tokens(*batch)
            parts = net.parts(tokens)
            arms = net.secondary(tokens, net.arms.weight, net._of)
            middle = torch.einsum("nml,m->nl", arms, weights.to(arms.dtype))
            never_base = net.base(tokens, never[0], net._of)[:, 0]
            never_arm = net.secondary(tokens, never[1], net._of)[:, 0] - middle
            effects = torch.cat([(never_base + never_arm)[:, None], parts.base[:, None] + parts.increments], dim=1)
            whole = (parts.natural[:, None] + effects).double()
            natural = model.links_(parts.natural[:, None].double())[:, 0, 0]
            score = model.links_(whole)[..., 0] - natural[:, None]
            means[0].append(score[:, 1:].numpy())
            means[1].append(score[torch.arange(len(own)), own].numpy())
            means[2].append(natural.numpy())
    return tuple(np.concatenate(part) for part in means)
