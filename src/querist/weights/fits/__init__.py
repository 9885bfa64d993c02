"""Tail fits to a spectrum: power laws, alternatives, FARMS, ERG."""

from querist.weights.errors import InvalidSpectrum
from querist.weights.fits._erg import ERG, erg
from querist.weights.fits._farms import Farms, farms
from querist.weights.fits._likelihood import ALTERNATIVES, vuong
from querist.weights.fits._powerlaw import PLFit, candidates, ccdf_fit, density_fit, fit_powerlaw, hill_exponent
from querist.weights.fits._pruned import Candidates
from querist.weights.fits._tails import double_bootstrap_k, hill_curve, moments_estimator, pickands

__all__ = [
    "ALTERNATIVES",
    "ERG",
    "Candidates",
    "Farms",
    "InvalidSpectrum",
    "PLFit",
    "candidates",
    "ccdf_fit",
    "density_fit",
    "double_bootstrap_k",
    "erg",
    "farms",
    "fit_powerlaw",
    "hill_curve",
    "hill_exponent",
    "moments_estimator",
    "pickands",
    "vuong",
]
