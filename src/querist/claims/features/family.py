"""The work that the claims about features share: networks followed over their layers, and cells of a freeze sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from querist.claims.claim import Family, Piece, Size, family_table
from querist.features.tables import CELLS, DRAWS, EVOLUTION, LATENT, NET_PROFILES, PROBES
from querist.results.table import Column

__all__ = ["FAMILY", "PAPER", "RESNET20", "RESNET56", "cell_pieces", "paired_piece", "profile_piece", "random_pieces"]

PAPER = (
    "Unveiling Transfer Learning Effectiveness Through Latent Feature Distributions (TMLR submission 2025); its distance, layers, "
    "models and statistics are not public, so these are our reading."
)
RESNET20 = "querist.features.nets:cifar_resnet?depth=20@resnet20-cifar10"
RESNET56 = "querist.features.nets:cifar_resnet?depth=56@resnet56-cifar10"

_NET = Column("net", "str", "Which architecture with its weights.")

FAMILY_TABLES = (
    family_table("draws", DRAWS.meaning, (_NET, *DRAWS.columns), ("target", "layer")),
    family_table("evolution", EVOLUTION.meaning, (_NET, *EVOLUTION.columns)),
    family_table(
        "net_profiles",
        "Excess of each layer, of the network itself (model) and of random ones.",
        (_NET, *NET_PROFILES.columns),
        ("model", "target", "layer"),
    ),
    family_table("probes", PROBES.meaning, (_NET, *PROBES.columns), ("target", "layer")),
    family_table("cells", CELLS.meaning, (_NET, *CELLS.columns)),
    family_table("latent", LATENT.meaning, (_NET, *LATENT.columns), ("layer",)),
)


def _work(payload: Mapping[str, Any], seed: int, device: str, folder: Path) -> Mapping[str, Any]:
    from querist.claims.features.measure import measure

    return measure(payload, seed, device, folder)


FAMILY = Family("latent laws", FAMILY_TABLES, _work)

_CAPTURED = ("n", "blocks", "size", "projections", "splits", "permutations")
_TRAINED = ("train_n", "test_n", "n", "epochs", "batch", "lr", "size")


def _short(net: str) -> str:
    return net.rpartition("@")[2].rpartition(":")[2]


def _captured(size: Size, **more: Any) -> dict[str, Any]:
    return {name: size[name] for name in _CAPTURED} | more


def profile_piece(size: Size, net: str, targets: Sequence[str], repeat: int = 0) -> Piece:
    """A network on the source and targets: gaps of every block (tested in the first repeat), evolutions, probes."""
    payload = _captured(
        size, kind="profile", net=net, source=size["source"], targets=list(targets), repeat=repeat, tested=repeat == 0
    )
    seconds = (1 + len(targets)) * size["n"] * 4e-3 * (10 if repeat == 0 else 3)
    return Piece(f"profile/{_short(net)}/{size['n']}/{'+'.join(targets)}/{repeat}", payload, seconds)


def random_pieces(size: Size, net: str) -> Iterator[Piece]:
    """Networks of the same architecture with random weights, on the same images."""
    for number in range(1, size["random_nets"] + 1):
        payload = _captured(
            size, kind="random", net=net, source=size["source"], targets=list(size["targets"]), repeat=0, number=number
        )
        yield Piece(
            f"random/{_short(net)}/{size['n']}/{number:03d}", payload, (2 + len(size["targets"])) * size["n"] * 4e-3
        )


def paired_piece(size: Size, net: str) -> Piece:
    """A network on pictures, the same pictures after JPEG, and other pictures."""
    payload = _captured(
        size,
        kind="profile",
        net=net,
        source=size["source"],
        targets=[size["changed"], size["other"]],
        quality={size["changed"]: size["quality"]},
        repeat=0,
        tested=True,
    )
    return Piece(f"jpeg/{_short(net)}/{size['n']}/{size['quality']}", payload, size["n"] * 0.1)


def cell_pieces(
    size: Size, net: str, targets: Sequence[str], arms: Sequence[str], ks: Sequence[int]
) -> Iterator[Piece]:
    """Cells of a freeze sweep, each one training."""
    rows = size["train_n"] * size["epochs"] * len(size["lr"])
    for target in targets:
        for arm in arms:
            for k in ks:
                for repeat in range(size.seeds):
                    payload = {name: size[f"freeze_{name}" if name == "n" else name] for name in _TRAINED}
                    payload |= {"kind": "cell", "net": net, "source": size["source"], "target": target}
                    payload |= {"lr": list(size["lr"]), "arm": arm, "k": k, "repeat": repeat}
                    key = f"cell/{_short(net)}/{target}/{size['train_n']}/{arm}/k={k:02d}/{repeat}"
                    yield Piece(key, payload, rows * 4e-3 + size["test_n"] * 2e-3)
