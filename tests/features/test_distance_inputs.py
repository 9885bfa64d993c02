"""What distances take, what they refuse and how they say it, and what went wrong elsewhere."""

from __future__ import annotations

import math
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from tests.features.clouds import X, Y, cloud, gaussian
from tests.harness import Bad, check_bad_input

from querist.errors import (
    BadOption,
    BadValues,
    MissingExtra,
    NonFinite,
    NumericalFailure,
    ShapeMismatch,
    TooFewRows,
    UndefinedMetric,
)
from querist.features import (
    cka,
    exact_wasserstein,
    gaussian_w2,
    gaussian_w2_moments,
    max_sliced_wasserstein,
    otdd,
    per_unit_wasserstein,
    permutation_test,
    sinkhorn_divergence,
    sliced_wasserstein,
    spectrum_distance,
    wasserstein_1d,
)
from querist.features.distances._gaussian import clamped
from querist.features.errors import BadLabels, BadWeights, DimensionMismatch, LabelsNeeded

HALVES = np.arange(40) % 2
TWO_SETS = {
    "sliced": lambda a, b: sliced_wasserstein(a, b, projections=64).value,
    "max-sliced": lambda a, b: max_sliced_wasserstein(a, b).value,
    "per-unit": lambda a, b: per_unit_wasserstein(a, b),
    "gaussian": lambda a, b: gaussian_w2(a, b).value,
    "spectrum": lambda a, b: spectrum_distance(a, b),
    "exact": lambda a, b: exact_wasserstein(a, b).value,
    "cka": lambda a, b: cka(a, b),
    "otdd": lambda a, b: otdd(a, HALVES, b, HALVES).value,
}
FORMS = {
    "float16": lambda Z: Z.astype(np.float16),
    "float32": lambda Z: Z.astype(np.float32),
    "torch": torch.from_numpy,
    "torch float32": lambda Z: torch.from_numpy(Z).float(),
    "torch bfloat16": lambda Z: torch.from_numpy(Z).bfloat16(),
    "torch with gradient": lambda Z: torch.from_numpy(Z).requires_grad_(),
    "Fortran": np.asfortranarray,
    "strided": lambda Z: np.repeat(Z, 2, axis=0)[::2],
    "torch transposed": lambda Z: torch.from_numpy(np.ascontiguousarray(Z.T)).T,
    "polars": lambda Z: pl.DataFrame(Z),
    "arrow": lambda Z: pa.table({str(j): Z[:, j] for j in range(Z.shape[1])}),
    "list": lambda Z: Z.tolist(),
}


def seen(form: str, Z: np.ndarray) -> np.ndarray:
    """The float64 values that a form holds."""
    if form == "torch bfloat16":
        return torch.from_numpy(Z).bfloat16().double().numpy()
    return Z.astype(np.float16 if form == "float16" else np.float32 if "float32" in form else np.float64).astype(float)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TWO_SETS)
def test_every_form_of_rows_gives_the_same_and_is_left_alone(name, form):
    a, b = FORMS[form](X.copy()), FORMS[form](Y.copy())
    kept = np.array(seen(form, X))
    distance = TWO_SETS[name]
    value = distance(a, b)
    expected = distance(seen(form, X), seen(form, Y))
    np.testing.assert_allclose(value, expected, rtol=1e-5 if name == "max-sliced" else 2e-6)
    if form not in ("polars", "arrow", "list"):
        left = a.detach().double().numpy() if isinstance(a, torch.Tensor) else a.astype(float)
        np.testing.assert_array_equal(left, kept)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, bool])
def test_whole_numbers(dtype):
    a, b = (np.abs(cloud(40, 3, k)) * 5 for k in (0, 1))
    a, b = (Z > 2 if dtype is bool else Z.astype(dtype) for Z in (a, b))
    for distance in TWO_SETS.values():
        np.testing.assert_allclose(distance(a, b), distance(a.astype(float), b.astype(float)), rtol=1e-5)
    assert wasserstein_1d(a[:, 0], b[:, 0]) == wasserstein_1d(a[:, 0].astype(float), b[:, 0].astype(float))


def test_a_distance_may_be_the_statistic_of_a_permutation_test():
    far = permutation_test(X, Y + 5, lambda a, b: float(sliced_wasserstein(a, b, projections=30)), permutations=19)
    assert far.p == 0.05


