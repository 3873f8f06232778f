"""The listings: tasks, models, retrievers, encoders. Nothing heavy is imported."""

from __future__ import annotations

from pathlib import Path

from harness import paths
from harness.arguments import ListArgs
from harness.catalog import catalog
from harness.models import CARD, load_card, model_names


def print_table(rows: list[tuple[str, ...]], header: tuple[str, ...]) -> None:
    """Print rows under a header, columns aligned."""
    widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())


def tasks_command(args: ListArgs) -> int:
    """Print every task and group with version, policy and scorer."""
    rows: list[tuple[str, ...]] = []
    for name, entry in sorted(catalog(paths.TASKS).items()):
        if entry.members:
            rows.append((name, "group", "", "", ", ".join(entry.members)))
        else:
            meta = entry.metadata
            rows.append(
                (
                    name,
                    f"v{meta.get('version', 0)}",
                    str(meta.get("policy", "single_turn")),
                    str(meta.get("scorer", "")),
                    str(meta.get("about", "")),
                )
            )
    print_table(rows, ("task", "version", "policy", "scorer", "about"))
    return 0


def models_command(args: ListArgs) -> int:
    """Print every model card."""
    folder = Path(args.baselines)
    rows: list[tuple[str, ...]] = []
    for name in model_names(folder):
        model = load_card(folder / name / CARD)
        rows.append((name, model.engine, model.parent, ", ".join(model.tasks), model.note))
    print_table(rows, ("model", "engine", "parent", "tasks", "note"))
    return 0


def retrievers_command(args: ListArgs) -> int:
    """Print every retriever."""
    from harness.retrieval import RETRIEVERS

    print_table([(name, about) for name, about in RETRIEVERS.items()], ("retriever", "about"))
    return 0


def encoders_command(args: ListArgs) -> int:
    """Print every encoder."""
    from harness.retrieval.encoders import ENCODERS

    print_table([(name, about) for name, about in ENCODERS.items()], ("encoder", "about"))
    return 0


def policies_command(args: ListArgs) -> int:
    """Print every policy, what it does and its options."""
    from harness.rollouts import POLICIES, policy
    from harness.rollouts.options import option_names

    rows = [
        (
            name,
            (policy(name).__doc__ or "").partition("\n")[0],
            ", ".join(option_names(policy(name))),
        )
        for name in sorted(POLICIES)
    ]
    print_table(rows, ("policy", "about", "options"))
    return 0
