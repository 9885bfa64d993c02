"""What a fit holds beside its table: scores, orders and activations by the byte."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

from querist.effects.arrays import as_they_appear
from querist.effects.links import Link, Links
from querist.effects.netrows import ACTIVATIONS, Table, batches_of, rows_within, tensors_of
from querist.effects.nettrain import made
from querist.effects.network._architecture import Architecture, preset_options
from querist.effects.network._evidence import evidence
from querist.effects.network._members import by_fold
from querist.effects.network._net import Network
from querist.effects.network._refit import refit
from querist.effects.outcomes import prepare_outcomes
from querist.effects.sample import sample_of
from querist.sources.rows import Encoded, open_rows
from querist.statistics import folds, stream
from querist.statistics.arrays import numbered


def beyond(work) -> int:
    """Most bytes that were held beyond those before, by whatever numpy and Python hold."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def sample(n: int = 900, missing: bool = True):
    rng = stream(3, "memory", "sample")
    y = rng.standard_normal((n, 2))
    y[::7, 1] = np.nan if missing else 0.5
    rows = open_rows(rng.standard_normal((n, 3)))
    columns = rows.columns()
    weight = rng.random(n) + 0.5
    given = columns, columns.encode(rows), rng.integers(0, 3, n), prepare_outcomes(y)
    return sample_of(*given, control=0, sample_weight=weight, propensity=[0.2, 0.3, 0.5])[0]


def network(expert: str = "mlp", numbers: int = 80, **options) -> Network:
    architecture = Architecture(numbers, (), (), 2, (1, 1), (0.5, 0.5), expert=expert, **options)
    return made(lambda: Network(architecture), 0)


def encoded(n: int, numbers: int = 80) -> Encoded:
    values = stream(1, "memory", "rows").standard_normal((n, numbers), dtype=np.float32)
    return Encoded(values, np.zeros(values.shape, dtype=bool), np.zeros((n, 0), dtype=np.int64))


# ---------------------------------------------------------------------------------------------------------- the refit


@pytest.mark.parametrize("method", ["tier", "flat"])
def test_a_refit_holds_four_bytes_of_each_score_and_works_in_blocks(method):
    def case(n: int):
        rng = stream(0, "memory", "refit")
        x, said = rng.standard_normal((n, 12), dtype=np.float32), rng.standard_normal((n, 3, 2))
        return x, said, rng.integers(0, 3, n).astype(np.int8), rng.standard_normal((n, 2)), np.full((n, 3), 1 / 3)

    worked, shares = [], np.array([0.5, 0.5])
    for n in (40_000, 120_000):
        given, found = case(n), []
        held = beyond(lambda g=given, f=found: f.append(evidence(*g, shares, dtype=np.float32)))
        assert found[0].total.nbytes + found[0].error.nbytes == 24 * n  # M·K effects and K errors
        assert held < 24 * n + (8 << 20)
        worked.append(beyond(lambda f=found: refit(f[0], method)))
    # What is known of each outcome is three bytes a row; blocks are the same however many rows there are.
    assert worked[1] < worked[0] + 4 * 80_000
    assert worked[1] < 6 << 20


# --------------------------------------------------------------------------------------------------- dealing and counting


def test_folds_are_dealt_in_few_bytes_a_row_by_the_numbers_of_a_permutation():
    n = 300_000
    strata = stream(0, "memory", "strata").integers(0, 6, n).astype(np.uint8)
    assert beyond(lambda: folds(n, 2, strata=strata, seed=1)) < 24 * n
    order = np.arange(n, dtype=np.int32)
    stream(4, "order").shuffle(order)
    np.testing.assert_array_equal(order, stream(4, "order").permutation(n))


def test_labels_are_numbered_in_place():
    labels = stream(0, "memory", "labels").integers(0, 3, 300_000)
    assert beyond(lambda: numbered(labels)) < 9 * labels.size
    known, place = numbered(np.array([5, -2, 5, 9], dtype=np.int8))
    assert (known.tolist(), known.dtype, place.tolist()) == ([-2, 5, 9], np.int8, [1, 0, 1, 2])
    assert numbered(np.array([True, True]))[0].tolist() == [True]
    assert as_they_appear(np.array([2, 0, 2, 1, 0])) == [2, 0, 1]


def test_a_sample_of_known_outcomes_without_weights_holds_neither_weights_nor_flags():
    rng = stream(0, "memory", "plain")
    rows = open_rows(rng.standard_normal((500, 2)))
    columns = rows.columns()
    given = columns, columns.encode(rows), rng.integers(0, 2, 500), prepare_outcomes(rng.standard_normal((500, 2)))
    found = sample_of(*given, control=0)[0]
    assert found.weight.strides == (0,)
    assert found.outcomes.observed.strides == (0, 0)
    assert found.arm.dtype == np.int8
    assert found.weight.sum() == 500


# -------------------------------------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("weighting", ["none", "ipw", "overlap"])
def test_a_batch_made_when_it_is_asked_for_is_that_of_all_rows(weighting):
    given = sample()
    links = Links([Link("identity", 0.1, 2.0), Link("identity", low=-1.0, high=1.0)])
    whole = tensors_of(given, links, weighting)
    rows = np.array([7, 3, 899, 14], dtype=np.int32)
    for name, value in Table(given, links, weighting).fetch(rows).items():
        assert torch.equal(value, whole[name][torch.from_numpy(rows).long()]), name


def test_a_table_tells_its_columns_apart():
    links = Links([Link("identity"), Link("identity")])
    one, again = (Table(sample(), links).about() for _ in range(2))
    other = Table(sample(missing=False), links).about()
    assert one == again
    assert one["rows"] == 900
    different = [name for name in one["columns"] if one["columns"][name] != other["columns"][name]]
    assert different == ["y", "weight"]


def test_rows_are_asked_for_fold_by_fold_and_as_many_each_time():
    dealt = stream(0, "memory", "folds").integers(0, 3, 150_000).astype(np.int8)
    parts = list(by_fold(dealt, 4096))
    assert [len(one) for one in parts].count(4096) == len(parts) - 3
    np.testing.assert_array_equal(np.concatenate(parts), np.argsort(dealt, kind="stable"))


# ---------------------------------------------------------------------------------------------------------- activations


def kept(net: Network, n: int) -> int:
    """Bytes that autograd keeps of n rows, each storage once."""
    found: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        return found.setdefault(tensor.untyped_storage().data_ptr(), tensor.detach())

    [batch] = batches_of(encoded(n), n)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one):
        said = net(*batch)
    assert said.shape == (n, 3, 2)
    return sum(one.untyped_storage().nbytes() for one in found.values())


@pytest.mark.parametrize(
    ("options", "least", "most"), [({}, 128, 512), (preset_options("small"), 512, 1024), ({"expert": "ft"}, 16, 64)]
)
def test_as_many_rows_are_differentiated_as_their_activations_allow(options, least, most):
    net = network(**options)
    before = torch.get_rng_state()
    net.train()
    rows = rows_within(net, lambda batch: net(*batch), encoded(200), 1024)
    assert least <= rows <= most
    assert torch.equal(torch.get_rng_state(), before)
    assert all(one.training for one in net.modules())
    if rows > 16:
        assert kept(net, 2 * rows) - kept(net, rows) <= ACTIVATIONS
    # Few rows are not tried first.
    assert rows_within(net, lambda batch: net(*batch), encoded(20), 1024) == 1024
