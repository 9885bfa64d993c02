"""Studies of the room, a module per command and the parts it is made of."""
