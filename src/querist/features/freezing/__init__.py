"""How many blocks of a network may be frozen: its blocks, initial weights beside which it is judged, training, break-even."""

from querist.features.freezing._arms import ARMS, Tuned, initial, with_head
from querist.features.freezing._blocks import Blocks, find_blocks
from querist.features.freezing._break_even import BreakEven, Effect, break_even, paired_effect
from querist.features.freezing._cell import Plan, Rate, Trained, train_cell
from querist.features.freezing._latent import Latent, check_frozen, end_layer, frozen_layers, latent
from querist.features.freezing._prefix import Prefix
from querist.features.freezing._rows import Held, Room, hold, no_labels, shuffled_blocks

__all__ = [
    "ARMS",
    "Blocks",
    "BreakEven",
    "Effect",
    "Held",
    "Latent",
    "Plan",
    "Prefix",
    "Rate",
    "Room",
    "Trained",
    "Tuned",
    "break_even",
    "check_frozen",
    "end_layer",
    "find_blocks",
    "frozen_layers",
    "hold",
    "initial",
    "latent",
    "no_labels",
    "paired_effect",
    "shuffled_blocks",
    "train_cell",
    "with_head",
]
