"""Full-batch training by hand: gradient descent and Adam, a rate that decays by the step, weight normalisation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from querist.errors import BadOption, UnknownName
from querist.weights.laboratory._teacher import Problem, Sample

__all__ = ["OPTIMIZERS", "State", "first_direction", "gradients", "train"]

OPTIMIZERS = ("gd", "adam")
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


@dataclass(frozen=True, slots=True)
class State:
    """The network after `step` steps. loss, grad_norm: training loss and ‖∂loss/∂W‖_F there.

    update: the last step's change of W, None before the first; before: the weights it was added to (after normalisation).
    finite: whether loss and weights are; where they are not, this is the last state.
    """

    step: int
    W: Float[Tensor, "h d"]
    a: Float[Tensor, "h"]
    loss: float
    grad_norm: float
    update: Float[Tensor, "h d"] | None
    before: Float[Tensor, "h d"] | None
    finite: bool


def gradients(
    W: Float[Tensor, "h d"], a: Float[Tensor, "h"], sample: Sample
) -> tuple[float, Float[Tensor, "h d"], Float[Tensor, "h"]]:
    """Loss (1/n)‖y − f(X)‖² and its gradients in W and a, for f(x) = h^(−1/2)·aᵀtanh(d^(−1/2)·Wx)."""
    h, d = W.shape
    n = len(sample.y)
    Z = torch.tanh(sample.X @ W.T / math.sqrt(d))
    residual = sample.y - Z @ a / math.sqrt(h)
    last = Z.T @ residual * (-2 / (n * math.sqrt(h)))
    back = Z.square_().neg_().add_(1).mul_(a).mul_(residual[:, None])  # in Z's memory: it is the largest array here
    return float(residual @ residual) / n, back.T @ sample.X * (-2 / (n * math.sqrt(h * d))), last


def train(
    problem: Problem,
    optimizer: str,
    eta: float,
    steps: int,
    *,
    gamma: float = 1.0,
    weight_norm: bool = False,
    train_last: bool = False,
) -> Iterator[State]:
    """Train W (with train_last also a) and yield the state before the first step and after each.

    optimizer: "gd" without momentum, or "adam" with β = (.9, .999), ε = 1e-8 and bias correction. The rate of step t is
    eta·gamma^(t−1). weight_norm: before each step W is scaled to ‖W‖_F = √(hd). Ends early at a loss or weights that are
    not finite. Raises BadOption for a rate that is not above 0, UnknownName for another optimiser.

    Source: set-up of arXiv 2406.04657; Kingma & Ba (2015).
    """
    if not 0 < eta < math.inf:
        raise BadOption("A learning rate lies outside its range", value=eta, allowed="above 0, finite")
    if optimizer not in OPTIMIZERS:
        raise UnknownName("No such optimiser", value=optimizer, allowed=", ".join(OPTIMIZERS))
    W, a = problem.W, problem.a
    rules = [_Rule(optimizer), _Rule(optimizer)]
    update = before = None
    for step in range(steps + 1):
        loss, G, g = gradients(W, a, problem.train)
        finite = math.isfinite(loss) and bool(torch.isfinite(W).all())
        yield State(step, W, a, loss, float(G.norm()), update, before, finite)
        if step == steps or not finite:
            return
        if weight_norm:
            W = W * (math.sqrt(W.numel()) / W.norm())
            _, G, g = gradients(W, a, problem.train)
        rate = eta * gamma**step
        before, W = W, W - rate * rules[0].direction(G)
        update = W - before
        if train_last:
            a = a - rate * rules[1].direction(g)


def first_direction(
    optimizer: str, W: Float[Tensor, "h d"], a: Float[Tensor, "h"], sample: Sample
) -> Float[Tensor, "h d"]:
    """The first step's change of W per unit of rate: −G of gradient descent, −G/(|G| + ε) of Adam."""
    return -_Rule(optimizer).direction(gradients(W, a, sample)[1])


class _Rule:
    """What a gradient is turned into before it is multiplied by the rate and subtracted."""

    def __init__(self, optimizer: str):
        self.adam = optimizer == "adam"
        self.t = 0
        self.m: Tensor | None = None
        self.v: Tensor | None = None

    def direction(self, G: Tensor) -> Tensor:
        if not self.adam:
            return G
        self.t += 1
        m = torch.zeros_like(G) if self.m is None else self.m
        v = torch.zeros_like(G) if self.v is None else self.v
        self.m = m + (1 - BETA1) * (G - m)
        self.v = v + (1 - BETA2) * (G * G - v)
        first, second = self.m / (1 - BETA1**self.t), self.v / (1 - BETA2**self.t)
        return first / (second.sqrt_() + EPS)
