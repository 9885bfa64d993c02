"""`make bench`: every ratio with its target beside it, a table at the end; exits with 1 where a target is missed.

`python -m benchmarks NAME ...` runs some of the families and keeps what artefacts/bench.json says of the others;
`--table` runs none and prints the table.
"""

from __future__ import annotations

import os
import sys
import traceback

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[name] = "1"

FAMILIES = (
    "csn",
    "scan",
    "memory",
    "capture",
    "distances",
    "freeze",
    "concepts",
    "audit",
    "effects",
    "networks",
    "effects_memory",
    "effects_scale",
)


def main() -> int:
    import importlib

    import torch

    from benchmarks.ledger import Ledger

    torch.set_num_threads(1)
    told = sys.argv[1:]
    ledger = Ledger.read(FAMILIES, afresh=not told)
    unknown = set(told) - {*FAMILIES, "--table"}
    if unknown:
        print(f"No such family: {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
        return 2
    for family in () if "--table" in told else told or FAMILIES:
        print(f"\n{family}")
        lines = []
        try:
            for ratio in importlib.import_module(f"benchmarks.{family}").ratios():
                print(ratio.line(), flush=True)
                lines.append(ratio)
            ledger.add(family, lines)
        except Exception as error:  # the other families are measured all the same
            traceback.print_exc()
            ledger.add(family, lines, failed=f"{type(error).__name__}: {error}")
    print("\n" + ledger.table())
    return 0 if ledger.whole else 1


if __name__ == "__main__":
    sys.exit(main())
