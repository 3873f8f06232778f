"""What the verbs share about judges: opening the one asked for, showing where two differ."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from harness.arguments import EvalArgs, RescoreArgs
from harness.errors import UsageError, nearest
from harness.models import model_names
from harness.records import RecordSet
from harness.report.judges import audit, short, write_disagreements
from harness.store import Store

if TYPE_CHECKING:
    from harness.judges import OpenJudge


def print_judges(run: Path, sets: Iterable[RecordSet]) -> None:
    """Where two judges ran: print how far they agree, and write what they differ on."""
    for records in sets:
        for found in audit([records]):
            for a in [row.found for row in found.rows if row.found is not None]:
                kappa = "undefined" if a.kappa is None else f"{a.kappa:.2f}"
                print(
                    f"judges on {found.task}, {found.question}: {short(found.judge)} against "
                    f"{short(found.reference)}: kappa {kappa}, {a.both + a.neither} of {a.n} "
                    f"alike, {a.judge_only} right for the first alone, {a.reference_only} for the "
                    "second"
                )
            if found.doubt:
                print(
                    f"judge {short(found.judge)} on {found.task}, {found.question}: not to be "
                    f"trusted, {found.doubt}"
                )
    with Store.open(run) as store:
        path, count = write_disagreements(store)
    if count:
        print(f"judges differ on {count} samples: {path}")


def judge_named(args: EvalArgs | RescoreArgs) -> tuple[str, bool]:
    """The LLM judge that the arguments name ("" for none), and whether it decides.

    Raises:
        UsageError: The judge is unknown, or its keys are given without it.
    """
    from harness.judges import DETERMINISTIC, parse_judge
    from harness.rescore import JUDGE

    stored = isinstance(args, RescoreArgs)
    name, decides = parse_judge("" if stored and args.judge in JUDGE else args.judge)
    if name:
        known = model_names(Path(args.baselines))
        if "/" not in name and name not in known:
            names = [*known, *(JUDGE if stored else [DETERMINISTIC])]
            raise UsageError(f"judge={name}: {nearest(name, names)}")
        return name, decides
    for key in ("judge_endpoint", "judge_served", "judge_prompt"):
        if getattr(args, key):
            raise UsageError(f"{key}= needs judge=NAME: the card of the judge")
    return "", False


def judge_of(args: EvalArgs | RescoreArgs) -> AbstractContextManager[OpenJudge | None]:
    """The LLM judge that the arguments name, opened; None inside where they name none.

    Raises:
        UsageError: As for `judge_named`.
    """
    from harness.judges import open_judge

    name, decides = judge_named(args)
    if not name:
        return nullcontext()
    return open_judge(
        name,
        args.judge_endpoint,
        args.judge_served,
        decides=decides,
        prompt=args.judge_prompt,
        fresh=isinstance(args, RescoreArgs) and args.fresh,
        out=Path(args.out),
        baselines=Path(args.baselines),
    )
