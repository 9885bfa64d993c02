"""Figures of the room, a module per subject; each is drawn from one table."""
