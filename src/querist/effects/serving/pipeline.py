"""A fitted model as one module of torch: raw columns in, effects out, every step a tensor operation that can be exported."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from querist.effects.baselines import (
    Affine,
    Constant,
    DRLearner,
    Networks,
    RLearner,
    SLearner,
    Softmax,
    TLearner,
    XLearner,
    mean_from,
    mean_to,
)
from querist.effects.estimator import Estimator
from querist.effects.network import MTMT, Design, Linear, Refit
from querist.errors import BadOption
from querist.sources.rows import Columns
from querist.sources.rows.columns import CLIP, MISSING, UNKNOWN

__all__ = ["OUTPUTS", "Pipeline", "pipeline_of"]

OUTPUTS = ("natural", "base", "incremental", "total")

Found = tuple[torch.Tensor, torch.Tensor]
"""Natural responses [n, K] and total effects [n, M, K], float64."""


class Pipeline(nn.Module):
    """forward(numbers [n, p] float64, codes [n, q] int64) -> natural [n, K], base [n, K], incremental [n, M, K], total [n, M, K].

    numbers: as they stand in the table, NaN where missing; they are standardised, clipped at ±8 and flagged in here. codes: of each
    category 0 where missing, 1 unknown, 2 … its levels; any other number counts as unknown. Columns in the order of the model's
    `columns_.numbers` and `columns_.categories`. Outputs are float64; NaN for what is not estimable. Infinite numbers, which the model
    refuses, are clipped like other large ones.
    """

    mean: torch.Tensor
    sd: torch.Tensor
    levels: torch.Tensor
    lost: torch.Tensor
    null: torch.Tensor
    weights: torch.Tensor

    def __init__(self, model: Estimator, core: nn.Module):
        super().__init__()
        columns = model.columns_
        facts = [columns.facts[name] for name in columns.numbers]
        self.core = core
        self.some_numbers, self.some_codes = bool(facts), bool(columns.categories)
        _keep(
            self,
            mean=np.array([one.mean for one in facts]),
            sd=np.array([one.sd or 1.0 for one in facts]),
            levels=np.array(columns.cardinalities, dtype=np.int64),
        )
        # What of natural responses and effects the fit did not carry, and the weights of the base without it: the model's own rule.
        shape = (len(model.arms_), len(model.outcomes_))
        rest = model._effects(np.zeros((1, shape[1])), np.zeros((1, *shape)), None)
        null = np.isnan(rest.total[0])
        weights = np.where(null, 0.0, model.tier_weights_[:, None])
        whole = weights.sum(axis=0)
        weights = np.divide(weights, whole, out=np.full_like(weights, np.nan), where=whole > 0)
        _keep(self, lost=np.isnan(rest.natural[0]), null=null, weights=weights)

    def forward(self, numbers: torch.Tensor, codes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """See above."""
        missing = torch.isnan(numbers)
        z = numbers.float()
        if self.some_numbers:
            z = ((numbers - self.mean) / self.sd).clamp(-CLIP, CLIP)
            z = torch.where(missing, torch.zeros_like(z), z).float()
        if self.some_codes:
            known = (codes >= MISSING) & (codes < self.levels)
            codes = torch.where(known, codes, torch.full_like(codes, UNKNOWN))
        natural, total = self.core(z, missing, codes)
        nan = torch.full_like(natural, float("nan"))
        natural = torch.where(self.lost, nan, natural)
        gone = torch.zeros_like(total)
        base = (torch.where(self.null, gone, total) * self.weights).sum(1)
        total = torch.where(self.null, nan[:, None].expand_as(total), total)
        return natural, base, total - base[:, None], total


def pipeline_of(model: Estimator) -> Pipeline:
    """The module of a fitted model: MTMT, the networks, meta-learners over linear learners; the model is left as it is.

    Raises BadOption for others, and for a model that is not fitted.
    """
    model._check_fitted()
    core: nn.Module
    if isinstance(model, MTMT):
        core = _Members([net for members in model.networks_ for net in members], model.links_, precise=True)
        if model.refit_ is not None:
            core = _Refitted(core, model.refit_, model.design_)
    elif isinstance(model, Networks):
        core = _Members(model.nets_, model.links_, precise=False)
    elif type(model) in _LINEAR:
        core = _LINEAR[type(model)](model)
    else:
        raise BadOption(
            "This model has no form outside querist",
            value=type(model).__name__,
            allowed="MTMT, a network, or S-, T-, X-, R-, DR-learners over linear learners",
        )
    pipeline = Pipeline(model, core).requires_grad_(False).eval()
    # torch cannot write buffers without elements; nothing is computed from them.
    for module in pipeline.modules():
        for name in [name for name, value in module.named_buffers(recurse=False) if not value.numel()]:
            value = module._buffers.pop(name)
            setattr(module, name, value)
    return pipeline


class _Members(nn.Module):
    """Mean of networks' mean outcomes, and its differences; precise: as MTMT adds up its parts."""

    def __init__(self, nets: Sequence[nn.Module], links: nn.Module, *, precise: bool):
        super().__init__()
        self.nets = nn.ModuleList(copy.deepcopy(net) for net in nets)
        self.links = copy.deepcopy(links)
        self.precise = precise

    def forward(self, z: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> Found:
        found = []
        for net in self.nets:
            asked: Any = net
            latent = asked.precise(z, missing, codes) if self.precise else asked(z, missing, codes).double()
            found.append(self.links(latent))
        response = sum(found[1:], found[0]) / len(found)
        return response[:, 0], response[:, 1:] - response[:, :1]


class _Affine(nn.Module):
    """What `_linear.Linear` says, its standardisation multiplied into the coefficients."""

    coefficients: torch.Tensor
    constant: torch.Tensor

    def __init__(self, part: Linear):
        super().__init__()
        coefficients = part.coefficients / part.scale[:, None]  # an infinite scale takes its column out
        _keep(self, coefficients=coefficients, constant=part.constant - part.centre @ coefficients)

    def forward(self, columns: torch.Tensor) -> torch.Tensor:
        return columns @ self.coefficients + self.constant


class _Refitted(nn.Module):
    """The refit of what the networks say: `Refit.apply`."""

    weights: torch.Tensor

    def __init__(self, core: nn.Module, refit: Refit, design: Design):
        super().__init__()
        self.core, self.method = core, refit.method
        self.parts = nn.ModuleDict({name: _Affine(part) for name, part in refit.parts.items()})
        self.flags, self.shown = list(design.flags), design.levels
        _keep(self, weights=refit.tier_weights)

    def forward(self, z: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> Found:
        natural, total = self.core(z, missing, codes)
        shape = total.shape[1:]
        x = [z.double(), *(missing[:, [k]].double() for k in self.flags)]
        x += [(codes[:, [k]] == code).double() for k, code in self.shown]
        base = (total * self.weights).sum(1)
        if self.method == "flat":
            return natural, total + self.parts["total"](torch.cat([*x, total.flatten(1)], 1)).unflatten(1, shape)
        made = self.parts["base"](torch.cat([*x, base], 1))
        new_base = made if self.method == "slope" else base + made
        if "increments" not in self.parts:
            return natural, new_base[:, None].expand_as(total)
        own = (total - base[:, None]).flatten(1)
        made = self.parts["increments"](torch.cat([*x, own], 1)).unflatten(1, shape)
        return natural, new_base[:, None] + made - (made * self.weights).sum(1)[:, None]


# ---------------------------------------------------------------------------------------------------- linear learners


class _Dense(nn.Module):
    """`Columns.dense` in float64."""

    def __init__(self, columns: Columns):
        super().__init__()
        self.flags = [k for k, name in enumerate(columns.numbers) if columns.facts[name].missing]
        self.shown: list[tuple[int, list[int]]] = []
        for k, name in enumerate(columns.categories):
            first = [MISSING] if columns.facts[name].missing else []
            self.shown.append((k, [*first, *range(UNKNOWN + 1, columns.cardinalities[k])]))
        for k, codes in self.shown:
            self.register_buffer(f"codes{k}", torch.tensor(codes, dtype=torch.long))

    def forward(self, z: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        parts = [z.double(), *(missing[:, [k]].double() for k in self.flags)]
        parts += [(codes[:, [k]] == getattr(self, f"codes{k}")).double() for k, _ in self.shown]
        return torch.cat(parts, 1)


class _Means(nn.Module):
    """Many linear means side by side, each with its link: [n, d] -> [n, C]. A mean that is None is 0 everywhere."""

    coef: torch.Tensor
    intercept: torch.Tensor
    logit: torch.Tensor
    log: torch.Tensor

    def __init__(self, means: Sequence[Affine | None], width: int):
        super().__init__()
        coef = [np.zeros(width) if one is None else one.coef for one in means]
        links = ["identity" if one is None else one.link for one in means]
        _keep(
            self,
            coef=np.stack(coef, axis=1),
            intercept=np.array([0.0 if one is None else one.intercept for one in means]),
            logit=np.array([link == "logit" for link in links]),
            log=np.array([link == "log" for link in links]),
        )
        self.some = {link: link in links for link in ("logit", "log")}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        eta = x @ self.coef + self.intercept
        out = torch.where(self.logit, torch.sigmoid(eta), eta) if self.some["logit"] else eta
        return torch.where(self.log, torch.exp(eta), out) if self.some["log"] else out


class _ByArm(nn.Module):
    """A mean per arm and outcome: T-learners, and S-learners whose arm columns are worked into the coefficients."""

    def __init__(self, model: Any):
        super().__init__()
        means, arms, outcomes = _affine(model), len(model.arms_) + 1, len(model.outcomes_)
        width = len(model.columns_.dense_names)
        if isinstance(model, SLearner):
            means = {
                f"mean/{m}/{k}": _for_arm(means[f"mean/{k}"], m, arms - 1, width, model.crossed_)
                for m in range(arms)
                for k in range(outcomes)
                if f"mean/{k}" in means
            }
        self.shape, self.dense = (arms, outcomes), _Dense(model.columns_)
        self.means = _Means([means.get(f"mean/{m}/{k}") for m in range(arms) for k in range(outcomes)], width)

    def forward(self, z: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> Found:
        response = self.means(self.dense(z, missing, codes)).unflatten(1, self.shape)
        return response[:, 0], response[:, 1:] - response[:, :1]


class _ByEffect(nn.Module):
    """Natural responses, and effects that were learnt as such: R- and DR-learners; of X-learners two, weighed by chances."""

    coef: torch.Tensor
    intercept: torch.Tensor

    def __init__(self, model: Any):
        super().__init__()
        chances = model.means_.get("chances")
        means, width = _affine(model), len(model.columns_.dense_names)
        arms, outcomes = len(model.arms_), len(model.outcomes_)
        self.shape, self.dense = (arms, outcomes), _Dense(model.columns_)

        def of(part: str) -> _Means:
            return _Means([means.get(f"{part}/{m + 1}/{k}") for m in range(arms) for k in range(outcomes)], width)

        self.natural = _Means([means.get(f"natural/{k}") for k in range(outcomes)], width)
        self.crossed = chances is not None
        if isinstance(chances, Softmax):
            self.treated, self.control = of("treated"), of("control")
            _keep(self, coef=chances.coef.T, intercept=chances.intercept)
        else:
            self.effects = of("effect")

    def forward(self, z: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> Found:
        x = self.dense(z, missing, codes)
        if not self.crossed:
            return self.natural(x), self.effects(x).unflatten(1, self.shape)
        e = torch.softmax(x @ self.coef + self.intercept, dim=1)
        chance = (e[:, 1:] / (e[:, :1] + e[:, 1:]))[:, :, None]
        sides = [one(x).unflatten(1, self.shape) for one in (self.treated, self.control)]
        return self.natural(x), (1 - chance) * sides[0] + chance * sides[1]


_LINEAR: Mapping[type, Callable[[Any], nn.Module]] = {
    SLearner: _ByArm,
    TLearner: _ByArm,
    XLearner: _ByEffect,
    RLearner: _ByEffect,
    DRLearner: _ByEffect,
}


def _affine(model: Any) -> dict[str, Affine]:
    """Its means by name, chances left out. Raises BadOption for a learner that is not linear."""
    found = {}
    for name, mean in model.means_.items():
        kept = mean_from(*mean_to(mean))
        if isinstance(kept, Constant):
            kept = Affine(np.zeros(0), kept.value)
        if isinstance(kept, Softmax):
            continue
        if not isinstance(kept, Affine):
            raise BadOption(
                "Only linear learners are exported",
                value=f"{type(model).__name__} with {type(kept).__name__}",
                allowed="linear, logistic, Poisson and gamma regressions, after StandardScalers or none",
                mend="Fit it with such a learner, or score by the model folder",
            )
        found[name] = kept
    width = len(model.columns_.dense_names)
    return {
        name: one if len(one.coef) or isinstance(model, SLearner) else Affine(np.zeros(width), one.intercept)
        for name, one in found.items()
    }


def _for_arm(mean: Affine, m: int, arms: int, width: int, crossed: bool) -> Affine:
    """An S-learner's mean where its arm columns say arm m (0 control): a mean of the features alone."""
    if not len(mean.coef):
        return Affine(np.zeros(width), mean.intercept)
    coef, intercept = mean.coef[:width].copy(), mean.intercept
    if m:
        intercept += float(mean.coef[width + m - 1])
        if crossed:
            start = width + arms + (m - 1) * width
            coef += mean.coef[start : start + width]
    return Affine(coef, intercept, mean.link)


def _keep(module: nn.Module, **arrays: np.ndarray) -> None:
    for name, array in arrays.items():
        module.register_buffer(name, torch.as_tensor(np.ascontiguousarray(array)))
