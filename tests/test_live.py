"""Policies that search get a live retriever, and a run with another one is another run."""

import pytest

from harness.engines.scripted import ScriptedEngine
from harness.errors import UsageError
from harness.evaluate import Settings, evaluate
from harness.progress import Progress
from harness.retrieval.bm25 import BM25
from harness.schema import Model
from harness.store import Store
from tests import searchable, standin

MODEL = Model("scripted", "scripted", tasks=("searchable",))


def reply(prompt, sampling):
    text = bytes(i for i in prompt if i < 256).decode() if isinstance(prompt[0], int) else ""
    if "Bell" in text:
        return "</think> <answer>Ann Bell</answer>"
    return "<|begin_of_query|> bridge Ironford <|end_of_query|>"


def run(tmp_path, yaml=searchable.YAML, **settings):
    folder = tmp_path / "tasks"
    folder.mkdir(exist_ok=True)
    (folder / "searchable.yaml").write_text(yaml)
    engine = ScriptedEngine(reply)
    result = evaluate(
        MODEL,
        Settings(out=tmp_path / "runs", tasks_folder=folder, **settings),
        engine=engine,
        progress=Progress(quiet=True),
    )
    return result, engine


def test_the_tasks_corpus_is_searched_while_the_rollout_plays(tmp_path):
    result, _ = run(tmp_path)
    with Store.open(result.run) as store:
        rollouts = [r.rollout for r in store.records("searchable")]
    assert len(rollouts) == 3
    for rollout in rollouts:
        assert rollout.searches == 1
        assert rollout.turns[1].passages[0] == "p1"
        assert rollout.answer == "</think> <answer>Ann Bell</answer>"
    assert result.records[0].fingerprints["retriever"].startswith("bm25")
    assert result.records[0].info["retriever"] == "bm25"


def test_a_finished_run_asks_no_engine_and_builds_no_index(tmp_path, monkeypatch):
    run(tmp_path)
    monkeypatch.setattr(BM25, "retrieve", lambda *_: pytest.fail("searched"))
    again, engine = run(tmp_path)
    assert engine.calls == 0
    assert again.outcome.reused == 3


def test_another_retriever_or_another_corpus_is_not_taken_for_the_same(tmp_path, monkeypatch):
    first, _ = run(tmp_path)
    other, engine = run(tmp_path, retriever="rank_bm25")
    assert engine.calls > 0
    assert other.run_id != first.run_id
    tuned, _ = run(tmp_path, retriever_options={"k1": 2.0})
    assert tuned.run_id != first.run_id
    monkeypatch.setattr(searchable, "PASSAGES", searchable.PASSAGES[:2])
    shrunk, engine = run(tmp_path)
    assert shrunk.run_id == first.run_id
    assert shrunk.outcome.reused == 0
    assert engine.calls > 0


def test_a_policy_that_does_not_search_opens_no_corpus(tmp_path):
    searchable.opened.clear()
    run(tmp_path, policy="single_turn", limit=1)
    assert searchable.opened == []


def test_a_task_without_a_corpus_says_so_before_anything_is_played(tmp_path):
    yaml = searchable.YAML.replace(", corpus: small", "")
    with pytest.raises(UsageError, match="has no corpus"):
        run(tmp_path, yaml)


def test_a_wrong_option_is_found_before_anything_is_played(tmp_path):
    with pytest.raises(UsageError, match="max_searches"):
        run(tmp_path, policy_options={"max_serches": 3})


def test_an_engine_that_cannot_go_on_in_a_turn_is_refused_before_a_sample_is_played(
    tmp_path, monkeypatch
):
    made = ScriptedEngine.__init__

    def without(self, *args, **settings):
        made(self, *args, **settings)
        self.capabilities -= {"continue"}

    monkeypatch.setattr(ScriptedEngine, "__init__", without)
    with pytest.raises(UsageError, match="needs continue"):
        run(tmp_path)
    result, _ = run(tmp_path, policy="naive")
    assert result.complete


# --- recorded and replayed --------------------------------------------------------------------


def prompts(run):
    with Store.open(run) as store:
        records = list(store.records("searchable"))
    assert records
    return {r.doc_id: [t.prompt_ids for t in r.rollout.turns if t.prompt_ids] for r in records}


