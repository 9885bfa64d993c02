"""A transformer of a few thousand weights and a tokenizer by hashes: texts from end to end, without a download."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from querist.features.bert import BertEncoder

WORDS = 97


class TinyText(nn.Module):
    """Embedding, two encoder layers, a head for the kinds of docstring: [b, t] -> [b, 4]."""

    def __init__(self, width: int = 12):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask.unsqueeze(2).to(self.head.weight.dtype)
        x = self.encoder(self.embed(input_ids), src_key_padding_mask=attention_mask == 0)
        return self.head((x * mask).sum(1) / mask.sum(1))


def tiny_text(seed: int = 0) -> TinyText:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TinyText().eval()


def hashed(longest: int = 16) -> Callable[[Sequence[str]], dict[str, Tensor]]:
    """A token for each word: its hash."""

    def tokenize(texts: Sequence[str]) -> dict[str, Tensor]:
        rows = [
            [1 + zlib.crc32(word.lower().encode()) % (WORDS - 1) for word in text.split()[:longest]] for text in texts
        ]
        ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for place, row in enumerate(rows):
            ids[place, : len(row)], mask[place, : len(row)] = torch.tensor(row), 1
        return {"input_ids": ids, "attention_mask": mask}

    return tokenize


TOKENS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *"abcdefghijklmnopqrstuvwxyz0123456789.,:;()-",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789"),
)
CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "vocab_size": len(TOKENS),
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
}


def write_bert(folder: Path, **changed) -> Path:
    """A folder as public BERT encoders come: configuration, vocabulary, safetensors."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    config = {**CONFIG, **changed}
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        net = BertEncoder(**{k: v for k, v in CONFIG.items() if k not in ("model_type", "hidden_act")})
    state = {f"bert.{name}": value.contiguous() for name, value in net.state_dict().items()}
    state |= {"bert.pooler.dense.weight": torch.zeros(8, 8), "bert.embeddings.position_ids": torch.arange(64)[None]}
    save_file(state, folder / "model.safetensors")
    return folder
