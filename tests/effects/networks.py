"""Small networks and their literal counterparts, for the tests of the effects room."""

from __future__ import annotations

import math

import torch

from querist.effects.network._architecture import Architecture
from querist.effects.network._net import Network


def architecture(**options) -> Architecture:
    """Twelve numbers (two with missing values), two categories, three arms, two outcomes."""
    arms = options.get("arms", 3)
    made = {
        "numbers": 12,
        "levels": (5, 9),
        "missing": (1, 4),
        "arms": arms,
        "latents": (1, 1),
        "tier_weights": tuple([0.2, 0.3, 0.5] if arms == 3 else [1 / arms] * arms),
        "d_model": 16,
        "n_tokens": 4,
        "hidden": 32,
        "blocks": 1,
    }
    return Architecture(**{**made, **options})


def network(seed: int = 0, **options) -> Network:
    torch.manual_seed(seed)
    return Network(architecture(**options)).double()


def batch(n: int = 7, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(n, 12, generator=generator, dtype=torch.float64)
    missing = torch.rand(n, 12, generator=generator) < 0.1
    codes = torch.stack([torch.randint(0, k, (n,), generator=generator) for k in (5, 9)], dim=1)
    return numbers, missing, codes


def literal_attention(mixer, tokens: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """Attention as it is written in books: keys and values of every token, one head and query at a time."""
    h, w = mixer.heads, mixer.width // mixer.heads
    out = torch.empty(len(tokens), *queries.shape[:2], mixer.width, dtype=tokens.dtype)
    for b, own in enumerate(tokens):
        keys = own @ mixer.key.weight.T + torch.randn(mixer.width, dtype=tokens.dtype)  # any bias of the keys cancels
        values = own @ mixer.value.weight.T + mixer.value.bias
        for q, several in enumerate(queries):
            for r, one in enumerate(several):
                asked = mixer.query.weight @ one + mixer.query.bias
                heads = []
                for i in range(h):
                    part = slice(i * w, (i + 1) * w)
                    share = torch.softmax(keys[:, part] @ asked[part] / math.sqrt(w), dim=0)
                    heads.append(share @ values[:, part])
                z = torch.cat(heads)
                out[b, q, r] = z if mixer.output is None else mixer.output(z)
    return out
