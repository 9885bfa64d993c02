"""Losses that rooms share: weighted sums for `fit`, and distances between groups inside a batch.

Sources: sliced Wasserstein, Bonneel et al. (J. Math. Imaging Vis. 2015); maximum mean discrepancy, Gretton et al. (JMLR
2012); both as penalties between treatment groups, Shalit, Johansson and Sontag (ICML 2017).
"""

from __future__ import annotations

import functools
import math
from typing import Literal

import torch
from torch.nn import functional

from querist.errors import BadOption, BadValues, ShapeMismatch, TooFewRows
from querist.statistics.streams import torch_seed

__all__ = [
    "balance",
    "binary_cross_entropy",
    "cross_entropy",
    "mmd",
    "sliced_wasserstein",
    "squared_error",
    "weighted_sum",
]

Distance = Literal["wasserstein", "mmd-linear", "mmd-rbf"]

# ---------------------------------------------------------------------------------------------------- weighted sums


def weighted_sum(values: torch.Tensor, weight: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(Σ wᵢ vᵢ, Σ wᵢ) of values [n, ...] and weights that broadcast to them; None weighs every entry 1.

    Entries of weight 0 are left out, whatever their value. Half precisions are summed in float32. Raises ShapeMismatch,
    and BadValues for a weight that is negative or NaN.
    """
    values = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
    if weight is None:
        return values.sum(), torch.tensor(float(values.numel()), device=values.device, dtype=values.dtype)
    weight = _weight(weight, values)
    return torch.where(weight > 0, values * weight, 0.0).sum(), weight.sum()


def _weight(weight: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    weight = torch.as_tensor(weight, device=values.device).to(values.dtype)
    while 0 < weight.ndim < values.ndim and weight.shape == values.shape[: weight.ndim]:
        weight = weight.unsqueeze(-1)  # one weight per row of values [n, ...]
    try:
        weight = weight.expand(values.shape)
    except RuntimeError:
        raise ShapeMismatch(
            "Weights do not fit the values",
            value=f"{tuple(weight.shape)} for {tuple(values.shape)}",
            allowed="one per row or entry",
        ) from None
    if not bool((weight >= 0).all()):
        raise BadValues("A weight is negative or missing", value=float(weight.min()), allowed="weights >= 0")
    return weight.detach()


def squared_error(
    prediction: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sum of squared errors, and of weights; predictions and targets have one shape [n, ...].

    What has weight 0 may be missing (NaN): it adds nothing to the sum and nothing to the gradient. Raises ShapeMismatch.
    """
    prediction, target = _both(prediction, target)
    prediction, target = _present(prediction, target, weight)
    return weighted_sum((prediction - target) ** 2, weight)


def binary_cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sum of binary cross-entropies in nats, and of weights; logits and targets in [0, 1] of one shape [n, ...].

    What has weight 0 may be missing, as in `squared_error`. Raises ShapeMismatch.
    """
    logits, target = _both(logits, target)
    logits, target = _present(logits, target, weight)
    return weighted_sum(functional.binary_cross_entropy_with_logits(logits, target, reduction="none"), weight)


def cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sum of cross-entropies in nats, and of weights; logits [n, classes], targets [n] of class numbers.

    weight [n]; rows of weight 0 may have any target. Raises ShapeMismatch.
    """
    if logits.ndim != 2 or target.shape != logits.shape[:1]:
        raise ShapeMismatch(
            "Logits and classes do not fit",
            value=f"{tuple(logits.shape)}, {tuple(target.shape)}",
            allowed="[n, classes] and [n]",
        )
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    if weight is not None:
        used = _weight(weight, target.to(logits.dtype)) > 0
        logits = torch.where(used[:, None], logits, 0.0)
        target = torch.where(used, target, torch.zeros_like(target))
    return weighted_sum(functional.cross_entropy(logits, target.long(), reduction="none"), weight)


def _both(prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if prediction.shape != target.shape:
        raise ShapeMismatch(
            "Predictions and targets have different shapes",
            value=f"{tuple(prediction.shape)}, {tuple(target.shape)}",
            allowed="one shape",
        )
    prediction = prediction.float() if prediction.dtype in (torch.float16, torch.bfloat16) else prediction
    return prediction, target.to(prediction.dtype)


def _present(
    prediction: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both without what has no weight. Here and not after the loss: the gradient of a masked NaN is NaN."""
    if weight is None:
        return prediction, target
    used = _weight(weight, prediction) > 0
    return torch.where(used, prediction, 0.0), torch.where(used, target, 0.0)


# -------------------------------------------------------------------------------------------- distances in a batch


def sliced_wasserstein(
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    weight_x: torch.Tensor | None = None,
    weight_y: torch.Tensor | None = None,
    p: float = 2.0,
    directions: int = 64,
    seed: int | None = 0,
) -> torch.Tensor:
    """Mean over random directions of W_p^p between the projections of x [n, d] and y [m, d]; differentiable.

    The one-dimensional distance is exact for any n, m and weights [n], [m] (normalised here): quantile functions are
    compared on every piece on which both are constant. The p-th power is returned, since the root has no finite gradient
    where the two agree. Directions are uniform on the sphere, the same in every call with one seed; seed None draws them
    from torch's global generator, which `fit` seeds and keeps in its checkpoints. With d = 1 there is one direction.

    Raises ShapeMismatch, TooFewRows, BadOption.
    """
    _pair(x, y, 1)
    if not 1 <= p < math.inf:
        raise BadOption("The order of the distance is out of range", value=p, allowed="p >= 1")
    if type(directions) is not int or directions < 1:
        raise BadOption("At least one direction is needed", value=directions, allowed="directions >= 1")
    axes = _directions(x.shape[1], directions, seed).to(x.device, x.dtype)
    a, cum_a = _quantiles(x @ axes, weight_x)
    b, cum_b = _quantiles(y @ axes, weight_y)
    # Between two neighbouring levels of either distribution both quantile functions are constant.
    levels = torch.cat([cum_a, cum_b], dim=1).sort(dim=1).values
    below = torch.cat([torch.zeros_like(levels[:, :1]), levels[:, :-1]], dim=1)
    middle = ((below + levels) / 2).contiguous()
    i = torch.searchsorted(cum_a, middle).clamp(max=a.shape[1] - 1)
    j = torch.searchsorted(cum_b, middle).clamp(max=b.shape[1] - 1)
    gap = (a.gather(1, i) - b.gather(1, j)).abs()
    cost = gap if p == 1 else gap**2 if p == 2 else gap**p
    return ((levels - below) * cost).sum(dim=1).mean()


def _quantiles(projected: torch.Tensor, weight: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Sorted values [directions, n] and the cumulative weight at each, ending at 1."""
    values, order = projected.T.sort(dim=1)
    n = values.shape[1]
    if weight is None:
        levels = torch.arange(1, n + 1, device=values.device, dtype=values.dtype) / n
        return values, levels.expand(values.shape[0], n).contiguous()
    weight = _group_weight(weight, n, values)
    levels = (weight / weight.sum())[order].cumsum(dim=1)
    return values, (levels / levels[:, -1:]).contiguous()


@functools.lru_cache(maxsize=16)
def _seeded_directions(d: int, count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(torch_seed(seed, "sliced-wasserstein", d, count))
    return _unit(torch.randn(d, count, generator=generator, dtype=torch.float64))


def _directions(d: int, count: int, seed: int | None) -> torch.Tensor:
    if d == 1:
        return torch.ones(1, 1, dtype=torch.float64)
    if seed is None:
        return _unit(torch.randn(d, count, dtype=torch.float64))
    return _seeded_directions(d, count, seed)


def _unit(drawn: torch.Tensor) -> torch.Tensor:
    return drawn / drawn.norm(dim=0, keepdim=True)


def mmd(
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    kernel: Literal["rbf", "linear"] = "rbf",
    bandwidth: float | torch.Tensor | None = None,
    biased: bool = True,
    weight_x: torch.Tensor | None = None,
    weight_y: torch.Tensor | None = None,
) -> torch.Tensor:
    """Squared maximum mean discrepancy between x [n, d] and y [m, d]; differentiable.

    kernel: "linear", k = a·b, the squared distance of the means when biased; "rbf", k = exp(-|a - b|²/(2 bandwidth²)), the
    bandwidth by default the median distance between rows of both together, without gradient. biased: the V-statistic,
    never negative; otherwise the U-statistic, which leaves out the pairs of a row with itself and may be. Weights [n],
    [m] are normalised here; the U-statistic of weights divides by 1 - Σ wᵢ².

    Raises ShapeMismatch, TooFewRows (unbiased: two rows of positive weight in each), BadOption.
    """
    _pair(x, y, 1 if biased else 2)
    if kernel not in ("rbf", "linear"):
        raise BadOption("No such kernel", value=kernel, allowed="rbf, linear")
    a = _normal(weight_x, x)
    b = _normal(weight_y, y)
    if not biased and (int((a > 0).sum()) < 2 or int((b > 0).sum()) < 2):
        raise TooFewRows(
            "The unbiased estimate needs two rows with weight in each group", value=1, allowed="at least 2"
        )
    if kernel == "linear":
        mean_x, mean_y = a @ x, b @ y
        if biased:
            return ((mean_x - mean_y) ** 2).sum()
        own = (_off(mean_x @ mean_x, (x**2).sum(1), a)) + _off(mean_y @ mean_y, (y**2).sum(1), b)
        return own - 2 * (mean_x @ mean_y)
    xx, yy, xy = _squares(x, x), _squares(y, y), _squares(x, y)
    scale = _bandwidth(bandwidth, xx, yy, xy)
    kxx, kyy, kxy = (torch.exp(-part / (2 * scale**2)) for part in (xx, yy, xy))
    sum_x, sum_y = a @ kxx @ a, b @ kyy @ b
    if not biased:
        sum_x, sum_y = _off(sum_x, kxx.diagonal(), a), _off(sum_y, kyy.diagonal(), b)
    return sum_x + sum_y - 2 * (a @ kxy @ b)


def _off(whole: torch.Tensor, diagonal: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A weighted mean of kernel values without the diagonal."""
    return (whole - (weight**2 * diagonal).sum()) / (1 - (weight**2).sum())


def _squares(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Squared distances [n, m]; rows are centred first, so that less is lost where a - 2b + c cancels."""
    centre = x.detach().mean(0)
    x, y = x - centre, y - centre
    squares = (x**2).sum(1)[:, None] + (y**2).sum(1)[None, :] - 2 * x @ y.T
    return squares.clamp(min=0)


def _bandwidth(
    given: float | torch.Tensor | None, xx: torch.Tensor, yy: torch.Tensor, xy: torch.Tensor
) -> torch.Tensor:
    if given is not None:
        scale = torch.as_tensor(given, device=xy.device, dtype=xy.dtype)
        if scale.numel() != 1 or not 0 < float(scale) < math.inf:
            raise BadOption("The bandwidth is out of range", value=given, allowed="one positive number")
        return scale
    with torch.no_grad():
        n, m = xy.shape
        upper = [part[tuple(torch.triu_indices(k, k, 1))] for part, k in ((xx, n), (yy, m))]
        squares = torch.cat([*upper, xy.reshape(-1)])
        scale = squares.median().sqrt()
        return torch.where(scale > 0, scale, torch.ones_like(scale))


def _normal(weight: torch.Tensor | None, rows: torch.Tensor) -> torch.Tensor:
    n = rows.shape[0]
    if weight is None:
        return torch.full((n,), 1 / n, device=rows.device, dtype=rows.dtype)
    weight = _group_weight(weight, n, rows)
    return weight / weight.sum()


def _group_weight(weight: torch.Tensor, n: int, like: torch.Tensor) -> torch.Tensor:
    weight = torch.as_tensor(weight, device=like.device).to(like.dtype).detach()
    if weight.shape != (n,):
        raise ShapeMismatch("A group has one weight per row", value=tuple(weight.shape), allowed=f"({n},)")
    if bool((weight < 0).any()) or not bool(weight.sum() > 0):
        raise BadValues(
            "A group has no usable weights", value=weight.tolist()[:5], allowed="weights >= 0, not all of them 0"
        )
    return weight


def _pair(x: torch.Tensor, y: torch.Tensor, least: int) -> None:
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        raise ShapeMismatch(
            "Two groups of rows do not fit", value=f"{tuple(x.shape)}, {tuple(y.shape)}", allowed="[n, d] and [m, d]"
        )
    if min(x.shape[0], y.shape[0]) < least:
        raise TooFewRows(
            "A group has too few rows", value=min(x.shape[0], y.shape[0]), allowed=f"at least {least} in each group"
        )


def balance(
    features: torch.Tensor,
    group: torch.Tensor,
    *,
    reference: int = 0,
    distance: Distance = "wasserstein",
    least: int = 2,
    weight: torch.Tensor | None = None,
    **options: float | int | bool | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """How far each group of a batch is from the reference group, as a (sum, weight) term of a loss.

    features [n, d], group [n] of whole numbers. Each group's distance counts with its number of rows; groups of fewer
    than `least` rows of positive weight in this batch, and a batch without that many of the reference, add nothing.
    distance: "wasserstein" (`sliced_wasserstein`), "mmd-rbf" or "mmd-linear" (`mmd`), with their options; weight [n].

    The term is no sum over rows: in several processes or micro-batches it is the mean of the shares' distances, each
    biased upwards by its size, and not the distance of the whole batch.
    """
    if features.ndim != 2 or group.shape != features.shape[:1]:
        raise ShapeMismatch(
            "Features and groups do not fit",
            value=f"{tuple(features.shape)}, {tuple(group.shape)}",
            allowed="[n, d] and [n]",
        )
    if distance not in ("wasserstein", "mmd-rbf", "mmd-linear"):
        raise BadOption("No such distance", value=distance, allowed="wasserstein, mmd-rbf, mmd-linear")
    features = features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
    used = torch.ones_like(group, dtype=torch.bool) if weight is None else weight > 0
    whole, count = features.sum() * 0.0, 0
    base = used & (group == reference)
    for other in group[used].unique().tolist() if int(base.sum()) >= least else []:
        rows = used & (group == other)
        size = int(rows.sum())
        if other == reference or size < least:
            continue
        both = (
            {"weight_x": None, "weight_y": None}
            if weight is None
            else {"weight_x": weight[rows], "weight_y": weight[base]}
        )
        made = {**both, **options}
        if distance == "wasserstein":
            value = sliced_wasserstein(features[rows], features[base], **made)  # pyright: ignore[reportArgumentType]
        else:
            kernel = "rbf" if distance == "mmd-rbf" else "linear"
            value = mmd(features[rows], features[base], kernel=kernel, **made)  # pyright: ignore[reportArgumentType]
        whole, count = whole + size * value, count + size
    return whole, torch.tensor(float(count), device=features.device, dtype=features.dtype)
