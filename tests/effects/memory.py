"""Memory that a fit takes beside its table, and commands beside their people, measured in a process of its own.

Run as a module it prints what `added` and `of_studies` read.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

__all__ = ["GROUP", "added", "of_studies"]

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


GROUP = 131_072
"""Rows of a row group, each of 12 features in float32: 6 MiB."""


def of_studies(folder: Path) -> dict[str, float]:
    """Largest memory beyond what was held before: `evaluate` a model, in bytes a person; `score` a table of 8 row groups, in row
    groups."""
    words = [sys.executable, "-m", "tests.effects.memory", "studies", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


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


def _measure_studies(folder: Path, people: int = 6 * GROUP, groups: int = 8) -> dict[str, float]:
    from querist.effects import TLearner, score
    from querist.effects.configs import EvaluateConfig
    from querist.effects.criteo import FEATURES, write_criteo_like
    from querist.effects.studies.evaluate import EvaluateStudy
    from querist.reports.ask import ask

    sizes = {"few": 20_000, "people": people, "groups": groups * GROUP}
    for name, n in sizes.items():
        write_criteo_like(folder / f"{name}.parquet", n, group_rows=GROUP)
    model = TLearner(control=0).fit_rows(
        folder / "few.parquet", arm="treatment", outcomes=["visit:binary"], feature=FEATURES
    )
    model.save(folder / "model")

    def judged(name: str) -> None:
        table, source = str(folder / f"{name}.parquet"), str(folder / "model")
        told = EvaluateConfig.build(source=source, table=table, arm="treatment", outcome=("visit:binary",), bootstrap=0)
        ask(EvaluateStudy(), told, progress=False)

    def scored(name: str) -> None:
        score(folder / "model", folder / f"{name}.parquet", folder / f"scores {name}")

    judged("few")
    each = _peak(lambda: judged("people")) / people
    scored("people")
    return {"evaluate": each, "score": _peak(lambda: scored("groups")) / (4 * 12 * GROUP)}


if __name__ == "__main__":
    if sys.argv[1] == "studies":
        print(json.dumps(_measure_studies(Path(sys.argv[2]))))
        sys.exit()
    print(json.dumps(_measure(sys.argv[1], *map(int, sys.argv[2:]))))
