"""Rewards of training: the metrics of evaluation, put together as each paper does it.

    reward = REWARDS["r1_searcher_stage2"]
    value = reward(doc, rollout, verdicts)

                             answer                    other terms                    range
    r1_searcher_stage1       none                      +0.5 searched, +0.5 format     0 .. 1
    r1_searcher_stage2       F1                        -2 wrong format               -2 .. 1
    r1_searcher_stage2_em    +1 EM, else -1            -2 wrong format               -3 .. 1
    r1_searcher_stage2_cem   +1 cem_bag, else -1       -2 wrong format               -3 .. 1
    r1_searcher_qwen_code    F1                        -2 wrong format, strict       -2 .. 1
    r1_searcher_llama_stage1_code
                             +1 cem_bag, else -1       +0.5 searched and paired tags,
                                                       +0.5 think and answer tags    -1 .. 2
    r1_searcher_llama_stage2_code
                             F1                        -1 wrong format               -1 .. 1
    railway                  +0.5 right, +0.5 page     +0.5 each tag pair,
                             right                     -length                       -2 .. 2
    korean, korean_oracle, bookmark
                             see harness/scoring/reasoning_rewards.py

The first four are R1-Searcher's paper (arXiv 2503.05592, Section 2.2.1; its ablation in Table 5),
the `_code` ones its released reward servers (RUCAIBox/R1-Searcher @631167cbb3c2), which differ
from it. `railway` is the BJTU railway report's: the length term is min((max(0, L - 64) / 64)^3,
2) over the tokens of the output, and its four constants are settings (`railway_reward`).

The paper's rewards take the metrics of `harness.scoring.qa` as they are. The `_code` ones read
the whole transcript, documents included, as their servers do.

An infrastructure failure or a missing verdict has no reward: an error, never a zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import IncompleteError, UsageError, nearest
from harness.schema import Doc, Reward, Rollout, Verdict
from harness.scoring import answers, degenerate, qa, rag, reasoning_rewards, search, tagged
from harness.scoring.terms import refuse_failure
from harness.scoring.text import THINK_TAGS

_QUERY = ("<|begin_of_query|>", "<|end_of_query|>")
_DOCUMENTS = ("<|begin_of_documents|>", "<|end_of_documents|>")
_BLOCK = re.compile(r"<\|begin_of_documents\|>.*?<\|end_of_documents\|>", re.DOTALL)
_HAN = re.compile("[\u4e00-\u9fff]")
_GARBLED = re.compile("[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
MAX_ANSWER_WORDS = 10
"""Of the released server for Qwen; the paper asks for a short answer without a number."""


def transcript(rollout: Rollout) -> str:
    """The whole text after the prompt: what the model wrote and what the environment put in."""
    shown = [turn.text for turn in rollout.turns if turn.kind != "summary"]
    return "".join(shown) if shown else rollout.answer


# --- R1-Searcher: the paper -----------------------------------------------------------------


def format_is_right(rollout: Rollout) -> bool:
    """The paper's three rules, on what the model wrote.

    1. The thinking is closed once (its opening tag may be in the prompt), then one answer
       between tags, without queries or documents in it. 2. Nothing garbled: no broken or
       control characters, no loops. 3. Queries between their tags; no documents of its own.
    """
    written = [turn.text for turn in rollout.turns if turn.kind == "model"] or [rollout.answer]
    text = "".join(written)
    thinking, _, said = text.partition(THINK_TAGS[1])
    return (
        text.count(THINK_TAGS[1]) == 1
        and text.count(THINK_TAGS[0]) in (0, 1)
        and THINK_TAGS[0] not in said
        and "<answer>" not in thinking
        and _one_answer(said)
        and answers.extract(said) is not None
        and not _asks(_between(said))
        and not _GARBLED.search(text)
        and not degenerate.repeats(text)
        and text.count(_QUERY[0]) == text.count(_QUERY[1])
        and not {"own_documents", "empty_query"}.intersection(search.search_reasons(rollout))
    )


def r1_searcher_stage1(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> float:
    """0.5 for at least one search, 0.5 for the right format; in [0, 1]."""
    refuse_failure(rollout)
    return 0.5 * (rollout.searches >= 1) + 0.5 * format_is_right(rollout)


def r1_searcher_stage2(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> float:
    """F1, less 2 for a wrong format; in [-2, 1]."""
    return _metric("f1", doc, rollout, verdicts) - 2.0 * (not format_is_right(rollout))


def r1_searcher_stage2_em(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> float:
    """1 for an exact match, else -1, less 2 for a wrong format; in [-3, 1]."""
    matched = _metric("em", doc, rollout, verdicts)
    return (2 * matched - 1) - 2.0 * (not format_is_right(rollout))


def r1_searcher_stage2_cem(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> float:
    """1 for a cover exact match (`cem_bag`), else -1, less 2 for a wrong format; in [-3, 1]."""
    matched = _metric("cem_bag", doc, rollout, verdicts)
    return (2 * matched - 1) - 2.0 * (not format_is_right(rollout))


# --- R1-Searcher: the released code ---------------------------------------------------------


def r1_searcher_qwen_code(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> float:
    """The server for Qwen: F1 (0 without an answer pair), less 2 for a wrong format; [-2, 1].

    Wrong beyond the paper's rules: the word "assistant" anywhere, even in a document; more than
    `MAX_ANSWER_WORDS` words; a Han character outside the documents.
    """
    text = _solution(rollout)
    wrong = (
        not _paired(text)
        or "Assistant" in text
        or "assistant" in text
        or not _thought(text)
        or not _one_answer(text)
        or _asks(_between(text))
        or len(_between(text).split()) > MAX_ANSWER_WORDS
        or bool(_HAN.search(_BLOCK.sub("", text)))
    )
    return _code_f1(doc, text) - 2.0 * wrong


def r1_searcher_llama_stage1_code(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> float:
    """The first server for Llama; in [-1, 2]. Unlike the paper's it rewards the answer."""
    text = _solution(rollout)
    right = _has_pair(text) and qa.cem_bag(_between(text), doc.targets) == 1
    searched = _paired(text) and text.count(_QUERY[0]) >= 1
    return (1.0 if right else -1.0) + 0.5 * searched + 0.5 * (_thought(text) and _one_answer(text))


