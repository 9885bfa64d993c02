"""torch's pickled tensors: which names may stand in such a pickle, and the record of a rebuild as a description."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from querist.errors import UnsafeFile
from querist.sources.tensors.dtypes import ITEMSIZE
from querist.sources.tensors.opcodes import BadPickle, Call, Global, Persistent, words

__all__ = ["Sketch", "StorageId", "refuse", "sketch", "storage_id"]

STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "QUInt8Storage": "quint8",
    "QInt8Storage": "qint8",
    "QInt32Storage": "qint32",
    "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
    "UntypedStorage": "uint8",
    "TypedStorage": "float32",
}
_WORD = {"quint8": 1, "qint8": 1, "qint32": 4, "quint4x2": 1, "quint2x4": 1}
_REBUILDS = (
    "parameter parameter_with_state qtensor tensor tensor_v2 tensor_v3 sparse_tensor meta_tensor_no_storage nested_tensor "
    "wrapper_subclass device_tensor_from_numpy device_tensor_from_cpu_tensor"
)
_TORCH = {
    *ITEMSIZE,
    *_WORD,
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)),
    *(f"per_{what}" for what in ("tensor_affine", "tensor_symmetric", "channel_affine", "channel_symmetric")),
    "per_channel_affine_float_qparams",
    "float4_e2m1fn_x2",
    "bits8",
    "bits16",
    "bits1x8",
    "bits2x4",
    "bits4x2",
    "Size",
    "Tensor",
    "device",
}
ALLOWED = frozenset(
    {
        *(f"torch.{name}" for name in _TORCH),
        *(f"torch._utils._rebuild_{name}" for name in _REBUILDS.split()),
        *(f"{module}.{name}" for module in ("builtins", "__builtin__") for name in ("set", "bytearray", "complex")),
        "collections.OrderedDict",
        "collections.Counter",
        "torch.nn.parameter.Parameter",
        "torch.serialization._get_layout",
        "torch._tensor._rebuild_from_type_v2",
        "torch.storage.TypedStorage",
        "torch.storage.UntypedStorage",
        "_codecs.encode",
    }
)
"""Names that `torch.load(weights_only=True)` accepts: they stand for tensors and plain values."""
_MODULES = ("torch", "torch.cuda", "torch.sparse", "torch.cuda.sparse")


def refuse(path: str, names: Iterable[Global], *, also: tuple[str, ...] = ()) -> None:
    """Raise UnsafeFile, naming the first global that is neither torch's own data nor begins with one of `also`."""
    for found in names:
        text = str(found)
        typed = found.module in _MODULES and (found.name in STORAGES or found.name.endswith("Tensor"))
        if text in ALLOWED or typed or text.startswith(also):
            continue
        raise UnsafeFile(
            f"The pickle in this file names {text}, which is code and not weights; it was not run",
            value=path,
            allowed="state dicts as torch.load(weights_only=True) accepts them",
            mend="Where the file can be trusted, load it yourself and save its state dict as safetensors: "
            "safetensors.torch.save_file(model.state_dict(), 'model.safetensors')",
        )


@dataclass(frozen=True, slots=True)
class StorageId:
    """A storage that a pickle refers to: its key, element type (torch's name) and number of elements.

    `offset` counts elements into the storage `key`, for the views that files before torch 0.4 wrote.
    """

    key: str
    dtype: str
    count: int
    offset: int = 0

    @property
    def bytes(self) -> int:
        """Bytes it must have."""
        return self.count * _size(self.dtype)


