"""What each command of the room can be told; imports neither torch nor scipy."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from querist.runs.study import StudyConfig, listed

__all__ = [
    "CaptureOptions",
    "CompareConfig",
    "CompareOptions",
    "FreezeConfig",
    "FreezeOptions",
    "RankConfig",
    "RankOptions",
]

Normalise = Literal["none", "iso", "unit", "whiten"]
Score = Literal["all", "nce", "leep", "nleep", "logme", "h-score", "transrate", "gbc"]
Arm = Literal["pretrained", "random", "shuffled", "moments", "scratch", "pretrained-kept"]
Distance = Literal["sliced", "per-unit", "max-sliced", "gaussian", "spectrum", "sinkhorn", "otdd"]


class CaptureOptions(StudyConfig):
    """What is captured, of which layers and pictures; every command that reads activations takes them."""

    layers: str = Field(
        default="preactivation",
        min_length=1,
        description="preactivation, blocks, logits, or patterns of layer names, by commas.",
    )
    reduce: str = Field(
        default="mean",
        description="From a value to rows: mean over space or tokens, sites:k random places, cls, last, flat (with proj-dim).",
    )
    n: int = Field(default=2000, ge=1, description="Rows of each data set, chosen by a seeded hash of their ids.")
    batch_size: int = Field(default=128, ge=1, description="Rows that go through a network at once.")
    proj_dim: int | None = Field(
        default=None,
        ge=1,
        le=2048,
        description="Layers with more units are projected by a fixed random matrix to so many.",
    )
    max_bytes: int | None = Field(
        default=None, ge=1, description="Bound on the memory of a capture; none: a quarter of what is free."
    )
    spill: bool = Field(
        default=False, description="Keep captured rows in files from the first, which then do not count."
    )
    size: tuple[int, ...] = Field(
        default=(), max_length=2, description="Side of the pictures in pixels, or height,width; none: as they are."
    )
    channels: int | None = Field(
        default=None, description="3 repeats grey pictures, 1 turns colour into luminance; none: as they are."
    )
    mean: tuple[float, ...] = Field(default=(), description="Mean of each channel, in units of 0..1, by commas.")
    std: tuple[float, ...] = Field(default=(), description="Standard deviation of each channel, by commas.")
    pad: bool = Field(default=False, description="Frame smaller pictures with black instead of scaling them.")
    tokenizer: str | None = Field(
        default=None, description="For texts: package.module:factory of a function from a list of texts to tensors."
    )

    @field_validator("size", "mean", "std", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return listed(value)

    @property
    def seeds(self) -> tuple[int, ...]:
        """By which seeds rows are chosen."""
        return (self.seed,)

    @field_validator("channels")
    @classmethod
    def _grey_or_colour(cls, value: int | None) -> int | None:
        if value not in (None, 1, 3):
            raise ValueError("1 or 3")
        return value


class CompareOptions(CaptureOptions):
    """Options of `features compare`."""

    random_nets: int = Field(
        default=0,
        ge=0,
        le=999,
        description="Networks of the same architecture with random weights: the null of consistency.",
    )
    against: str | None = Field(
        default=None, description="A second network of the same lineage, such as a fine-tuned one: a MODEL address."
    )
    normalise: Normalise = Field(
        default="iso", description="Fitted on the source alone: none, iso (one scale), unit (each unit), whiten."
    )
    distance: Distance = Field(default="sliced", description="The distance of the gaps.")
    p: float = Field(default=2.0, ge=1, lt=float("inf"), description="Order of the Wasserstein distance.")
    epsilon: float | None = Field(
        default=None, gt=0, description="Of the Sinkhorn divergence, in squared units; none: a tenth of the mean cost."
    )
    projections: int = Field(default=500, ge=1, description="Directions of a sliced distance; below 30 it is told.")
    splits: int = Field(default=50, ge=2, description="Draws of two parts of the source and one of the target.")
    permutations: int = Field(default=199, ge=1, description="Relabellings of examples; p is at least 1/(1 + B).")
    repeats: int = Field(
        default=1,
        ge=1,
        le=99,
        description="Repetitions with other examples, directions, splits, relabellings, folds and random networks.",
    )
    level: float = Field(default=0.05, gt=0, lt=1, description="Family-wise level of the tests.")
    margin: float = Field(
        default=0.1,
        gt=0,
        lt=float("inf"),
        description="A gap whose upper end is below it is too small to matter, in units of z.",
    )
    evolution: Literal["pooled", "joint", "spectrum"] = Field(
        default="pooled",
        description="Distance between neighbouring layers: pooled values (any widths), joint (equal widths), spectrum.",
    )
    paired: Literal["auto", "yes", "no"] = Field(
        default="auto",
        description="Whether equal ids are the same thing twice (clean and changed copies): labels are then swapped within "
        "pairs. auto: where both sets come from one source.",
    )
    probe: bool = Field(
        default=True, description="Accuracy of a linear probe of each layer, where the target has labels."
    )
    class_gaps: bool = Field(
        default=True, description="Also the gap of each class, where both sets share names of classes."
    )
    reference: str | None = Field(default=None, description="Compare with this reference file in place of source data.")
    save_reference: str | None = Field(default=None, description="Write what the source's layers hold to this file.")
    looks: int = Field(
        default=1, ge=1, description="How often a reference will be looked at: the level is divided by it (Bonferroni)."
    )


class CompareConfig(CompareOptions):
    """What a comparison is told: its network, its data and its options."""

    model: str = Field(default="", description="The network: a MODEL address, or what one in memory was called.")
    source: str = Field(
        default="", description="The data it is known on: a DATA address, or what data in memory were called."
    )
    target: tuple[str, ...] = Field(
        default=(), description="New data: DATA addresses; the option may be given several times."
    )

    @field_validator("target", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed of every repetition; the first one's is the config's own."""
        from querist.statistics import torch_seed

        later = (torch_seed(self.seed, "compare", "repeat", repeat) for repeat in range(1, self.repeats))
        return (self.seed, *later)


