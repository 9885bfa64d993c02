"""The teacher, its data, and the untrained network: everything of a repeat that rates and optimisers share."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from querist.errors import BadOption
from querist.statistics import stream

__all__ = ["Problem", "Sample", "device_for", "draw_problem"]


@dataclass(frozen=True, slots=True)
class Sample:
    """Inputs X [n, d] and their noisy labels y [n]."""

    X: Float[Tensor, "n d"]
    y: Float[Tensor, "n"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One repeat. beta: the teacher's direction, a unit vector [d]. W [h, d], a [h]: the network before training.

    train: what it is trained on; fresh: as many new examples, on which a last layer is refitted; test: new ones again.
    """

    beta: Float[Tensor, "d"]
    W: Float[Tensor, "h d"]
    a: Float[Tensor, "h"]
    train: Sample
    fresh: Sample
    test: Sample


def draw_problem(
    h: int,
    d: int,
    n: int,
    n_test: int = 200,
    rho: float = 0.3,
    *,
    seed: int = 0,
    repeat: int = 0,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Problem:
    """Draw a repeat: y = softplus(β*ᵀx) + ρξ, x ~ N(0, I_d), β* uniform on the sphere, W and a of independent N(0, 1).

    Every part has a stream of its own, named by the repeat alone: rates and optimisers share all of it, other sizes share
    what they have in common (the first examples of a longer sample are those of a shorter one), and labels of another ρ
    have the same noise ξ. Test labels are as noisy as the others. Drawn by numpy on the CPU, so that no device changes it.
    """

    def normal(name: str, *shape: int) -> Tensor:
        drawn = stream(seed, "laboratory", repeat, name).standard_normal(shape)
        return torch.from_numpy(drawn).to(device=device, dtype=dtype)

    beta = normal("teacher", d)
    beta = beta / beta.norm()

    def sample(name: str, size: int) -> Sample:
        X = normal(f"{name}-inputs", size, d)
        return Sample(X, softplus(X @ beta) + rho * normal(f"{name}-noise", size))

    return Problem(
        beta=beta,
        W=normal("weights", h, d),
        a=normal("last-layer", h),
        train=sample("train", n),
        fresh=sample("fresh", n),
        test=sample("test", n_test),
    )


def device_for(name: str, key: str, dtype: torch.dtype = torch.float64) -> torch.device:
    """The device of a unit of work: "auto" is CUDA where there is any, else the CPU. Raises BadOption for one that is not there.

    Several CUDA devices share the units by a hash of their keys, so that a unit's device does not depend on the engine.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "cuda" and (not number or number.isdigit()) and int(number or 0) < count:
        return torch.device("cuda", int(number) if number else zlib.crc32(key.encode()) % count)
    if name == "mps" and torch.backends.mps.is_available():
        if dtype == torch.float64:
            raise BadOption("This device has no float64", value=name, mend="Give --dtype float32, or --device cpu")
        return torch.device("mps")
    if name != "cpu":
        there = ["cpu", *(f"cuda:{i}" for i in range(count)), *(["mps"] if torch.backends.mps.is_available() else [])]
        raise BadOption("This device is not here", value=name, allowed=f"auto, {', '.join(there)}")
    return torch.device("cpu")
