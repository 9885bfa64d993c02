"""The network computes what its literal form says, keeps its parts apart, and never sees the arm that a row was given."""

from __future__ import annotations

import inspect

import pytest
import torch
from tests.effects.networks import architecture, batch, literal_attention, network
from torch.nn import functional

from querist.effects.encoder import embedding_width
from querist.effects.network._architecture import Architecture, preset_options
from querist.effects.network._net import Network
from querist.effects.network._treatments import Branch, Interaction
from querist.errors import BadOption

EXPERTS = ("mlp", "ft", "resnet1d")


# ------------------------------------------------------------------------------------------------------ the interaction


@pytest.mark.parametrize(("query", "r", "project", "size"), [(16, 1, True, 6), (1, 5, False, 6), (16, 1, True, 33)])
def test_folded_interaction_is_plain_attention(query, r, project, size):
    torch.manual_seed(0)
    mixer = Interaction(query, 16, 32, 4, project=project).double()
    tokens, queries = torch.randn(3, size, 16).double(), torch.randn(4, r, query).double()
    with torch.no_grad():
        torch.testing.assert_close(mixer(tokens, queries), literal_attention(mixer, tokens, queries))


def test_interaction_agrees_with_torch():
    torch.manual_seed(0)
    mixer = Interaction(16, 16, 16, 4).double()
    tokens, queries = torch.randn(5, 6, 16).double(), torch.randn(3, 1, 16).double()
    expected, shares = functional.multi_head_attention_forward(
        queries.expand(3, 5, 16),
        tokens.transpose(0, 1),
        tokens.transpose(0, 1),
        16,
        4,
        None,
        torch.cat([mixer.query.bias, torch.zeros(16).double(), mixer.value.bias]),
        None,
        None,
        False,
        0.0,
        mixer.output.weight,
        mixer.output.bias,
        use_separate_proj_weight=True,
        q_proj_weight=mixer.query.weight,
        k_proj_weight=mixer.key.weight,
        v_proj_weight=mixer.value.weight,
    )
    torch.testing.assert_close(mixer(tokens, queries)[:, :, 0], expected.transpose(0, 1))
    own = mixer.weights(tokens, queries).unflatten(2, (3, 4)).mean(3)
    torch.testing.assert_close(own.transpose(1, 2), shares)


@pytest.mark.parametrize(
    "options",
    [{}, {"enhancer": False}, {"interaction": False}, {"project": False}, {"query_tokens": 5}, {"latents": (2, 1, 1)}],
)
def test_a_branch_with_folded_layers_is_its_layers_in_a_row(options):
    branch = network(**options).secondary
    latents = options.get("latents", (1, 1))
    tokens = torch.randn(4, len(latents), 6, 16).double()
    queries = torch.randn(3, options.get("query_tokens", 16)).double()
    of = torch.repeat_interleave(torch.arange(len(latents)), torch.tensor(latents))
    flat, asked = branch.ready(tokens.flatten(0, 1), queries)
    z = branch.mixer(flat, asked)
    z = z if branch.enhancer is None else branch.enhancer(z)
    z = z.mean(2).unflatten(0, (4, len(latents)))
    expected = torch.stack([z[:, k] @ branch.weight[i] + branch.bias[i] for i, k in enumerate(of.tolist())], dim=2)
    given = None if sum(latents) == len(latents) else of
    torch.testing.assert_close(branch(tokens, queries, given), expected)


def test_arms_taken_in_runs_give_the_same(monkeypatch):
    net = network(arms=7).eval()
    with torch.no_grad():
        whole = net(*batch())
        monkeypatch.setattr("querist.effects.network._treatments.BOUND", 7 * 2 * 4 * 16 * 2)
        assert net.secondary._run(14, 16, 7) == 2
        torch.testing.assert_close(net(*batch()), whole)


# ----------------------------------------------------------------------------------------------------------- experts


@pytest.mark.parametrize("expert", EXPERTS)
def test_stacked_experts_are_single_experts_side_by_side(expert):
    whole = network(expert=expert, n_experts=3, n_heads=4).eval()
    inputs = whole.encoder(*batch())
    with torch.no_grad():
        together = whole.experts(inputs)
        for e in range(3):
            one = network(expert=expert, n_experts=1).eval()
            for (name, own), (other, many) in zip(
                one.experts.named_parameters(), whole.experts.named_parameters(), strict=True
            ):
                assert name == other
                size = len(many) // 3
                own.copy_(many[e * size : (e + 1) * size])
            torch.testing.assert_close(one.experts(inputs)[:, 0], together[:, e])


