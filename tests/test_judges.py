"""LLM judges over a real, misbehaving server: eval, warm re-runs, rescoring, costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.engines import endpoint
from harness.engines import openai as openai_engine
from harness.errors import UsageError
from harness.judges import open_judge, parse_judge
from harness.rescore import rescore
from harness.schema import Verdict
from harness.scoring import rag
from harness.scoring.llm_judge import is_llm
from harness.store import Store
from tests.engines.endpoint_server import Act, Server, answer, break_off, cut_short, hang, say, slam
from tests.test_commands import Bench
from tests.test_evaluate import gold, run

RIGHT = '{"answer_correct": 1, "page_correct": 1}'
WRONG = '{"answer_correct": 0, "page_correct": 0}'
TASK = "railway_demo_top1"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv(endpoint.KEY_VARIABLE, raising=False)
    made = openai_engine.OpenAIEngine.__init__
    monkeypatch.setattr(
        openai_engine.OpenAIEngine, "__init__", lambda self, model: made(self, model, backoff=0.001)
    )
    started = Server()
    started.answer = say(RIGHT)
    yield started
    started.stop()


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    folder = tmp_path / "cards"
    (folder / "judge").mkdir(parents=True)
    (folder / "judge" / "card.toml").write_text(
        'name = "judge"\nengine = "openai"\n[flags]\ntimeout = 1\nretries = 2\n'
    )
    return folder


def opened(server: Server, tmp_path: Path, cards: Path, **settings: Any) -> Any:
    return open_judge("judge", server.url, out=tmp_path, baselines=cards, **settings)


def judged(server: Server, tmp_path: Path, cards: Path, decides: bool = True, **settings: Any):
    with opened(server, tmp_path, cards, decides=decides) as judge:
        result, _ = run(tmp_path, judge=judge, **{"limit": 6, **settings})
    return result, judge.tally


def verdicts(result: Any) -> list[tuple[Verdict, ...]]:
    with Store.open(result.run) as store:
        return [r.verdicts for r in store.records(TASK)]


def accuracy(result: Any, metric: str = "answer_accuracy") -> set[float | None]:
    return {d.mean(metric) for d in result.records[0].docs}


def test_an_llm_judge_decides_beside_the_deterministic_one(server, tmp_path, cards):
    server.answer = say(WRONG)
    result, tally = judged(server, tmp_path, cards)
    assert accuracy(result) == {0.0}
    assert {tuple(v.judge.partition("@")[0] for v in vs) for vs in verdicts(result)} == {
        ("llm:judge/railway", "deterministic")
    }
    assert result.records[0].fingerprints["scorer"].startswith("rag@1+llm:judge/railway@")
    assert (tally.asked, tally.calls, tally.cached) == (6, 6, 0)
    assert "6 of 6 verdicts (100.0%)" in str(tally)
    assert all(body["temperature"] == 0 for body in server.asked)


def test_a_warm_re_run_makes_no_call_and_new_outputs_make_their_own(server, tmp_path, cards):
    judged(server, tmp_path, cards)
    result, tally = judged(server, tmp_path, cards)
    assert (len(server.asked), tally.asked, result.outcome.rescored) == (6, 0, 0)
    _, tally = judged(server, tmp_path, cards, fresh=True)
    assert (len(server.asked), tally.cached) == (6, 6)
    judged(server, tmp_path, cards, fresh=True, replies=dict.fromkeys(gold(), "no"))
    assert len(server.asked) == 12
    judged(server, tmp_path, cards, limit=8)
    assert len(server.asked) > 12


def test_planning_counts_the_verdicts_that_are_not_stored_and_asks_for_none(
    server, tmp_path, capsys
):
    server.answer = say(RIGHT, usage={"prompt_tokens": 700, "completion_tokens": 11})
    where = [f"out={tmp_path / 'runs'}", "model=extractive", f"tasks={TASK}"]
    by = ["judge=DeepSeek-V3.2", f"judge_endpoint={server.url}"]
    assert main(["plan", *where, "limit=5", *by]) == 0
    said = capsys.readouterr().out
    assert "judge DeepSeek-V3.2: at most 5 verdicts to ask for" in said
    assert "at most 1024 new ones each" in said
    assert server.requests == []
    main(["eval", *where, "limit=3", *by, f"boards={tmp_path / 'boards'}"])
    asked = len(server.asked)
    assert asked == 3
    capsys.readouterr()
    assert main(["plan", *where, "limit=5", *by]) == 0
    said = capsys.readouterr().out
    assert "at most 2 verdicts to ask for, about 1,400 prompt and 22 new tokens" in said
    assert main(["plan", *where, "limit=3", *by]) == 0
    assert "judge DeepSeek-V3.2: every verdict is stored" in capsys.readouterr().out
    assert len(server.asked) == asked


def test_planning_knows_a_judge_that_does_not_exist(capsys):
    assert main(["plan", "model=extractive", f"tasks={TASK}", "judge=DeepSeek-V3"]) == 2
    assert "DeepSeek-V3.2" in capsys.readouterr().err
    assert main(["plan", "model=extractive", f"tasks={TASK}", "judge_prompt=acc_l"]) == 2
    assert "needs judge=NAME" in capsys.readouterr().err


def test_a_judge_beside_the_deciding_one_changes_no_figure(server, tmp_path, cards):
    server.answer = say(WRONG)
    plain, _ = run(tmp_path, limit=6)
    result, tally = judged(server, tmp_path, cards, decides=False)
    assert accuracy(result) == accuracy(plain) == {1.0}
    assert tally.asked == 6
    assert plain.records[0].fingerprints["scorer"] == result.records[0].fingerprints["scorer"]


RETRIED: list[Act] = [
    answer(429, {"error": "slow down"}, Retry_After="0"),
    answer(500, {"error": "oops"}),
    answer(503, b"<html>"),
    answer(200, b"not json"),
    break_off,
    cut_short,
    slam,
    hang,
]


def test_a_server_that_misbehaves_is_asked_again(server, tmp_path, cards):
    for act in RETRIED:
        server.acts = [act]
        with opened(server, tmp_path / str(id(act)), cards) as judge:
            result, _ = run(tmp_path / str(id(act)), judge=judge, limit=1)
        assert accuracy(result) == {1.0}, act
        assert result.outcome.unjudged == 0


@pytest.mark.parametrize(
    "reply",
    ["certainly!", "So: " + RIGHT, '{"answer": 1}', "{", '{"answer_correct": "yes"}', "1"],
)
def test_replies_that_stay_unreadable_are_unscored_never_zero(server, tmp_path, cards, reply):
    server.answer = say(reply)
    result, tally = judged(server, tmp_path, cards, limit=2)
    assert accuracy(result) == {None}
    assert result.records[0].docs[0].samples[0].metrics["format_accuracy"] == 1.0
    assert (tally.unscored, tally.calls, tally.failed) == (2, 4, 0)
    judged(server, tmp_path, cards, limit=2)
    assert len(server.asked) == 4, "an answer that is of no use is not paid for again"


@pytest.mark.parametrize(
    "act", [answer(500, {}), answer(429, {}, Retry_After="0"), answer(400, {}), answer(200, b"")]
)
def test_a_judge_that_fails_leaves_samples_unjudged_until_it_answers(server, tmp_path, cards, act):
    server.answer = lambda body: act
    result, tally = judged(server, tmp_path, cards, limit=3)
    assert accuracy(result) == {None}
    assert (result.outcome.unjudged, tally.failed) == (3, 3)
    assert result.complete
    server.answer = say(RIGHT)
    result, _ = judged(server, tmp_path, cards, limit=3)
    assert accuracy(result) == {1.0}
    assert result.outcome.unjudged == 0


def test_an_empty_reply_is_no_verdict(server, tmp_path, cards):
    server.answer = say("")
    result, _ = judged(server, tmp_path, cards, limit=2)
    assert accuracy(result) == {None}


def test_verdicts_are_asked_for_at_the_same_time(server, tmp_path, cards):
    import threading

    both = threading.Barrier(2, timeout=10)

    def slow(body):
        both.wait()
        return say(RIGHT)(body)

    server.answer = slow
    result, _ = judged(server, tmp_path, cards, limit=2)
    assert accuracy(result) == {1.0}


# --- stored verdicts --------------------------------------------------------------------------


def test_a_new_scorer_keeps_the_verdicts_that_an_llm_gave(server, tmp_path, cards, monkeypatch):
    server.answer = say(WRONG)
    before = verdicts(judged(server, tmp_path, cards)[0])
    monkeypatch.setattr(rag, "VERSION", 99)
    result, _ = judged(server, tmp_path, cards)
    assert result.outcome.rescored == 6
    assert verdicts(result) == before
    assert result.records[0].fingerprints["scorer"].startswith("rag@99+llm:")
    assert len(server.asked) == 6


def test_going_back_to_the_deterministic_judge_keeps_what_the_llm_said(server, tmp_path, cards):
    server.answer = say(WRONG)
    judged(server, tmp_path, cards)
    result, _ = run(tmp_path, limit=6)
    assert accuracy(result) == {1.0}
    assert [is_llm(v) for v in verdicts(result)[0]] == [False, True]
    result, tally = judged(server, tmp_path, cards)
    assert accuracy(result) == {0.0}
    assert (tally.asked, len(server.asked)) == (0, 6)


@pytest.mark.parametrize("judge", ["again", "keep"])
def test_rescoring_keeps_llm_verdicts_and_lets_them_decide(
    server, tmp_path, cards, monkeypatch, judge
):
    server.answer = say(WRONG)
    result, _ = judged(server, tmp_path, cards)
    before = verdicts(result)
    server.stop()
    monkeypatch.setattr(rag, "VERSION", 99)
    (done,) = rescore("scripted", judge=judge, out=tmp_path)
    assert (done.docs, done.unscored, done.samples) == (0, 0, 6)
    assert done.after.startswith("rag@99+llm:judge/railway@")
    assert verdicts(result) == before


def test_rescoring_with_a_judge_asks_it_where_its_verdict_is_not_stored(server, tmp_path, cards):
    result, _ = run(tmp_path, limit=6)
    server.answer = say(WRONG)
    for _ in range(2):
        with opened(server, tmp_path, cards) as judge:
            (done,) = rescore("scripted", llm=judge.on, out=tmp_path)
        assert len(server.asked) == 6
    assert done.after.startswith("rag@1+llm:")
    server.answer = say(RIGHT)
    with opened(server, tmp_path, cards, fresh=True) as judge:
        (done,) = rescore("scripted", llm=judge.on, out=tmp_path)
    assert len(server.asked) == 12
    assert done.docs == 6
    assert [is_llm(v) for v in verdicts(result)[0]] == [True, False]


# --- the command line ---------------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "bench" if (tmp_path / "bench").mkdir() is None else tmp_path)
    (made.baselines / "judge").mkdir()
    (made.baselines / "judge" / "card.toml").write_text('name = "judge"\nengine = "openai"\n')
    return made


def test_eval_and_rescore_take_a_judge_and_say_what_it_cost(server, bench, capsys):
    where = ["judge=judge", f"judge_endpoint={server.url}"]
    assert bench("eval", "model=extractive", f"tasks={TASK}", "limit=10", *where) == 0
    shown = capsys.readouterr().out
    assert "judge judge: 10 of 10 verdicts (100.0%), 0 from the cache, 10 calls" in shown
    assert bench("eval", "model=extractive", f"tasks={TASK}", "limit=10", *where) == 0
    assert len(server.asked) == 10
    assert bench("rescore", "run=extractive", *where, "fresh=true") == 0
    assert len(server.asked) == 20
    assert "10 of 10 verdicts" in capsys.readouterr().out


def test_unjudged_samples_are_exit_code_3_and_the_same_command_resumes(server, bench, capsys):
    server.answer = lambda body: answer(400, {"error": "no"})
    command = ["eval", "model=extractive", f"tasks={TASK}", "limit=10", "judge=judge",
               f"judge_endpoint={server.url}"]  # fmt: skip
    assert bench(*command) == 3
    assert "10 samples have no verdict; the same command asks" in capsys.readouterr().out
    server.answer = say(RIGHT)
    assert bench(*command) == 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["judge=jude"], "did you mean judge"),
        (["judge_endpoint=http://localhost:1/v1"], "judge_endpoint= needs judge=NAME"),
        (["judge=judge"], "needs the address of a server"),
        (["judge=judge,extractive"], "one LLM judge at a time"),
        (["judge=judge", "judge_endpoint=URL", "judge_prompt=railwai"], "did you mean railway"),
    ],
)
def test_a_mistake_about_the_judge_is_one_line(bench, capsys, arguments, hint):
    assert bench("eval", "model=extractive", f"tasks={TASK}", *arguments) == 2
    message = capsys.readouterr().err
    assert hint in message
    assert message.count("\n") == 1


def test_a_judge_that_has_nothing_to_judge_is_refused(server, tmp_path, cards):
    with opened(server, tmp_path, cards) as judge, pytest.raises(UsageError, match="no LLM judges"):
        run(tmp_path, judge=judge, tasks=("kmmlu",))


def test_a_prompt_that_does_not_fit_the_scorer_is_refused(server, tmp_path, cards):
    from harness.scoring import task_scorer

    with (
        opened(server, tmp_path, cards, prompt="railway") as judge,
        pytest.raises(UsageError, match="wants gold_page, output, pred_page"),
    ):
        judge.on(task_scorer("qa"))


def test_judge_names_are_read_with_the_deciding_one_first():
    assert parse_judge("") == ("", False)
    assert parse_judge("deterministic") == ("", False)
    assert parse_judge("X") == ("X", True)
    assert parse_judge("X,deterministic") == ("X", True)
    assert parse_judge("deterministic, X") == ("X", False)


def test_the_key_of_a_judge_is_the_environments_and_never_stored(
    server, tmp_path, cards, monkeypatch
):
    monkeypatch.setenv(endpoint.KEY_VARIABLE, "sk-judge-secret")
    server.key = "sk-judge-secret"
    result, _ = judged(server, tmp_path, cards, limit=2)
    assert accuracy(result) == {1.0}
    for path in tmp_path.rglob("*.sqlite*"):
        assert b"sk-judge-secret" not in path.read_bytes()
