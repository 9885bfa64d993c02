"""`make bench`: every ratio with its target beside it; exits with 1 where one is missed."""

from __future__ import annotations

import os
import sys

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

FAMILIES = ("csn", "scan", "memory", "capture", "distances", "freeze", "concepts", "effects", "effects_memory")


def main() -> int:
    import importlib

    import torch

    torch.set_num_threads(1)
    wanted = sys.argv[1:] or FAMILIES
    missed = 0
    for family in wanted:
        print(f"\n{family}")
        for ratio in importlib.import_module(f"benchmarks.{family}").ratios():
            print(ratio.line(), flush=True)
            missed += not ratio.held
    print(f"\n{missed} targets missed" if missed else "\nevery target held")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
