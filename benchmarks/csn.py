"""The power-law fit against the loops of WeightWatcher and powerlaw, against a literal search, and against the floor it stands beside.

The literal search does the same work for every candidate (a sum of logarithms, a power, a maximum over the tail), as one reads it in
the method's definition.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator

import numpy as np
import torch

from benchmarks.peers import peer
from benchmarks.timing import Ratio, cost, gain, seconds
from querist.sources.datasets.matrices import gaussian
from querist.statistics import stream
from querist.weights.fits import fit_powerlaw

SIZES = (1000, 4096, 10_000)
TARGETS = {"light": (20, 100, 100), "Pareto": (10, 12, 7)}
FLOOR_SHAPE = (384, 1536)
TIMES = 20
LIMIT = "Gram matrix and eigenvalues"


def ratios() -> Iterator[Ratio]:
    """How many times faster than each loop the whole fit is, interval included; then its share of the floor."""
    for kind, targets in TARGETS.items():
        for n, target in zip(SIZES, targets, strict=True):
            yield from against_loops(f"CSN, {kind}, N={n}", sample(kind, n), target)
    yield from against_floor()


def against_loops(what: str, x: np.ndarray, target: float) -> Iterator[Ratio]:
    """Each loop's time over ours, once all have found the same start and exponent."""
    ours = fit_powerlaw(x)
    with peer("weightwatcher", {"evals": x}) as watcher:
        contenders: dict[str, Callable[[], object]] = {
            "ours": repeated(lambda: fit_powerlaw(x)),
            "literal search": lambda: literal(x),
        }
        assert np.allclose(literal(x)[:2], (ours.xmin, ours.alpha), rtol=1e-6)
        # powerlaw looks no further than exponents of 3 unless told, and takes 20 s for 10,000 values.
        if ours.alpha < 3 and x.size < 10_000:
            assert np.allclose(package(x), (ours.xmin, ours.alpha), rtol=1e-6)
            contenders["powerlaw"] = lambda: package(x)
        if watcher:
            assert np.allclose(watcher.numbers("fit"), (ours.alpha, ours.xmin), rtol=1e-6)
            contenders["WeightWatcher"] = watcher.timed("fit")
        times = seconds(contenders, rounds=3 if x.size < 10_000 else 1)
    times["ours"] /= TIMES
    for name in list(contenders)[1:]:
        yield gain(f"{what}: {name} over ours", times, name, target)
    if not watcher:
        yield Ratio(
            f"{what}: WeightWatcher over ours", None, target, False, named="WeightWatcher", absent=watcher.absent
        )


def package(x: np.ndarray) -> tuple[float, float]:
    """(xmin, alpha) by the package powerlaw, whose prints are of no concern here."""
    import powerlaw

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        found = powerlaw.Fit(x, verbose=False).power_law
    return float(found.xmin), float(found.alpha)


def against_floor() -> Iterator[Ratio]:
    """Shares of a float64 Gram matrix and its eigenvalues."""
    W = torch.from_numpy(gaussian(*FLOOR_SHAPE)).double()
    evals = torch.linalg.eigvalsh(W @ W.T).numpy()

    times = seconds(
        {
            LIMIT: lambda: torch.linalg.eigvalsh(W @ W.T),
            "fit": repeated(lambda: fit_powerlaw(evals)),
            "ratios": repeated(lambda: fit_powerlaw(evals, alternatives="default")),
            "hill": repeated(lambda: fit_powerlaw(evals, method="hill")),
        },
        rounds=7,
    )
    times |= {name: spent / TIMES for name, spent in times.items() if name != LIMIT}
    times["ratios"] -= times["fit"]
    shape = "x".join(str(side) for side in FLOOR_SHAPE)
    # The reference is 1.6 % for the fit on MiniLM's matrices and 3 % for both ratios, on a machine with a longer floor.
    yield cost(f"CSN fit, Gaussian {shape}: % of the floor", times, LIMIT, 2.5, ours="fit", scale=100)
    yield cost(f"Default ratios, Gaussian {shape}: % of the floor", times, LIMIT, 3, ours="ratios", scale=100)
    yield cost(f"Hill, Gaussian {shape}: % of the floor", times, LIMIT, 2, ours="hill", scale=100)


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
