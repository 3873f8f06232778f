r"""A judge that is a model: its prompt, how a prediction is quoted in it, how its reply is read.

    judge = LLMJudge("DeepSeek-V3.2", revision, prompt("railway"), ask, VerdictCache())
    verdict = judge.verdict({"question": ..., "gold_answer": ..., "pred_answer": ..., ...})

Whatever a prediction says is data. `quote` writes it as one JSON string on one line, with
everything escaped that could end it or that chat templates read as a mark of their own
(<|im_end|>, </think>, [INST]), so no prediction can change the structure of the prompt, down to
the token ids. A model may still believe what it reads there; the audit of judges is for that.

A reply is read strictly: one JSON object with the values asked for, each 0, 1, true or false (or
the one word True or False), and nothing else but thinking in front and a code fence around. A
reply that is anything else is asked for once more; then the sample is unscored, never zero.

The engine is handed in as a function, so nothing here knows of servers.
"""

from __future__ import annotations

import json
import re
import threading
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from harness.codec import dumps, sampling_to_json, sha
from harness.errors import EngineError, UsageError, nearest
from harness.schema import Completion, Doc, Message, Rollout, Sampling, Verdict
from harness.scoring.text import split_thinking
from harness.scoring.verdict_cache import VerdictCache

FILE = Path(__file__).with_name("judges.toml")
PREFIX = "llm:"
"""How the name of an LLM judge begins in a verdict."""

SAMPLING = Sampling(temperature=0.0, max_tokens=1024)
GIVE_UP_AFTER = 32
"""Failed requests in a row, with no reply between: then the judge is down and not asked again."""

Ask = Callable[[tuple[Message, ...], Sampling], Completion]
Fields = Callable[[Doc, Rollout], Mapping[str, str]]

_FIELD = re.compile(r"\{([a-z_]+)\}")
_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n\s*```\Z", re.DOTALL)
_MARKS = re.compile(r"<(?!/?(?:answer|page)>)|\[(?=/?[A-Z_]+\])")
_STRIPES = 1024  # locks over keys: the same question at the same moment is asked once


@dataclass(frozen=True, slots=True)
class JudgePrompt:
    """A prompt of judges.toml.

    Attributes:
        user: Its text, with {fields}.
        repair: What is added where a reply could not be read.
        reads: Form of the reply.
        values: Names of the values that a reply gives.
        source: Where it is from.
    """

    name: str
    user: str
    repair: str
    reads: Literal["json", "true_false"]
    values: tuple[str, ...]
    source: str

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of what is filled in, in order."""
        return tuple(_FIELD.findall(self.user))

    def fill(self, fields: Mapping[str, str]) -> str:
        """The prompt with every field quoted, in one pass: data cannot pull in other data.

        Raises:
            KeyError: A field is missing.
        """
        return _FIELD.sub(lambda match: quote(fields[match[1]]), self.user)


@cache
def prompts() -> dict[str, JudgePrompt]:
    """Every prompt, by name."""
    table = cast("dict[str, dict[str, Any]]", tomllib.loads(FILE.read_text(encoding="utf-8")))
    return {
        name: JudgePrompt(
            name, str(t["user"]).strip(), t["repair"], t["reads"], tuple(t["values"]), t["source"]
        )
        for name, t in table.items()
    }


def prompt(name: str) -> JudgePrompt:
    """A prompt by name.

    Raises:
        UsageError: There is none; the message gives the nearest ones.
    """
    if name not in prompts():
        raise UsageError(f"unknown judge prompt '{name}': {nearest(name, prompts())}")
    return prompts()[name]


def quote(text: str) -> str:
    r"""A text as one JSON string on one line; `json.loads` gives it back unchanged.

    Escaped beside what JSON wants: whatever is not printable, "<" but of the protocol's own tags,
    and "[" before a capitalised word in brackets.
    """
    encoded = json.dumps(text, ensure_ascii=False)
    encoded = _MARKS.sub(lambda match: f"\\u{ord(match[0]):04x}", encoded)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in encoded)


def read(prompt: JudgePrompt, reply: str) -> Mapping[str, bool] | str:
    """The values of a reply, or what is wrong with it."""
    text = reply.strip()
    if prompt.reads == "true_false":
        word = text.strip("*`\"'. ").lower()
        if word not in ("true", "false"):
            return "neither True nor False"
        return {prompt.values[0]: word == "true"}
    fenced = _FENCE.match(text)
    try:
        found: Any = json.loads(fenced[1] if fenced else text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        return f"no JSON ({type(error).__name__})"
    if not isinstance(found, dict):
        return "no JSON object"
    values: dict[str, bool] = {}
    for name in prompt.values:
        value: object = cast("dict[str, object]", found).get(name)
        if not isinstance(value, (bool, int)) or value not in (0, 1):
            return f"'{name}' is missing or neither 0 nor 1"
        values[name] = bool(value)
    return values


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name stands twice")
    return dict(pairs)


# --- verdicts ---------------------------------------------------------------------------------


def is_llm(verdict: Verdict) -> bool:
    """Whether an LLM gave this verdict: it cost something, so it is kept."""
    return verdict.judge.startswith(PREFIX)


def answered(verdict: Verdict) -> bool:
    """Whether the judge answered, be it uselessly; False where it could not be reached."""
    if verdict.values is not None:
        return True
    try:
        return "error" not in json.loads(verdict.raw)
    except (ValueError, TypeError):
        return False


@dataclass(slots=True)
class Tally:
    """What judging cost, over all tasks of an invocation; all numbers are counts.

    Attributes:
        asked: Verdicts that were wanted.
        cached: Of them, taken from the cache.
        calls: Requests that the judge answered.
        repaired: Verdicts that came at the second attempt.
        unscored: Verdicts that could not be read.
        failed: Verdicts that did not come: the judge could not be reached.
    """

    asked: int = 0
    cached: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    repaired: int = 0
    unscored: int = 0
    failed: int = 0
    in_a_row: int = 0
    last_error: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, **counts: int) -> None:
        """Add to some counts, from any thread."""
        with self.lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def __str__(self) -> str:
        scored = self.asked - self.unscored - self.failed
        share = f" ({100 * scored / self.asked:.1f}%)" if self.asked else ""
        parts = [
            f"{scored} of {self.asked} verdicts{share}",
            f"{self.cached} from the cache",
            f"{self.calls} calls",
            f"{self.prompt_tokens:,} prompt and {self.completion_tokens:,} new tokens",
        ]
        for count, text in (
            (self.repaired, "repaired"),
            (self.unscored, "unreadable, so unscored"),
            (self.failed, f"failed ({self.last_error})"),
        ):
            if count:
                parts.append(f"{count} {text}")
        return ", ".join(parts)


