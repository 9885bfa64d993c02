"""Studies of the room, a module per command."""
