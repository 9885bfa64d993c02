"""What each command of the room can be told; imports neither torch nor scipy."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from querist.runs.study import StudyConfig

__all__ = ["NULLS", "ScanConfig", "ScanOptions"]

NULLS = ("shuffle", "signflip")

Null = Literal["shuffle", "signflip"]


class ScanOptions(StudyConfig):
    """Options of `weights scan`."""

    include: tuple[str, ...] = Field(default=("*",), description="Globs of tensor names to read.")
    exclude: tuple[str, ...] = Field(default=(), description="Globs of tensor names to leave out.")
    conv: Literal["flatten", "slices", "operator"] = Field(
        default="flatten",
        description="How a convolution becomes a matrix: out x (in·k…), one matrix per kernel position (pooled), or the "
        "exact circular convolution operator.",
    )
    grid: tuple[int, ...] | None = Field(
        default=None, description="Input size of the convolution operator, one number per spatial axis; conv=operator."
    )
    split: bool = Field(default=True, description="Split fused matrices (q, k, v; recurrent gates) into their parts.")
    nulls: tuple[Null, ...] = Field(default=NULLS, description="Resampling nulls: shuffle, signflip, or none of them.")
    replicas: int = Field(default=3, ge=1, le=99, description="Full spectra drawn from each null.")
    rank_replicas: int = Field(
        default=19,
        ge=0,
        le=999,
        description="Largest eigenvalues drawn from each null: at least 19, or 0 for no rank test.",
    )
    fit: Literal["csn", "hill", "peak"] = Field(default="csn", description="Which power-law fit gives `alpha`.")
    farms: bool = Field(default=False, description="Also the exponent of fixed-aspect-ratio submatrices (FARMS).")
    ratios: Literal["none", "default", "all"] = Field(
        default="default",
        description="Likelihood ratios against exponential and lognormal (default), also truncated power law (all).",
    )
    min_side: int = Field(default=8, ge=2, description="Matrices with a shorter side are passed over.")
    precision: Literal["exact", "fast"] = Field(
        default="exact", description="float64 Gram matrix, or float32 singular values without ranks."
    )
    approx: Literal["auto", "never", "always"] = Field(
        default="auto", description="Lanczos quadrature with exact top values instead of the whole spectrum."
    )
    # The whole spectrum costs less than quadrature and top values up to here: 4.6 s of one core against 10.2 for 4096 x 4096,
    # 28 against 36 for 8192 x 8192, and it is exact.
    exact_side: int = Field(default=8192, ge=64, description="Side above which approx=auto approximates on a CPU.")
    stability: int = Field(
        default=0, ge=0, le=64, description="Row-block deletions on which the phase is judged again."
    )
    advise: Literal["temp-balance", "alpha-pruning"] | None = Field(
        default=None, description="Layer-wise learning rates (temp-balance) or sparsities (alpha-pruning)."
    )
    target_sparsity: float | None = Field(
        default=None, gt=0, lt=1, description="Share of weights to prune over all layers; advise=alpha-pruning."
    )

    @field_validator("rank_replicas")
    @classmethod
    def _enough_for_a_level(cls, value: int) -> int:
        if 0 < value < 19:
            raise ValueError("at least 19, or 0 for no rank test")
        return value

    @field_validator("nulls")
    @classmethod
    def _each_null_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in NULLS if name in value)


class ScanConfig(ScanOptions):
    """What a scan is told: its source and its options."""

    source: str = Field(default="", description="The checkpoint: an address, or what an in-memory source was called.")
