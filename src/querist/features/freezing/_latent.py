"""What a cell's layers hold: A_l, the gap between source and target, and N_l, how far training moved the layer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from querist.errors import InvariantBroken, UndefinedMetric
from querist.features.captured import Capture, CapturedLayer
from querist.features.freezing._blocks import Blocks
from querist.features.normalise import fit_normaliser
from querist.features.profile import Untested, untested, untested_move

__all__ = ["Latent", "check_frozen", "end_layer", "frozen_layers", "latent"]

_NUMBER = re.compile(r"#\d+$")


@dataclass(frozen=True, slots=True)
class Latent:
    """One layer of a cell. move: N_l, between the networks before and after training; gap: A_l, None without source data."""

    layer: str
    index: int
    kind: str
    width: int
    frozen: bool
    n_images: int
    move: Untested
    gap: Untested | None


def frozen_layers(capture: Capture, blocks: Blocks, k: int) -> set[str]:
    """Captured layers whose values exist by the end of block k; the input is one."""
    within = blocks.within(k)
    known = [
        place
        for place, layer in enumerate(capture)
        if layer.kind == "input" or any(_inside(_NUMBER.sub("", layer.name), top) for top in within)
    ]
    return {layer.name for place, layer in enumerate(capture) if known and place <= max(known)}


def _inside(name: str, top: str) -> bool:
    return name == top or name.startswith((f"{top}.", f"{top}:"))


def check_frozen(before: Capture, after: Capture, layers: set[str]) -> None:
    """Raise InvariantBroken unless these layers hold the same values before and after training, bit for bit."""
    for layer in before:
        if layer.name in layers and not np.array_equal(_bits(layer), _bits(after[layer.name])):
            moved = int((_bits(layer) != _bits(after[layer.name])).any(axis=1).sum())
            raise InvariantBroken(
                f"The frozen layer {layer.name} holds other values after training ({moved} of {len(layer.rows)} rows differ): "
                "something in it changes when it runs, such as a norm in training mode"
            )


def _bits(layer: CapturedLayer) -> np.ndarray:
    return np.ascontiguousarray(layer.rows, dtype=np.float32).view(np.uint32)


def latent(
    before: Capture,
    after: Capture,
    source: Capture | None,
    frozen: set[str],
    *,
    projections: int = 200,
    splits: int = 20,
    seed: int = 0,
) -> Iterator[Latent | tuple[str, str]]:
    """A_l and N_l of every layer captured before and after, sliced W₂; or (layer, reason) for one that cannot be measured.

    N_l is in units of the network before training on these images, A_l in units of the network after it on the source.
    """
    options = {"projections": projections, "splits": splits, "seed": seed}
    for layer in before:
        if layer.name not in after.names or (source is not None and layer.name not in source.names):
            yield layer.name, "it was not captured everywhere"
            continue
        moved = after[layer.name]
        try:
            scale = fit_normaliser(layer.rows, "iso")
            move = untested_move(scale(layer.rows), scale(moved.rows), images=layer.images, **options)
            gap = None
            if source is not None:
                base = source[layer.name]
                scale = fit_normaliser(base.rows, "iso")
                gap = untested(scale(base.rows), scale(moved.rows), images=(base.images, moved.images), **options)
        except UndefinedMetric as error:
            yield layer.name, str(error)
            continue
        yield Latent(layer.name, layer.index, layer.kind, layer.width, layer.name in frozen, before.n, move, gap)


def end_layer(capture: Capture, blocks: Blocks, k: int) -> str | None:
    """The deepest captured layer that k frozen blocks hold fast: the input's for k = 0; None where there is none."""
    fixed = frozen_layers(capture, blocks, k)
    return next((layer.name for layer in reversed(capture.layers) if layer.name in fixed), None)
