"""The tap: chosen layers of a network, batch after batch, each value handed over at the moment it exists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from querist.errors import BadOption, TooFewRows
from querist.sources.taps.sites import Key, Network, Site, Survey, select
from querist.sources.tensors.ref import PassedOver

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Tap", "device_of", "part", "rows"]


class Tap:
    """Activations of a network by layer glob. A context: inside it the network is in evaluation mode on the device.

    >>> with Tap(network, layers="blocks") as tap:              # doctest: +SKIP
    ...     tap.look(first_rows)
    ...     tap.run(batch, lambda site, value, start: ...)

    After `look`, `sites` are the chosen ones in forward order, `passed_over` what was chosen and cannot be read, `notes` what
    a user should be told, `row_bytes` the bytes of one row's largest value (of all chosen values, where they exist at once).
    """

    def __init__(self, network: Network, *, layers: str | Sequence[str] = "preactivation", device: str = "auto"):
        self.network = network
        self.layers = layers
        self.device = device_of(device, network)
        self.sites: tuple[Site, ...] = ()
        self.passed_over: tuple[PassedOver, ...] = ()
        self.notes: list[str] = []
        self.row_bytes = 0
        self._stack = ExitStack()

    def __enter__(self) -> Tap:
        self.notes = self._stack.enter_context(self.network.ready(self.device))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # pyright: ignore[reportArgumentType]

    def look(self, inputs: Any) -> None:
        """Find the sites, from a few rows: three or more, unless there are fewer.

        Two passes with three and two rows tell which axis of a value belongs to the batch. Raises UnknownName, ShapeMismatch,
        TooFewRows for no rows.
        """
        count = rows(inputs)
        if not count:
            raise TooFewRows("There is no row to look at", value=0)
        if size := self.network.fixed_batch:
            survey = _with_batch_axes(self.network.survey(_filled(inputs, 0, size)), size)
        else:
            many = min(count, 3)
            survey = self.network.survey(part(inputs, 0, many))
            fewer = self.network.survey(part(inputs, 0, many - 1)) if many > 1 else None
            survey = _with_batch_axes(survey, many, fewer)
        self.sites, self.passed_over = select(survey, self.layers)
        taps = sum(4 * _numel(site.shape) for site in self.sites) if self.network.holds_all else 0
        self.row_bytes = survey.row_bytes // (size or min(count, 3)) + taps

    def run(self, inputs: Any, receive: Callable[[Site, Tensor, int], None]) -> None:
        """Run over a batch. `receive(site, value, start)` gets values with the batch axis first; `start` is the place of their
        first row in the batch. A value may be overwritten after the call: reduce or copy it at once.
        """
        sites = {site.key: site for site in self.sites}
        count = rows(inputs)
        size = self.network.fixed_batch or count
        for start in range(0, count, size):
            valid = min(size, count - start)

            def take(key: Key, value: Tensor, start: int = start, valid: int = valid) -> None:
                site = sites[key]
                try:
                    receive(site, value.movedim(site.batch_axis, 0)[:valid], start)
                except Exception as error:
                    raise _Relay(error) from None

            piece = inputs if size == count else _filled(inputs, start, size)
            try:
                self.network.run(piece, tuple(sites), take)
            except _Relay as relay:
                raise relay.error from None


class _Relay(BaseException):
    """Carries an error of the receiver through the forward pass, which would take it for its own."""

    def __init__(self, error: Exception):
        self.error = error


def device_of(device: str, network: Network | None = None) -> str:
    """`auto` is where the network is, if that is no CPU, else CUDA where there is one. Raises BadOption."""
    import torch

    module = getattr(network, "module", None)
    if device == "auto":
        where = next((value.device for value in module.parameters()), None) if module is not None else None
        if where is not None and where.type != "cpu":
            return str(where)
        movable = network is None or network.form in ("module", "torch.export")
        return "cuda" if movable and torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise BadOption("No such device", value=device, allowed="auto, cpu, cuda, cuda:1, mps") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise BadOption("There is no CUDA device here", value=device, allowed="auto or cpu")
    return device


def rows(inputs: Any) -> int:
    """Rows of a batch: the length of its (first) tensor."""
    if isinstance(inputs, Mapping):
        inputs = next(iter(inputs.values()))
    elif isinstance(inputs, tuple | list):
        inputs = inputs[0]
    return len(inputs)


def part(inputs: Any, start: int, stop: int) -> Any:
    """Rows start to stop of a batch."""
    if isinstance(inputs, Mapping):
        return {key: value[start:stop] for key, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(value[start:stop] for value in inputs)
    return inputs[start:stop]


def _filled(inputs: Any, start: int, size: int) -> Any:
    """`size` rows from `start` on, the last one repeated where they end."""
    import torch

    def one(value: Tensor) -> Tensor:
        piece = value[start : start + size]
        return (
            torch.cat([piece, piece[-1:].expand(size - len(piece), *piece.shape[1:])]) if len(piece) < size else piece
        )

    if isinstance(inputs, Mapping):
        return {key: one(value) for key, value in inputs.items()}
    return tuple(one(value) for value in inputs) if isinstance(inputs, tuple | list) else one(inputs)


def _with_batch_axes(survey: Survey, count: int, fewer: Survey | None = None) -> Survey:
    """Sites with their batch axis found and taken out of their shape; those without one become silent."""
    other = {(site.kind, site.name): site.shape for site in fewer.sites} if fewer is not None else None
    sites, silent = [], list(survey.silent)
    for site in survey.sites:
        axis, reason = _axis(site, count, other)
        if axis is None:
            silent.append((site.kind, PassedOver(site.name, site.shape, None, reason)))
        else:
            shape = (*site.shape[:axis], *site.shape[axis + 1 :])
            sites.append(replace(site, shape=shape, batch_axis=axis))
    return Survey(tuple(sites), tuple(silent), survey.row_bytes)


def _axis(site: Site, count: int, other: Mapping[tuple[str, str], tuple[int, ...]] | None) -> tuple[int | None, str]:
    shape = site.shape
    if other is None:
        found = [axis for axis in range(min(2, len(shape))) if shape[axis] == count]
        return (found[0], "") if found else (None, "no axis of its value belongs to the rows of the batch")
    before = other.get((site.kind, site.name))
    if before is None or len(before) != len(shape):
        return None, "it is not reached by every batch"
    moved = [axis for axis in range(len(shape)) if shape[axis] != before[axis]]
    if not moved:
        return None, "no axis of its value belongs to the rows of the batch"
    if len(moved) > 1 or shape[moved[0]] != count:
        return None, "the rows of the batch share an axis with something else"
    return moved[0], ""


def _numel(shape: Sequence[int]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count
