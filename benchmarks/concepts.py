"""The counts behind CAT+ against the nested loop as written down, one-pass audits against plain products, inversion against a search
that scores every literal, and spectral signatures against those of the Adversarial Robustness Toolbox; CUB or its shape.
"""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from benchmarks.peers import peer
from benchmarks.timing import Ratio, budget, cost, gain, seconds
from querist.concepts import (
    ConceptData,
    Trigger,
    association,
    cat,
    cat_plus,
    cat_plus_all,
    fit_head,
    fit_heads,
    invert_discrete,
    pattern_excess,
    poison,
    spectral_signature,
)
from querist.concepts.readers import registered
from querist.errors import SourceNotFound
from querist.statistics import stream, two_sample_auc

SEARCH = "scoring every literal"


def table() -> ConceptData:
    """CUB's training rows where they are at hand, else a table of their shape and density."""
    try:
        return registered("cub-concepts").part("train")
    except SourceNotFound:
        rng = stream(0, "benchmarks", "concepts")
        templates = rng.random((200, 98)) * 0.5
        labels = np.arange(5994) % 200
        return ConceptData((rng.random((5994, 98)) < templates[labels]).astype(np.float32), labels)


def literal(rows: list[list[float]], labels: list[int], target: int, size: int) -> list[tuple[int, int]]:
    """Every (concept, value) tried on every row of another class."""
    others = [row for row, label in zip(rows, labels, strict=True) if label != target]
    picks: list[tuple[int, int]] = []
    for _ in range(size):
        best, chosen = len(others) + 1, (0, 0)
        for i, v in itertools.product(range(len(rows[0])), (0, 1)):
            if i in [a for a, _ in picks]:
                continue
            tried = [*picks, (i, v)]
            cnt = 0
            for row in others:
                for a, b in tried:
                    if row[a] != b:
                        break
                else:
                    cnt += 1
            if cnt < best:
                best, chosen = cnt, (i, v)
        picks.append(chosen)
    return picks


