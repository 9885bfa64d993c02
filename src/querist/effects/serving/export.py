"""A model as a file for other programs: `.pt2` of torch.export or `.onnx`, held against the model before it is kept.

Beside FILE.pt2 or FILE.onnx lies FILE.json, which says what the inputs and outputs are: columns, codes of levels, arms, outcomes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from querist.effects.estimator import Estimator
from querist.effects.links import Link
from querist.effects.parts import Effects
from querist.effects.serving.folder import load
from querist.effects.serving.onnx_graph import onnx_bytes
from querist.effects.serving.pipeline import OUTPUTS, Pipeline, pipeline_of
from querist.errors import BadOption, MissingExtra, NumericalFailure
from querist.files import replacing, write_json
from querist.sources.rows import Encoded
from querist.sources.rows.columns import MISSING, UNKNOWN
from querist.statistics import stream

__all__ = ["FORM", "INPUTS", "SUFFIX", "ExportSummary", "export", "made_up_rows", "run_file"]

FORM = "querist.effects.export/1"
SUFFIX = {"torch": ".pt2", "onnx": ".onnx"}
INPUTS = ("numbers", "codes")
TOLERANCE = 1e-5
"""Largest difference from the model, in sd of the outcome, or of the person's response itself where that is larger: single
precision under a log link is no better."""


@dataclass(frozen=True)
class ExportSummary:
    """What an export ended with: the format, names of the files in `folder`, output names, the largest difference from the model on
    made-up rows, in the outcome's unit and in its sd (or in the person's response where that is larger)."""

    format: str
    folder: str
    files: tuple[str, ...]
    outputs: tuple[str, ...]
    parity_max_abs: float
    parity_max_sd: float


def export(model: Any, path: Any, *, format: str = "torch", parity_rows: int = 1000, seed: int = 0) -> ExportSummary:
    """Write a model as one graph: raw columns in (numbers with NaN where missing, codes of levels), effects out; any number of rows.

    model: a fitted estimator (MTMT, a network, or S-, T-, X-, R-, DR-learners over linear learners), a model folder or the run of a
    fit. path: the file, NAME.pt2 for "torch", NAME.onnx for "onnx"; NAME.json beside it names columns, levels, arms and outcomes.

    The written file is read back by readers of our own, for which nothing is unpickled, and held against `predict_effects` on
    `parity_rows` made-up rows and on one of them alone; the file is kept only where every output is within 1e-5 sd of the outcome (of a
    response beyond one sd: within 1e-5 of it).
    torch's own loader of `.pt2` files unpickles, so give it only files that you trust.

    Raises BadOption (model, format, name of the file), MissingExtra without the package onnx, NumericalFailure.
    """
    if format not in SUFFIX:
        raise BadOption("No such format", value=format, allowed=", ".join(SUFFIX))
    path = Path(path)
    if path.suffix != SUFFIX[format] or path.is_dir():
        raise BadOption("The file has another name", value=str(path), allowed=f"a file NAME{SUFFIX[format]}")
    if format == "onnx" and util.find_spec("onnx") is None:
        raise MissingExtra("Export to ONNX needs the package onnx", value=format, mend="pip install 'querist[formats]'")
    if isinstance(model, str | Path):
        model = load(model)
    pipeline = pipeline_of(model)
    table = made_up_rows(model, max(2, parity_rows), seed)
    expected, inputs = model.predict_effects(table), _inputs(model, table)
    with replacing(path) as temporary:
        names = _write(pipeline, inputs, temporary)
        found = run_file(temporary, inputs, names)
        alone = run_file(temporary, tuple(one[:1] for one in inputs), names)
        worst, sds = _apart(model, expected, found, slice(None))
        first, first_sds = _apart(model, expected, alone, slice(0, 1))
        worst, sds = max(worst, first), max(sds, first_sds)
        if not sds <= TOLERANCE:
            raise NumericalFailure(
                f"The exported graph differs from the model by {sds:.2g} sd of an outcome; {TOLERANCE:g} is allowed"
            )
    told = path.with_suffix(".json")
    write_json(told, _told(model, format, path.name, worst, sds, len(expected.natural)))
    return ExportSummary(format, str(path.parent), (path.name, told.name), OUTPUTS, worst, sds)


# ----------------------------------------------------------------------------------------------------------- writing


def _program(pipeline: Pipeline, inputs: tuple[torch.Tensor, ...]) -> torch.export.ExportedProgram:
    rows = torch.export.Dim("rows", min=1)
    few = tuple(one[: min(len(one), 7)] for one in inputs)
    with torch.no_grad():
        return torch.export.export(pipeline, few, dynamic_shapes=({0: rows}, {0: rows}))


def _write(pipeline: Pipeline, inputs: tuple[torch.Tensor, ...], path: Path) -> tuple[str, ...]:
    """A `.pt2` or `.onnx` file; names of its outputs in the graph."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own inner workings
        program = _program(pipeline, inputs)
        if path.suffix == ".pt2":
            torch.export.save(program, path)
            return tuple(map(str, program.graph_signature.user_outputs))
        path.write_bytes(onnx_bytes(program, INPUTS, OUTPUTS))
    return OUTPUTS


# ------------------------------------------------------------------------------------------------------------ parity


