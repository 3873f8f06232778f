"""Metrics, judges and rewards: pure functions over a doc and a rollout."""

from harness.scoring.table import SCORERS, TaskScorer, fingerprint, task_scorer

__all__ = ["SCORERS", "TaskScorer", "fingerprint", "task_scorer"]
