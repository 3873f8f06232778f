"""The published traces of R1-Searcher, replayed through `search`, come out byte for byte."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from harness.data import locate
from harness.engines.scripted import ScriptedEngine
from harness.rollouts.driver import Driver, Job
from harness.rollouts.search import search
from harness.schema import Doc, Passage, PolicyConfig, Sampling

FILES = {"hotpotqa_qwen": 500, "bamboogle_qwen": 125}
_BLOCK = re.compile(
    r"<\|end_of_query\|>\n\n<\|begin_of_documents\|>\n(.*?)\n<\|end_of_documents\|>\n\n", re.DOTALL
)
_NUMBER = re.compile(r"(?:^|\n)\(\d+\)")


class Recorded:
    """Gives back the passages of a trace, search by search."""

    fingerprint = "recorded"

    def __init__(self, blocks):
        self.blocks = iter(blocks)

    def retrieve(self, queries, k):
        texts = _NUMBER.split(next(self.blocks))[1:]
        # Title and text apart where the text has them, as a corpus would hold them.
        pairs = [text.partition("   ") for text in texts]
        return [
            [
                Passage(str(n), rest if gap else head, title=head if gap else "")
                for n, (head, gap, rest) in enumerate(pairs)
            ]
        ]


def replay(trace: str) -> str:
    parts = _BLOCK.split(trace)
    said, blocks = parts[0::2], parts[1::2]
    replies = [part + "<|end_of_query|>" for part in said[:-1]] + said[-1:]
    config = PolicyConfig((), Sampling(max_tokens=1 << 20), 0, {"turn_tokens": 1 << 20})
    job = Job("t", Doc("d", "q", ("a",)), config, search, "r")
    rollout = asyncio.run(Driver(ScriptedEngine(replies), Recorded(blocks)).play(job))
    assert rollout.error is None, rollout.error
    assert rollout.searches == len(blocks)
    return "".join(turn.text for turn in rollout.turns)


@pytest.mark.data
@pytest.mark.parametrize("name", FILES)
def test_a_published_trace_cut_at_its_query_tags_is_played_back_the_same(
    data_root: Path, name: str
) -> None:
    path = locate("r1_searcher", f"eval_results/{name}.jsonl", data_root)
    traces = [json.loads(line)["gen_text_store"] for line in path.open(encoding="utf-8")]
    assert len(traces) == FILES[name]
    different = [number for number, trace in enumerate(traces) if replay(trace) != trace]
    assert different == []
