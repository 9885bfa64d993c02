"""One module per command of the room."""
