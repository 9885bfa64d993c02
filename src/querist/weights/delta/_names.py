"""Names of one network in two files: wrappers and prefixes undone, so that a tensor has one name in both."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from querist.sources.tensors.ref import TensorRef
from querist.weights.spectrum import low_rank_stem

__all__ = ["REPLACED", "common_names", "plain_name", "renamed", "with_shared_hints"]

_WRAPPERS = re.compile(
    r"(?:^|(?<=\.))(?:(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|base_layer)\."
    r"|modules_to_save\.(?:[^.]+\.(?=.*[^.]))?)"
)
"""What torch.compile, FSDP, activation checkpointing and PEFT put into the middle of names."""
_PEFT = "base_model.model."
REPLACED = re.compile(r"(?:^|\.)original_module\.")
"""PEFT keeps the untrained original of a module that it saves whole."""
_KOHYA = re.compile(r"^lora_(?:unet|te\d*|transformer|[a-z0-9]+)_")
_STRUCTURE = ("kind", "role", "groups", "transposed", "layout", "gates", "gate_axis", "gate_order", "parts", "columns")


def plain_name(name: str) -> str:
    """A name without what wrappers put into it.

    >>> plain_name("base_model.model.encoder.query.base_layer.weight")
    'encoder.query.weight'
    """
    return _WRAPPERS.sub("", name).removeprefix(_PEFT)


def common_names(base: Iterable[str], tuned: Iterable[str]) -> dict[str, str]:
    """Each name of TUNED to the plain name that the same tensor has in BASE, or to its own plain name where there is none.

    A prefix that one of the two puts before all its names ("model.", "bert.") is taken off or put on where most of the
    names that are left agree on it. Halves of low-rank pairs are named after their layer, also where its dots were
    written as underscores.
    """
    known = {plain_name(name) for name in base}
    plain = {name: plain_name(name) for name in tuned}
    wanted = {name: _targets(text) for name, text in plain.items()}
    left = {name for name, targets in wanted.items() if not known & set(targets)}
    free = known - {target for name in wanted if name not in left for target in wanted[name]}
    while left and (found := _prefix(free, {name: wanted[name] for name in left})) is not None:
        tuned_has_more, prefix = found
        moved = {}
        for name in left:
            text = plain[name]
            new = text.removeprefix(prefix) if tuned_has_more else prefix + text
            if new != text and known & set(_targets(new)):
                moved[name] = new
        if not moved:
            break
        plain |= moved
        left -= set(moved)
        free -= {target for text in moved.values() for target in _targets(text)}
    _underscored(plain, left, known)
    return plain


def _targets(name: str) -> tuple[str, ...]:
    """The names under which BASE may hold what a tensor of TUNED belongs to."""
    stem = low_rank_stem(name)
    return (name,) if stem is None else (f"{stem}.weight", stem, f"{stem}.in_proj_weight", name)


def _prefix(free: set[str], wanted: Mapping[str, Sequence[str]]) -> tuple[bool, str] | None:
    """The prefix on which most names agree: (whether TUNED is the one that has it, the prefix).

    None unless one prefix beats all others and serves half of the names that are left on one side: names such as
    `weight` end alike by chance.
    """
    votes: Counter[tuple[bool, str]] = Counter()
    ends = {target for targets in wanted.values() for target in targets}
    for targets in wanted.values():
        votes.update({(True, head) for target in targets for head, tail in _cuts(target) if tail in free})
    for name in free:
        votes.update({(False, head) for head, tail in _cuts(name) if tail in ends})
    ranked = votes.most_common(2)
    if not ranked or (len(ranked) > 1 and ranked[0][1] == ranked[1][1]):
        return None
    return ranked[0][0] if 2 * ranked[0][1] >= min(len(free), len(wanted)) else None


def _cuts(name: str) -> Iterable[tuple[str, str]]:
    """Every way to cut a name behind a dot."""
    return ((name[: i + 1], name[i + 1 :]) for i, letter in enumerate(name[:-1]) if letter == ".")


def _underscored(plain: dict[str, str], left: set[str], known: set[str]) -> None:
    """Names such as `lora_unet_down_blocks_0_to_q.lora_up.weight`, matched with their dots put back."""
    stems = {name.removesuffix(".weight").replace(".", "_"): name.removesuffix(".weight") for name in known}
    layers: dict[str, str] = {}
    for name in left:
        stem = low_rank_stem(plain[name])
        if stem is not None:
            bare = _KOHYA.sub("", stem)
            if bare in stems or stem in stems:
                layers[stem] = stems.get(stem, stems.get(bare, stem))
    for name, text in plain.items():
        stem, dot, rest = text.partition(".")
        if stem in layers:
            plain[name] = f"{layers[stem]}{dot}{rest}"


def renamed(refs: Sequence[TensorRef], names: Mapping[str, str]) -> tuple[list[TensorRef], dict[str, str]]:
    """The refs under new names (hints that hold names included), and each new name's old one.

    A new name that another tensor of the source has already is not taken.
    """
    taken: dict[str, str] = {}
    out = []
    for ref in refs:
        new = [_free(names.get(name, name), name, taken) for name in (ref.name, *ref.aliases)]
        hints = dict(ref.hints)
        if norm := hints.get("weight_norm"):
            moved = {part: names.get(norm[part], norm[part]) for part in ("g", "v")}
            hints["weight_norm"] = {**norm, **moved, "base": plain_name(str(norm["base"]))}
        out.append(replace(ref, name=new[0], aliases=tuple(new[1:]), hints=hints))
    return out, taken


def _free(new: str, old: str, taken: dict[str, str]) -> str:
    name = new if new not in taken else old
    taken[name] = old
    return name


def with_shared_hints(refs: Sequence[TensorRef], others: Sequence[TensorRef]) -> list[TensorRef]:
    """The refs with what the other source knows of the structure of a tensor of the same name and shape.

    A live network knows the groups of its convolutions and the gates of its recurrent layers, a file may not.
    """
    known: dict[str, Mapping[str, Any]] = {}
    for ref in others:
        hints = {key: ref.hints[key] for key in _STRUCTURE if key in ref.hints}
        if hints:
            known |= dict.fromkeys((f"{name} {ref.shape}" for name in (ref.name, *ref.aliases)), hints)
    out = []
    for ref in refs:
        more = known.get(f"{ref.name} {ref.shape}")
        out.append(ref if more is None else replace(ref, hints={**more, **ref.hints}))
    return out
