"""The records of a watched training: every table as it stands, in bounded size, and what is needed to go on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from querist.results.summary import plain
from querist.sources.tensors.ref import PassedOver
from querist.weights import tables as specs
from querist.weights.monitor import Alarm, Kept, Look
from querist.weights.spectrum import LayerMatrix
from querist.weights.studies.watching import watched_rows

__all__ = ["Records"]

ROWS = 20_000
"""Rows of a table beside those of two looks, which are always kept: with all tables about 30 MB of memory."""
BINS_OF_A_LAYER = 80
"""What a spectrum takes: four decades."""
_MOST = {"trace": 400, "top_values": 200, "histograms": 60, "update_overlaps": 12}
"""Most looks of a table: a figure draws no more."""
ALARMS = 5000
"""Alarms that are kept: a layer can be told of a handful of times, unless it is damaged and mended over and over."""


_GOES_ON = ("directions", "alarms", "last", "whole", "update", "copies")


class Records:
    """Rows by table. The number of looks that a table keeps falls with the number of layers, so that its size does not grow."""

    def __init__(self, k: int):
        self.k = self.directions = k
        self.layers: dict[str, dict[str, Any]] = {}
        self.passed_over: list[dict[str, Any]] = []
        self.kept: dict[str, Kept] = {}
        self.alarms: list[dict[str, Any]] = []
        self.last: dict[str, dict[str, Any]] = {}
        self.whole: dict[str, dict[str, Any]] = {}
        self.update: dict[str, dict[str, Any]] = {}
        self.copies: dict[str, list[dict[str, Any]]] = {}

    def begin(self, made: Sequence[LayerMatrix], passed: Sequence[PassedOver]) -> None:
        """Take up which layers there are; called at every look, as a network may change while it trains."""
        self.layers = {
            matrix.layer_id: {
                "layer_id": matrix.layer_id,
                "kind": matrix.kind,
                "shape": list(matrix.tensor_shape),
                "N": min(matrix.shape),
                "M": max(matrix.shape),
                "q": min(matrix.shape) / max(matrix.shape),
                "dtype": matrix.dtype,
            }
            for matrix in made
        }
        self.passed_over = [
            {"what": item.what, "shape": list(item.shape or ()), "dtype": item.dtype, "reason": item.reason}
            for item in passed
        ]
        if not self.kept:
            count = max(len(made), 1)
            self.directions = _bounded(int(math.sqrt(ROWS / (8 * count))), 2, self.k)
            per_look = {
                "trace": 2 * count,  # its rows are five times as wide as any others
                "top_values": count * self.k,
                "histograms": count * BINS_OF_A_LAYER,
                "update_overlaps": count * 4 * self.directions**2,
            }
            self.kept = {name: Kept(_bounded(ROWS // per_look[name], 2, most)) for name, most in _MOST.items()}
            self.kept["events"] = Kept(_MOST["trace"])

    def add(self, looks: Sequence[Look], event: Mapping[str, Any]) -> list[Alarm]:
        """One event's looks; its alarms. A second look at a step, as the last one may be, completes the first."""
        step = event["step"]
        before = {row["layer_id"]: row for row in self._at(step, "trace")}
        for look in looks:
            known = {name: value for name, value in look.row.items() if value is not None}
            look.row = {**before.get(look.row["layer_id"], {}), **known}
        pairs = (row for look in looks for row in look.overlaps)
        rows = {
            "trace": [look.row for look in looks],
            "top_values": [row for look in looks for row in look.top_values],
            "histograms": [row for look in looks for row in look.histogram],
            "update_overlaps": [row for row in pairs if max(row["i"], row["j"]) < self.directions],
            "events": [dict(event)],
        }
        for one in self._at(step, "events"):
            rows["events"][0] |= {name: one[name] + event[name] for name in ("skipped", "seconds")}
        for name, found in rows.items():
            self.kept[name].add(found, again=bool(self._at(step, name)))
        for look in looks:
            row = look.row
            self.last[row["layer_id"]] = row
            if row["event"] == "whole" and row["status"] != "nonfinite":
                self.whole[row["layer_id"]] = row
                self.copies[row["layer_id"]] = look.copies
            if row.get("update_norm") is not None:
                self.update[row["layer_id"]] = row
        raised = [alarm for look in looks for alarm in look.alarms]
        self.alarms = (self.alarms + [alarm.as_dict() for alarm in raised])[-ALARMS:]
        return raised

    def _at(self, step: int, name: str) -> list[dict[str, Any]]:
        """A table's latest rows where they are of this step."""
        latest = self.kept[name].latest
        return latest if latest and latest[0].get("step") == step else []

    def book(self, own: float, training: float, closing: float = 0.0) -> None:
        """Correct the latest event's totals, once what followed it is paid for."""
        rows = list(self.kept["events"]) if self.kept else []
        if rows:
            rows[-1] |= {"own_seconds": own, "closing_seconds": closing}
            rows[-1]["overhead"] = own / training if training > 0 and rows[-1]["training_seconds"] > 0 else None

    def tables(self) -> dict[str, pl.DataFrame]:
        """Every table as a frame. The latest whole look and update of each layer are in the trace, however it is thinned."""
        watched = watched_rows(list(self.layers.values()), self.last, self.whole, self.update, self.alarms)
        copies = [row for name in self.layers for row in self.copies.get(name, ())]
        rows: dict[str, Any] = {
            "watched": watched,
            "null_copies": copies,
            "alarms": self.alarms,
            "passed_over": self.passed_over,
            **{name: list(kept) for name, kept in self.kept.items()},
        }
        there = {(row["step"], row["layer_id"]) for row in rows["trace"]}
        beside = {(row["step"], row["layer_id"]): row for row in (*self.whole.values(), *self.update.values())}
        more = [row for place, row in beside.items() if place not in there]
        if more:
            rows["trace"] = sorted(rows["trace"] + more, key=lambda row: row["step"])
        return {spec.name: spec.frame(rows[spec.name]) for spec in specs.MONITOR_TABLES}

    def state(self) -> dict[str, Any]:
        """Plain values from which `load_state` goes on."""
        kept = {name: kept.state() for name, kept in self.kept.items()}
        return plain({"kept": kept, **{name: getattr(self, name) for name in _GOES_ON}})

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""
        for name, rows in state["kept"].items():
            self.kept[name] = Kept(1)
            self.kept[name].load_state(rows)
        for name in _GOES_ON:
            value = state[name]
            setattr(self, name, type(getattr(self, name))(value))


def _bounded(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))
