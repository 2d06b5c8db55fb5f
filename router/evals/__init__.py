"""Measurements on anybody's data, through the unchanged line."""
