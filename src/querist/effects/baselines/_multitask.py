"""Networks that share experts or layers between outcomes or arms: MMoE, PLE, M3TN, FlexTENet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from querist.effects.baselines._layers import Mix, Net, Shape, Stacked, Tower
from querist.effects.baselines._networks import Networks
from querist.effects.links import Links
from querist.effects.nettrain import Observed
from querist.errors import BadOption

__all__ = ["M3TN", "PLE", "FlexTENet", "MMoE"]

EXPERTS = 4


class _ByOutcome(nn.Module):
    """A tower per outcome whose end has the latents of every arm: [K, n, h] to [n, M + 1, L]."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape, widest = shape, max(shape.latents)
        self.towers = Tower(len(shape.latents), shape.width, shape.width, (shape.arms + 1) * widest, last=True)
        kept = [k * widest + j for k, count in enumerate(shape.latents) for j in range(count)]
        self.register_buffer("kept", torch.tensor(kept), persistent=False)

    def forward(self, known: torch.Tensor) -> torch.Tensor:
        """See above; an outcome of one latent beside one of two leaves the second out."""
        out = self.towers(known).unflatten(2, (self.shape.arms + 1, -1))  # [K, n, M + 1, widest]
        return out.permute(1, 2, 0, 3).flatten(2)[:, :, self.kept]


