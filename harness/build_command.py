"""`build`: a benchmark from a document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from harness.arguments import BuildArgs
from harness.building.ask import ANSWERS, FORMS, Answers, Form, Style
from harness.building.builder import Outcome, ask_all, finish, identity, write
from harness.building.checks import Question
from harness.building.documents import read_document
from harness.building.folder import Folder
from harness.building.split import HOWS, How
from harness.errors import UsageError, nearest
from harness.progress import Progress
from harness.retrieval import RETRIEVERS
from harness.schema import Model


def build_command(args: BuildArgs) -> int:
    """Build, print the figures; the same command resumes after a kill."""
    _check(args)
    progress = Progress()
    document = read_document(Path(args.document), args.page_chars, skip_empty=args.skip_empty)
    left = f", {len(document.skipped)} without text left out" if document.skipped else ""
    progress.say(f"{document.name}: {len(document.chunks)} pages{left}")
    flags = {"endpoint": args.endpoint, "timeout": args.timeout}
    model = Model("build", "openai", flags=flags | ({"model": args.served} if args.served else {}))
    from harness.engines.endpoint import find

    served = find(model)
    answers, form = cast("Answers", args.answers), cast("Form", args.form)
    style = Style(args.questions, answers, form, args.temperature, args.seed)
    given = identity(document, served, style)
    folder = Folder(Path(args.out), given, fresh=args.fresh)
    try:
        ask_all(document, model, served, style, folder, args.requests, progress)
        outcome, _ = finish(document, folder, given, cast("How", args.split), args.sft, args.seed)

        def rows(questions: Sequence[Question]) -> list[dict[str, Any]]:
            from tasks.document_rag.rows import training_rows

            asked = [q.row() for q in questions]
            return training_rows(Path(args.out), asked, args.retriever)

        write(folder, outcome, given, rows)
    finally:
        folder.close()
    print(report(outcome, Path(args.out)))
    return 0


def report(outcome: Outcome, folder: Path) -> str:
    """What a build prints at its end."""
    s = outcome.split
    rejected = ", ".join(f"{reason} {count}" for reason, count in outcome.reasons.items())
    lines = [
        f"{outcome.pages} pages, {outcome.proposed} questions proposed, "
        f"{len(outcome.questions)} accepted ({outcome.acceptance:.1%})",
        f"rejected: {rejected or 'none'} (rejects.jsonl)",
        f"test {len(s.test)}, training {len(s.zero)} (SFT {len(s.sft)}, RL {len(s.rl)}; "
        f"Zero: all of it)",
        f"training questions that the test set asks too: {len(outcome.shared)}",
    ]
    lines += [f"  {reason}: {mine} repeats {other}" for reason, mine, other in outcome.shared]
    lines.append(f"evaluate: python -m harness eval tasks=document_rag data={folder} model=NAME")
    return "\n".join(lines)


def _check(args: BuildArgs) -> None:
    for key in ("document", "endpoint", "out"):
        if not getattr(args, key):
            raise UsageError(f"build needs {key}=: see python -m harness build --help")
    choices = {"answers": ANSWERS, "form": FORMS, "split": HOWS, "retriever": tuple(RETRIEVERS)}
    for key, known in choices.items():
        value = str(getattr(args, key))
        if value not in known:
            raise UsageError(f"{key}={value}: {nearest(value, known)}")
    for key, least in (("questions", 1), ("requests", 1), ("sft", 1), ("page_chars", 0)):
        if getattr(args, key) < least:
            raise UsageError(f"{key}={getattr(args, key)}: must be at least {least}")
    if not 0 <= args.temperature <= 2:
        raise UsageError(f"temperature={args.temperature}: must be between 0 and 2")
