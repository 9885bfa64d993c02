"""A lasting 64-bit hash of each row: the same in any batch, column order, width of number and spelling of text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import UInt64

from querist.errors import UnknownName, near
from querist.sources.rows.columns import Encoded
from querist.sources.rows.values import kind_of, numbers, texts

__all__ = ["hash_rows"]

_MISSING = np.uint64(0x9AE16A3B2F90404F)


def hash_rows(rows: Any, columns: Iterable[str] | None = None) -> UInt64[np.ndarray, "n"]:
    """One number for each row of a batch, a table or `Encoded`.

    columns: the columns that count; all where None. Whole numbers count by value, others by the nearest float32, so that
    int8, int64, float32 and float64 columns of the same values agree; booleans are 0 and 1, text and dictionaries their
    letters, dates their days. A row's columns are added, each mixed with its name, hence no order. Two rows that differ share
    a number with a chance of 2⁻⁶⁴. Raises UnknownName for a column.
    """
    if isinstance(rows, Encoded):
        return _hash_encoded(rows, columns)
    names = _chosen(rows.schema.names, columns)
    total = np.zeros(rows.num_rows, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for name in names:
            total += _mix(_values(rows.column(name), name) ^ _text(name))
        return _mix(total)


def _hash_encoded(rows: Encoded, columns: Iterable[str] | None) -> UInt64[np.ndarray, "n"]:
    names = _chosen([*rows.number_names, *rows.category_names], columns)
    total = np.zeros(len(rows), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for k, name in enumerate(rows.number_names):
            if name in names:
                held = np.where(rows.missing[:, k], _MISSING, _number_bits(rows.numbers[:, k].astype(float)))
                total += _mix(held ^ _text(name))
        for k, name in enumerate(rows.category_names):
            if name in names:
                total += _mix(_number_bits(rows.codes[:, k].astype(float)) ^ _text(name))
        return _mix(total)


def _chosen(known: list[str], columns: Iterable[str] | None) -> list[str]:
    if columns is None:
        return known
    names = [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if name not in known:
            raise UnknownName("The rows have no such column", value=name, allowed=near(name, known, 12))
    return names


def _values(values: Any, name: str) -> UInt64[np.ndarray, "n"]:
    type_ = values.type
    if kind_of(type_) == "category" and not pa.types.is_boolean(type_):
        array = texts(values, name)
        array = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        known = np.array([_MISSING if v is None else _text(v) for v in array.dictionary.to_pylist()], dtype=np.uint64)
        taken = np.asarray(array.indices.cast(pa.int64()).fill_null(-1))
        return np.where(taken < 0, _MISSING, known[taken]) if len(known) else np.full(len(array), _MISSING)
    found = numbers(values, name)
    return np.where(np.isnan(found), _MISSING, _number_bits(found))


def _number_bits(found: np.ndarray) -> UInt64[np.ndarray, "n"]:
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = found.astype(np.float32).astype(float)
    kept = (found == np.rint(found)) | np.isinf(narrow)
    return (np.where(kept, found, narrow) + 0.0).view(np.uint64)  # + 0.0: −0 is 0


def _mix(x: np.ndarray) -> np.ndarray:
    """splitmix64 (Steele, Lea & Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _text(text: str) -> np.uint64:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))
