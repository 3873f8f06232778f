"""AIME 2024 and 2025."""
