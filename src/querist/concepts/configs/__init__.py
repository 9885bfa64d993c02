"""What each command of the room can be told, a module per command; imports neither torch nor scipy."""

from querist.concepts.configs._audit import AuditConfig, AuditOptions
from querist.concepts.configs._detect import DetectConfig, DetectOptions
from querist.concepts.configs._headline import DEFAULT_HEADLINE, Headline, headline_of
from querist.concepts.configs._poison import PoisonConfig, PoisonOptions
from querist.concepts.configs._repair import RepairConfig, RepairOptions
from querist.concepts.configs._shared import DataOptions, HeadOptions

__all__ = [
    "DEFAULT_HEADLINE",
    "AuditConfig",
    "AuditOptions",
    "DataOptions",
    "DetectConfig",
    "DetectOptions",
    "HeadOptions",
    "Headline",
    "PoisonConfig",
    "PoisonOptions",
    "RepairConfig",
    "RepairOptions",
    "headline_of",
]
