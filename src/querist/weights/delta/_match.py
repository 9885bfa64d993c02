"""Which matrix of TUNED is which of BASE, and a reason for every one that has no partner."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from querist.errors import BadOption, SourceNotFound
from querist.sources.tensors.ref import PassedOver
from querist.weights.delta._lowrank import Adapter, LowRank, cuts
from querist.weights.spectrum import LayerMatrix

__all__ = ["Matched", "MatrixPair", "Unmatched", "match"]


@dataclass(frozen=True, slots=True)
class MatrixPair:
    """One row of a comparison: base + Σ base_low against tuned + Σ tuned_low, each part absent where the source lacks it.

    base None: both sides are low-rank updates. tuned None: TUNED holds an update of the base's matrix.
    """

    layer_id: str
    base: LayerMatrix | None
    tuned: LayerMatrix | None
    base_low: tuple[LowRank, ...] = ()
    tuned_low: tuple[LowRank, ...] = ()

    @property
    def matrix(self) -> LayerMatrix:
        """The matrix that gives the row its name, kind and shape."""
        return self.base or self.base_low[0].pair

    @property
    def shape(self) -> tuple[int, int]:
        """(h, d)."""
        return self.base.shape if self.base is not None else self.base_low[0].shape


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A matrix without a partner; `side` is "base", "tuned", or "both" where the two do not fit together."""

    name: str
    side: str
    base_shape: tuple[int, ...] | None
    tuned_shape: tuple[int, ...] | None
    reason: str


@dataclass(frozen=True, slots=True)
class Matched:
    """Pairs in the order of BASE; what has no partner; what an adapter leaves as it is; layers of unknown alpha."""

    pairs: tuple[MatrixPair, ...]
    unmatched: tuple[Unmatched, ...]
    untouched: tuple[PassedOver, ...]
    unscaled: tuple[str, ...]


def match(
    base: Sequence[LayerMatrix],
    tuned: Sequence[LayerMatrix],
    adapters: tuple[Adapter, Adapter],
    *,
    passed: Mapping[str, str] | None = None,
) -> Matched:
    """Pairs by name (aliases of tied tensors included) and part. Names are those of `common_names`.

    adapters: how low-rank pairs of BASE and of TUNED are scaled. passed: names that one source holds and cannot give, with
    their reasons. Raises BadOption for several adapters of one layer, SourceNotFound for an adapter none of whose layers
    is in BASE.
    """
    return _Matching(base, tuned, adapters, passed or {}).result()


_NO_LAYER = "a low-rank update of a layer that BASE does not hold"
_STEM = re.compile(r"^(.*?)(?:^|\.)lora(?:\.|$)")


