"""Advice from a finished scan, or as part of one: which exponent it rests on, its table, its parameter groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from querist.errors import BadOption, UnknownName
from querist.weights.advising import Advised, Form, LayerTail, alpha_pruning, param_groups, temp_balance
from querist.weights.configs import ScanConfig
from querist.weights.tables import ADVICE

if TYPE_CHECKING:
    import torch

    from querist.reports.result import Result

__all__ = ["Advice", "Method", "advice", "advise"]

Method = Literal["temp-balance", "alpha-pruning"]
Exponent = Literal["hill", "farms"]
_NEEDED = ("layer_id", "N", "M", "n_values", "alpha_hill", "alpha_hill_mp", "alpha_farms")
SQUARE = 1000
"""Side of the square Marchenko–Pastur spectrum beside which a FARMS exponent stands."""


@dataclass(frozen=True)
class Advice:
    """Layer-wise learning rates or sparsities.

    method: "temp-balance" (values are multipliers of the learning rate) or "alpha-pruning" (values are shares of weights
    to prune). alpha: the estimator of the exponent, "hill" or "farms". advised: one entry per matrix, in the order of the
    scan; its `reason` says why a layer was left alone. tails: the exponents, nulls and intervals it rests on.
    """

    method: Method
    alpha: Exponent
    advised: tuple[Advised, ...]
    tails: tuple[LayerTail, ...]

    @property
    def values(self) -> Mapping[str, float]:
        """Layer id to multiplier or sparsity."""
        return {one.name: one.value for one in self.advised}

    @property
    def table(self) -> pl.DataFrame:
        """A row per matrix: the table `advice` of a scan."""
        return ADVICE.frame(_rows(self.method, self.tails, self.advised))

    def param_groups(self, model: torch.nn.Module, lr: float) -> list[dict[str, Any]]:
        """Parameter groups for any torch optimizer: one per advised tensor with its own `lr`, one for all others.

        model: the network whose weights were scanned, or one with the same parameter names. lr: the rate that a multiplier
        of 1 stands for. Parts of a fused tensor share the mean of their multipliers. Raises BadOption for advice on
        pruning, which holds no rates, and for a rate that is not positive; UnknownName for a layer that the model lacks.
        """
        if self.method != "temp-balance":
            raise BadOption(
                "Sparsities are no learning rates",
                value=f"method={self.method}",
                allowed="advice with method=temp-balance",
                mend="Use `values` to prune each layer to its share",
            )
        return param_groups(model.named_parameters(), self.advised, lr=lr)

    def __repr__(self) -> str:
        left = sum(one.reason is not None for one in self.advised)
        return f"Advice({self.method} by {self.alpha}: {len(self.advised)} layers, {left} left alone)"


def advice(
    scan: Result | pl.DataFrame,
    method: Method = "temp-balance",
    *,
    alpha: Exponent = "hill",
    form: Form = "linear",
    low: float | None = None,
    high: float | None = None,
    target: float | None = None,
) -> Advice:
    """Layer-wise learning rates or sparsities from the exponents of a scan; a layer at its null is left alone.

    scan: what `querist.weights.scan` returned, or its table `layers`. method "temp-balance": multipliers of the learning
    rate between low .5 and high 1.5, `form` "linear", "sqrt", "log2" or "step"; the first and the last layer and sides
    below 50 keep 1. method "alpha-pruning": sparsities whose parameter-weighted mean is `target`, by a scale from low .8
    to high 1.2 over block means. alpha: "hill", or "farms" where the scan was made with farms=True; exponents of two
    estimators are never mixed.

    Raises UnknownName for another method or exponent, BadOption for a target that is missing or out of place, for "farms"
    without FARMS exponents, and for ends that do not fit; BadValues for a frame that is no table of layers.

    Source: TempBalance, Zhou et al. (NeurIPS 2023); AlphaPruning, Lu et al. (NeurIPS 2024); FARMS, Hu et al. (ICML 2025).
    Leaving a layer alone whose exponent cannot be told from that of a random matrix is ours.
    """
    layers = scan if isinstance(scan, pl.DataFrame) else scan.tables["layers"]
    _check(layers, method, alpha, target)
    tails = tuple(_tails(layers, alpha))
    if method == "temp-balance":
        ends = {"low": 0.5 if low is None else low, "high": 1.5 if high is None else high}
        advised = temp_balance(tails, form=form, **ends)
    else:
        ends = {"low": 0.8 if low is None else low, "high": 1.2 if high is None else high}
        advised = alpha_pruning(tails, target or 0.0, **ends)
    return Advice(method, alpha, tuple(advised), tails)


def _check(layers: pl.DataFrame, method: str, alpha: str, target: float | None) -> None:
    if method not in ("temp-balance", "alpha-pruning"):
        raise UnknownName("No such advice", value=method, allowed="temp-balance, alpha-pruning")
    if alpha not in ("hill", "farms"):
        raise UnknownName("No such exponent to rest advice on", value=alpha, allowed="hill, farms")
    if (method == "alpha-pruning") != (target is not None):
        raise BadOption(
            "The target sparsity belongs to alpha-pruning",
            value=f"method={method}, target={target}",
            allowed="method='alpha-pruning' with target=.5, or temp-balance without a target",
        )
    absent = [name for name in _NEEDED if name not in layers.columns]
    if absent:
        raise BadOption(
            "This is no table of a scan's layers",
            value=f"columns {', '.join(layers.columns[:8])}",
            allowed=f"a scan, or a frame with {', '.join(_NEEDED)}",
        )
    if alpha == "farms" and layers.height and layers["alpha_farms"].is_null().all():
        raise BadOption(
            "The scan holds no FARMS exponents", value="alpha=farms", allowed="hill", mend="Scan again with farms=True"
        )


def advise(layers: pl.DataFrame, config: ScanConfig) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """The layers with `lr_multiplier` or `sparsity` filled in, and the rows of the table `advice`."""
    method: Method = config.advise or "temp-balance"
    found = advice(
        layers,
        method,
        alpha="farms" if config.farms else "hill",
        target=(config.target_sparsity or 0.5) if method == "alpha-pruning" else None,
    )
    column = "lr_multiplier" if method == "temp-balance" else "sparsity"
    layers = layers.with_columns(
        pl.Series(column, [one.value for one in found.advised], dtype=pl.Float64),
        pl.Series("advice_reason", [one.reason for one in found.advised], dtype=pl.String),
    )
    return layers, _rows(method, found.tails, found.advised)


def _tails(layers: pl.DataFrame, alpha: Exponent) -> list[LayerTail]:
    """What the advice needs of each layer.

    One estimator for all, with the half-spectrum tail whose interval is (α − 1)/√(N/2). Its null is Hill's value on the
    Marchenko–Pastur law of the layer's shape; for FARMS, whose windows are square, on that of a square matrix.
    """
    tails = []
    for row in layers.to_dicts():
        value = row["alpha_farms"] if alpha == "farms" else row["alpha_hill"]
        half = 1.96 * (value - 1) / (row["n_values"] / 2) ** 0.5 if value is not None else None
        tails.append(
            LayerTail(
                name=row["layer_id"],
                alpha=value,
                alpha_null=_square_null() if alpha == "farms" else row["alpha_hill_mp"],
                low=None if half is None else value - half,
                high=None if half is None else value + half,
                side=row["N"],
                parameters=row["M"] * row["n_values"],
                block=_block(row["layer_id"]),
                estimator=alpha,
            )
        )
    return tails


@lru_cache(maxsize=1)
def _square_null() -> float | None:
    from querist.weights.fits import fit_powerlaw
    from querist.weights.nulls import mp_quantiles

    return fit_powerlaw(mp_quantiles(SQUARE, SQUARE), method="hill").alpha


def _rows(method: str, tails: Any, advised: Any) -> list[dict[str, Any]]:
    return [
        {
            "layer_id": tail.name,
            "method": method,
            "alpha": tail.alpha,
            "alpha_null": tail.alpha_null,
            "value": one.value,
            "reason": one.reason,
        }
        for tail, one in zip(tails, advised, strict=True)
    ]


def _block(name: str) -> str:
    """Everything up to the last number of a name: `encoder.layer.3.output.dense.weight` is of block `encoder.layer.3`."""
    match = re.match(r"^(.*\.\d+)\.", name)
    return match[1] if match else name