class LLMJudge:
    """Asks a model for verdicts, through a cache.

    Args:
        judge: The model's name.
        revision: What is behind the name: a fingerprint of engine and weights.
        prompt: One of judges.toml.
        ask: Sends messages to the model and waits; called from several threads.
        cache: Keyed by judge, revision, prompt, parameters and every field of the prompt
            (question, gold, prediction).
        fields: Gives the prompt's fields of a doc and a rollout, for calling the judge.
        sampling: Temperature 0 unless told otherwise.
        think_tags: The judge's own.
        tally: Counts; shared between the judges of several tasks.
        workers: Verdicts at a time.
        fresh: Ask again what the cache holds.

    Attributes:
        name: Stands in verdicts: judge, prompt, and a hash of all that the cache is keyed by
            but the fields.
    """

    def __init__(
        self,
        judge: str,
        revision: str,
        prompt: JudgePrompt,
        ask: Ask,
        cache: VerdictCache,
        fields: Fields | None = None,
        *,
        sampling: Sampling = SAMPLING,
        think_tags: tuple[str, str] | None = None,
        tally: Tally | None = None,
        workers: int = 16,
        fresh: bool = False,
    ) -> None:
        self._prompt = prompt
        self._ask = ask
        self._cache = cache
        self._fields = fields
        self._sampling = sampling
        self._tags = think_tags
        self._fresh = fresh
        self._key = [judge, revision, prompt.user, prompt.repair, sampling_to_json(sampling)]
        self._stripes = [threading.Lock() for _ in range(_STRIPES)]
        self.tally = tally or Tally()
        self.workers = workers
        self.fresh = fresh
        self.name = f"{PREFIX}{judge}/{prompt.name}@{sha(self._key)[:8]}"

    def __call__(self, doc: Doc, rollout: Rollout) -> Verdict:
        """Judge a rollout."""
        if self._fields is None:
            raise TypeError(f"{self.name}: nothing says which fields to fill in")
        return self.verdict(self._fields(doc, rollout))

    def verdict(self, fields: Mapping[str, str]) -> Verdict:
        """Judge the fields of a prompt; one that could not be had has values None."""
        asked = {name: fields[name] for name in self._prompt.fields}
        key = sha([*self._key, asked])
        self.tally.add(asked=1)
        with self._stripes[int(key[:8], 16) % _STRIPES]:
            if self._fresh:
                self._cache.forget(key)
            found = self._cache.get(key)
            if found is not None:
                self.tally.add(cached=1)
            else:
                found = self._judge(asked)
                if answered(found):
                    self._cache.put(key, found)
        if found.values is None:
            self.tally.add(**({"unscored": 1} if answered(found) else {"failed": 1}))
        return found

    def _judge(self, fields: Mapping[str, str]) -> Verdict:
        text = self._prompt.fill(fields)
        replies: list[str] = []
        spent = {"calls": 0, "prompt_tokens": 0, "completion_tokens": 0}
        problem = ""
        for request in (text, f"{text}\n\n{self._prompt.repair}"):
            try:
                reply = self._send(request)
            except EngineError as error:
                return Verdict(self.name, None, dumps({"error": str(error), **spent}))
            used = {
                "calls": 1,
                "prompt_tokens": reply.prompt_tokens,
                "completion_tokens": reply.completion_tokens or 0,
            }
            self.tally.add(**used)
            spent = {name: count + used[name] for name, count in spent.items()}
            if reply.finish == "context":
                problem = "the prompt is longer than the judge's context"
                break
            replies.append(reply.text)
            values = read(self._prompt, split_thinking(reply.text, self._tags)[1])
            if not isinstance(values, str):
                self.tally.add(repaired=len(replies) - 1)
                return Verdict(self.name, values, dumps({"replies": replies, **spent}))
            problem = values
        return Verdict(self.name, None, dumps({"replies": replies, "problem": problem, **spent}))

    def _send(self, text: str) -> Completion:
        tally = self.tally
        if tally.in_a_row >= GIVE_UP_AFTER:
            raise EngineError(f"the judge is down: {tally.last_error}")
        try:
            reply = self._ask((Message("user", text),), self._sampling)
        except EngineError as error:
            with tally.lock:
                tally.in_a_row += 1
                tally.last_error = str(error)
            raise
        tally.in_a_row = 0
        return reply


@dataclass(frozen=True, slots=True)
class AbsentJudge:
    """Stands for a judge that cannot be asked here: only its stored verdicts count."""

    name: str
    workers: int = 1
    fresh: bool = False

    def __call__(self, doc: Doc, rollout: Rollout) -> Verdict:
        """No verdict."""
        reason = "no verdict is stored, and judge=NAME was not given to ask for one"
        return Verdict(self.name, None, dumps({"error": reason}))
