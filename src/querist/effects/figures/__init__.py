"""Figures of the room, a module per command."""
