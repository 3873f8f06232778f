"""KMMLU: 45 Korean subjects."""
