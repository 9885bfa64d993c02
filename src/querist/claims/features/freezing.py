"""Claims about frozen layers: what they are worth, whether their weights' statistics explain it, whether distances foretell it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from querist.claims.claim import Claim, Piece, Size
from querist.claims.features import freezing_figures as figures
from querist.claims.features import freezing_rules as rules
from querist.claims.features.family import FAMILY, PAPER, RESNET20, cell_pieces, profile_piece
from querist.claims.features.laws import CAPTURED_SMALL, TWO

__all__ = ["FREEZING", "TRAINED_SMALL"]

TRAINED_SMALL: dict[str, Any] = {
    "nets": (RESNET20,),
    "source": "cifar10-jpeg",
    "size": 32,
    "train_n": 600,
    "test_n": 1000,
    "freeze_n": 300,
    "epochs": 3,
    "batch": 32,
    "lr": (1e-3,),
}
_TRAINED_FULL = TRAINED_SMALL | {"train_n": 6000, "freeze_n": 2000, "epochs": 10, "lr": (3e-4, 1e-3, 3e-3)}
_ALL = tuple(range(10))
_FOUR = ("pretrained", "random", "shuffled", "moments")
_CLOTHES = (
    "resnet20-cifar10",
    "cifar10-jpeg-test",
    *(f"fashion-mnist-{part}-{what}" for part in ("train", "t10k") for what in ("images", "labels")),
)
_DIGITS = ("mnist-t10k-images", "mnist-t10k-labels")
_PROTOCOL = (
    "Each cell trains a copy of the network with its first k residual blocks frozen (norms reset by one pass over the training images "
    "in every arm), with a new head; arms of a seed share head, images and order and differ in initial weights alone. At small size "
    "nothing is near converged at k = 0, and one learning rate serves all arms."
)


def _sweep(size: Size) -> Iterator[Piece]:
    for net in size["nets"]:
        yield from cell_pieces(size, net, size["freeze_targets"], size["arms"], size["ks"])


def _both(size: Size) -> Iterator[Piece]:
    for net in size["nets"]:
        for repeat in range(size.seeds):
            yield profile_piece(size, net, size["targets"], repeat)
        yield from cell_pieces(size, net, size["targets"], ("pretrained",), size["ks"])


FROZEN = Claim(
    id="features.frozen-layers",
    ask="Are frozen pretrained blocks worth more than frozen blocks with weights of the same moments?",
    statement="Frozen layers of a pretrained network carry what new data need: they beat frozen layers whose weights have the same mean "
    "and spread.",
    source="paper",
    reference=PAPER,
    protocol=f"ResNet20 of CIFAR-10 on Fashion-MNIST. {_PROTOCOL}",
    rule="Paired differences of test accuracy, pretrained less moments, t intervals over cells (target, seed). Holds where the interval "
    "lies above 0 at every number of frozen blocks from 3 on. Fails where its upper end lies below one point at "
    "some of those. Else it cannot be told.",
    unit="accuracy, the smallest lead",
    null="0",
    sizes={
        "small": Size(
            2,
            {**TRAINED_SMALL, "freeze_targets": TWO[:1], "arms": _FOUR, "ks": (0, 3, 6, 9), "from_k": 3},
            _CLOTHES,
        ),
        "full": Size(
            5,
            {**_TRAINED_FULL, "freeze_targets": TWO, "arms": _FOUR, "ks": _ALL, "from_k": 3},
            (*_CLOTHES, *_DIGITS),
        ),
    },
    family=FAMILY,
    pieces=_sweep,
    judge=rules.frozen_layers,
    draw=figures.frozen_layers,
)

STATISTICS = Claim(
    id="features.not-weight-statistics",
    ask="Is the lead of pretrained weights more than the statistics of their entries?",
    statement="What pretraining gives is not in the scale or the distribution of single weights: weights that keep them and lose their "
    "places do worse.",
    source="literature",
    reference="Neyshabur, Sedghi & Zhang (2020), What is being transferred in transfer learning?",
    protocol="The cells of features.frozen-layers at k = 0 (all is trained, so initial weights alone differ) and k = 6: arms pretrained, "
    "shuffled (the entries of each tensor permuted) and moments (normal entries of the same mean and spread).",
    rule="Holds where pretrained less shuffled and pretrained less moments lie above 0 with their whole intervals over cells, at k = 0 and "
    "k = 6. Fails where one of the four intervals lies inside one point around 0. Else it cannot be told.",
    unit="accuracy, the smallest lead",
    null="0",
    sizes={
        "small": Size(
            2,
            {**TRAINED_SMALL, "freeze_targets": TWO[:1], "arms": ("pretrained", "shuffled", "moments"), "ks": (0, 6)},
            _CLOTHES,
        ),
        "full": Size(
            5,
            {**_TRAINED_FULL, "freeze_targets": TWO, "arms": ("pretrained", "shuffled", "moments"), "ks": (0, 6)},
            (*_CLOTHES, *_DIGITS),
        ),
    },
    family=FAMILY,
    pieces=_sweep,
    judge=rules.not_weight_statistics,
    draw=figures.not_weight_statistics,
)

PREDICTS = Claim(
    id="features.w-predicts",
    ask="Does a small Wasserstein distance tell which block to transfer from, better than depth does?",
    statement="The Wasserstein distance of latent laws tells how well a layer transfers.",
    source="ours",
    reference="a reading that tracking distances for transfer suggests; theory (arXiv 2410.08194) and our measurements speak against it.",
    protocol="ResNet20 of CIFAR-10; excess of the sliced W₂ (iso) of each residual block between CIFAR-10 and a target, and the accuracy "
    "of a linear probe there (5 folds). Cells are targets times seeds (of images, directions, splits and folds). Beside it, not deciding: "
    "the excess at the end of block k and the accuracy with k frozen pretrained blocks, in the cells of features.frozen-layers.",
    rule="The verdict of features.w-predicts-transfer: in each cell −τ(excess, probe) − |τ(depth, probe)| over blocks. Holds where its t "
    "interval over cells lies above 0, fails where below; else it cannot be told.",
    unit="Kendall's τ, the lead of the distance over depth",
    null="0, where the distance says as much as depth",
    sizes={
        "small": Size(2, {**TRAINED_SMALL, **CAPTURED_SMALL, "ks": (0, 3, 6, 9)}, (*_CLOTHES, *_DIGITS)),
        "full": Size(
            5,
            {**_TRAINED_FULL, **CAPTURED_SMALL, "n": 2000, "targets": (*TWO, "digits", "tiny-images"), "ks": _ALL},
            (*_CLOTHES, *_DIGITS),
        ),
    },
    family=FAMILY,
    pieces=_both,
    judge=rules.w_predicts,
    draw=figures.w_predicts,
)

FREEZING = (FROZEN, STATISTICS, PREDICTS)