@pytest.mark.parametrize("api", ["google", "searxng"])
@pytest.mark.parametrize("policy", ["search", "rag"])
def test_a_web_run_plays_again_without_a_network_with_the_same_prompts(
    tmp_path, monkeypatch, api, policy
):
    monkeypatch.setenv("GOOGLE_API_KEY", "secret-key")
    monkeypatch.setenv("GOOGLE_CSE_ID", "engine")
    base = []
    with standin.server(lambda p, q: getattr(standin, api)(base[0])(p, q)) as (url, seen):
        base.append(url)
        options = {"url": url, "pages": True, "allow_private": True}
        live, _ = run(tmp_path, policy=policy, retriever=api, retriever_options=options)
        asked = len(seen)
    assert asked
    assert live.complete
    again, _ = run(tmp_path, policy=policy, retriever=api, retriever_options=options)
    assert again.outcome.reused == 3  # finished: asks nobody
    replayed, engine = run(
        tmp_path, policy=policy, retriever="replay", retriever_options={"run": live.run_id}
    )
    assert engine.calls
    assert replayed.complete
    assert replayed.run != live.run
    assert prompts(replayed.run) == prompts(live.run)
    same = [r.records[0].fingerprints["retriever"] for r in (live, replayed)]
    assert same[0] == same[1]
    assert b"secret-key" not in (live.run / "searches.jsonl").read_bytes()


def test_without_its_network_a_web_run_fails_and_is_completed_later(tmp_path, monkeypatch):
    monkeypatch.setenv("SEARXNG_URL", "http://127.0.0.1:9")
    options = {"retries": 0}
    result, _ = run(tmp_path, retriever="searxng", retriever_options=options)
    assert not result.complete
    assert result.outcome.failed == 3
    assert "127.0.0.1:9" in result.outcome.error


def test_another_corpus_is_searched_by_its_path(tmp_path, monkeypatch):
    monkeypatch.setenv("CHECKRAIL_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "mine.jsonl"
    file.write_text('{"id": "mine", "contents": "Ironford   Its bridge is by Ann Bell."}\n')
    index = tmp_path / "index"
    result, _ = run(tmp_path, retriever_options={"corpus": str(file), "index": str(index)})
    with Store.open(result.run) as store:
        shown = {r.rollout.turns[1].passages for r in store.records("searchable")}
    assert shown == {("mine",)}
    assert (index / "bm25.json").exists()


BOATS = (
    "<substep>Ann Bell built it.</substep><reflection>Who built it? Was it Bell? ok</reflection>"
)


def remember(prompt, sampling):
    """A whole Bookmark rollout, told by what stands in the prompt."""
    text = prompt[-1].content if not isinstance(prompt[0], int) else bytes(prompt).decode()
    if "Summarise the step" in text:
        return "Bell built it."
    said = text.rpartition("assistant: ")[2]
    if "<bookmark>" in said:
        return "</reflection> <answer>Ann Bell</answer>"
    return BOATS.removeprefix(said) if BOATS.startswith(said) else BOATS


def test_a_bookmark_run_keeps_each_context_and_shows_what_it_did_on_any_task(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.test_live.reply", remember)
    chosen = {"policy": "bookmark", "policy_options": {"encoder": "ngram"}}
    result, _ = run(tmp_path, **chosen)
    with Store.open(result.run) as store:
        records = list(store.records("searchable"))
    for record in records:
        assert record.rollout.answer.endswith("</reflection> <answer>Ann Bell</answer>")
        assert record.score.metrics["compressions"] == 1
        assert record.score.metrics["archive_size"] == 1
        (context,) = [t for t in record.rollout.turns if t.kind == "environment"]
        assert context.text.startswith("<bookmark>Bell built it.</bookmark>\n<reflection>Who")
        assert context.passages == ("substep-1",)
    assert "compressions" in result.records[0].info["columns"]
    assert "ngram:" in result.records[0].fingerprints["policy"]
    again, engine = run(tmp_path, **chosen)
    assert (engine.calls, again.outcome.reused) == (0, 3)
    other, _ = run(tmp_path, policy="bookmark", policy_options={"encoder": "ngram", "fetch": 2})
    assert other.run_id != result.run_id
