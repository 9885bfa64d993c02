"""BERT encoders from their published folders, without the package transformers: the network and its WordPiece tokenizer.

Only safetensors weights, a vocabulary and a JSON configuration are read; no code of a folder runs.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from querist.errors import BadOption, CorruptFile, SourceNotFound, UnsafeFile, WeightsMismatch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BertEncoder", "WordPiece", "read_encoder", "read_tokenizer"]

NEEDED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
LONGEST_WORD = 100
"""Letters of a word that is still cut into pieces; a longer one is unknown."""


class _SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (one(x).view(b, t, self.heads, -1).transpose(1, 2) for one in (self.query, self.key, self.value))
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(b, t, d)


class _AddedNorm(nn.Module):
    """A linear map of x, added to what it came from, and normalised."""

    def __init__(self, inputs: int, width: int, eps: float):
        super().__init__()
        self.dense, self.LayerNorm = nn.Linear(inputs, width), nn.LayerNorm(width, eps=eps)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        return self.LayerNorm(self.dense(x) + before)


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, eps: float):
        super().__init__()
        self.add_module("self", _SelfAttention(width, heads))
        self.output = _AddedNorm(width, width, eps)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.output(self.get_submodule("self")(x, mask), x)


class _Intermediate(nn.Module):
    def __init__(self, width: int, wide: int):
        super().__init__()
        self.dense, self.activation = nn.Linear(width, wide), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.dense(x))


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int, wide: int, eps: float):
        super().__init__()
        self.attention = _Attention(width, heads, eps)
        self.intermediate, self.output = _Intermediate(width, wide), _AddedNorm(wide, width, eps)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class _Embeddings(nn.Module):
    def __init__(self, words: int, places: int, kinds: int, width: int, eps: float):
        super().__init__()
        self.word_embeddings = nn.Embedding(words, width)
        self.position_embeddings = nn.Embedding(places, width)
        self.token_type_embeddings = nn.Embedding(kinds, width)
        self.LayerNorm = nn.LayerNorm(width, eps=eps)

    def forward(self, ids: Tensor, kinds: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        found = self.word_embeddings(ids) + self.token_type_embeddings(kinds) + self.position_embeddings(places)
        return self.LayerNorm(found)


class _Stack(nn.Module):
    def __init__(self, layers: Sequence[nn.Module]):
        super().__init__()
        self.layer = nn.ModuleList(layers)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layer:
            x = layer(x, mask)
        return x


class BertEncoder(nn.Module):
    """The encoder of Devlin et al. (2019) after its published layout: names of parameters are those of public checkpoints.

    Without dropout, which only matters in training, and without the pooler. In attention padded tokens are left out; their own values
    are computed, as everywhere, and are for the mask to leave out.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        num_hidden_layers: int,
        num_attention_heads: int,
        intermediate_size: int,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 2,
        layer_norm_eps: float = 1e-12,
    ):
        super().__init__()
        if hidden_size % num_attention_heads:
            raise BadOption(
                "Heads must divide the width",
                value=f"{hidden_size} units, {num_attention_heads} heads",
                allowed="a divisor of the units",
            )
        eps, self.longest = layer_norm_eps, max_position_embeddings
        self.embeddings = _Embeddings(vocab_size, max_position_embeddings, type_vocab_size, hidden_size, eps)
        shape = (hidden_size, num_attention_heads, intermediate_size, eps)
        self.encoder = _Stack([_Layer(*shape) for _ in range(num_hidden_layers)])

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """[b, t] -> [b, t, hidden_size]; attention_mask is 1 where there is a token. Raises BadOption for texts that are too long."""
        if input_ids.shape[1] > self.longest:
            raise BadOption("A text has more tokens than places", value=input_ids.shape[1], allowed=f"{self.longest}")
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        kinds = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        return self.encoder(self.embeddings(input_ids, kinds), mask.bool()[:, None, None, :])


def read_encoder(folder: Path) -> BertEncoder:
    """The encoder of a folder with `config.json` and `model.safetensors`, in float32 and evaluation mode.

    Raises SourceNotFound, UnsafeFile for a folder without safetensors, CorruptFile, BadOption for another architecture,
    WeightsMismatch.
    """
    config = _json(folder / "config.json")
    known = {"model_type": ("bert",), "hidden_act": ("gelu", None), "position_embedding_type": ("absolute", None)}
    for name, allowed in known.items():
        if config.get(name) not in allowed:
            raise BadOption(
                "This encoder is no BERT as published",
                value=f"{name}={config.get(name)}",
                allowed=f"{name}={allowed[0]}",
                mend="Use querist.features.nets:text_encoder, with the extra [transformers]",
            )
    if missing := [name for name in NEEDED if name not in config]:
        raise CorruptFile(
            "The configuration of the encoder is not whole", value=", ".join(missing), mend="Name a folder as published"
        )
    more = ("max_position_embeddings", "type_vocab_size", "layer_norm_eps")
    path = folder / "model.safetensors"
    if not path.is_file():
        raise UnsafeFile("The folder has no safetensors weights", value=str(folder), allowed="model.safetensors")
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    net = BertEncoder(**{name: config[name] for name in (*NEEDED, *more) if name in config})
    try:
        held = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CorruptFile(
            f"The weights cannot be read ({error})", value=str(path), mend="Fetch the file again"
        ) from None
    state = {name.removeprefix("bert."): value.float() for name, value in held.items()}
    wanted = net.state_dict()
    left = tuple(
        name for name in state if not name.startswith(("embeddings.", "encoder.")) or name.endswith("position_ids")
    )
    state = {name: value for name, value in state.items() if name not in left}
    wrong = [name for name in sorted({*state, *wanted}) if name not in state or name not in wanted]
    wrong += [name for name in wanted if name in state and state[name].shape != wanted[name].shape]
    if wrong:
        raise WeightsMismatch(
            "The weights do not fit the encoder's configuration",
            value=", ".join(wrong[:5]),
            allowed="those of config.json",
        )
    net.load_state_dict(state)
    return net.eval()


