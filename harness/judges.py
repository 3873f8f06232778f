"""Opening LLM judges: a card, an engine, an event loop of its own, a cache beside the runs.

    with open_judge("DeepSeek-V3.2", endpoint="http://localhost:8000/v1") as judge:
        evaluate(model, Settings(tasks=("railway_rag",), judge=judge))

A judge is a model like any other, so its card is a model card (baselines/NAME/card.toml) and its
engine any engine; mostly it is behind a server.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from pathlib import Path

from harness import paths
from harness.codec import sha
from harness.engines import open_engine
from harness.errors import UsageError
from harness.models import at_endpoint, load_model
from harness.schema import Completion, Doc, Engine, Message, Model, Rollout, Sampling
from harness.scoring import TaskScorer
from harness.scoring.llm_judge import SAMPLING, LLMJudge, Tally
from harness.scoring.llm_judge import prompt as find_prompt
from harness.scoring.table import judged_by_llm, with_outside
from harness.scoring.verdict_cache import FILE, VerdictCache

DETERMINISTIC = "deterministic"
"""What `judge=` calls the judge that is code."""

DEFAULT_REQUESTS = 16


def parse_judge(text: str) -> tuple[str, bool]:
    """The LLM judge that `judge=` names ("" for none), and whether it decides.

    "NAME" decides, with the deterministic judge beside it; "deterministic,NAME" the other way
    round.

    Raises:
        UsageError: More than one LLM judge is named.
    """
    names = [part.strip() for part in text.split(",") if part.strip()]
    outside = [name for name in names if name != DETERMINISTIC]
    if len(outside) > 1:
        raise UsageError(f"judge={text}: one LLM judge at a time, beside '{DETERMINISTIC}'")
    return (outside[0], names[0] != DETERMINISTIC) if outside else ("", False)


class OpenJudge:
    """A judge that can be asked, for all tasks of an invocation.

    Args:
        model: Its card; sampling other than temperature 0 is the card's wish.
        engine: Serves it; closed with the judge.
        cache: Closed with the judge.
        decides: Whether its verdicts make the metrics.
        prompt: Name of a prompt (judges.toml); "" takes the scorer's own.
        fresh: Ask again what is stored or cached.

    Attributes:
        name: The card's.
        tally: What was asked and what it cost.
    """

    def __init__(
        self,
        model: Model,
        engine: Engine,
        cache: VerdictCache,
        *,
        decides: bool = True,
        prompt: str = "",
        fresh: bool = False,
    ) -> None:
        self.name = model.name
        self.tally = Tally()
        self._model = model
        self._engine = engine
        self._cache = cache
        self._decides = decides
        self._prompt = prompt
        self._fresh = fresh
        self._revision = sha([model.revision, engine.fingerprint])[:16]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="judge", daemon=True)
        self._thread.start()

    def judges(self, scorer: str) -> bool:
        """Whether a scorer of this name has use for an LLM judge."""
        return judged_by_llm(scorer) is not None

    def on(self, scorer: TaskScorer) -> TaskScorer:
        """The scorer with this judge; unchanged where no LLM judges.

        Raises:
            UsageError: The prompt does not exist, or wants what the scorer does not give.
        """
        found = judged_by_llm(scorer.name)
        if found is None:
            return scorer
        own, fields = found
        prompt = find_prompt(self._prompt or own)
        given = fields(Doc("", "", ()), Rollout("", 0, (), ""))
        missing = sorted(set(prompt.fields) - set(given))
        if missing:
            raise UsageError(
                f"judge_prompt={prompt.name} wants {', '.join(missing)}, which scorer "
                f"'{scorer.name}' does not have: its own is {own}"
            )
        judge = LLMJudge(
            self.name,
            self._revision,
            prompt,
            self._ask,
            self._cache,
            fields,
            sampling=_sampling(self._model),
            think_tags=self._model.think_tags,
            tally=self.tally,
            workers=self._model.parallelism.get("requests", DEFAULT_REQUESTS),
            fresh=self._fresh,
        )
        return with_outside(scorer, judge, decides=self._decides)

    def _ask(self, messages: tuple[Message, ...], sampling: Sampling) -> Completion:
        work = self._engine.generate(messages, sampling)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Free engine, cache and thread; idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=10)
            self._engine.close()
            self._cache.close()

    def __enter__(self) -> OpenJudge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sampling(model: Model) -> Sampling:
    known = {f.name for f in dataclasses.fields(Sampling)}
    given = {key: value for key, value in model.sampling.items() if key in known}
    return dataclasses.replace(SAMPLING, **given)


def open_judge(
    name: str,
    endpoint: str = "",
    served: str = "",
    *,
    decides: bool = True,
    prompt: str = "",
    fresh: bool = False,
    out: Path = paths.RUNS,
    baselines: Path = paths.BASELINES,
) -> OpenJudge:
    """Open a judge by the name of its card.

    Args:
        name: Of a card.
        endpoint: An OpenAI-compatible server in place of what the card names; its key is then in
            OPENAI_API_KEY.
        served: The server's name for the model.
        decides: As for `OpenJudge`.
        prompt: As for `OpenJudge`.
        fresh: As for `OpenJudge`.
        out: Folder of runs; the cache lies there.
        baselines: Folder of cards.

    Raises:
        UsageError: No such card, prompt or model behind the endpoint.
        EngineError: No server answers.
        StoreError: The cache cannot be used.
    """
    if prompt:
        find_prompt(prompt)
    model = load_model(name, baselines)
    if endpoint or served:
        own = {} if endpoint else dict(model.flags)
        kept = {key: model.flags[key] for key in ("timeout", "retries") if key in model.flags}
        model = at_endpoint(
            dataclasses.replace(model, engine="openai", flags={**own, **kept}), endpoint, served
        )
    engine = open_engine(model)
    try:
        cache = VerdictCache(out / FILE)
    except BaseException:
        engine.close()
        raise
    return OpenJudge(model, engine, cache, decides=decides, prompt=prompt, fresh=fresh)
