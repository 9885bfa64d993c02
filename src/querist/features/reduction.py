"""From the value of a layer to rows: mean over places, some places, one token, or everything flattened."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float32

from querist.errors import BadOption, BadValues
from querist.statistics import stream, torch_seed

if TYPE_CHECKING:
    from torch import Tensor

    from querist.sources.taps import Site

__all__ = ["Reduction", "projection"]

_SITES = re.compile(r"sites:(\d{1,6})")
WORDS = "mean, cls, last, flat, sites:k"


@dataclass(frozen=True, slots=True)
class Reduction:
    """How a value [b, ...] becomes rows.

    mean: over space, or over the tokens that the mask keeps (default); sites: `count` random places of each row of the
    batch, without replacement, all where there are fewer; cls, last: the first and the last token that the mask keeps; flat:
    everything. A value [b, d] is taken as it is.
    """

    kind: str
    count: int = 1

    @classmethod
    def of(cls, text: str, proj_dim: int | None) -> Reduction:
        """From its spelling. Raises BadOption, also for `flat` without `proj_dim`."""
        match = _SITES.fullmatch(text) if isinstance(text, str) else None
        if match and int(match[1]) > 0:
            return cls("sites", int(match[1]))
        if text not in ("mean", "cls", "last", "flat"):
            raise BadOption("No such reduction", value=text, allowed=WORDS)
        if text == "flat" and proj_dim is None:
            raise BadOption("Flattened values are projected", value="flat", mend="Give proj_dim, such as 256")
        return cls(text)

    def shape(self, site: Site) -> tuple[int, int]:
        """Most rows for one row of the batch, and units before a projection."""
        if self.kind == "flat":
            return 1, int(np.prod(site.shape, dtype=np.int64)) if site.shape else 1
        places = int(np.prod(site.shape, dtype=np.int64)) // max(site.width, 1) if len(site.shape) > 1 else 1
        return (min(self.count, places) if self.kind == "sites" else 1), site.width

    def refusal(self, site: Site) -> str | None:
        """Why a site cannot be reduced so, or None."""
        if (
            self.kind in ("cls", "last")
            and len(site.shape) > 1
            and not (len(site.shape) == 2 and site.layout == "last")
        ):
            return f"its value {list(site.shape)} has no tokens, which reduce={self.kind} needs"
        return None

    def __call__(
        self, value: Tensor, site: Site, ids: np.ndarray, mask: Tensor | None, seed: int
    ) -> tuple[Float32[Any, "r d"], np.ndarray]:
        """Rows float32 [r, d], never sharing memory with `value`, and how many each row of the batch gave [b]."""
        ones = np.ones(len(value), dtype=np.int64)
        value = value.detach()
        if value.ndim <= 2:
            return value.reshape(len(value), -1).float().clone(), ones
        if self.kind == "flat":
            return value.flatten(1).float().clone(), ones
        value = value.float()
        first = site.layout == "first"
        places = value.flatten(2) if first else value.flatten(1, -2)  # [b, d, p] or [b, p, d]
        keep = None
        if not first and value.ndim == 3 and mask is not None and tuple(mask.shape) == tuple(value.shape[:2]):
            keep = mask.to(value.device) != 0
            if bool((~keep.any(1)).any()):
                empty = ids[(~keep.any(1)).cpu().numpy()]
                raise BadValues("A text has no token that its mask keeps", value=f"ids {empty[:5].tolist()}")
        if self.kind == "mean":
            if keep is None:
                return places.mean(2 if first else 1), ones
            weight = keep.unsqueeze(2).float()
            return (places * weight).sum(1) / weight.sum(1), ones
        if self.kind in ("cls", "last"):
            return self._token(places, keep), ones
        return self._sites(places.transpose(1, 2) if first else places, keep, ids, seed)

    def _token(self, places: Tensor, keep: Tensor | None) -> Tensor:
        import torch

        length = places.shape[1]
        if keep is None:
            return places[:, 0 if self.kind == "cls" else length - 1].clone()
        order = torch.arange(length, device=places.device)
        spread = torch.where(keep, order, length if self.kind == "cls" else -1)
        at = spread.amin(1) if self.kind == "cls" else spread.amax(1)
        return places[torch.arange(len(places), device=places.device), at].clone()

    def _sites(self, places: Tensor, keep: Tensor | None, ids: np.ndarray, seed: int) -> tuple[Tensor, np.ndarray]:
        """The places of least hash of (seed, id, place): the same whatever else is in the batch."""
        import torch

        order = _hashes(ids, places.shape[1], seed)
        valid = np.full(len(ids), places.shape[1])
        if keep is not None:
            kept = keep.cpu().numpy()
            order = np.where(kept, order, np.iinfo(np.uint64).max)
            valid = kept.sum(1)
        count = np.minimum(valid, self.count)
        chosen = np.argsort(order, axis=1, kind="stable")[:, : self.count]
        rows = np.repeat(np.arange(len(ids)), count)
        at = np.concatenate([np.sort(one[:many]) for one, many in zip(chosen, count, strict=True)])
        return places[torch.from_numpy(rows), torch.from_numpy(at)].clone(), count.astype(np.int64)


def _hashes(ids: np.ndarray, places: int, seed: int) -> np.ndarray:
    """A 64-bit hash of every (id, place): uint64 [b, p], by splitmix64."""
    with np.errstate(over="ignore"):
        x = ids.astype(np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15) + np.uint64(torch_seed(seed, "sites"))
        for salt in (np.arange(places, dtype=np.uint64)[None] * np.uint64(0xD1B54A32D192ED03), np.uint64(0)):
            x = x ^ salt
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x = x ^ (x >> np.uint64(31))
    return x


def projection(units: int, to: int, seed: int) -> Float32[np.ndarray, "units to"] | None:
    """A fixed Gaussian projection whose squared lengths are right on average; None where there are no more units than `to`.

    It depends on the two numbers and the seed alone, so every network and data set shares it.
    """
    if units <= to:
        return None
    return stream(seed, "projection", units, to).standard_normal((units, to), dtype=np.float32) / np.float32(
        np.sqrt(to)
    )
