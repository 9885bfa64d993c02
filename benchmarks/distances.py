"""Distances against the sorts, products and eigenvalues they cannot do without, and against scipy and POT.

Every contender's number is compared before it is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import ot
from scipy.stats import wasserstein_distance

from benchmarks.timing import Ratio, budget, cost, gain, seconds
from querist.features import gaussian_w2, per_unit_wasserstein, sliced_wasserstein
from querist.features.distances import random_directions
from querist.features.profile import measure
from querist.features.profile._relabelled import relabelled
from querist.statistics import stream

ROWS, UNITS, PROJECTIONS = 10_000, 512, 1000
PERMUTATIONS, IMAGES, LINES, WIDTH = 199, 2000, 500, 64
EQUAL = 1e-6
LIMIT = "two covariances, eigh, eigvalsh"


def ratios() -> Iterator[Ratio]:
    """Ratios to the floors, and how many times faster than each peer."""
    X, Y = sample("x", ROWS, UNITS), (1.1 * sample("y", ROWS, UNITS) + np.float32(0.1)).astype(np.float32)
    yield from per_unit(X, Y)
    yield from sliced(X, Y)
    yield from permutations()
    yield from gaussian(X, Y)


def per_unit(X: np.ndarray, Y: np.ndarray) -> Iterator[Ratio]:
    def floor() -> np.ndarray:
        xs, ys = np.sort(np.ascontiguousarray(X.T)), np.sort(np.ascontiguousarray(Y.T))
        return np.abs(xs - ys).mean(axis=1)

    def scipy_loop() -> np.ndarray:
        return np.array([wasserstein_distance(X[:, j], Y[:, j]) for j in range(UNITS)])

    contenders: dict[str, Callable[[], object]] = {"ours": lambda: per_unit_wasserstein(X, Y, 1), "sorts": floor}
    peers: dict[str, Callable[[], object]] = {
        "scipy loop": scipy_loop,
        "ot.wasserstein_1d": lambda: ot.wasserstein_1d(X, Y, p=1),
    }
    agree(contenders | {"scipy loop": scipy_loop})
    # POT's quantiles of float32 rows are cumulated in float32 and off by more than 1e-6.
    exact = ot.wasserstein_1d(X.astype(np.float64), Y.astype(np.float64), p=1)
    agree({"ours": contenders["ours"], "ot.wasserstein_1d": lambda: exact})
    times = seconds(contenders)
    yield cost("per-unit W1, 512 x 10,000: ours over sorts", times, "sorts", 1.5)
    yield from faster("per-unit W1", contenders["ours"], peers)


def sliced(X: np.ndarray, Y: np.ndarray) -> Iterator[Ratio]:
    theta = random_directions(UNITS, PROJECTIONS, 0).vectors.astype(np.float32)

    def floor() -> float:
        xs, ys = np.sort(theta @ X.T), np.sort(theta @ Y.T)
        return float(np.sqrt(np.mean((xs - ys).astype(np.float64) ** 2)))

    def products() -> None:
        np.sort(theta @ X.T)
        np.sort(theta @ Y.T)

    def ours() -> float:
        random_directions.cache_clear()  # a first call draws its directions
        return sliced_wasserstein(X, Y, projections=PROJECTIONS).value

    columns = np.ascontiguousarray(theta.T)
    exact = ot.sliced_wasserstein_distance(
        X.astype(np.float64), Y.astype(np.float64), projections=columns.astype(float)
    )
    agree(
        {"ours": ours, "floor": floor, "ot.sliced_wasserstein_distance": lambda: exact}
    )  # in float32 it is off by 1e-5
    times = seconds({"ours": ours, "products and sorts": products})
    what = "sliced W2, 10,000 x 512, 1,000 lines: ours over products and sorts"
    yield cost(what, times, "products and sorts", 1.5)
    peer = {"ot.sliced_wasserstein_distance": lambda: ot.sliced_wasserstein_distance(X, Y, projections=columns)}
    yield from faster("sliced W2", ours, peer)


def permutations() -> Iterator[Ratio]:
    S, T = sample("s", IMAGES, WIDTH), sample("t", IMAGES, WIDTH)
    lines = sample("lines", LINES, IMAGES)

    def ours() -> object:
        return relabelled(measure(S, T, projections=LINES), permutations=PERMUTATIONS)

    def floor() -> None:
        for _ in range(PERMUTATIONS):
            np.sort(lines)
            np.sort(lines)

    made = measure(S, T, projections=LINES)
    whole = sliced_wasserstein(S, T, projections=LINES).power
    assert abs(made.power(np.arange(IMAGES), np.arange(IMAGES, 2 * IMAGES)) - whole) <= EQUAL * whole
    times = seconds({"ours": ours, "sorts": floor}, rounds=5)
    yield cost("199 permutations, 500 lines, 2 x 2,000: ours over sorts", times, "sorts", 1.4)
    yield budget("199 permutations, 500 lines, 2 x 2,000: a layer over 15 s", times["ours"], 15)


def gaussian(X: np.ndarray, Y: np.ndarray) -> Iterator[Ratio]:
    x, y = X.astype(np.float64), Y.astype(np.float64)

    def floor() -> None:
        S = np.cov(x.T)
        np.linalg.eigh(S)
        np.cov(y.T)
        np.linalg.eigvalsh(S)

    contenders: dict[str, Callable[[], object]] = {
        "ours": lambda: gaussian_w2(X, Y, ddof=0).value,
        # POT adds 1e-6 to the diagonal unless told not to, and divides by n.
        "POT": lambda: float(ot.gaussian.empirical_bures_wasserstein_distance(x, y, reg=0)),
    }
    agree(contenders)
    contenders[LIMIT] = floor
    times = seconds(contenders)
    yield cost("Gaussian W2, d 512, n 10,000: ours over covariances and eigenvalues", times, LIMIT, 1.2)
    yield cost("Gaussian W2: ours over POT", times, "POT", 1.0)


def faster(what: str, ours: Callable[[], object], peers: dict[str, Callable[[], object]]) -> Iterator[Ratio]:
    """How many times faster than each peer; ten times is the target."""
    for name, peer in peers.items():
        times = seconds({"ours": ours, name: peer}, rounds=2)
        yield gain(f"{what}: {name} over ours", times, name, 10)


def agree(contenders: dict[str, Callable[[], object]]) -> None:
    """All answers equal to 1e-6 of themselves."""
    answers = {name: np.asarray(run(), dtype=np.float64) for name, run in contenders.items()}
    first = next(iter(answers.values()))
    for name, answer in answers.items():
        assert np.allclose(answer, first, rtol=EQUAL, atol=0), f"{name} gives other numbers"


def sample(name: str, n: int, d: int) -> np.ndarray:
    return stream(0, "benchmark", "distances", name).standard_normal((n, d), dtype=np.float32)
