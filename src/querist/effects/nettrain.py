"""How every network of the room is trained: one loss per outcome and observed arm, one validation split, one optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import nn

from querist.effects.links import Link, Links, link_of
from querist.effects.netrows import PREDICTED, Batch, Table, batches_of, rows_within
from querist.effects.sample import Sample
from querist.errors import BadOption, TooFewRows, UnknownName, near
from querist.sources.rows import Encoded
from querist.statistics import torch_seed
from querist.statistics.arrays import index_type
from querist.training import Fit, fit
from querist.training.accelerate import on_cpu
from querist.training.batches import rows_of
from querist.training.losses import weighted_sum

__all__ = [
    "Observed",
    "batch_rows",
    "in_runs",
    "links_for",
    "made",
    "outcome_terms",
    "responses",
    "run_rows",
    "train",
    "validation_rows",
]

Terms = Mapping[str, tuple[torch.Tensor, torch.Tensor]]
Observed = Callable[[nn.Module, Batch], tuple[Float[torch.Tensor, "n L"], Terms]]
"""From a batch to the latents under the arm that each row got, and further terms of the loss."""

RUN = 1_024
"""Most rows that are differentiated at a time on a CPU. A step of 4,096 rows keeps 330 MB of the default network's activations; in
runs it has the same gradient in no more time, as a run stays in the caches, see `netrows.rows_within`."""


def train(
    net: nn.Module,
    sample: Sample,
    links: Links,
    *,
    rows: Int[np.ndarray, "r"] | None = None,
    observed: Observed | None = None,
    runs: bool | None = None,
    epochs: int = 50,
    batch_size: int | str = "auto",
    lr: float = 1e-3,
    weight_decay: float = 1e-3,
    val_fraction: float = 0.1,
    patience: int | None = 10,
    weighting: str = "none",
    outcome_weights: Mapping[str, float] | None = None,
    score: Callable[[nn.Module], Mapping[str, float]] | None = None,
    monitor: str = "total",
    mode: str = "min",
    hooks: Sequence[Any] = (),
    device: str = "auto",
    seed: int = 0,
    progress: Any = None,
    drop_last: bool = False,
    **options: Any,
) -> Fit:
    """Train a network in place on what each row's own arm showed; it ends on the CPU, in eval mode.

    net: forward(numbers [n, p], missing [n, p], codes [n, q]) -> latents [n, M + 1, L], control first. rows: numbers of those it
    sees, all where left out; no more than a batch of them is copied. observed: where more than the forward pass is needed in
    training; by default the row of `forward` that belongs to the arm. runs: whether a step may be taken in runs, see `in_runs`;
    where nothing is said, if `observed` is left out. The loss is Σ_k λ_k Σ_i w_ik·l_ik / Σ_i w_ik with w_ik = 0 where the outcome is
    missing, λ_k of `outcome_weights`. weighting: "none", "ipw" (1/e) or "overlap", times the row's weight. batch_size "auto": see
    `batch_rows`.
    val_fraction: share of rows on which training stops after `patience` epochs without a smaller loss (0: no such rows, all
    epochs); the best epoch's weights stay. score, monitor, mode: a figure of one's own to stop by, see `training.fit`, which
    further options go to (checkpoint, resume). AdamW with cosine decay to 0 over all epochs.

    Raises BadOption, TooFewRows, NumericalFailure.
    """
    rows = np.arange(sample.n, dtype=index_type(sample.n)) if rows is None else rows
    counts = (sample.outcomes.observed.any(axis=1) & (sample.weight > 0))[rows]
    if not counts.any():
        raise TooFewRows("No row has an outcome to learn from", value=0, allowed="1 or more")
    given = Table(sample, links, weighting)
    held = validation_rows(sample, val_fraction, rows)
    learn, check = rows[counts & ~held], rows[counts & held]
    size = batch_rows(learn.size) if batch_size == "auto" else batch_size
    if not isinstance(size, int):
        raise BadOption("batch_size is a number of rows", value=batch_size, allowed='"auto", or 1 or more')
    scales = dict(outcome_weights or {})
    runs = observed is None if runs is None else runs
    run = run_rows(net, given, observed, learn, device)
    cut = in_runs(sample.outcomes.names, size, device, run) if runs else {}

    def loss(model: nn.Module, batch: Batch) -> dict[str, Any]:
        if observed is None:
            latent, more = _own(model(batch["numbers"], batch["missing"], batch["codes"]), batch["arm"]), {}
        else:
            latent, more = observed(model, batch)
        return {**outcome_terms(links, sample.outcomes.names, latent, batch, scales), **more}

    result = fit(
        net,
        loss,
        rows_of(given, size, seed=seed, drop_last=drop_last, rows=learn),
        batch_size=size,
        epochs=epochs,
        validation=rows_of(given, min(size, run), seed=seed, shuffle=False, rows=check) if check.size else None,
        patience=patience if check.size else None,
        score=score if check.size else None,
        monitor=monitor,
        mode=mode,  # pyright: ignore[reportArgumentType]
        lr=lr,
        weight_decay=weight_decay,
        schedule="cosine",
        hooks=hooks,
        device=device,
        seed=seed,
        progress=progress,
        **cut,
        **options,
    )
    net.to("cpu").eval()
    return result


def links_for(
    sample: Sample,
    link: str | Mapping[str, str] = "auto",
    *,
    winsorise: float | None = None,
    huber: float | None = None,
    class_weight: str | float | None = None,
) -> Links:
    """The links of a sample's outcomes, their constants from its control rows; see `links.link_of`.

    link: "auto", a form for all, or outcome to form. Raises BadOption, UnknownName for an outcome that is none.
    """
    names = sample.outcomes.names
    asked = dict(link) if isinstance(link, Mapping) else dict.fromkeys(names, link)
    for name in asked:
        if name not in names:
            raise UnknownName("A link for an outcome that is none", value=name, allowed=near(name, names))
    made = []
    for k, (name, kind) in enumerate(zip(names, sample.outcomes.kinds, strict=True)):
        values, seen = sample.outcomes.values[:, k], sample.outcomes.observed[:, k]
        if not seen.any():
            made.append(Link("identity"))
            continue
        made.append(
            link_of(
                values if seen.all() else np.where(seen, values, np.nan),
                sample.arm,
                kind,
                asked.get(name, "auto"),
                weight=sample.weight,
                winsorise=winsorise,
                huber=huber,
                class_weight=class_weight,
            )
        )
    return Links(made)


def outcome_terms(
    links: Links, names: Sequence[str], latent: Float[torch.Tensor, "n L"], batch: Batch, scales: Mapping[str, float]
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """(λ_k Σ w·l, Σ w) of each outcome; rows of weight 0 do not count."""
    losses, terms = links.loss(latent, batch["y"]), {}
    for k, name in enumerate(names):
        total, weight = weighted_sum(losses[:, k], batch["weight"][:, k])
        terms[name] = (total * scales.get(name, 1.0), weight)
    return terms


def run_rows(net: nn.Module, given: Table, observed: Observed | None, rows: Int[np.ndarray, "r"], device: str) -> int:
    """Rows that are differentiated, or looked at, at a time: `RUN` at most, fewer where a row's activations are many."""
    batch = given.fetch(rows[:1])
    arm, targets = batch["arm"], {name: batch[name] for name in ("y", "weight")}

    def asked(encoded: Any) -> Any:
        if observed is None:
            return net(*encoded)
        own = {"arm": arm, **targets}
        many = {name: value.expand(len(encoded[0]), *value.shape[1:]) for name, value in own.items()}
        return observed(net, dict(zip(("numbers", "missing", "codes"), encoded, strict=True)) | many)

    return rows_within(net, asked, given.sample.encoded[rows[:RUN]], RUN) if on_cpu(device) else max(RUN, PREDICTED)


