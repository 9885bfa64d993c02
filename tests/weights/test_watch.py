"""The folder of a watched training: whole at every moment, followed from outside, opened in a browser; several processes."""

from __future__ import annotations

import json
import os
import signal
import time
from multiprocessing import get_context
from pathlib import Path

import polars as pl
import pytest
import torch
from tests.harness import PATIENCE, Bad, check_bad_input, check_page, patient, started
from torch import nn

from querist.cli import main
from querist.errors import BadOption, RunBusy, SourceNotFound
from querist.reports.index import gather
from querist.reports.result import Result
from querist.training import fit
from querist.weights import Monitor
from querist.weights.studies import following
from querist.weights.tables import MONITOR_TABLES

FILES = {"run.json", "tables", "figures", "findings.parquet", "layout.json", "summary.json", "report.html"}


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(40, 60), nn.Tanh(), nn.Linear(60, 30), nn.Tanh(), nn.Linear(30, 10))


def train(net: nn.Module, monitor, steps: int, first: int = 1) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(256, 40, generator=generator), torch.randint(0, 10, (256,), generator=generator)
    for step in range(first, first + steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        monitor(step)


def watching(net: nn.Module, out: Path, **options) -> Monitor:
    return Monitor(net, **{"every": 10, "k": 4, "full_every": 2, "max_overhead": 1e9, "out": out, **options})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A training that ended well."""
    out = tmp_path_factory.mktemp("runs") / "done"
    net = network()
    with watching(net, out) as monitor:
        train(net, monitor, 60)
    return out


@pytest.fixture(scope="module")
def halfway(tmp_path_factory) -> Path:
    """A training that goes on: its monitor is alive in this process and holds the folder."""
    out = tmp_path_factory.mktemp("runs") / "running"
    net = network()
    monitor = watching(net, out)
    train(net, monitor, 25)
    yield out
    monitor.close()


# ---------------------------------------------------------------------------------------------------------- folder


def test_a_finished_folder_is_a_run_folder_like_any_other(folder):
    assert {path.name for path in folder.iterdir()} == FILES
    assert not list(folder.rglob(".*"))
    header = json.loads((folder / "run.json").read_text())
    assert (header["room"], header["command"], header["status"]) == ("weights", "watch", "done")
    result = Result.open(folder)
    specs = {spec.name: spec for spec in MONITOR_TABLES}
    assert list(result.tables) == list(specs)
    for name, frame in result.tables.items():
        assert dict(frame.schema) == specs[name].schema()
    assert json.loads((folder / "summary.json").read_text()) == result.summary
    assert result.summary["status"] == "done"
    assert {path.stem for path in (folder / "figures").iterdir()} == set(result.figures)
    assert main(["report", str(folder), "--out", str(folder.parent / "again.html")]) == 0
    (row,) = gather(folder, folder)
    assert (row["status"], row["report"]) == ("done", "report.html")


def test_while_it_runs_the_folder_is_read_and_its_page_reloads(halfway):
    assert json.loads((halfway / "run.json").read_text())["status"] == "running"
    result = Result.open(halfway, unfinished=True)
    assert result.tables["events"]["step"].to_list() == [1, 10, 20]
    assert result.status == "running"
    assert 'http-equiv="refresh"' in (halfway / "report.html").read_text()[:4096]
    with pytest.raises(BadOption, match="it is running"):
        Result.open(halfway)
    (row,) = gather(halfway, halfway)
    assert row["status"] == "running"
    assert row["verdicts"]


def test_a_folder_is_held_and_never_begun_twice(folder, halfway, tmp_path):
    net = network()
    with pytest.raises(RunBusy, match="holds a run already"):
        watching(net, folder)(1)
    with pytest.raises(RunBusy, match="holds a run already"):
        watching(net, halfway)(1)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadOption, match=r"notes\.txt"):
        watching(net, tmp_path)(1)
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt"}


def test_a_failed_training_says_so(tmp_path, capsys):
    net = network()
    monitor = watching(net, tmp_path / "run")
    monitor(1)
    with pytest.raises(ZeroDivisionError), monitor:
        _ = 1 // 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
    assert main(["weights", "watch", str(tmp_path / "run")]) == 1
    assert "The training is failed." in capsys.readouterr().err
    assert 'http-equiv="refresh"' not in (tmp_path / "run" / "report.html").read_text()[:4096]


# ------------------------------------------------------------------------------------------------------------ kill


def _train_until_killed(out: str, after: int, where: str) -> None:
    from querist.weights.studies import monitor_folder

    count = [0]
    real = getattr(monitor_folder, where)

    def counted(*arguments, **named):
        count[0] += 1
        if count[0] == after:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)

    setattr(monitor_folder, where, counted)
    net = network()
    train(net, watching(net, Path(out)), 200)


@pytest.mark.parametrize(("where", "after"), [("write_frame", 25), ("write_json", 70), ("write_text", 3)])
def test_killed_in_the_middle_of_writing_it_stays_readable(tmp_path, where, after, capsys):
    out = tmp_path / "run"
    process = get_context("spawn").Process(target=_train_until_killed, args=(str(out), after, where))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL
    process.close()
    result = Result.open(out, unfinished=True)
    looks = result.tables["events"].height
    assert looks >= 2
    assert set(result.tables["trace"]["layer_id"]) == {"0.weight", "2.weight", "4.weight"}
    assert result.document().figures
    assert following.header_now(out)["status"] == "interrupted"
    assert main(["weights", "watch", str(out)]) == 1
    assert "interrupted" in capsys.readouterr().err
    page = (out / "report.html").read_text()
    assert 'http-equiv="refresh"' not in page[:4096]
    assert "This run is interrupted" in page
    assert "restarted from its checkpoint" in page
    # A training restarted from its checkpoint goes on in the same folder.
    net = network()
    other = watching(net, tmp_path / "other")
    train(net, other, 5)
    again = watching(net, out)
    again.load_state(other.state())
    train(net, again, 10, first=6)
    again.close()
    assert Result.open(out).tables["events"]["step"].to_list() == [1, 10, 15]
    assert not [path for path in out.rglob(".*") if path.name != ".lock"]


def test_a_process_that_is_gone_before_its_first_page_leaves_its_tables(tmp_path, capsys):
    """Tables are written at every look, the page is drawn rarely: who follows draws it from the tables."""
    out, net, now = tmp_path / "run", network(), [0.0]
    monitor = watching(net, out, max_overhead=0.01)
    monitor._looker.stopwatch.clock = lambda: now[0]

    def told(step: int) -> None:
        now[0] += 1.0
        monitor(step)

    train(net, told, 45)
    assert not (out / "report.html").exists()
    kept = monitor.result()
    assert kept.tables["events"]["step"].to_list() == [1, 10, 20, 30, 40]
    monitor._looker.folder.release()
    with pytest.raises(BadOption, match="no answer"):
        Result.open(out, unfinished=True)
    (seen,) = following.follow(out, once=True)
    assert seen.status == "running"
    assert 'http-equiv="refresh"' in (out / "report.html").read_text()[:4096]
    header = json.loads((out / "run.json").read_text())
    header["host"]["process"] = 2**22 + 1  # there is no such process
    (out / "run.json").write_text(json.dumps(header))
    assert main(["weights", "watch", str(out)]) == 1
    assert "interrupted" in capsys.readouterr().err
    opened = Result.open(out, unfinished=True)
    assert opened.findings == kept.findings == seen.findings
    assert set(opened.figures) == set(kept.figures)
    assert all(opened.tables[name].equals(kept.tables[name]) for name in kept.tables)
    assert opened.summary["overhead"] is not None


def test_another_configuration_does_not_go_on_in_a_folder(tmp_path):
    net = network()
    first = watching(net, tmp_path / "run")
    train(net, first, 3)
    state = first.state()
    first._looker.folder.release()
    other = Monitor(net, every=7, k=4, full_every=2, max_overhead=1e9, out=tmp_path / "run")
    state["config"]["every"] = 7
    other.load_state(state)
    with pytest.raises(BadOption, match="every: 10 -> 7"):
        other(9)


# ----------------------------------------------------------------------------------------------------------- watch


def test_watch_once(folder, halfway, capsys):
    assert main(["weights", "watch", str(folder), "--once"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[0].startswith("step 60, ")
    assert told.err.splitlines()[-1] == f"Report: {folder / 'report.html'}"
    assert main(["weights", "watch", str(halfway), "--once", "--json", "--quiet"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    summary = json.loads(told.out)
    assert (summary["schema"], summary["status"], summary["step"]) == ("querist.weights.watch/1", "running", 20)
    assert main(["weights", "watch", str(folder), "--once", "--fail-if", "regime[run].estimate > 0"]) == 3
    assert "Gate tripped" in capsys.readouterr().err


def test_watch_follows_until_the_training_ends(tmp_path):
    out = tmp_path / "run"
    net = network()
    monitor = watching(net, out)
    train(net, monitor, 5)
    begun = iter(range(1, 4))

    def sleep(seconds: float) -> None:
        """The training goes on while nobody looks."""
        turn = next(begun)
        if turn < 3:
            train(net, monitor, 10, first=10 * turn)
        else:
            monitor.close()

    seen = [(result.summary["step"], result.status) for result in following.follow(out, sleep=sleep)]
    assert seen == [(1, "running"), (10, "running"), (20, "running"), (29, "done")]


def test_watch_draws_a_page_that_is_missing(tmp_path):
    net = network()
    out = tmp_path / "run"
    monitor = watching(net, out)
    train(net, monitor, 5)
    (out / "report.html").unlink()
    (result,) = following.follow(out, once=True)
    page = (out / "report.html").read_text()
    assert 'http-equiv="refresh"' in page[:4096]
    monitor.close()
    assert result.status == "running"


def test_watch_refuses_what_is_no_watched_training(folder, tmp_path):
    from querist.weights import scan

    scan(torch.randn(20, 30), out=tmp_path / "scan")
    begun = tmp_path / "begun"
    begun.mkdir()
    header = json.loads((folder / "run.json").read_text())
    (begun / "run.json").write_text(json.dumps(header | {"status": "running"}))
    (tmp_path / "empty").mkdir()
    check_bad_input(
        [
            Bad(["weights", "watch", str(tmp_path / "absent")], 2, ["no folder here", "source-not-found"]),
            Bad(["weights", "watch", str(tmp_path / "empty")], 2, ["holds no run"]),
            Bad(["weights", "watch", str(tmp_path / "scan")], 2, ["weights scan", "querist report"]),
            Bad(["weights", "watch", str(begun), "--once"], 2, ["has not looked yet"]),
            Bad(["weights", "watch", str(folder), "--fail-if", "regimes.verdict == yes"], 2, ["regime"]),
            Bad(lambda: list(following.follow(tmp_path / "absent")), SourceNotFound, ["absent"]),
        ]
    )


# --------------------------------------------------------------------------------------------------------- browser


def until(page, true) -> None:
    """Wait inside Python: the page's policy lets no string be run as code."""
    for _ in range(10 * int(PATIENCE)):
        if true():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it did not happen")


@pytest.mark.browser
def test_the_page_opens_offline_and_its_film_moves(folder, halfway, chromium):
    from playwright.sync_api import sync_playwright

    for path in (folder, halfway):
        check_page(path / "report.html", chromium)
    result = Result.open(folder)
    name = next(name for name in result.figures if name.startswith("moving."))
    frames = result.figures[name].frames
    assert len(frames) >= 3
    with sync_playwright() as playwright:
        browser = started(playwright, chromium)
        page = patient(browser.new_context(offline=True, viewport={"width": 1280, "height": 900})).new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto((folder / "report.html").resolve().as_uri())
        page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        for canvas in page.locator(".canvas").all():
            canvas.scroll_into_view_if_needed()
            canvas.locator(".main-svg").first.wait_for()
        film = page.locator(f'.canvas[data-name="{name}"]')
        assert page.locator(".canvas").count() == len(result.figures)
        film.scroll_into_view_if_needed()
        shown = "name => document.querySelector(`.canvas[data-name='${name}']`).data[0].y"
        first, last = (frames[i]["data"][0]["y"] for i in (0, -1))
        assert page.evaluate(shown, name) == last
        film.locator(".slider-rail-touch-rect").click(position={"x": 2, "y": 4})
        until(page, lambda: page.evaluate(shown, name) == first)
        film.get_by_text("Play").click()
        until(page, lambda: page.evaluate(shown, name) == last)
        page.locator("#theme").click()
        film.locator(".slider-rail-touch-rect").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert said == []
        browser.close()


@pytest.mark.browser
def test_a_page_reloads_itself_while_training_goes_on(tmp_path, chromium):
    from playwright.sync_api import sync_playwright

    out = tmp_path / "run"
    net = network()
    monitor = watching(net, out)
    train(net, monitor, 5)
    # Sooner than a person needs it, so that the test does not wait.
    page_file = out / "report.html"
    page_file.write_text(
        page_file.read_text().replace('http-equiv="refresh" content="5"', 'http-equiv="refresh" content="1"')
    )
    with sync_playwright() as playwright:
        browser = started(playwright, chromium)
        page = patient(browser.new_context(offline=True)).new_page()
        page.goto(page_file.resolve().as_uri())
        assert "running" in page.locator(".status").inner_text()
        train(net, monitor, 10, first=6)
        monitor.close()
        until(page, lambda: "done" in page.locator(".status").inner_text())
        assert page.locator('meta[http-equiv="refresh"]').count() == 0
        browser.close()


# -------------------------------------------------------------------------------------------------------- training


def test_as_a_hook_of_fit_it_changes_nothing_and_resumes(tmp_path):
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(320, 40, generator=generator), torch.randint(0, 10, (320,), generator=generator)

    def loss(model, batch):
        values = nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")
        return {"loss": (values.sum(), values.new_tensor(float(len(values))))}

    def weights(hooks, epochs, **options):
        net = network()
        hooks = [hook(net) for hook in hooks]
        fit(net, loss, (x, y), batch_size=32, epochs=epochs, lr=1e-2, hooks=hooks, progress=None, **options)
        return net.state_dict(), hooks

    plain, _ = weights([], 4)
    watched, (monitor,) = weights([lambda net: watching(net, tmp_path / "whole")], 4)
    assert all(torch.equal(plain[name], watched[name]) for name in plain)
    whole = Result.open(tmp_path / "whole")
    assert whole.tables["events"]["step"].to_list() == [0, 10, 20, 30, 40]
    assert monitor.result().status == "done"

    kept = {"checkpoint": tmp_path / "kept"}
    weights([lambda net: watching(net, tmp_path / "part")], 2, **kept)
    resumed, _ = weights([lambda net: watching(net, tmp_path / "part")], 4, resume=True, **kept)
    assert all(torch.equal(plain[name], resumed[name]) for name in plain)
    part = Result.open(tmp_path / "part")
    assert part.tables["events"]["step"].to_list() == [0, 10, 20, 30, 40]
    columns = ["step", "layer_id", "n_spikes", "rank", "update_from"]
    assert part.tables["trace"].select(columns).equals(whole.tables["trace"].select(columns))
    assert part.tables["trace"]["lambda_max"].to_list() == pytest.approx(
        whole.tables["trace"]["lambda_max"].to_list(), rel=1e-6
    )


def _in_a_group(rank: int, kind: str, port: int, out: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    result = {}
    for watched in (False, True):
        net = network()
        if kind == "ddp":
            wrapped = nn.parallel.DistributedDataParallel(net)
        else:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh("cpu", (2,))
            for layer in net:
                if isinstance(layer, nn.Linear):
                    fully_shard(layer, mesh=mesh)
            wrapped = fully_shard(net, mesh=mesh)
        optimizer = torch.optim.Adam(wrapped.parameters(), lr=1e-2)
        generator = torch.Generator().manual_seed(rank)
        x, y = torch.randn(64, 40, generator=generator), torch.randint(0, 10, (64,), generator=generator)
        monitor = watching(wrapped, Path(out) / "run") if watched else None
        for step in range(1, 26):
            optimizer.zero_grad()
            nn.functional.cross_entropy(wrapped(x), y).backward()
            optimizer.step()
            if monitor is not None:
                monitor(step)
        if monitor is not None:
            monitor.close()
        last = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in net.parameters()]
        result[watched] = [p.detach().clone() for p in last]
    same = all(torch.equal(a, b) for a, b in zip(result[False], result[True], strict=True))
    torch.save({"same": same, "weights": result[True]}, Path(out) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_several_processes_have_one_monitor(kind, tmp_path):
    """Ranks that share tensors must gather them together; ranks that hold them all leave the work to the first."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = get_context("spawn")
    group = [context.Process(target=_in_a_group, args=(rank, kind, port, str(tmp_path))) for rank in range(2)]
    for process in group:
        process.start()
    for process in group:
        process.join(PATIENCE)
        assert process.exitcode == 0
    for rank in range(2):
        assert torch.load(tmp_path / f"{rank}.pt", weights_only=True)["same"]
    result = Result.open(tmp_path / "run")
    assert result.tables["events"]["step"].to_list() == [1, 10, 20, 25]
    weights = torch.load(tmp_path / "0.pt", weights_only=True)["weights"]
    last = result.tables["trace"].filter(pl.col("step") == 25)
    for name, W in zip(("0.weight", "2.weight", "4.weight"), weights[::2], strict=True):
        row = last.row(by_predicate=pl.col("layer_id") == name, named=True)
        assert row["lambda_max"] == pytest.approx(float(torch.linalg.matrix_norm(W.double(), 2)) ** 2, rel=1e-6)


def test_a_reload_is_neither_too_soon_nor_too_late():
    from querist.weights.studies.monitor_folder import reload_seconds

    now = time.monotonic()
    assert reload_seconds(1000, now) == 5
    assert reload_seconds(1, now - 1e6) == 300
    assert reload_seconds(10, now - 600) == 60
