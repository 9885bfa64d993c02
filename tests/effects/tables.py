"""Published tables that the tests of this room read, where they lie beside the checkout; and the small example."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from querist.errors import SourceNotFound
from querist.sources.datasets.registry import locate

Y = np.array([1, 1, 0, 1, 0, 1, 0, 0, 1, 0.0])
T = np.array([1, 1, 0, 1, 0, 1, 0, 1, 0, 0])
S = np.array([0.9, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])


def table(name: str) -> pl.DataFrame:
    try:
        return pl.read_parquet(locate(name))
    except SourceNotFound:
        pytest.skip(f"{name} is not beside the checkout")


def pair(name: str, outcome: str = "visit"):
    """Hillstrom's control and one arm: frame, outcome, flag."""
    frame = table("hillstrom").filter(pl.col("segment").is_in(["No E-Mail", name]))
    return frame, frame[outcome].to_numpy().astype(float), (frame["segment"] == name).to_numpy()
