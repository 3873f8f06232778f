"""Candidate questions for a page, by a model behind an OpenAI-compatible endpoint.

    free    one request a page: the model picks n answers and asks for them
    spans   one request a question: the answer is a clause of the page, dealt out beforehand, and
            the model writes the question alone; for models too weak for `free`

Replies are constrained to a JSON schema where the server can: `json_schema` on llama.cpp's
completions, `response_format` elsewhere. A server that refuses is asked for any JSON object, then
without a constraint. What comes back is parsed leniently and validated anyway
(`harness.building.checks`).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from harness.building.checks import REFERENCES, SHORTEST_QUESTION
from harness.engines.endpoint import Served, path_prefix
from harness.errors import EngineError
from harness.http import HttpClient, HttpError
from harness.schema import Model, Passage
from harness.scoring.text import CJK, THINK_TAGS, split_thinking, units

Answers = Literal["free", "spans"]
Form = Literal["chat", "completion"]
ANSWERS, FORMS = ("free", "spans"), ("chat", "completion")

ATTEMPTS = 3
"""Requests for a reply that holds no question."""
_LEVELS = ("schema", "object", "none")
_REFUSED = frozenset({400, 404, 415, 422, 501})
_TOKENS_A_QUESTION = 120
_CLAUSE = re.compile(r"[，。；：！？\n]|[,.;:!?]\s")
_SPAN_UNITS = (4, 40)
_HEADING = re.compile(r"#|第[零〇一二三四五六七八九十百\d]+[编章节]\s")
_NUMBER = re.compile(
    r"(?:第[零〇一二三四五六七八九十百千\d]+条|[（(][一二三四五六七八九十\d]+[）)]|\d+[.、)])\s*"
)
_HOLE = re.compile(r"\{(n|page|answer)\}")
_HAN = re.compile(f"[{CJK}]")


@dataclass(frozen=True, slots=True)
class Style:
    """How to ask; part of a build's identity."""

    questions: int = 15
    answers: Answers = "free"
    form: Form = "chat"
    temperature: float = 0.5
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A raw reply, and the answer that was given with the request ("" for `free`)."""

    text: str
    answer: str = ""


class Asker:
    """Asks one server.

    Args:
        client: Its root, as `harness.engines.endpoint.connect` makes it.
        model: The card that names the endpoint.
        served: What it serves.
        style: How to ask.
    """

    def __init__(self, client: HttpClient, model: Model, served: Served, style: Style) -> None:
        self._client = client
        self._prefix = path_prefix(model)
        self._served = served
        self._style = style
        self._level = 0

    async def ask(self, chunk: Passage) -> list[Reply]:
        """Raw replies for a page: one for `free`, one a question for `spans`.

        Raises:
            EngineError: The server failed, or refuses the request.
        """
        style = self._style
        if style.answers == "free":
            prompt = render(f"free_{style.form}", chunk.text, n=style.questions)
            schema = free_schema(style.questions)
            return [Reply(await self._reply(prompt, schema, style.questions, style.seed))]
        replies: list[Reply] = []
        for number, answer in enumerate(spans(chunk.text, style.questions)):
            prompt = render(f"span_{style.form}", chunk.text, answer=answer)
            text = await self._reply(prompt, SPAN_SCHEMA, 1, style.seed + number)
            replies.append(Reply(text, answer))
        return replies

    async def _reply(self, prompt: str, schema: Mapping[str, Any], n: int, seed: int) -> str:
        text = ""
        for attempt in range(ATTEMPTS):
            text = await self._once(prompt, schema, n, seed + 1_000_003 * attempt)
            if candidates(Reply(text)):
                break
        return text

    async def _once(self, prompt: str, schema: Mapping[str, Any], n: int, seed: int) -> str:
        style, chat = self._style, self._style.form == "chat"
        body: dict[str, Any] = {
            "model": self._served.name,
            "temperature": style.temperature,
            "max_tokens": _TOKENS_A_QUESTION * n,
            "seed": seed,
        }
        if chat:
            body["messages"] = [{"role": "user", "content": prompt}]
            if self._served.software:  # vLLM and llama.cpp: no thinking, as in the report
                body["chat_template_kwargs"] = {"enable_thinking": False}
        else:
            body |= {"prompt": prompt, "stop": ["\n\n"]}
        path = f"{self._prefix}/{'chat/' if chat else ''}completions"
        while True:
            level = self._level
            try:
                reply = await self._client.request_json(
                    "POST", path, body | self._constraint(schema), complaint=_complaint
                )
                return _content(reply)
            except HttpError as error:
                if error.status not in _REFUSED or level + 1 >= len(_LEVELS):
                    raise
                self._level = max(self._level, level + 1)  # another request may have been faster

    def _constraint(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        level = _LEVELS[self._level]
        if level == "none":
            return {}
        if self._served.software == "llamacpp" and self._style.form == "completion":
            return {"json_schema": schema if level == "schema" else {"type": "object"}}
        if level == "object":
            return {"response_format": {"type": "json_object"}}
        named = {"name": "questions", "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": named}}


def free_schema(n: int) -> dict[str, Any]:
    """JSON schema of n questions with their answers."""
    item = {
        "type": "object",
        "properties": {"question": {"type": "string"}, "answer": {"type": "string"}},
        "required": ["question", "answer"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"questions": {"type": "array", "items": item, "minItems": n, "maxItems": n}},
        "required": ["questions"],
        "additionalProperties": False,
    }


SPAN_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "question": {
            "type": "string",
            "pattern": f'^[^？?"\\\\]{{{SHORTEST_QUESTION},60}}[？?]$',
        }
    },
    "required": ["question"],
    "additionalProperties": False,
}
"""JSON schema of one question."""


def spans(page: str, n: int) -> list[str]:
    """At most n clauses of a page to ask for, spread over it, each once.

    Headings and references ("in one of the following cases") are no answers, and numbers of
    articles and items no part of one.
    """
    shortest, longest = _SPAN_UNITS
    lines = [line for line in page.splitlines() if not _HEADING.match(line.strip())]
    parts = [c.strip() for line in lines for c in _CLAUSE.split(line)]
    clauses = dict.fromkeys(_NUMBER.sub("", c, count=1) if _NUMBER.match(c) else c for c in parts)
    fit = [c for c in clauses if shortest <= len(units(c)) <= longest and not REFERENCES.search(c)]
    if len(fit) <= n:
        return fit
    return [fit[i * len(fit) // n] for i in range(n)]


@cache
def _prompts() -> dict[str, dict[str, str]]:
    with (Path(__file__).parent / "prompts.toml").open("rb") as stream:
        return tomllib.load(stream)


def prompt_texts() -> dict[str, dict[str, str]]:
    """Every prompt, by language and name: part of a build's identity."""
    return _prompts()


