"""Resampled copies, their largest eigenvalues and their distances."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import chisquare

from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch, UnknownName
from querist.statistics import stream
from querist.weights.nulls import _replicas, full_replicas, jensen_shannon, replica, shuffle_distance, top_eigenvalue
from querist.weights.nulls._lanczos import default_steps, edge_scale
from querist.weights.nulls._largest import largest_of_groups
from querist.weights.nulls._replicas import top_replicas

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def gaussian(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(stream(seed, "test", *shape).standard_normal(shape).astype(np.float32))


def squares(W: torch.Tensor) -> np.ndarray:
    """Squared singular values by LAPACK's SVD of the whole matrix, ascending."""
    return np.sort(np.linalg.svd(W.double().numpy(), compute_uv=False).ravel() ** 2)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32),
)
def test_a_copy_holds_the_same_entries_and_leaves_the_matrix_alone(shape, dtype, seed):
    W = gaussian(*shape, seed=seed).to(dtype)
    before = W.clone()
    shuffled = replica(W, "shuffle", np.random.default_rng(seed))
    flipped = replica(W, "signflip", np.random.default_rng(seed))
    assert torch.equal(W, before)
    for copy in (shuffled, flipped):
        assert (copy.shape, copy.dtype) == (W.shape, dtype)
        assert copy.data_ptr() != W.data_ptr()
    assert torch.equal(shuffled.flatten().double().sort().values, W.flatten().double().sort().values)
    assert torch.equal(flipped.abs(), W.abs())


def test_the_copy_follows_indices_not_memory():
    W = gaussian(6, 5)
    turned = W.T.contiguous().T
    assert not turned.is_contiguous()
    for kind in ("shuffle", "signflip"):
        assert torch.equal(replica(W, kind, np.random.default_rng(1)), replica(turned, kind, np.random.default_rng(1)))


@pytest.mark.parametrize("two_rounds", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_every_permutation_is_equally_likely(monkeypatch, two_rounds, dtype):
    if two_rounds:
        monkeypatch.setattr(_replicas, "_ONE_SORT", 0)
        monkeypatch.setattr(_replicas, "_BUCKET_BITS", 2)
        monkeypatch.setattr(_replicas, "_CHUNK", 3)
    W = torch.arange(4).to(dtype)
    rng = np.random.default_rng(5)
    runs = 6000
    codes = [int(replica(W, "shuffle", rng).double().numpy() @ [64, 16, 4, 1]) for _ in range(runs)]
    seen = np.unique(codes, return_counts=True)[1]
    assert len(seen) == 24
    assert chisquare(seen).pvalue > 1e-3


def test_a_large_tensor_is_shuffled_in_two_rounds_with_every_entry_kept(monkeypatch):
    monkeypatch.setattr(_replicas, "_ONE_SORT", 1000)
    monkeypatch.setattr(_replicas, "_CHUNK", 1 << 12)
    W = torch.arange(40_000, dtype=torch.float32).reshape(200, 200)
    copy = replica(W, "shuffle", np.random.default_rng(0)).flatten().double()
    assert torch.equal(copy.sort().values, W.flatten().double())
    # Entry and place are uncorrelated, near and far: sd of a correlation is 1/200.
    place = torch.arange(40_000, dtype=torch.float64)
    assert abs(float(torch.corrcoef(torch.stack([copy, place]))[0, 1])) < 0.02
    assert abs(float(torch.corrcoef(torch.stack([copy[1:], copy[:-1]]))[0, 1])) < 0.02


def test_signs_are_fair_and_independent():
    signs = replica(torch.ones(600, 500), "signflip", np.random.default_rng(3)).numpy()
    assert abs(signs.mean()) < 5 / np.sqrt(signs.size)
    assert abs((signs[1:] * signs[:-1]).mean()) < 5 / np.sqrt(signs.size)
    assert abs((signs[:, 1:] * signs[:, :-1]).mean()) < 5 / np.sqrt(signs.size)


def test_the_draw_does_not_depend_on_threads():
    W, threads = gaussian(300, 200), torch.get_num_threads()
    drawn = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            drawn.append([replica(W, kind, stream(0, "a", kind, 1)) for kind in ("shuffle", "signflip")])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, two) for one, two in zip(*drawn, strict=True))


def test_each_layer_null_and_number_has_its_own_stream():
    W = gaussian(30, 20)
    base = full_replicas(W, "shuffle", 3, 0, "a")
    assert all(np.array_equal(one, two) for one, two in zip(base, full_replicas(W, "shuffle", 3, 0, "a"), strict=True))
    assert np.array_equal(full_replicas(W, "shuffle", 1, 0, "a", first=2)[0], base[2])
    others = [
        base[1],
        full_replicas(W, "shuffle", 1, 0, "b")[0],
        full_replicas(W, "shuffle", 1, 1, "a")[0],
        full_replicas(W, "signflip", 1, 0, "a")[0],
    ]
    assert not any(np.array_equal(base[0], other) for other in others)


