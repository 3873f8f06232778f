"""The retrieval server and its client, over real connections."""

import asyncio
import os
import subprocess
import sys
import threading

import httpx
import pytest

from harness.cli import main
from harness.engines.scripted import ScriptedEngine
from harness.errors import RetrieverError, UsageError
from harness.evaluate import Settings, evaluate
from harness.progress import Progress
from harness.retrieval import Corpus, open_retriever
from harness.retrieval.server import check_bind
from harness.schema import Model, Passage, RetrievalError
from tests import json_server, searchable
from tests.conftest import ROOT
from tests.retrieval.serving import free_port, serving

pytest.importorskip("fastapi")

NOTHING = Corpus.of(())
PAGES = Corpus.of(
    [
        Passage("a", "red fox", title="Animals", page=3),
        Passage("b", "blue whale and red algae"),
        Passage("c", "Sie läuft; 狐は走る"),
    ]
)


@pytest.fixture(scope="module")
def url():
    with serving(open_retriever("bm25", PAGES)) as address:
        yield address


def post(url, path, body, **headers):
    return httpx.post(f"{url}{path}", json=body, headers=headers, trust_env=False)


# --- formats ----------------------------------------------------------------------------------


def test_retrieve_answers_as_search_r1s_server_does(url):
    body = {"queries": ["red fox", "whale"], "topk": 1, "return_scores": True}
    result = post(url, "/retrieve", body).json()["result"]
    assert [len(hits) for hits in result] == [1, 1]
    document = result[0][0]["document"]
    assert document["id"] == "a"
    assert document["contents"].split("\n") == ['"Animals"', "red fox"]
    assert result[0][0]["score"] > 0
    plain = post(url, "/retrieve", {"queries": ["red"]}).json()["result"]
    assert [hit["id"] for hit in plain[0]] == ["a", "b"]


def test_search_and_batch_search_answer_as_servers_of_flashrag_do(url):
    (one,) = post(url, "/search", {"query": "whale", "top_n": 2}).json()
    assert (one["id"], one["contents"]) == ("b", "blue whale and red algae")
    body = {"query": ["whale", "fox"], "top_n": 2, "return_score": True}
    documents, scores = post(url, "/batch_search", body).json()
    assert [[d["id"] for d in found] for found in documents] == [["b"], ["a"]]
    assert [len(s) for s in scores] == [1, 1]


@pytest.mark.parametrize(
    "body", [{}, {"queries": "fox"}, {"queries": ["a"], "topk": 0}, {"queries": ["a"] * 1001}]
)
def test_a_request_that_makes_no_sense_is_refused(url, body):
    assert post(url, "/retrieve", body).status_code == 422


def test_health_and_metrics_say_what_is_served_and_how_much(url):
    assert httpx.get(f"{url}/health", trust_env=False).json() == {
        "status": "ok",
        "retriever": open_retriever("bm25", PAGES).fingerprint,
    }
    before = metrics(url)
    post(url, "/retrieve", {"queries": ["red", "blue"]})
    after = metrics(url)
    assert after["requests_total"] == before["requests_total"] + 1
    assert after["queries_total"] == before["queries_total"] + 2
    assert after["seconds_total"] > before["seconds_total"]


def metrics(url):
    text = httpx.get(f"{url}/metrics", trust_env=False).text
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix("checkrail_retrieval_"): float(value) for name, value in lines}


class Broken:
    fingerprint = "broken"

    def retrieve(self, queries, k):
        if "crash" in queries:
            raise ValueError("no index")
        return [RetrievalError(q, "down") if q == "fail" else [] for q in queries]


def test_a_failure_is_a_503_and_never_an_empty_answer():
    with serving(Broken()) as url:
        for query, said in (("fail", "down"), ("crash", "no index")):
            answer = post(url, "/retrieve", {"queries": [query]})
            assert answer.status_code == 503
            assert said in answer.text
        assert post(url, "/retrieve", {"queries": ["fine"]}).json()["result"] == [[]]
        assert metrics(url)["errors_total"] == 2


# --- many clients -----------------------------------------------------------------------------


class Slow:
    """Counts its calls; each takes a moment, as searching a large index does."""

    fingerprint = "slow"

    def __init__(self):
        self.calls = []

    def retrieve(self, queries, k):
        self.calls.append(len(queries))
        threading.Event().wait(0.02)
        return [[Passage(q, q)] for q in queries]


