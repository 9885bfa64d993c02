"""Capture: what the layers of a network hold of a data set, as rows with their moments, within a bound on memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.errors import BadOption, MemoryBound, NonFinite, TooFewRows
from querist.features.captured import INPUT, Capture, CapturedLayer
from querist.features.reduction import Reduction, projection
from querist.sources.tensors.ref import PassedOver
from querist.statistics import Moments
from querist.statistics.moments import PIECE

if TYPE_CHECKING:
    from torch import Tensor

    from querist.sources.data import Batch, Data
    from querist.sources.taps import Site, Tap

__all__ = ["WIDEST", "capture", "free_memory"]

WIDEST = 2048
"""Units of a layer whose covariance is kept; wider ones need a projection."""
INPUT_UNITS = 256
"""Units of the pseudo-layer of the input."""


def capture(
    model: Any,
    data: Any,
    *,
    layers: str | Sequence[str] = "preactivation",
    reduce: str = "mean",
    n: int | None = 2000,
    ids: Sequence[int] | np.ndarray | None = None,
    batch_size: int = 128,
    proj_dim: int | None = None,
    seed: int = 0,
    device: str = "auto",
    max_bytes: int | None = None,
    spill: str | Path | None = None,
) -> Capture:
    """Run a network over a choice of rows and keep what its layers hold.

    Parameters
    ----------
    model: a MODEL address, a torch module, an ExportedProgram, a ScriptModule.
    data: a DATA address or open data (`sources.data.open_data`, which takes the transform and tokenizer).
    layers: `preactivation`, `blocks`, `logits`, or patterns of names (one text, several, a comma list).
    reduce: `mean`, `sites:k`, `cls`, `last`, or `flat` (with `proj_dim`).
    n: rows chosen by a seeded hash of their ids, the same for every layer and network; None for all. `ids` names them instead.
    proj_dim: layers with more units are projected by a fixed random matrix to so many. Layers wider than 2,048 need it.
    max_bytes: bound on memory, computed before anything is read; by default a quarter of what is free.
    spill: a folder for rows as `.npy` files, which then do not count.

    The network is read in evaluation mode and put back as it was. Rows are float32, moments are summed in float64. Batch sizes
    do not matter: rows agree to about 1e-6 of their scale.

    Raises UnknownName (no such layer), TooFewRows, NonFinite (set, layer, count, first ids), ShapeMismatch, CorruptFile,
    MemoryBound (with both numbers and the ways out), BadOption, and what opening the network and the data raises.

    Source: ours; moments after Chan, Golub & LeVeque (1983).
    """
    from querist.sources.data import choose_ids, open_data
    from querist.sources.models import open_model
    from querist.sources.taps import Tap

    reduction = Reduction.of(reduce, proj_dim)
    if proj_dim is not None and not 1 <= proj_dim <= WIDEST:
        raise BadOption("proj_dim is out of range", value=proj_dim, allowed=f"1 to {WIDEST}")
    network, rows = open_model(model), open_data(data)
    chosen = choose_ids(rows, n, seed=seed) if ids is None else _given(rows, ids)
    if not len(chosen):
        raise TooFewRows(f"There are no rows in {rows.name}", value=0)
    unread = len(rows.passed_over)
    with Tap(network, layers=layers, device=device) as tap:
        run = _Run(tap, rows, chosen, reduction, batch_size, proj_dim, seed)
        run.plan(_allowed(max_bytes), Path(spill) if spill is not None else None)
        run.go()
    return run.result(reduce, tuple(rows.passed_over[unread:]))


def free_memory() -> int:
    """Bytes of memory that are free on this machine, within the limit of a container where there is one."""
    free = []
    try:
        with Path("/proc/meminfo").open() as file:
            free += [int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable")]
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if limit.isdigit():
            free.append(int(limit) - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    except (OSError, ValueError, IndexError):
        pass
    if not free and hasattr(os, "sysconf"):  # macOS does not say what is free: half of what there is
        free.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
    return max(min(free, default=4 << 30), 0)


def _allowed(max_bytes: int | None) -> int:
    if max_bytes is not None and max_bytes < 1:
        raise BadOption("A bound on memory must be at least 1 byte", value=max_bytes)
    return free_memory() // 4 if max_bytes is None else max_bytes


def _given(data: Data, ids: Sequence[int] | np.ndarray) -> np.ndarray:
    given = np.asarray(ids)
    if given.ndim != 1 or (given.size and not np.issubdtype(given.dtype, np.integer)):
        raise BadOption(
            "Rows are named by their whole numbers", value=given.reshape(-1)[:5].tolist(), allowed="ids of the data"
        )
    found = np.unique(given.astype(np.int64))
    if len(missing := np.setdiff1d(found, data.ids)):
        raise BadOption(
            f"{len(missing)} ids are not in {data.name}", value=missing[:5].tolist(), allowed=f"{len(data)} ids"
        )
    return found


class _Store:
    """Rows of one layer as they come in, with their moments."""

    def __init__(self, site: Site | None, most: int, units: int, matrix: np.ndarray | None, path: Path | None):
        self.site, self.width, self.matrix = site, units, matrix
        self.units = units if matrix is None else matrix.shape[1]
        shape = (most, self.units)
        if path is None:
            self.rows = np.empty(shape, np.float32)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        self.images = np.empty(most, np.int64)
        self.filled = 0
        self.seen = 0
        self._on_device: Any = None

    def add(self, rows: Tensor, counts: np.ndarray, first: int) -> np.ndarray:
        """Take rows of images `first`, `first + 1`, ... in; which of them are not finite, as their places."""
        import torch

        places = np.repeat(np.arange(first, first + len(counts)), counts)
        bad = ~torch.isfinite(rows).all(1).cpu().numpy()
        if bad.any():
            return np.unique(places[bad])
        if self.matrix is not None:
            if self._on_device is None or self._on_device.device != rows.device:
                self._on_device = torch.from_numpy(self.matrix).to(rows.device)
            rows = rows @ self._on_device
        kept = rows.cpu().numpy()
        end = self.filled + len(kept)
        self.rows[self.filled : end] = kept
        self.images[self.filled : end] = places
        self.filled, self.seen = end, self.seen + len(counts)
        return places[:0]

    def layer(self, name: str, index: int, kind: str, operation: str) -> CapturedLayer:
        """What was taken in. Moments do not depend on the batches: they are summed over all rows, piece by piece."""
        moments = Moments(self.units, covariance=True).update(self.rows[: self.filled])
        return CapturedLayer(
            name,
            index,
            kind,
            operation,
            self.width,
            self.rows[: self.filled],
            self.images[: self.filled],
            moments.mean,
            moments.cov,
        )


class _Run:
    """One pass over the chosen rows."""

    def __init__(
        self,
        tap: Tap,
        data: Data,
        ids: np.ndarray,
        reduction: Reduction,
        batch_size: int,
        proj_dim: int | None,
        seed: int,
    ):
        self.tap, self.data, self.ids, self.reduction = tap, data, ids, reduction
        self.batch_size, self.proj_dim, self.seed = batch_size, proj_dim, seed
        self.stores: dict[Any, _Store] = {}
        self.input: _Store | None = None
        self.passed_over: list[PassedOver] = []
        self.kept_ids: list[np.ndarray] = []
        self.labels: list[np.ndarray | None] = []
        self.bound, self.peak = 0, None

    def plan(self, allowed: int, spill: Path | None) -> None:
        """Look at the first rows, compute what memory is needed, and make room. Raises MemoryBound, BadOption."""
        first = self._first()
        self.tap.look(first.inputs)
        self.passed_over = list(self.tap.passed_over)
        plans: list[tuple[Site | None, int, int, int]] = []  # site, rows, units before and after projection
        flat = _flat(first.inputs)
        if flat is not None:
            plans.append((None, len(self.ids), flat.shape[1], min(flat.shape[1], INPUT_UNITS)))
        for site in self.tap.sites:
            many, units = self.reduction.shape(site)
            to = min(units, self.proj_dim or units)
            reason = self.reduction.refusal(site)
            if reason is None and to > WIDEST:
                reason = f"it has {units} units, more than {WIDEST}: give proj_dim"
            if reason is not None:
                self.passed_over.append(PassedOver(site.name, site.shape, None, reason))
            else:
                plans.append((site, len(self.ids) * many, units, to))
        if not any(site is not None for site, *_ in plans):
            reasons = "; ".join(f"{row.what}: {row.reason}" for row in self.passed_over[:5])
            raise BadOption(
                "None of the layers can be captured", value=reasons or "no layer", allowed="see the reasons"
            )
        self.bound = self._bytes(plans, first, spilled=spill is not None)
        if self.bound > allowed:
            raise MemoryBound(
                f"Capturing {len(plans)} layers of {len(self.ids)} rows needs {self.bound} bytes",
                value=self.bound,
                allowed=f"{allowed} bytes",
                mend="Use fewer rows (n), fewer layers, a smaller batch_size, proj_dim, .npy files (spill), or raise max_bytes",
            )
        for place, (site, most, units, to) in enumerate(plans):
            matrix = projection(units, to, self.seed)
            store = _Store(site, most, units, matrix, None if spill is None else spill / f"{place:04d}.npy")
            if site is None:
                self.input = store
            else:
                self.stores[site.key] = store
        kept = set(self.stores)
        self.tap.sites = tuple(site for site in self.tap.sites if site.key in kept)

    def _first(self) -> Batch:
        """The first three rows that can be read."""
        from querist.sources.data import batches
        from querist.sources.taps.tap import part

        before = len(self.data.passed_over)
        for batch in batches(self.data, self.ids, min(max(3, self.batch_size), 16)):
            many = min(len(batch.ids), 3)
            if len(batch.ids) >= min(3, len(self.ids)):
                del self.data.passed_over[before:]  # they are read again
                return type(batch)(batch.ids[:many], part(batch.inputs, 0, many), None)
        raise TooFewRows(f"No row of {self.data.name} can be read", value=0)

    def _bytes(self, plans: list[tuple[Site | None, int, int, int]], first: Batch, *, spilled: bool) -> int:
        rows = sum(most * to * 4 for _, most, _, to in plans if not spilled)
        moments = sum(to * to * 8 for *_, to in plans)
        matrices = sum(units * to * 4 for _, _, units, to in plans if to < units)
        given = first.inputs.values() if isinstance(first.inputs, dict) else [first.inputs]
        one = sum(value[0].numel() * value.element_size() for value in given if hasattr(value, "element_size"))
        # A layer's argument, its result and one more are alive at once while a network runs.
        batch = min(self.batch_size, len(self.ids)) * (2 * one + 3 * self.tap.row_bytes)
        # Moments are summed afterwards, over pieces in float64 and their differences to the mean.
        pieces = max(min(most * to, PIECE) * 16 for _, most, _, to in plans)
        return rows + moments + matrices + max(batch, pieces)

    def go(self) -> None:
        """Read and run, batch by batch."""
        from querist.sources.data import batches

        meter = _Meter()
        done = 0
        for batch in batches(self.data, self.ids, self.batch_size):
            mask = batch.inputs.get("attention_mask") if isinstance(batch.inputs, dict) else None
            flat = _flat(batch.inputs)
            if self.input is not None and flat is not None:
                self._check(self.input.add(flat, np.ones(len(flat), np.int64), done), INPUT, batch.ids, done)

            def receive(
                site: Site, value: Tensor, start: int, batch: Batch = batch, mask: Any = mask, done: int = done
            ) -> None:
                ids = batch.ids[start : start + len(value)]
                kept = mask[start : start + len(value)] if mask is not None else None
                rows, counts = self.reduction(value, site, ids, kept, self.seed)
                self._check(self.stores[site.key].add(rows, counts, done + start), site.name, batch.ids, done)
                meter.look()

            self.tap.run(batch.inputs, receive)
            self.kept_ids.append(batch.ids)
            self.labels.append(batch.labels)
            done += len(batch.ids)
        self.peak = meter.peak

    def _check(self, bad: np.ndarray, layer: str, ids: np.ndarray, done: int) -> None:
        if len(bad):
            raise NonFinite(
                f"NaN or infinity in {layer} of {self.data.name}, in {len(bad)} rows of a batch of {len(ids)}",
                value=f"ids {ids[bad - done][:5].tolist()}",
                mend="Mend or leave out these rows"
                if layer == INPUT
                else "Look at the network's weights, or leave the layer out",
            )

    def result(self, reduce: str, unread: tuple[PassedOver, ...]) -> Capture:
        """What was captured; layers that some batch did not reach are passed over."""
        ids = np.concatenate(self.kept_ids)
        found = [] if self.input is None else [self.input.layer(INPUT, 0, "input", "projection")]
        for index, site in enumerate(self.tap.sites, 1):
            store = self.stores[site.key]
            if store.seen == len(ids):
                found.append(store.layer(site.name, index, site.kind, site.operation))
            else:
                reason = f"it was reached for {store.seen} of {len(ids)} rows"
                self.passed_over.append(PassedOver(site.name, site.shape, None, reason))
        known = [part for part in self.labels if part is not None]
        labels = np.concatenate(known) if known and len(known) == len(self.labels) else None
        network = self.tap.network
        return Capture(
            model=network.name,
            form=network.form,
            data=self.data.name,
            source=self.data.source or self.data.name,
            reduce=reduce,
            proj_dim=self.proj_dim,
            seed=self.seed,
            ids=ids,
            labels=labels,
            classes=self.data.classes,
            layers=tuple(found),
            bytes_bound=self.bound,
            bytes_peak=self.peak,
            passed_over=tuple(self.passed_over),
            unread=unread,
            notes=tuple(self.tap.notes),
        )


class _Meter:
    """The most memory that the process held above what it held at the start, where the system tells it."""

    def __init__(self) -> None:
        self.start = _resident()
        self.peak = 0 if self.start is not None else None

    def look(self) -> None:
        now = _resident()
        if now is not None and self.start is not None:
            self.peak = max(self.peak or 0, now - self.start)


def _resident() -> int | None:
    try:
        with Path("/proc/self/statm").open("rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _flat(inputs: Any) -> Tensor | None:
    """A floating tensor as rows [b, d]; None for token ids and dicts."""
    import torch

    if not isinstance(inputs, torch.Tensor) or not inputs.is_floating_point():
        return None
    return inputs.reshape(len(inputs), -1).float()
