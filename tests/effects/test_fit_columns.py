"""What predictions rest on: attention is the networks' own under the names of columns, and a column that drives increments is found."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import torch

from querist.effects.configs import FitConfig
from querist.effects.network import MTMT
from querist.effects.studies.fit import FitStudy
from querist.effects.studies.fit_columns import attention
from querist.reports.ask import ask
from querist.statistics import stream

CITIES = np.array(["north", "east", "south"])


def driven(n: int, seed: int = 0) -> pl.DataFrame:
    """Increments of two arms, opposite to each other, that only x2 drives."""
    rng = stream(seed, "driven")
    x, arm = rng.standard_normal((n, 4)), rng.integers(0, 3, n)
    increment = np.choose(arm, (0.0, 1.0, -1.0)) * np.tanh(2 * x[:, 2])
    spend = 0.5 * x[:, 0] + 0.3 * (arm > 0) + increment + 0.5 * rng.standard_normal(n)
    return pl.DataFrame(
        {
            **{f"x{k}": x[:, k] for k in range(4)},
            "city": CITIES[rng.integers(0, 3, n)],
            "segment": np.array(["none", "mail", "call"])[arm],
            "spend": spend,
        }
    )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    path = tmp_path_factory.mktemp("driven") / "people.parquet"
    driven(2000).write_parquet(path)
    settings = FitConfig.build(
        table=str(path),
        arm="segment",
        control="none",
        outcome=("spend:continuous",),
        preset="small",
        expert="ft",
        epochs=12,
        device="cpu",
    )
    return ask(FitStudy(), settings, progress=False)


def test_a_driver_is_found_by_what_it_moves_and_not_by_where_the_arms_look(fitted):
    """Columns' tokens have read each other before the arms ask: attention alone would name no column here, shuffling names x2."""
    rows = fitted.tables["attention"]
    assert rows.height == 5 * 2
    sums = rows.group_by("arm").agg(pl.col("share").sum())["share"].to_numpy()
    np.testing.assert_allclose(sums, 1, atol=1e-6)
    looked = rows.group_by("feature").agg(pl.col("share").mean())["share"].to_numpy()
    assert np.ptp(looked) < 0.1
    moved = fitted.tables["importance"].filter(pl.col("part") == "incremental")
    most = moved.group_by("feature").agg(pl.col("moved").min()).sort("moved", descending=True)
    assert most["feature"][0] == "x2"
    assert most["moved"][0] > 3 * most["moved"][1]


def test_attention_is_drawn_beside_an_equal_share(fitted):
    figure = fitted.figures["attention"]
    assert figure.table == "attention"
    trace = figure.data[0]
    assert sorted(trace["y"]) == ["city", "x0", "x1", "x2", "x3"]
    assert set(trace["x"]) == {"spend, call", "spend, mail"}
    np.testing.assert_allclose(np.mean(trace["z"], axis=0), 1, atol=1e-4)  # in equal shares
    assert trace["zmin"] <= 0.5 < 1.5 <= trace["zmax"]  # hardly unequal shares have hardly a colour
    assert any("attention" in section.tables for section in fitted.layout.sections)


def looking_at(model, token: int) -> None:
    """Networks whose tokens are the columns' own, of which one stands out for every query."""
    for (net,) in model.networks_:
        with torch.no_grad():
            for block in net.experts.blocks:
                for layer in (block.out, block.outer):
                    layer.weight.zero_()
                    layer.bias.zero_()
            net.experts.weight.zero_()
            net.experts.levels.zero_()
            net.experts.bias.zero_()
            net.experts.bias[:, :, token, 0] = 1.0
            mixer = net.secondary.mixer
            mixer.key.weight.zero_()
            mixer.query.weight.zero_()
            mixer.key.weight[:, 0] = 10.0
            mixer.query.bias.fill_(5.0)


@pytest.mark.parametrize(("token", "name"), [(0, "x0"), (2, "x2"), (4, "city")])
def test_shares_have_the_names_of_their_columns(token, name):
    frame = driven(300)
    model = MTMT(control="none", preset="small", expert="ft", epochs=1, batch_size=128, device="cpu", shrink=False)
    model.fit(frame.drop("segment", "spend"), frame["segment"].to_numpy(), frame.select("spend"))
    looking_at(model, token)
    encoded = model.columns_.encode(frame)
    sample = SimpleNamespace(n=len(encoded), encoded=encoded)
    rows = list(attention(FitConfig.build(table="t", arm="segment", control="none", outcome=("spend",)), model, sample))
    assert {(row["arm"], row["outcome"]) for row in rows} == {("call", "spend"), ("mail", "spend")}
    assert all((row["share"] > 0.999) == (row["feature"] == name) for row in rows)


def test_only_queries_over_tokens_of_columns_have_attention():
    frame = driven(300)
    config = FitConfig.build(table="t", arm="segment", control="none", outcome=("spend",))
    model = MTMT(control="none", preset="small", epochs=1, batch_size=128, device="cpu", shrink=False)
    model.fit(frame.drop("segment", "spend"), frame["segment"].to_numpy(), frame.select("spend"))
    sample = SimpleNamespace(n=300, encoded=model.columns_.encode(frame))
    assert list(attention(config, model, sample)) == []
    model.architecture_ = replace(model.architecture_, expert="ft", interaction=False)
    assert list(attention(config, model, sample)) == []
    assert list(attention(config, object(), sample)) == []