@dataclass(frozen=True, slots=True)
class Sketch:
    """A pickled tensor: what it is and where in which storage it lies; or why it has no storage to read."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    offset: int = 0
    storage: StorageId | None = None
    trained: bool = False
    reason: str | None = None


def storage_id(reference: Persistent) -> StorageId:
    """The storage of a persistent reference `("storage", type, key, location, count[, view])`. Raises BadPickle."""
    parts = reference.id
    if not isinstance(parts, tuple) or len(parts) < 5 or parts[0] not in ("storage", b"storage"):
        raise BadPickle("a reference that is no storage")
    kind, key, count = parts[1], parts[2], parts[4]
    name = kind.name if isinstance(kind, Global) else ""
    if name not in STORAGES or not isinstance(key, (str, int)):
        raise BadPickle("a storage of unknown type")
    offset = 0
    if len(parts) > 5 and isinstance(parts[5], tuple) and len(parts[5]) == 3:
        offset = _count(parts[5][1])
    return StorageId(words(key), STORAGES[name], _count(count), offset)


def sketch(value: Any, depth: int = 0) -> Sketch | None:
    """The tensor that a recorded call would rebuild, or None where it is no tensor. Raises BadPickle."""
    if not isinstance(value, Call) or not isinstance(value.func, Global):
        return None
    name = value.func.name
    if not isinstance(value.args, tuple) or depth > 8:
        return None
    args: Sequence[Any] = list(value.args)
    if words(value.func) == "torch.nn.parameter.Parameter" or name in (
        "_rebuild_parameter",
        "_rebuild_parameter_with_state",
    ):
        return sketch(args[0], depth + 1) if args else None
    if name == "_rebuild_from_type_v2" and len(args) >= 3:
        return sketch(Call(args[0], args[2]), depth + 1)
    if value.func.module != "torch._utils" or not name.startswith("_rebuild_"):
        return None
    if name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3") and len(args) >= 4:
        return _strided(args, v3=name.endswith("v3"))
    if name == "_rebuild_qtensor" and len(args) >= 4 and isinstance(args[0], Persistent):
        return Sketch(storage_id(args[0]).dtype, _shape(args[2]), reason="quantised by torch")
    if name == "_rebuild_meta_tensor_no_storage" and len(args) >= 2 and isinstance(args[0], Global):
        return Sketch(args[0].name, _shape(args[1]), reason="not materialised")
    what = name.removeprefix("_rebuild_").replace("_", " ")
    shape: tuple[int, ...] = ()
    if name == "_rebuild_sparse_tensor" and len(args) > 1 and isinstance(args[1], tuple) and len(args[1]) > 2:
        shape = _shape(args[1][2])
    return Sketch("unknown", shape, reason=f"a {what}, which is not stored densely")


def _strided(args: Sequence[Any], *, v3: bool) -> Sketch:
    if not isinstance(args[0], Persistent):
        raise BadPickle("a tensor without a storage")
    storage = storage_id(args[0])
    dtype = storage.dtype
    if v3 and len(args) >= 7 and isinstance(args[6], Global):
        dtype = args[6].name
    shape, strides = _shape(args[2]), _shape(args[3])
    if len(shape) != len(strides):
        raise BadPickle(f"a tensor of {len(shape)} axes with {len(strides)} strides")
    trained = len(args) > 4 and args[4] is True
    offset = _count(args[1])
    if dtype not in ITEMSIZE:
        reason = "quantised by torch" if dtype in _WORD else f"elements of type {dtype} are not read"
        return Sketch(dtype, shape, strides, offset, storage, trained, reason)
    return Sketch(dtype, shape, strides, offset, storage, trained)


def _shape(value: Any) -> tuple[int, ...]:
    if (
        isinstance(value, Call)
        and words(value.func) == "torch.Size"
        and isinstance(value.args, tuple)
        and len(value.args) == 1
    ):
        value = value.args[0]
    if not isinstance(value, (tuple, list)) or len(value) > 64:
        raise BadPickle("a shape that is none")
    return tuple(_count(side) for side in value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise BadPickle(f"a size that is none: {words(value)[:40]}")
    return value


def _size(dtype: str) -> int:
    return ITEMSIZE.get(dtype) or _WORD.get(dtype, 1)
