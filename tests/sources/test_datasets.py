"""The registry: where data sets lie, what is said when they do not, and downloads that are whole or not there."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import threading

import numpy as np
import pytest

from querist.errors import CorruptFile, SourceNotFound, UnknownName
from querist.sources.datasets import registry
from querist.sources.datasets.bundled_subset import TEST, TRAIN, stratified_rows
from querist.sources.datasets.fetch import fetch
from querist.sources.datasets.matrices import gaussian, inverse_wishart, low_rank, pareto_entries, spiked
from querist.sources.datasets.registry import BUNDLED, DATA_SETS, DataSet, locate, places


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """No data folder, and a cache of its own."""
    monkeypatch.delenv("QUERIST_DATA", raising=False)
    monkeypatch.setenv("QUERIST_CACHE", str(tmp_path / "cache"))
    return tmp_path


def register(monkeypatch, **fields):
    data = DataSet("sample", "A sample.", "none", 5, **fields)
    monkeypatch.setattr(registry, "DATA_SETS", {**DATA_SETS, "sample": data})
    return data


def test_what_is_bundled_has_its_checksum_and_licence():
    for data in DATA_SETS.values():
        if data.bundled:
            content = (BUNDLED / data.bundled).read_bytes()
            assert hashlib.sha256(content).hexdigest() == data.sha256
            assert len(content) == data.bytes
            stem = data.bundled.split(".")[0]
            assert list(BUNDLED.glob(f"LICENSE-{stem}*"))


def test_what_the_data_folder_holds_has_its_checksum(monkeypatch):
    for data in DATA_SETS.values():
        path = places(data).get("folder")
        if path is not None and data.sha256:
            assert hashlib.sha256(path.read_bytes()).hexdigest() == data.sha256, data.name


def test_a_bundled_set_needs_nothing(alone):
    assert locate("resnet20-cifar10").is_file()


def test_only_the_named_folder_is_read(alone, monkeypatch):
    with pytest.raises(SourceNotFound, match="resnet56"):
        locate("resnet56-cifar10")
    folder = alone / "data" / "features"
    folder.mkdir(parents=True)
    (folder / "resnet56-4bfd9763.th").write_bytes(b"x")
    monkeypatch.setenv("QUERIST_DATA", str(alone / "data"))
    assert locate("resnet56-cifar10") == folder / "resnet56-4bfd9763.th"


def test_a_licence_is_shown_before_a_set_is_fetched(alone, capsys):
    from querist.cli import main

    assert main(["data", "fetch", "mushroom"]) == 0
    said = capsys.readouterr()
    assert "mushroom: licence CC-BY-4.0" in said.err
    assert said.out.strip().endswith("mushroom.csv.gz")
    assert main(["data", "fetch", "cub-concepts"]) == 2
    assert "non-commercial" in capsys.readouterr().err.splitlines()[0]


def test_unknown_names_name_the_near_ones(alone):
    with pytest.raises(UnknownName, match="resnet20-cifar10"):
        locate("resnet-cifar10")


def test_a_file_is_taken_only_with_its_checksum(alone, monkeypatch):
    good = alone / "good"
    good.write_bytes(b"hello")
    register(monkeypatch, sha256=hashlib.sha256(b"hello").hexdigest(), file="x/sample.bin")
    assert fetch("sample", source=good).read_bytes() == b"hello"
    assert locate("sample").read_bytes() == b"hello"
    bad = alone / "bad"
    bad.write_bytes(b"hallo")
    with pytest.raises(CorruptFile, match="sha256"):
        fetch("sample", source=bad)
    with pytest.raises(SourceNotFound, match="nothing"):
        fetch("sample", source=alone / "nothing")


def test_a_set_that_a_user_must_bring_says_how(alone, monkeypatch, capsys):
    from querist.cli import main
    from querist.errors import UnsupportedFormat

    with pytest.raises(SourceNotFound, match="path of your file"):
        locate("lenta")
    mine = alone / "mine.csv"
    mine.write_text("a\n1\n")
    with pytest.raises(UnsupportedFormat, match="No checksum"):
        fetch("lenta", source=mine)
    with pytest.raises(CorruptFile, match="sha256"):
        fetch("criteo-uplift", source=mine)
    folder = alone / "data" / "effects"
    folder.mkdir(parents=True)
    (folder / "lenta.csv").write_text("a\n1\n")
    monkeypatch.setenv("QUERIST_DATA", str(alone / "data"))
    assert locate("lenta") == folder / "lenta.csv"
    assert main(["data", "list"]) == 0
    listed = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "? MB" in listed["criteo-uplift"]
    assert "bundled" in listed["hillstrom"]


def test_a_download_is_checked(alone, monkeypatch):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/sample.bin"
        register(monkeypatch, sha256=hashlib.sha256(b"hallo").hexdigest(), file="sample.bin", url=url)
        with pytest.raises(CorruptFile, match="checksum"):
            fetch("sample")
        assert not list((alone / "cache").rglob("sample.bin"))
        register(monkeypatch, sha256=hashlib.sha256(b"hello").hexdigest(), file="sample.bin", url=url)
        assert fetch("sample").read_bytes() == b"hello"
    finally:
        server.shutdown()
        server.server_close()
    register(monkeypatch, sha256="0" * 64, file="other.bin", url=url)
    with pytest.raises(SourceNotFound, match="download failed"):
        fetch("sample")


def test_generated_matrices_are_what_they_say():
    assert gaussian(300, 200).std() == pytest.approx(1, abs=0.01)
    tops = [np.linalg.svd(spiked(300, 200, strengths=(3.0,), seed=s), compute_uv=False)[0] ** 2 for s in range(12)]
    theta = 3 * (300 * 200) ** 0.25
    # One outlier strays by 2σ₁ = 4 %; the mean of twelve by 1.2 %.
    assert np.mean(tops) == pytest.approx((300 + theta**2) * (200 + theta**2) / theta**2, rel=0.04)
    assert np.linalg.matrix_rank(low_rank(60, 50, rank=7)) == 7
    tail = np.abs(pareto_entries(400, 400, exponent=1.5)).ravel()
    assert 1 / np.log(tail).mean() == pytest.approx(1.5, rel=0.02)
    assert inverse_wishart(120, 60).shape == (120, 60)
    assert np.array_equal(gaussian(8, 9, seed=3), gaussian(8, 9, seed=3))


def test_the_bundled_pictures_are_drawn_from_the_whole_set_as_they_say():
    with np.load(locate("fashion-mnist-small"), allow_pickle=False) as small:
        bundled = {name: small[name] for name in small.files}
    for part, n, source in (("train", TRAIN, "train"), ("test", TEST, "t10k")):
        x, y = bundled[f"x_{part}"], bundled[f"y_{part}"]
        assert x.shape == (n, 28, 28)
        assert x.dtype == y.dtype == np.uint8
        assert np.array_equal(np.bincount(y), np.full(10, n // 10))
        whole = [places(DATA_SETS[f"fashion-mnist-{source}-{what}"]).get("folder") for what in ("images", "labels")]
        if None not in whole:
            images, labels = (gzip.decompress(path.read_bytes()) for path in whole)
            labels = np.frombuffer(labels, np.uint8, offset=8)
            rows = stratified_rows(labels, n, part=part)
            assert np.array_equal(y, labels[rows])
            assert np.array_equal(x, np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28)[rows])
