"""The global random generators of a training: seeded, kept in checkpoints, and given back to the caller as they were."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.statistics.streams import torch_seed

if TYPE_CHECKING:
    import torch

__all__ = ["capture", "kept", "restore", "seed_all"]


def seed_all(seed: int, *names: object, device: torch.device | None = None) -> None:
    """Seed the global generators of torch (CPU and `device`), numpy and Python from one named stream."""
    import torch

    value = torch_seed(seed, *names)
    torch.default_generator.manual_seed(value)
    random.seed(value)
    np.random.seed(value % 2**32)  # noqa: NPY002 - layers and data sets of others draw from it
    if device is not None and device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(value)
    elif device is not None and device.type == "mps":
        torch.mps.manual_seed(value)


def capture(device: torch.device) -> dict[str, torch.Tensor]:
    """The generators' states as tensors of fixed sizes, so that processes can exchange them."""
    import torch

    state = np.random.get_state(legacy=False)  # noqa: NPY002
    inner: Any = state["state"]
    _, words, gauss = random.getstate()
    found = {
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(inner["key"].astype(np.int64)),
        "numpy_more": torch.tensor([inner["pos"], state["has_gauss"], state["gauss"]], dtype=torch.float64),
        "python": torch.tensor(words, dtype=torch.int64),
        "python_more": torch.tensor([math.nan if gauss is None else gauss], dtype=torch.float64),
    }
    if (own := _of_device(device)) is not None:
        found["device"] = own.cpu()
    return found


def restore(state: Mapping[str, torch.Tensor], device: torch.device) -> None:
    """Take up what `capture` returned."""
    import torch

    torch.set_rng_state(state["torch"])
    position, has, cached = state["numpy_more"].tolist()
    key = state["numpy"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", key, int(position), int(has), cached))  # noqa: NPY002
    (gauss,) = state["python_more"].tolist()
    random.setstate((3, tuple(state["python"].tolist()), None if math.isnan(gauss) else gauss))
    if "device" in state:
        _set_device(device, state["device"])


@contextmanager
def kept(device: torch.device | None = None) -> Iterator[None]:
    """Run the body, then give the global generators back as they were before it, whatever the body drew or seeded."""
    import torch

    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    own = None if device is None else _of_device(device)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        random.setstate(before[2])
        if device is not None and own is not None:
            _set_device(device, own)


def _of_device(device: torch.device) -> torch.Tensor | None:
    import torch

    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.mps.get_rng_state() if device.type == "mps" else None


def _set_device(device: torch.device, state: torch.Tensor) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state)
