"""The rules of the claims about features on constructed tables: each can hold, fail, and not tell."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from querist.claims.claim import Size
from querist.claims.features import CLAIMS, freezing_rules, laws_rules
from querist.claims.features.family import FAMILY

SPECS = {spec.name: spec for spec in FAMILY.tables}
NET = "made:net@here"
BLOCKS = tuple(f"layer{s}.{b}" for s in (1, 2, 3) for b in range(2))
LAWS = Size(1, {"nets": (NET,), "targets": ("a", "b"), "random_nets": 19})


def test_every_claim_has_pieces_and_says_when_it_holds():
    assert [claim.name for claim in CLAIMS] == [
        "learns-input",
        "consistent",
        "frozen-layers",
        "not-weight-statistics",
        "w-predicts",
        "compression",
    ]
    for claim in CLAIMS:
        for size in claim.sizes.values():
            keys = [piece.key for piece in claim.pieces(size)]
            assert len(keys) == len(set(keys)) > 0
        assert claim.protocol.endswith(".")
        assert claim.rule.endswith(".") or "features.w-predicts-transfer" in claim.rule
        assert "Holds" in claim.rule


def frames(**rows):
    return {name: spec.frame(rows.get(name, [])) for name, spec in SPECS.items()}


# -------------------------------------------------------------------------------------------------------- learns-input


def profile(model, values):
    """Excess rows of one network on both targets: values by target, block by block."""
    return [
        {"piece": model, "net": NET, "repeat": 0, "model": model, "target": t, "layer": layer, "excess": float(x)}
        for t, row in values.items()
        for layer, x in zip(BLOCKS, row, strict=True)
    ]


def falling(slope):
    return [2 * math.exp(slope * i) for i in range(len(BLOCKS))]


def learns(a, b, null=(0.0, 0.1), nets=19):
    rows = profile("model", {"a": falling(a), "b": falling(b)})
    for i, slope in enumerate(np.linspace(*null, nets) if nets else ()):
        rows += profile(f"random-{i + 1:03d}", {"a": falling(slope), "b": falling(slope)})
    return laws_rules.learns_input(frames(net_profiles=rows), LAWS)


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (-0.1, -0.1, "holds"),
        (0.2, 0.2, "fails"),
        (0.06, 0.051, "fails"),
        (-0.1, 0.02, "cannot say"),
        (0.2, 0.01, "cannot say"),
    ],
)
def test_learns_input(a, b, verdict):
    found = learns(a, b)
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(5 * max(a, b))
    assert found.null == pytest.approx(5 * 0.05)


def test_too_few_random_networks_cannot_hold_and_one_without_excess_counts_against():
    assert learns(-0.1, -0.1, nets=18).verdict == "cannot say"
    assert learns(-0.1, -0.1, nets=0).verdict == "cannot say"
    rows = profile("model", {"a": falling(-0.1), "b": falling(-0.1)})
    for i in range(19):
        values = [0.0] * len(BLOCKS) if i == 0 else falling(0.1)
        rows += profile(f"random-{i + 1:03d}", {"a": values, "b": values})
    found = laws_rules.learns_input(frames(net_profiles=rows), LAWS)
    assert found.verdict == "cannot say"
    assert found.p == pytest.approx(0.1)


# ---------------------------------------------------------------------------------------------------------- consistent


def draws(target, layer, raw, *, null=0.01, p=0.005, se=0.002):
    """Gap rows: raw and null squares of every split with a little spread."""
    wiggle = np.linspace(-0.01, 0.01, 20) * null
    row = {"piece": "x", "net": NET, "repeat": 0, "target": target, "class": "", "layer": layer, "d": 4, "order": 2.0}
    row |= {"index": 1 + BLOCKS.index(layer), "n_c": 100, "raw": (raw + wiggle).tolist(), "mc_se": 0.001}
    permuted = (null * (1 + 0.1 * np.linspace(-1, 1, 199))).tolist()
    observed = raw if p < 0.05 else null
    return row | {
        "null": (null + wiggle).tolist(),
        "observed": observed,
        "permuted": permuted,
        "p": p,
        "se": se,
        "degrees": 19,
    }


def evolution(model, scale, own):
    """Steps of source and targets; the targets' are `scale` (source frame) and `own` times as large."""
    rows = []
    for data, factor in (
        ("source", (1.0, 1.0)),
        ("a", (scale, own)),
        ("b", (scale, own)),
        ("half", (1, 1)),
        ("floor", (1.1, 1.1)),
    ):
        for frame, by in zip(("source", "own"), factor, strict=True):
            for i in range(len(BLOCKS) - 1):
                row = {"piece": model, "net": NET, "repeat": 0, "model": model, "data": data, "frame": frame}
                rows.append(row | {"layer_from": BLOCKS[i], "layer_to": BLOCKS[i + 1], "value": by * (0.2 + 0.1 * i)})
    return rows


