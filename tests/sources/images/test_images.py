"""Pictures and rows of every form: what is read, what is done to a picture, and what is said of damaged and wrong ones."""

from __future__ import annotations

import gzip
import io

import numpy as np
import polars as pl
import pytest
import torch
from PIL import Image

from querist.errors import (
    BadOption,
    BadValues,
    CorruptFile,
    ShapeMismatch,
    SourceNotFound,
    TooFewRows,
    UnknownName,
    UnsupportedFormat,
)
from querist.sources.data import batches, choose_ids, hash_order, open_data
from querist.sources.images.transform import Transform


@pytest.fixture
def pictures():
    """Twelve smooth colour pictures and their labels."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (12, 3, 4, 3)).astype(np.uint8)
    big = np.stack([np.asarray(Image.fromarray(one).resize((10, 8))) for one in coarse])
    return big, np.arange(12) % 3


def jpeg(picture, form="JPEG"):
    out = io.BytesIO()
    Image.fromarray(picture).save(out, form)
    return out.getvalue()


def idx(array, kind=0x08):
    head = bytes([0, 0, kind, array.ndim]) + b"".join(side.to_bytes(4, "big") for side in array.shape)
    return head + array.tobytes()


# ------------------------------------------------------------------------------------------------------------ formats


def test_idx_plain_and_gzipped(tmp_path, pictures):
    grey, labels = pictures[0][..., 0], pictures[1].astype(np.uint8)
    (tmp_path / "images.idx").write_bytes(idx(grey))
    (tmp_path / "images.idx.gz").write_bytes(gzip.compress(idx(grey)))
    (tmp_path / "labels-ubyte.gz").write_bytes(gzip.compress(idx(labels)))
    for name in ("images.idx", "images.idx.gz"):
        data = open_data(f"idx:{tmp_path}/{name},{tmp_path}/labels-ubyte.gz")
        batch = data.read([3, 5])
        assert torch.equal(batch.inputs, torch.from_numpy(grey[[3, 5], None].astype(np.float32) / np.float32(255)))
        assert batch.labels.tolist() == [0, 2]
    assert open_data(f"{tmp_path}/images.idx.gz").read([0]).labels is None


def test_damaged_idx_files_say_where(tmp_path, pictures):
    raw = idx(pictures[0][..., 0])
    cases = {
        "short.idx": (raw[:300], "ends early at byte 300: it says 12 rows and holds 3"),
        "long.idx": (raw + b"x", "goes on at byte"),
        "other.idx": (b"\x89PNG1234", "does not begin"),
        "head.idx": (raw[:7], "header, at byte 7"),
        "cut.idx.gz": (gzip.compress(raw)[:-60], "gzip file ends early"),
    }
    for name, (content, words) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CorruptFile, match=words):
            open_data(f"idx:{tmp_path}/{name}")
    with pytest.raises(SourceNotFound):
        open_data(f"idx:{tmp_path}/none.idx")
    (tmp_path / "images.idx").write_bytes(raw)
    (tmp_path / "few.idx").write_bytes(idx(np.zeros(5, np.uint8)))
    with pytest.raises(ShapeMismatch, match=r"\[5\].*\[12\]"):
        open_data(f"idx:{tmp_path}/images.idx,{tmp_path}/few.idx")
    with pytest.raises(ShapeMismatch, match="no pictures"):
        open_data(f"idx:{tmp_path}/few.idx")


def test_npz_with_names_splits_and_channels_first(tmp_path, pictures):
    x, y = pictures
    np.savez(tmp_path / "a.npz", images=x, labels=y, x_train=x[:4].transpose(0, 3, 1, 2), y_train=y[:4])
    whole, train = open_data(f"{tmp_path}/a.npz"), open_data(f"{tmp_path}/a.npz#train")
    assert (len(whole), len(train)) == (12, 4)
    assert torch.equal(whole.read([1, 2]).inputs, train.read([1, 2]).inputs)
    named = open_data(f"npz:{tmp_path}/a.npz?x=x_train&y=y_train")
    assert named.read([3]).labels.tolist() == [0]
    with pytest.raises(UnknownName, match="labels"):
        open_data(f"npz:{tmp_path}/a.npz?x=pictures")
    with pytest.raises(UnknownName, match="x_test"):
        open_data(f"{tmp_path}/a.npz#test")
    np.savez(tmp_path / "texts.npz", x=np.array(["a", "b"]))
    with pytest.raises(BadValues, match="no numbers"):
        open_data(f"{tmp_path}/texts.npz")
    np.savez(tmp_path / "rows.npz", x=np.arange(12.0).reshape(4, 3), y=np.array(["b", "a", "b", "a"]))
    rows = open_data(f"{tmp_path}/rows.npz")
    assert (rows.kind, rows.classes) == ("rows", ("a", "b"))
    assert rows.read([0, 1]).labels.tolist() == [1, 0]


def test_joined_jpegs(tmp_path, pictures):
    x, y = pictures
    files = [jpeg(one) for one in x]
    offset = np.concatenate([[0], np.cumsum([len(one) for one in files])])
    np.savez(tmp_path / "j.npz", jpeg=np.frombuffer(b"".join(files), np.uint8), offset=offset, label=y.astype(np.uint8))
    batch = open_data(f"{tmp_path}/j.npz").read([2, 7])
    expected = np.stack([np.asarray(Image.open(io.BytesIO(files[one]))) for one in (2, 7)])
    assert np.array_equal(batch.inputs.numpy(), expected.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255))
    assert batch.labels.tolist() == [2, 1]
    joined = np.frombuffer(b"".join(files), np.uint8)
    np.savez(tmp_path / "cut.npz", jpeg=joined[: offset[9] + 5], offset=offset, label=y)
    with pytest.raises(CorruptFile, match=f"end at byte {offset[9] + 5}.*9 of 12 are whole"):
        open_data(f"{tmp_path}/cut.npz")
    np.savez(tmp_path / "back.npz", jpeg=joined, offset=offset[::-1], label=y)
    with pytest.raises(CorruptFile, match="ascending"):
        open_data(f"{tmp_path}/back.npz")


def test_truncated_archives(tmp_path, pictures):
    np.savez_compressed(tmp_path / "a.npz", x=pictures[0])
    raw = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(CorruptFile, match="damaged or ends early"):
        open_data(f"{tmp_path}/cut.npz")
    (tmp_path / "bits.npz").write_bytes(raw[:200] + bytes([raw[200] ^ 255]) + raw[201:])
    with pytest.raises(CorruptFile, match="x"):
        open_data(f"{tmp_path}/bits.npz")
    np.save(tmp_path / "one.npy", pictures[0])
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    with pytest.raises(CorruptFile, match="no archive"):
        open_data(f"{tmp_path}/one.npz")


def folder_of(tmp_path, pictures, form="PNG"):
    for place, (one, label) in enumerate(zip(*pictures, strict=True)):
        place_of = tmp_path / "set" / f"class{label}"
        place_of.mkdir(parents=True, exist_ok=True)
        (place_of / f"{place:02d}.{form.lower()}").write_bytes(jpeg(one, form))
    return tmp_path / "set"


def test_folders_of_classes(tmp_path, pictures):
    folder = folder_of(tmp_path, pictures)
    (folder / "class0" / "notes.txt").write_text("not a picture")
    data = open_data(f"folder:{folder}")
    assert (len(data), data.classes) == (12, ("class0", "class1", "class2"))
    batch = data.read(data.ids)
    assert batch.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    order = [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]
    assert np.array_equal(batch.inputs.numpy() * 255, pictures[0][order].transpose(0, 3, 1, 2))
    assert len(open_data(f"folder:{tmp_path}#set")) == 12
    with pytest.raises(SourceNotFound):
        open_data(f"folder:{tmp_path}/none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TooFewRows, match="no pictures"):
        open_data(f"folder:{tmp_path}/empty")


def test_unreadable_pictures_are_passed_over_up_to_one_in_a_hundred(tmp_path, pictures):
    folder = folder_of(tmp_path, pictures)
    whole = jpeg(pictures[0][0], "PNG")
    for place in range(200):
        (folder / "class1" / f"more{place:03d}.png").write_bytes(whole)
    for name in ("bad1", "bad2"):
        (folder / "class1" / f"{name}.png").write_bytes(whole[: len(whole) // 2])
    data = open_data(f"folder:{folder}")
    read = [one for batch in batches(data, data.ids, 50) for one in batch.ids]
    assert (len(data), len(read)) == (214, 212)
    assert [row.what for row in data.passed_over] == ["class1/bad1.png", "class1/bad2.png"]
    assert all(row.reason for row in data.passed_over)
    (folder / "class1" / "bad3.png").write_bytes(b"")
    data = open_data(f"folder:{folder}")
    with pytest.raises(CorruptFile, match=r"3 of the 215 rows.*cannot be read"):
        list(batches(data, data.ids, 50))


def test_parquet_and_csv_of_numbers(tmp_path):
    frame = pl.DataFrame({"a": [1.0, 2, 3], "b": [4, 5, 6], "kind": ["x", "y", "x"], "y": [0, 1, 1]})
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_csv(tmp_path / "t.csv")
    frame.write_csv(tmp_path / "t.tsv", separator="\t")
    for name in ("t.parquet", "t.csv", "t.tsv"):
        data = open_data(f"{tmp_path}/{name}?x=b,a&y=kind")
        batch = data.read([0, 2])
        assert batch.inputs.tolist() == [[4, 1], [6, 3]]
        assert (batch.labels.tolist(), data.classes, data.kind) == ([0, 0], ("x", "y"), "rows")
        assert open_data(f"{tmp_path}/{name}?y=y").read([1]).inputs.tolist() == [[2, 5]]
        with pytest.raises(UnknownName, match="kind"):
            open_data(f"{tmp_path}/{name}?x=kinds")
        with pytest.raises(UnknownName, match="kind"):
            open_data(f"{tmp_path}/{name}?x=a&y=kinds")
    with pytest.raises(UnsupportedFormat, match="no numbers"):
        open_data(f"{tmp_path}/t.csv?x=a,kind")
    raw = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(raw[:-20])
    with pytest.raises(CorruptFile, match="Parquet"):
        open_data(f"{tmp_path}/cut.parquet?x=a")


def test_parquet_of_pictures_and_vectors(tmp_path, pictures):
    x, y = pictures
    coded = [jpeg(one, "PNG") for one in x]
    frame = pl.DataFrame({"image": [{"bytes": one, "path": "p"} for one in coded], "png": coded, "label": y})
    frame = frame.with_columns(vector=pl.Series([[float(n), 1.0] for n in range(11)] + [[1.0]]))
    frame.write_parquet(tmp_path / "p.parquet", row_group_size=5)
    for column in ("image", "png"):
        data = open_data(f"{tmp_path}/p.parquet?x={column}&y=label")
        batch = data.read([0, 4, 5, 11])
        assert np.array_equal(batch.inputs.numpy() * 255, x[[0, 4, 5, 11]].transpose(0, 3, 1, 2))
        assert batch.labels.tolist() == [0, 1, 2, 2]
    data = open_data(f"{tmp_path}/p.parquet?x=vector")
    assert data.read([10, 11]).inputs.tolist() == [[10, 1]]
    assert data.passed_over[0].reason == "a vector of length 2 is expected"


# ---------------------------------------------------------------------------------------------------------- transform


def test_padding_puts_pictures_into_a_black_frame():
    x = np.full((2, 28, 28, 1), 200, np.uint8)
    out = Transform(size=32, channels=3, pad=True)(x)
    assert out.shape == (2, 3, 32, 32)
    assert np.array_equal(out[0, 0], out[0, 2])
    assert out[:, :, 2:30, 2:30].min() == pytest.approx(200 / 255)
    assert out.sum() == pytest.approx(2 * 3 * 28 * 28 * 200 / 255, rel=1e-5)
    with pytest.raises(ShapeMismatch, match="larger than the frame"):
        Transform(size=16, pad=True)(x)


def test_scaling_is_that_of_pillow(pictures):
    x = pictures[0]
    out = Transform(size=(6, 5))(x)
    expected = np.stack([np.asarray(Image.fromarray(one).resize((5, 6), Image.Resampling.BILINEAR)) for one in x])
    assert np.array_equal(out, expected.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255))
    floats = Transform(size=4)(x.astype(np.float32))
    assert floats.max() > 2  # floating numbers are not divided
    assert np.abs(floats / 255 - Transform(size=4)(x)).max() < 1 / 255


def test_mean_and_deviation_are_per_channel(pictures):
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    out = Transform(mean=mean, std=std)(pictures[0])
    plain = pictures[0].transpose(0, 3, 1, 2) / 255
    assert np.allclose(out, (plain - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1)), atol=1e-6)
    with pytest.raises(ShapeMismatch, match=r"3 numbers.*1 channels.*\[1, 8, 10\].*--channels 3"):
        Transform(mean=mean)(pictures[0][..., :1])


def test_channels():
    grey = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1)
    assert Transform()(grey).shape == (1, 1, 4, 4)  # never repeated unless asked
    assert Transform(channels=3)(grey).shape == (1, 3, 4, 4)
    colour = np.array([[[[255, 0, 0], [0, 255, 0]]]], np.uint8)
    assert np.allclose(Transform(channels=1)(colour).ravel() * 255, [76, 150])
    alpha = np.concatenate([colour, np.zeros((1, 1, 2, 1), np.uint8)], axis=-1)
    assert np.array_equal(Transform()(alpha), Transform()(colour))
    assert Transform()(np.full((1, 2, 2, 1), 65535, np.uint16)).max() == 1


def test_pictures_of_several_sizes_need_one(tmp_path, pictures):
    folder = folder_of(tmp_path, pictures)
    (folder / "class0" / "zz.png").write_bytes(jpeg(np.zeros((5, 5, 3), np.uint8), "PNG"))
    data = open_data(f"folder:{folder}")
    with pytest.raises(ShapeMismatch, match=r"\[3, 5, 5\] and \[3, 8, 10\].*--size"):
        data.read(data.ids)
    sized = open_data(f"folder:{folder}", transform=Transform(size=8))
    assert sized.read(sized.ids).inputs.shape == (13, 3, 8, 8)


@pytest.mark.parametrize(
    "options",
    [
        {"size": 0},
        {"size": (4, 0)},
        {"channels": 2},
        {"pad": True},
        {"std": (1.0, 0.0)},
        {"mean": (float("nan"),)},
        {"mean": ()},
    ],
)
def test_transforms_refuse(options):
    with pytest.raises(BadOption):
        Transform(**options)


# --------------------------------------------------------------------------------------------------- choice of rows


def test_the_first_rows_stay_first_when_a_data_set_grows():
    few, many = hash_order(np.arange(1000), 3), hash_order(np.arange(5000), 3)
    assert np.array_equal(many[many < 1000], few)
    assert sorted(many.tolist()) == list(range(5000))
    assert not np.array_equal(hash_order(np.arange(1000), 4), few)
    # A uniform order: the mean of the first 500 of 5,000 has a standard error of 61.
    assert abs(many[:500].mean() - 2499.5) < 4 * 61


def test_chosen_ids_are_sorted_absolute_and_the_same_for_parts():
    data = open_data(np.zeros((100, 3), np.float32))
    ids = choose_ids(data, 20, seed=1)
    assert np.array_equal(ids, np.sort(hash_order(np.arange(100), 1)[:20]))
    assert choose_ids(data, None).tolist() == list(range(100))
    part = data.part((50, None))
    assert set(choose_ids(part, 10, seed=1)) <= set(range(50, 100))
    assert (part.name, len(part)) == ("array#50:", 50)
    with pytest.raises(TooFewRows, match="100 rows"):
        data.part((200, 300))
    with pytest.raises(BadOption):
        choose_ids(data, 0)
    with pytest.raises(BadOption):
        list(batches(data, ids, 0))


# ----------------------------------------------------------------------------------------------------------- objects


def test_objects_as_data(pictures):
    x, y = pictures
    assert torch.equal(open_data(x).read([1]).inputs, open_data(torch.from_numpy(x)).read([1]).inputs)
    assert open_data((x, y)).read([4, 5]).labels.tolist() == [1, 2]
    floats = torch.randn(6, 3, 4, 4)
    assert torch.equal(open_data(floats).read([5]).inputs, floats[5:])
    tokens = open_data({"input_ids": torch.arange(12).reshape(4, 3), "labels": torch.arange(4)})
    assert (tokens.kind, tokens.read([2]).labels.tolist()) == ("tokens", [2])
    with pytest.raises(ShapeMismatch):
        open_data({"a": torch.zeros(3, 2), "b": torch.zeros(4, 2)})
    for empty in (np.zeros((0, 3)), {"a": torch.zeros(0, 2)}, []):
        with pytest.raises(TooFewRows):
            open_data(empty)
    with pytest.raises(BadOption, match="no data"):
        open_data(3)
    with pytest.raises(ShapeMismatch):
        open_data(np.zeros((2, 2, 2, 2, 2), np.uint8))


def test_torch_datasets_and_iterables_of_batches(pictures):
    x, y = pictures

    class Images(torch.utils.data.Dataset):
        classes = ("a", "b", "c")

        def __len__(self):
            return len(x)

        def __getitem__(self, one):
            return Image.fromarray(x[one]), int(y[one])

    data = open_data(Images())
    batch = data.read([3, 4])
    assert torch.equal(batch.inputs, open_data(x).read([3, 4]).inputs)
    assert (batch.labels.tolist(), data.classes) == ([0, 1], ("a", "b", "c"))
    floats = torch.randn(7, 5)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(floats, torch.arange(7)), batch_size=3)
    found = open_data(loader).read([6, 0][::-1])
    assert torch.equal(found.inputs, floats[[0, 6]])
    assert found.labels.tolist() == [0, 6]
    words = [{"input_ids": torch.ones(2, 3, dtype=torch.long)}, {"input_ids": torch.ones(1, 5, dtype=torch.long)}]
    assert open_data(words).read([0, 2]).inputs["input_ids"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]


def test_addresses_of_no_known_form(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"1")
    with pytest.raises(UnsupportedFormat, match="folder:DIR"):
        open_data(f"{tmp_path}/x.bin")
    with pytest.raises(UnknownName, match="fashion-mnist"):
        open_data("fashion-mnst")
