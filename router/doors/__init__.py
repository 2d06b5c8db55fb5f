"""Doors: where questions come in. Each parses once and makes one call into the line."""
