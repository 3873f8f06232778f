"""Metrics, judges and rewards: pure functions over a doc and a rollout."""
