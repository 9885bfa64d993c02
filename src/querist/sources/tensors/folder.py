"""Folders of Hugging Face's layout: one file or shards with an index, safetensors before pickles, hints of config.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from querist.errors import BadOption, CorruptFile, SourceNotFound
from querist.sources.tensors.found import Found, Missing
from querist.sources.tensors.onnx_tensor import safe_member
from querist.sources.tensors.ref import TensorRef

__all__ = ["INDEX_ENDING", "adapter_beside", "read_folder", "read_index"]

Reader = Callable[[Path], Found]

INDEX_ENDING = ".index.json"
_FIRST = (
    "model.safetensors",
    "model.safetensors.index.json",
    "adapter_model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "adapter_model.bin",
)
"""File names of the layout, in the order in which one is taken."""
_GROUPS = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".th",
    ".ckpt",
    ".pt2",
    ".ts",
    ".jit",
    ".onnx",
    ".gguf",
    ".npz",
    ".npy",
)
"""Endings that are looked for where none of these names is there, one kind after the other."""
LARGEST_JSON = 1 << 28


def read_folder(folder: Path, reader: Reader) -> Found:
    """The weights of a folder. `reader` opens one file.

    Raises SourceNotFound where nothing in it is a weight file, BadOption where several could be meant.
    """
    found = _weights(folder, reader)
    config = _config(folder / "config.json")
    adapter = _config(folder / "adapter_config.json")
    if config is not None:
        found.metadata["config"] = config
        found.refs = [replace(ref, hints={**_config_hints(ref, config), **ref.hints}) for ref in found.refs]
    if adapter is not None:
        found.metadata["adapter"] = adapter
    found.format = f"folder of {found.format}"
    return found


def _weights(folder: Path, reader: Reader) -> Found:
    for name in _FIRST:
        if (folder / name).is_file():
            return read_index(folder / name, reader) if name.endswith(INDEX_ENDING) else reader(folder / name)
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    indexes = [path for path in files if path.name.endswith(INDEX_ENDING)]
    if len(indexes) == 1:
        return read_index(indexes[0], reader)
    for ending in _GROUPS:
        group = [path for path in files if path.suffix == ending]
        if len(group) == 1:
            return reader(group[0])
        if group:
            return _merged(group, reader)
    raise SourceNotFound(
        "There are no weights in this folder",
        value=str(folder),
        allowed=f"{_FIRST[0]}, {_FIRST[3]}, an {INDEX_ENDING[1:]} beside its shards, or one file ending in {' '.join(_GROUPS)}",
    )


def _merged(group: list[Path], reader: Reader) -> Found:
    """Several files of one kind, together one model where no name occurs twice."""
    parts = [reader(path) for path in group]
    names = [ref.name for part in parts for ref in part.refs]
    if len(set(names)) != len(names):
        raise BadOption(
            "Several files of this folder hold tensors of the same name",
            value=str(group[0].parent),
            allowed=", ".join(path.name for path in group[:12]),
            mend="Name the file itself",
        )
    first = parts[0]
    for part in parts[1:]:
        first.refs.extend(part.refs)
        first.passed_over.extend(part.passed_over)
        first.missing.extend(part.missing)
    return first


def read_index(index: Path, reader: Reader) -> Found:
    """Shards by their index. A missing shard's tensors are listed as missing, to be told where one is wanted.

    Raises CorruptFile, UnsafeFile for a shard outside the index's folder.
    """
    content = _json(index)
    weights = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(shard, str) for shard in weights.values()):
        raise CorruptFile("The index has no weight_map of names to files", value=str(index))
    found = Found("sharded")
    paths = {shard: safe_member(index.parent, shard, "The index") for shard in weights.values()}
    for shard, path in paths.items():
        names = [name for name, where in weights.items() if where == shard]
        if not path.is_file():
            found.missing.extend(Missing(name, None, None, shard) for name in names)
            continue
        part = reader(path)
        found.format = f"sharded {part.format}"
        by_name = {ref.name: ref for ref in part.refs}
        if absent := [name for name in names if name not in by_name]:
            raise CorruptFile(
                f"The index says that {shard} holds {len(absent)} tensors that are not in it, among them {absent[0]}",
                value=str(index),
            )
        found.refs.extend(part.refs)  # all of the shard: a tensor that the index forgot is still there to be seen
        found.passed_over.extend(part.passed_over)
    order = {name: i for i, name in enumerate(weights)}
    found.refs.sort(key=lambda ref: order.get(ref.name, len(order)))
    if isinstance(content.get("metadata"), dict):
        found.metadata["index"] = content["metadata"]
    return found


def _json(path: Path) -> Any:
    if path.stat().st_size > LARGEST_JSON:
        raise CorruptFile(
            f"The file has {path.stat().st_size} bytes, where at most {LARGEST_JSON} make sense", value=str(path)
        )
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"The file is no JSON ({error})", value=str(path)) from None


def adapter_beside(file: Path) -> dict[str, Any] | None:
    """What `adapter_config.json` says in the folder of a file that bears an adapter's name; None for any other file."""
    return _config(file.parent / "adapter_config.json") if file.name.startswith("adapter_model.") else None


def _config(path: Path) -> dict[str, Any] | None:
    content = _json(path) if path.is_file() else None
    return content if isinstance(content, dict) else None


_FUSED = ("qkv_proj", "Wqkv", "W_pack", "attn.qkv")
_GPT2 = ("c_attn", "c_proj", "c_fc", "q_attn")


def _config_hints(ref: TensorRef, config: dict[str, Any]) -> dict[str, Any]:
    """Orientation and parts of projections that the kind of model fixes."""
    owner, _, last = ref.name.rpartition(".")
    if last not in ("weight", "bias") or not ref.shape:
        return {}
    layer = owner.rpartition(".")[2]
    heads = next((config[key] for key in ("num_attention_heads", "n_head", "num_heads") if key in config), None)
    width = next((config[key] for key in ("hidden_size", "n_embd", "d_model") if key in config), None)
    if type(heads) is not int or type(width) is not int or heads <= 0 or width % heads:
        return {}
    if config.get("model_type") in ("gpt2", "openai-gpt", "gpt_bigcode") and layer in _GPT2:
        hints: dict[str, Any] = {"kind": "linear", "role": last}
        if last == "weight" and config["model_type"] != "gpt_bigcode":
            hints["layout"] = "in-out"
        if layer == "c_attn" and "layout" in hints and ref.shape[-1] == 3 * width:
            hints["columns"] = (("q", width), ("k", width), ("v", width))
        return hints
    if not owner.endswith(_FUSED):
        return {}
    each, groups = config.get("head_dim"), config.get("num_key_value_heads")
    each = each if isinstance(each, int) else width // heads
    groups = groups if isinstance(groups, int) else heads
    query, key = heads * each, groups * each
    if ref.shape[0] != query + 2 * key:
        return {}
    return {"kind": "linear", "role": last, "parts": (("q", query), ("k", key), ("v", key))}
