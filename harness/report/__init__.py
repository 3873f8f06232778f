"""Boards and figures, generated from records."""
