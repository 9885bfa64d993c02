"""From the tensors of a source to the matrices of a scan, and a reason for every tensor that gives none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from querist.errors import BadOption
from querist.sources.tensors.naming import with_name_hints
from querist.sources.tensors.ref import PassedOver, TensorRef
from querist.weights.spectrum._fused import parts_of
from querist.weights.spectrum._kinds import kind_of, unfit
from querist.weights.spectrum._matrix import LayerMatrix
from querist.weights.spectrum._pairs import Pair, pairs_of
from querist.weights.spectrum._recipes import Flatten, LoraProduct, Operator, Slices, Sub

__all__ = ["Conv", "matrices"]

Conv = Literal["flatten", "slices", "operator"]


def matrices(
    refs: Sequence[TensorRef],
    *,
    conv: Conv | str = "flatten",
    grid: Sequence[int] | None = None,
    split: bool = True,
    min_side: int = 8,
    lora_alpha: float | None = None,
    config: Mapping[str, Any] | None = None,
) -> tuple[tuple[LayerMatrix, ...], tuple[PassedOver, ...]]:
    """Every matrix in the order of the source, and every tensor that is passed over with its reason. Nothing is read.

    conv: "flatten" out x (in·k…), "slices" one matrix per kernel position (pooled into one spectrum), "operator" the exact
    circular convolution on `grid`, one number per spatial axis. Grouped convolutions give a matrix per group; transposed
    ones have their axes swapped. Recurrent layers give one matrix per gate, fused projections one each for q, k and v
    (split=False: whole; see `parts_of` for the rules and for `config`, the network's own configuration), stacks [e, h, d]
    one per expert. Weight-normalised tensors are composed; low-rank pairs become one matrix of shape (out, in), multiplied
    by lora_alpha/r, or by the pair's own alpha tensor where lora_alpha is None. Matrices with a side below `min_side` are
    passed over.

    Raises BadOption for an unknown conv and for a grid that does not fit, ShapeMismatch for a low-rank pair of two ranks.
    """
    if conv not in ("flatten", "slices", "operator"):
        raise BadOption("No such view of a convolution", value=conv, allowed="flatten, slices, operator")
    if conv == "operator" and (not grid or any(int(side) != side or side < 1 for side in grid)):
        raise BadOption("conv=operator needs a grid", value=grid, allowed="one positive number per spatial axis")
    refs = with_name_hints(refs)
    pairs = pairs_of(refs, lora_alpha)
    rules = _Rules(str(conv), tuple(int(side) for side in grid or ()), split, config or {})
    found: list[LayerMatrix] = []
    passed: list[PassedOver] = []
    taken: set[str] = set()
    for ref in refs:
        if ref.name in pairs.absorbed:
            continue
        mine = pairs.at.get(ref.name, ())
        reason = _why_not(ref, mine) or (None if mine else pairs.lone.get(ref.name))
        if reason is not None:
            passed.append(PassedOver(mine[0].base if mine else ref.name, ref.shape, ref.dtype, reason))
            continue
        found_here = (matrix for pair in mine for matrix in _paired(pair, rules)) if mine else rules.of_tensor(ref)
        made = [_named(matrix, taken) for matrix in found_here]
        wide = [matrix for matrix in made if min(matrix.shape) >= min_side]
        small = [matrix for matrix in made if min(matrix.shape) < min_side]
        found.extend(wide)
        if not wide:
            passed.append(PassedOver(made[0].name, ref.shape, ref.dtype, _too_small(made, min_side)))
        else:
            passed.extend(PassedOver(m.layer_id, m.shape, m.dtype, _too_small([m], min_side)) for m in small)
    return tuple(found), tuple(passed)


def _why_not(ref: TensorRef, pairs: Sequence[Pair]) -> str | None:
    """Why a tensor, or the pairs that stand at its place, are passed over."""
    reason = unfit(ref)
    if reason is not None:
        return reason
    for other in (other for pair in pairs for other in pair.refs if other is not ref):
        # Of the other tensors only the content matters: g and alpha are vectors or numbers, and rightly so.
        content = unfit(replace(other, shape=(2, 2), hints={}, name=""))
        if content is not None:
            return f"{other.name}: {content}"
    return None


def _too_small(made: Sequence[LayerMatrix], min_side: int) -> str:
    h, d = made[0].shape
    if len(made) == 1:
        return f"its shorter side {min(h, d)} is below min_side {min_side}"
    return f"each of its {len(made)} matrices is {h} x {d}, below min_side {min_side}"


def _named(matrix: LayerMatrix, taken: set[str]) -> LayerMatrix:
    """The matrix under an id that no other has: a composed name may meet that of a tensor."""
    name, count = matrix.layer_id, 2
    while name in taken:
        name, count = f"{matrix.layer_id}#{count}", count + 1
    taken.add(name)
    return matrix if name == matrix.layer_id else replace(matrix, layer_id=name)


def _paired(pair: Pair, rules: _Rules) -> Iterator[LayerMatrix]:
    """The matrices of a composed tensor."""
    if isinstance(pair.recipe, LoraProduct):
        h, d = pair.shape or (0, 0)
        base = LayerMatrix(pair.base, pair.base, "lora", "", (h, d), (h, d), pair.refs[0].dtype, pair.refs)
        zeros = min(h, d) - min(pair.rank, h, d)
        yield replace(base, recipe=pair.recipe, zeros=zeros, scale=pair.recipe.scale)
        return
    v = pair.refs[1]
    hints = {key: value for key, value in v.hints.items() if key != "weight_norm"}
    for matrix in rules.of_tensor(replace(v, name=pair.base, hints=hints, aliases=())):
        then = matrix.recipe
        if then is None and matrix.conv:
            start, stop = matrix.rows or (0, v.shape[0])
            then = Flatten(group=start // (stop - start), groups=v.shape[0] // (stop - start))
        elif then is None and matrix.rows is not None:
            then = Sub(start=matrix.rows[0], stop=matrix.rows[1])
        yield replace(matrix, refs=pair.refs, rows=None, recipe=replace(pair.recipe, then=then))


@dataclass(frozen=True, slots=True)
class _Rules:
    """How one tensor becomes matrices, under the options of one call."""

    conv: str
    grid: tuple[int, ...]
    split: bool
    config: Mapping[str, Any]

    def of_tensor(self, ref: TensorRef) -> Iterator[LayerMatrix]:
        """The matrices of one tensor, named and shaped."""
        kind = kind_of(ref)
        base = LayerMatrix(ref.name, ref.name, kind, "", ref.shape, (0, 0), ref.dtype, (ref,), aliases=ref.aliases)
        if ref.hints.get("directions") and len(ref.shape) == 3:
            yield from self._directions(ref, base)
        elif kind.startswith("conv") and len(ref.shape) >= 3:
            yield from self._convolution(ref, base)
        elif len(ref.shape) == 2:
            yield from self._matrix(ref, base)
        else:
            yield from _stack(ref, base)

    def _matrix(self, ref: TensorRef, base: LayerMatrix) -> Iterator[LayerMatrix]:
        h, d = ref.shape
        parts = parts_of(ref, self.config) if self.split else ()
        if not parts:
            yield replace(base, shape=(h, d))
        for part in parts:
            made = _part(base, part.name, (h, part.size) if part.axis else (part.size, d))
            if part.recipe is not None:
                yield replace(made, recipe=part.recipe)
            else:
                yield replace(made, rows=(part.start, part.start + part.size))

    def _directions(self, ref: TensorRef, base: LayerMatrix) -> Iterator[LayerMatrix]:
        """ONNX keeps the directions of a recurrent layer on axis 0, its gates on axis 1."""
        directions, rows, d = ref.shape
        gates = int(ref.hints.get("gates") or 1) if self.split else 1
        names = [f"gate_{name}" for name in ref.hints.get("gate_order") or range(gates)] if gates > 1 else [""]
        step = rows // gates
        for direction in range(directions):
            word = "" if directions == 1 else ("forward", "reverse")[direction] if directions == 2 else str(direction)
            for i, gate in enumerate(names):
                made = _part(base, ".".join(part for part in (word, gate) if part), (step, d))
                yield replace(made, recipe=Sub(lead=(direction,), start=i * step, stop=(i + 1) * step))

    def _convolution(self, ref: TensorRef, base: LayerMatrix) -> Iterator[LayerMatrix]:
        spatial = ref.shape[2:]
        transposed = bool(ref.hints.get("transposed"))
        groups = int(ref.hints.get("groups") or 1)
        groups = groups if ref.shape[0] % groups == 0 else 1
        sides = (ref.shape[0] // groups, ref.shape[1])
        outputs, inputs = reversed(sides) if transposed else sides
        if self.conv == "operator" and len(self.grid) != len(spatial):
            raise BadOption(
                f"The grid does not fit the convolution {ref.name}, which has {len(spatial)} spatial axes",
                value=",".join(map(str, self.grid)),
                allowed=f"{len(spatial)} numbers",
                mend="Choose convolutions of one kind with --include or --exclude",
            )
        for group in range(groups):
            made = replace(_part(base, f"group{group}" if groups > 1 else "", (outputs, inputs)), conv=self.conv)
            if self.conv == "operator":
                recipe = Operator(transposed, group, groups, self.grid)
                yield replace(made, count=math.prod(self.grid), recipe=recipe)
            elif self.conv == "slices":
                yield replace(made, count=math.prod(spatial), recipe=Slices(transposed, group, groups))
            else:
                made = replace(made, shape=(outputs, inputs * math.prod(spatial)))
                if transposed:
                    yield replace(made, recipe=Flatten(transposed, group, groups))
                else:
                    yield replace(made, rows=(group * outputs, (group + 1) * outputs))


def _part(base: LayerMatrix, part: str, shape: tuple[int, int]) -> LayerMatrix:
    layer_id = f"{base.name}:{part}" if part else base.name
    return replace(base, layer_id=layer_id, part=part, shape=shape)


def _stack(ref: TensorRef, base: LayerMatrix) -> Iterator[LayerMatrix]:
    """A stack of matrices in the last two axes: one row each."""
    *lead, h, d = ref.shape
    count = math.prod(lead)
    word = "expert" if base.kind == "expert" else "matrix"
    for i in range(count):
        made = _part(base, f"{word}{i}" if count > 1 else "", (h, d))
        if len(lead) == 1:
            yield replace(made, rows=(i, i + 1))
        else:
            index = tuple(i // math.prod(lead[axis + 1 :]) % side for axis, side in enumerate(lead))
            yield replace(made, recipe=Sub(lead=index))