def consistency(slope, scale, own):
    rows, steps = profile("model", {"a": falling(slope), "b": falling(slope)}), evolution("model", scale, own)
    for i in range(19):
        name = f"random-{i + 1:03d}"
        rows += profile(name, {"a": falling(0.01 * i), "b": falling(0.01 * i)})
        steps += evolution(name, 2 + 0.1 * i, 2 + 0.1 * i)
    tested = [draws(t, layer, x * x + 0.01) for t in "ab" for layer, x in zip(BLOCKS, falling(slope), strict=True)]
    return laws_rules.consistent(frames(net_profiles=rows, evolution=steps, draws=tested), LAWS)


@pytest.mark.parametrize(
    ("slope", "scale", "own", "verdict"),
    [
        (-0.1, 1.5, 1.5, "holds"),
        (0.3, 5.0, 5.0, "fails"),
        (-0.1, 5.0, 5.0, "cannot say"),
        (-0.1, 1.5, 5.0, "cannot say"),
        (0.3, 1.5, 1.5, "cannot say"),
    ],
)
def test_consistent(slope, scale, own, verdict):
    found = consistency(slope, scale, own)
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(max(scale, own) - 1)
    assert "contraction" in found.because
    assert "consistency" in found.because


# --------------------------------------------------------------------------------------------------------- compression


COPIES = Size(1, {"nets": (NET,), "changed": "copies", "other": "b", "quality": 30, "stage": "layer1."})


def compressed(near, far, **first):
    """near, far: excess by block; first: what the rows of the copies in the first stage are given."""
    rows = []
    for layer, x, y in zip(BLOCKS, near, far, strict=True):
        more = first if layer.startswith("layer1.") else {}
        rows += [draws("copies", layer, x * x + 0.01, **more), draws("b", layer, y * y + 0.01)]
    return laws_rules.compression(frames(draws=rows), COPIES)


@pytest.mark.parametrize(
    ("near", "far", "first", "verdict"),
    [
        ([0.4] * 6, [1.0] * 6, {}, "holds"),
        ([0.4] * 5 + [1.5], [1.0] * 6, {}, "fails"),
        ([0.01, 0.4, 0.4, 0.4, 0.4, 0.4], [1.0] * 6, {"se": 0.0005}, "fails"),
        ([0.4] * 5 + [0.999], [1.0] * 6, {}, "cannot say"),
        ([0.4] * 6, [1.0] * 6, {"p": 0.9, "se": None}, "cannot say"),
    ],
)
def test_compression(near, far, first, verdict):
    found = compressed(near, far, **first)
    assert found.verdict == verdict
    assert found.estimate == pytest.approx(max(np.divide(near, far)), rel=1e-6)


# -------------------------------------------------------------------------------------------------------- frozen layers


def cells(accuracy, seeds, ks, spread, targets=("a",)):
    """accuracy: mean by arm, or by (arm, k); seeds differ by `spread` times a pattern that differs between arms."""
    rows = []
    for target in targets:
        for i, arm in enumerate(("pretrained", "random", "shuffled", "moments")):
            for k in ks:
                mean = accuracy.get((arm, k), accuracy.get(arm, 0.5))
                for repeat in range(seeds):
                    value = mean + spread * math.sin(1 + 2.3 * repeat + 1.7 * i + k)
                    row = {"piece": f"{arm}{k}{repeat}", "net": NET, "target": target, "arm": arm, "k": k}
                    rows.append(row | {"repeat": repeat, "accuracy": value, "n_test": 1000, "status": "ok"})
    return frames(cells=rows)


FROZEN = {
    "freeze_targets": ("a",),
    "arms": ("pretrained", "random", "shuffled", "moments"),
    "ks": (0, 3, 6),
    "from_k": 3,
}


