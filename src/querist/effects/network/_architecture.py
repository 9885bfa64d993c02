"""What a network is made of, as plain values that a model folder can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any

from querist.errors import BadOption, near

__all__ = ["PRESETS", "Architecture", "preset_options"]

EXPERTS = ("mlp", "ft", "resnet1d")
TIERS = ("mean", "reference", "none")

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "small": MappingProxyType({"d_model": 16, "n_tokens": 4, "hidden": 32, "blocks": 1}),
        # Zhao et al. (2024) and the settings of their released code.
        "paper": MappingProxyType(
            {
                "expert": "resnet1d",
                "d_model": 128,
                "norm": "batch",
                "query_tokens": 16,
                "attention": 256,
                "project": False,
                "unit_length": True,
                "dropout": 0.2,
                "link": "identity",
            }
        ),
    }
)
"""Options that a preset sets where they were left at their defaults."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes and rules of a network; what a number cannot mean is refused when it is made.

    numbers: numeric columns p; levels: levels of each category, missing and unknown counted; missing: numeric columns with
    missing values in the fit, which get a learned vector. arms: M; latents: of each outcome (2 for a hurdle, else 1).
    expert, n_experts, d_model (width D of a token), n_tokens (T; "mlp" only), n_heads, hidden, blocks, norm ("layer", "batch":
    "resnet1d" only). query_tokens: None for one token of D numbers per arm, r for r tokens of one number. attention: width of the
    interaction, D by default; project: an output projection; unit_length: tokens and queries of length 1. tier, tier_weights: how
    increments are centred, in training too; "none" for flat heads. unknown: share of known levels replaced in training.
    """

    numbers: int
    levels: tuple[int, ...]
    missing: tuple[int, ...]
    arms: int
    latents: tuple[int, ...]
    tier_weights: tuple[float, ...]
    tier: str = "mean"
    expert: str = "mlp"
    n_experts: int = 4
    d_model: int = 64
    n_tokens: int = 8
    n_heads: int = 4
    hidden: int = 256
    blocks: int = 2
    norm: str = "layer"
    query_tokens: int | None = None
    attention: int | None = None
    project: bool = True
    unit_length: bool = False
    dropout: float = 0.0
    interaction: bool = True
    enhancer: bool = True
    detach_natural: bool = True
    unknown: float = 0.01

    def __post_init__(self) -> None:
        width = self.attention or self.d_model
        for name, fine, allowed in (
            ("expert", self.expert in EXPERTS, ", ".join(EXPERTS)),
            ("tier", self.tier in TIERS, ", ".join(TIERS)),
            ("norm", self.norm in ("layer", "batch"), "layer, batch"),
            ("numbers", self.numbers >= 0 and self.numbers + len(self.levels) >= 1, "at least one column"),
            ("n_experts", self.n_experts >= 1, "1 or more"),
            ("d_model", self.d_model >= 1, "1 or more"),
            ("n_tokens", self.n_tokens >= 1, "1 or more"),
            ("hidden", self.hidden >= 1, "1 or more"),
            ("blocks", self.blocks >= 1, "1 or more"),
            ("arms", self.arms >= 1, "1 or more"),
            ("n_heads", self.n_heads >= 1 and width % self.n_heads == 0, f"a divisor of the width {width}"),
            ("dropout", 0 <= self.dropout < 1, "0 or more, below 1"),
            ("unknown", 0 <= self.unknown < 1, "0 or more, below 1"),
        ):
            if not fine:
                raise BadOption(f"{name} lies outside its range", value=getattr(self, name), allowed=allowed)
        if self.expert == "ft" and self.d_model % self.n_heads:
            raise BadOption("n_heads lies outside its range", value=self.n_heads, allowed="a divisor of d_model")
        if len(self.tier_weights) != self.arms:
            raise BadOption("One tier weight per arm", value=self.tier_weights, allowed=f"{self.arms} numbers")

    @property
    def outcomes(self) -> int:
        """Number of outcomes K."""
        return len(self.latents)

    def as_json(self) -> dict[str, Any]:
        """Plain values, from which `Architecture.from_json` makes an equal one."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Architecture:
        """The architecture that a model folder tells of. Raises UnknownName through BadOption for a strange key."""
        known = {field.name for field in fields(cls)}
        for key in values:
            if key not in known:
                raise BadOption("No such part of an architecture", value=key, allowed=near(key, known))
        plain: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in values.items()}
        return cls(**plain)


def preset_options(preset: str | None) -> dict[str, Any]:
    """Options of a preset by name; none for None. Raises BadOption."""
    if preset is None:
        return {}
    if preset not in PRESETS:
        raise BadOption("No such preset", value=preset, allowed=", ".join(PRESETS))
    return dict(PRESETS[preset])
