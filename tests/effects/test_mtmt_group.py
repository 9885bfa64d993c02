"""A group of processes trains what one process trains."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from tests.effects.jobs import train_both, train_network

from querist.effects.network import MTMT
from querist.effects.simulation import SETTINGS, simulate
from querist.errors import BadOption
from querist.training import launch_group


def test_two_processes_give_the_weights_of_one_and_share_out_the_pieces_of_a_table(tmp_path):
    data = simulate(1000, seed=0, **SETTINGS[1])
    order = np.argsort(data.arm, kind="stable")
    frame = pl.DataFrame({f"x{i}": data.X[order, i] for i in range(12)}).with_columns(
        segment=pl.Series(data.arm[order].astype(str)), one=data.Y[order, 0], two=data.Y[order, 1]
    )
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=70)
    two, streamed = launch_group(train_both, str(tmp_path / "rows.parquet"), processes=2, device="cpu")
    one = train_network("mlp")
    assert max(np.abs(a - b).max() for a, b in zip(one, two, strict=True)) < 1e-8
    assert all(np.isfinite(one).all() for one in streamed)


@pytest.mark.slow
@pytest.mark.parametrize("expert", ["ft", "resnet1d"])
def test_two_processes_give_the_weights_of_one_for_every_expert(expert):
    two = launch_group(train_network, expert, processes=2, device="cpu")
    assert max(np.abs(a - b).max() for a, b in zip(train_network(expert), two, strict=True)) < 1e-8


def test_batch_norm_refuses_a_group(monkeypatch):
    data = simulate(300, seed=0, **SETTINGS[1])
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(BadOption, match="one process"):
        MTMT(control=0, preset="paper", epochs=1, shrink=False, folds=1).fit(data.X, data.arm, data.Y)