@pytest.mark.parametrize(
    ("accuracy", "seeds", "spread", "verdict"),
    [
        ({"pretrained": 0.8}, 5, 0.01, "holds"),
        ({"pretrained": 0.8, ("pretrained", 0): 0.3}, 5, 0.01, "holds"),
        ({"pretrained": 0.8, ("pretrained", 6): 0.4}, 5, 0.01, "fails"),
        ({"pretrained": 0.53}, 5, 0.05, "cannot say"),
        ({"pretrained": 0.8}, 1, 0.01, "cannot say"),
    ],
)
def test_frozen_layers(accuracy, seeds, spread, verdict):
    found = freezing_rules.frozen_layers(cells(accuracy, seeds, (0, 3, 6), spread), Size(seeds, FROZEN))
    assert found.verdict == verdict
    told = {number.what: number for number in found.numbers}
    assert told["k=3: accuracy, pretrained"].n == seeds
    assert told["cells that diverged"].value == 0


@pytest.mark.parametrize(
    ("accuracy", "spread", "verdict"),
    [
        ({"pretrained": 0.8}, 0.01, "holds"),
        ({"pretrained": 0.8, "shuffled": 0.8}, 0.001, "fails"),
        ({"pretrained": 0.8, ("moments", 0): 0.8}, 0.001, "fails"),
        ({"pretrained": 0.53}, 0.05, "cannot say"),
        ({"pretrained": 0.3}, 0.01, "cannot say"),
    ],
)
def test_not_weight_statistics(accuracy, spread, verdict):
    size = Size(5, {"freeze_targets": ("a",), "arms": ("pretrained", "shuffled", "moments"), "ks": (0, 6)})
    assert freezing_rules.not_weight_statistics(cells(accuracy, 5, (0, 6), spread), size).verdict == verdict


def test_a_cell_that_diverged_is_counted_and_left_out():
    tables = cells({"pretrained": 0.8}, 5, (0, 3, 6), 0.01)
    lost = (pl.col("arm") == "moments") & (pl.col("k") == 3) & (pl.col("repeat") == 1)
    tables["cells"] = tables["cells"].with_columns(
        status=pl.when(lost).then(pl.lit("diverged")).otherwise("status"),
        accuracy=pl.when(lost).then(None).otherwise("accuracy"),
    )
    found = freezing_rules.frozen_layers(tables, Size(5, FROZEN))
    told = {number.what: number for number in found.numbers}
    assert told["cells that diverged"].value == 1
    assert told["k=3: pretrained less moments"].n == 4
    assert told["k=6: pretrained less moments"].n == 5


# ----------------------------------------------------------------------------------------------------------- w-predicts


PREDICTS = {"nets": (NET,), "targets": ("a", "b"), "ks": (0, 1, 3, 5)}


def predicts(excess, accuracy, seeds=2):
    """excess, accuracy: functions of (block, cell)."""
    rows, probes, trained = [], [], []
    for c, target in enumerate(("a", "b")):
        for repeat in range(seeds):
            cell = 2 * c + repeat
            for i, layer in enumerate(BLOCKS):
                of = {"piece": f"{cell}", "net": NET, "repeat": repeat, "target": target, "layer": layer}
                rows.append({**of, "model": "model", "excess": excess(i, cell)})
                probes.append({**of, "accuracy": accuracy(i, cell)})
            for k in PREDICTS["ks"]:
                of = {"piece": f"{cell}{k}", "net": NET, "target": target, "arm": "pretrained", "repeat": repeat}
                trained.append({**of, "k": k, "accuracy": accuracy(max(k - 1, 0), cell), "status": "ok", "n_test": 100})
    return freezing_rules.w_predicts(frames(net_profiles=rows, probes=probes, cells=trained), Size(seeds, PREDICTS))


def jumbled(i, cell):
    return (5 * i + 2) % 7 + 0.01 * cell


@pytest.mark.parametrize(
    ("excess", "accuracy", "verdict"),
    [
        (lambda i, c: 9 - jumbled(i, c), jumbled, "holds"),
        (jumbled, lambda i, c: 0.1 * i, "fails"),
        (lambda i, c: 9 - i, lambda i, c: 0.1 * i, "cannot say"),
    ],
)
def test_w_predicts(excess, accuracy, verdict):
    found = predicts(excess, accuracy)
    assert found.verdict == verdict
    told = {number.what: number for number in found.numbers}
    assert told["probe: lead of the distance over depth"].n == 4
    assert told["freeze: lead of the distance over depth"].value is not None


def test_one_cell_and_none_cannot_say():
    found = predicts(jumbled, lambda i, c: 0.1 * i, seeds=1)
    assert found.verdict in ("fails", "cannot say")
    single = freezing_rules.w_predicts(frames(), Size(2, PREDICTS))
    assert (single.verdict, single.because) == ("cannot say", "No cell was measured.")