def bad(call, expected, *fragments):
    return Bad(call, expected, fragments)


def test_bad_rows_are_refused_in_one_message():
    broken = X.copy()
    broken[[4, 9], 1] = np.nan
    broken[7, 0] = np.inf
    for name, distance in TWO_SETS.items():
        rows = [
            bad(lambda f=distance: f(broken, Y), NonFinite, "X holds NaN or infinity", "3 values in 3 rows", "4, 7, 9"),
            bad(lambda f=distance: f(X, broken), NonFinite, "Y holds NaN"),
            bad(lambda f=distance: f(X[:, 0], Y), ShapeMismatch, "(n, d)", "(40,)", "wasserstein_1d"),
            bad(lambda f=distance: f(X, Y[None]), ShapeMismatch, "(1, 40, 3)"),
            bad(lambda f=distance: f(X[:, :0], Y), ShapeMismatch, "no units"),
        ]
        if name != "otdd":
            rows.append(bad(lambda f=distance: f(X, Y[:0]), TooFewRows, "Y of shape (0, 3)", "too few rows"))
        if name not in ("spectrum", "cka"):
            rows.append(
                bad(
                    lambda f=distance: f(X, Y[:, :2]), DimensionMismatch, "3 and 2 units", "spectrum_distance", "pooled"
                )
            )
        check_bad_input(rows)
    check_bad_input(
        [
            bad(lambda: sliced_wasserstein(X.astype(str), Y), BadValues, "real numbers"),
            bad(lambda: sliced_wasserstein(X + 1j, Y), BadValues, "complex"),
            bad(lambda: cka(X, Y[:30]), ShapeMismatch, "40 and 30 rows"),
            bad(lambda: cka(X[:3], Y[:3]), TooFewRows, "4 or more"),
            bad(lambda: gaussian_w2(X[:1], Y), TooFewRows, "2 or more"),
            bad(lambda: gaussian_w2(X, Y, ddof=2), BadOption, "n − 1"),
            bad(lambda: spectrum_distance(X, Y, ddof=True), BadOption),
            bad(lambda: gaussian_w2_moments([0, 0], np.eye(3), [0, 0], np.eye(2)), ShapeMismatch, "S1", "(2, 2)"),
            bad(lambda: gaussian_w2_moments([0, 0], np.eye(2), [0], np.eye(1)), DimensionMismatch, "2 and 1"),
            bad(lambda: gaussian_w2_moments([0, 0], -np.eye(2), [0, 0], np.eye(2)), BadValues, "negative eigenvalue"),
            bad(lambda: gaussian_w2_moments([0, 0], np.eye(2), [0, 0], [[1, 1], [0, 1]]), BadValues, "not symmetric"),
        ]
    )
    assert gaussian_w2(X[:1], Y, ddof=0).value > 0


