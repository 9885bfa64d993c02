"""What was measured, as a table and as artefacts/bench.json, which is rewritten after every family."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.timing import Ratio
from querist.files import write_json

PATH = Path(__file__).resolve().parent.parent / "artefacts" / "bench.json"
HEAD = ("line", "ours", "limit or peer", "ratio", "target", "")


@dataclass
class Ledger:
    """Lines by family, with the machine's load when a family ended."""

    order: Sequence[str]
    families: dict[str, dict[str, Any]]
    path: Path = PATH

    @classmethod
    def read(cls, order: Sequence[str], *, afresh: bool, path: Path = PATH) -> Ledger:
        """The ledger of earlier families, or an empty one."""
        if afresh:
            path.unlink(missing_ok=True)
        ledger = cls(order, {}, path)
        ledger._look()
        return ledger

    def _look(self) -> None:
        """Take over what the file says: another run may have written to it since."""
        if self.path.exists():
            kept = json.loads(self.path.read_text())["families"]
            self.families |= {name: kept[name] for name in self.order if name in kept}

    def add(self, family: str, lines: Sequence[Ratio], failed: str = "") -> None:
        """Keep a family's lines, and write all that is known."""
        self._look()
        self.families[family] = {
            "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            "failed": failed,
            "lines": [{**asdict(line), "verdict": line.verdict} for line in lines],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.path, {"machine": machine(), "families": self.families, "counts": self.counts()})

    def rows(self) -> list[dict[str, Any]]:
        """All lines, in the order of the families."""
        return [line for name in self.order if name in self.families for line in self.families[name]["lines"]]

    def counts(self) -> dict[str, int]:
        """How many lines are held, missed and absent, and how many families broke off."""
        verdicts = [line["verdict"] for line in self.rows()]
        counted = {name.lower(): verdicts.count(name) for name in ("held", "MISSED", "absent")}
        return counted | {"failed": sum(bool(found["failed"]) for found in self.families.values())}

    @property
    def whole(self) -> bool:
        """No target missed, no family broken off."""
        counts = self.counts()
        return not counts["missed"] and not counts["failed"]

    def table(self) -> str:
        """Every line, and what stands beside it."""
        rows = [HEAD]
        for line in self.rows():
            named = line["named"]
            beside = f"{amount(line['beside'], line['unit'])} {named}".strip()
            sign = "<=" if line["most"] else ">="
            value = "-" if line["value"] is None else f"{line['value']:.3g}"
            rows.append(
                (
                    line["what"],
                    amount(line["ours"], line["unit"]),
                    f"{named}: {line['absent']}" if line["absent"] else beside,
                    value,
                    f"{sign} {line['target']:g}",
                    line["verdict"],
                )
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
        text = "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )
        broken = [f"{name} broke off: {found['failed']}" for name, found in self.families.items() if found["failed"]]
        counts = self.counts()
        summed = f"{counts['held']} held, {counts['missed']} missed, {counts['absent']} absent"
        return "\n".join([text, "", *broken, summed])


def amount(value: float | None, unit: str) -> str:
    """A number of seconds in a unit that one reads, or of anything else in its own."""
    if value is None:
        return ""
    if unit == "s":
        for scale, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if abs(value) >= scale:
                return f"{value / scale:.3g} {name}"
    return f"{value:.3g} {unit}".rstrip()


def machine() -> dict[str, Any]:
    """What was measured on, without names of machines or people."""
    return {
        "cpus": os.cpu_count(),
        "processor": processor(),
        "python": platform.python_version(),
        "clock": "CPU seconds of one process, one thread",
        "versions": {name: version(name) for name in ("torch", "numpy", "scipy", "polars", "pyarrow")},
    }


def processor() -> str:
    """The processor's model where the system tells it."""
    told = Path("/proc/cpuinfo")
    if told.exists():
        for line in told.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()
