"""The scorer of programs: find the code in an output, run it in the sandbox, count what passes.

The judge runs the data set's tests (`harness.scoring.sandbox.check`); its verdict is stored, so
that scoring again runs nothing. A sandbox that cannot start gives no verdict: unscored, never
zero.

Fields read from `Doc`: question (the prompt: imports, helpers, signature, docstring), meta
entry_point (function under test) and test (source that defines `check(candidate)`).

Where the code is, in this order, thinking taken off:

    1. the last fenced block that defines the entry point
    2. unfenced text from the line on that defines it, its imports and helpers included
    3. the last fenced block: a body, set under the prompt
    4. without any fence: the text as a completion of the prompt, cut at the original's stops
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from typing import Literal

from harness.errors import UsageError
from harness.schema import Doc, Rollout, Score, Verdict
from harness.scoring import degenerate, sandbox
from harness.scoring.bubblewrap import SandboxError
from harness.scoring.text import THINK_TAGS, split_thinking

__all__ = ["JUDGE", "METRICS", "REASONS", "UNSAFE_JUDGE", "VERSION", "extract", "judge",
           "require_sandbox", "score", "unsafe_judge"]  # fmt: skip

VERSION = 1
JUDGE = "sandbox@1"
UNSAFE_JUDGE = "unsafe@1"
SLOW = True
"""The judge takes long: it runs beside generation, in threads that wait for processes."""

METRICS = {"pass": True, "format": True, "output_tokens": False, "degenerate": False}

STOPS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
"""Where a completion ends. Source: Chen et al., arXiv:2107.03374, section 2.1."""

CODE_REASONS = (
    "no_code",
    "syntax_error",
    "missing_function",
    "runtime_error",
    "wrong_answer",
    "timeout",
    "memory",
    "exited_early",
)
REASONS = degenerate.REASONS + CODE_REASONS
"""Every reason this scorer can give, in the order in which it gives them."""

Kind = Literal["block", "text", "body", "completion", "none"]

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[`~]*[ \t]*$|\Z)",
                    re.MULTILINE | re.DOTALL)  # fmt: skip
_LANGUAGES = frozenset({"", "python", "py", "python3", "py3"})
_FUTURE = re.compile(r"^from __future__ import [^\n]*\n?", re.MULTILINE)
_TOP = re.compile(r"^(?:from\s+\S+\s+import\b|import\s+\w|def\s+\w|class\s+\w|@\w|async\s+def\b)",
                  re.MULTILINE)  # fmt: skip


def extract(text: str, prompt: str, entry: str) -> tuple[str, Kind]:
    """The program in an output, as one source text, by the rules in the module's docstring.

    The prompt stands in front of every program: it brings the imports and helpers that a
    restated function may leave out, and a restated function replaces its stub.

    Args:
        text: Raw output, thinking taken off.
        prompt: Signature and docstring, a program by itself.
        entry: Name of the function under test.

    Returns:
        (program, where it was found); ("", "none") if there is no code.
    """
    blocks = [_Block(m) for m in _FENCE.finditer(text)]
    python = [b for b in blocks if b.language in _LANGUAGES and b.code.strip()]
    for block in reversed(python):
        if _defines(block.code, entry):
            return _after(prompt, block.code), "block"
    if not blocks and _defines(text, entry):
        start = _TOP.search(text)
        return _after(prompt, text[start.start() if start else 0 :]), "text"
    if python:
        return _under(prompt, python[-1].code), "body"
    if blocks or not text.strip():
        return "", "none"
    return _under(prompt, cut(text)), "completion"


def cut(text: str) -> str:
    """A completion up to the first of the original's stop sequences; idempotent."""
    ends = [at for stop in STOPS if (at := text.find(stop)) >= 0]
    return text[: min(ends, default=len(text))]


class _Block:
    """A fenced block; one that is never closed ends with the text."""

    def __init__(self, match: re.Match[str]) -> None:
        self.language = match[2].lower()
        self.code = textwrap.dedent(match[3])


def _defines(code: str, entry: str) -> bool:
    return re.search(rf"^(?:async\s+)?def\s+{re.escape(entry)}\s*\(", code, re.M) is not None


def _after(prompt: str, code: str) -> str:
    return f"{prompt.rstrip()}\n\n\n{_FUTURE.sub('', code)}"


def _under(prompt: str, body: str) -> str:
    """The body below the signature, indented if it is not."""
    first = next((line for line in body.splitlines() if line.strip()), "")
    if first and not first[0].isspace():
        body = textwrap.indent(body, "    ")
    return f"{prompt.rstrip()}\n{body}"