def test_a_stack_is_resampled_as_a_whole():
    W = torch.stack([torch.full((8, 9), float(i)) for i in range(4)])
    copy = replica(W, "shuffle", np.random.default_rng(0))
    assert all(len(torch.unique(part)) == 4 for part in copy)
    evals = full_replicas(gaussian(4, 8, 9), "signflip", 1, 0, "a")[0]
    assert evals.shape == (32,)
    assert (np.diff(evals) >= 0).all()


def test_full_copies_have_the_spectrum_of_the_copy():
    W = gaussian(40, 25)
    expected = squares(replica(W, "shuffle", stream(7, "layer", "shuffle", 0)))
    np.testing.assert_allclose(full_replicas(W, "shuffle", 1, 7, "layer")[0], expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("kind", "W", "error"),
    [("permute", torch.ones(2, 2), UnknownName), ("shuffle", torch.ones(2, 2, dtype=torch.int32), BadValues)],
)
def test_what_cannot_be_resampled_is_refused(kind, W, error):
    with pytest.raises(error):
        replica(W, kind, np.random.default_rng(0))


def entries(kind: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    W = rng.standard_t(3, shape) if kind == "t3" else rng.standard_normal(shape)
    if kind == "rows":
        W *= np.exp(0.5 * rng.standard_normal((*shape[:-1], 1)))
    return torch.from_numpy(W)


@pytest.mark.parametrize("kind", ["normal", "t3", "rows"])
@pytest.mark.parametrize("shape", [(12, 9), (16, 128), (60, 60), (384, 384), (700, 200), (5, 16, 40)])
def test_the_largest_eigenvalue_lies_within_a_tenth_of_a_standard_unit(kind, shape):
    worst = 0.0
    for seed in range(4):
        W = entries(kind, shape, seed)
        exact = squares(W)[-1]
        found = top_eigenvalue(W.float(), rng=np.random.default_rng(seed))
        worst = max(worst, abs(exact - found) / exact / edge_scale(*shape[-2:]))
    assert worst <= 0.1


@pytest.mark.parametrize(("side", "steps"), [(384, 25), (1000, 30)])
def test_few_steps_suffice(side, steps):
    W = gaussian(side, side)
    assert default_steps(side) <= steps
    X = W.double()
    exact = float(torch.linalg.eigvalsh(X @ X.T)[-1])
    found = top_eigenvalue(W, steps=steps, rng=np.random.default_rng(0))
    assert 0 <= (exact - found) / exact / edge_scale(side, side) + 1e-3 <= 0.1


def test_the_edge_scale_is_johnstones():
    # N = 200, M = 300: μ = (√299 + √200)², σ = (√299 + √200)(1/√299 + 1/√200)^(1/3)
    root = np.sqrt(299) + np.sqrt(200)
    assert edge_scale(300, 200) == pytest.approx((1 / np.sqrt(299) + 1 / np.sqrt(200)) ** (1 / 3) / root, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_no_scale_overflows_or_vanishes(scale):
    W = gaussian(50, 70)
    found = top_eigenvalue(W.double() * scale, rng=np.random.default_rng(0)) / scale / scale
    assert found == pytest.approx(squares(W)[-1], rel=1e-5)


def test_degenerate_matrices_have_a_largest_eigenvalue_too():
    rng = np.random.default_rng(0)
    assert top_eigenvalue(torch.zeros(20, 30), rng=rng) == 0.0
    assert top_eigenvalue(torch.full((1, 7), 2.0), rng=rng) == pytest.approx(28.0)
    one = torch.outer(torch.arange(1.0, 41), torch.arange(1.0, 31))
    assert top_eigenvalue(one, rng=rng) == pytest.approx(squares(one)[-1], rel=1e-5)


@pytest.mark.parametrize("rank", [1, 2, 5, 23, 24, 25])
@pytest.mark.parametrize("count", [1, 3])
def test_an_exhausted_space_adds_nothing(rank, count):
    W = gaussian(count, 60, rank) @ gaussian(count, rank, 50, seed=1)
    exact = squares(W)[-1]
    assert top_eigenvalue(W, rng=np.random.default_rng(0)) == pytest.approx(exact, rel=1e-4)
    assert top_eigenvalue(W, steps=50, rng=np.random.default_rng(0)) == pytest.approx(exact, rel=1e-4)


def test_bad_matrices_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(NonFinite):
        top_eigenvalue(torch.tensor([[1.0, float("nan")], [0.0, 1.0]]), rng=rng)
    with pytest.raises(ShapeMismatch):
        top_eigenvalue(torch.ones(5), rng=rng)
    with pytest.raises(BadOption):
        top_eigenvalue(torch.ones(5, 5), steps=0, rng=rng)


@pytest.mark.parametrize("shape", [(300, 310), (60, 90), (3, 20, 30), (3, 30, 20)])
@pytest.mark.parametrize("whole", [0, 256])
@pytest.mark.parametrize("kind", ["shuffle", "signflip"])
def test_largest_only_draws_are_those_of_the_full_copies(monkeypatch, shape, kind, whole):
    monkeypatch.setattr(_replicas, "_WHOLE_SIDE", whole)
    W = entries("rows", shape, 0).float()
    full = [evals[-1] for evals in full_replicas(W, kind, 5, 3, "layer")]
    top = top_replicas(W, kind, range(1, 5), 3, "layer")
    np.testing.assert_allclose(top, full[1:], rtol=0.1 * edge_scale(*shape[-2:]))


@settings(max_examples=60, deadline=None)
@given(
    groups=st.integers(1, 3),
    size=st.integers(1, 7),
    side=st.integers(1, 9),
    rank=st.integers(0, 9),
    spread=st.sampled_from([0.0, 1.0, 6.0]),
    seed=st.integers(0, 2**32),
)
def test_the_largest_of_many_is_lapacks(groups, size, side, rank, spread, seed):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((groups, size, side, max(rank, 1))) * np.exp(
        spread * rng.standard_normal((groups, size, 1, 1))
    )
    W *= rank > 0
    W /= max(np.abs(W).max(), 1e-30)
    gram = W @ W.swapaxes(-1, -2)
    expected = np.linalg.eigvalsh(gram)[..., -1].max(axis=1)
    found = largest_of_groups(torch.from_numpy(gram.astype(np.float32)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_distance_is_scipys(data):
    counts = st.lists(st.integers(0, 50), min_size=12, max_size=12).filter(any)
    p, q = (np.array(data.draw(counts), dtype=float) for _ in range(2))
    assert jensen_shannon(p, q) == pytest.approx(jensenshannon(p, q, base=2), abs=1e-7)
    assert jensen_shannon(p, q) == pytest.approx(jensen_shannon(q, p), abs=1e-12)


def test_the_distance_uses_one_hundred_common_bins():
    rng = np.random.default_rng(0)
    spectra = [rng.lognormal(s, 1, 200) for s in (0.0, 0.1, 0.2, 0.3)]
    logs = np.log10(np.concatenate(spectra))
    binned = [np.histogram(np.log10(x), bins=100, range=(logs.min(), logs.max()))[0] for x in spectra]
    found = shuffle_distance(spectra[0], spectra[1:])
    assert found is not None
    expected = [jensenshannon(binned[0], other, base=2) for other in binned[1:]]
    np.testing.assert_allclose(found.draws, expected, atol=1e-9)
    assert found.distance == pytest.approx(np.mean(expected))
    assert found.sd == pytest.approx(np.std(expected, ddof=1))
    pairs = [jensenshannon(binned[i], binned[j], base=2) for i, j in ((1, 2), (1, 3), (2, 3))]
    np.testing.assert_allclose(found.null, np.sort(pairs), atol=1e-9)


def test_lost_rank_is_far_from_full_rank_wherever_its_zeros_were_rounded_to():
    full = np.linspace(1.0, 4.0, 40)
    for rounding in (0.0, 1e-20, 1e-16):
        lost = np.concatenate([np.full(20, rounding), np.linspace(1.0, 4.0, 20)])
        found = shuffle_distance(lost, [full, full])
        assert found is not None
        assert found.distance > 0.5
        assert found.sd == 0
        assert found.null.tolist() == [0.0]


def test_distances_that_do_not_exist():
    assert shuffle_distance(np.ones(5), []) is None
    assert shuffle_distance(np.zeros(5), [np.zeros(5)]) is None
    alone = shuffle_distance(np.ones(5), [np.ones(5)])
    assert alone is not None
    assert (alone.distance, alone.sd, alone.null.size) == (0.0, None, 0)


def test_random_weights_lie_as_far_from_their_copies_as_these_from_each_other():
    W = gaussian(200, 150)
    found = shuffle_distance(squares(W), full_replicas(W, "shuffle", 6, 0, "a"))
    assert found is not None
    assert found.sd is not None
    assert found.sd > 0
    assert abs(found.distance - found.null.mean()) < 4 * found.null.std()
