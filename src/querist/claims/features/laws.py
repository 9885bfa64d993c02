"""Claims about laws over layers: whether they come together, whether consistently, whether what is done to pictures shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from querist.claims.claim import Claim, Piece, Size
from querist.claims.features import laws_figures as figures
from querist.claims.features import laws_rules as rules
from querist.claims.features.family import (
    FAMILY,
    PAPER,
    RESNET20,
    RESNET56,
    paired_piece,
    profile_piece,
    random_pieces,
)

__all__ = ["CAPTURED_SMALL", "LAWS", "TWO"]

TWO = ("fashion-mnist", "mnist")
CAPTURED_SMALL: dict[str, Any] = {
    "source": "cifar10-jpeg",
    "targets": TWO,
    "blocks": "layer*.*",
    "n": 500,
    "size": 32,
    "projections": 500,
    "splits": 50,
    "permutations": 199,
}
_FULL = CAPTURED_SMALL | {"n": 2000}
_PICTURES = (
    "cifar10-jpeg-test",
    "fashion-mnist-t10k-images",
    "fashion-mnist-t10k-labels",
    "mnist-t10k-images",
    "mnist-t10k-labels",
)
_SIZES = {
    "small": Size(1, {"nets": (RESNET20,), **CAPTURED_SMALL, "random_nets": 19}, ("resnet20-cifar10", *_PICTURES)),
    "full": Size(
        1,
        {"nets": (RESNET20, RESNET56), **_FULL, "random_nets": 99},
        ("resnet20-cifar10", "resnet56-cifar10", *_PICTURES),
    ),
}


def _pieces(size: Size) -> Iterator[Piece]:
    for net in size["nets"]:
        yield profile_piece(size, net, size["targets"])
        yield from random_pieces(size, net)


def _paired(size: Size) -> Iterator[Piece]:
    for net in size["nets"]:
        yield paired_piece(size, net)


LEARNS = Claim(
    id="features.learns-input",
    ask="Do pretrained layers bring the laws of new data nearer to that of known data, more than random layers do?",
    statement="Pretraining learns the distribution of its inputs and transforms it into representations that are general: from the "
    "first block to the last a trained network brings other data nearer to its own.",
    source="paper",
    reference=PAPER,
    protocol="A residual network of CIFAR-10; source its test pictures (JPEG), targets Fashion-MNIST and MNIST test pictures, framed to "
    "32 pixels and repeated to three channels. Excess of the sliced W₂ over that between two parts of the source (iso) at the "
    "residual blocks, and the log of the last block's over the first one's; the same in networks with random weights whose norms "
    "were set by one pass over the source. Layers, distance and statistic are our reading.",
    rule="p of a target is the rank of the log ratio among random networks. Holds where the largest p over targets (and networks) is at "
    "most .05. Fails where the log ratio is at or above the median of the random networks for every target. Else it cannot be told.",
    unit="log ratio of excesses, the largest over targets",
    null="the median of the random networks",
    sizes=_SIZES,
    family=FAMILY,
    pieces=_pieces,
    judge=rules.learns_input,
    draw=figures.learns_input,
)

CONSISTENT = Claim(
    id="features.consistent",
    ask="Do all layers transform new data as they transform known data?",
    statement="The transformation into general representations is consistent over all frozen layers.",
    source="paper",
    reference=PAPER,
    protocol="The captures and random networks of features.learns-input. Over all blocks: the slope of log excess (contraction), and C, "
    "the mean difference between the steps that source and target make from block to block, in units of the source's steps (W₂ of pooled "
    "standardised values), in the frame of the source and in each set's own; beside them Kendall's τ of the steps and the concordance "
    "of the targets, which do not decide. The floor is C between two random halves of the source.",
    rule="Holds where features.contraction and features.consistency are both yes (largest p over targets, and over both frames, at "
    "most .05), in every network. Fails where both are no (at or above the median of the random networks in all of them). Else it "
    "cannot be told.",
    unit="C, the largest over targets and frames",
    null="the median of the random networks",
    sizes=_SIZES,
    family=FAMILY,
    pieces=_pieces,
    judge=rules.consistent,
    draw=figures.consistent,
)

_COPIES = {"source": "fashion-mnist", "changed": "JPEG copies", "other": "mnist", "quality": 30, "stage": "layer1."}
_CLOTHES = ("fashion-mnist-t10k-images", "fashion-mnist-t10k-labels", "mnist-t10k-images", "mnist-t10k-labels")

COMPRESSION = Claim(
    id="features.compression",
    ask="Does a change that eyes hardly see show in the first stage, and less than other pictures do everywhere?",
    statement="Strong JPEG compression moves the law of the first layers, by less than pictures of other things do at every layer.",
    source="ours",
    reference="no publication: a check that distances over layers order changes as they should.",
    protocol="A residual network of CIFAR-10; source Fashion-MNIST test pictures, targets the same pictures written as JPEG of quality 30 "
    "before they are framed, labels swapped within pairs, and MNIST. Excess of the sliced W₂ (iso) at the residual blocks with "
    "jackknife intervals; p by max-T over blocks and both targets.",
    rule="Holds where features.gap of the copies is yes at every block of the first stage and its interval lies below that of MNIST at "
    "every block. Fails where it is no at a block of the first stage, or lies above at some block. Else it cannot be told.",
    unit="excess of the copies over that of MNIST, the largest over blocks",
    null="1, where the copies are as far as MNIST",
    sizes={
        "small": Size(1, {"nets": (RESNET20,), **CAPTURED_SMALL, **_COPIES}, ("resnet20-cifar10", *_CLOTHES)),
        "full": Size(
            1,
            {"nets": (RESNET20, RESNET56), **_FULL, **_COPIES},
            ("resnet20-cifar10", "resnet56-cifar10", *_CLOTHES),
        ),
    },
    family=FAMILY,
    pieces=_paired,
    judge=rules.compression,
    draw=figures.compression,
)

LAWS = (LEARNS, CONSISTENT, COMPRESSION)
