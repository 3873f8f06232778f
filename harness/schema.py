"""Every dataclass and protocol of the harness: read this file first.

The path of one sample, in these types:

    Model, Doc --policy--> Rollout --judge--> Verdict --scorer--> Score   = one Record
    records of a checkpoint + records of a baseline --> Comparison

A *policy* is a plain generator: it yields `Generate`, `LogLikelihood`, `Retrieve` or `Embed`,
is sent the result, and returns a `Rollout`. It holds no engine, tokenizer or retriever.
A *record* is forever: everything after the rollout is a pure function of the run store.

Only the standard library is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

Finish = Literal["stop", "length", "context", "error", "unknown"]
"""Why generation ended: end of turn or stop string, token budget, full context, infrastructure;
unknown for outside predictions."""

TurnKind = Literal["model", "environment", "summary"]

TextKind = Literal["query", "passage"]
"""What an embedded text is: some encoders tell what is asked from what is searched."""


# --- asking a model -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. A trailing `assistant` message is continued, not answered."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to draw tokens.

    Attributes:
        temperature: 0 means greedy.
        top_p: Nucleus mass in (0, 1].
        top_k: 0 means off.
        max_tokens: Tokens a single generation may add.
        stop: Strings that end the generation; not part of the returned text.
        seed: Seed of this request; None leaves it to the engine.
        thinking: True or False switches a reasoning template; None leaves the template's default.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    seed: int | None = None
    thinking: bool | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine returns for one request.

    Attributes:
        text: Raw text, special tokens removed, thinking included, stop string excluded.
        prompt_ids: Token ids of the rendered prompt; None where the engine cannot tell.
        token_ids: Generated ids (an end-of-turn token is kept); None where unknown.
        logprobs: One per generated id; None where unknown.
        finish: See `Finish`.
        stop_string: The stop string that ended the text, if one did.
        prompt_tokens: Length of the prompt in tokens (also where ids are unknown).
        completion_tokens: Length of the generation in tokens; None where a server counts wrongly.
        tail: What the last token says behind the stop string; known only where `Generate.tail`
            asked for it and the engine has token ids.
    """

    text: str
    prompt_ids: tuple[int, ...] | None
    token_ids: tuple[int, ...] | None
    logprobs: tuple[float, ...] | None
    finish: Finish
    stop_string: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int | None = 0
    tail: str = ""


# --- documents and retrieval ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Passage:
    """A retrievable text. `page` is the printed page number where the corpus has pages."""

    doc_id: str
    text: str
    score: float = 0.0
    title: str = ""
    page: int | None = None


@dataclass(frozen=True, slots=True)
class RetrievalError:
    """A query that could not be answered: data, not an exception, so the others go on."""

    query: str
    message: str


@dataclass(frozen=True, slots=True)
class Doc:
    """One item of a task.

    Attributes:
        id: Stable; never depends on the order of the data set.
        question: What is asked, without any prompt around it.
        targets: Accepted answers, best first.
        passages: Retrieved context, best first.
        cluster: Docs that share a source share a cluster: the unit of every statistic.
        stratum: Fixed stratum (an MMLU subject, say).
        meta: JSON-serialisable extras (gold page, supporting facts, ...).
    """

    id: str
    question: str
    targets: tuple[str, ...]
    passages: tuple[Passage, ...] = ()
    cluster: str | None = None
    stratum: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


# --- a rollout ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn:
    """A stretch of a rollout with its own prompt (a policy may refresh its context).

    Training masks environment turns from the loss. `passages` are the ids of the passages that
    an environment turn shows, best first (`Passage.doc_id`).
    """

    kind: TurnKind
    text: str
    prompt_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    passages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rollout:
    """Everything a policy did on one doc, raw.

    Attributes:
        doc_id: The doc's id.
        repeat: 0-based sample index.
        turns: In order.
        answer: The text that scoring reads (for a single turn: the whole raw output).
        choices: Log-likelihood of each choice in nats, in the task's order, for multiple choice.
        finish: Of the last model turn; "error" only for infrastructure.
        prompt_tokens: Sum over model turns; None where nobody counted.
        completion_tokens: Sum over model turns; None where no engine counted (a reader
            without a model, outside predictions).
        searches: Number of retrieval calls.
        seconds: Wall time, waiting included.
        error: Message of an infrastructure failure. Such a rollout is never scored.
    """

    doc_id: str
    repeat: int
    turns: tuple[Turn, ...]
    answer: str
    finish: Finish = "stop"
    choices: tuple[float, ...] | None = None
    prompt_tokens: int | None = 0
    completion_tokens: int | None = None
    searches: int = 0
    seconds: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Generate:
    """Policy command: continue this prompt (messages, or token ids). Sent back: Completion.

    Attributes:
        turns: What was said since the prompt, to be continued in the same breath. The driver
            hands the engine the model's own token ids again and encodes only the
            environment's text (see harness/rollouts/continuation.py). Summary turns were said
            elsewhere and are left out.
        tail: Also tell what the last token says behind the stop string (`Completion.tail`): a
            turn that ends there and keeps it goes on as if it had never paused.
    """

    prompt: tuple[Message, ...] | tuple[int, ...]
    sampling: Sampling
    turns: tuple[Turn, ...] = ()
    tail: bool = False


