"""What is told of a fit, and a fitted model as plain values and arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from querist.effects.links import links_from_json
from querist.effects.nettrain import made
from querist.effects.network._architecture import Architecture
from querist.effects.network._design import Design
from querist.effects.network._members import ready
from querist.effects.network._net import Network
from querist.effects.network._refit import Refit

if TYPE_CHECKING:
    import polars as pl

    from querist.effects.network._estimator import MTMT

__all__ = ["history_of", "restore", "shrinkage_of", "state_of", "summary_of"]


def history_of(told: Sequence[tuple[int, int, pl.DataFrame, list[dict[str, Any]]]]) -> pl.DataFrame:
    """Rows of every training by fold and member, with what was watched after each epoch."""
    import polars as pl

    parts = []
    for fold, one, history, watched in told:
        rows = history.with_columns(fold=pl.lit(fold, pl.Int64), member=pl.lit(one, pl.Int64))
        if watched:
            seen = pl.DataFrame(watched).with_columns(pl.col("epoch").cast(pl.Int64))
            rows = rows.join(seen, on="epoch", how="left", maintain_order="left")
        parts.append(rows)
    return pl.concat(parts, how="diagonal")


def summary_of(told: Sequence[tuple[int, int, Any, Any]]) -> pl.DataFrame:
    """A row for each network: epochs, the best of them, why training ended, the best figure on the validation rows."""
    import polars as pl

    rows = [
        {
            "fold": fold,
            "member": one,
            "epochs": result.epochs,
            "best_epoch": result.best_epoch,
            "stopped": result.reason,
            "validation": result.best_value,
        }
        for fold, one, result, _ in told
    ]
    numbers = {"fold": pl.Int64, "member": pl.Int64, "epochs": pl.Int64, "best_epoch": pl.Int64}
    return pl.DataFrame(rows, schema={**numbers, "stopped": pl.String, "validation": pl.Float64})


def shrinkage_of(refit: Refit | None, arms: Sequence[Any], outcomes: Sequence[str]) -> pl.DataFrame:
    """The refit's table with names of arms and outcomes; without rows where there was none."""
    import polars as pl

    table = [] if refit is None else refit.table

    def named(key: str, names: Sequence[Any]) -> pl.Series:
        found = [None if (at := row.get(key)) is None else str(names[at]) for row in table]
        return pl.Series(key, found, dtype=pl.String)

    columns = [pl.Series("part", [row["part"] for row in table], dtype=pl.String)]
    columns += [named("arm", arms), named("outcome", outcomes)]
    floats = ("slope", "t", "factor", "tau", "tau_net", "share_x", "share_net")
    columns += [pl.Series(name, [row.get(name) for row in table], dtype=pl.Float64) for name in floats]
    return pl.DataFrame(columns)


def state_of(model: MTMT) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """All that `restore` needs. Weights are kept as they were trained, in float32."""
    state = {
        "architecture": model.architecture_.as_json(),
        "links": [one.as_json() for one in model.links_.links],
        "design": model.design_.as_json(),
        "folds": len(model.networks_),
        "members": len(model.networks_[0]),
        "refit": None if model.refit_ is None else {"method": model.refit_.method, "table": model.refit_.table},
        "history": model.history_.to_dicts(),
        "trainings": model.trainings_.to_dicts(),
    }
    arrays = {}
    for j, members in enumerate(model.networks_):
        for s, net in enumerate(members):
            for name, value in net.state_dict().items():
                value = value.float() if value.is_floating_point() else value
                arrays[f"network.{j}.{s}.{name}"] = value.numpy()
    if model.refit_ is not None:
        arrays |= {f"refit.{name}": value for name, value in model.refit_.arrays().items()}
    return state, arrays


def restore(model: MTMT, state: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Take up what `state_of` gave; the model answers as before, bit for bit."""
    import polars as pl

    model.architecture_ = Architecture.from_json(state["architecture"])
    model.links_ = links_from_json(state["links"])
    model.design_ = Design.from_json(state["design"])
    model.networks_ = []
    for j in range(state["folds"]):
        members = []
        for s in range(state["members"]):
            net, prefix = made(lambda: Network(model.architecture_), 0), f"network.{j}.{s}."
            found = {n.removeprefix(prefix): torch.tensor(v) for n, v in arrays.items() if n.startswith(prefix)}
            net.load_state_dict(found)
            members.append(ready(net))
        model.networks_.append(members)
    model.parameters_ = sum(one.numel() for one in model.networks_[0][0].parameters())
    model.refit_ = None
    if state["refit"] is not None:
        own = {n.removeprefix("refit."): v for n, v in arrays.items() if n.startswith("refit.")}
        model.refit_ = Refit.from_arrays(state["refit"]["method"], own, list(state["refit"]["table"]))
    model.history_ = pl.DataFrame(state["history"], infer_schema_length=None)
    model.trainings_ = pl.DataFrame(state["trainings"], infer_schema_length=None)
    model.shrinkage_ = shrinkage_of(model.refit_, model.arms_, list(model.outcomes_))
