"""`build` against a real HTTP server: whole, killed, resumed, refused; and what comes of it."""

import json
import re
import signal
import subprocess
import sys
import threading

import pytest

from harness import cli
from harness.building.ask import Reply, candidates, render, spans
from harness.evaluate import Settings, evaluate
from harness.models import load_model
from harness.progress import Progress
from tests.conftest import ROOT
from tests.engines.endpoint_server import Server, answer, hang, say

WORDS = ["brake", "guard", "signal", "tunnel", "bridge", "siding", "depot", "buffer"]
NUMBERS = ["seven", "eight", "nine"]
DOCUMENT = "\f".join(
    "\n".join(f"The {word} of line {n} is checked by the {word} crew {n}." for n in NUMBERS)
    for word in WORDS
)


def proposals(body):
    """Three good questions about the page of the prompt, one wrong one, one again."""
    page = body["messages"][0]["content"].rpartition("Page:\n")[2]
    found = re.findall(r"The (\w+) of line (\w+) is checked by the (\w+ crew \w+)\.", page)
    items = [
        {"question": f"Shift {n}: who keeps {n} {word} parts, {n} in all?", "answer": crew}
        for word, n, crew in found
    ]
    wrong = {"question": "Who is it that nobody has ever heard of?", "answer": "the minister"}
    return say(json.dumps({"questions": [*items, wrong, items[0]]}))(body)


@pytest.fixture
def server():
    made = Server()
    made.answer = proposals
    yield made
    made.stop()


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "plan.txt"
    path.write_text(DOCUMENT, encoding="utf-8")
    return path


def build(server, document, *more):
    out = document.parent / "built"
    given = [f"document={document}", f"endpoint={server.url}", f"out={out}", "requests=1", *more]
    return cli.main(["build", *given]), out


