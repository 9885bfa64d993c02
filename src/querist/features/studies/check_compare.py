"""What can be known to be wrong before a comparison begins, so that a mistake costs seconds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from querist.errors import BadOption, QueristError, ShapeMismatch, SourceNotFound, TooFewRows
from querist.features.configs import CompareConfig
from querist.features.errors import DimensionMismatch, LabelsNeeded
from querist.features.profile import arm_size
from querist.features.reduction import Reduction
from querist.features.studies.opening import Material

if TYPE_CHECKING:
    from querist.sources.data import Data
    from querist.sources.taps import Site

__all__ = ["check_compare"]

SQUARED = ("gaussian", "spectrum", "sinkhorn", "otdd")
TAKEN = ("source", "half", "floor", "")


def check_compare(config: CompareConfig, material: Material) -> None:
    """Raise BadInput for options that contradict each other, data that are too few or unlabelled, layers that do not exist."""
    _options(config)
    Reduction.of(config.reduce, config.proj_dim)
    if config.reference:
        from querist.features.reference import Reference

        Reference.read(config.reference)
    data = {name: material.data(f"target-{i}", config) for i, name in enumerate(config.target)}
    if not config.reference:
        data = {"source": material.data("source", config), **data}
        for name, found in data.items():
            if name != "source":
                arm_size(min(config.n, len(data["source"])), min(config.n, len(found)))
    first = {name: _few(found, config) for name, found in data.items()}
    if config.distance == "otdd":
        for name, batch in first.items():
            if batch.labels is None:
                raise LabelsNeeded(
                    "OTDD needs the labels of both sets",
                    value=name,
                    allowed="data with labels",
                    mend="Give them (folder:, idx:IMAGES,LABELS, npz:…&y=, a pair of rows and labels), or another distance",
                )
    sites = _sites(config, material, "model", first)
    if config.random_nets and material.network("model").form != "module":
        raise BadOption(
            "Only a torch module can be initialised again for --random-nets",
            value=material.network("model").form,
            allowed="package.module:factory, a torch module",
            mend="Leave out --random-nets, or name the code that builds the network",
        )
    if config.evolution == "joint" and len({site.width for site in sites}) > 1:
        raise DimensionMismatch(
            "A joint evolution needs layers of one width",
            value=", ".join(f"{site.name}: {site.width}" for site in sites[:8]),
            allowed="equal widths",
            mend="Use --evolution pooled or spectrum, or choose layers of one width",
        )
    if config.against:
        _same_units(config, sites, _sites(config, material, "against", first))


def _options(config: CompareConfig) -> None:
    if not config.model:
        raise BadOption("There is no network to look at", value=config.model, mend="Name MODEL")
    if bool(config.source) == bool(config.reference):
        raise BadOption(
            "A comparison needs either source data or a reference file",
            value=f"source={config.source or None}, reference={config.reference}",
            allowed="--source A, or --reference FILE",
        )
    if not config.target:
        raise BadOption("A comparison needs a target", value=config.target, mend="Name one with --target B")
    twice = [name for name, count in Counter(config.target).items() if count > 1]
    if twice or set(config.target) & set(TAKEN):
        name = twice[0] if twice else next(name for name in config.target if name in TAKEN)
        raise BadOption(
            "Two targets have one name" if twice else "A target has a name that is taken",
            value=name,
            allowed=f"each name once, and none of {', '.join(TAKEN[:-1])}",
            mend="Give it once, or under another name",
        )
    if config.distance in SQUARED and config.p != 2:
        raise BadOption(f"The {config.distance} distance has the order 2", value=config.p, allowed="p = 2")
    if config.epsilon is not None and config.distance != "sinkhorn":
        raise BadOption("Only the Sinkhorn divergence has an epsilon", value=config.epsilon, mend="--distance sinkhorn")
    if config.distance == "sinkhorn":
        from querist.features.distances import sinkhorn_divergence

        sinkhorn_divergence(np.zeros((2, 1)), np.ones((2, 1)), epsilon=1.0)  # is the package here?
    if config.looks > 1 and not config.reference:
        raise BadOption("Looks are counted where a reference is used", value=config.looks, mend="Give --reference FILE")
    if config.reference:
        named = {"random_nets": config.random_nets, "against": config.against, "save_reference": config.save_reference}
        for name, value in {**named, "repeats": config.repeats - 1 and config.repeats}.items():
            if value:
                raise BadOption(
                    f"The option {name} needs the source data, which a reference does not hold",
                    value=value,
                    mend="Give --source in place of --reference",
                )
    if (config.reference or config.save_reference) and config.distance not in ("sliced", "per-unit"):
        raise BadOption(
            "A reference holds quantiles of projections and of units",
            value=config.distance,
            allowed="--distance sliced or per-unit",
        )
    if config.save_reference and not Path(config.save_reference).expanduser().absolute().parent.is_dir():
        raise SourceNotFound(
            "There is no folder to write the reference into",
            value=config.save_reference,
            allowed="a path in a folder that exists",
        )


def _few(data: Data, config: CompareConfig) -> Any:
    """The first rows of the choice that can be read."""
    from querist.sources.data import choose_ids

    ids, before = choose_ids(data, config.n, seed=config.seed), len(data.passed_over)
    for start in range(0, len(ids), 8):
        batch = data.read(ids[start : start + 8])
        del data.passed_over[before:]
        if len(batch.ids):
            return batch
    raise TooFewRows("No row can be read", value=data.name, allowed="20 examples or more per arm")


def _sites(config: CompareConfig, material: Material, role: str, first: dict[str, Any]) -> list[Site]:
    """The sites of a network, looked at with each set's first rows, so that a set that does not fit is named."""
    from querist.sources.taps import Tap
    from querist.sources.taps.tap import part, rows

    found: list[Site] = []
    for name, batch in first.items():
        with Tap(material.network(role), layers=config.layers, device=config.device) as tap:
            try:
                tap.look(part(batch.inputs, 0, min(3, rows(batch.inputs))))
            except ShapeMismatch as error:
                raise _fitting(error, name) from None
            found = found or list(tap.sites)
    return found


def _fitting(error: ShapeMismatch, name: str) -> QueristError:
    mend = error.mend or "Change the pictures: --size, --channels, --pad"
    return type(error)(f"{name}: {error.what}", value=error.value, allowed=error.allowed, mend=mend)


def _same_units(config: CompareConfig, first: list[Site], second: list[Site]) -> None:
    """Units are matched by position, so layers of one name must have one width, unless spectra are compared."""
    if config.distance == "spectrum":
        return
    width = {site.name: site.width for site in second}
    wrong = [(site, width[site.name]) for site in first if width.get(site.name, site.width) != site.width]
    shared = [site for site in first if site.name in width]
    if wrong or not shared:
        told = ", ".join(f"{site.name}: {site.width} and {other}" for site, other in wrong[:5])
        raise DimensionMismatch(
            "The second network's units cannot be matched with the first's by position",
            value=told or f"no layer in common: {first[0].name} and {second[0].name}",
            allowed="two networks of one lineage, such as before and after fine-tuning",
            mend="With --distance spectrum other networks are compared by spectra, pooled values and CKA",
        )
