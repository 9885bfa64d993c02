"""Opening the two sources of a comparison and pairing their matrices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from querist.errors import SourceNotFound, UnknownName, near
from querist.sources.tensors import PassedOver, TensorSource, nothing_selected, open_source
from querist.sources.tensors.select import Selection
from querist.weights.configs import CompareConfig
from querist.weights.delta import (
    REPLACED,
    Adapter,
    Matched,
    MatrixPair,
    Unmatched,
    common_names,
    match,
    plain_name,
    renamed,
    with_shared_hints,
)
from querist.weights.spectrum import LayerMatrix, low_rank_stem, matrices

if TYPE_CHECKING:
    from querist.sources.tensors import TensorRef

__all__ = ["Opened", "adapter_of", "address_of", "open_pair"]


@dataclass(frozen=True)
class Opened:
    """Both sources, their pairs in the order of BASE, and what was left out of either and why.

    names: (base, tuned), each the name used here to the name in that source.
    """

    base: TensorSource
    tuned: TensorSource
    pairs: tuple[MatrixPair, ...]
    unmatched: tuple[Unmatched, ...]
    passed: tuple[PassedOver, ...]
    unscaled: tuple[str, ...]
    names: tuple[Mapping[str, str], Mapping[str, str]]


def adapter_of(source: Any) -> Mapping[str, Any]:
    """What an in-memory network of PEFT says of its one adapter, in the words of adapter_config.json; else empty."""
    configs = getattr(source, "peft_config", None)
    if not isinstance(configs, Mapping) or len(configs) != 1:
        return {}
    config = next(iter(configs.values()))
    keys = ("peft_type", "lora_alpha", "use_rslora", "alpha_pattern", "fan_in_fan_out")
    found = {key: getattr(config, key) for key in keys if getattr(config, key, None) is not None}
    if "peft_type" in found:
        found["peft_type"] = str(getattr(found["peft_type"], "value", found["peft_type"]))
    return found


def open_pair(
    base: Any, tuned: Any, config: CompareConfig, adapters: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
) -> Opened:
    """Both sources under common names, and their matrices in pairs.

    base, tuned: whatever `open_source` takes. adapters: adapter configurations that the sources do not carry themselves.
    Raises what `open_source`, `matrices` and `match` raise, and UnknownName where nothing is left to compare.
    """
    before, after = _opened(base, config), _opened(tuned, config, strict=False)
    said = [source.metadata.get("adapter") or more for source, more in zip((before, after), adapters, strict=True)]
    scales = (Adapter(said[0]), Adapter(said[1], config.lora_alpha))
    if config.lora_alpha is not None and not said[0]:
        scales = (Adapter(said[0], config.lora_alpha), scales[1])
    plain = {name: plain_name(name) for ref in before.refs for name in (ref.name, *ref.aliases)}
    common = common_names(plain, [name for ref in after.refs for name in (ref.name, *ref.aliases)])
    refs, old_names = renamed(before.refs, plain)
    tuned_refs, tuned_names = renamed(after.refs, common)
    refs, tuned_refs = with_shared_hints(refs, tuned_refs), with_shared_hints(tuned_refs, refs)
    network = before.metadata.get("config") or after.metadata.get("config")
    first, passed_base = _matrices(refs, config, network)
    second, passed_tuned = _matrices(tuned_refs, config, network)
    second, magnitudes = _without_magnitudes(second, tuned_refs)
    reasons = {item.what: item.reason for item in (*passed_tuned, *passed_base)}
    wanted = Selection.of(config.include, config.exclude)
    second = tuple(matrix for matrix in second if _wanted(matrix, wanted))
    first = tuple(matrix for matrix in first if _wanted(matrix, wanted))
    found = match(first, second, scales, passed=reasons)
    passed = (*before.passed_over, *after.passed_over, *passed_base, *passed_tuned, *found.untouched, *magnitudes)
    _refuse_nothing(before, found, passed)
    return Opened(
        before,
        after,
        found.pairs,
        found.unmatched,
        tuple(dict.fromkeys(_once(passed))),
        found.unscaled,
        (old_names, tuned_names),
    )


def _opened(source: Any, config: CompareConfig, *, strict: bool = True) -> TensorSource:
    """A source. Patterns name tensors as BASE does, so that of TUNED everything is read where its files are all there."""
    if strict:
        return open_source(source, include=config.include, exclude=config.exclude)
    try:
        return open_source(source)
    except SourceNotFound:
        if config.include == ("*",) and not config.exclude:
            raise
        return open_source(source, include=config.include, exclude=config.exclude)


def _matrices(
    refs: list[TensorRef], config: CompareConfig, network: Any
) -> tuple[tuple[LayerMatrix, ...], tuple[PassedOver, ...]]:
    kept = [ref for ref in refs if not REPLACED.search(ref.name)]
    reason = "the untrained original of a module that is saved whole"
    gone = [PassedOver(ref.name, ref.shape, ref.dtype, reason) for ref in refs if REPLACED.search(ref.name)]
    found, passed = matrices(
        kept, conv=config.conv, grid=config.grid, split=config.split, min_side=config.min_side, config=network
    )
    return found, (*passed, *gone)


def _without_magnitudes(
    found: tuple[LayerMatrix, ...], refs: list[TensorRef]
) -> tuple[tuple[LayerMatrix, ...], list[PassedOver]]:
    """The matrices without the pairs of DoRA: its update is a scaling of whole rows as well, no product of two factors."""
    scaled = {ref.name.partition(".lora_magnitude_vector")[0] for ref in refs if ".lora_magnitude_vector" in ref.name}
    kept = [matrix for matrix in found if not (matrix.low_rank and _stem(matrix) in scaled)]
    reason = "DoRA scales whole rows as well: merge it into its base and compare the merged checkpoint"
    gone = [PassedOver(m.layer_id, m.shape, m.dtype, reason) for m in found if m.low_rank and _stem(m) in scaled]
    return tuple(kept), gone


def _stem(matrix: LayerMatrix) -> str | None:
    return low_rank_stem(matrix.refs[0].name)


def _wanted(matrix: LayerMatrix, selection: Selection) -> bool:
    names = [matrix.name, *matrix.aliases]
    if matrix.low_rank:
        names += [f"{_stem(matrix)}.weight", str(_stem(matrix)), *(ref.name for ref in matrix.refs)]
    return any(selection.reason(name) is None for name in names) and not (
        matrix.low_rank and any(_excluded(name, selection) for name in names)
    )


def _excluded(name: str, selection: Selection) -> bool:
    return replace(selection, include=("*",)).reason(name) is not None


def _once(passed: tuple[PassedOver, ...]) -> list[PassedOver]:
    """Rows without those that both sources give alike."""
    return [PassedOver(row.what, None if row.shape is None else tuple(row.shape), *row[2:]) for row in passed]


def _refuse_nothing(base: TensorSource, found: Matched, passed: tuple[PassedOver, ...]) -> None:
    """Nothing to compare is an error, not an empty table."""
    if found.pairs:
        return
    if not found.unmatched:
        raise nothing_selected(base.address, tuple(dict.fromkeys(passed)))  # often the same of both sources
    tuned = [other.name for other in found.unmatched if other.side == "tuned"]
    mine = [other.name for other in found.unmatched if other.side != "tuned"]
    clash = next((other for other in found.unmatched if other.side == "both"), None)
    raise UnknownName(
        "The two sources have no matrix in common",
        value=f"{clash.name}: {clash.reason}" if clash else ", ".join(tuned[:5]) or "TUNED holds no matrix",
        allowed="names and shapes of BASE: " + (near(tuned[0], mine) if tuned and mine else ", ".join(mine[:5])),
        mend="Name two checkpoints of one network, or an adapter of BASE",
    )


def address_of(source: Any) -> str:
    """What a source is called in the run: its address, or the type of an in-memory one."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else type(source).__name__
