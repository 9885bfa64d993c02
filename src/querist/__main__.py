"""`python -m querist` and the `querist` command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Enter the command line."""
    from querist.cli import main as run

    sys.exit(run())


if __name__ == "__main__":
    main()
