"""Claims about effects: what the network of three parts and its refit gain, and how scores, averages and designs behave."""

from querist.claims.effects import averages, customers, known, simulated

__all__ = ["CLAIMS"]

CLAIMS = (*simulated.SIMULATED, *customers.CUSTOMERS[:2], *averages.AVERAGES, *known.KNOWN, *customers.CUSTOMERS[2:])
