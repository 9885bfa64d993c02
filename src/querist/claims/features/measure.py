"""What the claims about features measure: a network, or a random one of its kind, over its blocks; one cell of a sweep."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.features.capturing import capture
from querist.features.configs import CompareConfig, FreezeConfig
from querist.features.random_nets import random_net
from querist.features.studies.freeze_cell import run_cell
from querist.features.studies.freeze_data import addresses_of, target_of
from querist.features.studies.measure_layer import measure_layer, probe_rows
from querist.features.studies.opening import Material, transform_of
from querist.features.studies.profile_net import measure_profile
from querist.sources.data import open_data
from querist.statistics import torch_seed

if TYPE_CHECKING:
    from querist.features.captured import Capture
    from querist.sources.data import Batch, Data
    from querist.sources.images.transform import Transform
    from querist.sources.tensors.ref import PassedOver

__all__ = ["jpeg_copies", "measure"]

PICTURES = {"channels": 3, "pad": True, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
"""What the networks' training did to its pictures; smaller ones are framed with black."""
Tables = dict[str, list[dict[str, Any]]]


def measure(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    """One piece."""
    if payload["kind"] == "cell":
        return _cell(payload, seed, device, folder)
    config = _config(payload, seed, device)
    of = {"net": payload["net"], "repeat": payload["repeat"]}
    random = payload["kind"] == "random"
    found = _random(config, payload["number"], payload["blocks"]) if random else _profile(config, payload)
    return {name: [{**of, **row} for row in rows] for name, rows in found.items()}


def _config(payload: Mapping[str, Any], seed: int, device: str) -> CompareConfig:
    """The same options as `querist features compare`; repeats after the first have a seed of their own."""
    repeat = payload["repeat"]
    return CompareConfig.build(
        model=payload["net"],
        source=payload["source"],
        target=tuple(payload["targets"]),
        layers="blocks",
        n=payload["n"],
        projections=payload["projections"],
        splits=payload["splits"],
        permutations=payload["permutations"],
        class_gaps=False,
        size=(payload["size"],),
        seed=torch_seed(seed, "claims", "profile", repeat) if repeat else seed,
        device=device,
        **PICTURES,
    )


def _material(config: CompareConfig, quality: Mapping[str, int]) -> Material:
    addresses = {"model": config.model, "source": config.source}
    addresses |= {f"target-{i}": name for i, name in enumerate(config.target)}
    changed = {
        f"target-{i}": jpeg_copies(config.source, transform_of(config), quality[name])
        for i, name in enumerate(config.target)
        if name in quality
    }
    return Material(addresses, changed)


def _captures(config: CompareConfig, network: Any, material: Material) -> tuple[Capture, dict[str, Capture]]:
    found = {}
    for role in ("source", *(f"target-{i}" for i in range(len(config.target)))):
        options: dict[str, Any] = {"n": config.n, "batch_size": config.batch_size, "device": config.device}
        found[role] = capture(
            network,
            material.data(role, config),
            layers=config.layers,
            reduce=config.reduce,
            seed=config.seed,
            **options,
        )
    return found["source"], {name: found[f"target-{i}"] for i, name in enumerate(config.target)}


def _blocks(capture: Capture, pattern: str) -> list[str]:
    return [name for name in capture.names if fnmatchcase(name, pattern)]


def _profile(config: CompareConfig, payload: Mapping[str, Any]) -> Tables:
    material = _material(config, payload.get("quality", {}))
    source, targets = _captures(config, material.network("model"), material)
    layers = _blocks(source, payload["blocks"])
    tables: Tables = {"draws": [], "probes": [], "passed_over": []}
    for layer in layers:
        if payload["tested"]:
            found = measure_layer(config, source, targets, layer)
            for name in ("draws", "probes"):
                tables[name] += found[name]
        else:
            for name, one in targets.items():
                probe_rows(config, tables, one, layer, name, np.asarray(one[layer].rows))
    del tables["passed_over"]  # classes that are too small to be probed: at the sizes declared there are none
    followed = measure_profile(config, "model", source, targets, layers)
    return {**tables, "evolution": followed["evolution"], "net_profiles": followed["net_profiles"]}


def _random(config: CompareConfig, number: int, blocks: str) -> Tables:
    material = _material(config, {})
    options: dict[str, Any] = {"n": config.n, "batch_size": config.batch_size, "device": config.device}
    net = random_net(
        material.network("model"), material.data("source", config), repeat=number, seed=config.seed, **options
    )
    source, targets = _captures(config, net, material)
    found = measure_profile(config, f"random-{number:03d}", source, targets, _blocks(source, blocks))
    return {"evolution": found["evolution"], "net_profiles": found["net_profiles"]}


def jpeg_copies(address: str, transform: Transform, quality: int) -> Data:
    """The pictures of a data set, written as JPEG of this quality and read again before anything else is done to them.

    Ids and source are those of the data set, so that each copy is known to be a pair with its original.
    """
    raw = open_data(address)

    def fetch(ids: np.ndarray) -> tuple[Batch, list[PassedOver]]:
        import torch

        batch, broken = raw.fetch(ids)
        if not len(batch.ids):
            return batch, broken
        stack = np.rint(batch.inputs.numpy() * 255).astype(np.uint8).transpose(0, 2, 3, 1)
        coded = np.stack([_coded(picture, quality) for picture in stack])
        return replace(batch, inputs=torch.from_numpy(transform(coded))), broken

    return replace(raw, fetch=fetch)


def _coded(picture: np.ndarray, quality: int) -> np.ndarray:
    from PIL import Image

    from querist.sources.images.pictures import decode

    file = io.BytesIO()
    image = Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else picture)
    image.save(file, "JPEG", quality=quality)
    return decode(file.getvalue(), "a JPEG copy")


def _cell(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Tables:
    config = FreezeConfig.build(
        model=payload["net"],
        target=(payload["target"],),
        source=payload["source"],
        layers="blocks",
        n=payload["n"],
        train_n=payload["train_n"],
        test_n=payload["test_n"],
        epochs=payload["epochs"],
        train_batch=payload["batch"],
        lr=tuple(payload["lr"]),
        arms=tuple(dict.fromkeys(("pretrained", payload["arm"]))),
        repeats=payload["repeat"] + 1,
        size=(payload["size"],),
        seed=seed,
        device=device,
        **PICTURES,
    )
    material = Material(addresses_of(config), {})
    classes = target_of(config, material, 0).classes
    cell = {"target": 0, "classes": classes, "first": False} | {n: payload[n] for n in ("arm", "k", "repeat")}
    found = run_cell(material, config, cell, str(folder))
    return {name: [{"net": payload["net"], **row} for row in found[name]] for name in ("cells", "latent")}
