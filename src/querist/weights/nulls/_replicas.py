"""Copies of a matrix that keep its entries and lose its correlation: the two resampling nulls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import BadValues, UnknownName
from querist.statistics import stream
from querist.weights.nulls._lanczos import TOLERANCE, edge_scale, scaled, top_eigenvalues
from querist.weights.nulls._largest import largest_of_groups

__all__ = ["KINDS", "Spectrum", "full_replicas", "pooled", "replica", "top_error", "top_replicas"]

KINDS = ("shuffle", "signflip")

Spectrum = Callable[[Tensor], np.ndarray]

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Sorting (random key, value) pairs is the fastest exact shuffle measured here (1e6 float32: 11 ms; numpy's shuffle 19,
# torch.randperm with its gather 15); beyond this many entries the keys would need more than 64 MiB, so two rounds.
_ONE_SORT = 1 << 23
_CHUNK = 1 << 20
_FLIP_CHUNK = 1 << 16
_BUCKET_BITS = 8
_HIGH = 1 if sys.byteorder == "little" else 0
# Small replicas drawn together, as they pay mostly for calls; Lanczos takes one at a time (384x384: .25 floors, against
# .45 in batches, whose products are no longer plain matrix-vector ones).
_BATCH_BYTES = 1 << 20
# Up to this side all eigenvalues cost no more than Lanczos (128: .7 and .7 ms, 256: 1.9 and 1.5 ms).
_WHOLE_SIDE = 128


def replica(W: Float[Tensor, "..."], kind: str, rng: np.random.Generator) -> Float[Tensor, "..."]:
    """One draw from a null: a new tensor of W's shape, dtype and device. W is not changed.

    kind: "shuffle" permutes all entries of W, whatever its shape (every permutation equally likely): keeps the
    distribution of entries, kills correlation and row and column scales. "signflip" gives every entry an independent
    random sign: keeps |W_ij| where it stands, kills correlation only. The draw depends on the state of rng and nothing
    else, in particular not on the number of threads. Raises UnknownName, and BadValues for integer or complex entries.

    Source: shuffling as in WeightWatcher's randomize; sign flips are the classical test of symmetry, ours as used here.
    """
    W = torch.as_tensor(W).detach()
    if W.dtype not in _FLOATS:
        raise BadValues("Only floating-point weights are resampled", value=str(W.dtype), allowed="float16 to float64")
    if kind == "shuffle":
        bits = _shuffled(_bits(W), rng)
    elif kind == "signflip":
        bits = _flipped(_bits(W), rng)
    else:
        raise UnknownName("Unknown null", value=kind, allowed=", ".join(KINDS))
    signed = torch.from_numpy(bits.view(np.dtype(f"i{bits.itemsize}")))
    return signed.view(W.dtype).reshape(W.shape).to(W.device)


def _bits(W: Tensor) -> np.ndarray:
    """The entries of W as unsigned integers, flat, in the order of its indices; may share memory with W."""
    flat = W.cpu().reshape(-1)
    signed = {2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    return flat.view(signed).numpy().view(_UNSIGNED[flat.element_size()])


def _flipped(bits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    out = np.empty_like(bits)
    width = 8 * bits.itemsize - 1
    for begin in range(0, bits.size, _FLIP_CHUNK):
        part = bits[begin : begin + _FLIP_CHUNK]
        words = rng.integers(0, 2**64, size=-(-part.size // 64), dtype=np.uint64)
        signs = np.unpackbits(words.view(np.uint8), count=part.size).astype(bits.dtype)
        np.left_shift(signs, bits.dtype.type(width), out=signs)
        np.bitwise_xor(part, signs, out=out[begin : begin + part.size])
    return out


def _shuffled(bits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    seed = int(rng.integers(0, 2**63))
    keys = np.random.Generator(np.random.SFC64(seed))
    if bits.itemsize == 8:
        return bits[keys.permutation(bits.size)]
    if bits.size <= _ONE_SORT:
        return _values(_sorted_pairs(bits, keys), bits.dtype)
    return _shuffled_in_two_rounds(bits, seed, keys)


def _shuffled_in_two_rounds(bits: np.ndarray, seed: int, keys: np.random.Generator) -> np.ndarray:
    """Each entry to one of 256 buckets at random, then each bucket shuffled: exact, 9 to 40 MB beside the result."""
    buckets = 1 << _BUCKET_BITS
    sizes = np.zeros(buckets, dtype=np.int64)
    for begin in range(0, bits.size, _CHUNK):
        drawn = _keys(min(_CHUNK, bits.size - begin), keys)
        sizes += np.bincount(drawn >> np.uint32(32 - _BUCKET_BITS), minlength=buckets)
    ends = np.cumsum(sizes)
    free = ends - sizes
    out = np.empty_like(bits)
    again = np.random.Generator(np.random.SFC64(seed))  # the same buckets as were counted
    cuts = np.arange(1, buckets, dtype=np.uint64) << np.uint64(64 - _BUCKET_BITS)
    for begin in range(0, bits.size, _CHUNK):
        pairs = _sorted_pairs(bits[begin : begin + _CHUNK], again)
        bounds = np.concatenate([[0], np.searchsorted(pairs, cuts), [pairs.size]])
        values = _values(pairs, bits.dtype)
        for bucket in range(buckets):
            part = values[bounds[bucket] : bounds[bucket + 1]]
            out[free[bucket] : free[bucket] + part.size] = part
            free[bucket] += part.size
    for bucket in range(buckets):
        held = slice(ends[bucket] - sizes[bucket], ends[bucket])
        out[held] = _values(_sorted_pairs(out[held], keys), bits.dtype)
    return out


def _keys(size: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 2**64, size=(size + 1) // 2, dtype=np.uint64).view(np.uint32)[:size]


def _sorted_pairs(bits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Values behind random 32-bit keys, sorted. Equal keys (one pair in 4e9) go by value."""
    pairs = np.empty(bits.size, dtype=np.uint64)
    halves = pairs.view(np.uint32)
    halves[_HIGH::2] = _keys(bits.size, rng)
    halves[1 - _HIGH :: 2] = bits
    pairs.sort()
    return pairs


