"""Run folders and in-memory results become pages for people."""
