"""From the tensors of a source to the matrices of a scan, and a reason for every tensor that gives none."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from querist.errors import BadOption
from querist.sources.tensors.ref import PassedOver, TensorRef
from querist.weights.spectrum._kinds import Kind, kind_of, parts_of
from querist.weights.spectrum._matrix import LayerMatrix
from querist.weights.spectrum._recipes import Composed, Flatten, LoraProduct, Operator, Slices, Sub

__all__ = ["matrices"]

_FLOATS = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
)
_NORM = (
    (re.compile(r"^(?P<base>.*weight)_g$"), "_v"),
    (re.compile(r"^(?P<base>.*)parametrizations\.(?P<leaf>\w+)\.original0$"), None),
)
_LORA = re.compile(r"^(?P<base>.*?)[._]?lora[._](?P<side>A|B|down|up)(?P<rest>.*)$", re.I)


def matrices(
    refs: Sequence[TensorRef],
    *,
    conv: str = "flatten",
    grid: tuple[int, ...] | None = None,
    split: bool = True,
    min_side: int = 8,
) -> tuple[tuple[LayerMatrix, ...], tuple[PassedOver, ...]]:
    """Every matrix in the order of the source, and every tensor that is passed over with its reason.

    conv: "flatten" out x (in·k…), "slices" one matrix per kernel position (pooled into one spectrum), "operator" the exact
    circular convolution on `grid`. Grouped convolutions give a matrix per group, recurrent layers one per gate, fused
    projections one each for q, k and v (split=False: whole), expert stacks one per expert. Weight-normalised and low-rank
    pairs are composed. Matrices with a side below min_side are passed over.

    Raises BadOption for an unknown conv, and for a grid that does not fit the convolutions.
    """
    if conv not in ("flatten", "slices", "operator"):
        raise BadOption("No such view of a convolution", value=conv, allowed="flatten, slices, operator")
    by_name = {ref.name: ref for ref in refs}
    composed, absorbed = _pairs(refs, by_name)
    found: list[LayerMatrix] = []
    passed: list[PassedOver] = []
    for ref in refs:
        if ref.name in absorbed:
            continue
        reason = _unfit(ref)
        if reason is None:
            pair = composed.get(ref.name)
            made = list(_made(ref, pair, by_name, conv, grid, split))
            small = [matrix for matrix in made if min(matrix.shape) < min_side]
            if small and len(small) == len(made):
                h, d = small[0].shape
                reason = f"its shorter side {min(h, d)} is below min_side {min_side}"
            else:
                found.extend(matrix for matrix in made if min(matrix.shape) >= min_side)
                passed.extend(_too_small(matrix, min_side) for matrix in small)
        if reason is not None:
            passed.append(PassedOver(ref.name, ref.shape, ref.dtype, reason))
    return tuple(found), tuple(passed)


def _too_small(matrix: LayerMatrix, min_side: int) -> PassedOver:
    reason = f"its shorter side {min(matrix.shape)} is below min_side {min_side}"
    return PassedOver(matrix.layer_id, matrix.shape, matrix.dtype, reason)


def _unfit(ref: TensorRef) -> str | None:
    if ref.reason is not None:
        return ref.reason
    if ref.hints.get("buffer"):
        return "a buffer, not a weight"
    if ref.dtype not in _FLOATS and not ref.dtype.startswith("q"):
        return f"entries of type {ref.dtype} have no spectrum of weights"
    if len(ref.shape) < 2:
        return f"{len(ref.shape)}-dimensional"
    if 0 in ref.shape:
        return "empty"
    if sum(side > 1 for side in ref.shape) < 2 and len(ref.shape) > 2:
        return "a vector stored with extra axes"
    return None


def _pairs(
    refs: Sequence[TensorRef], by_name: dict[str, TensorRef]
) -> tuple[dict[str, tuple[str, tuple[TensorRef, ...], object]], set[str]]:
    """Weight-normalised and low-rank pairs: name of the tensor at whose place they stand -> (layer id, parts, recipe)."""
    composed: dict[str, tuple[str, tuple[TensorRef, ...], object]] = {}
    absorbed: set[str] = set()
    for ref in refs:
        norm = ref.hints.get("weight_norm")
        if norm and norm.get("part") == "g" and norm["v"] in by_name:
            v = by_name[norm["v"]]
            composed[v.name] = (norm["base"], (ref, v), Composed(norm.get("dim", 0)))
            absorbed.add(ref.name)
            continue
        for pattern, ending in _NORM:
            match = pattern.match(ref.name)
            if match is None or norm:
                continue
            name = match["base"] + ending if ending else ref.name[: -len("original0")] + "original1"
            base = match["base"] if ending else match["base"] + match["leaf"]
            v = by_name.get(name)
            if v is not None and _scales(ref, v):
                composed[v.name] = (base, (ref, v), Composed(_kept_axis(ref, v)))
                absorbed.add(ref.name)
        lora = _LORA.match(ref.name)
        if lora and lora["side"].lower() in ("a", "down"):
            other = {"A": "B", "a": "b", "down": "up", "DOWN": "UP"}[lora["side"]]
            at = lora.start("side")
            partner = by_name.get(ref.name[:at] + other + ref.name[at + len(lora["side"]) :])
            if partner is not None and len(ref.shape) >= 2 and len(partner.shape) >= 2:
                composed[ref.name] = (f"{lora['base']}.lora".lstrip("."), (ref, partner), LoraProduct())
                absorbed.add(partner.name)
    return composed, absorbed


def _scales(g: TensorRef, v: TensorRef) -> bool:
    return math.prod(g.shape) in {1, *v.shape}


def _kept_axis(g: TensorRef, v: TensorRef) -> int | None:
    if math.prod(g.shape) == 1:
        return None
    return next((axis for axis, side in enumerate(g.shape) if side > 1), 0) if len(g.shape) == len(v.shape) else 0


def _made(ref, pair, by_name, conv, grid, split) -> Iterator[LayerMatrix]:
    if pair is None:
        yield from _of_tensor(ref, by_name, conv, grid, split)
        return
    base, parts, recipe = pair
    if isinstance(recipe, LoraProduct):
        a, b = parts
        rank = a.shape[0]
        if b.shape[1] != rank:
            from querist.errors import ShapeMismatch

            raise ShapeMismatch(
                "The ranks of a low-rank pair differ",
                value=f"{a.name} {list(a.shape)}, {b.name} {list(b.shape)}",
                allowed="A [r, in], B [out, r]",
            )
        yield LayerMatrix(
            base, base, "lora", "", (b.shape[0], math.prod(a.shape[1:])), (rank, rank), a.dtype, parts, recipe=recipe
        )
        return
    plain = replace(parts[1], name=base, hints={k: v for k, v in parts[1].hints.items() if k != "weight_norm"})
    for matrix in _of_tensor(plain, by_name, conv, grid, split):
        then = matrix.recipe
        if then is None and matrix.rows is not None:
            then = Sub(start=matrix.rows[0], stop=matrix.rows[1])
        yield replace(matrix, refs=parts, rows=None, recipe=replace(recipe, then=then), aliases=())


def _of_tensor(ref: TensorRef, by_name, conv: str, grid, split: bool) -> Iterator[LayerMatrix]:
    kind = kind_of(ref)
    base = LayerMatrix(ref.name, ref.name, kind.name, "", ref.shape, (0, 0), ref.dtype, (ref,), aliases=ref.aliases)
    directions = ref.hints.get("directions")
    if directions is not None and len(ref.shape) == 3:
        yield from _recurrent_onnx(ref, base, split)
    elif kind.convolution and len(ref.shape) >= 3:
        yield from _convolution(ref, base, conv, grid)
    elif len(ref.shape) == 2:
        yield from _matrix(ref, base, kind, by_name, split)
    else:
        yield from _stack(ref, base)


def _matrix(ref: TensorRef, base: LayerMatrix, kind: Kind, by_name, split: bool) -> Iterator[LayerMatrix]:
    h, d = ref.shape
    parts = parts_of(ref, kind, by_name) if split else ()
    axis = int(ref.hints.get("gate_axis") or 0)
    gates = ref.hints.get("gates")
    if split and gates and axis == 1 and d % gates == 0:
        names = ref.hints.get("gate_order") or tuple(range(gates))
        step = d // gates
        for i, name in enumerate(names):
            part = f"gate_{name}"
            yield replace(
                base,
                layer_id=f"{ref.name}:{part}",
                part=part,
                shape=(h, step),
                recipe=Sub(axis=1, start=i * step, stop=(i + 1) * step),
            )
        return
    if not parts:
        yield replace(base, shape=(h, d))
        return
    for part, start, stop in parts:
        yield replace(base, layer_id=f"{ref.name}:{part}", part=part, shape=(stop - start, d), rows=(start, stop))


def _recurrent_onnx(ref: TensorRef, base: LayerMatrix, split: bool) -> Iterator[LayerMatrix]:
    directions, rows, d = ref.shape
    gates = int(ref.hints.get("gates") or 1) if split else 1
    names = ref.hints.get("gate_order") or tuple(range(gates))
    step = rows // gates
    for direction in range(directions):
        for gate in range(gates):
            words = [f"direction{direction}"] if directions > 1 else []
            words += [f"gate_{names[gate]}"] if gates > 1 else []
            part = "_".join(words)
            yield replace(
                base,
                layer_id=f"{ref.name}:{part}" if part else ref.name,
                part=part,
                shape=(step, d),
                recipe=Sub(lead=(direction,), start=gate * step, stop=(gate + 1) * step),
            )


def _convolution(ref: TensorRef, base: LayerMatrix, conv: str, grid) -> Iterator[LayerMatrix]:
    spatial = ref.shape[2:]
    transposed = bool(ref.hints.get("transposed"))
    groups = int(ref.hints.get("groups") or 1)
    groups = groups if ref.shape[0] % groups == 0 else 1
    outputs, inputs = (ref.shape[1], ref.shape[0] // groups) if transposed else (ref.shape[0] // groups, ref.shape[1])
    if conv == "operator" and (grid is None or len(grid) != len(spatial)):
        raise BadOption(
            f"The grid does not fit the convolution {ref.name}",
            value=grid,
            allowed=f"{len(spatial)} numbers",
            mend="Leave other convolutions out with --exclude",
        )
    for group in range(groups):
        part = f"group{group}" if groups > 1 else ""
        common = {"transposed": transposed, "group": group, "groups": groups}
        if conv == "flatten":
            shape, count, recipe = (outputs, inputs * math.prod(spatial)), 1, Flatten(**common)
        elif conv == "slices":
            shape, count, recipe = (outputs, inputs), math.prod(spatial), Slices(**common)
        else:
            shape, count, recipe = (outputs, inputs), math.prod(grid), Operator(grid=tuple(grid), **common)
        made = replace(
            base,
            layer_id=f"{ref.name}:{part}" if part else ref.name,
            part=part,
            shape=shape,
            count=count,
            conv=conv,
            recipe=recipe,
        )
        if conv == "flatten" and not transposed:
            made = replace(made, recipe=None, rows=(group * outputs, (group + 1) * outputs))
        yield made


def _stack(ref: TensorRef, base: LayerMatrix) -> Iterator[LayerMatrix]:
    """A stack of matrices in the last two axes: one row each."""
    *lead, h, d = ref.shape
    for i in range(math.prod(lead)):
        part = f"expert{i}" if base.kind == "experts" else f"matrix{i}"
        index = []
        rest = i
        for side in reversed(lead):
            rest, at = divmod(rest, side)
            index.append(at)
        made = replace(base, layer_id=f"{ref.name}:{part}", part=part, shape=(h, d))
        if len(lead) == 1:
            yield replace(made, rows=(i, i + 1))
        else:
            yield replace(made, recipe=Sub(lead=tuple(reversed(index))))
