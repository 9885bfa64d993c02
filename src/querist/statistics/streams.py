"""Random streams: one independent generator per name, the same on every machine, process and engine."""

from __future__ import annotations

import hashlib
import operator

import numpy as np

from querist.errors import BadOption

__all__ = ["stream", "torch_seed"]


def _digest(seed: int, names: tuple[object, ...]) -> bytes:
    # Length-prefixed parts: ("a", "bc") and ("ab", "c") are different names. str() of an int and of its digits is the
    # same on purpose: a key read back from a file draws what the key in memory drew.
    try:
        parts = [str(operator.index(seed))]
    except TypeError:
        raise BadOption("A seed must be a whole number", value=seed, allowed="an integer") from None
    for name in names:
        if callable(name) or (type(name).__str__ is object.__str__ and type(name).__repr__ is object.__repr__):
            # Its text holds an address in memory: the stream would differ from process to process.
            raise BadOption("A stream's name must have a lasting text", value=name, allowed="text, numbers, paths")
        parts.append(str(name))
    hashed = hashlib.sha256()
    for part in parts:
        raw = part.encode()
        hashed.update(len(raw).to_bytes(8, "little") + raw)
    return hashed.digest()


def stream(seed: int, *names: object) -> np.random.Generator:
    """An independent random generator for these names.

    `names` are those parts of a unit's key on which a draw may depend; what is compared in pairs shares its names. Equal
    arguments give equal draws on every platform, whatever else was drawn before. Raises BadOption for a seed that is no
    whole number and for a name whose text differs from process to process (functions, bare objects).

    Source: ours; SHA-256 of the names as entropy of numpy's SeedSequence, bit generator PCG64DXSM.
    """
    words = np.frombuffer(_digest(seed, names), dtype="<u4")
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence([int(word) for word in words])))


def torch_seed(seed: int, *names: object) -> int:
    """A seed in [0, 2^63) for `torch.Generator.manual_seed`, from the same names as `stream`."""
    return int.from_bytes(_digest(seed, ("torch", *names))[:8], "little") >> 1
