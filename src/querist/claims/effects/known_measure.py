"""What the claim on known means measures: one model of one replication."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from querist.claims.effects.customers_measure import HELD, MADE, NETWORKS
from querist.effects.network import MTMT
from querist.sources.datasets.registry import locate
from querist.statistics import stream

__all__ = ["measure"]


def measure(payload: Mapping[str, Any], seed: int, device: str) -> Mapping[str, Any]:
    """Root PEHE of one model on a replication's held-out children."""
    replication, name = payload["replication"], payload["model"]
    frame = pl.read_parquet(locate("ihdp_npci_1_10")).filter(pl.col("replication") == replication)
    order = stream(seed, "claims", "ihdp", replication).permutation(frame.height)
    cut = round(frame.height * (1 - HELD))
    fitted, held = frame[np.sort(order[:cut])], frame[np.sort(order[cut:])]
    columns = [column for column in frame.columns if column.startswith("x")]
    common: dict[str, Any] = {"control": 0, "outcomes": {"y": "continuous"}, "propensity": "estimate"}
    common["random_state"] = 1000 * seed + replication
    training = {"preset": payload["preset"], "epochs": payload["epochs"], "device": device}
    if name == "MTMT":
        model = MTMT(folds=payload["folds"], **training, **common)
    else:
        model = MADE[name](**(training if name in NETWORKS else {}), **common)
    model.fit(fitted.select(columns), fitted["treatment"].to_numpy(), {"y": fitted["y_factual"].to_numpy()})
    true = (held["mu1"] - held["mu0"]).to_numpy()
    error = model.predict(held.select(columns))[:, 0, 0] - true
    row = {
        "replication": replication,
        "model": name,
        "pehe": float(np.sqrt(np.mean(error**2))),
        "effect": float(true.mean()),
    }
    return {"pehe": [row]}
