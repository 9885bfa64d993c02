"""The room's public names: there, explained, and imported late."""

from __future__ import annotations

import subprocess
import sys

from tests.harness import PATIENCE

import querist.features as room

PURE = [
    *("wasserstein_1d", "per_unit_wasserstein", "sliced_wasserstein", "max_sliced_wasserstein", "exact_wasserstein"),
    *(
        "gaussian_w2",
        "gaussian_w2_moments",
        "spectrum_distance",
        "sinkhorn_divergence",
        "otdd",
        "cka",
        "permutation_test",
    ),
    *("nce", "leep", "nleep", "logme", "h_score", "transrate", "gbc", "consistency"),
]


def test_pure_functions_are_there_and_explained():
    assert set(PURE) <= set(room.__all__)
    for name in PURE:
        doc = getattr(room, name).__doc__
        assert doc, name
        assert "Raises" in doc, name


def test_importing_the_room_loads_nothing_heavy_and_distances_no_torch_or_scikit_learn():
    program = (
        "import sys\nimport querist.features\n"
        "assert not {'torch', 'sklearn', 'scipy', 'ot', 'geomloss'} & set(sys.modules)\n"
        "from querist.features import sliced_wasserstein\n"
        "sliced_wasserstein([[0.0, 1.0], [2.0, 3.0]], [[1.0, 1.0], [2.0, 2.0]])\n"
        "assert not {'torch', 'sklearn', 'ot', 'geomloss'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)
