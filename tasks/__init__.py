"""Benchmarks: one folder each, with its YAML, its rows and a README."""
