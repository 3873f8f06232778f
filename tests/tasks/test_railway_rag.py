"""Railway RAG on the published data: prompts, figures and clusters are the published ones."""

import dataclasses

import pytest

from harness import cli, paths
from harness.catalog import catalog
from harness.engines.scripted import ScriptedEngine
from harness.errors import DataError, UsageError
from harness.evaluate import Settings, evaluate
from harness.progress import Progress
from harness.retrieval import RETRIEVERS
from harness.retrieval.table import WITHOUT_CORPUS
from harness.schema import Model
from harness.scoring.process import doc_to_row
from harness.scoring.rag import retrieval_metrics
from tasks.railway_rag import rows

EXAMPLE = "1b310580-64f5-4755-bddf-ec2bc052b800"
TOP_K = (1, 3, 5)
PUBLISHED = {
    "answer_recall_published": (0.1689, 0.2800, 0.3156),
    "answer_recall": (0.4178, 0.6622, 0.7200),
    "gold_page_in_topk": (0.4578, 0.7378, 0.8133),
}
PUBLISHED_224 = {
    "answer_recall_published": (0.1652, 0.2768, 0.3125),
    "answer_recall": (0.4152, 0.6607, 0.7188),
    "gold_page_in_topk": (0.4554, 0.7366, 0.8125),
}
BM25 = {
    "answer_recall_published": (0.3111, 0.3600, 0.3689),
    "answer_recall": (0.7511, 0.8356, 0.8489),
    "gold_page_in_topk": (0.8222, 0.9600, 0.9822),
}


def evaluated(tmp_path, data_root, replies, **settings):
    engine = ScriptedEngine(replies)
    model = Model("scripted", "scripted", tasks=("railway_rag_top5",))
    result = evaluate(
        model,
        Settings(out=tmp_path, data=data_root, **settings),
        engine=engine,
        progress=Progress(quiet=True),
    )
    return result, engine


def means(docs, metric):
    values = [retrieval_metrics(d)[metric] for d in docs]
    return sum(values) / len(values)


def test_without_the_data_one_line_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.delenv("CHECKRAIL_DATA", raising=False)
    model = Model("scripted", "scripted", tasks=("railway_rag",))
    for settings in (Settings(out=tmp_path), Settings(out=tmp_path, data=tmp_path / "none")):
        with pytest.raises(DataError) as error:
            evaluate(model, settings, engine=ScriptedEngine([]), progress=Progress(quiet=True))
        message = str(error.value)
        assert "\n" not in message
        for part in ("bjtu_railway", "@582fb260f53a", "data=DIR", "CHECKRAIL_DATA"):
            assert part in message


def test_the_three_tasks_differ_by_their_top_k_alone():
    entries = catalog(paths.TASKS)
    seen = []
    for k in TOP_K:
        metadata = dict(entries[f"railway_rag_top{k}"].metadata)
        assert metadata.pop("top_k") == k
        assert f"top-{k} " in metadata.pop("about")
        seen.append(metadata)
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["dataset"] == "bjtu_railway"
    assert seen[0]["retriever"] == "published"


def test_placeholders_in_the_data_change_nothing_else():
    row = {"question": "{documents}", "passages": [{"page": 1, "text": "{question}"}]}
    text = rows.doc_to_text(row)
    assert "问题：{documents}\n参考文档：参考文档 1，所处页码数为 1：\n{question}\n\n###" in text


@pytest.mark.data
def test_every_top_5_prompt_and_target_is_the_published_one_to_the_character(data_root):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(data_root / "bjtu_railway/dataset/rl_data/test.parquet").to_pylist()
    docs, _ = rows.build_docs(5, data=data_root)
    assert len(docs) == len(table) == 225
    for doc, published in zip(docs, table, strict=True):
        (message,) = published["prompt"]
        assert doc.id == published["id"]
        assert rows.doc_to_text(doc_to_row(doc)) == message["content"]
        assert rows.doc_to_target(doc_to_row(doc)) == published["reward_model"]["ground_truth"]


@pytest.mark.data
@pytest.mark.parametrize("metric", PUBLISHED)
def test_the_published_ranking_gives_the_published_figures(data_root, metric):
    for k, wanted in zip(TOP_K, PUBLISHED[metric], strict=True):
        docs, _ = rows.build_docs(k, data=data_root)
        assert round(means(docs, metric), 4) == wanted
        assert {len(d.passages) for d in docs} == {k}


@pytest.mark.data
@pytest.mark.parametrize("metric", BM25)
def test_bm25_over_character_bigrams_finds_more_than_the_published_ranking(data_root, metric):
    for k, wanted, published in zip(TOP_K, BM25[metric], PUBLISHED[metric], strict=True):
        docs, _ = rows.build_docs(k, "bm25", data_root)
        assert round(means(docs, metric), 4) == wanted > published


@pytest.mark.data
@pytest.mark.parametrize("metric", PUBLISHED_224)
def test_the_figures_without_the_worked_example(data_root, metric):
    for k, wanted in zip(TOP_K, PUBLISHED_224[metric], strict=True):
        docs, _ = rows.build_docs(k, data=data_root)
        clean = [d for d in docs if d.id != EXAMPLE]
        assert (len(clean), round(means(clean, metric), 4)) == (224, wanted)


