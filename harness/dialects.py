"""Dialects: how a model asks for a search inside its reasoning, and how documents come back.

A dialect is configuration of the policy `search`: its tags, the text around the documents, its
limits, and what happens when they are reached. Known differences to the published code:

- That code strips every segment of the model's text and encodes everything again; here the
  model's own tokens stay as they are. The published traces come out the same, byte for byte.
- Search-R1 cuts the documents of one search after 500 tokens; here they are shown whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.schema import Passage


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to search inside the reasoning.

    Attributes:
        query: Tags around a query; generation pauses at the second one.
        documents: Tags around what was found.
        answer: Tags around the answer; generation ends at the second one.
        prompt: Name of the prompt (harness/rollouts/prompts.toml), or "task" for the task's own.
        block: What the model is shown; `{passages}` stands for the documents.
        passage: One document: `{rank}` from 1, `{title}`, `{text}`, and `{contents}`, which is
            title, three spaces, text as in the KILT passages.
        top_k: Documents a search.
        max_searches: A query beyond them is over budget.
        max_turns: Generations at most, whatever they hold.
        turn_tokens: Tokens a generation at most; the sampling's own limit, if lower, wins.
        stop: Further stop strings, which end the rollout.
        nothing: Shown where a search found nothing.
        invalid: Shown after a turn without query or answer; "" ends the rollout instead.
        over_budget: Shown instead of documents beyond `max_searches`; "" ends the rollout.
        repeated: Shown instead of documents for a query asked before; "" searches again.
        no_answer: What counts as the answer where the budget ended the rollout.
    """

    query: tuple[str, str]
    documents: tuple[str, str]
    answer: tuple[str, str]
    prompt: str
    block: str
    passage: str
    top_k: int
    max_searches: int
    max_turns: int = 16
    turn_tokens: int = 512
    stop: tuple[str, ...] = ("<|im_end|>", "<|endoftext|>")
    nothing: str = "No documents were found."
    invalid: str = ""
    over_budget: str = ""
    repeated: str = ""
    no_answer: str = ""

    def __post_init__(self) -> None:
        """Refuse settings that cannot be played."""
        for name in ("top_k", "max_turns", "turn_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"option '{name}' must be at least 1, is {getattr(self, name)}")
        if self.max_searches < 0:
            raise ValueError(f"option 'max_searches' must be 0 or more, is {self.max_searches}")
        if not all((*self.query, *self.documents, *self.answer)):
            raise ValueError("option 'query', 'documents' or 'answer': a tag is empty")
        try:
            shown = self.block.format(passages="\0")
            self.passage.format(rank=1, title="", text="", contents="")
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(f"option 'block' or 'passage': bad placeholder {error}") from None
        if "\0" not in shown:
            raise ValueError("option 'block' has no {passages}")

    def lines(self, passages: Sequence[Passage]) -> str:
        """The documents alone; what stands for them where there are none."""
        lines = [
            self.passage.format(rank=rank, title=p.title, text=p.text, contents=contents(p))
            for rank, p in enumerate(passages, start=1)
        ]
        return "\n".join(lines) if lines else self.nothing

    def shown(self, passages: Sequence[Passage]) -> str:
        """The text of the environment for what a search found."""
        return self.said(self.lines(passages))

    def said(self, text: str) -> str:
        """The text of the environment for a remark in place of documents."""
        return self.block.format(passages=text)


def contents(passage: Passage) -> str:
    """Title and text in one line, as the KILT passages of R1-Searcher have them."""
    return f"{passage.title}   {passage.text}" if passage.title else passage.text


_R1_QUERY = ("<|begin_of_query|>", "<|end_of_query|>")
_R1_DOCUMENTS = ("<|begin_of_documents|>", "<|end_of_documents|>")
_ANSWER = ("<answer>", "</answer>")

DIALECTS: dict[str, Dialect] = {
    # R1-Searcher, arXiv 2503.05592, and its evaluation script: top 5, 512 tokens a turn; a model
    # that asks a ninth time gets "I don't know." as its answer.
    "r1_searcher": Dialect(
        query=_R1_QUERY,
        documents=_R1_DOCUMENTS,
        answer=_ANSWER,
        prompt="r1_searcher_instruct",
        block="\n\n<|begin_of_documents|>\n{passages}\n<|end_of_documents|>\n\n",
        passage="({rank}){contents}",
        top_k=5,
        max_searches=8,
        no_answer="I don't know.",
    ),
    # Search-R1, arXiv 2503.09516, and its generation manager: top 3, 4 actions, 500 tokens a
    # turn; a turn without an action is answered with advice.
    "search_r1": Dialect(
        query=("<search>", "</search>"),
        documents=("<information>", "</information>"),
        answer=_ANSWER,
        prompt="search_r1",
        block="\n\n<information>{passages}</information>\n\n",
        passage="Doc {rank}(Title: {title}) {text}",
        top_k=3,
        max_searches=4,
        max_turns=5,
        turn_tokens=500,
        invalid=(
            "\nMy previous action is invalid. If I want to search, I should put the query between "
            "<search> and </search>. If I want to give the final answer, I should put the answer "
            "between <answer> and </answer>. Let me try again.\n"
        ),
    ),
    # FlashRAG's reasoning pipeline (arXiv 2405.13576): R1-Searcher's tags, at most 5 searches.
    "flashrag": Dialect(
        query=_R1_QUERY,
        documents=_R1_DOCUMENTS,
        answer=_ANSWER,
        prompt="flashrag",
        block="\n\n<|begin_of_documents|>\n{passages}\n\n<|end_of_documents|>\n\n",
        passage="({rank})Title: {title} Text: {text}",
        top_k=5,
        max_searches=5,
        no_answer="No valid answer found",
    ),
    # Search-o1, arXiv 2501.05366: repeated and surplus queries are refused. The paper's answers
    # stand in \\boxed{}, here between tags as those of every other method.
    "search_o1": Dialect(
        query=("<|begin_search_query|>", "<|end_search_query|>"),
        documents=("<|begin_search_result|>", "<|end_search_result|>"),
        answer=_ANSWER,
        prompt="search_o1",
        block="\n\n<|begin_search_result|>{passages}<|end_search_result|>\n\n",
        passage="({rank}){contents}",
        top_k=10,
        max_searches=10,
        max_turns=15,
        turn_tokens=32768,
        over_budget=("\nThe maximum search limit is exceeded. You are not allowed to search.\n"),
        repeated="\nYou have searched this query. Please refer to previous results.\n",
    ),
}
"""Name -> dialect."""