def in_runs(names: Sequence[str], size: int, device: str, run: int | None = None) -> dict[str, Any]:
    """Options of `training.fit` by which a step of `size` rows is taken in runs of at most `run`, by default `RUN`, on a CPU.

    Only for a loss that is `outcome_terms` of these outcomes and nothing else: what depends on a whole batch does not come in runs.
    """
    run = RUN if run is None else run
    if size <= run or not on_cpu(device):
        return {}

    def weights(batch: Batch) -> dict[str, torch.Tensor]:
        return dict(zip(names, batch["weight"].sum(0), strict=True))

    return {"accumulate": -(-size // run), "weights": weights}


def batch_rows(n: int) -> int:
    """n/32 rounded to a power of 2, within 128 and 4096: some thirty steps an epoch whatever the table."""
    return int(2 ** np.clip(round(math.log2(max(n, 1) / 32)), 7, 12))


def validation_rows(sample: Sample, fraction: float, rows: Int[np.ndarray, "r"] | None = None) -> Bool[np.ndarray, "r"]:
    """Which rows (of those named) are set aside: about this share, alike in arms and outcomes, clusters whole. Raises BadOption."""
    if not 0 <= fraction <= 0.5:
        raise BadOption("val_fraction lies outside its range", value=fraction, allowed="0 to .5")
    if fraction == 0:
        return np.zeros(sample.n if rows is None else len(rows), dtype=bool)
    k = max(2, round(1 / fraction))
    return sample.folds(k, by_outcome=True, rows=rows) == 0


def made(make: Callable[[], nn.Module], seed: int, *names: Any) -> Any:
    """A network with initial weights of a seed; the caller's random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "effects", "network", *names))
        return make()


def responses(net: nn.Module, links: Links, encoded: Encoded) -> Float[np.ndarray, "n M+1 K"]:
    """Mean outcomes under every arm, control first, of rows that went through the network in eval mode."""
    net.eval()
    size = rows_within(net, lambda batch: net(*batch), encoded, PREDICTED)
    with torch.no_grad():
        # In float64 from the latents on: effects are small differences of means.
        return np.concatenate([links(net(*batch).double()).numpy() for batch in batches_of(encoded, size)])


def _own(latents: Float[torch.Tensor, "n M+1 L"], arm: torch.Tensor) -> Float[torch.Tensor, "n L"]:
    return latents[torch.arange(len(arm), device=arm.device), arm]
