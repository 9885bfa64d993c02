"""Tail fits to a spectrum: power laws, alternatives, FARMS, ERG."""

from querist.weights.errors import InvalidSpectrum
from querist.weights.fits._choose_k import DoubleBootstrap, double_bootstrap_k
from querist.weights.fits._erg import ERG, erg
from querist.weights.fits._farms import Farms, farms
from querist.weights.fits._fit import Candidates, PLFit, ccdf_fit, density_fit, finger_words
from querist.weights.fits._likelihood import ALTERNATIVES, DEFAULT_ALTERNATIVES, Comparison, compare_tail, vuong
from querist.weights.fits._powerlaw import candidates, fit_powerlaw, hill_exponent
from querist.weights.fits._tails import TailCurve, hill_curve, moments_estimator, pickands

__all__ = [
    "ALTERNATIVES",
    "DEFAULT_ALTERNATIVES",
    "ERG",
    "Candidates",
    "Comparison",
    "DoubleBootstrap",
    "Farms",
    "InvalidSpectrum",
    "PLFit",
    "TailCurve",
    "candidates",
    "ccdf_fit",
    "compare_tail",
    "density_fit",
    "double_bootstrap_k",
    "erg",
    "farms",
    "finger_words",
    "fit_powerlaw",
    "hill_curve",
    "hill_exponent",
    "moments_estimator",
    "pickands",
    "vuong",
]
