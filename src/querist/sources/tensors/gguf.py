"""GGUF: header, metadata and tensor table parsed here; F32, F16, BF16, F64, whole numbers and Q8_0 are read by position."""

from __future__ import annotations

import struct
from typing import Any

from querist.errors import CorruptFile, UnsupportedFormat
from querist.sources.tensors.dtypes import total
from querist.sources.tensors.found import Found, extent_ref
from querist.sources.tensors.ref import TensorRef
from querist.sources.tensors.storage import Quantised, check_fits
from querist.sources.tensors.window import Stream, Window, truncated

__all__ = ["MAGIC", "read_gguf"]

MAGIC = b"GGUF"
_PLAIN = {0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16"}
_Q8_0 = 8
_NAMES = dict(
    enumerate(
        [
            "f32",
            "f16",
            "q4_0",
            "q4_1",
            "q4_2",
            "q4_3",
            "q5_0",
            "q5_1",
            "q8_0",
            "q8_1",
            "q2_k",
            "q3_k",
            "q4_k",
            "q5_k",
            "q6_k",
            "q8_k",
            "iq2_xxs",
            "iq2_xs",
            "iq3_xxs",
            "iq1_s",
            "iq4_nl",
            "iq3_s",
            "iq2_s",
            "iq4_xs",
            "i8",
            "i16",
            "i32",
            "i64",
            "f64",
            "iq1_m",
            "bf16",
            "q4_0_4_4",
            "q4_0_4_8",
            "q4_0_8_8",
            "tq1_0",
            "tq2_0",
            "iq4_nl_4_4",
            "iq4_nl_4_8",
            "iq4_nl_8_8",
            "mxfp4",
            "nvfp4",
            "q1_0",
        ]
    )
)
"""Names of the format's element types by their numbers, for the reasons of those that are passed over."""
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
KEPT = 4096
"""Characters of a text of the metadata that are kept: chat templates are longer and of no use here."""


class _Header:
    """A cursor over the header, every count checked against what is left of the file before it is believed."""

    def __init__(self, window: Window, stream: Stream):
        self.window, self.stream, self.order = window, stream, "<"

    def take(self, count: int, what: str) -> bytes:
        at = self.stream.tell()
        if at + count > self.window.size:
            raise truncated(self.window.path, what, at + count, self.window.size)
        return self.stream.read(count)

    def number(self, code: str, what: str) -> Any:
        data = self.take(struct.calcsize("<" + code), what)
        return struct.unpack(self.order + code, data)[0]

    def text(self, what: str) -> str:
        length = self.number("Q", what)
        return self.take(length, what).decode("utf-8", "replace")

    def value(self, kind: int, what: str, depth: int = 0) -> Any:
        """One metadata value; of an array only its length is kept."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind], what)
        if kind == _STRING:
            return self.text(what)[:KEPT]
        if kind != _ARRAY or depth > 4:
            raise CorruptFile(f"The header's {what} has the unknown type {kind}", value=self.window.path)
        inner, count = self.number("I", what), self.number("Q", what)
        if inner in _SCALARS:
            at = self.stream.tell() + count * struct.calcsize("<" + _SCALARS[inner])
            if at > self.window.size:
                raise truncated(self.window.path, what, at, self.window.size)
            self.stream.seek(at)
        else:
            for _ in range(count):  # every round takes at least eight bytes of the file or ends with an error
                self.value(inner, what, depth + 1)
        return {"length": count}


def read_gguf(window: Window) -> Found:
    """Every tensor of one file, axes in torch's order (the file counts them from the fastest). Raises CorruptFile."""
    with window.stream() as stream:
        head = _Header(window, stream)
        head.take(4, "the header")
        version = head.number("I", "the header")
        if version > 0xFFFF:  # the other byte order: versions are small numbers
            head.order, version = ">", int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in (2, 3):
            raise UnsupportedFormat(
                "A version of GGUF that is not read", value=str(version), allowed="versions 2 and 3"
            )
        tensors, entries = head.number("Q", "the header"), head.number("Q", "the header")
        metadata: dict[str, Any] = {}
        for i in range(entries):
            key = head.text(f"metadata entry {i}")
            metadata[key] = head.value(head.number("I", key), f"metadata {key[:80]}")
        table = []
        for i in range(tensors):
            name = head.text(f"entry {i} of the tensor table")
            axes = head.number("I", name[:80])
            if axes > 8:
                raise CorruptFile(f"The tensor {name[:80]} claims {axes} axes", value=window.path)
            shape = tuple(head.number("Q", name[:80]) for _ in range(axes))[::-1]
            table.append((name, shape, head.number("I", name[:80]), head.number("Q", name[:80])))
        at = stream.tell()
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20:
        raise CorruptFile("The header claims an alignment that is none", value=str(alignment))
    data = -(-at // alignment) * alignment
    kept = {key: value for key, value in metadata.items() if not isinstance(value, dict)}
    found = Found("gguf", metadata={"gguf": kept})
    for name, shape, kind, offset in table:
        hints = _hints(name, shape, metadata)
        found.refs.append(_ref(window, name, shape, kind, data + offset, head.order == ">", hints))
    return found


def _ref(
    window: Window, name: str, shape: tuple[int, ...], kind: int, at: int, big_endian: bool, hints: dict[str, Any]
) -> TensorRef:
    left = max(0, window.size - at)
    start = window.start + at
    if kind in _PLAIN:
        return extent_ref(
            window.path, name, _PLAIN[kind], shape, start=start, size=left, big_endian=big_endian, hints=hints
        )
    if kind == _Q8_0 and shape and shape[-1] % 32 == 0:
        check_fits(window.path, name, total(shape) // 32 * 34, left)
        return TensorRef(name, shape, "q8_0", hints=hints, store=Quantised(window.path, start, shape, big_endian))
    word = _NAMES.get(kind, f"number {kind}")
    return TensorRef(name, shape, word, hints=hints, reason=f"quantised as {word}, which is not read")


def _hints(name: str, shape: tuple[int, ...], metadata: dict[str, Any]) -> dict[str, Any]:
    """What the fixed names of the format's tensors tell: embeddings, and the parts of a fused projection."""
    last = name.removesuffix(".weight").removesuffix(".bias")
    if name == "token_embd.weight":
        return {"kind": "embedding", "role": "weight"}
    if not last.endswith("attn_qkv") or not shape:
        return {}
    family = metadata.get("general.architecture")
    width, heads = metadata.get(f"{family}.embedding_length"), metadata.get(f"{family}.attention.head_count")
    kv = metadata.get(f"{family}.attention.head_count_kv", heads)
    if not (isinstance(width, int) and isinstance(heads, int) and isinstance(kv, int)):
        return {}
    if min(width, heads, kv) <= 0 or width % heads:
        return {}
    side = width // heads * kv
    if width + 2 * side != shape[0]:
        return {}
    return {"kind": "linear", "parts": (("q", width), ("k", side), ("v", side))}
