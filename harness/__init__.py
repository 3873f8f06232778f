"""Checkrail runs an evaluation; it knows nothing of any one benchmark."""
