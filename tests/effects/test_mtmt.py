"""The estimator: its answers' properties, its options, and that a fit does not depend on how it is run."""

from __future__ import annotations

import pickle

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.base import clone

from querist import effects
from querist.effects.errors import ArmMissing, OutcomeKind
from querist.effects.network import MTMT
from querist.effects.network._design import Design
from querist.effects.reading import roles_of
from querist.effects.simulation import SETTINGS, simulate
from querist.errors import BadOption, BadValues
from querist.sources.rows import open_rows
from querist.statistics import stream
from querist.training import Hook, TrainState

QUICK = {"preset": "small", "epochs": 2, "patience": None}


def drawn(n=600, seed=0, **options):
    return simulate(n, seed=seed, **{**SETTINGS[1], **options})


def fitted(data=None, **options):
    data = drawn() if data is None else data
    return MTMT(control=0, **{**QUICK, **options}).fit(data.X, data.arm, data.Y)


@pytest.fixture(scope="module")
def model():
    return fitted()


# ------------------------------------------------------------------------------------------------------- properties


def test_parts_add_up_and_increments_cancel(model):
    found = model.predict_effects(drawn(50, 3).X)
    np.testing.assert_allclose(found.total, found.base[:, None] + found.incremental)
    np.testing.assert_allclose(found.response[:, 0], found.natural)
    assert np.abs(np.einsum("nmk,m->nk", found.incremental, model.tier_weights_)).max() < 1e-10
    np.testing.assert_allclose(model.predict(drawn(50, 3).X), found.total)
    shares = np.bincount(drawn().arm)[1:] / (drawn().arm > 0).sum()
    np.testing.assert_allclose(model.tier_weights_, shares)


def test_a_prediction_is_of_its_row_alone(model):
    X = drawn(40, 3).X
    whole = model.predict(X)
    np.testing.assert_allclose(model.predict(X[::-1])[::-1], whole, atol=1e-6)
    np.testing.assert_allclose(np.concatenate([model.predict(X[:1]), model.predict(X[1:])]), whole, atol=1e-6)


def test_columns_are_found_by_name(model):
    data, names = drawn(), [f"c{i}" for i in range(12)]
    frame = pl.DataFrame(data.X, schema=names)
    named = MTMT(control=0, **QUICK).fit(frame, data.arm, data.Y)
    expected = named.predict(frame)
    np.testing.assert_array_equal(named.predict(frame.select(names[::-1]).with_columns(other=pl.lit(1.0))), expected)
    again = MTMT(control=0, **QUICK).fit(frame.select(names[::-1]), data.arm, data.Y)
    np.testing.assert_array_equal(again.predict(frame), expected)


def test_no_prediction_takes_the_arm(model):
    with pytest.raises(TypeError):
        model.predict(drawn(5).X, drawn(5).arm)
    with pytest.raises(TypeError):
        model.predict_effects(drawn(5).X, arm=drawn(5).arm)


def test_other_names_of_arms_permute_the_answer():
    data = drawn(400)
    names = np.array(["none", "b", "c", "a"])
    one = MTMT(control=0, **QUICK).fit(data.X, data.arm, data.Y)
    two = MTMT(control="none", **QUICK).fit(data.X, names[data.arm], data.Y)
    assert two.arms_ == ["a", "b", "c"]
    np.testing.assert_allclose(two.predict(data.X), one.predict(data.X)[:, [2, 0, 1]], atol=1e-4)


def test_one_arm_has_no_increments():
    found = fitted(drawn(400, arms=1)).predict_effects(drawn(30, 5).X)
    assert (found.incremental == 0).all()
    np.testing.assert_array_equal(found.total[:, 0], found.base)


def test_weights_count_by_their_ratios_alone():
    data = drawn(400)
    weight = stream(0, "weights").random(400) + 0.5
    one, two = (MTMT(control=0, **QUICK).fit(data.X, data.arm, data.Y, sample_weight=w) for w in (weight, 4 * weight))
    np.testing.assert_allclose(one.predict(data.X), two.predict(data.X), atol=1e-5)
    assert np.abs(one.predict(data.X) - fitted(data).predict(data.X)).max() > 1e-4


def test_the_same_seed_gives_the_same_bits_and_leaves_the_callers_draws_alone(model):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    again = fitted()
    assert torch.equal(torch.random.get_rng_state(), before)
    X = drawn(20, 2).X
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert np.abs(fitted(random_state=1).predict(X) - model.predict(X)).max() > 1e-4