def test_bad_lines_weights_and_options_are_refused():
    x, y = X[:, 0], Y[:, 0]
    nan = np.where(np.arange(40) == 3, np.nan, 1.0)
    check_bad_input(
        [
            bad(lambda: wasserstein_1d(X, Y), ShapeMismatch, "(40, 3)", "(n, d)", "sliced_wasserstein"),
            bad(lambda: wasserstein_1d(X[:, :1], y), ShapeMismatch, "(40, 1)"),
            bad(lambda: wasserstein_1d([], y), TooFewRows, "x is empty"),
            bad(lambda: wasserstein_1d(nan, y), NonFinite, "x holds", "rows: 3"),
            bad(lambda: wasserstein_1d(x, y, wx=-np.ones(40)), BadWeights, "wx", "-1.0 at index 0", "-40"),
            bad(lambda: wasserstein_1d(x, y, wy=nan), BadWeights, "wy", "nan at index 3"),
            bad(lambda: wasserstein_1d(x, y, wy=nan * np.inf), BadWeights, "inf at index 0"),
            bad(lambda: wasserstein_1d(x, y, wx=np.zeros(40)), BadWeights, "wx", "all be zero", "0.0"),
            bad(lambda: wasserstein_1d(x, y, wx=np.ones(39)), ShapeMismatch, "(39,)", "(40,)"),
            bad(lambda: exact_wasserstein(X, Y, wx=-np.ones(40)), BadWeights, "index 0"),
            bad(lambda: wasserstein_1d(x, y, 0.5), BadOption, "0.5", "1 <= p <= inf"),
            bad(lambda: wasserstein_1d(x, y, math.nan), BadOption, "nan"),
            bad(lambda: per_unit_wasserstein(X, Y, "2"), BadOption, "1 <= p <= inf"),
            bad(lambda: sliced_wasserstein(X, Y, math.inf), BadOption, "1 <= p < inf", "per_unit_wasserstein"),
            bad(lambda: exact_wasserstein(X, Y, 0.99), BadOption, "0.99"),
            bad(lambda: sliced_wasserstein(X, Y, projections=0), BadOption, "projections", "0", "1 or more"),
            bad(lambda: sliced_wasserstein(X, Y, projections=2.5), BadOption, "2.5"),
            bad(lambda: sliced_wasserstein(X, Y, directions=np.eye(4)), ShapeMismatch, "(4, 4)", "(P, 3)"),
            bad(lambda: sliced_wasserstein(X, Y, directions=np.zeros((2, 3))), BadValues, "length 0", "row 0"),
            bad(lambda: max_sliced_wasserstein(X, Y, restarts=7), BadOption, "7", "8 or more"),
            bad(lambda: sinkhorn_divergence(X, Y, epsilon=0), BadOption, "epsilon", "0 < epsilon"),
            bad(lambda: sinkhorn_divergence(X, Y, epsilon=-1.0), BadOption, "-1.0"),
            bad(lambda: sinkhorn_divergence(X, Y, epsilon=math.nan), BadOption, "nan"),
            bad(lambda: exact_wasserstein(X, Y, cost=np.ones((3, 4))), ShapeMismatch, "(3, 4)", "(40, 40)"),
            bad(lambda: exact_wasserstein(None, None, cost=[[1.0, -2.0]]), BadValues, "-2.0"),
        ]
    )


def test_bad_labels_are_refused():
    y = np.arange(40) % 2
    check_bad_input(
        [
            bad(lambda: otdd(X, None, Y, y), LabelsNeeded, "yx is missing", "one label per row"),
            bad(lambda: otdd(X, y[:39], Y, y), ShapeMismatch, "(39,)", "(40,)"),
            bad(lambda: otdd(X, y, Y, np.where(np.arange(40) == 5, 7, y)), BadLabels, "class 7 has 1", "2 or more"),
            bad(lambda: otdd(X, np.where(y, np.nan, 0.0), Y, y), BadValues, "missing", "row 1"),
            bad(lambda: otdd(X, y, Y, y, method="exact"), BadOption, "exact", "gaussian, sliced"),
            bad(lambda: otdd(X, y, Y, y, max_rows=1), BadOption, "max_rows"),
        ]
    )


def test_optional_packages_are_named_with_the_line_that_installs_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    monkeypatch.setitem(sys.modules, "geomloss", None)
    A, B = gaussian(600, 2), gaussian(500, 2, seed=1)
    check_bad_input(
        [
            bad(
                lambda: exact_wasserstein(A, B), MissingExtra, "POT", "300000 pairs", 'pip install "querist[transport]"'
            ),
            bad(lambda: sinkhorn_divergence(X, Y, epsilon=1.0), MissingExtra, "geomloss", "querist[transport]"),
        ]
    )


def test_constant_representations_have_no_cka():
    with pytest.raises(UndefinedMetric, match="Y is constant"):
        cka(X, np.full((40, 3), 0.1))
    with pytest.raises(UndefinedMetric, match="X is constant"):
        cka(np.full((40, 3), 1e9, dtype=np.float32), Y)