class RankOptions(CaptureOptions):
    """Options of `features rank`."""

    layers: str = Field(
        default="blocks",
        min_length=1,
        description="preactivation, blocks, logits, or patterns of layer names, by commas.",
    )
    scores: tuple[Score, ...] = Field(
        default=("all",),
        min_length=1,
        description="nce, leep (of the network's own classes), nleep, logme, h-score, transrate, gbc, or all of them.",
    )
    truth: tuple[str, ...] = Field(
        default=(),
        description="What training reached: tables (csv, parquet) with columns model, layer, accuracy and, where there are "
        "several, target and seed; or run folders of `features freeze`. The option may be given several times.",
    )
    permutations: int = Field(
        default=99, ge=1, description="Permuted labellings of each score; p is at least 1/(1 + B)."
    )
    projections: int = Field(default=500, ge=1, description="Directions of the distance between source and target.")
    splits: int = Field(default=50, ge=2, description="Draws of two parts of the source and one of the target.")
    level: float = Field(default=0.05, gt=0, lt=1, description="Level of tests, and 1 less that of intervals.")

    @field_validator("scores", "truth", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return listed(value)


class RankConfig(RankOptions):
    """What a ranking is told: its networks, its labelled data and its options."""

    models: tuple[str, ...] = Field(
        default=(), description="The networks: MODEL addresses, or what those in memory were called."
    )
    target: str = Field(default="", description="Labelled data to start from: a DATA address.")
    source: str = Field(
        default="", description="Data that the networks know, for their distance to the target: a DATA address."
    )

    @field_validator("models", mode="before")
    @classmethod
    def _models(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class FreezeOptions(CaptureOptions):
    """Options of `features freeze`."""

    layers: str = Field(
        default="blocks",
        min_length=1,
        description="Layers whose A_l and N_l are recorded: preactivation, blocks, logits, or patterns of names, by commas.",
    )
    n: int = Field(
        default=300,
        ge=1,
        description="Rows of each data set on which A_l and N_l are measured, chosen by a seeded hash.",
    )
    blocks: str = Field(
        default="blocks",
        min_length=1,
        description="What is frozen one after the other: blocks (residual blocks, encoder layers), stages, or patterns of "
        "module names, by commas. What comes before a block is frozen with it.",
    )
    head: str | None = Field(
        default=None, description="The last linear layer, which a new one replaces; none: it is found, or one is added."
    )
    ks: tuple[str, ...] = Field(
        default=("stages",),
        min_length=1,
        description="Numbers of frozen blocks by commas; stages (0 and each stage's end), all.",
    )
    arms: tuple[Arm, ...] = Field(
        default=("pretrained", "random", "shuffled", "moments"),
        min_length=1,
        description="Initial weights: pretrained, random, shuffled, moments, scratch (random, nothing frozen), pretrained-kept.",
    )
    repeats: int = Field(default=3, ge=1, description="Repetitions: heads, orders, drawn weights and training rows.")
    epochs: int = Field(default=5, ge=1, description="Passes over the training rows, for each learning rate.")
    train_n: int | None = Field(
        default=None, ge=1, description="Training rows, drawn for each repeat; none: all there are."
    )
    test_n: int | None = Field(
        default=None,
        ge=1,
        description="Test rows, the same for all; none: all there are, or a fifth of a target without its own.",
    )
    test: tuple[str, ...] = Field(
        default=(),
        description="Data to test on, one for each target; none: the part `test` of a registered set, else rows set aside.",
    )
    block_shuffle: int | None = Field(
        default=None, ge=1, description="Cut the target's pictures into squares of so many pixels and shuffle them."
    )
    train_batch: int = Field(default=32, ge=1, description="Rows of a training step.")
    optimizer: Literal["adam", "adamw", "sgd"] = Field(default="adam", description="Optimiser.")
    lr: tuple[float, ...] = Field(
        default=(3e-4, 1e-3, 3e-3),
        min_length=1,
        description="Learning rates by commas; of several the best on validation rows is taken, cell by cell.",
    )
    weight_decay: float = Field(default=0.0, ge=0, lt=float("inf"), description="Weight decay.")
    validation: float = Field(
        default=0.2, gt=0, lt=1, description="Share of the training rows set aside where there are several rates."
    )
    cache: bool = Field(default=True, description="Run the frozen blocks once and not in every epoch.")
    processes: int = Field(default=1, ge=1, description="Processes that train one cell together.")
    projections: int = Field(default=200, ge=1, description="Directions of the distances A_l and N_l.")
    splits: int = Field(default=20, ge=2, description="Draws of parts for A_l and for the nulls of both.")
    delta: float = Field(default=0.01, ge=0, lt=1, description="Accuracy that is too little to matter, as a share.")
    level: float = Field(default=0.05, gt=0, lt=1, description="1 less the level of intervals.")

    @field_validator("arms", "test", "lr", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return listed(value)

    @field_validator("ks", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        parts = listed(list(value) if isinstance(value, range) else value)
        return tuple(str(part) if isinstance(part, int) and not isinstance(part, bool) else part for part in parts)

    @field_validator("lr")
    @classmethod
    def _rates(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0 < rate < float("inf") for rate in value) or len(set(value)) < len(value):
            raise ValueError("learning rates above 0, each once")
        return value


class FreezeConfig(FreezeOptions):
    """What a sweep is told: its network, its labelled targets and its options."""

    model: str = Field(default="", description="The network: a MODEL address, or what one in memory was called.")
    target: tuple[str, ...] = Field(
        default=(), description="Labelled data to train on: DATA addresses; the option may be given several times."
    )
    source: str = Field(
        default="", description="Data that the network knows, for A_l; none: A_l is not measured. A DATA address."
    )

    @field_validator("target", mode="before")
    @classmethod
    def _targets(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value
