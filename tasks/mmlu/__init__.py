"""MMLU: 57 subjects."""