@pytest.mark.parametrize("expert", EXPERTS)
def test_every_expert_gives_tokens_for_narrow_and_wide_tables(expert):
    for numbers in (1, 2, 3, 17, 40):
        net = Network(architecture(numbers=numbers, levels=(), missing=(), expert=expert)).eval()
        x = torch.randn(3, numbers)
        out = net(x, torch.zeros(3, numbers, dtype=torch.bool), torch.zeros(3, 0, dtype=torch.long))
        assert out.shape == (3, 4, 2)
        assert out.isfinite().all()


def test_batch_norm_of_one_expert_is_its_own():
    net = network(expert="resnet1d", norm="batch", n_experts=2).train()
    net(*batch(32))
    assert net.experts.norm.running_mean.shape == (32,)


# ---------------------------------------------------------------------------------------------------------- encoding


def test_a_missing_number_counts_by_its_flag_alone():
    net = network().eval()
    numbers, missing, codes = batch()
    missing[:, 1] = True
    other = numbers.clone()
    other[:, 1] = float("nan")
    with torch.no_grad():
        torch.testing.assert_close(net(numbers, missing, codes), net(other, missing, codes))
        there = missing.clone()
        there[:, 1] = False
        numbers[:, 1] = 0
        assert not torch.allclose(net(numbers, there, codes), net(numbers, missing, codes))


def test_unknown_levels_are_trained_at_their_share_and_never_met_in_eval():
    net = network(unknown=0.3)
    codes = torch.full((4000, 2), 3)
    codes[:1000] = 0
    numbers = torch.zeros(4000, 12).double()
    torch.manual_seed(0)
    seen = net.train().encoder(numbers, numbers > 1, codes).codes
    assert (seen[:1000] == 0).all()
    assert 0.27 < (seen[1000:] == 1).double().mean() < 0.33
    assert ((seen[1000:] == 1) | (seen[1000:] == 3)).all()
    assert (net.eval().encoder(numbers, numbers > 1, codes).codes == codes).all()


def test_width_of_an_embedding():
    assert [embedding_width(levels) for levels in (2, 5, 10, 1000, 100_000)] == [3, 4, 6, 50, 50]


# ------------------------------------------------------------------------------------------------------------- parts


@pytest.mark.parametrize("options", [{}, {"tier_weights": (0.0, 1.0, 0.0), "tier": "reference"}, {"latents": (2, 1)}])
def test_increments_cancel_and_parts_add_up(options):
    net = network(**options).eval()
    with torch.no_grad():
        natural, base, own = net.parts(net.tokens(*batch()))
        response = net(*batch())
    w = torch.tensor(net.architecture.tier_weights).double()
    assert torch.einsum("nml,m->nl", own, w).abs().max() < 1e-12
    torch.testing.assert_close(response[:, 0], natural)
    torch.testing.assert_close(response[:, 1:], (natural + base)[:, None] + own)
    if options.get("tier") == "reference":
        assert own[:, 1].abs().max() == 0


def test_one_arm_has_no_increments_and_no_weights_for_them():
    net = network(arms=1)
    parts = net.parts(net.tokens(*batch()))
    assert (parts.increments == 0).all()
    assert not any("secondary" in name or "arms" in name for name, _ in net.named_parameters())


def test_flat_heads_have_no_base():
    net = network(tier="none")
    parts = net.parts(net.tokens(*batch()))
    assert (parts.base == 0).all()
    assert parts.increments.mean(1).abs().max() > 1e-3


def test_the_natural_part_learns_from_control_alone():
    arm = torch.tensor([0, 1, 2, 3, 1, 0, 2])
    for detach, learns in ((True, False), (False, True)):
        net = network(detach_natural=detach)
        eta, _ = net.observed(net.tokens(*batch()), arm)
        (eta[arm > 0] ** 2).sum().backward()
        grad = net.natural_weight.grad
        assert (grad is not None and bool(grad.abs().max() > 0)) == learns
    net = network()
    eta, _ = net.observed(net.tokens(*batch()), arm)
    (eta[arm == 0] ** 2).sum().backward()
    assert net.natural_weight.grad.abs().max() > 0
    assert net.base.weight.grad.abs().max() == 0


def test_latents_of_the_arm_given_are_those_of_the_counterfactual_pass():
    net = network(latents=(1, 2)).eval()
    arm = torch.tensor([0, 1, 2, 3, 1, 0, 2])
    with torch.no_grad():
        eta, _ = net.observed(net.tokens(*batch()), arm)
        torch.testing.assert_close(eta, net(*batch())[torch.arange(7), arm])


def test_no_forward_pass_takes_the_arm():
    assert list(inspect.signature(Network.forward).parameters) == ["self", "numbers", "missing", "codes"]


