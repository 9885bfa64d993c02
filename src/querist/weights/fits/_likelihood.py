"""Other laws for the same tail, each at its exact maximum likelihood, and the tests between them."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from querist.errors import BadOption

__all__ = ["ALTERNATIVES", "truncated_exponent", "vuong"]

ALTERNATIVES = ("exponential", "lognormal", "truncated", "stretched")
NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)


def vuong(tail: Float[np.ndarray, "m"], alpha: float, xmin: float, alternative: str) -> tuple[float, float]:
    """(statistic, p) of the power law against another law on the values from xmin on.

    For "exponential", "lognormal" and "stretched" Vuong's normalised log likelihood ratio, positive where the power law
    fits better, with its two-sided normal p. For "truncated" (x^−α e^−λx, of which the power law is a member) the plain log
    likelihood ratio, never positive, with half of a χ²₁ as its null.

    Source: Vuong (1989); Clauset, Shalizi & Newman (2009), appendix C. The maxima are exact: closed form, one scalar bisected,
    or Newton on sufficient statistics.
    """
    logs = np.log(tail / xmin)
    power = math.log(alpha - 1) - math.log(xmin) - alpha * logs
    if alternative == "truncated":
        gain = _truncated(tail / xmin, logs, alpha)
        return -gain, 0.5 * math.erfc(math.sqrt(gain))
    if alternative == "exponential":
        rate = 1.0 / max(float(tail.mean()) - xmin, 1e-300)
        other = math.log(rate) - rate * (tail - xmin)
    elif alternative == "lognormal":
        other = _lognormal(logs) - math.log(xmin) - logs
    elif alternative == "stretched":
        other = _stretched(tail / xmin) - math.log(xmin)
    else:
        raise BadOption("No such alternative to a power law", value=alternative, allowed=", ".join(ALTERNATIVES))
    ratio = power - other
    spread = float(ratio.std())
    if spread <= 1e-12 * max(1.0, float(np.abs(ratio).max())):
        return 0.0, 1.0
    statistic = float(ratio.sum()) / (spread * math.sqrt(ratio.size))
    return statistic, math.erfc(abs(statistic) / math.sqrt(2))


def _mills(h: float) -> float:
    """φ(h)/(1 − Φ(h)); by its continued fraction where the tail underflows."""
    if h < 25:
        return math.sqrt(2 / math.pi) * math.exp(-h * h / 2) / math.erfc(h / math.sqrt(2))
    return h + 1 / (h + 2 / (h + 3 / (h + 4 / h)))


def _lognormal(logs: np.ndarray) -> np.ndarray:
    """Log density of ln(x/xmin) under the normal truncated at 0 that has the sample's mean and variance: the maximum.

    With h = −μ/σ the ratio variance/mean² rises in h from 0 to 1 (its limit, an exponential of logs, is the power law
    itself): one bisection. A sample with a larger ratio has its maximum at that limit.
    """
    mean, variance = float(logs.mean()), float(logs.var())
    target = variance / mean**2
    if target >= 1 - 1e-9:
        return -math.log(mean) - logs / mean
    low, high = -40.0, 1e4

    def ratio(h: float) -> float:
        mills = _mills(h)
        gap = mills - h
        return (1 - mills * gap) / gap**2

    if target <= ratio(low):
        sigma = math.sqrt(variance) if variance > 0 else 1e-12
        return -0.5 * ((logs - mean) / sigma) ** 2 - math.log(sigma * math.sqrt(2 * math.pi))
    for _ in range(80):
        middle = (low + high) / 2
        if ratio(middle) < target:
            low = middle
        else:
            high = middle
        if high - low < 1e-10 * max(1.0, abs(high)):
            break
    h = (low + high) / 2
    sigma = mean / (_mills(h) - h)
    # φ((y − μ)/σ)/σ over the truncated mass: with y/σ = z, −z²/2 − hz, and ln of φ(h)/(1 − Φ(h)) = ln mills.
    z = logs / sigma
    return math.log(_mills(h)) - math.log(sigma) - h * z - z * z / 2


def _stretched(x: np.ndarray) -> np.ndarray:
    """Log density of x = value/xmin under βλ x^(β−1) e^(−λ(x^β − 1)); λ is closed given β, and β is found by golden section."""
    logs = np.log(x)
    total = float(logs.sum())

    def profile(log_beta: float) -> float:
        beta = math.exp(log_beta)
        excess = float(np.expm1(beta * logs).sum())
        return x.size * (log_beta - math.log(excess / x.size)) + (beta - 1) * total - x.size

    low, high = math.log(1e-3), math.log(min(20.0, 600.0 / max(float(logs[-1] if logs.size else 1.0), 1e-9)))
    golden = (math.sqrt(5) - 1) / 2
    a, b = high - golden * (high - low), low + golden * (high - low)
    fa, fb = profile(a), profile(b)
    while high - low > 1e-7:
        if fa > fb:
            high, b, fb = b, a, fa
            a = high - golden * (high - low)
            fa = profile(a)
        else:
            low, a, fa = a, b, fb
            b = low + golden * (high - low)
            fb = profile(b)
    beta = math.exp((low + high) / 2)
    grown = np.expm1(beta * logs)
    rate = x.size / float(grown.sum())
    return math.log(beta * rate) + (beta - 1) * logs - rate * grown


def _log_normaliser(a: float, rate: float) -> tuple[float, np.ndarray]:
    """ln ∫₁^∞ x^−a e^−rx dx and the moments (E ln x, E x, their second moments) under it, in y = ln x on 48 points."""
    # The integrand e^(−(a−1)y − r e^y) is below 1e-17 of its start beyond the smaller of both decay lengths.
    end = min(40.0 / max(a - 1, 1e-3), math.log(40.0 / rate + 1.0) if rate > 0 else math.inf, 60.0)
    pieces = max(1, math.ceil(end / 4))
    width = end / pieces
    y = np.concatenate([(NODES + 1) * width / 2 + i * width for i in range(pieces)])
    w = np.tile(WEIGHTS * width / 2, pieces)
    x = np.exp(y)
    exponent = -(a - 1) * y - rate * (x - 1)
    mass = w * np.exp(exponent)
    total = float(mass.sum())
    mass = mass / total
    my, mx = float(mass @ y), float(mass @ x)
    second = np.array([mass @ (y * y) - my * my, mass @ (x * y) - mx * my, mass @ (x * x) - mx * mx])
    return math.log(total) - rate, np.array([my, mx, *second])


def _truncated(x: np.ndarray, logs: np.ndarray, alpha: float) -> float:
    """Gain in log likelihood of x^−a e^−λx over the power law with its own best exponent, x in units of xmin; at least 0."""
    n, my, mx = x.size, float(logs.mean()), float(x.mean())
    base = n * (math.log(alpha - 1) - alpha * my)

    def value(a: float, rate: float) -> tuple[float, np.ndarray]:
        log_z, moments = _log_normaliser(a, rate)
        return n * (-a * my - rate * mx - log_z), moments

    a, rate = alpha, 0.1 / mx
    best, moments = value(a, rate)
    for _ in range(60):
        gradient = np.array([moments[0] - my, moments[1] - mx])
        hessian = np.array([[moments[2], moments[3]], [moments[3], moments[4]]])
        step = np.linalg.lstsq(hessian, gradient, rcond=1e-12)[0]
        size = 1.0
        while size > 1e-6:
            trial_rate = rate + size * step[1]
            trial_rate = trial_rate if trial_rate > 0 else rate / 10
            trial, trial_moments = value(a + size * step[0], trial_rate)
            if trial > best:
                break
            size /= 2
        else:
            break
        moved = abs(trial - best)
        a, rate, best, moments = a + size * step[0], trial_rate, trial, trial_moments
        if moved < 1e-10 * n or rate < 1e-12:
            break
    return max(0.0, float(best - base))


def truncated_exponent(tail: Float[np.ndarray, "m"], xmin: float, xmax: float) -> float:
    """Maximum likelihood exponent of a power law on [xmin, xmax]; any real number, also at or below 1.

    The mean of ln(x/xmin) is that of an exponential truncated at L = ln(xmax/xmin), a falling function of α: bisected.
    """
    if xmax <= xmin:
        raise BadOption("xmax must exceed xmin", value=xmax, allowed=f"above {xmin:g}")
    span = math.log(xmax / xmin)
    mean = float(np.log(tail / xmin).mean())

    def expected(rate: float) -> float:
        z = rate * span
        if abs(z) < 1e-6:
            return span * (0.5 - z / 12)
        return 1 / rate - span / math.expm1(z) if z < 700 else 1 / rate

    low, high = -600.0 / span, 600.0 / span
    for _ in range(200):
        middle = (low + high) / 2
        if expected(middle) > mean:
            low = middle
        else:
            high = middle
    return 1 + (low + high) / 2