@dataclass(frozen=True, slots=True)
class LogLikelihood:
    """Policy command: how likely is each continuation of this prompt?

    Sent back: (sum of log-probabilities, whether it is the greedy text) for each.
    """

    prompt: tuple[Message, ...]
    continuations: tuple[str, ...]
    thinking: bool | None = None


@dataclass(frozen=True, slots=True)
class Retrieve:
    """Policy command. Sent back: one list of passages, or a RetrievalError, per query."""

    queries: tuple[str, ...]
    k: int


@dataclass(frozen=True, slots=True)
class Embed:
    """Policy command. Sent back: one vector of unit length (a float32 array) per text."""

    texts: tuple[str, ...]
    kind: TextKind = "passage"


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """What a policy needs beside the doc.

    Attributes:
        messages: The rendered task prompt.
        sampling: Effective sampling; the driver sets the seed of each request.
        repeat: 0-based sample index.
        options: The policy's own settings.
        choices: What may follow the prompt, character for character, where the task asks for
            log-likelihoods.
    """

    messages: tuple[Message, ...]
    sampling: Sampling
    repeat: int = 0
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    choices: tuple[str, ...] = ()


Command = Generate | LogLikelihood | Retrieve | Embed
Policy = Callable[[Doc, PolicyConfig], Generator[Command, Any, Rollout]]


# --- scoring --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's opinion. `values` None means unscored, which is never zero.

    Attributes:
        judge: Name and version of the judge.
        values: For example {"answer_correct": True, "page_correct": False}.
        raw: What the judge said, kept for audits.
    """

    judge: str
    values: Mapping[str, bool | float] | None
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """Metrics of one sample, with the reasons for what went wrong.

    A metric that could not be determined is absent. `reasons` come from a fixed vocabulary:
    repeated_output, over_output, unclosed_think, truncated, context_overflow, empty_output,
    bad_format, ... (see harness/scoring/degenerate.py and tagged.py).
    """

    metrics: Mapping[str, float]
    reasons: tuple[str, ...] = ()


Scorer = Callable[[Doc, Rollout, Sequence[Verdict]], Score]
Reward = Callable[[Doc, Rollout, Sequence[Verdict]], float]


@dataclass(frozen=True, slots=True)
class Record:
    """One sample for ever: key (task, doc_id, repeat, prompt_sha) and what came of it.

    `score` None means unscored (an infrastructure failure, or no verdict).
    """

    task: str
    doc_id: str
    repeat: int
    prompt_sha: str
    rollout: Rollout
    verdicts: tuple[Verdict, ...] = ()
    score: Score | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line of a gate: a metric of a task, checkpoint against baseline, paired by doc.

    Attributes:
        delta: candidate minus baseline, None where there is nothing to compare.
        interval: Two-sided confidence interval of delta.
        p_value: Two-sided, before correction; `p_adjusted` is Holm's over the gate.
        test: Name of the test and interval.
        mde: Smallest drop that this procedure calls regressed with 80% power; None if none.
        margin: Tolerated drop.
        verdict: One of harness.stats.gate.VERDICTS.
        note: Why, where the verdict needs a reason (the differing field, too few clusters).
    """

    task: str
    metric: str
    baseline: str
    candidate: str
    n: int
    clusters: int
    delta: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    test: str
    mde: float | None
    margin: float
    verdict: str
    p_adjusted: float | None = None
    note: str = ""


