"""TorchScript archives: attributes of modules read from the pickle, hints from the text of the code. No code runs."""

from __future__ import annotations

import re
from typing import Any

from querist.sources.tensors.archive import Archive
from querist.sources.tensors.found import Found
from querist.sources.tensors.opcodes import Call, Global
from querist.sources.tensors.ref import PassedOver
from querist.sources.tensors.torchfile import pickled_member, sketch_ref, tree_of, zip_storages

__all__ = ["is_torchscript", "read_torchscript"]

_OWN = ("__torch__.", "torch.jit._pickle.")
"""Names of scripted classes and of torch's typed lists: in such a pickle they stand for data."""
KINDS = {
    "Linear": "linear",
    "Conv1d": "conv1d",
    "Conv2d": "conv2d",
    "Conv3d": "conv3d",
    "ConvTranspose1d": "conv1d",
    "ConvTranspose2d": "conv2d",
    "ConvTranspose3d": "conv3d",
    "Embedding": "embedding",
    "EmbeddingBag": "embedding",
    "LSTM": "lstm",
    "LSTMCell": "lstm",
    "GRU": "gru",
    "GRUCell": "gru",
    "RNN": "rnn",
    "RNNCell": "rnn",
}
"""torch's module classes by name, for hints."""
_GROUPS_AT = {"_convolution": 8, "conv1d": 6, "conv2d": 6, "conv3d": 6}
_GROUPS_AT |= {f"conv_transpose{n}d": 6 for n in (1, 2, 3)}
_CALL = re.compile(r"torch\.(_convolution|conv[123]d|conv_transpose[123]d)\(")


def is_torchscript(archive: Archive) -> bool:
    """Whether the archive is one of torch.jit.save."""
    return archive.has("data.pkl") and archive.has("constants.pkl")


def read_torchscript(archive: Archive) -> Found:
    """Parameters, buffers and tensor constants, under their module names. Raises UnsafeFile, CorruptFile."""
    path = archive.window.path
    big = archive.has("byteorder") and archive.read("byteorder").strip() == b"big"
    found = Found("torchscript")
    others = 0
    sources: dict[str, str] = {}
    for member, folder, prefix in (("data.pkl", "data/", ""), ("constants.pkl", "constants/", "constants.")):
        pickled = pickled_member(archive, member, also=_OWN)
        places = zip_storages(
            archive, pickled, folder if any(n.startswith(folder) for n in archive.names()) else "data/"
        )
        tree = tree_of(pickled.value, path)
        others += len(tree.others)
        for leaf in tree.leaves:
            hints = _hints(archive, leaf.owner, leaf.path[-1] if leaf.path else "", sources)
            name = prefix + ".".join(leaf.path)
            found.refs.append(sketch_ref(path, name, leaf.value, places, big_endian=big, hints=hints))
    if others:
        found.passed_over.append(PassedOver("attributes", None, None, f"{others} attributes that are no tensors"))
    return found


def _hints(archive: Archive, owner: Any, name: str, sources: dict[str, str]) -> dict[str, Any]:
    """What the class of the scripted module that holds a tensor tells of it."""
    if (
        not isinstance(owner, Call)
        or not isinstance(owner.func, Global)
        or not owner.func.module.startswith("__torch__")
    ):
        return {}
    words = [word for word in owner.func.module.split(".") if not word.startswith("___torch_mangle")]
    kind = owner.func.name
    hints: dict[str, Any] = {"module": ".".join([*words[1:], kind])}
    text = _class_text(archive, owner.func, sources)
    if name in _listed(text, "__buffers__"):
        hints["buffer"] = True
    if kind not in KINDS or words[1:3] != ["torch", "nn"]:
        return hints
    hints["kind"] = KINDS[kind]
    if name in ("weight", "bias"):
        hints["role"] = name
    if kind.startswith("Conv"):
        hints["transposed"] = kind.startswith("ConvTranspose")
        groups = _groups(text)
        if groups is not None:
            hints["groups"] = groups
    return hints


def _class_text(archive: Archive, name: Global, sources: dict[str, str]) -> str:
    """The text of one class in the archive's code, "" where there is none."""
    file = f"code/{name.module.replace('.', '/')}.py"
    if file not in sources:
        sources[file] = archive.read(file).decode("utf-8", "replace") if archive.has(file) else ""
    match = re.search(rf"^class {re.escape(name.name)}\(.*?(?=^class |\Z)", sources[file], re.MULTILINE | re.DOTALL)
    return match[0] if match else ""


def _listed(text: str, what: str) -> list[str]:
    match = re.search(rf"^  {what} = \[(.*?)\]", text, re.MULTILINE)
    return re.findall(r'"([^"]*)"', match[1]) if match else []


def _groups(text: str) -> int | None:
    """Groups of a convolution class: its constant, or the literal in the one call that it makes; None otherwise."""
    constant = re.search(r"^  groups : Final\[int\] = (\d{1,6})$", text, re.MULTILINE)
    if constant:
        return int(constant[1])
    values = set()
    for match in _CALL.finditer(text):
        arguments = _arguments(text, match.end())
        at = _GROUPS_AT[match[1]]
        values.add(arguments[at] if at < len(arguments) else "1" if arguments else "")
    only = values.pop() if len(values) == 1 else ""
    return int(only) if only.isdigit() and len(only) < 7 else None


def _arguments(text: str, start: int) -> list[str]:
    """Arguments of a call whose bracket was opened just before `start`."""
    depth, parts, part = 0, [], ""
    for letter in text[start : start + 2000]:
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
            if depth < 0:
                return [*parts, part.strip()]
        if letter == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return []