class TestWhatWentWrongElsewhere:
    def test_weights_of_two_float_types_keep_their_mass(self):
        # PythonOT/POT#342
        x = cloud(5, 2, 0)
        found = exact_wasserstein(x, x + 1, wx=np.full(5, 0.2, np.float32), wy=np.full(5, 0.2))
        assert found.plan is not None
        assert found.plan.mass.sum() == pytest.approx(1, abs=1e-12)
        assert found.value == pytest.approx(math.sqrt(2), rel=1e-9)
        assert wasserstein_1d(x[:, 0], x[:, 0] + 1, 1, np.full(5, 0.2, np.float32), np.full(5, 0.2)) == pytest.approx(1)

    @pytest.mark.parametrize("off", [1e-7, -1e-7])
    def test_totals_that_differ_by_rounding_are_normalised(self, off):
        # POT#126, #93, #12
        found = exact_wasserstein([[0.0], [1.0]], [[0.0], [1.0]], 1, [0.5, 0.5], [0.2, 0.8 + off])
        assert found.value == pytest.approx(0.3, abs=2e-7)
        assert found.plan is not None
        assert found.plan.mass.sum() == pytest.approx(1, abs=1e-12)
        assert len(found.plan.mass) == 3

    def test_a_marker_for_forbidden_pairs_is_told(self):
        # POT#229, GUDHI#465
        cost = np.abs(np.arange(6.0)[:, None] - np.arange(6.0)) + 1
        cost[cost > 4] = 1e32
        for weights in (None, np.arange(1.0, 7)):
            check_bad_input(
                [
                    bad(
                        lambda w=weights: exact_wasserstein(None, None, wx=w, wy=w, cost=cost),
                        BadValues,
                        "dynamic range",
                    )
                ]
            )
        noise = np.abs(np.arange(6.0)[:, None] - np.arange(6.0))
        noise[np.diag_indices(6)] = 1e-17  # what rounding leaves of a zero
        assert exact_wasserstein(None, None, 1, cost=noise).value == pytest.approx(1e-17)
        assert "twelve orders" in exact_wasserstein(None, None, 1, cost=noise).warnings[0]

    def test_nan_in_a_cost(self):
        # POT#469
        cost = np.ones((4, 4))
        cost[2, 1] = np.nan
        check_bad_input([bad(lambda: exact_wasserstein(None, None, cost=cost), NonFinite, "cost", "rows: 2")])

    @pytest.mark.parametrize("n", [100, 1000])
    def test_a_law_against_itself_in_float32(self, n):
        # POT#695
        A = gaussian(n, 300, dtype=np.float32)
        other = A[np.random.default_rng(0).permutation(n)]
        scale = float(A.astype(float).var(axis=0).sum())
        assert gaussian_w2(A, A.copy()).value == 0
        assert gaussian_w2(A, other).power <= 1e-12 * scale
        assert spectrum_distance(A, other) ** 2 <= 1e-12 * scale
        assert sliced_wasserstein(A, other, projections=64).power <= 1e-12 * scale
        assert exact_wasserstein(A, other).value == 0

    def test_rows_go_in_as_they_are(self):
        # POT#182, #396, #202
        assert sliced_wasserstein(X, Y[:30]).n == 40
        assert exact_wasserstein(X, Y[:30]).m == 30

    def test_two_totals(self):
        # POT PR#386
        w = np.full(40, 1 / 40)
        check_bad_input([bad(lambda: exact_wasserstein(X, Y, wx=w, wy=0.9 * w), BadWeights, "1 and 0.9", "1e-06")])
        assert wasserstein_1d(X[:, 0], Y[:, 0], 2, w, 0.9 * w) == pytest.approx(wasserstein_1d(X[:, 0], Y[:, 0]))

    def test_rows_that_were_reshaped_to_one(self):
        # geomloss#71
        flat = X.reshape(1, -1)
        for call in (lambda: sinkhorn_divergence(flat, flat, epsilon=1.0), lambda: gaussian_w2(flat, flat)):
            check_bad_input([bad(call, TooFewRows, "(1, 120)", "2 or more")])

    @pytest.mark.parametrize("method", ["gaussian", "sliced"])
    def test_a_set_against_itself_with_more_rows_than_are_used(self, method):
        # microsoft/otdd#32
        A = gaussian(300, 4)
        y = np.arange(300) % 3
        found = otdd(A, y, A.copy(), y, method=method, max_rows=100)
        assert found.value == 0
        assert found.n_used == (100 if method == "gaussian" else 300)
        assert found.n == 300
        if method == "gaussian":
            assert "100 of 300" in found.warnings[0]

    @pytest.mark.parametrize("d", [512, 2048])
    def test_few_rows_in_many_units(self, d):
        # bioinf-jku/TTUR#4, #40; pytorch-fid#13, #117
        found = gaussian_w2(gaussian(32, d, dtype=np.float32), gaussian(32, d, seed=1, dtype=np.float32))
        assert math.isfinite(found.value)
        assert found.value > 0
        assert "biased upwards" in found.warnings[0]

    def test_nearly_equal_sets(self):
        # pytorch-fid#105, TTUR#43
        for n, d in ((500, 64), (40, 64)):
            A = gaussian(n, d, dtype=np.float32)
            for size in (0, 1e-7, 1e-5, 1e-3):
                assert 0 <= gaussian_w2(A, A + np.float32(size)).value <= 10 * size * math.sqrt(d) + 1e-5

    def test_the_covariance_of_three_rows_is_numpys(self):
        # lucidrains/denoising-diffusion-pytorch#213
        from querist.features.moments import moments

        A = cloud(3, 2, 5)
        for ddof in (0, 1):
            mean, S = moments(A, ddof)
            np.testing.assert_allclose(mean, A.mean(axis=0), rtol=1e-14)
            np.testing.assert_allclose(S, np.cov(A.T, ddof=ddof), rtol=1e-14)

    def test_no_matrix_square_root_is_taken(self):
        # MONAI PR#9076, ignite PR#3794
        from pathlib import Path

        import querist.features

        sources = [path.read_text() for path in Path(querist.features.__file__).parent.rglob("*.py")]
        assert len(sources) > 20
        assert not any("sqrtm" in text for text in sources)

    def test_far_sets_have_the_least_p_there_is_and_not_0(self):
        # SeldonIO/alibi-detect#960
        far = permutation_test(X, X + 100, lambda a, b: sliced_wasserstein(a, b, projections=30).value, permutations=19)
        assert far.p == pytest.approx(0.05, abs=1e-15)

    def test_unbiased_cka_of_five_rows(self):
        # dmarx/cka_pytorch#2
        for seed in range(20):
            A = gaussian(5, 3, seed=seed)
            assert cka(A, A) == pytest.approx(1, abs=1e-9)
            assert math.isfinite(cka(A, gaussian(5, 40, seed=seed)))

    @pytest.mark.parametrize("Z", [torch.from_numpy(X), torch.from_numpy(X).float()])
    def test_tensors_against_themselves(self, Z):
        # geomstats#1882, #1442
        S = torch.cov(Z.T)
        assert gaussian_w2(Z, Z).value == 0
        assert gaussian_w2_moments(Z.mean(0), S, Z.mean(0), S) == 0
        assert isinstance(gaussian_w2_moments(Z.mean(0), S, Z.mean(0), 2 * S), float)
        for distance in (sliced_wasserstein, exact_wasserstein, max_sliced_wasserstein):
            assert distance(Z, Z).value == 0

    def test_squared_distances_below_0_are_rounding_or_a_failure(self):
        assert clamped(1.0, 1.0 + 5e-9) == 0
        with pytest.raises(NumericalFailure, match="cannot be negative"):
            clamped(1.0, 1.0 + 5e-8)
        with pytest.raises(NumericalFailure):
            clamped(1.0, math.nan)