def _json(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise SourceNotFound(
            "The folder of the encoder lacks a file", value=str(path), allowed="config.json, model.safetensors"
        )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CorruptFile(f"The file is no JSON ({error})", value=str(path), mend="Fetch the file again") from None


class WordPiece:
    """Texts to token ids by the longest pieces of a vocabulary, after BERT's cleaning: control characters dropped, accents and
    case where `lower` (the published uncased models), words split at spaces, punctuation and around CJK characters.

    A text that spells a special token, such as [SEP], is text here.
    """

    def __init__(self, vocabulary: Sequence[str], *, lower: bool = True, longest: int = 128):
        self.ids = {token: place for place, token in enumerate(vocabulary)}
        missing = [token for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]") if token not in self.ids]
        if missing:
            raise CorruptFile(
                "The vocabulary lacks special tokens", value=", ".join(missing), allowed="a BERT vocabulary"
            )
        self.lower, self.longest = lower, longest

    def __call__(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """`input_ids` and `attention_mask` [b, t], padded to the longest text, at most `longest` tokens with [CLS] and [SEP]."""
        rows = [self.encode(text) for text in texts]
        width = max(len(row) for row in rows)
        ids = torch.full((len(rows), width), self.ids["[PAD]"])
        mask = torch.zeros(len(rows), width, dtype=torch.int64)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = torch.tensor(row)
            mask[place, : len(row)] = 1
        return {"input_ids": ids, "attention_mask": mask}

    def encode(self, text: str) -> list[int]:
        """The ids of one text, [CLS] first and [SEP] last."""
        pieces = [self.ids[piece] for word in self.words(text) for piece in self.pieces(word)]
        return [self.ids["[CLS]"], *pieces[: self.longest - 2], self.ids["[SEP]"]]

    def words(self, text: str) -> Iterator[str]:
        """Words and single marks of punctuation."""
        cleaned = "".join(_cleaned(text))
        if self.lower:
            cleaned = "".join(
                c for c in unicodedata.normalize("NFD", cleaned) if unicodedata.category(c) != "Mn"
            ).lower()
        for part in cleaned.split():
            word = ""
            for letter in part:
                if _marks(letter):
                    if word:
                        yield word
                    yield letter
                    word = ""
                else:
                    word += letter
            if word:
                yield word

    def pieces(self, word: str) -> list[str]:
        """A word as the longest pieces from left to right, those after the first with ##; [UNK] where one is not known."""
        if len(word) > LONGEST_WORD:
            return ["[UNK]"]
        found, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            end = next((e for e in range(len(word), start, -1) if prefix + word[start:e] in self.ids), None)
            if end is None:
                return ["[UNK]"]
            found.append(prefix + word[start:end])
            start = end
        return found


def _cleaned(text: str) -> Iterator[str]:
    for letter in text:
        code = ord(letter)
        if letter in "\t\n\r" or letter.isspace():
            yield " "
        elif code in (0, 0xFFFD) or unicodedata.category(letter).startswith("C"):
            continue
        else:
            yield f" {letter} " if _is_cjk(code) else letter


_CJK = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


def _is_cjk(code: int) -> bool:
    return any(low <= code <= high for low, high in _CJK)


def _marks(letter: str) -> bool:
    code = ord(letter)
    ascii_mark = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_mark or unicodedata.category(letter).startswith("P")


def read_tokenizer(folder: Path, max_length: int = 128) -> Callable[[Sequence[str]], dict[str, Tensor]]:
    """The tokenizer of a folder with `vocab.txt`; case is kept where `tokenizer_config.json` says so.

    Raises SourceNotFound, CorruptFile, BadOption for fewer than three tokens.
    """
    if max_length < 3:
        raise BadOption("A text has at least [CLS], a token and [SEP]", value=max_length, allowed="3 or more")
    path = folder / "vocab.txt"
    if not path.is_file():
        raise SourceNotFound("The folder of the tokenizer lacks a file", value=str(path), allowed="vocab.txt")
    config = _json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    words = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return WordPiece([word.rstrip("\r") for word in words], lower=config.get("do_lower_case", True), longest=max_length)
