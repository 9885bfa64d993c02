"""The command line: exit codes, one message for a person's mistake, what goes to which stream."""

from __future__ import annotations

import argparse
import html
import json
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.harness import PATIENCE, Bad, check_bad_input

from querist.cli import main
from querist.sources.datasets.matrices import sample_network, spiked
from querist.weights import scan


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    path = tmp_path / "network.npz"
    np.savez(path, **sample_network(side=32))
    return path


def run(*argv: object, **more) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "querist", *map(str, argv)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **more)


def test_json_is_the_summary_and_nothing_else(checkpoint, tmp_path, capfd):
    assert main(["weights", "scan", str(checkpoint), "--out", str(tmp_path / "run"), "--json", "--quiet"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    summary = json.loads(out)
    assert summary == json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))
    assert summary["schema"] == "querist.weights.scan/1"
    assert summary["n_analysed"] == 5
    assert (tmp_path / "run" / "report.html").is_file()


def test_gates_exit_with_3_and_say_why(checkpoint, tmp_path, capfd):
    gated = ["weights", "scan", str(checkpoint), "--nulls", "shuffle", "--fail-if", "collapse.verdict == yes"]
    assert main([*gated, "--out", str(tmp_path / "a")]) == 3
    assert "Gate tripped: collapse.verdict == yes (weights.collapse[collapsed.weight].verdict" in capfd.readouterr().err
    held = ["weights", "scan", str(checkpoint), "--fail-if", "n_failed > 0", "--out", str(tmp_path / "b")]
    assert main(held) == 0


def test_a_misspelt_question_costs_nothing(checkpoint, tmp_path):
    out = tmp_path / "run"
    argv = ["weights", "scan", str(checkpoint), "--fail-if", "spiks.verdict == yes", "--out", str(out)]
    check_bad_input([Bad(argv, 2, ["spiks", "spikes"])])
    assert not out.exists()


def test_an_unknown_path_stops_after_the_work_and_keeps_the_run(checkpoint, tmp_path):
    out = tmp_path / "run"
    argv = ["weights", "scan", str(checkpoint), "--fail-if", "layers.alhpa < 2", "--out", str(out), "--quiet"]
    check_bad_input([Bad(argv, 2, ["layers.alhpa", "alpha"])])
    assert (out / "report.html").is_file()


def test_bad_usage_is_one_message():
    check_bad_input(
        [
            Bad(["weights", "scna", "x"], 2, ["scna", "scan"]),
            Bad(["weights", "scan"], 2, ["SOURCE"], valueless=True),
            Bad(["weights", "scan", "x", "--replicsa", "3"], 2, ["--replicsa", "--replicas"]),
            Bad(["weights", "scan", "x", "--conv", "round"], 2, ["conv", "round", "flatten"]),
            Bad(["weights", "scan", "x", "--replicas", "0"], 2, ["replicas", "0"]),
            Bad(["weights", "scan", "x", "--replicas", "many"], 2, ["many"]),
            Bad(["weights", "scan", "minilm", "--out", "nowhere"], 2, ["minilm-l6"]),
            Bad(["nonsense"], 2, ["nonsense"]),
        ]
    )


def test_bad_sources_of_the_specification(tmp_path, checkpoint):
    empty = tmp_path / "empty"
    empty.mkdir()
    evil = tmp_path / "evil.pt"
    torch.save({"w": torch.zeros(3), "x": argparse.Namespace}, evil)
    short = tmp_path / "short.npz"
    short.write_bytes(checkpoint.read_bytes()[:-400])
    shards = tmp_path / "shards"
    shards.mkdir()
    (shards / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a.weight": "model-00001-of-00002.safetensors"}})
    )
    scan = ["weights", "scan"]
    check_bad_input(
        [
            Bad([*scan, str(tmp_path / "absent.pt"), "--out", str(tmp_path / "r1")], 2, ["absent.pt"]),
            Bad([*scan, str(empty), "--out", str(tmp_path / "r2")], 2, [str(empty)]),
            Bad([*scan, str(evil), "--out", str(tmp_path / "r3")], 2, ["argparse.Namespace", "safetensors"]),
            Bad([*scan, str(short), "--out", str(tmp_path / "r4")], 2, ["short.npz"]),
            Bad([*scan, str(shards), "--out", str(tmp_path / "r5")], 2, ["model-00001-of-00002", "missing"]),
            Bad([*scan, str(checkpoint), "--include", "zzz*", "--out", str(tmp_path / "r6")], 2, ["random.weight"]),
        ]
    )
    assert not (tmp_path / "r1").exists()