def test_moments_of_many_pieces_are_those_of_all(monkeypatch):
    from querist.features import moments as home

    A = gaussian(1000, 7, dtype=np.float32) * np.arange(1, 8) + 1000
    whole = home.moments(A, 1)
    monkeypatch.setattr(home, "_PIECE", 50)
    pieces = home.moments(A, 1)
    np.testing.assert_allclose(pieces[0], A.astype(float).mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(pieces[1], whole[1], rtol=1e-10)
    np.testing.assert_allclose(home.moments(torch.from_numpy(A), 1)[1], np.cov(A.T.astype(float)), rtol=1e-9)


def test_linear_programs_that_do_not_end_are_failures(monkeypatch):
    import scipy.optimize

    from querist.features.distances import _exact

    class Unfinished:
        status, message, x = 1, "Iteration limit reached.", None

    monkeypatch.setattr(scipy.optimize, "linprog", lambda *args, **options: Unfinished())
    with pytest.raises(NumericalFailure, match="Iteration limit"):
        exact_wasserstein(X, Y[:30])
    from querist.errors import InvariantBroken

    half = np.full((2, 2), 0.2)
    ends = np.full(2, 0.5)
    with pytest.raises(InvariantBroken, match="marginals"):
        _exact.plan_of(half, ends, ends, np.arange(2), np.arange(2))