def rows(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_build_writes_every_set_and_reports_its_acceptance(server, document, capsys):
    code, out = build(server, document)
    assert code == 0
    assert "40 questions proposed, 24 accepted (60.0%)" in capsys.readouterr().out
    assert len(rows(out / "pages.jsonl")) == 8
    assert {r["reason"] for r in rows(out / "rejects.jsonl")} == {"answer_not_on_page", "duplicate"}
    sizes = {n: len(rows(out / f"{n}.jsonl")) for n in ("questions", "test", "zero", "sft", "rl")}
    assert sizes == {"questions": 24, "test": 9, "zero": 15, "sft": 3, "rl": 12}
    assert json.loads((out / "build.json").read_text())["figures"]["acceptance"] == 0.6
    row = rows(out / "rl.jsonl")[0]
    assert len(row["passages"]) == 5
    assert row["question"] in row["prompt"]
    assert row["completion"] == f"<answer> {row['answer']} </answer>\n<page> {row['page']} </page>"


def test_the_model_is_asked_as_told(server, document):
    build(server, document, "questions=5", "temperature=0.5")
    body = server.asked[0]
    assert body["temperature"] == 0.5
    schema = body["response_format"]["json_schema"]["schema"]["properties"]["questions"]
    assert (schema["minItems"], schema["maxItems"]) == (5, 5)


def test_a_build_that_broke_off_asks_for_the_missing_pages_only(server, document, capsys):
    good = server.answer
    calls = []

    def three_then_gone(body):
        calls.append(body)
        return good(body) if len(calls) <= 3 else answer(401, {"error": "no"})

    server.answer = three_then_gone
    code, out = build(server, document)
    assert code == 3
    assert "401" in capsys.readouterr().err
    assert len(rows(out / "replies.jsonl")) == 3
    with (out / "replies.jsonl").open("a") as stream:
        stream.write('{"chunk_id": "p4_c0", "rep')  # killed in the middle of a line
    server.answer = good
    asked = len(server.asked)
    assert build(server, document)[0] == 0
    assert len(server.asked) - asked == 5
    assert build(server, document)[0] == 0
    assert len(server.asked) - asked == 5
    whole = (out / "questions.jsonl").read_bytes()
    assert build(server, document, "fresh=true")[0] == 0
    assert (out / "questions.jsonl").read_bytes() == whole


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_process_keeps_every_finished_page(server, document, number):
    stuck = threading.Event()

    def two_then_stuck(body):
        if len(server.asked) <= 2:
            return proposals(body)
        stuck.set()
        return hang

    server.answer = two_then_stuck
    out = document.parent / "built"
    given = [f"document={document}", f"endpoint={server.url}", f"out={out}", "requests=1"]
    command = [sys.executable, "-m", "harness", "build", *given]
    process = subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True,
        # a suite that runs in the background of a shell hands down an ignored SIGINT
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert stuck.wait(60)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    if number == signal.SIGINT:
        assert process.returncode == 3
        assert "the same command resumes" in said
    assert len(rows(out / "replies.jsonl")) == 2
    server.answer = proposals
    before = len(server.asked)
    assert build(server, document)[0] == 0
    assert len(server.asked) - before == 6


def test_a_folder_of_another_build_is_refused_and_left_alone(server, document, capsys):
    _, out = build(server, document)
    before = (out / "replies.jsonl").read_bytes()
    assert build(server, document, "temperature=0.7")[0] == 2
    assert "holds a build with temperature 0.5, not 0.7" in capsys.readouterr().err
    assert (out / "replies.jsonl").read_bytes() == before
    assert build(server, document, "split=question")[0] == 0  # no reply depends on it


def test_a_server_without_schemas_is_asked_for_plain_json(server, document):
    def picky(body):
        kind = body.get("response_format", {}).get("type")
        return answer(400, {"error": "unknown"}) if kind == "json_schema" else proposals(body)

    server.answer = picky
    assert build(server, document)[0] == 0
    kinds = [b.get("response_format", {}).get("type") for b in server.asked]
    assert kinds == ["json_schema"] + ["json_object"] * 8


def test_a_reply_without_questions_is_asked_again_and_then_kept_as_a_reject(server, document):
    server.answer = lambda body: (
        say("Sure!")(body) if "siding" in str(body["messages"]) else proposals(body)
    )
    code, out = build(server, document)
    assert code == 0
    assert len(server.asked) == 7 + 3
    (reject,) = [r for r in rows(out / "rejects.jsonl") if r["reason"] == "malformed"]
    assert reject["candidate"] == {"reply": "Sure!"}


def test_spans_deal_the_answers_out(server, document):
    def ask(body):
        word = re.search(r"Answer: (.*)\nQuestion: $", body["prompt"])[1]
        number = sum(map(ord, word))
        return say(json.dumps({"question": f"Which thing {number} is {number} checked by whom?"}))(
            body
        )

    server.answer = ask
    code, out = build(server, document, "answers=spans", "form=completion", "questions=2")
    assert code == 0
    pages = {r["chunk_id"]: r["text"] for r in rows(out / "pages.jsonl")}
    for row in rows(out / "questions.jsonl"):
        assert row["answer"] in pages[row["chunk_id"]]
    assert len(server.asked) == 16


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["out=x", "endpoint=http://127.0.0.1:1/v1"], "build needs document="),
        (["document=x.pdf", "out=x"], "build needs endpoint="),
        (["document=x", "endpoint=u", "out=x", "answers=span"], "did you mean spans?"),
        (["document=x", "endpoint=u", "out=x", "questions=0"], "must be at least 1"),
        (["document=x", "endpoint=u", "out=x", "temperature=3"], "between 0 and 2"),
        (["document=x.pdf", "endpoint=u", "out=x"], "no such file"),
    ],
)
def test_mistakes_are_one_line(arguments, says, capsys):
    assert cli.main(["build", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_what_was_built_can_be_evaluated(server, document, tmp_path):
    _, out = build(server, document)
    settings = Settings(out=tmp_path / "runs", tasks=("document_rag_top1",), data=out)
    (records,) = evaluate(load_model("extractive"), settings, progress=Progress(quiet=True)).records
    assert len(records.docs) == 9
    assert {d.cluster for d in records.docs} == {r["chunk_id"] for r in rows(out / "test.jsonl")}
    assert all(d.mean("joint_accuracy") is not None for d in records.docs)


def test_questions_are_found_in_prose_behind_thinking_and_in_cut_json():
    item = '{"question": "q", "answer": "a"}'
    wanted = [{"question": "q", "answer": "a"}]
    for text in (
        item,
        f"[{item}]",
        f'```json\n{{"questions": [{item}]}}\n```',
        f'<think>{{"question": "no"}}</think>{item}',
        f'{{"questions": [{item}, {{"question": "half',
    ):
        assert candidates(Reply(text)) == wanted, text
    assert candidates(Reply('{"question": "q"}', "a")) == wanted
    assert candidates(Reply("[1, 2] {")) == []


def test_text_of_a_page_fills_no_placeholder():
    assert "{answer} {n}" in render("span_chat", "of {answer} {n}", answer="crew")


def test_spans_are_clauses_of_the_page_each_once():
    page = "列车长应立即通知司机，列车长应立即通知司机。好，乘务人员组织疏散旅客；关闭车门并锁闭"
    assert spans(page, 15) == ["列车长应立即通知司机", "乘务人员组织疏散旅客", "关闭车门并锁闭"]
    assert len(spans(page, 2)) == 2


def test_headings_numbers_and_references_are_no_part_of_a_span():
    page = (
        "## 第二章 事故等级\n第三章 应急 救援\n第七条 列车长应当立即报告，有下列情形之一的；\n"
        "(二)客运列车脱轨2辆以上\n除前款规定外\n第八条 任何单位不得干扰事故应急救援"
    )
    assert spans(page, 15) == [
        "列车长应当立即报告", "客运列车脱轨2辆以上", "任何单位不得干扰事故应急救援"
    ]  # fmt: skip
