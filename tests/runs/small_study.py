"""A small study for the spine's own tests: two stages, array files, tables, findings, a figure, and ways to go wrong.

What goes wrong depends on files outside the config, so that a resumed run has the same config and another fate.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl

from querist.errors import BadValues
from querist.files import fingerprint
from querist.results.figure import Figure
from querist.results.finding import Finding
from querist.results.layout import Layout, Section
from querist.results.question import Question
from querist.results.table import Column, TableSpec
from querist.runs.study import Answer, Study, StudyConfig, Unit

BLOCKS = TableSpec(
    "blocks",
    "One random matrix per row.",
    (
        Column("name", "str", "Its name."),
        Column("path", "str", "The file that holds it."),
        Column("norm", "float", "Its Frobenius norm."),
        Column("seconds", "float", "Time taken.", "s"),
    ),
    ("name",),
)
PRODUCTS = TableSpec(
    "products",
    "The Gram matrix of each block.",
    (
        Column("name", "str", "Name of the block."),
        Column("trace", "float", "Trace of the Gram matrix."),
        Column("top", "float", "Its largest entry."),
        Column("threads", "int", "Threads that BLAS had."),
        Column("seconds", "float", "Time taken.", "s"),
    ),
    ("name",),
)
TOTALS = TableSpec(
    "totals",
    "Sums over blocks.",
    (Column("quantity", "str", "What is summed."), Column("value", "float", "The sum.")),
    ("quantity",),
)
BIG = Question("spine.big", "Is the block big?", "norm", "the expected norm", "above the expected norm", None)


class SmallConfig(StudyConfig):
    blocks: int = 6
    side: int = 40
    threads: int = 1
    cost: float = 1.0
    sleep: float = 0.0
    source: str | None = None
    trouble: str | None = None
    """A folder. While it holds a file `raise-KEY`, `kill-KEY`, `kill-once-KEY` or `hang-KEY`, that unit does so."""
    refuse: bool = False
    uses_torch: bool = False


class SmallStudy(Study[SmallConfig]):
    room = "spine"
    command = "small"
    stages: ClassVar[tuple[str, ...]] = ("make", "multiply")
    tables = (TOTALS, BLOCKS, PRODUCTS)
    questions = (BIG,)

    def check(self, config):
        if config.refuse:
            raise BadValues("Refused", value="refuse", mend="Do not refuse")

    def inputs(self, config):
        return {} if config.source is None else {"source": fingerprint(config.source)}

    def units(self, config, stage, done):
        if stage == "make":
            names = [f"block {i}/{config.blocks}" for i in range(config.blocks)]
            return [Unit(name, {"name": name}, config.cost, config.threads) for name in names]
        paths = dict(done["blocks"].select("name", "path").iter_rows())
        return [Unit(name, {"name": name, "path": path}, config.cost, config.threads) for name, path in paths.items()]

    def work(self, config, unit, folder):
        begun = time.perf_counter()
        trouble(config.trouble, unit.key)
        time.sleep(config.sleep)
        name = unit.payload["name"]
        if "path" not in unit.payload:
            seed = int.from_bytes(name.encode(), "big") % (1 << 63)
            block = np.random.default_rng([config.seed, seed]).standard_normal((config.side, config.side))
            np.save(folder / "block.npy", block)
            row = {"name": name, "path": str(folder / "block.npy"), "norm": float(np.linalg.norm(block))}
            return {"blocks": [row | {"seconds": time.perf_counter() - begun}]}
        block = np.load(unit.payload["path"])
        if config.uses_torch:
            import torch

            gram, threads = (torch.from_numpy(block).T @ torch.from_numpy(block)).numpy(), torch.get_num_threads()
        else:
            from threadpoolctl import threadpool_info

            gram, threads = block.T @ block, max(library["num_threads"] for library in threadpool_info())
        row = {"name": name, "trace": float(np.trace(gram)), "top": float(gram.max()), "threads": threads}
        return {"products": [row | {"seconds": time.perf_counter() - begun}]}

    def finish(self, config, tables):
        blocks, products = tables["blocks"], tables["products"]
        for path in blocks["path"]:
            assert Path(path).is_file()
        totals = pl.DataFrame({"quantity": ["norm", "trace"], "value": [blocks["norm"].sum(), products["trace"].sum()]})
        expected = float(config.side)
        findings = [
            Finding(name, "spine.big", norm, "norm", None, None, expected, None, "yes" if norm > expected else "no",
                    f"Its norm is {norm:.4g}; {expected:.4g} is expected.")
            for name, norm in blocks.select("name", "norm").iter_rows()
        ]  # fmt: skip
        figure = Figure(
            "norms", "Norms", "Each block's norm.", [{"type": "bar", "y": blocks["norm"].to_list()}], {}, "blocks"
        )
        sections = (Section("Blocks", ("Some words.",), (("*", "*"),), ("norms",), ("totals", "blocks", "products")),)
        return Answer(
            {"totals": totals, "blocks": blocks, "products": products},
            findings,
            [figure],
            Layout("Small", "A small study.", sections, self.tables, self.questions),
            {"n_blocks": config.blocks, "nothing": float("nan"), "norms": np.asarray(blocks["norm"])},
            ["A warning."],
            [{"what": "block -1", "reason": "it does not exist"}],
        )


def trouble(folder, key):
    if folder is None:
        return
    from querist.files import encode_key

    def ordered(what):
        return (Path(folder) / f"{what}-{encode_key(key)}").exists()

    if ordered("raise"):
        raise ValueError(f"trouble with {key}")
    if ordered("kill-once"):
        (Path(folder) / f"kill-once-{encode_key(key)}").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if ordered("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    while ordered("hang"):
        time.sleep(0.02)