class _MMoE(Net):
    def __init__(self, shape: Shape):
        super().__init__(shape)
        self.experts = Tower(EXPERTS, self.encoder.width, shape.width, shape.width)
        self.gates = Mix(len(shape.latents), EXPERTS, self.encoder.width)
        self.ends = _ByOutcome(shape)

    def represent(self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        flat = self.encoder(numbers, missing, codes).flat
        return self.gates(flat, self.experts(flat))

    def latents(self, known: torch.Tensor) -> torch.Tensor:
        return self.ends(known)


class MMoE(Networks):
    """Experts for all, a gate and a tower per outcome; a tower ends in the responses under every arm.

    Source: Ma et al. (2018).
    """

    def _net(self, shape: Shape) -> Net:
        return _MMoE(shape)


class _PLE(Net):
    """Two levels; at each, two experts of every outcome's own and two shared ones."""

    OWN = 2

    def __init__(self, shape: Shape):
        super().__init__(shape)
        k, own, h, d = len(shape.latents), self.OWN, shape.width, self.encoder.width
        self.first = Tower((k + 1) * own, d, h, h)
        # Gates of outcomes see their own and the shared experts, the shared gate sees all.
        self.gates = nn.ModuleList(Mix(1, 2 * own, d) for _ in range(k))
        self.common = Mix(1, (k + 1) * own, d)
        self.second = Tower((k + 1) * own, h, h)
        self.last = nn.ModuleList(Mix(1, 2 * own, h) for _ in range(k))
        self.ends = _ByOutcome(shape)

    def represent(self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        flat, own = self.encoder(numbers, missing, codes).flat, self.OWN
        said = self.first(flat)
        inputs = [gate(flat, _seen(said, k, own))[0] for k, gate in enumerate(self.gates)]
        inputs.append(self.common(flat, said)[0])
        said = self.second(torch.stack(inputs).repeat_interleave(own, dim=0))
        return torch.stack([gate(inputs[k], _seen(said, k, own))[0] for k, gate in enumerate(self.last)])

    def latents(self, known: torch.Tensor) -> torch.Tensor:
        return self.ends(known)


def _seen(said: torch.Tensor, k: int, own: int) -> torch.Tensor:
    return torch.cat([said[k * own : (k + 1) * own], said[-own:]])


class PLE(Networks):
    """Experts of each outcome's own beside shared ones, in two levels; towers as in MMoE.

    Source: Tang et al. (2020).
    """

    def _net(self, shape: Shape) -> Net:
        return _PLE(shape)


class _M3TN(Net):
    """Experts for all, a gate per arm; control's tower gives responses, an arm's tower what it adds to them."""

    def __init__(self, shape: Shape):
        super().__init__(shape)
        h, low = shape.width, max(2 * shape.width // 3, 1)
        self.experts = Tower(EXPERTS, self.encoder.width, h, h)
        self.gates = Mix(shape.arms + 1, EXPERTS, self.encoder.width)
        self.towers = Tower(shape.arms + 1, h, low, low, shape.out, last=True)

    def represent(self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        flat = self.encoder(numbers, missing, codes).flat
        return self.gates(flat, self.experts(flat))

    def latents(self, known: torch.Tensor) -> torch.Tensor:
        out = self.towers(known)
        return torch.cat([out[:1], out[:1] + out[1:]]).transpose(0, 1)


class M3TN(Networks):
    """A gate per arm over shared experts, and effects as what an arm's tower adds to control's response.

    Source: Sun & Chen (2024); ours: the sum on the scale of the link, and several outcomes.
    """

    def _net(self, shape: Shape) -> Net:
        return _M3TN(shape)


class _Flex(Net):
    """Every layer has a part for all arms and one per arm; an arm's part sees both."""

    def __init__(self, shape: Shape):
        super().__init__(shape)
        w, arms, d = shape.width, shape.arms + 1, self.encoder.width
        self.shared = nn.ModuleList([nn.Linear(d, w), nn.Linear(w, w), nn.Linear(w, w), nn.Linear(w, shape.out)])
        self.own = nn.ModuleList(
            [Stacked(arms, d, w), Stacked(arms, 2 * w, w), Stacked(arms, 2 * w, w), Stacked(arms, 2 * w, shape.out)]
        )

    def represent(self, numbers: torch.Tensor, missing: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        flat = self.encoder(numbers, missing, codes).flat
        shared, own = functional.elu(self.shared[0](flat)), functional.elu(self.own[0](flat))
        for s, p in zip(self.shared[1:-1], self.own[1:-1], strict=True):
            both = torch.cat([shared.expand(len(own), *shared.shape), own], dim=2)
            shared, own = functional.elu(s(shared)), functional.elu(p(both))
        return torch.cat([shared.expand(len(own), *shared.shape), own], dim=2)

    def latents(self, known: torch.Tensor) -> torch.Tensor:
        shared = known[0, :, : self.shape.width]
        return (self.shared[-1](shared) + self.own[-1](known)).transpose(0, 1)

    def overlap(self) -> torch.Tensor:
        """Σ over layers and arms ‖W_sharedᵀ W_own‖², on the inputs that both see."""
        found = torch.zeros(())
        for s, p in zip(self.shared, self.own, strict=True):
            assert isinstance(p, Stacked)
            seen = p.weight[:, : s.in_features]  # pyright: ignore[reportArgumentType, reportIndexIssue]
            found = found.to(seen.device) + (torch.matmul(s.weight, seen) ** 2).sum()  # pyright: ignore[reportCallIssue, reportArgumentType]
        return found


class FlexTENet(Networks):
    """Layers shared by all arms beside layers of each, which are held orthogonal to them.

    orthogonal: weight of the penalty on what both look at.

    Source: Curth & van der Schaar (2021), with more arms than two; all layers are split.
    """

    def __init__(self, *, orthogonal: float = 0.01, **common: Any):
        super().__init__(**common)
        self.orthogonal = orthogonal

    def _net(self, shape: Shape) -> Net:
        return _Flex(shape)

    def _observed(self, links: Links, names: Sequence[str]) -> Observed | None:
        scale = self.orthogonal
        if not scale >= 0:
            raise BadOption("orthogonal lies outside its range", value=scale, allowed="0 or more")

        def observed(net: Any, batch: Any) -> Any:
            arm = batch["arm"]
            latent = net(batch["numbers"], batch["missing"], batch["codes"])[
                torch.arange(len(arm), device=arm.device), arm
            ]
            return latent, {"overlap of layers": (scale * net.overlap(), 1.0)} if net.training else {}

        return observed
