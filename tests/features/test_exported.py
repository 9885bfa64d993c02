"""A network compared by the command as TorchScript, `.pt2` and ONNX: the same profile as that of its module."""

from __future__ import annotations

import json

import pytest
from tests.features.exported import FORMS, write_form

from querist.cli import main

OPTIONS = ["--source", "tests.features.small:known", "--target", "tests.features.small:new", "--n", "60"]
OPTIONS += ["--projections", "40", "--splits", "6", "--permutations", "39", "--engine", "serial", "--quiet", "--json"]


@pytest.fixture(scope="module")
def of_module(tmp_path_factory):
    return profile("tests.features.small:tiny_net", tmp_path_factory.mktemp("module"))


def profile(model, folder):
    import contextlib
    import io

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["features", "compare", model, *OPTIONS, "--out", str(folder / "run")]) == 0
    return json.loads(said.getvalue())


@pytest.mark.parametrize("form", FORMS)
def test_the_profile_is_that_of_the_module(form, of_module, tmp_path):
    found = profile(str(write_form(form, tmp_path)), tmp_path)
    assert len(found["layers"]) == len(of_module["layers"]) == 4
    for mine, known in zip(found["layers"], of_module["layers"], strict=True):
        for name in ("target", "layer", "index", "width", "p", "p_adj", "probe_accuracy"):
            assert mine[name] == known[name], (form, known["layer"], name)
        for name in ("raw", "null_mean", "null_q95", "excess", "low", "high"):
            assert mine[name] == pytest.approx(known[name], rel=1e-4, abs=1e-6), (form, known["layer"], name)
    verdicts = [
        [(f["subject"], f["verdict"]) for f in one["findings"] if f["question"] == "features.gap"]
        for one in (found, of_module)
    ]
    assert verdicts[0] == verdicts[1]
    for name, value in of_module["association"]["tests.features.small:new"].items():
        assert found["association"]["tests.features.small:new"][name] == (
            value if value is None else pytest.approx(value)
        )


@pytest.mark.parametrize("form", ["pt2", "ts", "onnx"])
def test_what_needs_a_module_says_so(form, tmp_path, capfd):
    path = str(write_form(form, tmp_path))
    argv = ["features", "compare", path, *OPTIONS, "--random-nets", "2", "--out", str(tmp_path / "run")]
    assert main(argv) == 2
    assert "package.module:factory" in capfd.readouterr().err
    assert main(["features", "freeze", path, "--target", "digits", "--quiet", "--out", str(tmp_path / "sweep")]) == 2
    assert "Only a torch module can be trained" in capfd.readouterr().err