def test_200_concurrent_clients_are_answered_without_an_error_in_few_batches():
    slow = Slow()
    with serving(slow) as url:

        async def client(n):
            async with httpx.AsyncClient(trust_env=False, timeout=60) as own:
                ready.append(n)
                while len(ready) < 200:
                    await asyncio.sleep(0)
                body = {"queries": [f"q{n}"], "topk": 1, "return_scores": True}
                return await own.post(f"{url}/retrieve", json=body)

        async def everybody():
            return await asyncio.gather(*(client(n) for n in range(200)))

        ready = []
        answers = asyncio.run(everybody())
    assert [a.status_code for a in answers] == [200] * 200
    ids = [a.json()["result"][0][0]["document"]["id"] for a in answers]
    assert ids == [f"q{n}" for n in range(200)]  # each got its own
    assert sum(slow.calls) == 200
    assert len(slow.calls) < 200


# --- who may ask ------------------------------------------------------------------------------


def test_a_key_is_wanted_of_all_but_health(monkeypatch):
    monkeypatch.setenv("SEARCH_KEY", "secret")
    with serving(open_retriever("bm25", PAGES), key="secret") as url:
        assert post(url, "/retrieve", {"queries": ["fox"]}).status_code == 401
        wrong = {"Authorization": "Bearer other"}
        assert post(url, "/retrieve", {"queries": ["fox"]}, **wrong).status_code == 401
        assert httpx.get(f"{url}/metrics", trust_env=False).status_code == 401
        assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
        keyed = open_retriever("remote", NOTHING, url=url, key_env="SEARCH_KEY")
        assert keyed.retrieve(["fox"], 1)[0][0].doc_id == "a"
        (refused,) = open_retriever("remote", NOTHING, url=url).retrieve(["fox"], 1)
        assert isinstance(refused, RetrievalError)
        assert "401" in refused.message


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_a_public_address_needs_a_key_and_loopback_none(host):
    with pytest.raises(UsageError, match="key_env"):
        check_bind(host, "")
    check_bind(host, "secret")
    check_bind("127.0.0.1", "")


