"""Layer matrices and their eigenvalue spectra."""

from querist.weights.spectrum._esd import ESD, Blocks, esd, nonfinite
from querist.weights.spectrum._krylov import largest_pairs
from querist.weights.spectrum._layers import matrices
from querist.weights.spectrum._leading import (
    ShortSide,
    Triplets,
    leading,
    product,
    row_blocks,
    short_side,
    transposed_product,
    triplets,
)
from querist.weights.spectrum._lora import LowRankSVD, lora_matrix, lora_svd
from querist.weights.spectrum._matrix import LayerMatrix
from querist.weights.spectrum._norms import Norms, alpha_weighted, log_alpha_norm, norms
from querist.weights.spectrum._operator import GramOperator
from querist.weights.spectrum._pairs import low_rank_stem
from querist.weights.spectrum._recipes import Interleaved, Sub
from querist.weights.spectrum._slq import SLQ, slq

__all__ = [
    "ESD",
    "SLQ",
    "Blocks",
    "GramOperator",
    "Interleaved",
    "LayerMatrix",
    "LowRankSVD",
    "Norms",
    "ShortSide",
    "Sub",
    "Triplets",
    "alpha_weighted",
    "esd",
    "largest_pairs",
    "leading",
    "log_alpha_norm",
    "lora_matrix",
    "lora_svd",
    "low_rank_stem",
    "matrices",
    "nonfinite",
    "norms",
    "product",
    "row_blocks",
    "short_side",
    "slq",
    "transposed_product",
    "triplets",
]
