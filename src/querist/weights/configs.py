"""What each command of the room can be told; imports neither torch nor scipy."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from querist.runs.study import StudyConfig, listed

__all__ = [
    "NULLS",
    "CompareConfig",
    "CompareOptions",
    "CraftConfig",
    "MatrixOptions",
    "MonitorConfig",
    "PredictConfig",
    "ScanConfig",
    "ScanOptions",
]

NULLS = ("shuffle", "signflip")

Null = Literal["shuffle", "signflip"]
Optimizer = Literal["gd", "adam"]


class MatrixOptions(StudyConfig):
    """Which matrices of a source are measured, and how; every command that reads checkpoints takes them."""

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
    min_side: int = Field(default=8, ge=2, description="Matrices with a shorter side are passed over.")
    approx: Literal["auto", "never", "always"] = Field(
        default="auto", description="Lanczos quadrature with exact top values instead of the whole spectrum."
    )
    # The whole spectrum costs less than quadrature and top values up to here: 4.6 s of one core against 10.2 for 4096 x 4096,
    # 28 against 36 for 8192 x 8192, and it is exact.
    exact_side: int = Field(default=8192, ge=64, description="Side above which approx=auto approximates on a CPU.")

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


class ScanOptions(MatrixOptions):
    """Options of `weights scan`."""

    farms: bool = Field(default=False, description="Also the exponent of fixed-aspect-ratio submatrices (FARMS).")
    ratios: Literal["none", "default", "all"] = Field(
        default="default",
        description="Likelihood ratios against exponential and lognormal (default), also truncated power law (all).",
    )
    precision: Literal["exact", "fast"] = Field(
        default="exact", description="float64 Gram matrix, or float32 singular values without ranks."
    )
    stability: int = Field(
        default=0, ge=0, le=64, description="Row-block deletions on which the phase is judged again."
    )
    advise: Literal["temp-balance", "alpha-pruning"] | None = Field(
        default=None, description="Layer-wise learning rates (temp-balance) or sparsities (alpha-pruning)."
    )
    target_sparsity: float | None = Field(
        default=None, gt=0, lt=1, description="Share of weights to prune over all layers; advise=alpha-pruning."
    )


class ScanConfig(ScanOptions):
    """What a scan is told: its source and its options."""

    source: str = Field(default="", description="The checkpoint: an address, or what an in-memory source was called.")


class CraftConfig(StudyConfig):
    """Options of `weights craft`: sizes, rates, steps, and what is measured on the way."""

    d: int = Field(default=200, ge=8, description="Inputs of the network: columns of W.")
    h: int = Field(default=300, ge=8, description="Hidden units: rows of W.")
    n: int = Field(
        default=400, ge=2, description="Training examples; the last layer is refitted on as many fresh ones."
    )
    n_test: int = Field(default=200, ge=1, description="Test examples, with noisy labels.")
    rho: float = Field(default=0.3, ge=0, lt=float("inf"), description="Standard deviation of the label noise.")
    optimizer: tuple[Optimizer, ...] = Field(
        default=("gd", "adam"),
        min_length=1,
        description="Optimisers: gd, adam, or both. On the command line by commas.",
    )
    eta: tuple[float, ...] = Field(
        default=(),
        description="Learning rates, the same for each optimiser. None: eight for each, from a quarter of the predicted "
        "threshold to the rate at which one step is as large as the weights. On the command line by commas.",
    )
    steps: int = Field(default=10, ge=1, description="Full-batch steps.")
    probe_every: int = Field(
        default=1, ge=1, description="Measure each so many steps; also before the first, after the first and last."
    )
    gamma: float = Field(default=1.0, gt=0, le=1, description="Factor of the rate after each step.")
    ridge: float = Field(
        default=0.01,
        gt=0,
        lt=float("inf"),
        description="Ridge penalty λ of the refitted last layer; λn/h on features/√h.",
    )
    weight_norm: bool = Field(default=False, description="Before each step scale W to the norm √(hd).")
    train_last: bool = Field(default=False, description="Train the last layer too.")
    overlaps: bool = Field(
        default=False, description="Also overlaps of each update's singular vectors with those of W before and after."
    )
    repeats: int = Field(
        default=5, ge=1, description="Repetitions, each with its own teacher, data and initial weights."
    )
    nulls: tuple[Null, ...] = Field(
        default=NULLS,
        description="Resampling nulls against which the last weights are held: shuffle, signflip, or none.",
    )
    dtype: Literal["float64", "float32"] = Field(
        default="float64", description="Number format of training; spectra are float64 in any case."
    )

    @field_validator("optimizer", "eta", "nulls", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """One value, several divided by commas, or a list of such; "none" is no value."""
        return tuple(part for part in listed(value) if part != "none")

    @field_validator("optimizer")
    @classmethod
    def _each_optimizer_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value))

    @field_validator("eta")
    @classmethod
    def _rates_above_zero(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        for rate in value:
            if not 0 < rate < float("inf"):
                raise ValueError(f"learning rates above 0, finite; not {rate:g}")
        return tuple(dict.fromkeys(value))

    @field_validator("nulls")
    @classmethod
    def _each_null_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in NULLS if name in value)


class PredictConfig(StudyConfig):
    """Options of `weights predict-spike`: a network before training, and one step of an optimiser."""

    h: int = Field(default=1500, ge=8, description="Hidden units: rows of W.")
    d: int = Field(default=1000, ge=8, description="Inputs of the network: columns of W.")
    n: int = Field(default=2000, ge=2, description="Training examples.")
    optimizer: Optimizer = Field(default="adam", description="gd or adam.")
    eta: float = Field(default=0.1, gt=0, lt=float("inf"), description="Learning rate of the step.")
    rho: float = Field(default=0.3, ge=0, lt=float("inf"), description="Standard deviation of the label noise.")
    observe: int = Field(
        default=0, ge=0, le=1000, description="Make this many exact steps and put what they did beside the prediction."
    )


class CompareOptions(MatrixOptions):
    """Options of `weights compare`."""

    k: int = Field(
        default=16,
        ge=1,
        le=256,
        description="Leading directions of a matrix that its update is compared with; at most a quarter of the shorter side.",
    )
    lora_alpha: float | None = Field(
        default=None,
        description="Numerator of the scale alpha/r of low-rank updates, in place of what the adapter says.",
    )

    @field_validator("lora_alpha")
    @classmethod
    def _a_scale(cls, value: float | None) -> float | None:
        if value is not None and not (value == value and 0 < abs(value) < float("inf")):
            raise ValueError("a finite number but 0")
        return value


class CompareConfig(CompareOptions):
    """What a comparison is told: its two sources and its options."""

    base: str = Field(
        default="", description="The checkpoint before: an address, or what an in-memory source was called."
    )
    tuned: str = Field(
        default="",
        description="The checkpoint after, or an adapter: an address, or what an in-memory source was called.",
    )


class MonitorConfig(StudyConfig):
    """What `weights.Monitor` is told: how often it looks, at which layers, and what it may cost."""

    every: int = Field(default=100, ge=1, description="Steps from one look to the next.")
    layers: tuple[str, ...] = Field(default=("*",), description="Globs of tensor names to watch.")
    k: int = Field(default=8, ge=1, le=64, description="Largest singular triplets that are followed.")
    full_every: int = Field(default=10, ge=1, description="Every so many looks the whole spectrum with its nulls.")
    max_overhead: float = Field(
        default=0.02, gt=0, description="Most of the training time that looking may cost, as a share of it."
    )

    @field_validator("layers", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value
