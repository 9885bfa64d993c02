"""The power-law fit against WeightWatcher's loop, against a literal search, and against the floor it stands beside.

WeightWatcher is used where it can be imported. Where it cannot, the literal search below stands for it: the same work for every
candidate (a sum of logarithms, a power, a maximum over the tail), as one reads it in the method's definition.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator

import numpy as np
import torch

from benchmarks.timing import Ratio, seconds
from querist.sources.datasets.matrices import gaussian
from querist.statistics import stream
from querist.weights.fits import fit_powerlaw

SIZES = (1000, 4096, 10_000)
TARGETS = {"light": (20, 100, 100), "Pareto": (10, 12, 7)}
FLOOR_SHAPE = (384, 1536)
TIMES = 20


def ratios() -> Iterator[Ratio]:
    """How many times faster than the loop the whole fit is, interval included; then its share of the floor."""
    name, loop = peer()
    for kind, targets in TARGETS.items():
        for n, target in zip(SIZES, targets, strict=True):
            x = sample(kind, n)
            contenders = {"ours": repeated(lambda x=x: fit_powerlaw(x)), name: lambda x=x: loop(x)}
            if loop is not literal:
                contenders["literal search"] = lambda x=x: literal(x)
            times = seconds(contenders, rounds=5 if n < 10_000 else 2)
            for other in list(contenders)[1:]:
                faster = times[other] / (times["ours"] / TIMES)
                yield Ratio(f"CSN, {kind}, N={n}: {other} over ours", faster, target, most=False)
    yield from against_floor()


def against_floor() -> Iterator[Ratio]:
    """Shares of a float64 Gram matrix and its eigenvalues."""
    W = torch.from_numpy(gaussian(*FLOOR_SHAPE)).double()
    evals = torch.linalg.eigvalsh(W @ W.T).numpy()

    times = seconds(
        {
            "floor": lambda: torch.linalg.eigvalsh(W @ W.T),
            "fit": repeated(lambda: fit_powerlaw(evals)),
            "ratios": repeated(lambda: fit_powerlaw(evals, alternatives="default")),
            "hill": repeated(lambda: fit_powerlaw(evals, method="hill")),
        },
        rounds=7,
    )
    floor = times["floor"] * TIMES / 100
    shape = "x".join(str(side) for side in FLOOR_SHAPE)
    # The reference is 1.6 % for the fit on MiniLM's matrices and 3 % for both ratios, on a machine with a longer floor.
    yield Ratio(f"CSN fit, Gaussian {shape}: % of the floor", times["fit"] / floor, 2.5)
    yield Ratio(f"Default ratios, Gaussian {shape}: % of the floor", (times["ratios"] - times["fit"]) / floor, 3)
    yield Ratio(f"Hill, Gaussian {shape}: % of the floor", times["hill"] / floor, 2)


def repeated(fit: Callable[[], object]) -> Callable[[], object]:
    """TIMES fits in a row, as a scan makes them: one alone is over before the caches are warm."""
    return lambda: [fit() for _ in range(TIMES)]


def sample(kind: str, n: int) -> np.ndarray:
    """Ascending values: eigenvalues of a Gaussian matrix of q = 2/3, or a Pareto sample of density exponent 2.5."""
    if kind == "Pareto":
        return np.sort(stream(0, "benchmark", "pareto", n).random(n) ** (-1 / 1.5))
    side = min(n, 1000)
    W = gaussian(side, 3 * side // 2).astype(np.float64)
    evals = torch.linalg.eigvalsh(torch.from_numpy(W @ W.T)).numpy()
    if side == n:
        return evals
    # The spectrum of a larger matrix costs minutes; quantiles of this one have its shape, and noise keeps them apart.
    noise = 1 + 1e-3 * stream(0, "benchmark", "noise", n).standard_normal(n)
    return np.sort(np.interp((np.arange(n) + 0.5) / n, (np.arange(side) + 0.5) / side, evals) * noise)


def peer() -> tuple[str, Callable[[np.ndarray], object]]:
    """WeightWatcher's fitting class, silenced, or the literal search."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            from weightwatcher.WW_powerlaw import WWFit
        except ImportError:
            return "literal search", literal
    return "WeightWatcher", WWFit


def literal(x: np.ndarray) -> tuple[float, float, float]:
    """(xmin, alpha, D) by the definition: every value in turn."""
    logs = np.log(x)
    best = (np.nan, np.nan, np.inf)
    for i in range(x.size - 1):
        m = x.size - i
        alpha = 1 + m / (logs[i:].sum() - m * logs[i])
        D = float(np.abs(1 - (x[i:] / x[i]) ** (1 - alpha) - np.arange(m) / m).max())
        if best[2] > D:
            best = (float(x[i]), float(alpha), D)
    return best
