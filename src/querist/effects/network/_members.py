"""The networks of one estimator: made, trained on their folds, asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from querist.effects.arrays import as_they_appear
from querist.effects.design import component_scores, effect_scores, gamma
from querist.effects.encoder import Widths
from querist.effects.links import Links
from querist.effects.metrics import rate_values_of
from querist.effects.netrows import PREDICTED, Batch, batches_of, rows_within, tensors_of
from querist.effects.nettrain import made, outcome_terms
from querist.effects.network._architecture import Architecture
from querist.effects.network._net import Network
from querist.effects.network._watch import Watch
from querist.effects.sample import Sample
from querist.errors import BadOption
from querist.sources.rows import Columns, Encoded
from querist.statistics import stream
from querist.statistics.arrays import in_blocks
from querist.training.losses import balance

__all__ = [
    "architecture_of",
    "by_fold",
    "by_rows",
    "folder_of",
    "latents_and_balance",
    "mean_response",
    "member",
    "name_of",
    "ready",
    "refuse_small_batches",
    "stream_loss",
    "validation_rate",
    "watch",
]

WATCHED = 512
"""Rows of the batch that is watched."""

ASKED = 1_024
"""Most rows that go through a network at a time where nothing is learnt: as many as stay in the caches."""


def architecture_of(
    columns: Columns, arms: int, links: Links, tier_weights: Sequence[float], **options: Any
) -> Architecture:
    """The architecture for columns and outcomes that were learnt."""
    widths = Widths.of(columns)
    weights = tuple(float(w) for w in tier_weights)
    return Architecture(
        numbers=widths.numbers,
        levels=widths.levels,
        missing=widths.missing,
        arms=arms,
        latents=links.latents,
        tier_weights=weights,
        **options,
    )


def member(architecture: Architecture, arm: Int[np.ndarray, "n"], seed: int, *names: Any) -> Network:
    """A new network. Embeddings are dealt to arms as they appear among the rows, so that names of arms change nothing."""
    net: Network = made(lambda: Network(architecture), seed, *names)
    if hasattr(net, "arms"):
        seen = [code - 1 for code in as_they_appear(arm) if code > 0]
        order = [*seen, *(m for m in range(architecture.arms) if m not in set(seen))]
        with torch.no_grad():
            net.arms.weight[torch.tensor(order)] = net.arms.weight.clone()
    return net


def latents_and_balance(
    penalty: str | None, strength: float
) -> Callable[[Any, Batch], tuple[torch.Tensor, Mapping[str, Any]]]:
    """What a batch is judged by: latents under the arms given, and how far arms differ in the tokens' means, in training."""
    distance = {"mmd": "mmd-rbf"}.get(str(penalty), penalty)

    def observed(net: Any, batch: Batch) -> tuple[torch.Tensor, Mapping[str, Any]]:
        tokens = net.tokens(batch["numbers"], batch["missing"], batch["codes"])
        latent, _ = net.observed(tokens, batch["arm"])
        if distance is None or not net.training:
            return latent, {}
        options: dict[str, Any] = {"seed": None} if distance == "wasserstein" else {}
        total, weight = balance(tokens.mean(2).flatten(1), batch["arm"], distance=distance, **options)  # pyright: ignore[reportArgumentType]
        return latent, {"balance": (strength * total, weight)}

    return observed


def validation_rate(sample: Sample, rows: Int[np.ndarray, "r"], links: Links) -> Callable[[Any], dict[str, float]]:
    """`score(net)` -> {"rate": mean over arms and outcomes of qini of total effects, in sd of the outcome}, on rows set aside."""
    part = sample.take(rows)
    found: list[tuple[int, np.ndarray, np.ndarray, float]] = []
    for k in range(len(part.outcomes.names)):
        seen = np.flatnonzero(part.outcomes.observed[:, k])
        codes, y = part.arm[seen], part.outcomes.values[seen, k]
        if np.bincount(codes, minlength=part.arms + 1).all() and y.std() > 0:
            psi = effect_scores(gamma(codes, y, part.propensity[seen], "arm"))
            found.append((k, seen, component_scores(psi, "total"), float(y.std())))
    if not found:
        raise BadOption(
            "No outcome has rows of every arm to select by", value="select='rate'", mend="Give a larger val_fraction"
        )

    def score(net: Any) -> dict[str, float]:
        device = next(net.parameters()).device
        size = rows_within(net, lambda batch: net(*batch), part.encoded, ASKED) if device.type == "cpu" else PREDICTED
        with torch.no_grad():
            response = np.concatenate(
                [
                    links(net(*(one.to(device) for one in batch)).double().cpu()).numpy()
                    for batch in batches_of(part.encoded, size)
                ]
            )
        total = response[:, 1:] - response[:, :1]
        values = [
            rate_values_of(psi[:, m], total[seen, m, k])[0] / sd
            for k, seen, psi, sd in found
            for m in range(psi.shape[1])
        ]
        return {"rate": float(np.mean(values))}

    return score


