"""The counts behind CAT+ against the nested loop as written down, and one-pass audits against plain products; CUB or its shape."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from benchmarks.timing import Ratio, seconds
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
)
from querist.concepts.readers import registered
from querist.errors import SourceNotFound
from querist.statistics import stream, two_sample_auc


def table() -> ConceptData:
    """CUB's training rows where they are at hand, else a table of their shape and density."""
    try:
        return registered("cub-concepts").part("train")
    except SourceNotFound:
        rng = stream(0, "benchmarks", "concepts")
        templates = rng.random((200, 98)) * 0.5
        labels = np.arange(5994) % 200
        return ConceptData((rng.random((5994, 98)) < templates[labels]).astype(float), labels)


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
    yield Ratio("discrete inversion of 200 classes, 98-512-200: seconds", spent, 60)
    some = (int(found.norm.argmin()), int(found.norm.argmax()))
    begun = time.process_time()
    sizes = [exhaustive(head, data, code) for code in some]
    slow = (time.process_time() - begun) / len(some)
    begun = time.process_time()
    fast = invert_discrete(head, data, classes=[data.classes[code] for code in some])
    quick = (time.process_time() - begun) / len(some)
    yield Ratio("discrete inversion: scoring every literal over the shortlist", slow / quick, 20, most=False)
    yield Ratio("discrete inversion: concepts more than scoring every literal finds", float(max(fast.size - sizes)), 1)


def ratios() -> Iterator[Ratio]:
    """Ratios on one thread, after the picks have been found equal."""
    data = table()
    found = cat_plus(data, 0, 3, tie_break="index")
    rows, labels = data.concepts.tolist(), data.codes.tolist()
    slow = np.inf  # the faster of two: a pause of the machine does not count for the kernel
    for _ in range(2):
        begun = time.perf_counter()
        picks = literal(rows, labels, 0, 3)
        slow = min(slow, time.perf_counter() - begun)
    assert picks == list(zip(found.trigger.index, found.trigger.values, strict=True))
    fast = seconds({"kernel": lambda: cat_plus(data, 0, 3, tie_break="index")}, rounds=25)["kernel"]
    yield Ratio("CAT+ of one target, 3 concepts: nested loop over kernel", slow / fast, 200, most=False)

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
            "all": lambda: cat_plus_all(data, 20, tie_break="index"),
            "filter": lambda: cat_plus_all(data, 20),
            "product": lambda: one @ data.concepts,
            "pass": lambda: data.concepts.sum(),
        },
        rounds=3,
    )
    plain = len(prefixes) * times["product"] * 20 + 20 * times["pass"]
    yield Ratio(
        f"CAT+ of all targets, 20 concepts, {len(prefixes)} prefixes: over plain products", times["all"] / plain, 4
    )
    yield Ratio("CAT+ of all targets, 20 concepts, with the filter: seconds", times["filter"], 5)
    tracemalloc.start()
    cat_plus_all(data, 20)
    yield Ratio("the same: MB beyond the table", tracemalloc.get_traced_memory()[1] / 1e6, 500)
    tracemalloc.stop()

    member = np.eye(data.n_classes, dtype=np.float32)[data.codes]
    times = seconds(
        {
            "association": lambda: association(data),
            "pattern": lambda: pattern_excess(data),
            "product": lambda: member.T @ data.concepts,
            "row": lambda: one @ data.concepts,
        }
    )
    yield Ratio(
        "association of every class: over one product of memberships", times["association"] / times["product"], 3
    )
    yield Ratio(
        "pattern excess, 5 steps: over 5 products a class", times["pattern"] / (5 * data.n_classes * times["row"]), 2
    )
    a, b = data.concepts[data.codes < 10], data.concepts[(data.codes >= 10) & (data.codes < 20)]
    times = seconds(
        {
            "many": lambda: two_sample_auc(a, b, permutations=999),
            "one": lambda: two_sample_auc(a, b, permutations=1),
        }
    )
    yield Ratio("two-sample AUC: 999 permutations over one", times["many"] / times["one"], 10)
    yield from inversion(data)
    part = data.subset(np.arange(0, data.n, 3)).changed(split=None)
    options = {"head": "mlp:64", "seed": 0, "epochs": 2}
    times = seconds(
        {
            "stack": lambda: fit_heads([part] * 32, **options),
            "serial": lambda: [fit_head(part, **options) for _ in range(32)],
        },
        rounds=1,
    )
    yield Ratio("32 heads stacked, on a CPU: over one by one", times["stack"] / times["serial"], 1)
