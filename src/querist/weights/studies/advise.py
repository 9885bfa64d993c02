"""Advice as part of a scan: which exponent it rests on, and the columns and rows it becomes."""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from querist.weights.advice import LayerTail, alpha_pruning, temp_balance
from querist.weights.configs import ScanConfig

__all__ = ["advise"]


def advise(layers: pl.DataFrame, config: ScanConfig) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """The layers with `lr_multiplier` or `sparsity` filled in, and the rows of the table `advice`.

    The exponent is FARMS' where the scan was asked for it, else Hill's: one estimator for all layers, with the half-spectrum
    tail whose interval is (α − 1)/√(N/2). Its null is Hill's value on the Marchenko–Pastur law (for FARMS that of a square one).
    """
    from querist.weights.fits import fit_powerlaw
    from querist.weights.nulls import mp_quantiles

    square = fit_powerlaw(mp_quantiles(1000, 1000), method="hill").alpha
    tails = []
    for row in layers.to_dicts():
        alpha = row["alpha_farms"] if config.farms else row["alpha_hill"]
        null = square if config.farms else row["alpha_hill_mp"]
        half = 1.96 * (alpha - 1) / (row["n_values"] / 2) ** 0.5 if alpha is not None else None
        tails.append(
            LayerTail(
                name=row["layer_id"],
                alpha=alpha,
                alpha_null=null,
                low=None if half is None else alpha - half,
                high=None if half is None else alpha + half,
                side=row["N"],
                parameters=row["M"] * row["n_values"],
                block=_block(row["layer_id"]),
            )
        )
    if config.advise == "temp-balance":
        column, advised = "lr_multiplier", temp_balance(tails)
    else:
        column, advised = "sparsity", alpha_pruning(tails, config.target_sparsity or 0.5)
    layers = layers.with_columns(
        pl.Series(column, [one.value for one in advised], dtype=pl.Float64),
        pl.Series("advice_reason", [one.reason for one in advised], dtype=pl.String),
    )
    rows = [
        {
            "layer_id": tail.name,
            "method": config.advise,
            "alpha": tail.alpha,
            "alpha_null": tail.alpha_null,
            "value": one.value,
            "reason": one.reason,
        }
        for tail, one in zip(tails, advised, strict=True)
    ]
    return layers, rows


def _block(name: str) -> str:
    """Everything up to the last number of a name: `encoder.layer.3.output.dense.weight` is of block `encoder.layer.3`."""
    match = re.match(r"^(.*\.\d+)\.", name)
    return match[1] if match else name
