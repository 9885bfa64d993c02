"""From what a reader found to a source: selection, hints that names alone give, tied tensors joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from querist.errors import SourceNotFound
from querist.sources.tensors.dtypes import ITEMSIZE, torch_dtype, total
from querist.sources.tensors.naming import with_name_hints
from querist.sources.tensors.ref import PassedOver, TensorRef, TensorSource
from querist.sources.tensors.select import Selection, nothing_selected
from querist.sources.tensors.storage import Extent, check_fits, contiguous

__all__ = ["Found", "Missing", "extent_ref", "finish"]

EXPANDED = 1 << 24
"""Entries that a tensor may repeat by strides of 0: beyond it a few bytes would pose as a matrix of any size."""


class Missing(NamedTuple):
    """A tensor whose file is not there; shape and dtype where another file tells them."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str | None
    file: str


@dataclass(slots=True)
class Found:
    """What one reader found, in the order of the file, before selection."""

    format: str
    refs: list[TensorRef] = field(default_factory=list)
    passed_over: list[PassedOver] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)


def extent_ref(
    path: str,
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    *,
    start: int,
    size: int,
    offset: int = 0,
    strides: tuple[int, ...] | None = None,
    big_endian: bool = False,
    hints: Mapping[str, Any] | None = None,
) -> TensorRef:
    """A tensor that lies `offset` elements into the `size` bytes of a file from byte `start` on.

    Raises CorruptFile where the bytes are fewer than the shape needs. A type that this torch lacks gives a reason.
    """
    hints = dict(hints or {})
    if torch_dtype(dtype) is None:
        return TensorRef(name, shape, dtype, hints=hints, reason=f"elements of type {dtype} are not read")
    strides = contiguous(shape) if strides is None else strides
    item = ITEMSIZE[dtype]
    if total(shape):
        span = 1 + sum((side - 1) * step for side, step in zip(shape, strides, strict=True))
        check_fits(path, name, (offset + span) * item, size)
        if total(shape) > max(size // item, EXPANDED):
            reason = f"its shape has {total(shape)} entries, its storage {size // item}"
            return TensorRef(name, shape, dtype, hints=hints, reason=reason)
    return TensorRef(
        name, shape, dtype, hints=hints, store=Extent(path, start + offset * item, dtype, shape, strides, big_endian)
    )


def finish(address: str, found: Found, selection: Selection) -> TensorSource:
    """The source: refs that are wanted, tied ones joined, everything else with its reason.

    Raises SourceNotFound where there is no tensor at all or a wanted one's file is missing, UnknownName where the
    patterns leave none.
    """
    absent = [row for row in found.missing if selection.reason(row.name) is None]
    if absent:
        here = sorted(ref.name for ref in found.refs)
        raise SourceNotFound(
            f"The file {absent[0].file} is missing, which holds {len(absent)} wanted tensors, among them {absent[0].name}",
            value=address,
            mend="Get the file"
            + (
                f", or go on without it by --include PATTERNS that match the tensors that are here ({len(here)}, such as {here[0]})"
                if here
                else ""
            ),
        )
    refs = with_name_hints(_distinct(found.refs))
    wanted: list[TensorRef] = []
    left_out: list[PassedOver] = []
    for ref in refs:
        reason = selection.reason(ref.name)
        if reason is None:
            wanted.append(ref)
        else:
            left_out.append(PassedOver(ref.name, ref.shape, ref.dtype, reason))
    gone = [PassedOver(row.name, row.shape, row.dtype, f"its file {row.file} is missing") for row in found.missing]
    passed_over = (*found.passed_over, *gone, *left_out)
    if not refs and not gone and all(row.shape is None for row in found.passed_over):
        lines = "; ".join(f"{row.what}: {row.reason}" for row in found.passed_over[:5])
        raise SourceNotFound(
            f"There are no weights in this {found.format} source" + (f" ({lines})" if lines else ""),
            value=address,
            allowed="a source that holds at least one tensor",
        )
    if not wanted:
        raise nothing_selected(address, [*left_out, *gone, *found.passed_over])
    return TensorSource(address, found.format, tuple(_joined(wanted)), passed_over, found.metadata)


def _distinct(refs: Iterable[TensorRef]) -> list[TensorRef]:
    """The refs with names that occur once: a repeated name gets `#2`, `#3` behind it."""
    seen: dict[str, int] = {}
    refs = list(refs)
    taken = {ref.name for ref in refs}
    out = []
    for ref in refs:
        count = seen[ref.name] = seen.get(ref.name, 0) + 1
        name = ref.name
        while count > 1 and name in taken:
            name = f"{ref.name}#{count}"
            count += 1
        taken.add(name)
        out.append(ref if name == ref.name else replace(ref, name=name))
    return out


def _joined(refs: Iterable[TensorRef]) -> list[TensorRef]:
    """Tensors of one storage as one ref: the first name stays, the others become aliases, hints are pooled."""
    place: dict[Any, int] = {}
    out: list[TensorRef] = []
    for ref in refs:
        key = ref.store.key if ref.store is not None and ref.reason is None else None
        if key is None or key not in place:
            if key is not None:
                place[key] = len(out)
            out.append(ref)
            continue
        first = out[place[key]]
        aliases = (*first.aliases, ref.name, *ref.aliases)
        out[place[key]] = replace(first, aliases=aliases, hints={**ref.hints, **first.hints})
    return out
