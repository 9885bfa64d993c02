"""Pure parts of a comparison: names, rounding, spans, factors, energies, against closed forms and dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from querist.errors import BadOption, UnsupportedFormat
from querist.sources.datasets.matrices import gaussian
from querist.sources.tensors import open_source
from querist.statistics import stream
from querist.weights.delta import (
    Adapter,
    Difference,
    Factors,
    beyond,
    common_names,
    energy,
    factor_replicas,
    faint_edge,
    frobenius,
    plain_name,
    random_angles,
    rounding,
    side_overlap,
    span_p,
    span_quantile,
    stacked,
    stored,
    subtracted,
)
from querist.weights.spectrum import (
    LayerMatrix,
    leading,
    low_rank_stem,
    matrices,
    product,
    short_side,
    transposed_product,
    triplets,
)

# ------------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("base_model.model.a.b.weight", "a.b.weight"),
        ("a.base_layer.weight", "a.weight"),
        ("_orig_mod.a.weight", "a.weight"),
        ("a._fsdp_wrapped_module.b._checkpoint_wrapped_module.c.weight", "a.b.c.weight"),
        ("head.modules_to_save.default.weight", "head.weight"),
        ("head.modules_to_save.weight", "head.weight"),
        ("database_layer.weight", "database_layer.weight"),
    ],
)
def test_wrappers_are_undone(written, plain):
    assert plain_name(written) == plain


BODY = [f"layers.{i}.{part}.weight" for i in range(3) for part in ("q", "k")]


@pytest.mark.parametrize("prefix", ["model.", "bert.encoder.", "a."])
def test_a_prefix_on_one_side_is_undone(prefix):
    longer = [prefix + name for name in BODY]
    assert common_names(BODY, longer) == dict(zip(longer, BODY, strict=True))
    assert common_names(longer, BODY) == dict(zip(BODY, longer, strict=True))
    mixed = [*longer, "head.weight"]
    assert common_names([*BODY, "head.weight"], mixed)["head.weight"] == "head.weight"


def test_names_that_end_alike_by_chance_are_not_matched():
    assert common_names(["weight"], ["fc1.weight", "fc2.weight"]) == {n: n for n in ("fc1.weight", "fc2.weight")}
    told = common_names([f"a.{i}.weight" for i in range(8)], ["z.a.0.weight", *(f"other{i}.bias" for i in range(8))])
    assert told["z.a.0.weight"] == "z.a.0.weight"


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ("base_model.model.model.layers.0.q.lora_A.weight", "layers.0.q.weight"),
        ("base_model.model.layers.0.q.lora_B.default.weight", "model.layers.0.q.weight"),
        ("lora_unet_layers_0_q.lora_down.weight", "layers.0.q.weight"),
        ("lora_unet_layers_0_q.alpha", "layers.0.q.weight"),
        ("layers.0.q.lora.up.weight", "layers.0.q.weight"),
    ],
)
def test_halves_of_pairs_find_their_layer(written, given):
    others = [given.replace(".0.", f".{i}.") for i in range(1, 4)]
    pairs = [written, written.replace("lora_A", "lora_B")] if "alpha" not in written else [written]
    if written.endswith("alpha"):
        pairs.append(written.replace("alpha", "lora_up.weight"))
    found = common_names([given, *others], pairs)[written]
    assert (low_rank_stem(found) or found.removesuffix(".alpha")) == given.removesuffix(".weight")


# ---------------------------------------------------------------------------------------------------------- rounding


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e3])
def test_no_pair_of_stored_copies_lies_farther_apart_than_rounding_says(narrow, scale):
    W = torch.from_numpy(gaussian(60, 90, seed=3)) * scale
    copy = W.to(narrow)
    formats = stored(W, "float32"), stored(copy, str(narrow).removeprefix("torch."))
    assert [one.name for one in formats] == ["float32", str(narrow).removeprefix("torch.")]
    limit = rounding(*formats, (frobenius(W), frobenius(copy)), W.numel())
    apart = frobenius(subtracted(copy, W))
    assert 0.1 * limit < apart <= limit


def test_a_widened_copy_keeps_the_rounding_of_its_narrow_format():
    W = torch.from_numpy(gaussian(30, 40))
    assert stored(W.bfloat16().float(), "float32").name == "bfloat16"
    assert stored(W.half().float(), "float32").name == "float16"
    assert stored(W.double(), "float64").name == "float32"
    assert stored(W.double() * (1 + 2**-40), "float64").name == "float64"
    assert stored(torch.zeros(3, 4), "float32").name == "float32"
    assert stored(W, "q8_0").eps == pytest.approx(2 * 32**0.5 / 254)


def test_the_edge_of_rounding_errors_is_that_of_independent_ones():
    noise = torch.from_numpy(gaussian(400, 300, seed=1))
    top = float(torch.linalg.matrix_norm(noise, 2))
    assert faint_edge(frobenius(noise), (400, 300)) == pytest.approx(top, rel=0.03)


# ------------------------------------------------------------------------------------------------------------- spans


@pytest.mark.parametrize(("k", "side"), [(1, 8), (4, 40), (16, 100)])
def test_one_direction_has_a_beta_law(k, side):
    law = stats.beta(k / 2, (side - k) / 2)
    for u in (0.005, 0.5, 0.99):
        assert span_quantile(u, k, 1, side) == pytest.approx(law.ppf(u))
        assert span_p(law.ppf(u), k, 1, side) == pytest.approx(1 - u)


@pytest.mark.parametrize(("k", "l", "side"), [(4, 4, 16), (16, 16, 64), (8, 3, 50), (16, 16, 300)])
def test_the_span_law_is_that_of_random_spans(k, l, side):  # noqa: E741
    rng = stream(0, "spans", k, l, side)
    draws = rng.standard_normal((4000, side, l))
    spans = np.linalg.qr(draws)[0][:, :k]
    overlaps = (spans**2).sum((1, 2)) / l
    assert overlaps.mean() == pytest.approx(k / side, rel=0.02)
    p = np.array([span_p(value, k, l, side) for value in overlaps])
    for level in (0.05, 0.01):
        error = (level * (1 - level) / len(p)) ** 0.5
        assert abs((p <= level).mean() - level) < 3.5 * error
    angles = np.degrees(np.arccos(np.clip(np.linalg.svd(spans[:400], compute_uv=False), 0, 1)))
    band = random_angles(k, l, side)
    assert np.abs(np.median(angles, axis=0) - band[1]).max() < 0.35 * (band[2] - band[0]).max()


def test_a_side_of_known_angles():
    theta = np.array([0.2, 1.1])
    W = np.eye(20)[:, :4]
    D = np.zeros((20, 2))
    D[0, 0], D[10, 0] = np.cos(theta[0]), np.sin(theta[0])
    D[2, 1], D[11, 1] = np.cos(theta[1]), np.sin(theta[1])
    side = side_overlap(W, D)
    assert side.overlap == pytest.approx((np.cos(theta) ** 2).mean())
    np.testing.assert_allclose(side.angles, np.degrees(theta))
    assert side.null == 0.2
    assert side.matrix.shape == (4, 2)
    assert side_overlap(W, W).p < 1e-12
    assert span_p(1.0, 4, 4, 4) == 1.0


# ------------------------------------------------------------------------------------------------------------ factors


def factors(h, d, r, seed=0):
    rng = np.random.default_rng(seed)
    return Factors(torch.from_numpy(rng.standard_normal((r, d))), torch.from_numpy(rng.standard_normal((h, r))))


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), h=st.integers(2, 30), d=st.integers(2, 30), r=st.integers(1, 8))
def test_factors_have_the_triplets_of_their_product(seed, h, d, r):
    low = factors(h, d, r, seed)
    dense = (low.B @ low.A).numpy()
    found = low.triplets()
    np.testing.assert_allclose((found.U * found.S) @ found.V.T, dense, atol=1e-9)
    values = np.linalg.svd(dense, compute_uv=False) ** 2
    np.testing.assert_allclose(found.spectrum(min(h, d))[::-1], values, rtol=1e-8, atol=1e-10)
    assert len(found.S) == min(h, d, r)


def test_sums_of_updates_are_updates():
    one, other = factors(20, 30, 3), factors(20, 30, 4, seed=1)
    both = stacked([one, other], [1.0, -1.0])
    np.testing.assert_allclose(both.B @ both.A, one.B @ one.A - other.B @ other.A, atol=1e-12)
    assert both.rank == 7
    assert len(stacked([one, one], [1.0, -1.0]).triplets().S) == 0
    assert stacked([]) is None


def test_resampled_factors_keep_their_entries_and_their_rank():
    low = factors(40, 50, 5)
    flips = factor_replicas(low, "signflip", 3, 0, "layer")
    for copy in flips:
        assert torch.equal(copy.A.abs(), low.A.abs())
        assert torch.equal(copy.B.abs(), low.B.abs())
        assert len(copy.triplets().S) == 5
    assert not torch.equal(flips[0].A, flips[1].A)
    shuffled = factor_replicas(low, "shuffle", 1, 0, "layer")[0]
    assert torch.equal(shuffled.A.flatten().sort().values, low.A.flatten().sort().values)
    again = factor_replicas(low, "signflip", 1, 0, "layer")[0]
    assert torch.equal(again.A, flips[0].A)
    rank_one = factors(40, 50, 1)
    sizes = [float(copy.triplets().S[0]) for copy in factor_replicas(rank_one, "signflip", 2, 0, "x")]
    assert sizes == pytest.approx([float(rank_one.triplets().S[0])] * 2)


def test_adapters_scale_as_they_say():
    A, B = torch.randn(4, 30), torch.randn(20, 4)
    (pair,), _ = matrices(open_source({"q.lora_A.weight": A, "q.lora_B.weight": B}).refs)
    assert Adapter({}).scale(pair, "q") is None
    assert Adapter({"lora_alpha": 8}).scale(pair, "q") == 2.0
    assert Adapter({"lora_alpha": 8, "use_rslora": True}).scale(pair, "q") == 4.0
    assert Adapter({"lora_alpha": 8, "alpha_pattern": {"q": 16}}).scale(pair, "h.0.q") == 4.0
    assert Adapter({"lora_alpha": 8, "alpha_pattern": {r"h\.\d+\.q": 16}}).scale(pair, "x.h.0.q") == 4.0
    assert Adapter({"lora_alpha": 8, "alpha_pattern": {"qq": 16, "[": 4}}).scale(pair, "h.0.q") == 2.0
    assert Adapter({"lora_alpha": 8}, lora_alpha=2.0).scale(pair, "q") == 0.5
    with pytest.raises(UnsupportedFormat, match="IA3"):
        Adapter({"peft_type": "IA3"})
    with pytest.raises(BadOption, match="number"):
        Adapter({"lora_alpha": "much"})


# ------------------------------------------------------------------------------------------------ singular directions


class Streamed:
    """A matrix that is only handed out three rows at a time."""

    def __init__(self, W):
        self.W, self.shape = W, tuple(W.shape)

    def blocks(self, max_bytes):
        yield from self.W.split(3)


@pytest.mark.parametrize(("h", "d"), [(40, 25), (25, 40), (30, 30)])
@pytest.mark.parametrize("streamed", [False, True])
def test_triplets_are_those_of_lapack(h, d, streamed):
    W = torch.from_numpy(gaussian(h, d, seed=h))
    source = Streamed(W) if streamed else W
    short = short_side(source)
    found = triplets(source, short, 6)
    U, S, Vh = np.linalg.svd(W.double().numpy(), full_matrices=False)
    np.testing.assert_allclose(short.evals[::-1], S**2, rtol=1e-10)
    np.testing.assert_allclose(found.S, S[:6], rtol=1e-10)
    np.testing.assert_allclose(np.abs((found.U.numpy() * U[:, :6]).sum(0)), 1.0, atol=1e-9)
    np.testing.assert_allclose(np.abs((found.V.numpy() * Vh[:6].T).sum(0)), 1.0, atol=1e-9)
    np.testing.assert_allclose((found.U.T @ W.double() @ found.V).diagonal(), S[:6], rtol=1e-9)  # signs belong together
    V, U = torch.randn(d, 3).double(), torch.randn(h, 2).double()
    np.testing.assert_allclose(product(source, V), W.double() @ V, atol=1e-10)
    np.testing.assert_allclose(transposed_product(source, U), W.double().T @ U, atol=1e-10)


def test_directions_lost_in_rounding_are_left_out():
    low = factors(40, 30, 3)
    W = low.B @ low.A
    assert len(triplets(W, short_side(W), 10).S) == 3
    assert len(triplets(torch.zeros(20, 10), short_side(torch.zeros(20, 10)), 3).S) == 0


@pytest.mark.parametrize("shape", [(300, 400), (400, 300), (60, 50)])
def test_leading_triplets_by_lanczos_are_those_of_the_whole_spectrum(shape):
    W = torch.from_numpy(gaussian(*shape))
    found, exact = leading(W, 8), triplets(W, short_side(W), 8)
    np.testing.assert_allclose(found.S, exact.S, rtol=1e-5)
    assert side_overlap(exact.U, found.U).overlap > 0.999
    assert side_overlap(exact.V, found.V).overlap > 0.999
    assert len(leading(torch.zeros(300, 300), 4).S) == 0


def test_a_difference_is_handed_out_in_equal_blocks():
    W, T = torch.randn(50, 20), torch.randn(50, 20).bfloat16()
    change = Difference(Streamed(W), LayerMatrixOf(T))
    assert torch.equal(torch.cat(list(change.blocks(1 << 20))), T.float() - W)
    assert frobenius(change) == pytest.approx(float((T.float() - W).double().norm()))


def LayerMatrixOf(W: torch.Tensor) -> LayerMatrix:
    (found,), _ = matrices(open_source({"w": W}).refs)
    return found


@pytest.mark.parametrize("form", ["held", "streamed", "triplets"])
def test_energies_by_dense_projection(form):
    W = torch.from_numpy(gaussian(40, 30))
    low = factors(40, 30, 4)
    D = (low.B @ low.A).double()
    spikes = triplets(W, short_side(W), 5)
    P, Q = spikes.U @ spikes.U.T, spikes.V @ spikes.V.T
    total = float(D.square().sum())
    update = {"held": D, "streamed": Streamed(D), "triplets": low.triplets()}[form]
    found = energy(update, spikes)
    rest = D - P @ D - D @ Q + P @ D @ Q
    assert found.spikes == pytest.approx(float((P @ D @ Q).square().sum()) / total, abs=1e-9)
    assert found.bulk == pytest.approx(float(rest.square().sum()) / total, abs=1e-9)
    assert found.spikes_null == pytest.approx(25 / 1200)
    assert found.bulk_null == pytest.approx((35 / 40) * (25 / 30))
    nothing = energy(update, spikes.first(0))
    assert (nothing.spikes, nothing.bulk) == (0.0, pytest.approx(1.0))


def test_counts_beyond_copies():
    evals = np.array([0.0, 1.0, 2.0, 5.0, 9.0])
    draws = {"signflip": np.linspace(2, 3, 19), "shuffle": np.linspace(3, 4, 19)}
    found = beyond(evals, draws)
    assert (found.n, found.p_rank) == (2, 0.05)
    assert found.p < 0.01
    assert found.edge == pytest.approx(4, rel=1e-4)
    assert beyond(evals, draws, edges=(6.0, 5.5)).n == 1
    few = beyond(evals, {"signflip": np.array([1.0, 2.5])})
    assert (few.n, few.p, few.p_rank) == (2, None, None)
    assert beyond(evals, {}).n is None