def run_file(path: Path | str, inputs: tuple[torch.Tensor, ...], names: tuple[str, ...]) -> list[np.ndarray]:
    """Outputs of an exported file on numbers and codes, by the readers of `querist.sources.taps`; names: as the graph has them."""
    if Path(path).suffix == ".onnx":
        from querist.sources.taps.onnx import read_onnx_network

        found: dict[str, np.ndarray] = {}
        keys = [("value", name) for name in names]
        network = read_onnx_network(path)
        network.run(dict(zip(INPUTS, inputs, strict=True)), keys, lambda k, v: found.update({k[1]: v.numpy()}))
        return [found[name] for name in names]
    from querist.sources.taps.export import read_exported_program

    program = read_exported_program(path).program
    given = dict(zip(program.inputs, inputs, strict=True)) | dict(program.values)
    graph = program.graph
    nodes = {node.name: node for node in graph.nodes}
    next(iter(graph.find_nodes(op="output"))).args = (tuple(nodes[name] for name in names),)
    runner = torch.fx.Interpreter(torch.nn.Module(), graph=graph)
    with torch.inference_mode():
        made = runner.run(
            *(given[node.name] for node in graph.find_nodes(op="placeholder")), enable_io_processing=False
        )
    return [one.numpy() for one in made]


def made_up_rows(model: Estimator, n: int, seed: int = 0) -> pa.Table:
    """A table of n rows with the model's columns: normal numbers around those of the fit and some far away, a tenth missing; levels
    all alike often, missing and unseen ones among them."""
    columns, rng = model.columns_, stream(seed, "effects", "export")
    made: dict[str, Any] = {}
    for name in columns.numbers:
        one = columns.facts[name]
        values = one.mean + (one.sd or 1.0) * rng.standard_normal(n) * np.where(rng.random(n) < 0.05, 10.0, 1.0)
        made[name] = pa.array(np.where(rng.random(n) < 0.1, np.nan, values), pa.float64())
    for name in columns.categories:
        levels = columns.levels[name]
        unseen = "?" * (1 + max(map(len, levels), default=0))
        texts = [None, unseen, *levels]
        made[name] = pa.array([texts[k] for k in rng.integers(0, len(texts), n)], pa.string())
    return pa.table(made)


def _inputs(model: Estimator, table: pa.Table) -> tuple[torch.Tensor, torch.Tensor]:
    columns = model.columns_
    numbers = np.empty((table.num_rows, len(columns.numbers)))
    for k, name in enumerate(columns.numbers):
        numbers[:, k] = table.column(name).to_numpy()
    encoded: Encoded = columns.encode(table)
    return torch.from_numpy(numbers), torch.from_numpy(encoded.codes)


def _apart(model: Estimator, expected: Effects, found: list[np.ndarray], rows: slice) -> tuple[float, float]:
    """Largest difference of any output, in the outcome's unit and in its sd."""
    size = np.nan_to_num(np.abs(expected.response[rows]), nan=0.0).max(axis=1)
    sd = np.maximum(_outcome_sds(model, expected), size)
    worst, sds = 0.0, 0.0
    for name, values in zip(OUTPUTS, found, strict=True):
        wanted = getattr(expected, name)[rows]
        if wanted.shape != values.shape or (np.isnan(wanted) != np.isnan(values)).any():
            return math.inf, math.inf
        off = np.nan_to_num(np.abs(values - wanted), nan=0.0)
        unit = sd if off.ndim == 2 else sd[:, None]
        worst, sds = max(worst, float(off.max(initial=0))), max(sds, float((off / unit).max(initial=0)))
    return worst, sds


def _outcome_sds(model: Estimator, expected: Effects) -> np.ndarray:
    """Sd of each outcome under control, as the links of networks have it; else the largest natural response stands for it."""
    links = getattr(model, "links_", None)
    if links is not None:
        return np.array([_sd_of(one) for one in links.links])
    largest = np.nan_to_num(np.abs(expected.natural), nan=0.0).max(axis=0, initial=0.0)
    return np.where(largest > 0, largest, 1.0)


def _sd_of(link: Link) -> float:
    if link.kind == "identity":
        return link.scale
    if link.kind == "log":
        return math.sqrt(link.dispersion * math.exp(link.offset))
    p = 1 / (1 + math.exp(-link.offset))
    if link.kind == "logit":
        return math.sqrt(p * (1 - p))
    m = math.exp(link.second)
    return math.sqrt(max(p * m**2 * (link.dispersion + 1) - (p * m) ** 2, 1e-12 * m**2))


def _told(model: Estimator, format: str, name: str, worst: float, sds: float, rows: int) -> Mapping[str, Any]:
    """What the JSON beside the file says."""
    columns, arms, outcomes = model.columns_, [str(arm) for arm in model.arms_], list(model.outcomes_)
    levels = [
        {"name": one, "codes": {level: code + UNKNOWN + 1 for code, level in enumerate(columns.levels[one])}}
        for one in columns.categories
    ]
    shapes = {part: ["rows", len(outcomes)] for part in ("natural", "base")}
    shapes |= {part: ["rows", len(arms), len(outcomes)] for part in ("incremental", "total")}
    return {
        "form": FORM,
        "format": format,
        "file": name,
        "model": type(model).__name__,
        "inputs": [
            {
                "name": "numbers",
                "type": "float64",
                "shape": ["rows", len(columns.numbers)],
                "columns": list(columns.numbers),
                "missing": "NaN",
            },
            {
                "name": "codes",
                "type": "int64",
                "shape": ["rows", len(columns.categories)],
                "columns": levels,
                "missing": MISSING,
                "unknown": UNKNOWN,
            },
        ],
        "outputs": [{"name": part, "type": "float64", "shape": shapes[part]} for part in OUTPUTS],
        "control": str(model.control_),
        "arms": arms,
        "outcomes": dict(model.outcomes_),
        "tier_weights": model.tier_weights_.tolist(),
        "not_estimable": [[str(part) for part in one] for one in model.not_estimable_],
        "parity": {"rows": rows, "max_abs": worst, "max_sd": sds},
    }
