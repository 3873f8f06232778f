"""Intervals, paired tests, power and the gate: pure functions over numbers."""
