"""Memory that a fit takes beside its table, measured in a process of its own. Run as a module it prints what `added` reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

__all__ = ["added"]

STATUS = Path("/proc/self/status")


def added(name: str, n: int, d: int, *, arms: int = 1) -> tuple[float, float]:
    """Largest memory beyond what was held before, of a fit and of a prediction: in sizes of its float32 table.

    name: an estimator of `querist.effects`.
    """
    words = [sys.executable, "-m", "tests.effects.memory", name, str(n), str(d), str(arms)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    fit, predict = json.loads(done.stdout.splitlines()[-1])
    return fit / (4 * n * d), predict / (4 * n * d)


def _table(n: int, d: int, arms: int):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    arm = rng.integers(0, arms + 1, n)
    return X, arm, (rng.random(n, dtype=np.float32) < 0.3 + 0.1 * (arm > 0)).astype(np.float32)


def _now(field: str) -> int:
    [line] = [line for line in STATUS.read_text().splitlines() if line.startswith(field)]
    return 1024 * int(line.split()[1])


def _peak(work) -> int:
    """Of `work`, beyond what is held now; Linux forgets the high water of before when it is told to."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _now("VmRSS")
    work()
    return max(_now("VmHWM") - before, 0)


def _measure(name: str, n: int, d: int, arms: int) -> list[int]:
    from querist import effects

    quick = {"preset": "small", "epochs": 1, "batch_size": 512, "control": 0}
    kind = getattr(effects, name)
    options = {"control": 0} if name in ("TLearner", "SLearner", "DRLearner") else quick
    small = _table(2000, d, arms)
    kind(**options).fit(*small).predict(small[0])  # what libraries take when they are used first is not the table's
    X, arm, y = _table(n, d, arms)
    model = kind(**options)
    return [_peak(lambda: model.fit(X, arm, y)), _peak(lambda: model.predict(X))]


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], *map(int, sys.argv[2:]))))
