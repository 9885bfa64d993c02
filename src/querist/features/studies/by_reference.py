"""A comparison without its source: later data beside a reference file, and the writing of such a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from querist.features.captured import Capture
from querist.features.configs import CompareConfig
from querist.features.profile import Gap
from querist.features.reference import ChunkDraws, Reference, joined
from querist.features.relation import rows_of, sites_of
from querist.features.studies.measure_layer import Tables, probe_rows

__all__ = ["measure_against_reference", "reference_gaps", "write_reference"]


def measure_against_reference(config: CompareConfig, targets: Mapping[str, Capture], layer: str) -> Tables:
    """One layer of every target against the reference's quantiles, and its probe."""
    assert config.reference is not None
    reference = Reference.read(config.reference)
    tables: Tables = {name: [] for name in ("layers", "draws", "probes", "passed_over")}
    if layer not in reference.names:
        row = {"model": "model", "what": layer, "reason": "the reference has no such layer"}
        return {"passed_over": [row]}
    held = reference[layer]
    for name, capture in targets.items():
        rows = np.asarray(rows_of(capture, layer, held.sites, config.seed))
        found = reference.draws(layer, rows, kind=_kind(config), level=config.level / config.looks)
        place = {"target": name, "class": "", "layer": layer, "index": held.index}
        plain = {"order": found.order, "d": found.d, "n_c": found.n_c, "se": found.se, "degrees": found.degrees}
        drawn = {"raw": found.chunks.tolist(), "null": found.null.tolist(), "permuted": []}
        tables["draws"].append({**place, **plain, **drawn, "observed": float(found.chunks.mean()), "p": None})
        tables["layers"].append(
            {
                "model": "model",
                "data": name,
                "layer": layer,
                "index": held.index,
                "kind": capture[layer].kind,
                "width": held.width,
                "reduction": capture.reduce,
                "dropped_units": held.scale.dropped,
                "n_rows": int(np.prod(rows.shape[:-1])),
                "n_images": len(rows),
            }
        )
        probe_rows(config, tables, capture, layer, name, rows)
    return tables


def reference_gaps(config: CompareConfig, draws: pl.DataFrame) -> dict[tuple[str, str], Gap]:
    """Gaps by (target, layer), adjusted over layers, chunks and targets."""
    found = {}
    for target in config.target:
        mine = {
            row["layer"]: ChunkDraws(
                row["order"],
                row["d"],
                row["n_c"],
                np.array(row["raw"]),
                np.array(row["null"]),
                row["se"],
                row["degrees"],
            )
            for row in draws.filter(pl.col("target") == target).sort("index").to_dicts()
        }
        if mine:
            gaps = joined(mine, level=config.level / config.looks, sets=len(config.target))
            found |= {(target, layer): gap for layer, gap in gaps.items()}
    return found


def write_reference(config: CompareConfig, source: Capture, layers: Sequence[str], folder: Path) -> Mapping[str, Any]:
    """Make the reference in the unit's folder; where it was asked for, it is put when the run is finished."""
    rows = {name: np.asarray(rows_of(source, name, sites_of({"source": source}, name), config.seed)) for name in layers}
    reference = Reference.of(
        rows,
        ids=source.ids,
        model=config.model,
        source=config.source,
        reduce=config.reduce,
        proj_dim=config.proj_dim,
        captured=config.layers,
        normalise=config.normalise,
        p=config.p,
        projections=config.projections,
        permutations=config.permutations,
        seed=config.seed,
        places={name: (source[name].index, source[name].width) for name in layers},
    )
    path = reference.write(folder / "reference.npz")
    row = {"model": "model", "data": "reference", "path": str(path), "n": source.n, "ids_hash": source.ids_hash}
    return {"captures": [{**row, "notes": [], "repeat": 0}]}


def _kind(config: CompareConfig) -> Any:
    return "per-unit" if config.distance == "per-unit" else "sliced"
