"""The questions of every room, asked of bundled inputs."""