def test_a_reference_arm_has_no_increment():
    found = fitted(tier="reference", reference_arm=2).predict_effects(drawn(30, 5).X)
    assert np.abs(found.incremental[:, 1]).max() < 1e-12
    np.testing.assert_allclose(found.total[:, 1], found.base)


# ---------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    "options",
    [
        {"tier": "none"},
        {"interaction": False},
        {"enhancer": False},
        {"n_experts": 1},
        {"detach_natural": False},
        {"shrink": "flat"},
        {"shrink": "slope"},
        {"shrink": False, "folds": 1},
        {"folds": 3},
        {"balance": "wasserstein"},
        {"balance": "mmd", "balance_weight": 0.1},
        {"weighting": "ipw"},
        {"weighting": "overlap"},
        {"select": "rate"},
        {"expert": "ft"},
        {"expert": "resnet1d"},
        {"winsorise": 0.99, "huber": 1.345},
        {"propensity": "estimate"},
        {"outcome_weights": {"y0": 0.0}},
        {"val_fraction": 0.0, "batch_size": 100},
    ],
)
def test_every_option_changes_the_answer_and_keeps_the_parts_together(model, options):
    other = fitted(**options, **({"epochs": 1} if "expert" in options else {}))
    X = drawn(20, 2).X
    found = other.predict_effects(X)
    assert np.isfinite(found.total).all()
    assert np.abs(np.einsum("nmk,m->nk", found.incremental, other.tier_weights_)).max() < 1e-6
    assert np.abs(found.total - model.predict(X)).max() > 1e-7


def test_the_paper_preset_runs_in_one_process():
    data = drawn(260)
    made = MTMT(control=0, preset="paper", epochs=1, shrink=False, folds=1, n_experts=2).fit(data.X, data.arm, data.Y)
    assert made.architecture_.expert == "resnet1d"
    assert made.architecture_.norm == "batch"
    assert np.isfinite(made.predict(data.X)).all()


def test_what_is_asked_for_goes_before_the_preset():
    made = MTMT(preset="small", d_model=32, n_experts=2)
    assert made._sizes() == {
        "d_model": 32,
        "n_tokens": 4,
        "hidden": 32,
        "blocks": 1,
        "expert": "mlp",
        "n_experts": 2,
        "n_heads": 4,
        "link": "auto",
    }
    assert MTMT(preset="paper")._sizes()["link"] == "identity"
    assert MTMT(preset="paper", link="auto")._sizes()["expert"] == "resnet1d"


@pytest.mark.parametrize(
    "options",
    [
        {"shrink": "hard"},
        {"shrink": True},
        {"folds": 1},
        {"tier": "median"},
        {"balance": "kl"},
        {"select": "qini"},
        {"weighting": "both"},
        {"link": "probit"},
        {"preset": "large"},
        {"ensemble": 0},
        {"select": "rate", "val_fraction": 0.0},
    ],
)
def test_wrong_options_are_refused_with_what_is_allowed(options):
    with pytest.raises(BadOption, match=r"Allowed|Give"):
        fitted(drawn(200), **options)


def test_members_of_an_ensemble_have_a_spread():
    found = fitted(ensemble=2).predict_effects(drawn(30, 5).X)
    assert found.spread.shape == found.total.shape
    assert (found.spread > 0).all()


def test_hooks_see_every_network_and_tables_tell_of_them(model):
    class Count(Hook):
        seen = 0

        def on_epoch(self, state: TrainState) -> None:
            Count.seen += 1

    data = drawn()
    made = MTMT(control=0, **QUICK).fit(data.X, data.arm, data.Y, hooks=[Count()])
    assert Count.seen == 4
    np.testing.assert_array_equal(made.predict(data.X), model.predict(data.X))
    wanted = {
        "epoch",
        "lr",
        "train_total",
        "valid_total",
        "fold",
        "gradient_norm",
        "gate_entropy",
        "increment_over_base",
    }
    assert wanted <= set(made.history_.columns)
    assert made.history_.height == 4
    assert made.shrinkage_["part"].to_list() == ["arm means", "increments", "base"]
    assert made.parameters_ == sum(p.numel() for p in made.networks_[1][0].parameters())


