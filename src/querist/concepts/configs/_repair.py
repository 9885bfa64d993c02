"""What repairs can be told."""

from __future__ import annotations

from pydantic import Field

from querist.concepts.configs._shared import HeadOptions

__all__ = ["RepairConfig", "RepairOptions"]


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
