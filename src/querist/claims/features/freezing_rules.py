"""The rules of the claims about frozen layers: pure functions of their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from querist.claims.claim import ClaimVerdict, Judgement, Number, Size
from querist.claims.judging import side_of, verdict_of

if TYPE_CHECKING:
    from querist.features.freezing import Effect
    from querist.features.profile import Association

__all__ = ["cells_of", "frozen_layers", "not_weight_statistics", "w_predicts"]

Tables = Mapping[str, pl.DataFrame]
DELTA = 0.01
"""A difference in accuracy below one point does not matter."""
LEAST_LAYERS = 3


def _accuracies(tables: Tables, size: Size, arm: str, k: int) -> np.ndarray:
    from querist.features.studies.freeze_present import accuracies

    return accuracies(tables["cells"], size["freeze_targets"], arm, k, size.seeds)


def _effect(tables: Tables, size: Size, arm: str, k: int) -> Effect:
    """Pretrained less another arm, paired over cells (target, seed)."""
    from querist.features.freezing import paired_effect

    tested = tables["cells"]["n_test"].drop_nulls()
    resolution = 1 / int(tested.min()) if len(tested) else 0.0  # type: ignore[arg-type]
    first, second = (_accuracies(tables, size, name, k) for name in ("pretrained", arm))
    return paired_effect(first, second, resolution=resolution)


def _numbers(tables: Tables, size: Size, arms: Sequence[str], ks: Sequence[int]) -> list[Number]:
    found = []
    for k in ks:
        for arm in arms:
            values = _accuracies(tables, size, arm, k)
            kept = values[np.isfinite(values)]
            found.append(Number(f"k={k}: accuracy, {arm}", float(kept.mean()) if kept.size else None, n=kept.size))
        for arm in arms[1:]:
            effect = _effect(tables, size, arm, k)
            what = f"k={k}: pretrained less {arm}"
            found.append(Number(what, effect.estimate, effect.low, effect.high, 0.0, effect.n))
    lost = tables["cells"].filter(pl.col("status") != "ok").height
    return [*found, Number("cells that diverged", float(lost), null=0.0, n=tables["cells"].height)]


def frozen_layers(tables: Tables, size: Size) -> Judgement:
    """Pretrained less moments at every number of frozen blocks from the least that the rule looks at."""
    ks = [k for k in size["ks"] if k >= size["from_k"]]
    effects = {k: _effect(tables, size, "moments", k) for k in ks}
    numbers = _numbers(tables, size, size["arms"], size["ks"])
    verdict: ClaimVerdict = "cannot say"
    if all(one.low is not None and one.low > 0 for one in effects.values()):
        verdict = "holds"
    elif any(one.high is not None and one.high < DELTA for one in effects.values()):
        verdict = "fails"
    told = "; ".join(f"{_points(one)} with {k} frozen" for k, one in effects.items())
    because = f"Pretrained weights lead weights of the same moments, in points of accuracy, by {told}{_cells(effects)}."
    return _of_least(verdict, list(effects.values()), because, numbers)


def not_weight_statistics(tables: Tables, size: Size) -> Judgement:
    """Pretrained less shuffled and less moments, at each number of frozen blocks."""
    arms = size["arms"]
    effects = {(k, arm): _effect(tables, size, arm, k) for k in size["ks"] for arm in arms[1:]}
    numbers = _numbers(tables, size, arms, size["ks"])
    verdict: ClaimVerdict = "cannot say"
    if all(one.low is not None and one.low > 0 for one in effects.values()):
        verdict = "holds"
    elif any(_inside(one) for one in effects.values()):
        verdict = "fails"
    told = "; ".join(f"{_points(one)} over {arm} at k={k}" for (k, arm), one in effects.items())
    because = f"Pretrained weights lead, in points of accuracy, by {told}{_cells(effects)}."
    return _of_least(verdict, list(effects.values()), because, numbers)


def _inside(effect: Effect) -> bool:
    return effect.low is not None and effect.high is not None and effect.low >= -DELTA and effect.high <= DELTA


def _points(effect: Effect) -> str:
    if effect.estimate is None:
        return "an unknown amount"
    if effect.low is None or effect.high is None:
        return f"{100 * effect.estimate:.1f}"
    return f"{100 * effect.estimate:.1f} [{100 * effect.low:.1f}, {100 * effect.high:.1f}]"


def _cells(effects: Mapping[Any, Effect]) -> str:
    least = min((one.n for one in effects.values()), default=0)
    return f" ({least} cells each)" if least > 2 else f" (only {least} cells each, so the intervals are wide)"


def _of_least(verdict: ClaimVerdict, effects: Sequence[Effect], because: str, numbers: Sequence[Number]) -> Judgement:
    """The estimate is the smallest lead."""
    known = [one for one in effects if one.estimate is not None]
    if not known:
        return Judgement("cannot say", None, None, None, 0.0, because, numbers=tuple(numbers))
    least = min(known, key=lambda one: one.estimate or 0.0)
    return Judgement(verdict, least.estimate, least.low, least.high, 0.0, because, least.p, tuple(numbers))


# -------------------------------------------------------------------------------------------------------- w-predicts


def cells_of(tables: Tables, size: Size) -> list[tuple[str, int, np.ndarray, np.ndarray, list[str]]]:
    """Every cell (target, repeat) that was measured whole: excess and probe accuracy by block, and the blocks."""
    found = []
    for net in size["nets"]:
        for target in size["targets"]:
            for repeat in range(size.seeds):
                here = (pl.col("net") == net) & (pl.col("target") == target) & (pl.col("repeat") == repeat)
                rows = tables["net_profiles"].filter(here & (pl.col("model") == "model"))
                probes = dict(tables["probes"].filter(here).select("layer", "accuracy").iter_rows())
                names = rows["layer"].to_list()
                if len(names) >= LEAST_LAYERS and all(name in probes for name in names):
                    accuracy = np.array([probes[name] for name in names], dtype=float)
                    found.append((target, repeat, rows["excess"].to_numpy(), accuracy, names))
    return found


def w_predicts(tables: Tables, size: Size) -> Judgement:
    """The lead of the distance over depth in ordering blocks by probe accuracy, over cells; beside it by freeze accuracy."""
    from querist.features.profile import association

    cells = cells_of(tables, size)
    numbers: list[Number] = []
    if not cells:
        return Judgement("cannot say", None, None, None, 0.0, "No cell was measured.")
    probed = association([one[2] for one in cells], [one[3] for one in cells])
    numbers += _association("probe", probed, len(cells))
    for (target, repeat, *_), value in zip(cells, probed.by_cell.tolist(), strict=True):
        numbers.append(Number(f"probe: lead over depth, {target}, repeat {repeat}", value))
    trained = _trained(tables, size, cells)
    told = f"Over {probed.n_layers} blocks and {len(cells)} cells {_told(probed)}"
    if trained is not None:
        numbers += _association("freeze", trained, len(trained.by_cell))
        told += f"; by accuracy with k frozen blocks (k in {_listed(size)}) {_told(trained)}"
    verdict = verdict_of([side_of(probed.low, probed.high, 0.0)])
    return Judgement(verdict, probed.difference, probed.low, probed.high, 0.0, f"{told}.", numbers=tuple(numbers))


def _trained(tables: Tables, size: Size, cells: Sequence[tuple]) -> Association | None:
    """The same of accuracies with k frozen blocks, the excess being that at the end of block k."""
    from querist.features.profile import association

    ks = [k for k in size["ks"] if k]
    W, A = [], []
    for target, repeat, excess, _, names in cells:
        rows = tables["cells"].filter(
            (pl.col("target") == target) & (pl.col("repeat") == repeat) & (pl.col("arm") == "pretrained")
        )
        accuracy = dict(rows.select("k", "accuracy").iter_rows())
        values = [accuracy.get(k) for k in ks]
        if all(value is not None for value in values) and max(ks, default=0) <= len(names):
            W.append([float(excess[k - 1]) for k in ks])
            A.append(values)
    return association(W, A, ks) if W and len(ks) >= LEAST_LAYERS else None


def _association(what: str, found: Association, cells: int) -> list[Number]:
    return [
        Number(f"{what}: Kendall's τ of excess and accuracy", found.tau_w_probe, null=0.0, n=cells),
        Number(f"{what}: Kendall's τ of depth and accuracy", found.tau_depth_probe, null=0.0, n=cells),
        Number(f"{what}: lead of the distance over depth", found.difference, found.low, found.high, 0.0, cells),
    ]


def _told(found: Association) -> str:
    ends = "" if found.low is None or found.high is None else f" [{found.low:.2f}, {found.high:.2f}]"
    return (
        f"τ of excess and accuracy is {found.tau_w_probe:.2f}, that of depth {found.tau_depth_probe:.2f}: the distance leads by "
        f"{found.difference:.2f}{ends}"
    )


def _listed(size: Size) -> str:
    return ", ".join(str(k) for k in size["ks"] if k)