def exhaustive(head: nn.Module, data: ConceptData, code: int, *, beam: int = 4, limit: int = 8) -> int:
    """The size that a beam search finds which sets every literal in turn and asks the whole head about 256 rows."""
    rows = stream(0, "inversion rows").permutation(data.n)[:256]
    x, other = data.concepts[rows], torch.as_tensor(data.codes[rows] != code)
    held: list[tuple[int, ...]] = [()]
    for size in range(1, limit + 1):
        scored: dict[frozenset[int], tuple[float, float, tuple[int, ...]]] = {}
        for parent, literal in itertools.product(held, range(2 * data.k)):
            chosen = (*parent, literal)
            if literal // 2 in {i // 2 for i in parent} or frozenset(chosen) in scored:
                continue
            set_cells = Trigger(tuple(i // 2 for i in chosen), tuple(i % 2 for i in chosen)).apply(x)
            with torch.inference_mode():
                logits = head(torch.as_tensor(set_cells))[other]
                own = logits[:, code].clone()
                hit = float((logits.argmax(dim=1) == code).float().mean())
                logits[:, code] = -torch.inf
                loss = float(nn.functional.softplus(logits.amax(dim=1) - own).mean())
            scored[frozenset(chosen)] = hit, loss, chosen
        if max(hit for hit, *_ in scored.values()) >= 0.9:
            return size
        held = [chosen for _, _, chosen in sorted(scored.values(), key=lambda s: s[1])[:beam]]
    return limit + 1


def inversion(data: ConceptData) -> Iterator[Ratio]:
    """Discrete inversion of a head 98-512-200: seconds of all classes, and beside the search that scores every literal.

    Seconds are those of the process, on one thread: other work on the machine does not count.
    """
    plain, target = data.changed(split=None), data.classes[0]
    planted = poison(
        plain, cat(plain, target, 5, seed=0).trigger, target, 0.01, seed=0
    )  # a class that has a small trigger
    head = fit_head(planted.data, head="mlp:512", seed=0)
    begun = time.process_time()
    found = invert_discrete(head, data)
    spent = time.process_time() - begun
    yield budget("discrete inversion of 200 classes, 98-512-200: over a minute", spent, 60)
    some = list(dict.fromkeys((int(found.norm.argmin()), int(found.norm.argmax()))))
    begun = time.process_time()
    sizes = [exhaustive(head, data, code) for code in some]
    times = {SEARCH: (time.process_time() - begun) / len(some)}
    begun = time.process_time()
    fast = invert_discrete(head, data, classes=[data.classes[code] for code in some])
    times["ours"] = (time.process_time() - begun) / len(some)
    yield gain("discrete inversion of a class: scoring every literal over the shortlist", times, SEARCH, 20)
    extra, size = float(max(fast.size - sizes)), float(max(fast.size))
    what = "discrete inversion: concepts more than scoring every literal finds"
    yield Ratio(what, extra, 1, True, size, size - extra, SEARCH, "concepts")


def signatures(data: ConceptData) -> Iterator[Ratio]:
    """Both on the same 512 activations of each row, class by class; their order within a class is compared first."""
    drawn = stream(0, "benchmarks", "activations")
    h = np.maximum(data.concepts @ drawn.standard_normal((data.k, 512), dtype=np.float32), 0).astype(np.float64)
    name = "Adversarial Robustness Toolbox"
    what = "spectral signatures of 512 activations: over the Toolbox's"
    with peer("spectral_signature", {"activations": h, "codes": data.codes}) as toolbox:
        if not toolbox:
            yield Ratio(what, None, 1, named=name, absent=toolbox.absent)
            return
        theirs, ours = toolbox.numbers("scores"), spectral_signature(h, data.codes)
        # The Toolbox takes |u·h| of rows that are not centred, we (u·(h − mean))²: their square less ours is 2c·projection + c².
        for code in range(data.n_classes):
            rows = np.flatnonzero(data.codes == code)
            at, square = ours.projection[rows], theirs[rows] ** 2
            slope, level = np.polyfit(at, square - at**2, 1)
            assert np.allclose(at**2 + slope * at + level, square, rtol=1e-6), f"class {code}: other directions"
        times = seconds({"ours": lambda: spectral_signature(h, data.codes), name: toolbox.timed("scores")}, rounds=2)
    yield cost(what, times, name, 1)


def counts(data: ConceptData) -> Iterator[Ratio]:
    """CAT+ of one target and of all, after the picks have been found equal."""
    found = cat_plus(data, 0, 3, tie_break="index")
    rows, labels = data.concepts.tolist(), data.codes.tolist()
    assert literal(rows, labels, 0, 3) == list(zip(found.trigger.index, found.trigger.values, strict=True))
    times = seconds({"nested loop": lambda: literal(rows, labels, 0, 3)}, rounds=2)
    times |= seconds({"ours": lambda: cat_plus(data, 0, 3, tie_break="index")}, rounds=25)
    yield gain("CAT+ of one target, 3 concepts: nested loop over kernel", times, "nested loop", 200)

    every = cat_plus_all(data, 20, tie_break="index")
    prefixes = {
        found.trigger.index[:step] + found.trigger.values[:step]
        for found in every
        for step in range(len(found.trigger))
        if step == 0 or found.cnt[step - 1] > 0
    }
    one = np.ones((1, data.n), dtype=np.float32)
    times = seconds(
        {
            "ours": lambda: cat_plus_all(data, 20, tie_break="index"),
            "filter": lambda: cat_plus_all(data, 20),
            "product": lambda: one @ data.concepts,
            "pass": lambda: data.concepts.sum(),
        },
        rounds=3,
    )
    times["plain products"] = len(prefixes) * times["product"] * 20 + 20 * times["pass"]
    what = f"CAT+ of all targets, 20 concepts, {len(prefixes)} prefixes: over plain products"
    yield cost(what, times, "plain products", 4)
    yield budget("CAT+ of all targets, 20 concepts, with the filter: over 5 s", times["filter"], 5)
    tracemalloc.start()
    cat_plus_all(data, 20)
    yield budget("the same: memory beyond the table, over 500 MB", tracemalloc.get_traced_memory()[1] / 1e6, 500, "MB")
    tracemalloc.stop()


def audits(data: ConceptData) -> Iterator[Ratio]:
    """Detectors of a table that need one pass."""
    one = np.ones((1, data.n), dtype=np.float32)
    member = np.eye(data.n_classes, dtype=np.float32)[data.codes]
    times = seconds(
        {
            "association": lambda: association(data),
            "pattern": lambda: pattern_excess(data),
            "product of memberships": lambda: member.T @ data.concepts,
            "products of a row": lambda: one @ data.concepts,
        }
    )
    what = "association of every class: over one product of memberships"
    yield cost(what, times, "product of memberships", 3, ours="association")
    times["products of a row"] *= 5 * data.n_classes
    what = "pattern excess, 5 steps: over 5 products a class"
    yield cost(what, times, "products of a row", 2, ours="pattern")
    a, b = data.concepts[data.codes < 10], data.concepts[(data.codes >= 10) & (data.codes < 20)]
    times = seconds(
        {
            "ours": lambda: two_sample_auc(a, b, permutations=999),
            "one permutation": lambda: two_sample_auc(a, b, permutations=1),
        }
    )
    yield cost("two-sample AUC: 999 permutations over one", times, "one permutation", 10)


def stacked(data: ConceptData) -> Iterator[Ratio]:
    """Heads trained side by side."""
    part = data.subset(np.arange(0, data.n, 3)).changed(split=None)
    options = {"head": "mlp:64", "seed": 0, "epochs": 2}
    times = seconds(
        {
            "ours": lambda: fit_heads([part] * 32, **options),
            "one by one": lambda: [fit_head(part, **options) for _ in range(32)],
        },
        rounds=1,
    )
    yield cost("32 heads stacked, on a CPU: over one by one", times, "one by one", 1)


def ratios() -> Iterator[Ratio]:
    """Counts, audits, signatures, inversion, stacks, all of one table."""
    data = table()
    for part in (counts, audits, signatures, inversion, stacked):
        yield from part(data)
