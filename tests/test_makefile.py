"""The Makefile: a Python that is named is the one that is used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.harness import PATIENCE

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # What a make that runs these tests was told itself is not for this one.
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "PYTHON", "VENV")
    }
    return subprocess.run(
        ["make", *arguments],
        cwd=ROOT,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture
def other(tmp_path) -> Path:
    """An environment of another Python."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho Python 3.9.1\n")
    python.chmod(0o755)
    return tmp_path / "venv"


def test_an_environment_of_another_python_is_not_taken_for_the_one_that_was_named(other):
    for said in (
        make("fits", f"PYTHON={sys.executable}", f"VENV={other}"),
        make("fits", f"VENV={other}", PYTHON=sys.executable),
    ):
        assert said.returncode == 2
        assert f"{other} holds Python 3.9.1" in said.stdout
        assert f"{sys.executable} is Python {sys.version.split()[0]}" in said.stdout
        assert "VENV=" in said.stdout


def test_an_environment_of_the_same_python_and_one_that_nobody_named_are_taken(other, tmp_path):
    assert make("fits", f"PYTHON={other}/bin/python", f"VENV={other}").returncode == 0
    assert make("fits", f"VENV={other}").returncode == 0
    assert make("fits", f"PYTHON={sys.executable}", f"VENV={tmp_path}/new").returncode == 0


def test_a_python_that_is_not_here_is_told(tmp_path):
    said = make("fits", "PYTHON=python0.1", f"VENV={tmp_path}/new")
    assert said.returncode == 2
    assert "python0.1 was not found" in said.stdout
