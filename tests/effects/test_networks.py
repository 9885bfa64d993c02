"""Networks of the baselines, the links they share, and the trainer."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from querist.effects.baselines import (
    M3TN,
    PLE,
    CFRNet,
    DragonNet,
    EFINLike,
    FlexTENet,
    MMoE,
    TARNet,
    TLearner,
)
from querist.effects.baselines._layers import Shape
from querist.effects.design import balance_weights
from querist.effects.encoder import Encoder, Widths
from querist.effects.estimator import Estimator
from querist.effects.links import Link, Links, link_of
from querist.effects.netrows import tensors_of
from querist.effects.nettrain import batch_rows, links_for, made, responses, train, validation_rows
from querist.effects.simulation import SETTINGS, simulate
from querist.errors import BadOption, TooFewRows, UnknownName

NETWORKS = (TARNet, CFRNet, DragonNet, M3TN, EFINLike, FlexTENet, MMoE, PLE)
DATA = simulate(400, seed=7, **SETTINGS[3])
MIXED = np.column_stack(
    [DATA.Y[:, 0] > 0, np.rint(np.exp(DATA.Y[:, 1] / 2)), np.where(DATA.Y[:, 0] > 0.5, np.exp(DATA.Y[:, 1]), 0)]
)
MIXED[::7, 1] = np.nan
KINDS = {"bought": "binary", "visits": "count", "spend": "hurdle"}
QUICK = {"control": 0, "epochs": 2, "min_rows": 5}


class Keeps(TLearner):
    """Keeps the sample that `_fit` is given."""

    def _fit(self, sample, hooks):
        self.sample = sample


def sample_of(X=DATA.X, arm=DATA.arm, Y=DATA.Y, outcomes=None, **given):
    return Keeps(control=0, min_rows=1, min_events=1, outcomes=outcomes).fit(X, arm, Y, **given).sample


def close(a, b, tolerance=1e-5):
    assert a == pytest.approx(b, abs=tolerance, nan_ok=True)


# ----------------------------------------------------------------------------------------------------- the eight nets


@pytest.mark.parametrize("kind", NETWORKS)
def test_every_network_answers_for_every_kind_of_outcome(kind):
    model = kind(outcomes=KINDS, **QUICK).fit(DATA.X, DATA.arm, MIXED)
    effects = model.predict_effects(DATA.X)
    assert effects.total.shape == (400, 3, 3)
    assert np.isfinite(effects.total).all()
    assert (effects.response[..., 0] > 0).all()
    assert (effects.response[..., 0] < 1).all()
    assert (effects.response[..., 1:] > 0).all()
    close(np.einsum("nmk,m->nk", effects.incremental, model.tier_weights_), 0, 1e-9)
    order = np.random.default_rng(0).permutation(400)[:50]
    close(model.predict(DATA.X[order]), effects.total[order])
    again = kind(outcomes=KINDS, **QUICK).fit(DATA.X, DATA.arm, MIXED)
    assert (again.predict(DATA.X) == effects.total).all()
    other = kind(outcomes=KINDS, random_state=1, **QUICK).fit(DATA.X, DATA.arm, MIXED)
    assert abs(other.predict(DATA.X) - effects.total).max() > 1e-4
    one = kind(**QUICK).fit(DATA.X[DATA.arm < 2], DATA.arm[DATA.arm < 2], DATA.Y[DATA.arm < 2])
    assert (one.predict_effects(DATA.X).incremental == 0).all()


@pytest.mark.parametrize("kind", NETWORKS)
def test_every_network_has_about_the_size_of_the_small_one(kind):
    """12 columns, 3 arms, 2 outcomes: 23,500 parameters; others by the number of inputs, as MTMT."""
    model = kind(**{**QUICK, "epochs": 1}).fit(DATA.X, DATA.arm, DATA.Y)
    assert model.parameters_ == pytest.approx(23_500, rel=0.1)
    for preset, budget in (("small", 23_400 + 136 * 38), (None, 1_663_000 + 1_032 * 38)):
        shape = Shape(Widths(50, (), ()), 1, (1, 2), 1)
        width = kind(preset=preset)._width_for(shape)
        net = kind()._net(shape._replace(width=width))
        assert sum(one.numel() for one in net.parameters()) == pytest.approx(budget, rel=0.12)
    assert kind(width=8, **QUICK).fit(DATA.X, DATA.arm, DATA.Y).shape_.width == 8


@pytest.mark.parametrize("kind", NETWORKS)
def test_every_network_learns(kind):
    """Hardly any noise, strong effects: far nearer to the truth than the average effect is."""
    data = simulate(1500, noise_sd=0.1, base_scale=0.5, increment_scale=1.0, seed=2)
    model = kind(control=0, epochs=12, lr=5e-3, batch_size=128).fit(data.X, data.arm, data.Y)
    found = model.predict_effects(data.X)
    spread = data.truth.total.std(axis=0).mean()
    assert np.sqrt(((found.total - data.truth.total) ** 2).mean()) < 0.75 * spread
    assert np.corrcoef(found.natural[:, 0], data.truth.natural[:, 0])[0, 1] > 0.75


def test_categories_missing_values_and_unknown_levels_go_through_all():
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "age": np.where(rng.random(400) < 0.1, np.nan, DATA.X[:, 0]),
            "zone": [("a", "b", "c", None)[one] for one in rng.integers(0, 4, 400)],
            "new": rng.random(400) < 0.5,
        }
    )
    strange = pl.DataFrame({"new": [True, None], "zone": ["z", None], "more": [1, 2], "age": [None, 1.0]})
    for kind in NETWORKS:
        model = kind(**QUICK).fit(frame, DATA.arm, DATA.Y)
        assert np.isfinite(model.predict(strange)).all()
        assert set(model.features_) == {"age", "new", "zone"}


def test_weights_count_by_their_ratios_alone():
    weight = np.random.default_rng(0).uniform(0.5, 2, 400)
    one, two = (MMoE(**QUICK).fit(DATA.X, DATA.arm, DATA.Y, sample_weight=c * weight).predict(DATA.X) for c in (1, 8))
    assert (one == two).all()
    assert abs(one - MMoE(**QUICK).fit(DATA.X, DATA.arm, DATA.Y).predict(DATA.X)).max() > 1e-5


def test_ensembles_spread():
    model = TARNet(ensemble=2, **QUICK).fit(DATA.X, DATA.arm, DATA.Y)
    effects = model.predict_effects(DATA.X)
    both = [responses(net, model.links_, model.columns_.encode(DATA.X)) for net in model.nets_]
    totals = np.stack([one[:, 1:] - one[:, :1] for one in both])
    close(effects.total, totals.mean(axis=0), 1e-9)
    close(effects.spread, totals.std(axis=0, ddof=1), 1e-9)
    assert len(model.histories_) == 2


def test_penalties_are_seen_in_training_and_not_in_validation():
    terms = {
        CFRNet: "balance of arms",
        DragonNet: "propensity of arms",
        FlexTENet: "overlap of layers",
    }
    for kind, term in terms.items():
        history = kind(**QUICK).fit(DATA.X, DATA.arm, DATA.Y).histories_[0]
        assert f"train_{term}" in history.columns
        assert f"valid_{term}" not in history.columns
        assert "valid_total" in history.columns
    assert "train_targeted y0" in DragonNet(**QUICK).fit(DATA.X, DATA.arm, DATA.Y).histories_[0].columns


def test_balance_pulls_representations_together():
    rng = np.random.default_rng(0)
    arm = (rng.random(800) < 1 / (1 + np.exp(-2 * rng.normal(size=800)))).astype(int)
    X = np.column_stack([arm * 2 + rng.normal(size=800), rng.normal(size=800)])
    gaps = []
    for alpha in (0.0, 5.0):
        model = CFRNet(balance="mmd-linear", alpha=alpha, control=0, epochs=10, lr=5e-3)
        model.fit(X, arm, X[:, 0] + rng.normal(size=800) * 0.1)
        encoded = model.columns_.encode(X)
        with torch.no_grad():
            known = model.nets_[0].represent(
                torch.tensor(encoded.numbers), torch.tensor(encoded.missing), torch.tensor(encoded.codes)
            )
        gap = known[arm == 1].mean(0) - known[arm == 0].mean(0)
        gaps.append(float(gap.norm() / known.std(0).norm()))
    assert gaps[1] < 0.5 * gaps[0]


def test_options_out_of_range():
    for made_, what in (
        (TARNet(preset="large", control=0), "preset"),
        (TARNet(width=0, control=0), "width"),
        (TARNet(ensemble=0, control=0), "members"),
        (CFRNet(balance="far", control=0), "distance"),
        (CFRNet(alpha=-1.0, control=0), "alpha"),
        (DragonNet(targeted=-1.0, control=0), "negative"),
        (FlexTENet(orthogonal=-1.0, control=0), "orthogonal"),
        (TARNet(weighting="all", control=0), "weighting"),
        (TARNet(val_fraction=0.7, control=0), "val_fraction"),
        (TARNet(batch_size="many", control=0), "batch_size"),
        (TARNet(link="logit", control=0), "link"),
    ):
        with pytest.raises(BadOption, match=what):
            made_.fit(DATA.X, DATA.arm, DATA.Y)
    with pytest.raises(UnknownName, match="link"):
        TARNet(link={"z": "identity"}, control=0).fit(DATA.X, DATA.arm, DATA.Y)


# --------------------------------------------------------------------------------------------------------------- links


@pytest.mark.parametrize(
    ("kind", "link", "options"),
    [
        ("binary", "auto", {}),
        ("binary", "identity", {}),
        ("binary", "auto", {"class_weight": "balanced"}),
        ("binary", "auto", {"class_weight": 7.0}),
        ("continuous", "auto", {}),
        ("count", "auto", {}),
        ("hurdle", "auto", {}),
        ("hurdle", "auto", {"class_weight": "balanced"}),
    ],
)
def test_the_least_loss_is_at_the_weighted_mean(kind, link, options):
    """Every loss is a deviance of a canonical or mean-consistent family: with a free constant it is least at the mean."""
    rng = np.random.default_rng(3)
    y = {
        "binary": (rng.random(300) < 0.2).astype(float),
        "continuous": rng.normal(3, 2, 300),
        "count": rng.poisson(1.5, 300).astype(float),
        "hurdle": np.where(rng.random(300) < 0.4, rng.gamma(2.0, 3.0, 300), 0.0),
    }[kind]
    w = rng.uniform(0.2, 3, 300)
    codes = (np.arange(300) % 3 == 0).astype(int)
    links = Links([link_of(y, codes, kind, link, **options)])
    target = torch.tensor(links.targets(y[:, None]))
    latent = torch.zeros(1, sum(links.latents), dtype=torch.float64, requires_grad=True)
    weight = torch.tensor(w)
    control = np.average(y[codes == 0])
    if not options:  # before anything is learnt: what control shows
        assert links(latent).item() == pytest.approx(control, rel=1e-9)
    search = torch.optim.LBFGS(
        [latent], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure():
        search.zero_grad()
        loss = (weight[:, None] * links.loss(latent.expand(300, -1), target)).sum() / weight.sum()
        loss.backward()
        return loss

    search.step(closure)
    # Also where events count more: that is taken out of the odds again.
    assert links(latent).item() == pytest.approx(np.average(y, weights=w), rel=1e-5)


def test_squared_losses_count_in_units_of_control():
    y = np.column_stack([DATA.Y[:, 0], 1000 * DATA.Y[:, 0] + 5])
    links = links_for(sample_of(Y=y))
    assert links.links[1].scale == pytest.approx(1000 * links.links[0].scale)
    control = DATA.arm == 0
    assert links.links[0].scale == pytest.approx(DATA.Y[control, 0].std())
    targets = links.targets(y)
    close(targets[:, 0], targets[:, 1], 1e-9)
    close(targets[control].mean(axis=0), 0, 1e-9)


def test_winsorised_and_huber_losses():
    y = np.append(DATA.Y[:, 0], 1e6)
    codes = np.append(DATA.arm, 1)
    one = link_of(y, codes, "continuous", winsorise=0.95)
    assert one.high == pytest.approx(np.quantile(y, 0.95))
    links = Links([Link("identity", huber=1.0)])
    away = torch.tensor([[0.5], [3.0]], dtype=torch.float64)
    assert links.loss(away, torch.zeros(2, 1, dtype=torch.float64)).flatten().tolist() == pytest.approx([0.25, 5.0])


# ------------------------------------------------------------------------------------------------------------- trainer


class Flat(nn.Module):
    """A constant per arm."""

    def __init__(self, arms, latents):
        super().__init__()
        self.value = nn.Parameter(torch.zeros(arms, latents))

    def forward(self, numbers, missing, codes):
        return self.value.expand(len(numbers), *self.value.shape)


def test_each_arm_is_taught_by_its_own_rows_and_known_outcomes_alone():
    Y = DATA.Y.copy()
    Y[::3, 1] = np.nan
    sample = sample_of(Y=Y, sample_weight=(w := np.random.default_rng(0).uniform(0.5, 2, 400)))
    links = links_for(sample)
    net = Flat(4, 2)
    train(net, sample, links, epochs=200, lr=0.1, val_fraction=0, weight_decay=0, batch_size=400)
    found = responses(net, links, sample.encoded)[0]
    for m in range(4):
        for k in range(2):
            rows = (DATA.arm == m) & ~np.isnan(Y[:, k])
            assert found[m, k] == pytest.approx(np.average(Y[rows, k], weights=w[rows]), abs=0.01)


def test_weighting_by_propensities():
    e = simulate(400, seed=7, confounding=1.0, **SETTINGS[3]).propensity
    sample = sample_of(propensity=e)
    links = links_for(sample)
    for kind in ("ipw", "overlap"):
        weight = tensors_of(sample, links, kind)["weight"].numpy()
        assert weight[:, 0] == pytest.approx(balance_weights(e, DATA.arm, kind), rel=1e-5)


def test_validation_rows_keep_arms_outcomes_and_clusters():
    cluster = np.arange(400) // 2
    Y = np.column_stack([DATA.Y[:, 0] > 0, DATA.Y[:, 1]])
    sample = sample_of(Y=Y)
    held = validation_rows(sample, 0.1)
    for m in range(4):
        for level in (0, 1):
            rows = (DATA.arm == m) & (Y[:, 0] == level)
            assert abs(held[rows].sum() - rows.sum() / 10) <= 1
    whole = validation_rows(sample_of(Y=Y, cluster=cluster), 0.1)
    assert (whole[::2] == whole[1::2]).all()
    assert not validation_rows(sample, 0).any()


def test_batches_grow_with_the_table():
    sizes = {5_000: 128, 20_000: 512, 100_000: 4096, 60_000: 2048, 10: 128, 10_000_000: 4096}
    assert {n: batch_rows(n) for n in sizes} == sizes


def test_weights_of_networks_are_those_of_the_seed_and_leave_the_caller_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two, other = (made(lambda: nn.Linear(3, 3), seed, "x") for seed in (0, 0, 1))
    assert (torch.get_rng_state() == before).all()
    assert (one.weight == two.weight).all()
    assert not (one.weight == other.weight).any()


def test_outcome_weights_scale_a_loss():
    sample = sample_of()
    links = links_for(sample)
    plain, scaled = (
        train(Flat(4, 2), sample, links, epochs=1, outcome_weights=given).history["train_y1"][0]
        for given in (None, {"y1": 3.0})
    )
    assert scaled == pytest.approx(3 * plain, rel=0.05)


def test_nothing_to_learn_from():
    sample = sample_of()
    empty = sample.take(np.arange(400))
    empty.outcomes.observed[:] = False
    with pytest.raises(TooFewRows, match="outcome"):
        train(Flat(4, 2), empty, links_for(sample), epochs=1)


def test_unknown_levels_are_trained():
    torch.manual_seed(0)
    encoder = Encoder(1, (5,), (0,), unknown=0.5)
    codes = torch.full((2000, 1), 4)
    given = (torch.ones(2000, 1), torch.zeros(2000, 1, dtype=torch.bool), codes)
    assert encoder.width == encoder(*given).flat.shape[1]
    share = float((encoder(*given).codes == 1).double().mean())
    assert 0.4 < share < 0.6
    gone = torch.zeros(2000, 1, dtype=torch.long)
    assert (encoder(given[0], given[1], gone).codes == 0).all()
    assert (encoder.eval()(*given).codes == 4).all()
    assert (encoder(given[0], ~given[1], codes).flat[:, :2] == torch.tensor([0.0, 1.0])).all()


def test_widths_of_columns():
    frame = pl.DataFrame({"a": [1.0, None, 3.0], "b": [1, 2, 3], "c": ["x", "y", None]})
    from querist.sources.rows import open_rows

    assert Widths.of(open_rows(frame).columns()) == Widths(2, (4,), (0,))


def test_overlap_weights_see_who_could_not_have_had_another_arm():
    """People of one arm only, by their features, hardly count: clipped chances would give each of them a hundredth, and they are many."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 2))
    sure = np.arange(2000) < 1600
    x[sure, 0] -= 12
    arm = np.where(sure, 0, rng.integers(0, 2, 2000))
    held = []

    class Probe(Estimator):
        def _fit(self, sample, hooks):
            held.append(sample)

    Probe(control=0, propensity="estimate").fit(x, arm, x[:, 1])
    [sample] = held
    assert sample.propensity.min() >= 0.0099
    weight = tensors_of(sample, links_for(sample, "auto"), "overlap")["weight"][:, 0].numpy()
    assert sample.chances.min() < 0.005
    np.testing.assert_allclose(weight, balance_weights(sample.chances, arm, "overlap"), rtol=1e-5)
    assert weight[sure].mean() < 0.8 * balance_weights(sample.propensity, arm, "overlap")[sure].mean()
    assert sample.take(sure).chances.shape == (1600, 2)