def test_it_is_a_scikit_learn_estimator(model):
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "arms_")
    X = drawn(20, 2).X
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_a_model_in_a_folder_answers_as_before(tmp_path):
    X, arm, Y, kinds = mixed(400)
    for options in ({}, {"shrink": "slope", "ensemble": 2}, {"shrink": False, "folds": 1, "tier": "none"}):
        made = MTMT(control=0, outcomes=kinds, **QUICK, **options).fit(X, arm, Y)
        made.save(tmp_path / "model")
        torch.manual_seed(3)
        before = torch.random.get_rng_state()
        again = effects.load(tmp_path / "model")
        assert torch.equal(torch.random.get_rng_state(), before)
        np.testing.assert_array_equal(again.predict(X), made.predict(X))
        assert again.shrinkage_.equals(made.shrinkage_)
        assert again.history_.equals(made.history_)
        assert again.trainings_.equals(made.trainings_)
        assert again.architecture_ == made.architecture_


def test_whole_clusters_stay_in_a_fold():
    data = drawn(400)
    cluster = np.arange(400) // 4
    made = MTMT(control=0, **QUICK).fit(data.X, data.arm, data.Y, cluster=cluster)
    assert all(len(set(made.folds_[cluster == g])) == 1 for g in range(100))


# --------------------------------------------------------------------------------------------------- outcomes' kinds


def mixed(n=800, seed=0):
    """One outcome of each kind, with effects that are strong enough to be seen."""
    rng = stream(seed, "mixed")
    X, arm = rng.standard_normal((n, 4)), rng.integers(0, 3, n)
    eta = 0.7 * X[:, 0] + 0.8 * (arm > 0) + 0.4 * (arm == 2)
    binary = (rng.random(n) < 1 / (1 + np.exp(1 - eta))).astype(float)
    count = rng.poisson(np.exp(0.3 + eta / 2)).astype(float)
    hurdle = np.where(rng.random(n) < 1 / (1 + np.exp(0.5 - eta)), rng.gamma(4, np.exp(2 + eta / 3) / 4), 0.0)
    Y = np.column_stack([binary, eta * 20 + 5 * rng.standard_normal(n), count, hurdle])
    kinds = dict(zip(("y0", "y1", "y2", "y3"), ("binary", "continuous", "count", "hurdle"), strict=True))
    return X, arm, Y, kinds


def test_every_kind_of_outcome_is_learnt_on_its_own_scale():
    X, arm, Y, kinds = mixed(1600)
    options = {"control": 0, "outcomes": kinds, "preset": "small", "epochs": 8, "lr": 5e-3}
    found = MTMT(**options).fit(X, arm, Y).predict_effects(X)
    truth = np.array([[Y[arm == m, k].mean() - Y[arm == 0, k].mean() for k in range(4)] for m in (1, 2)])
    sd = Y[arm == 0].std(0)
    assert (np.abs(found.total.mean(0) - truth) / sd).max() < 0.15
    for k in range(4):
        assert np.corrcoef(found.natural[:, k], X[:, 0])[0, 1] > 0.8
    raw = MTMT(**options, shrink=False, folds=1).fit(X, arm, Y).predict_effects(X)
    assert ((raw.response[:, :, 0] > 0) & (raw.response[:, :, 0] < 1)).all()
    assert (raw.response[:, :, 2:] > 0).all()


def test_weights_of_events_are_taken_out_of_the_prediction():
    rng = stream(3, "rare")
    n = 3000
    X, arm = rng.standard_normal((n, 3)), rng.integers(0, 2, n)
    y = (rng.random(n) < 0.05 + 0.03 * arm).astype(float)
    options = {"control": 0, "preset": "small", "epochs": 15, "shrink": False, "folds": 1, "lr": 3e-3}
    plain, weighted = (MTMT(**options, class_weight=w).fit(X, arm, y) for w in (None, "balanced"))
    assert weighted.links_.links[0].events > 10
    for model in (plain, weighted):
        response = model.predict_effects(X).response[:, :, 0].mean(0)
        np.testing.assert_allclose(response, [y[arm == m].mean() for m in (0, 1)], atol=0.015)


def test_a_missing_outcome_is_left_out_of_that_outcome_alone():
    data = drawn(600)
    Y = data.Y.copy()
    Y[::2, 1] = np.nan
    other = Y.copy()
    options = {"control": 0, **QUICK}
    one = MTMT(**options).fit(data.X, data.arm, Y)
    other[1::2, 0] = np.nan
    assert np.isfinite(one.predict(data.X)).all()
    assert np.isfinite(MTMT(**options).fit(data.X, data.arm, other).predict(data.X)).all()


