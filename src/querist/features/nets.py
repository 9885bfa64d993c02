"""Networks that the room knows by name: CIFAR residual networks, and text encoders with their tokenizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from querist.errors import BadOption, MissingExtra, SourceNotFound, UnsafeFile

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "BasicBlock",
    "CifarResNet",
    "bert_encoder",
    "bert_tokenizer",
    "cifar_resnet",
    "text_encoder",
    "text_tokenizer",
]


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions and a shortcut without parameters (option A): every second pixel, new channels are zero."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu2 = nn.ReLU()
        self.stride, self.extra = stride, (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        """[b, inputs, h, w] -> [b, outputs, h/stride, w/stride]."""
        y = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        short = x if self.stride == 1 and not self.extra else x[:, :, :: self.stride, :: self.stride]
        if self.extra:
            short = functional.pad(short, (0, 0, 0, 0, self.extra, self.extra))
        return self.relu2(y + short)


class CifarResNet(nn.Module):
    """Residual network of He et al. (2016), section 4.2: three stages of n blocks with 16, 32 and 64 channels."""

    def __init__(self, n: int, classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        self.layer1 = _stage(16, 16, n, 1)
        self.layer2 = _stage(16, 32, n, 2)
        self.layer3 = _stage(32, 64, n, 2)
        self.linear = nn.Linear(64, classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Kaiming normal convolutions and linear weights; norms and the bias as torch makes them."""
        for part in self.modules():
            if isinstance(part, nn.Conv2d | nn.Linear | nn.BatchNorm2d):
                part.reset_parameters()
            if isinstance(part, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(part.weight)

    def forward(self, x: Tensor) -> Tensor:
        """[b, 3, h, w] -> [b, classes]."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


def _stage(inputs: int, outputs: int, n: int, stride: int) -> nn.Sequential:
    blocks = [BasicBlock(inputs if place == 0 else outputs, outputs, stride if place == 0 else 1) for place in range(n)]
    return nn.Sequential(*blocks)


def cifar_resnet(depth: int = 20, classes: int = 10) -> CifarResNet:
    """The residual network of this depth for 32 x 32 colour pictures, newly initialised.

    Depth is 6n + 2: 20, 32, 44, 56, 110. Weights of the names `resnet20-cifar10` and `resnet56-cifar10` fit it. Input: RGB in
    0..1, less .485 .456 .406, over .229 .224 .225. Raises BadOption for other depths.

    Source: He, Zhang, Ren & Sun (2016), "Deep Residual Learning for Image Recognition", section 4.2, shortcut option A.
    """
    if not isinstance(depth, int) or depth < 8 or (depth - 2) % 6:
        raise BadOption("No such depth of a CIFAR residual network", value=depth, allowed="6n + 2: 20, 32, 44, 56, 110")
    if not isinstance(classes, int) or classes < 1:
        raise BadOption("A network needs classes", value=classes, allowed="1 or more")
    return CifarResNet((depth - 2) // 6, classes)


def bert_encoder(path: str) -> nn.Module:
    """A BERT encoder from a folder with `config.json` and `model.safetensors`, or a registered name such as `minilm-l6`.

    Ours, without the package transformers. Takes `input_ids`, `attention_mask` [b, t], gives [b, t, d]. Raises SourceNotFound,
    UnsafeFile, CorruptFile, WeightsMismatch, BadOption for another architecture, which `text_encoder` may know.

    Source: Devlin, Chang, Lee & Toutanova (2019), "BERT: Pre-training of Deep Bidirectional Transformers".
    """
    from querist.features.bert import read_encoder

    return read_encoder(_folder(path))


def bert_tokenizer(path: str, max_length: int = 128) -> Callable[[Sequence[str]], dict[str, Tensor]]:
    """The WordPiece tokenizer of such a folder, by its `vocab.txt`: a list of texts to `input_ids`, `attention_mask` [b, t].

    Raises SourceNotFound, CorruptFile, BadOption.
    """
    from querist.features.bert import read_tokenizer

    return read_tokenizer(_folder(path), max_length)


def text_encoder(path: str) -> nn.Module:
    """A Hugging Face encoder from a folder (or a registered name), its safetensors weights only; no code of it runs.

    Takes `input_ids`, `attention_mask` [b, t]; its first output is [b, t, d]. Raises MissingExtra, SourceNotFound, UnsafeFile
    for a folder without safetensors, BadOption for an architecture that transformers does not know.
    """
    transformers = _transformers("text_encoder")
    folder = _folder(path)
    if not any(folder.glob("*.safetensors")):
        raise UnsafeFile(
            "The folder has no safetensors weights", value=str(folder), mend="Save the model with save_pretrained"
        )
    try:
        return transformers.AutoModel.from_pretrained(str(folder), local_files_only=True, use_safetensors=True).eval()
    except (OSError, ValueError, KeyError) as error:
        raise BadOption(f"transformers cannot open the encoder ({_first_line(error)})", value=str(folder)) from None


def text_tokenizer(path: str, max_length: int = 128) -> Callable[[Sequence[str]], dict[str, Tensor]]:
    """The tokenizer of such a folder: a list of texts to `input_ids`, `attention_mask` ... [b, t], t at most `max_length`.

    Raises MissingExtra, SourceNotFound, BadOption.
    """
    transformers = _transformers("text_tokenizer")
    folder = _folder(path)
    if max_length < 1:
        raise BadOption("Texts have at least one token", value=max_length)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise BadOption(f"transformers cannot open the tokenizer ({_first_line(error)})", value=str(folder)) from None

    def tokenize(texts: Sequence[str]) -> dict[str, torch.Tensor]:
        return dict(tokenizer(list(texts), padding=True, truncation=True, max_length=max_length, return_tensors="pt"))

    return tokenize


def _transformers(what: str) -> Any:
    try:
        import transformers  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingExtra(
            f"The function {what} needs the package transformers",
            value="transformers",
            mend=f"pip install 'querist[transformers]', or for a BERT folder use querist.features.nets:{what.replace('text', 'bert')}",
        ) from None
    words = getattr(getattr(transformers, "utils", None), "logging", None)
    if words is not None:
        words.disable_progress_bar()
    return transformers


def _folder(path: str) -> Path:
    from querist.sources.datasets.registry import DATA_SETS, locate

    folder = Path(path).expanduser()
    if not folder.is_dir() and path in DATA_SETS:
        folder = locate(path)
    if not folder.is_dir():
        raise SourceNotFound(
            "There is no folder here", value=str(folder), allowed="a folder that save_pretrained wrote"
        )
    return folder


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:150]
