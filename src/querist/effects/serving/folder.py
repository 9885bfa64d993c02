"""A model as a folder: `model.json` (all but weights), `weights.safetensors`, `rows.u64` (hashes of fit rows); nothing is a pickle."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import querist.effects as room
from querist.effects.estimator import Estimator
from querist.effects.sample import NotEstimable
from querist.errors import BadOption, CorruptFile, SourceNotFound, UnsupportedFormat
from querist.files import move_folder, write_bytes, write_json
from querist.sources.rows import Columns

__all__ = ["FORM", "load", "model_folder", "save"]

FORM = "querist.effects.model/1"
FILES = ("model.json", "weights.safetensors", "rows.u64")


def save(model: Estimator, folder: Path | str) -> None:
    """Write a fitted model; a model that lies there already is replaced as a whole.

    Parameters of the constructor that are no plain values (a learner, an array of propensities) are kept as text: a model that is
    read again predicts the same but must be given them before another fit. Of scikit-learn learners linear ones are kept by their
    coefficients, also after StandardScalers, and trees, forests and boosted trees by their nodes; others are refused, for there is
    no form of them that needs no pickle.

    Raises BadOption for a model that is not fitted, a learner that cannot be kept, and a folder that holds something else.
    """
    from safetensors.numpy import save as to_bytes

    target = Path(folder)
    model._check_fitted()
    if target.exists() and not (target.is_dir() and {one.name for one in target.iterdir()} <= set(FILES)):
        raise BadOption("There is something else in the way", value=str(target), allowed="a new folder, or a model's")
    state, arrays = model._state()
    params, told = {}, {}
    for name, value in model.get_params(deep=False).items():
        if _plain(value):
            params[name] = value
        else:
            params[name], told[name] = None, repr(value)[:500]
    written = {
        "form": FORM,
        "version": metadata.version("querist"),
        "class": type(model).__name__,
        "parameters": params,
        "parameters_told": told,
        "control": model.control_,
        "arms": model.arms_,
        "outcomes": model.outcomes_,
        "tier_weights": model.tier_weights_.tolist(),
        "not_estimable": [list(one) for one in model.not_estimable_],
        "warnings": model.warnings_,
        "columns": model.columns_.to_json(),
        "state": state,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".querist-") as work:
        made = Path(work) / "model"
        made.mkdir()
        write_bytes(made / "weights.safetensors", to_bytes({n: np.ascontiguousarray(a) for n, a in arrays.items()}))
        write_bytes(made / "rows.u64", model.rows_seen_.astype("<u8").tobytes())
        write_json(made / "model.json", written)
        move_folder(made, target)


def load(folder: Path | str) -> Any:
    """The model of a folder, or of a run of `querist effects fit`, whose folder `model` it is.

    Raises SourceNotFound, CorruptFile, UnsupportedFormat for a folder of another form or class.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_bytes

    place = model_folder(folder)
    try:
        written = json.loads((place / "model.json").read_text(encoding="utf-8"))
        if not isinstance(written, dict) or written.get("form") != FORM:
            raise UnsupportedFormat("This is no model of querist", value=str(place), allowed=FORM)
        arrays = from_bytes((place / "weights.safetensors").read_bytes())
        seen = np.frombuffer((place / "rows.u64").read_bytes(), dtype="<u8").astype(np.uint64)
        model = _class(written["class"])(**written["parameters"])
        model.columns_ = Columns.from_json(written["columns"])
        model.features_ = list(model.columns_.names)
        model.control_, model.arms_ = written["control"], list(written["arms"])
        model.outcomes_ = dict(written["outcomes"])
        model.tier_weights_ = np.array(written["tier_weights"], dtype=float)
        model.not_estimable_ = [NotEstimable(*one) for one in written["not_estimable"]]
        model.warnings_ = list(written["warnings"])
        model.rows_seen_ = seen
        if written["parameters_told"]:
            model.not_kept_ = dict(written["parameters_told"])  # pyright: ignore[reportAttributeAccessIssue]
        model._restore(written["state"], arrays)
    except FileNotFoundError as error:
        raise SourceNotFound("A file of the model is missing", value=str(error.filename)) from None
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(error, UnsupportedFormat):
            raise
        said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise CorruptFile(f"The model cannot be read ({said})", value=str(place)) from None
    return model


def model_folder(folder: Path | str) -> Path:
    """The folder that holds `model.json`: this one, or its `model`. Raises SourceNotFound."""
    place = Path(folder)
    for one in (place, place / "model"):
        if (one / "model.json").is_file():
            return one
    raise SourceNotFound(
        "There is no model here", value=str(place), allowed="a folder with model.json, or a run of fit"
    )


def _class(name: str) -> type[Estimator]:
    found = getattr(room, name, None) if name in room.__all__ else None
    if not (isinstance(found, type) and issubclass(found, Estimator)):
        raise UnsupportedFormat("No such model in this version", value=name, allowed="estimators of querist.effects")
    return found


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_plain(part) for part in value)
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _plain(part) for key, part in value.items())
    return value is None or (isinstance(value, bool | int | str)) or (isinstance(value, float) and np.isfinite(value))
