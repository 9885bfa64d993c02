"""Arrow columns as what a learner takes: numbers in float64 with NaN, or levels as text with nulls."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute
from jaxtyping import Float

from querist.errors import BadValues, NonFinite, UnsupportedFormat

pc: Any = pyarrow.compute
"""Arrow makes its functions while it is imported, so that types know few of them."""

__all__ = ["Kind", "kind_of", "numbers", "pc", "plain", "texts", "unsupported"]

Kind = Literal["number", "category"]

_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def kind_of(type_: pa.DataType) -> Kind | None:
    """Whether a column of this type is read as numbers or as levels; None where it can be neither.

    Whole and real numbers, decimals, dates, times, durations: numbers. Text, dictionaries and booleans: levels. A column in
    which nothing is known (Arrow's null type) counts as numbers.
    """
    types = pa.types
    type_ = _storage(type_)
    if types.is_dictionary(type_):
        return "category" if kind_of(type_.value_type) else None
    if types.is_boolean(type_) or types.is_string(type_) or types.is_large_string(type_) or _is_view(type_):
        return "category"
    if types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_) or types.is_null(type_):
        return "number"
    return "number" if types.is_temporal(type_) and not types.is_interval(type_) else None


def unsupported(name: str, type_: pa.DataType) -> UnsupportedFormat:
    """The error for a column that is neither numbers nor levels."""
    return UnsupportedFormat(
        f"The column {name} can be used neither as numbers nor as levels",
        value=str(type_),
        allowed="numbers, text, booleans, dates",
        mend="Leave the column out, or take it apart",
    )


def plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One contiguous array, without an extension type."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # text beyond 2 GiB
            values = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in values.chunks])
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def numbers(values: Any, name: str, start: int = 0) -> Float[np.ndarray, "n"]:
    """A column as float64, NaN where it is missing; dates and times as days (since 1970-01-01 in UTC), booleans as 0 and 1.

    Text is read as numbers. start: number of the first row, for messages. Raises NonFinite for infinity and BadValues for
    text that is no number, with row and column; UnsupportedFormat for nested values.
    """
    array = plain(values)
    type_, types = array.type, pa.types
    if types.is_dictionary(type_):
        known = numbers(array.dictionary, name, start)
        taken = np.asarray(array.indices.cast(pa.int64()).fill_null(-1))
        return np.where(taken < 0, np.nan, known[taken]) if len(known) else np.full(len(array), np.nan)
    if types.is_null(type_):
        return np.full(len(array), np.nan)
    if types.is_boolean(type_):
        array = array.cast(pa.int8())
    elif types.is_date32(type_):
        array = array.cast(pa.int32())
    elif types.is_temporal(type_) and not types.is_interval(type_):
        unit = "ms" if types.is_date64(type_) else type_.unit
        whole = array.cast(pa.int32()).cast(pa.int64()) if types.is_time32(type_) else array.cast(pa.int64())
        return _float64(whole, name, start) / _PER_DAY[unit]
    elif kind_of(type_) is None:
        raise unsupported(name, type_)
    return _float64(array, name, start)


def _float64(array: pa.Array, name: str, start: int) -> np.ndarray:
    text = kind_of(array.type) == "category" and not pa.types.is_boolean(array.type)
    try:
        cast = pc.cast(array, pa.float64(), safe=False)
    except pa.ArrowException:
        row, value = _no_number(array) if text else (0, str(array.type))
        raise BadValues(
            f"The column {name} is one of numbers",
            value=f"{value!r} in row {start + row}",
            allowed="a number, or nothing where it is missing",
            mend="Mend the value, or use the column as levels",
        ) from None
    found = cast.to_numpy(zero_copy_only=False)
    infinite = np.isinf(found)
    if infinite.any():
        row = int(np.argmax(infinite))
        raise NonFinite(
            f"The column {name} holds infinity",
            value=f"{found[row]} in row {start + row}",
            allowed="numbers, and NaN or nothing where one is missing",
            mend="Mend or leave out these rows",
        )
    return found


def _no_number(array: pa.Array) -> tuple[int, Any]:
    for row, value in enumerate(array.to_pylist()):
        try:
            if value is not None:
                pc.cast(pa.array([value]), pa.float64())
        except pa.ArrowException:
            return row, value
    return 0, None


def texts(values: Any, name: str) -> pa.Array:
    """A column as large_string, null where it is missing; a whole number is written without a point, a boolean as false, true.

    A dictionary stays one (of large_string). Raises UnsupportedFormat for nested values.
    """
    array = plain(values)
    type_, types = array.type, pa.types
    if types.is_dictionary(type_):
        return pa.DictionaryArray.from_arrays(array.indices, texts(array.dictionary, name))
    if kind_of(type_) is None:
        raise unsupported(name, type_)
    if types.is_decimal(type_):
        array, type_ = array.cast(pa.float64()), pa.float64()
    if types.is_floating(type_):
        found = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
        known = found[~np.isnan(found)]
        array = pa.array(found, from_pandas=True)
        if known.size and (known == np.rint(known)).all() and np.abs(known).max() < 2**53:
            array = array.cast(pa.int64())
    return array.cast(pa.large_string())


def _storage(type_: pa.DataType) -> pa.DataType:
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_


def _is_view(type_: pa.DataType) -> bool:
    return type_.id == pa.string_view().id
