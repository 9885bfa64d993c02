"""Ratios to a named limit and to named peers, measured in one run on one thread."""