@pytest.mark.data
def test_the_board_sets_measured_beside_published_and_shows_both_n(tmp_path, data_root):
    boards = tmp_path / "boards"
    keys = [f"out={tmp_path / 'runs'}", f"boards={boards}", f"data={data_root}"]
    assert cli.main(["eval", "model=extractive", "tasks=railway_rag", *keys]) == 0
    text = (boards / "railway_rag.md").read_text(encoding="utf-8")
    for k, recall, clean in zip(
        TOP_K, PUBLISHED["answer_recall"], PUBLISHED_224["answer_recall"], strict=True
    ):
        (part,) = [p for p in text.split("\n## ") if p.startswith(f"railway_rag_top{k}\n")]
        lines = part.splitlines()
        (measured,) = [x for x in lines if "| extractive" in x and "test items in" in x]
        assert "| 225 | 15 " in measured
        published = [x for x in lines if x.startswith("| Qwen3-8B") and "published (1)" in x]
        assert [x.split(" ")[1] for x in published] == [
            "Qwen3-8B",
            "Qwen3-8B-Zero",
            "Qwen3-8B-SFT",
            "Qwen3-8B-SFT-RL",
        ]
        assert EXAMPLE in part
        (every,) = [x for x in lines if "| 225 (all)" in x]
        (without,) = [x for x in lines if "| 224 (without)" in x]
        assert f"| {recall:.4f} " in every
        assert f"| {clean:.4f} " in without
    assert "known inconsistency" in text


@pytest.mark.data
def test_there_are_225_docs_on_15_pages_and_224_without_the_worked_example(data_root):
    docs, _ = rows.build_docs(5, data=data_root)
    assert len({d.id for d in docs}) == 225
    clusters = [d.cluster for d in docs]
    assert {clusters.count(c) for c in clusters} == {15}
    assert len(set(clusters)) == 15
    clean = [d for d in docs if not d.meta["in_prompt"]]
    assert len(clean) == 224
    assert {d.id for d in docs} - {d.id for d in clean} == {EXAMPLE}
    assert round(means(clean, "answer_recall"), 4) == round((162 - 1) / 224, 4)


@pytest.mark.data
def test_a_quarter_of_the_answers_found_on_their_page_stand_on_another_as_well(data_root):
    docs, _ = rows.build_docs(1, data=data_root)
    own = [d for d in docs if d.meta["gold_page"] in d.meta["supporting_pages"]]
    assert len(own) == 192
    assert sum(len(d.meta["supporting_pages"]) > 1 for d in own) == 44


@pytest.mark.data
def test_top_1_and_3_are_the_beginning_of_top_5_with_every_retriever(
    data_root, tmp_path, monkeypatch
):
    monkeypatch.setenv("CHECKRAIL_CACHE", str(tmp_path))
    options = {"dense": {"encoder": "ngram"}, "hybrid": {"dense.encoder": "ngram"}}
    for name in (set(RETRIEVERS) - WITHOUT_CORPUS) | {"none"}:
        five, fingerprint = rows.build_docs(5, name, data_root, options.get(name))
        for k in (1, 3):
            fewer, same = rows.build_docs(k, name, data_root, options.get(name))
            assert same == fingerprint
            assert [d.passages for d in fewer] == [d.passages[:k] for d in five]


@pytest.mark.data
def test_the_oracle_shows_every_gold_page_and_else_the_published_order(data_root):
    docs, _ = rows.build_docs(5, "oracle", data_root)
    published, _ = rows.build_docs(5, "published", data_root)
    assert means(docs, "gold_page_in_topk") == 1.0
    for doc, other in zip(docs, published, strict=True):
        assert doc.passages[0].page == doc.meta["gold_page"]
        rest = [p.page for p in other.passages if p.page != doc.meta["gold_page"]]
        assert [p.page for p in doc.passages[1:]] == rest[:4]


@pytest.mark.data
def test_an_unknown_retriever_is_named_with_the_nearest(data_root):
    with pytest.raises(UsageError, match="did you mean published"):
        rows.build_docs(1, "publishd", data_root)


@pytest.mark.data
def test_the_published_targets_score_one(tmp_path, data_root):
    docs, _ = rows.build_docs(5, data=data_root)
    gold = {d.question: rows.doc_to_target(doc_to_row(d)) for d in docs}
    shown = {rows.doc_to_text(doc_to_row(d)): gold[d.question] for d in docs}
    result, engine = evaluated(tmp_path, data_root, lambda prompt, _: shown[prompt[-1].content])
    (records,) = result.records
    assert engine.calls == len(records.docs) == 225
    for doc in records.docs:
        (sample,) = doc.samples
        assert sample.metrics["joint_accuracy"] == 1.0, doc.doc_id
        assert sample.metrics["format_accuracy"] == 1.0
        assert sample.metrics["degenerate"] == 0.0
        assert sample.reasons == ()


@pytest.mark.data
def test_the_prompt_reaches_the_engine_whole_with_the_protocols_sampling(tmp_path, data_root):
    seen = []

    def reply(prompt, sampling):
        seen.append((prompt, sampling))
        return "<answer> x </answer>\n<page> 1 </page>"

    evaluated(tmp_path, data_root, reply, limit=1)
    (((message,), sampling),) = seen
    assert message.role == "user"
    assert message.content.startswith("\n你是一个高铁智能问答助手")
    assert message.content.endswith("\n\n/no_think\n")
    wanted = {"temperature": 0.0, "max_tokens": 1024, "stop": (), "thinking": False}
    assert {k: v for k, v in dataclasses.asdict(sampling).items() if k in wanted} == wanted


@pytest.mark.data
def test_another_retriever_is_another_fingerprint_over_the_same_prompt_and_data(
    tmp_path, data_root
):
    found = {}
    for name in ("", "bm25", "oracle"):
        result, _ = evaluated(
            tmp_path, data_root, lambda *_: "x", limit=1, retriever=name, tasks=("railway_rag",)
        )
        assert len(result.records) == 3
        found[name] = result.records[0].fingerprints
    assert len({f["retriever"] for f in found.values()}) == 3
    assert len({f["dataset"] for f in found.values()}) == 1
    assert len({f["prompt"] for f in found.values()}) == 1