def test_the_verb_serves_a_file_until_it_is_stopped(tmp_path):
    file = tmp_path / "c.jsonl"
    file.write_text('{"id": "a", "contents": "Fox   A red fox."}\n')
    command = [sys.executable, "-m", "harness", "serve", f"corpus={file}", "port=0"]
    environment = {**os.environ, "CHECKRAIL_CACHE": str(tmp_path / "cache")}
    server = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    try:
        said = server.stdout.readline()
        assert "this machine only" in said
        url = said.split(" at ")[1].split()[0]
        assert url.startswith("http://127.0.0.1:")
        found = open_retriever("remote", NOTHING, url=url).retrieve(["fox"], 1)
        assert found[0][0].title == "Fox"
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["host=0.0.0.0", "corpus=x.jsonl"], "key_env"),
        ([], "needs corpus=FILE"),
        (["corpus=x.jsonl", "retriever=none"], "something else than corpus=FILE"),
        (["corpus=x.jsonl"], "cannot be read"),
        (["corpus=x.jsonl", "key_env=NO_SUCH_VARIABLE"], "not set"),
    ],
)
def test_the_verb_says_what_is_wrong_in_one_line(capsys, arguments, message):
    assert main(["serve", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


# --- the client -------------------------------------------------------------------------------


def test_remote_gives_what_the_server_searches_passage_by_passage(url):
    here = open_retriever("bm25", PAGES)
    remote = open_retriever("remote", NOTHING, url=url, batch=1)
    asked = ["red fox", "狐は", "nothing of it"]
    assert remote.retrieve(asked, 2) == here.retrieve(asked, 2)
    assert remote.retrieve(asked, 0) == [[], [], []]
    assert remote.retrieve([], 2) == []


def test_the_fingerprint_is_that_of_what_is_served_and_not_of_its_address(url):
    first = open_retriever("remote", NOTHING, url=url).fingerprint
    with serving(open_retriever("bm25", PAGES)) as other:
        assert open_retriever("remote", NOTHING, url=f"{other}/retrieve").fingerprint == first
    with serving(open_retriever("bm25", PAGES, k1=2.0)) as other:
        assert open_retriever("remote", NOTHING, url=other).fingerprint != first


def test_another_index_behind_the_same_address_is_noticed():
    port = free_port()
    with serving(open_retriever("bm25", PAGES), port) as url:
        remote = open_retriever("remote", NOTHING, url=url, retries=0)
    with serving(open_retriever("bm25", PAGES, k1=2.0), port):
        (found,) = remote.retrieve(["fox"], 1)
    assert isinstance(found, RetrievalError)
    assert "something else now" in found.message


def replying(reply):
    """Somebody else's server: one reply to every POST, nothing to GET."""
    none = (404, {"detail": "Not Found"})
    return lambda request: (200, reply) if request.method == "POST" else none


def test_a_server_that_says_little_is_read_too():
    hit = {"document": {"id": 7, "contents": '"Lyon"\nA city.'}, "score": 0.5}
    with json_server.serving(replying({"result": [[hit]]})) as (url, seen):
        remote = open_retriever("remote", NOTHING, url=url)
        assert remote.retrieve(["Lyon?"], 3) == [[Passage("7", "A city.", 0.5, "Lyon")]]
    posted = [request.body for request in seen if request.method == "POST"]
    assert posted == [{"queries": ["Lyon?"], "topk": 3, "return_scores": True}]


@pytest.mark.parametrize(
    "reply", [[], {}, {"result": []}, {"result": [[{"score": 1}]]}, {"result": 3}]
)
def test_an_answer_of_another_form_is_an_error_of_the_query(reply):
    with json_server.serving(replying(reply)) as (url, _):
        (found,) = open_retriever("remote", NOTHING, url=url, retries=0).retrieve(["q"], 3)
    assert isinstance(found, RetrievalError)


def test_a_server_that_is_not_there_is_one_line_before_anything_is_played():
    with pytest.raises(RetrieverError, match="no retrieval server"):
        open_retriever("remote", NOTHING, url=f"http://127.0.0.1:{free_port()}", retries=0)
    with pytest.raises(UsageError, match="url"):
        open_retriever("remote", NOTHING)


# --- an evaluation ----------------------------------------------------------------------------


class Dying:
    """Answers one query, then none."""

    def __init__(self, inner):
        self.inner, self.fingerprint, self.alive = inner, inner.fingerprint, True

    def retrieve(self, queries, k):
        if not self.alive:
            raise OSError("killed")
        self.alive = False
        return self.inner.retrieve(queries, k)


def run(tmp_path, url, **settings):
    folder = tmp_path / "tasks"
    folder.mkdir(exist_ok=True)
    (folder / "searchable.yaml").write_text(searchable.YAML)
    return evaluate(
        Model("scripted", "scripted", tasks=("searchable",)),
        Settings(
            out=tmp_path / "runs", tasks_folder=folder, retriever="remote", window=1,
            retriever_options={"url": url, "retries": 0}, **settings,
        ),
        engine=ScriptedEngine(varied),
        progress=Progress(quiet=True),
    )  # fmt: skip


def varied(prompt, sampling):
    """Each question searches for something of its own, so that no answer is known already."""
    text = bytes(i for i in prompt if i < 256).decode() if isinstance(prompt[0], int) else ""
    if "Bell" in text:
        return "</think> <answer>Ann Bell</answer>"
    number = sampling.seed or 0
    return f"<|begin_of_query|> bridge Ironford {number} <|end_of_query|>"


def test_an_evaluation_whose_server_dies_is_incomplete_and_resumes_when_it_is_back(tmp_path):
    port = free_port()
    passages = Corpus.of(searchable.PASSAGES)
    with serving(Dying(open_retriever("bm25", passages)), port) as url:
        first = run(tmp_path, url)
    assert not first.complete  # exit code 3
    assert first.outcome.failed >= 1
    assert all(r.missing for r in first.records)
    with pytest.raises(RetrieverError) as gone:  # nobody there: the same exit code
        run(tmp_path, url)
    assert gone.value.exit_code == 3
    with serving(open_retriever("bm25", passages), port) as url:
        second = run(tmp_path, url)
    assert second.complete
    assert second.run_id == first.run_id
    assert second.outcome.reused == 3 - first.outcome.failed


def test_what_a_server_answered_plays_again_without_it(tmp_path):
    with serving(open_retriever("bm25", Corpus.of(searchable.PASSAGES))) as url:
        live = run(tmp_path, url)
    assert live.complete
    assert (live.run / "searches.jsonl").read_text().count("\n") == 3