# --- models and the parts that can be plugged in ----------------------------------------------


@dataclass(frozen=True, slots=True)
class Model:
    """A checkpoint as its card (baselines/NAME/card.toml) describes it.

    Attributes:
        engine: hf, vllm, llamacpp, openai, scripted, or "none" for a reader without a model.
        path: Weights: a folder, a GGUF file, a hub id, or "package:NAME/FILE" for weights that
            a Python package carries.
        adapter: LoRA folder applied to the weights.
        revision: Revision of a hub id.
        chat_template: None: the tokenizer's own; "none": plain text (base models); else a path.
        think_tags: Opening and closing tag of the reasoning, or None.
        context_length: Tokens; None asks the weights.
        parallelism: Requests in flight (and, for GPU engines, tensor-parallel size under
            the key "tensor").
        sampling: What the card wants where a task's protocol leaves it open.
        parent: Card this checkpoint was trained from: its default baseline.
        recipe: Name of the training recipe.
        training: What the trainer noted: steps, fingerprint of the rows, curve file, and by task
            how many of its questions stand in the rows.
        tasks: Tasks or groups that `eval` runs by default.
        policy: Policy forced by the card ("" lets the task decide).
        policy_options: Settings of that policy.
        flags: Engine settings that are part of the run's identity.
        note: One line for the board.
    """

    name: str
    engine: str
    path: str = ""
    adapter: str = ""
    revision: str = ""
    chat_template: str | None = None
    think_tags: tuple[str, str] | None = None
    context_length: int | None = None
    parallelism: Mapping[str, int] = field(default_factory=dict[str, int])
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    parent: str = ""
    recipe: str = ""
    training: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tasks: tuple[str, ...] = ()
    policy: str = ""
    policy_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    flags: Mapping[str, Any] = field(default_factory=dict[str, Any])
    note: str = ""


@runtime_checkable
class Engine(Protocol):
    """Serves one request at a time; continuous batching is the engine's own business.

    Attributes:
        fingerprint: Weights (with quantisation), adapter, kind and flags that change outputs.
        capabilities: Subset of {"generate", "loglikelihood", "token_ids", "logprobs", "seed",
            "render", "continue"}; checked before a run starts.
        context_length: Tokens of prompt plus generation.
    """

    fingerprint: str
    capabilities: frozenset[str]
    context_length: int

    def render(self, messages: Sequence[Message], thinking: bool | None) -> list[int]:
        """Token ids of a chat; a trailing assistant message is left open to be continued."""
        ...

    def render_text(self, messages: Sequence[Message], thinking: bool | None) -> str:
        """The text behind `render`: the context of `loglikelihood` (needs that capability)."""
        ...

    async def generate(
        self, prompt: Sequence[Message] | Sequence[int], sampling: Sampling
    ) -> Completion:
        """Continue a prompt. A prompt over the context gives finish "context", not an error.

        Raises:
            EngineError: The infrastructure failed; the caller may retry or record it.
        """
        ...

    async def loglikelihood(
        self, context: str, continuations: Sequence[str]
    ) -> list[tuple[float, bool]]:
        """Sum of log-probabilities of each continuation, and whether it is the greedy one."""
        ...

    def close(self) -> None:
        """Free the weights; idempotent."""
        ...


@runtime_checkable
class Tokenizer(Protocol):
    """What an engine offers beside `Engine` where it knows its tokenizer.

    With it a rollout of several turns goes on from the model's own token ids; without it, from
    its text.
    """

    def encode(self, text: str) -> list[int]:
        """Token ids of a text in the middle of a prompt: nothing is put around it."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, made as `Completion.text` is made."""
        ...


@runtime_checkable
class Retriever(Protocol):
    """Finds passages. `fingerprint` covers corpus, index, encoder and parameters."""

    fingerprint: str

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage] | RetrievalError]:
        """At most k passages for each query, best first; called from worker threads."""
        ...


@runtime_checkable
class Encoder(Protocol):
    """Embeds texts.

    Attributes:
        fingerprint: Covers weights and settings.
        passage_fingerprint: Covers what changes the vectors of passages: stored ones stay good
            where only queries are put otherwise.
    """

    fingerprint: str
    passage_fingerprint: str

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    def encode(self, texts: Sequence[str], kind: TextKind = "passage") -> Any:
        """float32 array (texts, dimension), rows of unit length; called from worker threads."""
        ...
