"""Texts: one a line, a column of a table, or sentences of docstrings; a tokenizer turns a list of them into tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from querist.errors import BadOption, BadValues, CorruptFile, SourceNotFound, TooFewRows, UnknownName, near
from querist.sources.address import Address, parse
from querist.sources.data import Batch, Data
from querist.sources.images.pictures import as_labels
from querist.sources.tensors.ref import PassedOver

__all__ = ["open_text", "open_tokenizer", "read_texts", "text_data"]

Tokenizer = Callable[[Sequence[str]], Mapping[str, Any]]


def open_text(address: Address, tokenizer: Any) -> Data:
    """`text:FILE?column=text[&y=label]`: a text file (a text a line), .jsonl, .csv or .parquet.

    Raises SourceNotFound, UnknownName for a column, BadOption without a tokenizer, BadValues for missing texts, CorruptFile.
    """
    address.only(["column", "y"])
    texts, labels = read_texts(address.local(), address.option("column"), address.option("y"))
    return text_data(str(address), texts, tokenizer, labels=labels)


def text_data(
    name: str, texts: Sequence[str], tokenizer: Any, *, labels: Any = None, classes: Sequence[str] | None = None
) -> Data:
    """Texts as data of the kind "tokens". Raises BadOption for no tokenizer, TooFewRows for no texts."""
    if not len(texts):
        raise TooFewRows("There are no texts", value=name)
    tokenize = open_tokenizer(tokenizer, name)
    found, names = as_labels(np.asarray(labels), len(texts), name) if labels is not None else (None, None)

    def fetch(ids: np.ndarray) -> tuple[Batch, list[PassedOver]]:
        chosen: list[str] = [str(texts[one]) for one in ids.tolist()]
        made = _tokens(tokenize, chosen)
        return Batch(ids, made, None if found is None else found[ids]), []

    return Data(name, np.arange(len(texts)), fetch, "tokens", tuple(classes) if classes else names)


def open_tokenizer(tokenizer: Any, name: str = "") -> Tokenizer:
    """A tokenizer from `package.module:factory[?k=v]`, or a callable as it is. Raises BadOption for anything else."""
    if isinstance(tokenizer, str):
        from querist.sources.models import call_factory

        address = parse(tokenizer)
        if address.kind != "python":
            raise BadOption("This names no tokenizer", value=tokenizer, allowed="package.module:factory[?key=value]")
        tokenizer = call_factory(address)
    if not callable(tokenizer):
        raise BadOption(
            f"The texts {name} need a tokenizer",
            value=tokenizer,
            allowed="a callable from a list of texts to a dict of tensors",
            mend="Give --tokenizer package.module:factory",
        )
    made: Any = tokenizer
    return made


def _tokens(tokenize: Tokenizer, texts: list[str]) -> dict[str, Any]:
    import torch

    made = tokenize(texts)
    if not isinstance(made, Mapping) and not hasattr(made, "items"):
        raise BadOption("The tokenizer returned no dict of tensors", value=type(made).__qualname__)
    found = {str(key): torch.as_tensor(value) for key, value in made.items()}
    wrong = next((key for key, value in found.items() if not value.ndim or len(value) != len(texts)), None)
    if not found or wrong is not None:
        raise BadOption(
            f"The tokenizer returned a tensor {wrong} that has no row for each text"
            if wrong
            else "The tokenizer returned nothing",
            value=list(found[wrong].shape) if wrong else None,
            allowed=f"tensors with {len(texts)} rows, padded to one length, and attention_mask",
        )
    return found


def read_texts(path: Path, column: str | None, y: str | None = None) -> tuple[list[str], Any]:
    """The texts of a file, and the values of the column y."""
    if not path.is_file():
        raise SourceNotFound("There is no file here", value=str(path))
    ending = path.name.lower()
    if ending.endswith((".csv", ".csv.gz", ".tsv", ".parquet", ".pq")):
        return _of_table(path, column or "text", y)
    if ending.endswith((".jsonl", ".ndjson")):
        return _of_json(path, column or "text", y)
    if column is not None or y is not None:
        raise BadOption(
            "A file of a text a line has no columns",
            value=column or y,
            allowed=".jsonl, .csv and .parquet have columns",
        )
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CorruptFile(f"The file is no UTF-8 text from byte {error.start} on", value=str(path)) from None
    return [line for line in lines if line.strip()], None


def _of_table(path: Path, column: str, y: str | None) -> tuple[list[str], Any]:
    wanted = [column, *([y] if y else [])]
    if path.suffix.lower() in (".parquet", ".pq"):
        import polars as pl

        try:
            names = pl.read_parquet_schema(path)
            for name in wanted:
                if name not in names:
                    raise UnknownName(f"No column of this name in {path}", value=name, allowed=near(name, names, 12))
            table = pl.read_parquet(path, columns=wanted)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise CorruptFile(
                f"The Parquet file cannot be read ({str(error).splitlines()[0][:150]})", value=str(path)
            ) from None
    else:
        from querist.sources.images.parquet import read_columns

        table = read_columns(path, wanted)
    if str(table[column].dtype) not in ("String", "Categorical"):
        raise BadValues(f"The column {column} holds no texts", value=str(table[column].dtype))
    if missing := table[column].null_count():
        raise BadValues(f"The column {column} has missing texts", value=f"{missing} rows", mend="Leave those rows out")
    return table[column].cast(str).to_list(), table[y].to_numpy() if y else None


def _of_json(path: Path, column: str, y: str | None) -> tuple[list[str], Any]:
    texts, labels = [], []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                raise CorruptFile(f"Line {number} is no JSON", value=str(path)) from None
            if not isinstance(row, dict) or not isinstance(row.get(column), str) or (y and y not in row):
                known = near(column, [str(key) for key in row], 12) if isinstance(row, dict) else "an object"
                raise UnknownName(f"Line {number} of {path} has no text under this name", value=column, allowed=known)
            texts.append(row[column])
            labels.append(row[y] if y else None)
    return texts, np.asarray(labels) if y else None