def test_an_arm_that_carries_no_effect_is_null_and_the_rest_is_not():
    data = drawn(600)
    keep = (data.arm != 3) | (np.cumsum(data.arm == 3) <= 10)
    made = MTMT(control=0, **QUICK).fit(data.X[keep], data.arm[keep], data.Y[keep])
    found = made.predict_effects(data.X[:9])
    assert {one.arm for one in made.not_estimable_} == {3}
    assert np.isnan(found.total[:, 2]).all()
    assert np.isfinite(found.total[:, :2]).all()
    assert np.isfinite(found.base).all()


def test_categories_and_missing_values_are_features_like_others():
    data = drawn(600)
    rng = stream(1, "levels")
    level = np.array(["low", "mid", "high"])[rng.integers(0, 3, 600)]
    X = {f"x{i}": np.where(rng.random(600) < 0.1, np.nan, data.X[:, i]) for i in range(4)} | {"level": level}
    frame = pl.DataFrame(X)
    made = MTMT(control=0, **QUICK).fit(frame, data.arm, data.Y)
    assert made.architecture_.levels == (5,)
    assert made.architecture_.missing == (0, 1, 2, 3)
    few = frame[:3].with_columns(level=pl.Series(["low", "never seen", None], dtype=pl.String))
    assert np.isfinite(made.predict(few)).all()
    assert made.predict(few)[0] != pytest.approx(made.predict(few.with_columns(level=pl.lit("mid")))[0])
    design = Design.of(made.columns_.encode(frame))
    assert design.at(made.columns_.encode(frame)).shape == (600, 4 + 4 + 3)
    assert Design.from_json(design.as_json()) == design


# ------------------------------------------------------------------------------------------------ restarts, streams


class Stop(Hook):
    """Ends the process's work in the middle, as a kill would."""

    def __init__(self, at: int):
        self.at = at

    def on_step(self, state: TrainState) -> None:
        if state.step == self.at:
            raise KeyboardInterrupt


