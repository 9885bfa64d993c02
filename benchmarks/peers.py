"""Peers whose pins quarrel with ours: they run in an environment of their own, in a child process that is handed arrays.

`make bench` makes that environment (`.venv-bench`, pinned in constraints/bench.txt). The child loads the peer once and then waits;
asked for a contender by name it runs it on one CPU and answers with the CPU seconds it took and the numbers it found, so that
ours and the peer's are timed by turns in one run. Where a peer cannot be had, its lines say why and count as absent.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Reported

ROOT = Path(__file__).resolve().parent.parent
PYTHON = Path(os.environ.get("BENCH_PYTHON", ROOT / ".venv-bench" / "bin" / "python"))
ONE = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "MPLBACKEND": "agg",
    "TQDM_DISABLE": "1",
}


@dataclass
class Peer:
    """A loaded peer, or the reason why there is none."""

    absent: str = ""
    version: str = ""
    process: subprocess.Popen[str] | None = None

    def __bool__(self) -> bool:
        return not self.absent

    def numbers(self, name: str) -> np.ndarray:
        """What a contender finds."""
        return np.asarray(self._ask(name)["numbers"], dtype=np.float64)

    def timed(self, name: str) -> Callable[[], Reported]:
        """The contender as `seconds` takes it."""
        return lambda: Reported(self._ask(name)["seconds"])

    def _ask(self, name: str) -> dict[str, Any]:
        process = self.process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(name + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline() or '{"failed": "its process ended"}')
        if "failed" in answer:
            raise RuntimeError(f"{self.version}, {name}: {answer['failed']}")
        return answer


@contextmanager
def peer(task: str, arrays: Mapping[str, np.ndarray], **options: Any) -> Iterator[Peer]:
    """A peer that has taken the arrays; `task` names a function of peer_work.py. False where it is absent."""
    if not PYTHON.exists():
        yield Peer(absent="no environment of peers; `make bench` makes one")
        return
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "arrays.npz", **arrays)
        (Path(folder) / "options.json").write_text(json.dumps(options))
        command = [str(PYTHON), "-I", str(ROOT / "benchmarks" / "peer_work.py"), task, folder]
        with (Path(folder) / "said").open("w") as said:
            process = subprocess.Popen(
                command,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env={**os.environ, **ONE, "HOME": folder},  # some packages write into their user's home
            )
        with process:  # its end closes the pipes, and an end of its input is the end of the peer
            assert process.stdout is not None
            answer = json.loads(process.stdout.readline() or "{}")
            if "version" in answer:
                yield Peer(version=answer["version"], process=process)
            else:
                told = (Path(folder) / "said").read_text().strip().splitlines()
                yield Peer(absent=answer.get("absent") or (told[-1] if told else "its process ended without a word"))
