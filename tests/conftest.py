"""What every test finds: one thread, how examples are drawn, registered data beside the checkout, a browser's path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("POLARS_MAX_THREADS", "2")

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

pytest.register_assert_rewrite("tests.harness")

# At a desk examples are drawn anew in every run, so that they find more from day to day; where the environment has CI set they
# are those of the test's own text, so that a change is held to what it changed. No test is failed for the seconds it took.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
if "QUERIST_DATA" not in os.environ and _DATA.is_dir():
    os.environ["QUERIST_DATA"] = str(_DATA)

_MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"


def find_chromium() -> str | None:
    """The same names, in the same order, as tests/e2e/find-chromium.sh."""
    names = (os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome", _MAC)
    return next((path for name in names if name and (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium. Browser tests fail without one: `make test` sees to it that there is one."""
    path = find_chromium()
    assert path, "No Chromium: install it (Debian: apt-get install chromium) or set CHROMIUM to its path."
    return path
