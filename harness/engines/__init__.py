"""Engines: one module per way to run a model."""