@pytest.mark.parametrize("expert", EXPERTS)
def test_a_row_is_answered_alone(expert):
    net = network(expert=expert, norm="layer").eval()
    numbers, missing, codes = batch(9)
    with torch.no_grad():
        whole = net(numbers, missing, codes)
        alone = torch.cat([net(numbers[i : i + 1], missing[i : i + 1], codes[i : i + 1]) for i in range(9)])
    torch.testing.assert_close(alone, whole)


def test_attention_is_a_share_of_tokens():
    net = network(expert="ft").eval()
    shares = net.attention(*batch())
    assert shares.shape == (7, 2, 3, 14)
    torch.testing.assert_close(shares.sum(-1), torch.ones(7, 2, 3).double())
    assert (shares > 0).all()


# -------------------------------------------------------------------------------------------------------------- size


def test_the_small_network_has_as_many_parameters_as_were_foreseen():
    plain = {"numbers": 12, "levels": (), "missing": (), "arms": 3, "latents": (1, 1), "tier_weights": (1 / 3,) * 3}
    small = Network(Architecture(**plain, **preset_options("small")))
    count = sum(one.numel() for one in small.parameters())
    assert 23_000 < count < 24_000


def test_an_arm_more_is_a_row_of_embeddings_more():
    three, four = network(), network(arms=4)
    sizes = [{name: one.shape for name, one in net.named_parameters()} for net in (three, four)]
    changed = {name for name in sizes[0] if sizes[0][name] != sizes[1][name]}
    assert sizes[0].keys() == sizes[1].keys()
    assert changed == {"arms.weight"}
    assert sizes[1]["arms.weight"] == (4, 16)


@pytest.mark.parametrize(
    ("options", "gone"),
    [({"interaction": False}, "mixer.key"), ({"enhancer": False}, "enhancer"), ({"tier": "none"}, "base.weight")],
)
def test_ablations_take_out_what_they_name(options, gone):
    full, cut = network(), network(**options)
    assert any(gone in name for name, _ in full.named_parameters())
    assert not any(gone in name for name, _ in cut.named_parameters())
    assert cut(*batch()).shape == (7, 4, 2)


def test_the_paper_preset_asks_with_sixteen_tokens_of_one_number():
    options = {key: value for key, value in preset_options("paper").items() if key != "link"}
    net = Network(architecture(numbers=40, levels=(), missing=(), **{"d_model": 128, **options}))
    assert net.arms.weight.shape == (3, 16)
    mixer = net.secondary.mixer
    assert (mixer.query.in_features, mixer.width, mixer.heads, mixer.output) == (1, 256, 4, None)
    tokens, queries = net.secondary.ready(torch.randn(2, 3, 128), net.arms.weight)
    torch.testing.assert_close(queries.flatten(1).norm(dim=1), torch.ones(3))
    torch.testing.assert_close(tokens.norm(dim=2), torch.ones(2, 3))


def test_an_architecture_survives_json_and_refuses_what_cannot_be():
    made = architecture(latents=(2, 1))
    assert Architecture.from_json(made.as_json()) == made
    for options in ({"expert": "cnn"}, {"n_heads": 3}, {"n_experts": 0}, {"tier_weights": (1.0,)}, {"dropout": 1.0}):
        with pytest.raises(BadOption):
            architecture(**options)
    with pytest.raises(BadOption, match="hiden"):
        Architecture.from_json({**made.as_json(), "hiden": 3})
    with pytest.raises(BadOption, match="preset"):
        preset_options("large")


def test_gradients_reach_every_parameter():
    for options in ({}, {"expert": "ft"}, {"expert": "resnet1d"}, {"interaction": False}):
        net = network(**options)
        eta, _ = net.observed(net.tokens(*batch(64)), torch.arange(64) % 4)
        (eta**2).sum().backward()
        still = {name for name, one in net.named_parameters() if one.grad is None or not one.grad.abs().max() > 0}
        # A mean over arms of queries that differ by a constant is taken out by centring.
        assert still <= {"secondary.bias"}, still
    assert isinstance(net.secondary, Branch)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "options",
    [
        {"latents": (2, 1)},
        pytest.param({"expert": "ft"}, marks=SLOW),
        pytest.param({"expert": "resnet1d"}, marks=SLOW),
        pytest.param({"tier": "none"}, marks=SLOW),
        pytest.param({"interaction": False, "enhancer": False}, marks=SLOW),
        pytest.param({"expert": "resnet1d", "norm": "batch", "query_tokens": 16, "project": False}, marks=SLOW),
    ],
)
def test_a_network_is_exported_for_any_number_of_rows(options):
    net = network(**options).eval().requires_grad_(False)
    rows = torch.export.Dim("rows", min=2, max=1 << 20)
    with torch.no_grad():
        program = torch.export.export(net, batch(6), dynamic_shapes=({0: rows}, {0: rows}, {0: rows}))
    torch.testing.assert_close(program.module()(*batch(11)), net(*batch(11)))
