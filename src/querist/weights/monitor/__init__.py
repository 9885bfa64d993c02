"""Watching a network while it trains: triplets that follow it, updates, alarms, and a pace that keeps to its price."""

from querist.weights.monitor._alarms import KINDS, Alarm, Known
from querist.weights.monitor._kept import BINS, Kept, log_histogram
from querist.weights.monitor._look import Look, Memory, Plan, begin_again, look
from querist.weights.monitor._pace import Event, FirstLook, Pace, Stopwatch, work
from querist.weights.monitor._processes import agreed, is_first
from querist.weights.monitor._reading import dense, devices, is_sharded, synchronise, unchanged, unwrapped, watched
from querist.weights.monitor._strength import FINITE, REGIMES, Strength, bulk_variance, strength
from querist.weights.monitor._triplets import Triplets, top_triplets

__all__ = [
    "BINS",
    "FINITE",
    "KINDS",
    "REGIMES",
    "Alarm",
    "Event",
    "FirstLook",
    "Kept",
    "Known",
    "Look",
    "Memory",
    "Pace",
    "Plan",
    "Stopwatch",
    "Strength",
    "Triplets",
    "agreed",
    "begin_again",
    "bulk_variance",
    "dense",
    "devices",
    "is_first",
    "is_sharded",
    "log_histogram",
    "look",
    "strength",
    "synchronise",
    "top_triplets",
    "unchanged",
    "unwrapped",
    "watched",
    "work",
]
