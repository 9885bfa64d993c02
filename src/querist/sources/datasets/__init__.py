"""Data sets known by name: where each lies, its licence, its checksum."""
