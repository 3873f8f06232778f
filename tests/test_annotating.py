import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.__main__ import main
from harness.annotating import REASONS, cut, sentences, tagged, untagged
from tests.json_server import serving

CHAIN = "Six boats cross. Each crosses 7 times.\nWait, is that so? Yes.\n\n6 * 7 = 42."


def reply(*parts):
    return json.dumps(
        {"parts": [dict(zip(("start", "kind", "summary"), p, strict=True)) for p in parts]}
    )


GOOD = reply((1, "substep", "six"), (3, "reflection", "checked"), (5, "substep", "42"))


@given(st.text())
def test_sentences_join_to_the_chain(text):
    assert "".join(sentences(text)) == text


TEXTS = st.text(alphabet="ab. !?\n。é", min_size=1).filter(str.strip)


@given(TEXTS, st.data())
def test_whatever_is_cut_joins_to_the_original(text, data):
    n = len(sentences(text))
    starts = [1, *sorted(data.draw(st.sets(st.integers(2, max(n, 2)), max_size=4)))]
    kinds = data.draw(st.lists(st.sampled_from(["substep", "reflection"]), min_size=5, max_size=5))
    said = (
        f"Here: ```json\n{reply(*((s, k, 'x') for s, k in zip(starts, kinds, strict=False)))}\n```"
    )
    parts = cut(text, said)
    if isinstance(parts, str):
        assert parts in REASONS
    else:
        assert "".join(p.text for p in parts) == text
        assert untagged(tagged(parts)) == text
        assert len(parts) == len(starts)


@given(st.text(), st.text())
def test_no_reply_breaks_the_cutter(text, said):
    parts = cut(text, said)
    assert parts in REASONS if isinstance(parts, str) else "".join(p.text for p in parts) == text


def test_parts_may_be_named_by_the_words_they_start_with():
    parts = cut(CHAIN, reply(("Six boats", "substep", "a"), ("Wait, is", "reflection", "b")))
    assert [p.text[:6] for p in parts] == ["Six bo", "Wait, "]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("no", "no_json"), ("{}", "no_parts"), (reply((1, "step", "x")), "unknown_kind"),
        (reply((1, "substep", " ")), "no_summary"),
        (reply((99, "substep", "x")), "start_not_found"),
        (reply((1, "substep", "x"), (1, "substep", "y")), "out_of_order"),
        (reply((2, "substep", "x")), "starts_late"), (reply((1, "reflection", "x")), "no_substep"),
    ],
)  # fmt: skip
def test_a_reply_of_no_use_is_rejected_with_its_reason(said, reason):
    assert cut(CHAIN, said) == reason


def test_a_chain_that_holds_the_tags_is_rejected():
    assert cut("<substep>a", GOOD) == "has_tags"


@pytest.fixture
def annotator(monkeypatch):
    """A real server that lists one model and answers chats by `answers`, last one for ever."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    answers = []

    def answer(request):
        if request.method == "GET":
            return 200, {"data": [{"id": "cutter"}]}
        said = answers.pop(0) if len(answers) > 1 else answers[0]
        status, text, finish = said if isinstance(said, tuple) else (200, said, "stop")
        return status, {"choices": [{"message": {"content": text}, "finish_reason": finish}]}

    with serving(answer) as (url, seen):
        yield f"{url}/v1", seen, answers


def asked_of(seen):
    return [request.body for request in seen if request.method == "POST"]


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_chains_become_rows_and_a_second_run_asks_only_for_what_is_missing(
    annotator, tmp_path, capsys
):
    url, seen, answers = annotator
    answers += [GOOD, (200, GOOD, "length"), (400, "", "stop")]
    lines = [{"id": f"c{i}", "question": "How many?", "reasoning": CHAIN + "!" * i, "answer": "42"}
             for i in range(3)]  # fmt: skip
    lines.append({"id": "t", "question": "q", "reasoning": "a <substep> b", "answer": "1"})
    chains = tmp_path / "chains.jsonl"
    chains.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [
        "annotate",
        f"file={chains}",
        f"endpoint={url}",
        f"out={tmp_path / 'o'}",
        "requests=1",
    ]
    assert main(command) == 3  # the server refused the third
    (tmp_path / "o" / "replies.jsonl").open("a").write('{"torn')
    answers[:] = [GOOD]
    before = len(asked_of(seen))
    assert main(command) == 0
    assert len(asked_of(seen)) == before + 1
    assert "2 rows" in capsys.readouterr().out
    rows = rows_of(tmp_path / "o" / "rows.jsonl")
    assert [r["id"] for r in rows] == ["c0", "c2"]
    assert [p["kind"] for p in rows[0]["parts"]] == ["substep", "reflection", "substep"]
    for row in rows:
        assert untagged(row["text"]) == row["reasoning"]
    rejects = rows_of(tmp_path / "o" / "rejects.jsonl")
    assert {r["id"]: r["reason"] for r in rejects} == {"c1": "cut_off", "t": "has_tags"}
    assert "[3] Wait, is that so?" in asked_of(seen)[0]["messages"][0]["content"]
    assert main(command) == 0
    assert len(asked_of(seen)) == before + 1


def test_a_command_without_its_keys_is_told_so(capsys):
    assert main(["annotate"]) == 2
    assert "needs file=, endpoint= and out=" in capsys.readouterr().err
