"""What each command of the room can be told; imports neither torch nor scipy."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator

from querist.runs.study import StudyConfig, listed

__all__ = [
    "DEFAULT_HEADLINE",
    "AuditConfig",
    "AuditOptions",
    "DataOptions",
    "DetectConfig",
    "DetectOptions",
    "PoisonConfig",
    "PoisonOptions",
    "RepairConfig",
    "RepairOptions",
    "headline_of",
]

Selector = Literal["cat", "cat+", "random"]
PoisonMode = Literal["mix", "dirty", "clean"]
Base = Literal["auto", "table", "target"]
Method = Literal[
    "pattern",
    "consistency",
    "conflicts",
    "spectral",
    "clustering",
    "trajectory",
    "cleanse",
    "two-sample",
]
DEFAULT_HEADLINE = "size=5,rate=0.01,mode=mix,selector=cat+"


class Headline(NamedTuple):
    """The one attack that findings speak of."""

    size: int
    rate: float
    mode: str
    selector: str

    def __str__(self) -> str:
        return f"size={self.size},rate={self.rate:g},mode={self.mode},selector={self.selector}"

    @property
    def said(self) -> str:
        """The attack in words."""
        concepts = f"{self.size} concept{'s' if self.size > 1 else ''}"
        chosen = "drawn at random" if self.selector == "random" else f"chosen by {self.selector.upper()}"
        return f"{concepts} {chosen}, {100 * self.rate:g} % in mode {self.mode}"


def headline_of(text: str) -> Headline:
    """`size=5,rate=0.01,mode=mix,selector=cat+`, any part of it; what is not named is as in the default. Raises ValueError."""
    held: dict[str, str] = {"size": "5", "rate": "0.01", "mode": "mix", "selector": "cat+"}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        name, _, value = part.partition("=")
        if name not in held or not value:
            raise ValueError(f"parts of {DEFAULT_HEADLINE}")
        held[name] = value
    try:
        size, rate = int(held["size"]), float(held["rate"])
    except ValueError:
        raise ValueError(f"numbers, as in {DEFAULT_HEADLINE}") from None
    if size < 1:
        raise ValueError("a size of 1 or more")
    if not 0 < rate <= 1:
        raise ValueError("a rate with 0 < rate <= 1")
    if held["mode"] not in ("mix", "dirty", "clean"):
        raise ValueError("mode mix, dirty or clean")
    if held["selector"] not in ("cat", "cat+", "random"):
        raise ValueError("selector cat, cat+ or random")
    return Headline(size, rate, held["mode"], held["selector"])


def _texts(value: Any) -> Any:
    return tuple(str(part) for part in listed(value))


def _labels(value: Any) -> Any:
    """Labels as one text; a single one keeps a comma, so that 3 is a number of classes and "3," a class."""
    if isinstance(value, list | tuple):
        return ",".join(str(part) for part in value) + ("," if len(value) == 1 else "")
    return str(value)


def _in_range(value: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if name == "rates" and any(not 0 < rate <= 1 for rate in value):
        raise ValueError("rates with 0 < rate <= 1")
    if name == "sizes" and any(size < 1 for size in value):
        raise ValueError("sizes of 1 or more")
    return value


class DataOptions(StudyConfig):
    """How DATA is read; every command of the room takes them. A file that querist wrote needs none."""

    label: str | None = Field(default=None, description="Column of the class labels.")
    concepts: tuple[str, ...] = Field(
        default=(),
        description="Columns that are concepts: names or patterns, by commas; none: all that have no other role.",
    )
    id: str | None = Field(default=None, description="Column that names the rows.")
    split: str | None = Field(
        default=None,
        description="Column that says of each row train, val or test; none: a third of each class is set aside for tests.",
    )
    missing: tuple[str, ...] = Field(default=(), description="Texts that mean unknown, beside empty cells; by commas.")
    one_hot: bool = Field(
        default=False, description="Columns that are not 0/1 become one concept for each of their values."
    )
    npz: str | None = Field(default=None, description="Keys of a numpy archive: concepts=KEY,labels=KEY,split=KEY.")
    space: Literal["hard", "prob", "logit"] = Field(
        default="hard", description="What the concepts' values are: 0/1 (hard), 0 … 1 (prob), or any number (logit)."
    )
    binarise: str | None = Field(
        default=None,
        description="Where concepts are more than 0/1, how CAT+ and the pattern miner read them: a cut, or quantile:q.",
    )

    @field_validator("concepts", "missing", mode="before")
    @classmethod
    def _columns(cls, value: Any) -> Any:
        return _texts(value)


class HeadOptions(DataOptions):
    """How the models are trained that commands train themselves."""

    head: str = Field(default="mlp:512", description="From concepts to classes: linear, mlp:512, mlp:256,64.")
    epochs: int = Field(default=20, ge=1, description="Passes over the training rows of each head.")
    strength: str = Field(
        default="quantile",
        description="How a trigger is set where concepts are logits: quantile (5 % or 95 % of each), rowmax, fixed:M.",
    )


class AuditOptions(HeadOptions):
    """Options of `concepts audit`."""

    model: str | None = Field(
        default=None,
        description="The model under audit: a folder that CBM.save wrote, or g=MODEL,f=MODEL; none: one is trained.",
    )
    reference: str | None = Field(
        default=None,
        description="Rows that are trusted, with the same concepts: a DATA address, read with the same options.",
    )
    targets: str = Field(
        default="",
        description="Classes attacked: all, how many of them, or their labels by commas (a comma after a single one: '3,'); "
        "none: all of up to 50, else 10 (fast) or 20 (full).",
    )
    sources: tuple[str, ...] = Field(
        default=(), description="Only rows of these classes are counted in success rates; by commas. None: all others."
    )
    selectors: tuple[Selector, ...] = Field(
        default=(),
        description="How triggers are chosen: cat, cat+, random. None: cat+ and random (fast), or all (full).",
    )
    sizes: tuple[int, ...] = Field(
        default=(), description="Concepts in a trigger, by commas. None: the headline's (fast), or 2,5,10,20 (full)."
    )
    rates: tuple[float, ...] = Field(
        default=(),
        description="Rates of poisoning in 0 … 1, by commas. None: the headline's (fast), or .01,.05,.1 (full).",
    )
    poison_mode: tuple[PoisonMode, ...] = Field(
        default=(),
        description="mix, dirty, clean; of the modes that are not the headline's only its size and rate are tried. None: the "
        "headline's (fast), or all (full).",
    )
    base: Base = Field(default="auto", description="What a rate is taken of: auto, table, target.")
    tie_break: Literal["filter", "rarest", "index"] = Field(
        default="filter", description="Which of the concepts that leave as few rows CAT+ takes."
    )
    repeats: int | None = Field(
        default=None, ge=1, description="Repetitions: splits, initial weights, draws. None: 1 (fast) or 3 (full)."
    )
    headline: str = Field(
        default=DEFAULT_HEADLINE,
        description="The attack that findings speak of; what is not named is as in the default.",
    )
    asr_limit: float = Field(
        default=0.1, gt=0, lt=1, description="Excess success above which the data count as exposed, as a fraction."
    )
    budget: Literal["fast", "full"] = Field(
        default="fast",
        description="fast: the headline, 10 targets, no clean retrains; full: the whole grid, calibrated.",
    )
    retrains: int | None = Field(
        default=None,
        ge=0,
        le=999,
        description="Clean retrains that calibrate the inversion. None: 0 (fast) or 19 (full); 99 are needed for a no.",
    )
    repair: Literal["none", "best", "all"] = Field(
        default="none", description="Repairs that are tried on an attacked copy: none, a first choice (best), all."
    )
    groups: int = Field(default=4, ge=1, description="Groups of concepts of the certified vote.")
    class_level: bool = Field(
        default=False, description="All rows of a class should be equal: any row that deviates is reported."
    )
    permutations: int = Field(default=999, ge=19, description="Permutations of each test; p is at least 1/(1 + B).")

    @field_validator("sources", "selectors", "sizes", "rates", "poison_mode", mode="before")
    @classmethod
    def _several(cls, value: Any, info: Any) -> Any:
        return _texts(value) if info.field_name == "sources" else listed(value)

    @field_validator("targets", mode="before")
    @classmethod
    def _targets(cls, value: Any) -> Any:
        return _labels(value)

    @field_validator("headline")
    @classmethod
    def _headline(cls, value: str) -> str:
        return str(headline_of(value))

    @field_validator("rates", "sizes")
    @classmethod
    def _grid(cls, value: tuple[Any, ...], info: Any) -> tuple[Any, ...]:
        return _in_range(value, info.field_name)


class AuditConfig(AuditOptions):
    """What an audit is told: its data and its options."""

    data: str = Field(
        default="", description="The table of concepts: a DATA address, or what one in memory was called."
    )


class PoisonOptions(DataOptions):
    """Options of `concepts poison`."""

    target: str = Field(default="", description="Class that the trigger is to lead to.")
    selector: Selector = Field(default="cat+", description="How the trigger is chosen: cat, cat+, random.")
    size: int = Field(default=5, description="Concepts in the trigger.")
    rate: float = Field(default=0.01, description="Rate of poisoning, 0 < rate <= 1.")
    poison_mode: PoisonMode = Field(
        default="mix",
        description="mix: all rows of the target and a share of others; dirty: others alone; clean: rows of the target alone.",
    )
    base: Base = Field(default="auto", description="What the rate is taken of: auto, table, target.")
    tie_break: Literal["filter", "rarest", "index"] = Field(
        default="filter", description="Which of the concepts that leave as few rows CAT+ takes."
    )
    strength: str = Field(
        default="quantile", description="How the trigger is set where concepts are logits: quantile, rowmax, fixed:M."
    )

    @field_validator("target", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:
        return str(value)


class PoisonConfig(PoisonOptions):
    """What a poisoned copy is told: its table and its options."""

    data: str = Field(
        default="", description="The table of concepts: a DATA address, or what one in memory was called."
    )


class DetectOptions(HeadOptions):
    """Options of `concepts detect`."""

    model: str | None = Field(
        default=None,
        description="The model trained on DATA: a folder that CBM.save wrote, or g=MODEL,f=MODEL; none: a head is trained.",
    )
    reference: str | None = Field(
        default=None,
        description="Rows that are trusted, with the same concepts: a DATA address, read with the same options.",
    )
    methods: tuple[Method, ...] = Field(
        default=(),
        description="pattern, consistency, conflicts, spectral, clustering, trajectory, cleanse, two-sample; none: all that apply.",
    )
    truth: str | None = Field(
        default=None, description="truth.parquet of `concepts poison`: which rows are poisoned. Detectors never see it."
    )
    class_level: bool = Field(
        default=False, description="All rows of a class should be equal: any row that deviates is reported."
    )
    retrains: int = Field(default=0, ge=0, le=999, description="Clean retrains that calibrate the inversion.")
    permutations: int = Field(default=999, ge=19, description="Permutations of each test; p is at least 1/(1 + B).")
    power: int = Field(
        default=0,
        ge=0,
        le=999,
        description="Tries of what the methods would find here: each a clean resample, and the same rows with known poison at every rate. "
        "0: none; 20 tell the share within .2.",
    )
    targets: str = Field(
        default="",
        description="Classes that are planted in tries: all, how many of them, or their labels by commas (a comma after a single one). "
        "None: 5, of every class size.",
    )
    selectors: tuple[Selector, ...] = Field(
        default=(), description="How triggers of tries are chosen: cat, cat+, random, by commas. None: cat and cat+."
    )
    sizes: tuple[int, ...] = Field(default=(), description="Concepts in the triggers of tries, by commas. None: 5.")
    rates: tuple[float, ...] = Field(
        default=(), description="Rates of poisoning that are tried, in 0 … 1, by commas. None: .01,.05,.1."
    )
    poison_mode: PoisonMode = Field(
        default="mix", description="What is planted in tries: mix, dirty or clean, as in `concepts poison`."
    )

    @field_validator("methods", "selectors", "sizes", "rates", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return listed(value)

    @field_validator("targets", mode="before")
    @classmethod
    def _targets(cls, value: Any) -> Any:
        return _labels(value)

    @field_validator("rates", "sizes")
    @classmethod
    def _grid(cls, value: tuple[Any, ...], info: Any) -> tuple[Any, ...]:
        return _in_range(value, info.field_name)


class DetectConfig(DetectOptions):
    """What a search for poison is told: its data and its options."""

    data: str = Field(default="", description="The suspect table: a DATA address, or what one in memory was called.")


class RepairOptions(HeadOptions):
    """Options of `concepts repair`."""

    model: str | None = Field(
        default=None,
        description="The model to repair: a folder that CBM.save wrote, or g=MODEL,f=MODEL; none: a head is trained.",
    )
    method: str = Field(
        default="best",
        description="guard-names, guard-correlation, guard-random, fine-prune, unlearn, mask-concepts, relabel, drop-rows, stability; "
        "several by commas, or best: all of them, ranked on validation rows.",
    )
    flags: str | None = Field(
        default=None,
        description="rows.parquet of `concepts detect`, or of an audit: rows to drop or relabel; flags of clustering are left out.",
    )
    truth: str | None = Field(
        default=None,
        description="truth.parquet of `concepts poison`, with trigger.json beside it: the trigger that success is measured with. "
        "Without it inverted triggers are.",
    )
    groups: int = Field(default=4, ge=1, description="Groups of concepts of the certified vote.")
    asr_limit: float = Field(
        default=0.1, gt=0, lt=1, description="Excess success below which a repair has worked, as a fraction."
    )


class RepairConfig(RepairOptions):
    """What a repair is told: its data and its options."""

    data: str = Field(
        default="", description="The table of concepts: a DATA address, or what one in memory was called."
    )
