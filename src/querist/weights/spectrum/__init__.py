"""Layer matrices and their eigenvalue spectra."""

from querist.weights.spectrum._esd import ESD, Blocks, esd, nonfinite
from querist.weights.spectrum._layers import matrices
from querist.weights.spectrum._lora import LowRankSVD, lora_matrix, lora_svd
from querist.weights.spectrum._matrix import LayerMatrix
from querist.weights.spectrum._norms import Norms, alpha_weighted, log_alpha_norm, norms
from querist.weights.spectrum._slq import SLQ, slq

__all__ = [
    "ESD",
    "SLQ",
    "Blocks",
    "LayerMatrix",
    "LowRankSVD",
    "Norms",
    "alpha_weighted",
    "esd",
    "log_alpha_norm",
    "lora_matrix",
    "lora_svd",
    "matrices",
    "nonfinite",
    "norms",
    "slq",
]
