"""One cell of a sweep: initial weights, norms set on the target, training, the test, and what the layers hold of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.errors import NonFinite
from querist.features.captured import Capture
from querist.features.capturing import capture, free_memory
from querist.features.configs import FreezeConfig
from querist.features.freezing import (
    Blocks,
    Latent,
    Plan,
    Room,
    Trained,
    Tuned,
    check_frozen,
    end_layer,
    find_blocks,
    frozen_layers,
    hold,
    initial,
    latent,
    train_cell,
    with_head,
)
from querist.features.random_nets import set_norms
from querist.features.studies.captures import peak, unread_rows
from querist.features.studies.freeze_data import Target, target_of
from querist.features.studies.opening import Material
from querist.statistics import torch_seed

if TYPE_CHECKING:
    from querist.training import Hook

__all__ = ["blocks_of", "few_rows", "run_cell"]

Tables = dict[str, list[dict[str, Any]]]


def few_rows(target: Target) -> Any:
    """Inputs of three training rows: what a network is looked at with."""
    return target.train.read(target.train_ids(0)[:3]).inputs


def blocks_of(config: FreezeConfig, material: Material, target: Target) -> Blocks:
    """The blocks of the network. Raises as `find_blocks`."""
    return find_blocks(material.network("model").module, few_rows(target), config.blocks, config.head)  # pyright: ignore[reportAttributeAccessIssue]


def run_cell(
    material: Material, config: FreezeConfig, cell: Mapping[str, Any], folder: str, hooks: Sequence[Hook] = ()
) -> Tables:
    """Train and measure one cell: `target` (its number), `arm`, `k`, `repeat`, `classes`, `first`.

    In a group of processes all of them train and process 0 alone measures; the others return nothing.
    """
    begun = time.perf_counter()
    target = target_of(config, material, cell["target"])
    k, rank = cell["k"], _rank()
    room = Path(folder) / f"held-{rank}"
    try:
        blocks = blocks_of(config, material, target)
        model = _prepared(config, material, target, blocks, cell)
        before = _captured(config, model, target) if rank == 0 else None
        trained = _trained(config, model, blocks, target, cell, room, hooks)
        if before is None:
            return {}
        fixed = frozen_layers(before, blocks, k)
        captures, found = [before], []
        after, source = None, None
        if trained.status == "ok":  # what is not finite has no distances
            try:
                after = _captured(config, model, target)
                source = _source(config, material, model) if config.source else None
            except NonFinite as error:  # a loss may be finite where a layer is not: tanh of infinity is one
                trained = replace(trained, status="diverged", reason=str(error), accuracy=None, loss=None)
        if trained.status == "ok" and after is not None:
            check_frozen(before, after, fixed)
            captures += [after, *([source] if source is not None else [])]
            options = {"projections": config.projections, "splits": config.splits, "seed": config.seed}
            found = list(latent(before, after, source, fixed, **options))
    finally:
        shutil.rmtree(room, ignore_errors=True)
    of = {"target": target.name, **{name: cell[name] for name in ("arm", "k", "repeat")}}
    tables: Tables = {
        "cells": [{**of, **_cell_row(trained), "seconds": time.perf_counter() - begun}],
        "rates": _rate_rows(of, trained),
        "latent": [{**of, **_latent_row(one)} for one in found if isinstance(one, Latent)],
        "captured": [{**of, **_captured_row(captures)}],
    }
    if cell["first"]:
        tables["blocks"] = _block_rows(blocks, before)
        tables["passed_over"] = [
            {"model": "model", "what": one[0], "reason": one[1]} for one in found if not isinstance(one, Latent)
        ]
        for one in {one.data: one for one in captures}.values():
            tables["passed_over"] += unread_rows(one, "model", one.data)
    return tables


def _rank() -> int:
    import torch

    group = torch.distributed
    return group.get_rank() if group.is_available() and group.is_initialized() else 0


def _prepared(
    config: FreezeConfig, material: Material, target: Target, blocks: Blocks, cell: Mapping[str, Any]
) -> Tuned:
    """The network with the arm's weights, the repeat's head, and norms set by one pass over the training rows."""
    arm, repeat = cell["arm"], cell["repeat"]
    net = initial(material.network("model").module, arm, repeat=repeat, seed=config.seed)  # pyright: ignore[reportAttributeAccessIssue]
    shape = {"repeat": repeat, "seed": config.seed, "target": target.name}
    model = with_head(net, blocks.head, few_rows(target), len(cell["classes"]), **shape)
    model.requires_grad_(True)
    if arm != "pretrained-kept":
        rows = replace(target.train, ids=target.train_ids(repeat), passed_over=[])
        set_norms(model.net, rows, n=None, batch_size=config.batch_size, seed=config.seed, device=config.device)
    return model


def _trained(
    config: FreezeConfig,
    model: Tuned,
    blocks: Blocks,
    target: Target,
    cell: Mapping[str, Any],
    folder: Path,
    hooks: Sequence[Hook],
) -> Trained:
    from querist.sources.taps.tap import device_of

    repeat = cell["repeat"]
    room = Room(free_memory() // 4 if config.max_bytes is None else config.max_bytes, folder)
    classes = np.asarray(cell["classes"], dtype=np.int64)
    how: dict[str, Any] = {"room": room, "batch_size": config.batch_size}
    train = hold(replace(target.train, passed_over=[]), target.train_ids(repeat), classes, **how)
    test = hold(replace(target.test, passed_over=[]), target.test_ids, classes, **how)
    plan = Plan(
        epochs=config.epochs,
        batch_size=config.train_batch,
        optimizer=config.optimizer,
        rates=config.lr,
        weight_decay=config.weight_decay,
        validation=config.validation,
        seed=torch_seed(config.seed, "freeze", "order", target.name, repeat),
        validation_seed=torch_seed(config.seed, "freeze", "validation", target.name, repeat),
        device=config.device,
        cache=config.cache,
        name=f"{target.name} {cell['arm']} k={cell['k']} repeat={repeat}",
    )
    model.to(device_of(config.device))
    return train_cell(model, blocks, cell["k"], train, test, plan, room=room, hooks=hooks)


def _captured(config: FreezeConfig, model: Tuned, target: Target) -> Capture:
    return _capture(config, model, replace(target.test, passed_over=[]), {"ids": target.measured()})


def _source(config: FreezeConfig, material: Material, model: Tuned) -> Capture:
    return _capture(config, model, material.data("source", config), {"n": config.n})


def _capture(config: FreezeConfig, model: Tuned, data: Any, rows: Mapping[str, Any]) -> Capture:
    return capture(
        model.net,
        data,
        layers=config.layers,
        reduce=config.reduce,
        batch_size=config.batch_size,
        proj_dim=config.proj_dim,
        seed=config.seed,
        device=config.device,
        max_bytes=config.max_bytes,
        **rows,
    )


# ------------------------------------------------------------------------------------------------------------ rows


def _cell_row(trained: Trained) -> dict[str, Any]:
    names = ("accuracy", "loss", "epochs", "trained_parameters", "learning_rate", "status", "reason")
    counts = ("n_train", "n_validation", "n_test", "cached")
    return {name: getattr(trained, name) for name in (*names, *counts)}


def _rate_rows(of: Mapping[str, Any], trained: Trained) -> list[dict[str, Any]]:
    names = ("learning_rate", "accuracy", "loss", "status", "seconds")
    return [
        {**of, **{name: getattr(one, name) for name in names}, "chosen": one.learning_rate == trained.learning_rate}
        for one in trained.rates
    ]


def _latent_row(one: Latent) -> dict[str, Any]:
    row: dict[str, Any] = {"layer": one.layer, "index": one.index, "frozen": one.frozen, "images": one.n_images}
    row |= {"n": one.move.value, "n_null": one.move.null_mean, "n_null_q95": one.move.null_q95}
    if one.gap is not None:
        row |= {"a": one.gap.value, "a_null": one.gap.null_mean, "a_null_q95": one.gap.null_q95}
        row |= {"a_excess": one.gap.excess}
    return row


def _captured_row(captures: Sequence[Capture]) -> dict[str, Any]:
    first = captures[0]
    return {
        "n": first.n,
        "ids_hash": first.ids_hash,
        "found": sum(one.health.found for one in captures),
        "captured": sum(one.health.captured for one in captures),
        "bytes_bound": max(one.bytes_bound for one in captures),
        "bytes_peak": peak(captures),
    }


def _block_rows(blocks: Blocks, before: Capture) -> list[dict[str, Any]]:
    return [
        {
            "k": k,
            "block": blocks.names[k - 1] if k else "",
            "layer": end_layer(before, blocks, k),
            "stage": k in blocks.stages,
            "frozen": list(blocks.frozen(k)),
        }
        for k in range(blocks.count + 1)
    ]
