"""Trainings of networks of effects that a group of processes can be told to run."""

from __future__ import annotations

import numpy as np
import torch
from tests.effects.networks import network

from querist.effects.links import Link, Links
from querist.effects.network import MTMT
from querist.effects.network._members import latents_and_balance, stream_loss
from querist.training import fit

LINKS = (Link("identity"), Link("hurdle", second=0.3, dispersion=2.0, events=3.0))


def batches(n: int = 400) -> dict[str, torch.Tensor]:
    """Rows sorted by arm, so that a process's share often lacks one; the second outcome is seldom seen."""
    generator = torch.Generator().manual_seed(4)
    arm = torch.arange(n) * 4 // n
    y = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    weight = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    weight[:, 1] *= torch.rand(n, generator=generator) < 0.15
    numbers = torch.randn(n, 12, generator=generator, dtype=torch.float64)
    codes = torch.stack([torch.randint(0, k, (n,), generator=generator) for k in (5, 9)], dim=1)
    missing = torch.rand(n, 12, generator=generator) < 0.1
    y[:, 1] = y[:, 1].clamp(min=0)
    return {"numbers": numbers, "missing": missing, "codes": codes, "arm": arm, "y": y, "weight": weight}


def train_network(expert: str) -> list[np.ndarray]:
    """Fifty steps in float64; the weights that came out."""
    return [one.detach().numpy() for one in _trained(expert, torch.float64).parameters()]


def train_float32() -> np.ndarray:
    """Fifty steps in float32; what the network then says of the rows it was trained on.

    Not its weights: what centring the increments takes out (their biases) has a gradient of rounding errors alone, and the
    optimiser makes steps of its full length of it.
    """
    rows = _rows(torch.float32)
    net = _trained("mlp", torch.float32).eval()
    return net(rows["numbers"], rows["missing"], rows["codes"]).detach().numpy()


def _rows(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: one.to(dtype) if one.is_floating_point() else one for name, one in batches().items()}


def _trained(expert: str, dtype: torch.dtype) -> torch.nn.Module:
    torch.set_num_threads(1)
    net = network(expert=expert, latents=(1, 2), unknown=0.0).to(dtype)
    loss = stream_loss(Links(LINKS), ("one", "two"), {"two": 0.5}, latents_and_balance(None, 1.0))
    fit(net, loss, _rows(dtype), batch_size=40, max_steps=50, shuffle=False, lr=1e-3, weight_decay=1e-3, device="cpu")
    return net


def train_streamed(path: str) -> list[np.ndarray]:
    """Three epochs of a streamed table, whose pieces are shared out."""
    model = MTMT(control="0", preset="small", epochs=3, folds=1, shrink=False, patience=None, batch_size=100)
    model.fit_rows(path, arm="segment", outcomes={"one": "continuous", "two": "continuous"})
    return [one.detach().numpy() for one in model.networks_[0][0].parameters()]


def train_everywhere() -> dict[str, list[np.ndarray]]:
    """What every launcher is compared by: the network of several arms and outcomes in two types."""
    return {"float64": train_network("mlp"), "float32": [train_float32()]}


def train_both(path: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Both in one group: processes are dear to start."""
    return train_network("mlp"), train_streamed(path)