def r1_searcher_llama_stage2_code(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> float:
    """The second server for Llama: F1, less 1 for a wrong format; in [-1, 1].

    Its format is Qwen's without the limit of words and without the word "assistant".
    """
    text = _solution(rollout)
    wrong = (
        not _paired(text)
        or not _thought(text)
        or not _one_answer(text)
        or _asks(_between(text))
        or bool(_HAN.search(_BLOCK.sub("", text)))
    )
    return _code_f1(doc, text) - 1.0 * wrong


def _solution(rollout: Rollout) -> str:
    refuse_failure(rollout)
    return transcript(rollout).strip()


def _code_f1(doc: Doc, text: str) -> float:
    return qa.f1(_between(text), doc.targets) if _has_pair(text) else 0.0


def _paired(text: str) -> bool:
    """Whether all seven marks of a search occur equally often."""
    counts = {
        text.count(mark)
        for mark in (*_QUERY, *_DOCUMENTS, _DOCUMENTS[0] + "\n", _DOCUMENTS[1] + "\n\n",
                     _DOCUMENTS[0] + "\n(1)")
    }  # fmt: skip
    return len(counts) == 1


def _thought(text: str) -> bool:
    """Whether the thinking, opened in the prompt, is closed once."""
    return text.count("<think>") == 0 and text.count("</think>") == 1


def _one_answer(text: str) -> bool:
    return text.count("<answer>") == 1 == text.count("</answer>")


def _has_pair(text: str) -> bool:
    return "<answer>" in text and "</answer>" in text


def _between(text: str) -> str:
    """What the servers read: after the last opening tag, before the next closing one."""
    return text.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def _asks(answer: str) -> bool:
    return "begin_of_query" in answer or "begin_of_documents" in answer


# --- railway --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Length:
    """The penalty min((max(0, L - free) / scale)^power, cap) of an output of L tokens."""

    free: float = 64.0
    scale: float = 64.0
    power: float = 3.0
    cap: float = 2.0

    def __post_init__(self) -> None:
        """Refuse constants that make no penalty."""
        if self.scale <= 0 or self.power <= 0 or self.cap < 0 or self.free < 0:
            raise ValueError("length penalty: scale and power above 0, free and cap 0 or more")

    def penalty(self, tokens: float) -> float:
        """In [0, cap], never falling with length."""
        excess = max(0.0, tokens - self.free) / self.scale
        return self.cap if excess >= self.cap ** (1 / self.power) else excess**self.power


def railway_reward(length: Length | None = None) -> Reward:
    """The railway report's reward, with the constants of its length penalty."""
    rule = length or Length()

    def reward(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> float:
        refuse_failure(rollout)
        metrics = rag.score(doc, rollout, verdicts).metrics
        wanted = ("answer_accuracy", "page_accuracy", "output_tokens")
        missing = [name for name in wanted if name not in metrics]
        if missing:
            raise IncompleteError(f"doc '{doc.id}': no {missing[0]}, so no railway reward")
        parsed = tagged.parse(rollout.answer)
        tags = 0.5 * (parsed.answer is not None) + 0.5 * (parsed.page_text is not None)
        right = 0.5 * metrics["answer_accuracy"] + 0.5 * metrics["page_accuracy"]
        return tags + right - rule.penalty(metrics["output_tokens"])

    return reward


railway = railway_reward()


# --- the table ------------------------------------------------------------------------------


REWARDS: Mapping[str, Reward] = {
    "r1_searcher_stage1": r1_searcher_stage1,
    "r1_searcher_stage2": r1_searcher_stage2,
    "r1_searcher_stage2_em": r1_searcher_stage2_em,
    "r1_searcher_stage2_cem": r1_searcher_stage2_cem,
    "r1_searcher_qwen_code": r1_searcher_qwen_code,
    "r1_searcher_llama_stage1_code": r1_searcher_llama_stage1_code,
    "r1_searcher_llama_stage2_code": r1_searcher_llama_stage2_code,
    "railway": railway,
    **reasoning_rewards.REWARDS,
}
"""Reward by name. Adding one: a function of type `harness.schema.Reward` and a line here."""


def reward(name: str) -> Reward:
    """Return a reward by name.

    Raises:
        UsageError: Unknown name; the message gives the nearest ones.
    """
    if name not in REWARDS:
        raise UsageError(f"unknown reward '{name}': {nearest(name, REWARDS)}")
    return REWARDS[name]


def _metric(name: str, doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict]) -> float:
    refuse_failure(rollout)
    metrics = qa.score(doc, rollout, verdicts).metrics
    if name not in metrics:
        raise IncompleteError(f"doc '{doc.id}' has no targets, so no {name} and no reward")
    return metrics[name]
