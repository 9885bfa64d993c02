"""What each command of the room can be told; imports neither torch nor scipy."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from querist.runs.study import StudyConfig, listed

__all__ = [
    "COMPONENT_NAMES",
    "CONVENTION_NAMES",
    "AllocateConfig",
    "AllocateOptions",
    "CheckConfig",
    "CheckOptions",
    "EvaluateConfig",
    "EvaluateOptions",
    "FitConfig",
    "FitOptions",
    "MonitorConfig",
    "MonitorOptions",
    "PeopleOptions",
    "ScoreConfig",
    "ScoreOptions",
    "named_numbers",
]

Tier = Literal["mean", "reference"]
Expert = Literal["mlp", "ft", "resnet1d"]
Link = Literal["auto", "identity"]
Weighting = Literal["none", "ipw", "overlap"]
Shrink = Literal["tier", "flat", "slope", "none"]
Preset = Literal["default", "small", "paper"]
Component = Literal["total", "base", "incremental"]
Convention = Literal["rate", "sklift", "causalml"]
COMPONENT_NAMES: tuple[Component, ...] = ("total", "base", "incremental")
CONVENTION_NAMES: tuple[Convention, ...] = ("rate", "sklift", "causalml")


def named_numbers(pairs: tuple[str, ...], what: str) -> dict[str, float]:
    """`NAME=number` as they are spelled on the command line; the name may hold "=". Raises BadOption."""
    from querist.errors import BadOption

    found: dict[str, float] = {}
    for pair in pairs:
        name, sign, number = pair.rpartition("=")
        try:
            found[name] = float(number)
        except ValueError:
            sign = ""
        if not (sign and name):
            raise BadOption(f"{what} is not spelled as a name and a number", value=pair, allowed="NAME=NUMBER")
    return found


class PeopleOptions(StudyConfig):
    """Which column of a table of people is what; every command that reads one takes them."""

    arm: str | None = Field(default=None, description="Column of the arm that each person was given.")
    control: str | None = Field(
        default=None, description="Label of the arm without treatment; may be left out where it is 0."
    )
    outcome: tuple[str, ...] = Field(
        default=(),
        description="Column of an outcome, with its kind after a colon: binary, continuous, count or hurdle; none: found from "
        "the values. May be given several times.",
    )
    feature: tuple[str, ...] = Field(
        default=(), description="Columns, or patterns, that a model may see; none: all that have no other role."
    )
    drop: tuple[str, ...] = Field(default=(), description="Columns, or patterns, that are no features.")
    cluster: str | None = Field(
        default=None, description="Column of the unit that was assigned as a whole, such as a household."
    )
    block: str | None = Field(default=None, description="Column of the strata inside which units were assigned.")
    weight: str | None = Field(default=None, description="Column of row weights.")
    design: tuple[str, ...] = Field(
        default=(),
        description="Probability of each arm by design, LABEL=SHARE by commas, control included; none: the shares found.",
    )
    positive: str | None = Field(default=None, description="For outcomes in words: the label that counts as 1.")
    drop_missing_arm: bool = Field(
        default=False, description="Leave out rows without an arm instead of refusing the table."
    )
    min_rows: int = Field(default=30, ge=2, description="An outcome of an arm with fewer rows has no effect told.")
    min_events: int = Field(
        default=5, ge=1, description="So has a binary outcome of an arm with fewer of its rarer value."
    )
    level: float = Field(default=0.05, gt=0, lt=1, description="Level of tests, and 1 less that of intervals.")

    @field_validator("outcome", "feature", "drop", "design", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return listed(value)


class CheckOptions(PeopleOptions):
    """Options of `effects check`."""

    permutations: int | None = Field(
        default=None,
        ge=19,
        description="Relabellings of whole units behind each arm's p; none: 999, or 200 for each arm where those are more.",
    )
    rows: int = Field(
        default=20_000,
        ge=100,
        description="A classifier that tells arms apart sees at most about so many rows, whole clusters.",
    )
    power: float = Field(default=0.8, gt=0, lt=1, description="Of the detectable effects.")


class CheckConfig(CheckOptions):
    """What a check is told: its table and which column is what."""

    table: str = Field(default="", description="The table: a TABLE address, or what one in memory was called.")


class FitOptions(PeopleOptions):
    """Options of `effects fit`."""

    model: str = Field(
        default="mtmt",
        description="mtmt, or a baseline: s-learner, t-learner, x-learner, r-learner, dr-learner, tarnet, cfrnet, dragonnet, m3tn, "
        "efin-like, flextenet, mmoe, ple, constant, random, natural, single-arm.",
    )
    tier: Tier = Field(
        default="mean", description="What makes base and increments unique: weights, or an arm of reference."
    )
    reference_arm: str | None = Field(default=None, description="With --tier reference: the arm whose increment is 0.")
    preset: Preset = Field(
        default="default", description="Sizes of the network: default, small (7 times as fast) or paper."
    )
    expert: Expert = Field(
        default="mlp", description="What encodes a person: mlp, ft (a token per column) or resnet1d."
    )
    shrink: Shrink = Field(
        default="tier", description="How out-of-fold predictions are refitted: tier, flat (on totals), slope, or none."
    )
    folds: int | None = Field(
        default=None,
        ge=2,
        le=20,
        description="Folds of the cross-fitting; none: 2 for mtmt (a network each), 5 for x-, r- and dr-learners.",
    )
    propensity: Literal["share", "estimate"] = Field(
        default="share",
        description="Where --design is not given: arm shares, or estimated from the features, cross-fitted.",
    )
    weighting: Weighting = Field(default="none", description="Row weights that make arms alike: none, ipw or overlap.")
    link: Link = Field(default="auto", description="auto: by the outcome's kind; identity: the outcome itself.")
    epochs: int = Field(
        default=50, ge=1, description="Passes over the rows at most; a validation split stops them early."
    )
    batch_size: int | None = Field(
        default=None, ge=1, description="Rows of a step; none: a 32nd of the rows, 128 to 4096."
    )
    lr: float = Field(default=1e-3, gt=0, description="Learning rate.")
    val_fraction: float = Field(default=0.1, gt=0, lt=0.5, description="Share of rows that only stop the training.")
    ensemble: int = Field(default=1, ge=1, le=50, description="Fits of other seeds whose spread is told.")
    stream: bool = Field(
        default=False,
        description="Read the table row group by row group instead of holding it: for tables beyond memory.",
    )
    processes: int = Field(default=1, ge=1, description="Processes that train each network together.")
    margin: float = Field(
        default=0.1,
        gt=0,
        description="An average effect within so many standard deviations of control is too small to matter.",
    )


class FitConfig(FitOptions):
    """What a fit is told: its table, which column is what, and the model."""

    table: str = Field(default="", description="The table: a TABLE address, or what one in memory was called.")


class EvaluateOptions(PeopleOptions):
    """Options of `effects evaluate`."""

    also: tuple[str, ...] = Field(
        default=(),
        description="A further SOURCE on the same rows, with which the first is compared; may be given several times.",
    )
    value: tuple[str, ...] = Field(
        default=(),
        description="Worth of one unit of an outcome, OUTCOME=NUMBER by commas; below 0 where less of it is better.",
    )
    cost: tuple[str, ...] = Field(default=(), description="Cost of giving an arm to a person, ARM=NUMBER by commas.")
    component: tuple[Component, ...] = Field(
        default=COMPONENT_NAMES,
        min_length=1,
        description="Parts of the effect that are judged: total, base, incremental.",
    )
    convention: tuple[Convention, ...] = Field(
        default=CONVENTION_NAMES, min_length=1, description="Whose Qini and AUUC: rate, sklift, causalml."
    )
    k: tuple[float, ...] = Field(default=(0.1, 0.2, 0.3), description="Shares of the ranking whose uplift is told.")
    bins: int = Field(default=10, ge=2, description="Bins of the calibration.")
    bootstrap: int = Field(
        default=200, ge=0, description="Resamples behind the intervals of the libraries' conventions."
    )
    margin: float = Field(
        default=0.1,
        gt=0,
        description="An average effect within so many standard deviations of control is too small to matter.",
    )

    @field_validator("also", mode="before")
    @classmethod
    def _sources(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("value", "cost", "component", "convention", "k", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return listed(value)


class EvaluateConfig(EvaluateOptions):
    """What an evaluation is told: whose scores, on which table."""

    source: str = Field(
        default="", description="Whose scores: a model folder or the run that fitted it, or column:NAME of the table."
    )
    table: str = Field(default="", description="The table: a TABLE address, or what one in memory was called.")


class ScoreOptions(StudyConfig):
    """Options of `effects score`."""

    id: tuple[str, ...] = Field(default=(), description="Columns that are copied beside the scores.")
    columns: tuple[str, ...] = Field(
        default=(),
        description="Score columns, or patterns: natural:OUTCOME, base:OUTCOME, incremental:ARM:OUTCOME, total:ARM:OUTCOME, "
        "response:ARM:OUTCOME; none: all but responses.",
    )
    batch_rows: int = Field(default=16_384, ge=1, description="Rows that are scored at once.")
    file_rows: int = Field(default=1_048_576, ge=1, description="Rows of one file at most, row groups whole.")

    @field_validator("id", "columns", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return listed(value)


class ScoreConfig(ScoreOptions):
    """What scoring is told: the model, the table, where scores go."""

    model: str = Field(default="", description="A model folder, or the run that fitted it.")
    table: str = Field(default="", description="The table: a TABLE address, or what one in memory was called.")
    output: str = Field(default="", description="Folder of the scores' Parquet files.")


class AllocateOptions(StudyConfig):
    """Options of `effects allocate`."""

    budget: float | None = Field(default=None, description="What may be spent in all; inf for no limit.")
    value: tuple[str, ...] = Field(
        default=(),
        description="Worth of one unit of an outcome, OUTCOME=NUMBER by commas; none: 1 where there is one outcome.",
    )
    cost: tuple[str, ...] = Field(default=(), description="Cost of giving an arm to a person, ARM=NUMBER by commas.")
    cost_column: tuple[str, ...] = Field(
        default=(), description="Column of each person's cost of an arm, ARM=COLUMN by commas."
    )
    capacity: tuple[str, ...] = Field(default=(), description="Most people of an arm, ARM=NUMBER by commas.")
    group: str | None = Field(default=None, description="Column of groups of which a least share is to be treated.")
    group_min: float | None = Field(default=None, ge=0, le=1, description="That share.")
    net: bool = Field(default=False, description="Count costs against rewards.")
    method: Literal["auto", "path", "dual", "milp"] = Field(
        default="auto", description="path (one sort, all budgets), dual (bisection), milp (exact, small tables), auto."
    )
    id: str | None = Field(default=None, description="Column of people's ids, copied into the answer.")
    arm: str | None = Field(
        default=None,
        description="Column of the arm that each person was given, where outcomes of the same people are known.",
    )
    outcome: tuple[str, ...] = Field(
        default=(), description="With --arm: columns of the outcomes that are weighed, by commas."
    )
    control: str | None = Field(default=None, description="With --arm: label of control.")
    cluster: str | None = Field(
        default=None, description="With --arm: column of the unit that was assigned as a whole."
    )
    level: float = Field(default=0.05, gt=0, lt=1, description="Level of tests, and 1 less that of intervals.")

    @field_validator("value", "cost", "cost_column", "capacity", "outcome", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return listed(value)


class AllocateConfig(AllocateOptions):
    """What an allocation is told: the scores and what limits it."""

    scores: str = Field(default="", description="A table of scores, as `effects score` writes it: a TABLE address.")


class MonitorOptions(PeopleOptions):
    """Options of `effects monitor`. Without --arm only features and scores are compared."""

    segment: tuple[str, ...] = Field(
        default=(),
        description="Columns whose values are segments that need people under control; none: the model's categories.",
    )
    bins: int = Field(default=10, ge=2, le=100, description="Bins of a number, by quantiles of the earlier table.")
    resamples: int = Field(default=500, ge=100, description="Draws behind the .99 quantile of each stability index.")
    value: tuple[str, ...] = Field(
        default=(),
        description="Worth of one unit of an outcome, OUTCOME=NUMBER by commas: below 0 where less of it is the gain.",
    )

    @field_validator("segment", "value", mode="before")
    @classmethod
    def _segments(cls, value: Any) -> Any:
        return listed(value)


class MonitorConfig(MonitorOptions):
    """What is watched: a model, the table it was fitted on or first used on, and a later one."""

    model: str = Field(default="", description="A model folder, or the run that fitted it.")
    before: str = Field(default="", description="The earlier table: a TABLE address, or what one in memory was called.")
    after: str = Field(default="", description="The later table.")


class ExportOptions(StudyConfig):
    """Options of `effects export`."""

    format: Literal["torch", "onnx"] = Field(
        default="torch", description="torch (a .pt2 file of torch.export) or onnx (needs the package onnx)."
    )
    parity_rows: int = Field(
        default=1000, ge=2, description="Made-up rows on which the written file is held against the model."
    )


class ExportConfig(ExportOptions):
    """What an export is told: the model."""

    model: str = Field(default="", description="A model folder, or the run that fitted it.")
