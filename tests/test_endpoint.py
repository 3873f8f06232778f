"""endpoint= from the command line to the run store: a server stands in for weights."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx", reason="httpx is not installed: pip install checkrail")

from harness import cli, paths
from harness.engines import endpoint, open_engine
from harness.runs import load_run
from harness.schema import Model
from tasks.railway_demo import rows
from tests.engines.conftest import CARD, need
from tests.engines.endpoint_server import Act, Server, answer, break_off, hang, say

WEIGHTLESS = "Qwen3-8B-SFT-RL"
LIMIT = 12


def gold() -> dict[str, str]:
    docs, _ = rows.build_docs("test", 5)
    return {d.question: rows.doc_to_target(rows.doc_to_row(d)) for d in docs}


class Bench:
    """A folder for everything that a command writes."""

    def __init__(self, root: Path) -> None:
        self.out = root / "runs"
        self.where = [f"out={self.out}", f"boards={root / 'boards'}", f"baselines={root / 'cards'}"]
        for name in (WEIGHTLESS, "extractive"):
            folder = root / "cards" / name
            folder.mkdir(parents=True)
            text = (paths.BASELINES / name / "card.toml").read_text("utf-8")
            (folder / "card.toml").write_text(text, "utf-8")
        (root / "cards" / "gates.toml").write_bytes((paths.BASELINES / "gates.toml").read_bytes())

    def card(self, name: str, text: str) -> None:
        folder = self.out.parent / "cards" / name
        folder.mkdir()
        (folder / "card.toml").write_text(f'name = "{name}"\n{text}', "utf-8")

    def __call__(self, *arguments: str) -> int:
        return cli.main(["eval", *arguments, *self.where])

    def gate(self) -> dict[str, Any]:
        return json.loads((self.out / "gate.json").read_text("utf-8"))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.delenv(endpoint.KEY_VARIABLE, raising=False)
    return Bench(tmp_path)


@pytest.fixture
def serve() -> Iterator[Callable[[], Server]]:
    servers: list[Server] = []

    def start() -> Server:
        servers.append(Server())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def right(body: dict[str, Any]) -> dict[str, Any]:
    """The right answer to the question in the prompt, reasoning apart."""
    prompt = body["messages"][-1]["content"]
    (reply,) = {a for question, a in gold().items() if question in prompt}
    return say(reply, reasoning={"reasoning_content": "Let me look."})(body)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_card_without_weights_says_in_one_line_what_to_do(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(f"model={WEIGHTLESS}", "tasks=railway_demo_top1") == 2
    line = one_line(capsys)
    for way in ("path=", "endpoint=http://HOST:PORT/v1", "HF_ENDPOINT="):
        assert way in line


def test_a_server_stands_in_for_the_weights_of_any_card(
    bench: Bench, serve: Callable[[], Server]
) -> None:
    server = serve()
    server.answer = right
    ask = (f"model={WEIGHTLESS}", "tasks=railway_demo_top1", "limit=3")
    assert bench(*ask, f"endpoint={server.url}", "served=tiny") == 0
    records = load_run(WEIGHTLESS, bench.out)["railway_demo_top1"]
    assert [d.mean("joint_accuracy") for d in records.docs] == [1.0] * 3
    assert len(server.asked) == 3
    assert {body["model"] for body in server.asked} == {"tiny"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["endpoint=http://127.0.0.1:1/v1"], "needs model=NAME"),
        (["model=extractive", "endpoint=http://127.0.0.1:1/v1"], "without a model"),
        (
            [f"model={WEIGHTLESS}", "endpoint=http://127.0.0.1:1/v1", "path=x"],
            "leave out engine=, path= and adapter=",
        ),
        ([f"model={WEIGHTLESS}", "served=x"], "served=x needs endpoint="),
        ([f"model={WEIGHTLESS}", "engine=openai"], "endpoint=http://HOST:PORT/v1"),
        ([f"model={WEIGHTLESS}", "endpoint=127.0.0.1:8000"], "no http://"),
    ],
)
def test_a_wrong_endpoint_is_a_usage_error(
    bench: Bench, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(*arguments) == 2
    assert message in one_line(capsys)


def test_a_server_that_is_not_there_is_one_line_and_not_a_failed_sample_each(
    bench: Bench, serve: Callable[[], Server], capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve()
    server.shutdown()
    server.server_close()
    ask = (f"model={WEIGHTLESS}", "tasks=railway_demo", f"endpoint={server.url}")
    assert bench(*ask) == 3
    assert "no model server answers" in one_line(capsys)
    assert bench.gate()["exit_code"] == 3
    assert not list(bench.out.glob("Qwen*"))


FAILURES: list[Act] = [
    answer(500, {"error": "out of memory"}),
    answer(429, {"error": "busy"}, Retry_After="0"),
    answer(200, {"choices": []}),
    break_off,
    hang,
]


def test_a_server_that_fails_some_docs_loses_nothing_and_the_same_command_completes(
    bench: Bench, serve: Callable[[], Server], capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve()
    bench.card(
        "stand-in",
        f'engine = "openai"\n[flags]\nendpoint = "{server.url}"\ntimeout = 0.3\nretries = 1\n',
    )
    questions = sorted(gold())
    sick = {q: FAILURES[i % 5] for i, q in enumerate(questions) if zlib.crc32(q.encode()) % 2}

    def unwell(body: dict[str, Any]) -> dict[str, Any] | Act:
        prompt = body["messages"][-1]["content"]
        failing = [act for question, act in sick.items() if question in prompt]
        return failing[0] if failing else right(body)

    server.answer = unwell
    ask = ("model=stand-in", "tasks=railway_demo_top1", f"limit={LIMIT}")
    assert bench(*ask) == 3
    first = load_run("stand-in", bench.out)["railway_demo_top1"]
    assert 0 < first.missing < LIMIT and len(first.docs) == LIMIT - first.missing
    assert [d.mean("joint_accuracy") for d in first.docs] == [1.0] * len(first.docs)
    assert f"{first.missing} docs are missing" in capsys.readouterr().out
    assert bench.gate()["exit_code"] == 3

    well = serve()  # the server comes back, on another port
    well.answer = right
    assert bench(*ask, f"endpoint={well.url}") == 0
    last = load_run("stand-in", bench.out)["railway_demo_top1"]
    assert last.missing == 0 and len(well.asked) == first.missing
    assert [d.mean("joint_accuracy") for d in last.docs] == [1.0] * LIMIT
    kept = {d.doc_id: d.samples for d in first.docs}
    assert all(d.samples == kept[d.doc_id] for d in last.docs if d.doc_id in kept)
    assert bench(*ask, f"endpoint={well.url}") == 0
    assert len(well.asked) == first.missing  # a finished run asks nothing


def test_the_key_is_nowhere_in_what_a_run_leaves(
    bench: Bench, serve: Callable[[], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    server.key = "sk-very-secret"
    server.answer = right
    monkeypatch.setenv(endpoint.KEY_VARIABLE, server.key)
    ask = (f"model={WEIGHTLESS}", "tasks=railway_demo_top1", "limit=2")
    assert bench(*ask, f"endpoint={server.url}") == 0
    monkeypatch.setenv(endpoint.KEY_VARIABLE, "sk-no-longer-good")
    assert bench(*ask, f"endpoint={server.url}", "limit=3") == 2
    for file in bench.out.parent.rglob("*"):
        if file.is_file():
            assert b"sk-very-secret" not in file.read_bytes()
            assert b"sk-no-longer" not in file.read_bytes()


@pytest.mark.parametrize(
    ("tasks", "limit"),
    [
        ("railway_demo_top1", 1),
        pytest.param("railway_demo", 2, marks=pytest.mark.soak),  # a minute on a busy machine
    ],
)
def test_llama_cpp_s_server_stands_in_for_a_card_without_weights(
    bench: Bench, tasks: str, limit: int
) -> None:
    need("llamacpp")
    card = dataclasses.replace(
        CARD, engine="llamacpp", context_length=2048, parallelism={"requests": 1}
    )
    engine: Any = open_engine(card, threads=1)
    try:
        ask = (f"model={WEIGHTLESS}", f"tasks={tasks}", f"limit={limit}", "max_tokens=8")
        assert bench(*ask, f"endpoint=http://{engine.address}/v1") == 0
    finally:
        engine.close()
    found = load_run(WEIGHTLESS, bench.out)
    assert len(found) == (1 if limit == 1 else 3)
    for records in found.values():
        assert records.missing == 0 and len(records.docs) == limit
        assert all(s.completion_tokens for d in records.docs for s in d.samples)


def test_a_card_keeps_what_is_its_own_at_an_endpoint() -> None:
    from harness.models import at_endpoint

    card = Model(
        "m", "hf", path="a/b", think_tags=("[", "]"), tasks=("t",), flags={"dtype": "float32"},
        sampling={"temperature": 0.6}, parent="p",
    )  # fmt: skip
    moved = at_endpoint(card, "http://h/v1", "x")
    assert moved == dataclasses.replace(
        card, engine="openai", flags={"endpoint": "http://h/v1", "model": "x"}
    )
    again = at_endpoint(dataclasses.replace(moved, flags={**moved.flags, "retries": 2}), "http://i")
    assert again.flags == {"endpoint": "http://i", "model": "x", "retries": 2}