def test_a_fit_that_was_killed_goes_on_to_the_same_bits(tmp_path):
    data = drawn(600)
    whole = fitted(data, epochs=3)
    options = {"control": 0, **QUICK, "epochs": 3}
    for at in (2, 4):
        with pytest.raises(KeyboardInterrupt):
            MTMT(**options).fit(data.X, data.arm, data.Y, hooks=[Stop(at)], checkpoint=tmp_path, resume=True)
    again = MTMT(**options).fit(data.X, data.arm, data.Y, hooks=[Stop(99)], checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(again.predict(data.X), whole.predict(data.X))
    assert again.history_.equals(whole.history_)


def table(tmp_path, data, order=None, groups=16, **columns):
    order = np.arange(len(data.arm)) if order is None else order
    frame = pl.DataFrame(
        {f"x{i}": data.X[order, i] for i in range(12)}
        | {"segment": data.arm[order].astype(str), "one": data.Y[order, 0], "two": data.Y[order, 1]}
        | {name: values[order] for name, values in columns.items()}
    )
    path = tmp_path / "rows.parquet"
    frame.write_parquet(path, row_group_size=-(-len(order) // groups))
    return path, frame


NAMED = {"arm": "segment", "outcomes": {"one": "continuous", "two": "continuous"}}


def test_a_streamed_fit_is_a_fit(tmp_path):
    data = drawn(1600)
    path, frame = table(tmp_path, data)
    made = MTMT(control="0", **QUICK).fit_rows(path, **NAMED)
    assert made.arms_ == ["1", "2", "3"]
    assert made.features_ == [f"x{i}" for i in range(12)]
    found = made.predict_effects(frame)
    assert np.abs(np.einsum("nmk,m->nk", found.incremental, made.tier_weights_)).max() < 1e-10
    np.testing.assert_allclose(made.tier_weights_, np.bincount(data.arm)[1:] / (data.arm > 0).sum())
    np.testing.assert_allclose(found.base.mean(0), made.predict_effects(path).base.mean(0))


def test_streamed_rows_train_as_rows_in_memory_do_in_the_same_order(tmp_path):
    from querist.effects.netrows import tensors_of
    from querist.effects.network._members import latents_and_balance, member, stream_loss
    from querist.training import fit as fit_network

    data = drawn(500)
    path, _ = table(tmp_path, data, groups=7)
    options = {"shrink": False, "folds": 1, "val_fraction": 0.0, "batch_size": 64}
    caught = {}

    class Catch(MTMT):
        def _fit(self, sample, hooks):
            super()._fit(sample, hooks)
            caught["sample"] = sample

    made = Catch(control="0", **{**QUICK, **options}).fit_rows(path, **NAMED, shuffle=False)
    sample = caught["sample"]
    assert sample.n == 500
    net = member(made.architecture_, sample.arm, made_seed(sample.seed))
    loss = stream_loss(made.links_, sample.outcomes.names, {}, latents_and_balance(None, 1.0))
    fit_network(
        net,
        loss,
        tensors_of(sample, made.links_),
        batch_size=64,
        epochs=2,
        shuffle=False,
        lr=1e-3,
        weight_decay=1e-3,
        schedule="cosine",
        seed=made_seed(sample.seed),
        device="cpu",
    )
    for (name, a), b in zip(net.named_parameters(), made.networks_[0][0].parameters(), strict=True):
        assert torch.equal(a, b), name


def made_seed(seed: int) -> int:
    from querist.statistics import torch_seed

    return torch_seed(seed, "mtmt", 0, 0) % 2**31


def test_an_epoch_of_a_stream_meets_every_row_once_in_any_number_of_processes(tmp_path):
    from querist.effects.network._stream import Streamed
    from querist.effects.network._survey import Plan, survey

    data = drawn(1000)
    path, _ = table(tmp_path, data, groups=20, row=np.arange(1000).astype(float))
    rows = open_rows(path)
    plan, found = survey(Plan(rows, roles_of(rows, arm="segment", outcomes=["one"], drop=["two"]), 2, 0.1, 0))
    assert found.n == 1000
    assert found.groups.sum() + found.valid.sum() == 1000
    model = fitted(drawn(200))
    links = type(model.links_)(model.links_.links[:1])
    batches = Streamed(
        plan, found.columns, links, {"0": 0, "1": 1, "2": 2, "3": 3}, found.groups[:, 0], 1, 64, 0, buffer=8
    )
    place = list(found.columns.numbers).index("row")
    facts = found.columns.facts["row"]

    def met(epoch, processes, skip=0):
        parts = [list(batches.epoch(epoch, skip, rank, processes, 1)) for rank in range(processes)]
        return [
            np.rint(b["numbers"][:, place].double().numpy() * facts.sd + facts.mean).astype(int)
            for own in parts
            for step in own
            for b in step
        ]

    wanted = np.sort(np.concatenate(met(0, 1)))
    assert len(np.unique(wanted)) == len(wanted) == found.groups[:, 0].sum()
    assert set(wanted) == set(np.flatnonzero((found.fold == 0) & ~found.valid).tolist())
    for processes in (2, 3):
        np.testing.assert_array_equal(np.sort(np.concatenate(met(1, processes))), wanted)
    first = met(0, 1)
    assert any((a != b).any() for a, b in zip(first, met(1, 1), strict=True) if len(a) == len(b))
    for a, b in zip(met(0, 1, skip=3), first[3:], strict=True):
        np.testing.assert_array_equal(a, b)
    # Eight pieces at a time, from all over the table.
    assert len(np.unique(first[0] // 50)) >= 6


def test_a_streamed_fit_that_was_killed_goes_on_to_the_same_bits(tmp_path):
    data = drawn(1200)
    path, frame = table(tmp_path, data)
    options = {"control": "0", **QUICK, "epochs": 3}
    whole = MTMT(**options).fit_rows(path, **NAMED)
    with pytest.raises(KeyboardInterrupt):
        MTMT(**options).fit_rows(path, **NAMED, hooks=[Stop(4)], checkpoint=tmp_path / "c", resume=True)
    again = MTMT(**options).fit_rows(path, **NAMED, hooks=[Stop(99)], checkpoint=tmp_path / "c", resume=True)
    np.testing.assert_array_equal(again.predict(frame), whole.predict(frame))


def test_streamed_clusters_stay_whole_and_weights_come_from_a_column(tmp_path):
    data = drawn(1000)
    path, frame = table(tmp_path, data, household=np.arange(1000) // 5, w=np.arange(1000) % 3 + 1.0)
    made = MTMT(control="0", **QUICK).fit_rows(path, **NAMED, cluster="household", weight="w")
    assert made.features_ == [f"x{i}" for i in range(12)]
    folds = made.folds_.reshape(200, 5)
    assert (folds == folds[:, :1]).all()
    assert 0.4 < made.folds_.mean() < 0.6
    w = np.arange(1000) % 3 + 1.0
    np.testing.assert_allclose(made.tier_weights_, np.bincount(data.arm, w)[1:] / w[data.arm > 0].sum())
    assert np.isfinite(made.predict(frame)).all()


def test_a_table_that_cannot_be_read_in_pieces_is_written_once(tmp_path):
    data = drawn(400)
    _, frame = table(tmp_path, data)
    frame.write_csv(tmp_path / "rows.csv")
    made = MTMT(control=0, **QUICK).fit_rows(tmp_path / "rows.csv", **NAMED)
    assert np.isfinite(made.predict(frame)).all()


def test_a_table_sorted_by_arm_trains_as_a_shuffled_one_does(tmp_path):
    data = drawn(2400)
    options = {"control": "0", **QUICK, "epochs": 6, "folds": 1, "shrink": False, "val_fraction": 0.0, "lr": 3e-3}
    mixed_up, by_arm = stream(0, "order").permutation(2400), np.argsort(data.arm, kind="stable")
    errors = []
    # The last one shows what sorting does where rows are taken as they lie.
    for order, shuffle in ((mixed_up, True), (by_arm, True), (np.argsort(data.X[:, 0]), False)):
        path, frame = table(tmp_path, data, order, groups=24)
        found = MTMT(**options).fit_rows(path, **NAMED, shuffle=shuffle).predict_effects(frame)
        errors.append(float(np.sqrt(((found.response - data.truth.response[order]) ** 2).mean())))
    assert errors[1] < 1.05 * errors[0]
    assert errors[2] > 1.1 * errors[0]


def test_a_streamed_table_is_held_to_what_a_table_in_memory_is(tmp_path):
    data = drawn(600)
    arm = data.arm.astype(str).astype(object)
    arm[[7, 400]] = None
    path, frame = table(tmp_path, data, groups=6)
    frame = frame.with_columns(
        segment=pl.Series(arm.tolist(), dtype=pl.String),
        bought=pl.when(pl.col("one") > 0).then(pl.lit("yes")).otherwise(pl.lit("no")),
    )
    frame.write_parquet(path, row_group_size=100)
    with pytest.raises(ArmMissing, match="row 7"):
        MTMT(control="0", **QUICK).fit_rows(path, arm="segment", outcomes=["two"], drop=["one", "bought"])
    options = {"arm": "segment", "outcomes": ["bought"], "drop": ["one", "two"], "positive": "yes"}
    made = MTMT(control="0", **QUICK).fit_rows(path, **options, drop_missing_arm=True)
    assert made.outcomes_ == {"bought": "binary"}
    assert len(made.folds_) == 598
    assert "2 rows without an arm are left out" in made.warnings_
    natural = made.predict_effects(frame).natural[:, 0]
    assert 0 < natural.min() < natural.max() < 1
    with pytest.raises(OutcomeKind, match="binary"):
        MTMT(control="0", **QUICK).fit_rows(
            path, arm="segment", outcomes={"one": "binary"}, drop=["two", "bought"], drop_missing_arm=True
        )
    with pytest.raises(BadOption, match="outcome"):
        MTMT(control="0", **QUICK).fit_rows(path, arm="segment")
    frame.with_columns(house=pl.Series([None if i == 250 else i // 2 for i in range(600)])).write_parquet(
        path, row_group_size=100
    )
    with pytest.raises(BadValues, match="row 250"):
        MTMT(control="0", **QUICK).fit_rows(path, **options, cluster="house", drop_missing_arm=True)


def test_a_table_held_in_memory_is_fitted_as_its_columns_are(tmp_path):
    data = drawn(400)
    path, frame = table(tmp_path, data)
    made = MTMT(control="0", **QUICK).fit_rows(path, **NAMED, stream=False, checkpoint=tmp_path / "c")
    X = frame.select([f"x{i}" for i in range(12)])
    again = MTMT(control="0", **QUICK).fit(X, frame["segment"], frame.select("one", "two"))
    np.testing.assert_array_equal(made.predict(frame), again.predict(frame))
    assert (tmp_path / "c" / "network-1-0").is_dir()