class _Matching:
    def __init__(
        self,
        base: Sequence[LayerMatrix],
        tuned: Sequence[LayerMatrix],
        adapters: tuple[Adapter, Adapter],
        passed: Mapping[str, str],
    ):
        self.passed = passed
        self.base = [matrix for matrix in base if not matrix.low_rank]
        self.tuned = [matrix for matrix in tuned if not matrix.low_rank]
        self.adapters = adapters
        self.adapter = len(self.tuned) < len(tuned) and 2 * len(self.tuned) < len(self.base)
        self.pairs: list[MatrixPair] = []
        self.unmatched: list[Unmatched] = []
        self.untouched: list[PassedOver] = []
        self.unscaled: list[str] = []
        self.clashed: set[str] = set()
        self.base_low = _by_layer([matrix for matrix in base if matrix.low_rank], "BASE")
        self.tuned_low = _by_layer([matrix for matrix in tuned if matrix.low_rank], "TUNED")

    def result(self) -> Matched:
        """Everything, in the order of the base."""
        full = _index(self.tuned)
        used: set[str] = set()
        low = self._updates()
        for matrix in self.base:
            partners = {name: full[name] for name in _ids(matrix) if name in full}
            distinct = {partner.layer_id: (name, partner) for name, partner in reversed(partners.items())}
            used |= {partner.layer_id for partner in partners.values()}
            updates = low.get(matrix.layer_id, ((), ()))
            for name, partner in reversed(distinct.values()):
                self._full(name, matrix, partner, updates)
            if not distinct:
                self._without_full(matrix, updates)
        for matrix in self.tuned:
            if matrix.layer_id not in used:
                why = self.passed.get(matrix.name)
                reason = f"BASE passes over its tensor: {why}" if why else "no tensor of this name in BASE"
                self.unmatched.append(Unmatched(matrix.layer_id, "tuned", None, matrix.tensor_shape, reason))
        self._updates_of_updates()
        strangers = all(other.reason == _NO_LAYER for other in self.unmatched if other.side == "tuned")
        if self.tuned_low and not self.pairs and strangers and not any(o.side == "both" for o in self.unmatched):
            self._refuse_strangers()
        return Matched(tuple(self.pairs), tuple(self.unmatched), tuple(self.untouched), tuple(self.unscaled))

    def _full(
        self,
        name: str,
        base: LayerMatrix,
        tuned: LayerMatrix,
        low: tuple[tuple[LowRank, ...], tuple[LowRank, ...]],
    ) -> None:
        if base.shape != tuned.shape or base.count != tuned.count:
            reason = f"the shapes differ: {_told(base)} in BASE, {_told(tuned)} in TUNED"
            self.unmatched.append(Unmatched(name, "both", base.tensor_shape, tuned.tensor_shape, reason))
            return
        self.pairs.append(MatrixPair(self._fresh(name), base, tuned, *low))

    def _without_full(self, matrix: LayerMatrix, low: tuple[tuple[LowRank, ...], tuple[LowRank, ...]]) -> None:
        if low[1] and self.tuned_low:
            self.pairs.append(MatrixPair(self._fresh(matrix.layer_id), matrix, None, *low))
        elif matrix.layer_id in self.clashed:
            return
        elif self.adapter:
            reason = "the adapter does not change it"
            self.untouched.append(PassedOver(matrix.layer_id, matrix.tensor_shape, matrix.dtype, reason))
        else:
            why = self.passed.get(matrix.name)
            reason = f"TUNED passes over its tensor: {why}" if why else "no tensor of this name in TUNED"
            self.unmatched.append(Unmatched(matrix.layer_id, "base", matrix.tensor_shape, None, reason))

    def _fresh(self, name: str) -> str:
        taken = {pair.layer_id for pair in self.pairs}
        number, fresh = 2, name
        while fresh in taken:
            number, fresh = number + 1, f"{name}#{number}"
        return fresh

    def _updates(self) -> dict[str, tuple[tuple[LowRank, ...], tuple[LowRank, ...]]]:
        """Matrix of the base to the updates that BASE and TUNED hold of it."""
        tensors: dict[str, list[LayerMatrix]] = {}
        for matrix in self.base:
            for name in (matrix.name, *matrix.aliases):
                tensors.setdefault(name, []).append(matrix)
        found: dict[str, tuple[tuple[LowRank, ...], tuple[LowRank, ...]]] = {}
        for side, layers in enumerate((self.base_low, self.tuned_low)):
            for stem, pair in layers.items():
                names = (f"{stem}.weight", stem, f"{stem}.in_proj_weight")
                parts = next((tensors[name] for name in names if name in tensors), None)
                if parts is None:
                    continue
                for part, update in self._cut(pair, stem, parts, side):
                    both = [list(one) for one in found.get(part.layer_id, ((), ()))]
                    both[side].append(update)
                    found[part.layer_id] = (tuple(both[0]), tuple(both[1]))
        self._homeless(tensors)
        return found

    def _refuse_strangers(self) -> None:
        stems = list(self.tuned_low)
        raise SourceNotFound(
            f"BASE holds none of the {len(stems)} layers that the adapter changes",
            value=", ".join(stems[:5]),
            allowed="a BASE with these layers; it holds " + ", ".join(matrix.name for matrix in self.base[:5]),
            mend="Name the checkpoint that the adapter was trained on",
        )

    def _cut(self, pair: LayerMatrix, stem: str, parts: Sequence[LayerMatrix], side: int) -> list:
        """The update of each matrix of a tensor; unmatched where the shapes do not fit."""
        first = parts[0]
        rows, *rest = first.tensor_shape
        whole = (rows, _product(rest))
        embedding = "lora_embedding" in pair.refs[0].name
        stored = first.refs[0].hints.get("layout") == "in-out"
        turned = embedding or stored or self.adapters[side].turned
        h, d = pair.shape
        if (d, h) == whole and (h, d) != whole:
            turned = True
        alone = len(parts) == 1 and not first.part
        clash = None
        if ((d, h) if turned else (h, d)) != whole:
            clash = (
                f"the shapes differ: {list(whole)} in BASE, an update of {[h, d]}"
                f" (A {list(pair.refs[0].shape)}, B {list(pair.refs[1].shape)}) in {('BASE', 'TUNED')[side]}"
            )
        elif first.refs[0].hints.get("transposed"):
            clash = "a low-rank update of a transposed convolution"
        elif not alone and not all(map(cuts, parts)):
            clash = "a low-rank update of a stack of matrices"
        if clash is not None:
            self.clashed |= {part.layer_id for part in parts}
            self.unmatched.append(Unmatched(first.name, "both", first.tensor_shape, (h, d), clash))
            return []
        scale = self._scale(pair, stem, side)
        return [(part, LowRank(pair, scale, turned, None if alone else part)) for part in parts]

    def _scale(self, pair: LayerMatrix, stem: str, side: int) -> float:
        scale = self.adapters[side].scale(pair, stem)
        if scale is None:
            self.unscaled.append(stem)
        return 1.0 if scale is None else scale

    def _homeless(self, tensors: Mapping[str, Sequence[LayerMatrix]]) -> None:
        for side, layers in enumerate((self.base_low, self.tuned_low)):
            for stem, pair in layers.items():
                if any(name in tensors for name in (f"{stem}.weight", stem, f"{stem}.in_proj_weight")):
                    continue
                if stem in self.base_low and stem in self.tuned_low:
                    continue
                where = ("base", "tuned")[side]
                shapes = (pair.shape, None) if side == 0 else (None, pair.shape)
                self.unmatched.append(Unmatched(stem, where, *shapes, _NO_LAYER))

    def _updates_of_updates(self) -> None:
        """Layers of which both sources hold a low-rank update and BASE no matrix: two adapters of one network."""
        names = {name for matrix in self.base for name in (matrix.name, *matrix.aliases)}
        for stem, pair in self.base_low.items():
            other = self.tuned_low.get(stem)
            if other is None or names & {f"{stem}.weight", stem, f"{stem}.in_proj_weight"}:
                continue
            if pair.shape != other.shape:
                reason = f"the shapes differ: an update of {list(pair.shape)} in BASE, {list(other.shape)} in TUNED"
                self.unmatched.append(Unmatched(stem, "both", pair.shape, other.shape, reason))
                continue
            low = LowRank(pair, self._scale(pair, stem, 0)), LowRank(other, self._scale(other, stem, 1))
            self.pairs.append(MatrixPair(self._fresh(pair.layer_id), None, None, (low[0],), (low[1],)))


