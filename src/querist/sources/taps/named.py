"""Graphs that forget their modules (TorchScript, ONNX): places and blocks told by the names of the weights used before them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from querist.sources.taps.sites import Key, Kind, Site, block_of, renamed
from querist.sources.tensors.ref import PassedOver

__all__ = ["Step", "chart"]


@dataclass(frozen=True, slots=True)
class Step:
    """One operator in order of execution.

    `path` is the module of the weights it uses, or that the file names, "" where there is none; `activation` its plain name
    where it is one; `layout` where it puts units; `key` where its argument is read; `owner` whether `path` is that of the
    activation itself; `inside` whether it is that of the module in which the operator was called.
    """

    path: str
    activation: str = ""
    layout: str = ""
    key: Key = ()
    owner: bool = False
    inside: bool = False


def chart(
    steps: Sequence[Step], logits: Key, *, hidden: Iterable[str] = ()
) -> tuple[list[Site], list[tuple[Kind, PassedOver]]]:
    """Sites of a graph, in order, their shapes not known yet; and activations inside branches, which cannot be read.

    An activation belongs to the block of the weights used last, else to the module above those weights. A block's value is
    the argument of its last activation: nothing says what its output is.
    """
    children: dict[str, list[str]] = {}
    for step in steps:
        parts = step.path.split(".") if step.path else []
        for end, name in enumerate(parts):
            below = children.setdefault(".".join(parts[:end]), [])
            if name not in below:
                below.append(name)
    sites: list[Site] = []
    last: dict[str, int] = {}
    path, layout = "", "first"
    for step in steps:
        path, layout = step.path or path, step.layout or layout
        if not step.activation:
            continue
        block = block_of(path, {}, children) if path else ""
        above = path if step.inside else block or path.rpartition(".")[0]
        home = path if step.owner else f"{above}.{step.activation}".removeprefix(".")
        if block:
            last[block] = len(sites)
        sites.append(Site(home, "preactivation", step.activation, (), step.key, layout, block=block))  # pyright: ignore[reportArgumentType]
    out: list[Site] = []
    for place, site in enumerate(sites):
        out.append(site)
        out += [
            Site(block, "block", "block", (), site.key, site.layout, block=block)
            for block, end in last.items()
            if end == place
        ]
    out.append(Site("logits", "logits", "output", (), logits, layout))  # pyright: ignore[reportArgumentType]
    silent: list[tuple[Kind, PassedOver]] = [
        ("preactivation", PassedOver(name, None, None, "it is inside a branch or loop of the graph")) for name in hidden
    ]
    return list(renamed(out)), silent
