"""The Chinese high-speed-rail emergency plan with its published ranking, read from outside data."""