def _values(pairs: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return pairs.astype(dtype)  # unsigned narrowing keeps the low bits


def full_replicas(
    W: Float[Tensor, "..."],
    kind: str,
    count: int,
    seed: int,
    layer: str,
    *,
    spectrum: Spectrum | None = None,
    first: int = 0,
) -> list[Float[np.ndarray, "N"]]:
    """Whole spectra of `count` replicas of a layer, numbered from `first`.

    Each is drawn from `stream(seed, layer, kind, number)`. spectrum: tensor of W's shape -> eigenvalues ascending,
    float64; by default those of W Wᵀ (all of them together where W is a stack [count, h, d]). The whole tensor is
    resampled, never matrix by matrix.
    """
    spectrum = spectrum or pooled
    return [spectrum(replica(W, kind, stream(seed, layer, kind, i))) for i in range(first, first + count)]


def pooled(W: Float[Tensor, "h d"] | Float[Tensor, "count h d"]) -> Float[np.ndarray, "N"]:
    """Eigenvalues of W Wᵀ, or of all matrices of a stack together, ascending, float64."""
    from querist.weights.spectrum import esd

    return esd(W).evals


def top_replicas(
    W: Float[Tensor, "h d"] | Float[Tensor, "count h d"], kind: str, indices: Sequence[int], seed: int, layer: str
) -> Float[np.ndarray, "r"]:
    """Largest eigenvalue only, of the replicas with these indices; the same draws as `full_replicas` makes.

    In float32: by the whole spectrum up to 128 on the shorter side, small matrices together up to 1 MiB of them; by
    Lanczos above.
    """
    stack = W if W.ndim == 3 else W.unsqueeze(0)
    scale = float(stack.abs().max())
    if not indices or scale == 0:
        return np.zeros(len(indices))
    b, side = len(stack), min(stack.shape[-2:])
    size = max(1, _BATCH_BYTES // (4 * stack.numel())) if side <= _WHOLE_SIDE else 1
    tops = []
    for begin in range(0, len(indices), size):
        drawn, starts = [], []
        for index in indices[begin : begin + size]:
            rng = stream(seed, layer, kind, index)
            copy = replica(stack, kind, rng)
            drawn.append(scaled(copy, scale))
            if side > _WHOLE_SIDE:
                starts.append(rng.standard_normal((b, side), dtype=np.float32))
        copies = torch.cat(drawn)
        if side > _WHOLE_SIDE:
            values = top_eigenvalues(copies, torch.from_numpy(np.concatenate(starts)))
            tops.append(values.reshape(len(drawn), b).max(axis=1))
        else:
            X = copies if copies.shape[1] <= copies.shape[2] else copies.mT
            tops.append(largest_of_groups((X @ X.mT).view(len(drawn), b, side, side)))
    return np.concatenate(tops) * scale**2


def top_error(shape: tuple[int, int]) -> float:
    """Relative error that draws of `top_replicas` may have for matrices of this shape."""
    return TOLERANCE * edge_scale(*shape) if min(shape) > _WHOLE_SIDE else 1e-5