def require_sandbox() -> str:
    """Refuse before anything is generated where programs cannot be contained.

    Returns:
        What is weaker here than it could be, in one line; "" for nothing.

    Raises:
        UsageError: One line: why, and how to install it.
    """
    why = sandbox.unavailable()
    if why:
        raise UsageError(f"this task runs programs that the model writes, and {why}: "
                         f"{sandbox.INSTALL}")  # fmt: skip
    try:
        alone = sandbox.ungrouped()
    except SandboxError as error:
        alone = str(error)
    if not alone:
        return ""
    return (
        f"no control group holds a program's processes together ({alone}): memory is limited for "
        "each of them alone"
    )


def judge(doc: Doc, rollout: Rollout, think_tags: tuple[str, str] | None = THINK_TAGS) -> Verdict:
    """Run the tests on an output's program, in the sandbox.

    Returns:
        Values {"passed": bool}, or None where the sandbox failed; `raw` is a JSON object with
        reason, detail and kind.
    """
    return _judge(doc, rollout, think_tags, unsafe=False)


def unsafe_judge(
    doc: Doc, rollout: Rollout, think_tags: tuple[str, str] | None = THINK_TAGS
) -> Verdict:
    """The same without bubblewrap: the user asked for it with unsafe_code=true."""
    return _judge(doc, rollout, think_tags, unsafe=True)


def _judge(
    doc: Doc, rollout: Rollout, think_tags: tuple[str, str] | None, *, unsafe: bool
) -> Verdict:
    name = UNSAFE_JUDGE if unsafe else JUDGE
    entry, test = str(doc.meta["entry_point"]), str(doc.meta["test"])
    _, visible, _ = split_thinking(rollout.answer, think_tags)
    program, kind = extract(visible, doc.question, entry)
    if kind == "none":
        return Verdict(name, {"passed": False}, _raw("no_code", "", kind))
    try:
        found = sandbox.check(program, entry=entry, setup=doc.question, test=test, unsafe=unsafe)
    except SandboxError as error:
        return Verdict(name, None, _raw("", str(error), kind))
    return Verdict(name, {"passed": found.passed}, _raw(found.reason, found.detail, kind))


def _raw(reason: str, detail: str, kind: Kind) -> str:
    return json.dumps({"reason": reason, "detail": detail, "kind": kind}, ensure_ascii=False)


def score(
    doc: Doc,
    rollout: Rollout,
    verdicts: Sequence[Verdict],
    think_tags: tuple[str, str] | None = THINK_TAGS,
) -> Score:
    """Score one rollout from its verdict; nothing is run.

    Args:
        doc: Read as in `judge`.
        rollout: An errored one gets no metric at all.
        verdicts: The first one decides; without its values `pass` is absent, never zero.
        think_tags: Tags of the reasoning.

    Returns:
        pass: the tests passed and the output is usable (`harness.scoring.degenerate`; loops are
        looked for in the prose only, as code repeats itself); format: the code stood in a closed
        fence or was a plain completion; output_tokens; degenerate.
    """
    if rollout.error is not None or rollout.finish == "error":
        return Score({})
    _, visible, _ = split_thinking(rollout.answer, think_tags)
    _, kind = extract(visible, doc.question, str(doc.meta["entry_point"]))
    trouble = _trouble(rollout, visible, kind, think_tags)
    metrics = {"format": float(_well_formed(visible, kind)), "degenerate": float(bool(trouble))}
    if rollout.completion_tokens is not None:
        metrics["output_tokens"] = float(rollout.completion_tokens)
    given = set(trouble)
    verdict = verdicts[0] if verdicts else None
    if verdict is not None and verdict.values is not None:
        passed = bool(verdict.values["passed"])
        metrics["pass"] = float(passed and not trouble)
        if not passed:
            given.add(_reason(verdict.raw))
    return Score(metrics, tuple(r for r in REASONS if r in given))


def _trouble(
    rollout: Rollout, visible: str, kind: Kind, think_tags: tuple[str, str] | None
) -> tuple[str, ...]:
    found = set(degenerate.reasons(rollout.answer, rollout.finish, think_tags))
    prose = "" if kind in ("completion", "text") else _FENCE.sub("\n", visible)
    if not degenerate.repeats(prose) and "unclosed_think" not in found:
        found.discard("repeated_output")
    if not degenerate.opens_new_turn(prose):
        found.discard("over_output")
    return tuple(r for r in degenerate.REASONS if r in found)


def _well_formed(visible: str, kind: Kind) -> bool:
    if kind == "completion":
        return True
    return kind in ("block", "body") and all(
        m[0].rstrip().endswith(m[1]) and len(m[0].rstrip()) > len(m[1]) + 1
        for m in _FENCE.finditer(visible)
    )


def _reason(raw: str) -> str:
    try:
        reason = str(json.loads(raw)["reason"])
    except (ValueError, KeyError, TypeError):
        return "wrong_answer"
    return reason if reason in CODE_REASONS else "wrong_answer"
