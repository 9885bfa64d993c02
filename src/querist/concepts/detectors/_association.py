"""How every concept is associated with every class, in one pass; constant concepts and class sizes beside it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from querist.concepts.data import ConceptData, class_sums
from querist.concepts.detectors._tails import hypergeometric_p
from querist.statistics import benjamini_hochberg

__all__ = ["Association", "association", "size_outlier"]


@dataclass(frozen=True, slots=True, eq=False)
class Association:
    """`z` [L k] with two-sided `p` and `p_adj` (Benjamini-Hochberg over all L·k); `mean_in` [L k], `mean_all` [k].

    NaN where a concept is constant or unknown throughout a class, and for a class without rows. `constant` [L]: concepts that
    do not vary inside the class. An honest class may have many: up to 72 of CUB's 98, so the number alone flags nothing.
    """

    z: Float[np.ndarray, "L k"]
    p: Float[np.ndarray, "L k"]
    p_adj: Float[np.ndarray, "L k"]
    mean_in: Float[np.ndarray, "L k"]
    mean_all: Float[np.ndarray, "k"]
    constant: Int[np.ndarray, "L"]

    @property
    def z_max(self) -> Float[np.ndarray, "L"]:
        """max_k |z| of each class, NaN where it has none."""
        return np.where(np.isnan(self.z).all(axis=1), np.nan, np.nan_to_num(np.abs(self.z)).max(axis=1))


def association(data: ConceptData) -> Association:
    """z_tk = (m_tk − p_k)/√(σ_k²/n_tk · (N_k − n_tk)/(N_k − 1)), over known cells; σ_k² = p_k(1 − p_k) for a binary concept.

    Permuted labels give mean 0 and variance 1; z² is Pearson's χ² of the 2 × 2 table times (N − 1)/N. Without the last factor
    a balanced table of two classes would have z too small by √2. Source: the permutation variance of a mean drawn without
    replacement, as in Cochran (1977), section 2.6.

    p of a binary concept is exact (hypergeometric tails): one row of four that carries a concept of 1 % has z = 4.8 and a
    chance of .04, which normal tails take for 2·10⁻⁶, and with them nearly every table with rare concepts or small classes had an
    association that p_adj called sure. p of any other concept is normal, and approximate.
    """
    from scipy.special import ndtr

    unknown = np.isnan(data.concepts) if data.missing else np.zeros(0, dtype=bool)
    filled = np.where(unknown, 0, data.concepts) if data.missing else data.concepts
    sums = class_sums(filled, data.codes, data.n_classes)
    binary = data.binary_values
    squares = sums.sum(axis=0) if binary else (filled.astype(float) ** 2).sum(axis=0)
    if data.missing:
        inside = class_sums(~unknown, data.codes, data.n_classes)
    else:
        inside = np.repeat(data.class_sizes[:, None].astype(float), data.k, axis=1)
    known = inside.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_in, mean_all = sums / inside, sums.sum(axis=0) / known
        spread = np.maximum(squares / known - mean_all**2, 0)
        variance = spread / inside * (known - inside) / (known - 1)
        z = np.where((variance > 1e-15) & (inside > 0), (mean_in - mean_all) / np.sqrt(variance), np.nan)
    if binary:
        p = np.where(np.isnan(z), np.nan, hypergeometric_p(sums, inside, sums.sum(axis=0), known))
        fixed = (sums == 0) | (sums == inside)
    else:
        p = 2 * ndtr(-np.abs(z))
        low, high = _range(data.concepts, data.codes, data.n_classes)
        fixed = low >= high
    return Association(
        z,
        p,
        benjamini_hochberg(p.ravel()).reshape(p.shape),
        mean_in,
        mean_all,
        np.where(data.class_sizes > 0, fixed.sum(axis=1), 0),
    )


def size_outlier(sizes: ArrayLike) -> Float[np.ndarray, "L"]:
    """0.6745·(n_t − median)/max(MAD, 1) over classes that have rows, NaN for the others: how far a class is larger than the rest."""
    n = np.asarray(sizes, dtype=float)
    n = np.where(n > 0, n, np.nan)
    middle = np.nanmedian(n)
    return 0.6745 * (n - middle) / max(float(np.nanmedian(np.abs(n - middle))), 1.0)


def _range(concepts: np.ndarray, codes: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.full((classes, concepts.shape[1]), np.inf), np.full((classes, concepts.shape[1]), -np.inf)
    unknown = np.isnan(concepts)
    np.minimum.at(low, codes, np.where(unknown, np.inf, concepts))
    np.maximum.at(high, codes, np.where(unknown, -np.inf, concepts))
    return low, high
