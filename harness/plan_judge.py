"""What an LLM judge will be asked by an evaluation that `plan` looks at; none is asked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.arguments import PlanArgs
from harness.errors import StoreError, UsageError
from harness.forecast import guess_tokens
from harness.judge_commands import judge_named
from harness.models import load_model
from harness.records import RecordSet
from harness.schema import Doc, Rollout, Verdict
from harness.scoring.llm_judge import PREFIX, SAMPLING, JudgePrompt
from harness.scoring.llm_judge import prompt as find_prompt
from harness.scoring.table import Fields, judged_by_llm
from harness.stored import StoredRun

if TYPE_CHECKING:
    from harness.evaluate import Prepared
    from harness.lm import Prompt


@dataclass(frozen=True, slots=True)
class Judge:
    """Who will be asked.

    Attributes:
        name: Of its card.
        prompt: Name of a prompt; "" takes each scorer's own.
        longest: Tokens a reply may take.
    """

    name: str
    prompt: str
    longest: int

    def of(self, scorer: str) -> tuple[JudgePrompt, Fields] | None:
        """What a scorer's docs are judged by; None where no LLM judges."""
        found = judged_by_llm(scorer)
        return (find_prompt(self.prompt or found[0]), found[1]) if found else None

    def gave(self, verdict: Verdict, prompt: str) -> bool:
        """Whether this judge gave a verdict, whatever was behind its name then."""
        return verdict.judge.startswith(f"{PREFIX}{self.name}/{prompt}@")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a judge is still to be asked for a task.

    Attributes:
        verdicts: Samples without its verdict; those of its cache are among them.
        prompt_tokens: Over all of them.
        new_tokens: Likewise; None where no earlier verdict tells.
    """

    verdicts: int
    prompt_tokens: float
    new_tokens: float | None


def judge_to_ask(args: PlanArgs) -> Judge | None:
    """The LLM judge that the arguments name.

    Raises:
        UsageError: As when it is opened.
    """
    name, _ = judge_named(args)
    if not name:
        return None
    if args.judge_prompt:
        find_prompt(args.judge_prompt)
    model = load_model(name, Path(args.baselines))
    longest = int(model.sampling.get("max_tokens", SAMPLING.max_tokens))
    return Judge(model.name, args.judge_prompt, longest)


def asked_of(
    judge: Judge,
    prepared: Prepared,
    prompts: Mapping[str, Sequence[Prompt]],
    new_tokens: Mapping[str, float],
    sets: Sequence[RecordSet],
) -> dict[str, Asked]:
    """What the judge is still to be asked, by task; tasks that no LLM judges are left out.

    Args:
        judge: From `judge_to_ask`.
        prepared: The evaluation.
        prompts: Its prompts, by task.
        new_tokens: Expected tokens of one output, by task.
        sets: Stored runs and frozen baselines: what earlier verdicts took.

    Raises:
        UsageError: No LLM judges any of the tasks.
    """
    found: dict[str, Asked] = {}
    for task, asked in prompts.items():
        plan = prepared.plans[task]
        by = judge.of(plan.scorer.name)
        if by is None:
            continue
        prompt, fields = by
        docs = [p.stored.doc for p in asked]
        wanted = {(doc.id, repeat) for doc in docs for repeat in range(plan.repeats)}
        count = len(wanted - _judged(prepared, task, judge, prompt.name))
        spent = _spent(v for records in sets if records.task == task for d in records.docs
                       for s in d.samples for v in s.verdicts
                       if judge.gave(v, prompt.name))  # fmt: skip
        if spent is None:
            each = _guess(prompt, fields, docs, new_tokens[task])
            found[task] = Asked(count, count * each, None)
        else:
            found[task] = Asked(count, count * spent[0], count * spent[1])
    if not found:
        raise UsageError(f"judge={judge.name}: no LLM judges any of {', '.join(prompts)}")
    return found


def told(judge: Judge, found: Mapping[str, Asked]) -> str:
    """One line about all tasks."""
    count = sum(a.verdicts for a in found.values())
    if not count:
        return f"judge {judge.name}: every verdict is stored"
    new = sum(a.new_tokens or 0 for a in found.values())
    known = all(a.new_tokens is not None for a in found.values() if a.verdicts)
    tokens = f"about {sum(a.prompt_tokens for a in found.values()):,.0f} prompt"
    if known:
        tokens += f" and {new:,.0f} new tokens, as its earlier verdicts took"
    else:
        tokens += f" tokens, by the number of characters, and at most {judge.longest} new ones each"
    return (
        f"judge {judge.name}: at most {count} verdicts to ask for, {tokens} (fewer where its cache "
        "has them; a reply that cannot be read is asked for twice)"
    )


def _judged(prepared: Prepared, task: str, judge: Judge, prompt: str) -> set[tuple[str, int]]:
    """Samples of the run that have the judge's verdict already."""
    if prepared.settings.fresh:
        return set()
    try:
        with StoredRun.open(prepared.folder) as run:
            if task not in run.tasks():
                return set()
            return {
                (record.doc_id, record.repeat)
                for record in run.records(task)
                if any(judge.gave(v, prompt) and v.values is not None for v in record.verdicts)
            }
    except StoreError:
        return set()  # no run yet


def _spent(verdicts: Iterable[Verdict]) -> tuple[float, float] | None:
    """Mean prompt and new tokens of verdicts that tell what they took."""
    spent: list[tuple[int, int]] = []
    for verdict in verdicts:
        try:
            raw = json.loads(verdict.raw)
            spent.append((int(raw["prompt_tokens"]), int(raw["completion_tokens"])))
        except (ValueError, KeyError, TypeError):
            continue
    if not spent:
        return None
    return sum(p for p, _ in spent) / len(spent), sum(n for _, n in spent) / len(spent)


def _guess(prompt: JudgePrompt, fields: Fields, docs: Sequence[Doc], new_tokens: float) -> float:
    """Prompt tokens of one verdict, from characters; the output is as long as is expected."""
    said = [guess_tokens(prompt.fill(fields(d, Rollout(d.id, 0, (), "")))) for d in docs]
    return sum(said) / max(1, len(said)) + new_tokens * ("output" in prompt.fields)