def prompt_questions() -> list[str]:
    """Questions that the prompts show as examples; a weak model copies them."""
    texts = [text for prompts in _prompts().values() for text in prompts.values()]
    shown = [c for text in texts for c in candidates(Reply(text))]
    return [str(c["question"]) for c in shown]


def render(name: str, page: str, *, n: int = 0, answer: str = "") -> str:
    """A prompt in the page's language; text of the page cannot fill placeholders."""
    language = "zh" if len(_HAN.findall(page)) * 4 > len(page) else "en"
    values = {"n": str(n), "page": page, "answer": answer}
    return _HOLE.sub(lambda hole: values[hole[1]], _prompts()[language][name])


def candidates(reply: Reply) -> list[dict[str, Any]]:
    """Every question of a reply, also of one that is cut short or wrapped in prose."""
    text = split_thinking(reply.text, THINK_TAGS)[1]
    found: list[dict[str, Any]] = []
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1  # an object that is cut short: those inside it may be whole
        else:
            found += _questions(value)
        at = text.find("{", end)
    return [item | ({"answer": reply.answer} if reply.answer else {}) for item in found]


def _questions(value: Any) -> list[dict[str, Any]]:
    item = cast("dict[str, Any]", value)
    if "question" in item:
        return [item]
    lists: Sequence[Any] = [v for v in item.values() if isinstance(v, list)]
    return [i for each in lists for i in each if isinstance(i, dict)]


def _complaint(reply: Any) -> str:
    """What is wrong with a reply's shape, "" for nothing."""
    try:
        _content(reply)
    except EngineError as error:
        return str(error)
    return ""


def _content(reply: Any) -> str:
    try:
        choice = reply["choices"][0]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise EngineError("the reply has no text") from None
    if not isinstance(text, str):
        raise EngineError("the reply has no text")
    return text
