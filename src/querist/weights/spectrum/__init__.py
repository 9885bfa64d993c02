"""Layer matrices and their eigenvalue spectra."""

from querist.weights.spectrum._esd import ESD, Blocks, esd, nonfinite
from querist.weights.spectrum._norms import Norms, alpha_weighted, log_alpha_norm, norms

__all__ = ["ESD", "Blocks", "Norms", "alpha_weighted", "esd", "log_alpha_norm", "nonfinite", "norms"]