def test_a_folder_that_holds_a_run_is_refused_and_resumed(checkpoint, tmp_path, capfd):
    argv = ["weights", "scan", str(checkpoint), "--out", str(tmp_path / "run"), "--quiet", "--nulls", "shuffle"]
    assert main(argv) == 0
    check_bad_input([Bad(argv, 2, ["--resume"])])
    assert main([*argv, "--resume"]) == 0
    check_bad_input([Bad([*argv, "--resume", "--seed", "3"], 2, ["seed"])])
    np.savez(checkpoint, **{**sample_network(side=32), "spiked.weight": spiked(64, 32, seed=9)})
    check_bad_input([Bad([*argv, "--resume"], 2, ["spiked.weight"])])


def test_a_run_keeps_its_command_line_and_the_report_shows_it(checkpoint, tmp_path):
    out = tmp_path / "run"
    typed = ["weights", "scan", str(checkpoint), "--nulls", "shuffle", "--quiet"]
    argv = [*typed[:3], "--out", str(out), *typed[3:]]
    assert main(argv) == 0
    assert json.loads((out / "run.json").read_text("utf-8"))["argv"] == argv
    again = shlex.join(["querist", *typed])
    assert f"<code>{html.escape(again)}</code>" in (out / "report.html").read_text("utf-8")
    assert main([*argv, "--resume"]) == 0  # a later sitting leaves what was typed first
    assert json.loads((out / "run.json").read_text("utf-8"))["argv"] == argv
    scan(checkpoint, out=tmp_path / "asked", nulls=())  # asked by a program: nothing was typed
    assert json.loads((tmp_path / "asked" / "run.json").read_text("utf-8"))["argv"] is None
    assert "querist weights scan" in (tmp_path / "asked" / "report.html").read_text("utf-8")


def test_engines_that_are_not_there_are_told(checkpoint, tmp_path):
    argv = ["weights", "scan", str(checkpoint), "--out", str(tmp_path / "r"), "--engine"]
    rows = [("cluster", "serial")]
    if find_spec("ray"):
        rows.append(("ray://head", "ray://HOST:PORT"))
    check_bad_input([Bad([*argv, name], 2, [name, allowed]) for name, allowed in rows])


def test_report_runs_and_data(checkpoint, tmp_path, capfd):
    out = tmp_path / "runs" / "one"
    assert main(["weights", "scan", str(checkpoint), "--out", str(out), "--quiet", "--nulls", "shuffle"]) == 0
    (out / "report.html").unlink()
    assert main(["report", str(out)]) == 0
    assert "<!doctype html>" in (out / "report.html").read_text("utf-8")[:200].lower()
    assert main(["runs", str(tmp_path / "runs")]) == 0
    assert "one/report.html" in (tmp_path / "runs" / "index.html").read_text("utf-8")
    capfd.readouterr()
    assert main(["data", "list", "--json"]) == 0
    names = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    assert names["resnet20-cifar10"]["place"] == "bundled"
    check_bad_input(
        [Bad(["report", str(tmp_path / "nothing")], 2, ["nothing"]), Bad(["runs", str(tmp_path / "no")], 2, ["no"])]
    )


def test_a_second_run_is_set_beside_the_first(checkpoint, tmp_path):
    for seed in (0, 1):
        out = tmp_path / f"seed{seed}"
        assert main(["weights", "scan", str(checkpoint), "--out", str(out), "--quiet", "--seed", str(seed)]) == 0
    assert main(["report", str(tmp_path / "seed1"), "--against", str(tmp_path / "seed0")]) == 0
    assert "seed" in (tmp_path / "seed1" / "compare.html").read_text("utf-8")


def test_the_module_runs_and_the_version_is_told():
    done = run("--version")
    assert (done.returncode, done.stdout.strip()) == (0, "0.1.0")
    done = run("weights", "scan", "absent.pt")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