def _by_layer(pairs: Sequence[LayerMatrix], side: str) -> dict[str, LayerMatrix]:
    """Layer to its pair. Raises BadOption where a layer has several: which of them is meant cannot be told."""
    found: dict[str, LayerMatrix] = {}
    for pair in pairs:
        named = _STEM.match(pair.name)
        stem = named[1] if named else pair.name
        if stem in found:
            raise BadOption(
                f"{side} holds several adapters of one layer",
                value=f"{found[stem].name}, {pair.name}",
                allowed="one adapter",
                mend="Save the one that is meant alone, or leave the others out with --exclude",
            )
        found[stem] = pair
    return found


def _index(matrices: Sequence[LayerMatrix]) -> dict[str, LayerMatrix]:
    return {name: matrix for matrix in reversed(matrices) for name in _ids(matrix)}


def _ids(matrix: LayerMatrix) -> list[str]:
    """The ids of a matrix: its own, and those under its tensor's other names."""
    part = f":{matrix.part}" if matrix.part else ""
    return list(dict.fromkeys([matrix.layer_id, *(f"{name}{part}" for name in matrix.aliases)]))


def _told(matrix: LayerMatrix) -> str:
    return str(list(matrix.tensor_shape)) + (f" ({matrix.part})" if matrix.part else "")


def _product(sides: Sequence[int]) -> int:
    count = 1
    for side in sides:
        count *= side
    return count
