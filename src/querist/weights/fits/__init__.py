"""Tail fits to a spectrum: power laws, alternatives, FARMS, ERG."""
