"""Training from a table larger than memory: every row once an epoch, mixed from all over, the same for any number of processes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from querist.errors import BadOption, ShapeMismatch, TooFewRows
from querist.sources.rows import RowStream, open_rows

N = 3000


def arrays(table):
    return {name: table.column(name).to_numpy() for name in table.column_names}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Sorted by arm, in groups that do not fit the batches."""
    path = tmp_path_factory.mktemp("rows") / "t.parquet"
    x = np.random.default_rng(0).normal(size=N).astype(np.float32)
    pq.write_table(
        pa.table({"row": np.arange(N), "arm": (np.arange(N) >= N // 2).astype(np.int64), "x": x}),
        path,
        row_group_size=170,
    )
    return open_rows(path)


def steps(source, epoch=0, skip=0, rank=0, processes=1, accumulate=1):
    return list(source.epoch(epoch, skip, rank, processes, accumulate))


def numbers(step):
    return [row for micro in step for row in micro["row"].tolist()]


@pytest.mark.parametrize("lanes", [1, 3, 8])
@pytest.mark.parametrize("groups", [None, 1, 40])
def test_every_row_once_an_epoch(rows, tmp_path, lanes, groups):
    if groups:
        pq.write_table(rows.table(), tmp_path / "t.parquet", row_group_size=-(-N // groups))
        rows = open_rows(tmp_path / "t.parquet")
    source = RowStream(rows, arrays, batch_size=256, lanes=lanes, chunk_rows=100, seed=3)
    first, second = steps(source, 0), steps(source, 1)
    assert len(first) == source.steps == 12
    assert all(abs(len(numbers(step)) - 256) <= lanes for step in first[:-1])
    for epoch in (first, second):
        assert sorted(row for step in epoch for row in numbers(step)) == list(range(N))
    assert [numbers(s) for s in first] != [numbers(s) for s in second]
    assert [numbers(s) for s in first] == [numbers(s) for s in steps(source, 0)]
    assert [numbers(s) for s in first] != [
        numbers(s) for s in steps(RowStream(rows, arrays, batch_size=256, lanes=lanes, chunk_rows=100, seed=4))
    ]


def test_a_sorted_table_is_mixed(rows):
    source = RowStream(rows, arrays, batch_size=200, chunk_rows=50)
    shares = np.array([torch.cat([m["arm"] for m in step]).double().mean().item() for step in steps(source)])
    assert shares.min() > 0
    assert shares.max() < 1
    assert abs(shares - 0.5).mean() < 0.25


def test_a_step_is_the_same_for_any_number_of_processes(rows):
    source = RowStream(rows, arrays, batch_size=256, lanes=4, chunk_rows=64)
    alone = [sorted(numbers(step)) for step in steps(source, 2)]
    for processes in (2, 3, 4):
        shared = [steps(source, 2, rank=rank, processes=processes) for rank in range(processes)]
        assert [len(part) for part in shared] == [source.steps] * processes
        assert [sorted(row for part in parts for row in numbers(part)) for parts in zip(*shared, strict=True)] == alone
    with pytest.raises(BadOption, match="1 to 4"):
        steps(source, processes=5)


def test_a_position_is_a_number_of_steps(rows):
    read: list[int] = []

    def counted(table):
        read.append(table.num_rows)
        return arrays(table)

    keep = np.random.default_rng(1).random(N) < 0.8
    source = RowStream(rows, counted, batch_size=100, lanes=4, chunk_rows=64, keep=keep)
    whole = [numbers(step) for step in steps(source)]
    every, _ = sum(read), read.clear()
    for skip in (0, 1, 7, source.steps - 1):
        assert [numbers(step) for step in steps(source, skip=skip)] == whole[skip:]
    read.clear()
    steps(source, skip=source.steps - 1)
    assert sum(read) < every / 3


def test_rows_set_aside_are_never_drawn(rows):
    keep = np.arange(N) % 5 > 0
    source = RowStream(rows, arrays, batch_size=300, keep=keep, chunk_rows=80)
    assert source.used == keep.sum()
    assert sorted(row for step in steps(source) for row in numbers(step)) == np.flatnonzero(keep).tolist()
    aside = RowStream(rows, arrays, batch_size=300, keep=~keep, shuffle=False, lanes=1)
    assert [row for step in steps(aside) for row in numbers(step)] == np.flatnonzero(~keep).tolist()


def test_without_shuffling_one_lane_is_the_table(rows):
    source = RowStream(rows, arrays, columns=["row"], batch_size=256, lanes=1, shuffle=False)
    assert [numbers(step) for step in steps(source)] == [list(range(a, min(a + 256, N))) for a in range(0, N, 256)]
    micro = steps(source, accumulate=3)[0]
    assert [len(m["row"]) for m in micro] == [85, 85, 86]
    assert list(micro[0]) == ["row"]


def test_training_streamed_is_training_in_memory(rows):
    from querist.training import fit

    table = rows.table()
    held = {
        "x": torch.from_numpy(table.column("x").to_numpy().copy()),
        "arm": torch.from_numpy(table.column("arm").to_numpy().copy()),
    }

    def loss(model, batch):
        gap = model(batch["x"][:, None]).squeeze(1) - batch["arm"].float()
        return {"loss": ((gap**2).sum(), len(gap))}

    def trained(data, **options):
        torch.manual_seed(0)
        model = torch.nn.Linear(1, 1)
        fit(model, loss, data, epochs=2, seed=0, device="cpu", **options)
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    streamed = RowStream(rows, arrays, columns=["x", "arm"], batch_size=256, lanes=1, shuffle=False)
    assert torch.equal(trained(streamed), trained(held, batch_size=256, shuffle=False))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"batch_size": 0}, BadOption, "batch_size"),
        ({"lanes": 0}, BadOption, "lanes"),
        ({"keep": np.ones(3, dtype=bool)}, ShapeMismatch, r"\(3000,\)"),
        ({"keep": np.zeros(N, dtype=bool)}, TooFewRows, "none kept"),
    ],
)
def test_what_cannot_be_streamed(rows, options, error, said):
    with pytest.raises(error, match=said):
        RowStream(rows, arrays, **options)


def test_what_is_described(rows, tmp_path):
    one = RowStream(rows, arrays, about="a").describe()
    assert one == RowStream(rows, arrays, about="a").describe()
    assert one != RowStream(rows, arrays, about="b").describe()
    assert one != RowStream(rows, arrays, about="a", keep=np.arange(N) > 0).describe()
    (tmp_path / "t.csv").write_text("a\n1\n")
    with pytest.raises(BadOption, match="pieces"):
        RowStream(open_rows(tmp_path / "t.csv"), arrays)
