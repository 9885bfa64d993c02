"""Archives of torch.export: weights read as data. The program is read as JSON for hints; example inputs are never opened."""

from __future__ import annotations

import json
from typing import Any

from querist.errors import CorruptFile, QueristError
from querist.sources.tensors.archive import Archive
from querist.sources.tensors.found import Found, extent_ref
from querist.sources.tensors.ref import PassedOver, TensorRef
from querist.sources.tensors.torchfile import pickled_member, sketch_ref, tree_of, zip_storages

__all__ = ["ELEMENT_TYPES", "is_exported", "read_exported"]

ELEMENT_TYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu",
    34: "uint32",
    35: "uint64",
}
"""Numbers of element types in the schema of torch.export (its ScalarType) to torch's names."""
_OLD_PROGRAM = "serialized_exported_program.json"
_OLD_STATE = "serialized_state_dict.pt"
_OLD_CONSTANTS = "serialized_constants.pt"


def is_exported(archive: Archive) -> bool:
    """Whether the archive is one of torch.export.save, of this or an older layout."""
    return (
        archive.has(_OLD_PROGRAM)
        or archive.has("archive_format")
        or any(n.startswith("models/") for n in archive.names())
    )


def read_exported(archive: Archive) -> Found:
    """Parameters, buffers and constants of every model in the archive. Raises UnsafeFile, CorruptFile.

    Layouts: torch 2.9 and later keep each weight as raw bytes beside a JSON description; 2.8 keeps one state dict of
    torch.save per model; before that the archive holds `serialized_state_dict.pt`.
    """
    found = Found("torch.export")
    if archive.has(_OLD_PROGRAM):
        inner = [(name, "", archive.part(name)) for name in (_OLD_STATE, _OLD_CONSTANTS) if archive.has(name)]
        programs = {"": _OLD_PROGRAM}
    else:
        models = [
            n.removeprefix("models/")[:-5] for n in archive.names() if n.startswith("models/") and n.endswith(".json")
        ]
        prefix = {model: f"{model}." if len(models) > 1 else "" for model in models}
        inner = []
        programs = {prefix[model]: f"models/{model}.json" for model in models}
        for model in models:
            for folder, kind in (("data/weights/", "weights"), ("data/constants/", "constants")):
                if archive.has(f"{folder}{model}.pt"):
                    inner.append((f"{folder}{model}.pt", prefix[model], archive.part(f"{folder}{model}.pt")))
                elif archive.has(f"{folder}{model}_{kind}_config.json"):
                    _described(archive, folder, f"{folder}{model}_{kind}_config.json", prefix[model], found)
    for name, start, window in inner:
        if window.size:
            _pickled(Archive(window), name, start, found)
    hints: dict[str, dict[str, Any]] = {}
    for start, program in programs.items():
        hints |= {start + name: hint for name, hint in _hints(_json(archive, program)).items()}
    found.refs = [
        TensorRef(r.name, r.shape, r.dtype, hints={**hints.get(r.name, {}), **r.hints}, reason=r.reason, store=r.store)
        for r in found.refs
    ]
    return found


def _json(archive: Archive, name: str) -> Any:
    try:
        return json.loads(archive.read(name))
    except QueristError:
        raise
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"The archive's member {name} is damaged ({error})", value=archive.window.path) from None