def watch(sample: Sample, rows: Int[np.ndarray, "r"], links: Links, weighting: str, seed: int) -> Watch:
    """A `Watch` over some of these rows of a sample, weighted as in training."""
    drawn = np.sort(stream(seed, "effects", "watch").permutation(rows)[:WATCHED])
    return Watch(tensors_of(sample.take(drawn), links, weighting), links)


def refuse_small_batches(architecture: Architecture, device: str) -> dict[str, Any]:
    """Options that batch norm asks for; BadOption where its statistics could not be those of the whole batch."""
    if architecture.norm != "batch" or architecture.expert != "resnet1d":
        return {}
    group = torch.distributed
    if group.is_available() and group.is_initialized() and group.get_world_size() > 1:
        raise BadOption(
            "Batch norm would take each process's own statistics",
            value=f'preset="paper" in {group.get_world_size()} processes',
            allowed="one process, or layer norm",
        )
    return {"drop_last": True}


def by_fold(folds: Int[np.ndarray, "n"], size: int) -> Iterator[Int[np.ndarray, "r"]]:
    """Numbers of the rows of each fold in turn, `size` at a time: for every other number of rows the matrix products of a network
    would keep something of their own."""
    for number in range(int(folds.max()) + 1):
        rest = np.empty(0, dtype=np.int64)
        for part in in_blocks(len(folds)):
            rest = np.concatenate([rest, part.start + np.flatnonzero(folds[part] == number)])
            while len(rest) >= size:
                yield rest[:size]
                rest = rest[size:]
        if len(rest):
            yield rest


def by_rows(architecture: Architecture, balance: str | None) -> bool:
    """Whether the loss is a sum over rows: neither batch norm nor a distance between arms looks at a batch as one."""
    return balance is None and architecture.norm != "batch"


def folder_of(checkpoint: Path | str | None, fold: int, one: int) -> Path | None:
    """Where a member keeps its checkpoints."""
    return None if checkpoint is None else Path(checkpoint) / name_of(fold, one)


def name_of(fold: int, one: int) -> str:
    """What a member is called to those who watch its training: the fold that it does not see, its number in the ensemble."""
    return f"network-{fold}-{one}"


def ready(net: Network) -> Network:
    """A trained network as it answers: on the CPU, in eval mode, without gradients."""
    net.zero_grad(set_to_none=True)
    return net.to("cpu").eval()


def mean_response(
    members: Sequence[Network], links: Links, encoded: Encoded, rows: Int[np.ndarray, "r"] | None = None
) -> Float[np.ndarray, "n M+1 K"]:
    """Mean over networks of their mean outcomes under every arm, of all rows or of those named."""
    first = members[0]
    if first.at_once is None and (len(encoded) if rows is None else len(rows)) >= ASKED:
        tried = encoded[slice(ASKED) if rows is None else rows[:ASKED]]
        first.at_once = rows_within(first, lambda batch: first(*batch), tried, ASKED)
    size = first.at_once or ASKED
    with torch.no_grad():
        found: list[Any] = [
            sum(links(net.precise(*batch)) for net in members) / len(members)
            for batch in batches_of(encoded, size, rows)
        ]
    return torch.cat(found).numpy()


def stream_loss(links: Links, names: Sequence[str], scales: Mapping[str, float], observed: Any) -> Any:
    """The loss that `nettrain.train` has, for batches that are streamed."""

    def loss(model: Any, batch: Batch) -> dict[str, Any]:
        latent, more = observed(model, batch)
        return {**outcome_terms(links, names, latent, batch, scales), **more}

    return loss
