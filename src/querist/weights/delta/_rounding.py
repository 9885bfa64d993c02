"""How far two stored copies of one matrix can lie apart: what a change must exceed to be one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from querist.weights.spectrum import Blocks, row_blocks

__all__ = ["Stored", "faint_edge", "rounding", "stored"]

_NARROWER = {
    torch.float64: (torch.bfloat16, torch.float16, torch.float32),
    torch.float32: (torch.bfloat16, torch.float16),
}
_BLOCK_EPS = {"q8_0": 2 * math.sqrt(32) / 254}
"""Numbers of block formats: a block of 32 has steps of max/127, and its max is at most √32 times its root mean square."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The number format that a matrix's entries fit into: `name`, its `eps` (distance from 1 to the next number), and the
    distance between its smallest numbers."""

    name: str
    eps: float
    smallest: float


def stored(W: Tensor | Blocks, dtype: str) -> Stored:
    """The narrowest of float32, float16 and bfloat16 that holds every entry, or the format `dtype` of the file.

    A checkpoint of bfloat16 numbers that was saved again as float32 still has the rounding of bfloat16.
    """
    if dtype in _BLOCK_EPS:
        return Stored(dtype, _BLOCK_EPS[dtype], 0.0)
    own = getattr(torch, dtype, torch.float32)
    candidates = list(_NARROWER.get(own, ()))
    empty = True
    for block in row_blocks(W):
        if not candidates:
            break
        empty = empty and not bool(block.any())
        candidates = [narrow for narrow in candidates if _fits(block, narrow)]
    found = candidates[0] if candidates and not empty else own
    limits = torch.finfo(found if found.is_floating_point else torch.float32)
    return Stored(str(found).removeprefix("torch."), limits.eps, limits.smallest_normal * limits.eps)


def _fits(block: Tensor, narrow: torch.dtype) -> bool:
    flat = block.reshape(-1)
    few = flat[:4096]  # almost always enough to say no
    return bool((few.to(narrow).to(few.dtype) == few).all()) and bool((flat.to(narrow).to(flat.dtype) == flat).all())


def rounding(base: Stored, tuned: Stored, norms: tuple[float, float], entries: int) -> float:
    """The largest ‖ΔW‖_F that rounding to nearest can make: ½eps·‖W‖ for either copy, and half a smallest number per entry.

    Of two copies in one format it is eps·‖W‖. norms: ‖W‖_F of BASE and of TUNED.
    """
    floor = 0.5 * (base.smallest + tuned.smallest) * math.sqrt(entries)
    return 0.5 * (base.eps * norms[0] + tuned.eps * norms[1]) + floor


def faint_edge(size: float, shape: tuple[int, int]) -> float:
    """Largest singular value of independent errors of Frobenius norm `size`: size·(1/√h + 1/√d)."""
    h, d = shape
    return size * (1 / math.sqrt(h) + 1 / math.sqrt(d))
