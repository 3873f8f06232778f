"""The verbs of training: list recipes, train, report. The trainers themselves are in trainers/."""

from __future__ import annotations

from harness.cli import ListArgs
from harness.listings import print_table


def recipes_command(args: ListArgs) -> int:
    """Print every recipe."""
    from trainers.recipe import load_recipe, recipe_names

    rows = [
        (r.name, r.base, r.makes, r.algorithm, r.backend, r.about)
        for r in map(load_recipe, recipe_names())
    ]
    print_table(rows, ("recipe", "base", "makes", "algorithm", "back end", "about"))
    return 0