def _described(archive: Archive, folder: str, config: str, prefix: str, found: Found) -> None:
    """Weights as raw bytes, each described in a JSON member."""
    path = archive.window.path
    described = _json(archive, config)
    big = archive.has("byteorder") and archive.read("byteorder").strip() == b"big"
    try:
        rows = described["config"].items()
        for name, meta in rows:
            hints = {} if meta["is_param"] or folder.endswith("constants/") else {"buffer": True}
            tensor = meta.get("tensor_meta")
            if meta["use_pickle"] or tensor is None:
                if not str(meta["path_name"]).startswith(("weight_", "tensor_")):
                    found.passed_over.append(PassedOver(prefix + name, None, None, "an object and not a tensor"))
                    continue
                _pickled(
                    Archive(archive.part(folder + str(meta["path_name"]))),
                    prefix + name,
                    "",
                    found,
                    single=prefix + name,
                )
                continue
            shape, strides = (tuple(_integer(side) for side in tensor[key]) for key in ("sizes", "strides"))
            offset = _integer(tensor["storage_offset"])
            if len(shape) != len(strides):
                raise ValueError(f"{name} has {len(shape)} axes and {len(strides)} strides")
            part = archive.part(folder + str(meta["path_name"]))
            dtype = ELEMENT_TYPES.get(tensor["dtype"], f"number {tensor['dtype']}")
            found.refs.append(
                extent_ref(
                    path,
                    prefix + name,
                    dtype,
                    shape,
                    start=part.start,
                    size=part.size,
                    offset=offset,
                    strides=strides,
                    big_endian=big,
                    hints=hints,
                )
            )
    except QueristError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptFile(f"The archive's member {config} is damaged ({error})", value=path) from None


def _integer(value: Any) -> int:
    number = value["as_int"] if isinstance(value, dict) else value
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 62:
        raise ValueError(f"a size that is none: {str(number)[:40]}")
    return number


def _pickled(archive: Archive, what: str, prefix: str, found: Found, *, single: str | None = None) -> None:
    """A state dict (or one tensor) of torch.save inside the archive."""
    pickled = pickled_member(archive, "data.pkl")
    places = zip_storages(archive, pickled)
    big = archive.has("byteorder") and archive.read("byteorder").strip() == b"big"
    tree = tree_of(pickled.value, archive.window.path)
    for leaf in tree.leaves:
        name = single or prefix + ".".join(leaf.path)
        hints = {} if leaf.value.trained else {"buffer": True} if what == _OLD_STATE or "weights/" in what else {}
        found.refs.append(sketch_ref(archive.window.path, name, leaf.value, places, big_endian=big, hints=hints))
    for path, reason in tree.others:
        found.passed_over.append(PassedOver(prefix + ".".join(path) if path else what, None, None, reason))


def _hints(program: Any) -> dict[str, dict[str, Any]]:
    """Kind, groups and orientation of weights from the operators of the program that use them."""
    hints: dict[str, dict[str, Any]] = {}
    try:
        graph = program["graph_module"]
        names: dict[str, str] = {}
        for spec in graph["signature"]["input_specs"]:
            for what in ("parameter", "buffer"):
                if what in spec:
                    names[spec[what]["arg"]["name"]] = spec[what][f"{what}_name"]
        for node in graph["graph"]["nodes"]:
            words = node["target"].split(".")
            operator = words[-2] if len(words) > 2 and words[-3] == "aten" else ""
            given = {item["name"]: item["arg"] for item in node["inputs"]}
            for role in ("weight", "bias"):
                tensor = names.get((given.get(role) or {}).get("as_tensor", {}).get("name", ""))
                if tensor is not None and (hint := _operator(operator, given, role)):
                    hints.setdefault(tensor, hint)  # a tied tensor keeps the first of its uses
    except (AttributeError, KeyError, TypeError):
        return hints
    return hints


def _operator(operator: str, given: dict[str, Any], role: str) -> dict[str, Any]:
    if operator in ("linear", "embedding"):
        return {"kind": operator, "role": role}
    if operator == "convolution" or operator.startswith(("conv1d", "conv2d", "conv3d", "conv_transpose")):
        transposed = "transpose" in operator or given.get("transposed", {}).get("as_bool") is True
        groups = given.get("groups", {}).get("as_int", 1)
        if type(groups) is not int or groups < 1:
            groups = 1
        stride = given.get("stride", {}).get("as_ints")
        axes = operator[-2] if operator[-1] == "d" else str(len(stride)) if stride else "2"
        return {"kind": f"conv{axes}d", "role": role, "groups": groups, "transposed": transposed}
    return {}
