"""Multi-hop questions: the published sets, their corpora and gold passages, and one's own files."""

import json

import pytest

from harness import paths
from harness.catalog import catalog, expand
from harness.data import locate
from harness.engines.scripted import ScriptedEngine
from harness.errors import DataError, UsageError
from harness.evaluate import Settings, evaluate
from harness.jsonl import read_rows
from harness.leaks import bare, find_leaks
from harness.progress import Progress
from harness.retrieval import open_retriever
from harness.schema import Doc, Model, Passage, Rollout
from harness.scoring.process import doc_to_row
from harness.scoring.qa import MATCHES, score
from tasks.multihop_qa import layouts, rows

SIZES = {
    "hotpotqa": 500, "2wikimultihopqa": 500, "musique": 500, "bamboogle": 125,
    "hotpotqa_ctx": 200, "2wikimultihopqa_ctx": 164, "musique_ctx": 200,
}  # fmt: skip
OWN = [
    {"id": "a", "question": "Where is Lyon?", "golden_answers": ["France"]},
    {"id": "b", "question": "Who wrote it?", "golden_answers": "Ann"},
]


def played(tmp_path, data, task, reply="<answer>France</answer>", **settings):
    return evaluate(
        Model("scripted", "scripted", tasks=(task,)),
        Settings(**{"out": tmp_path / "runs", "data": data, "policy": "naive", **settings}),
        engine=ScriptedEngine({"": reply}),
        progress=Progress(quiet=True),
    )


def write(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


# --- the published sets ---------------------------------------------------------------------


def test_the_group_has_the_four_sets_of_the_paper():
    entries = catalog(paths.TASKS)
    assert expand(["multihop_qa"], entries) == [
        "hotpotqa", "2wikimultihopqa", "musique", "bamboogle",
    ]  # fmt: skip
    for name in SIZES:
        assert entries[name].metadata["questions"] == name
        assert entries[name].metadata["corpus"] in rows.CORPORA


@pytest.mark.data
@pytest.mark.parametrize("name", sorted(SIZES))
def test_every_set_is_whole_with_its_own_ids_and_its_targets_score_one(name, data_root):
    docs = rows.build_docs(name, data_root)
    assert len(docs) == len({d.id for d in docs}) == SIZES[name]
    assert {d.cluster for d in docs} == {None}
    for doc in docs:
        found = score(doc, Rollout(doc.id, 0, (), rows.doc_to_target(doc_to_row(doc))), ())
        assert {found.metrics[m] for m in MATCHES} == {1.0}
        assert found.reasons == ()


@pytest.mark.data
def test_no_question_stands_twice_in_the_paper_s_sets_or_in_its_training_data(data_root):
    asked = [bare(d.question) for name in list(SIZES)[:4] for d in rows.build_docs(name, data_root)]
    trained = {
        bare(row["question"])
        for stage in (1, 2)
        for _, row in read_rows(
            locate("r1_searcher", f"training_set/stage_{stage}.jsonl", data_root)
        )
    }
    assert len(asked) == len(set(asked)) == 1625
    assert len(trained) == 8148 + 350 - 201  # as many of stage 1 recur in stage 2
    assert not trained.intersection(asked)


@pytest.mark.data
def test_some_questions_with_context_are_also_in_the_paper_s_sets(data_root):
    shared = {}
    for name in ("hotpotqa", "2wikimultihopqa", "musique"):
        asked = {bare(d.question) for d in rows.build_docs(name, data_root)}
        context = {bare(d.question) for d in rows.build_docs(f"{name}_ctx", data_root)}
        shared[name] = len(asked & context)
    assert shared == {"hotpotqa": 20, "2wikimultihopqa": 5, "musique": 44}


@pytest.mark.data
@pytest.mark.parametrize("name", [n for n in SIZES if n.endswith("_ctx")])
def test_the_supporting_passages_are_in_the_corpus_that_is_searched(name, data_root):
    entry = catalog(paths.TASKS)[name]
    corpus = rows.corpus(**entry.metadata, data=str(data_root))
    by_id = {p.doc_id: p for p in corpus.passages}
    docs = rows.build_docs(name, data_root)
    gold = rows.gold(name, str(data_root))
    for doc in docs:
        assert gold[doc.question] == doc.meta["support"]
        assert {by_id[i].title for i in doc.meta["support"]} == set(doc.meta["support_titles"])
        assert 2 <= len(doc.meta["support"]) <= 4


@pytest.mark.data
def test_the_oracle_shows_all_supporting_passages_first(data_root):
    gold = rows.gold("hotpotqa_ctx", str(data_root))
    corpus = rows.corpus("pooled_hotpotqa", str(data_root))
    questions = list(gold)[:20]
    found = open_retriever("oracle", corpus, gold).retrieve(questions, 5)
    for question, passages in zip(questions, found, strict=True):
        ids = [p.doc_id for p in passages]
        assert ids[: len(gold[question])] == gold[question]
        assert len(set(ids)) == 5


@pytest.mark.data
@pytest.mark.parametrize("name", sorted(rows.CORPORA))
def test_a_corpus_shows_its_passages_as_published(name, data_root):
    """Title, three spaces, text: what R1-Searcher's documents look like."""
    path = locate(*rows.CORPORA[name], data_root)
    published = [row for _, row in read_rows(path)]
    corpus = rows.corpus(name, str(data_root))
    assert corpus.titles
    for row, passage in zip(published, corpus.passages, strict=True):
        assert passage.doc_id == str(row["id"])
        if "contents" in row:
            assert "   ".join(filter(None, (passage.title, passage.text))) == row["contents"]
        else:
            assert (passage.title, passage.text) == (row["title"], row["text"])


@pytest.mark.data
def test_retrieval_and_reading_are_told_apart_by_none_bm25_and_oracle(tmp_path, data_root):
    recall = {}
    for retriever in ("none", "bm25", "oracle"):
        result = played(
            tmp_path, data_root, "musique_ctx", policy="rag", retriever=retriever, limit=20
        )
        (records,) = result.records
        assert (records.missing, len(records.docs)) == (0, 20)
        recall[retriever] = sum(d.mean("support_recall") for d in records.docs) / 20
    assert recall["none"] == 0
    assert 0 < recall["bm25"] < 1
    assert recall["oracle"] == 1


@pytest.mark.data
def test_the_oracle_is_refused_in_one_line_where_no_support_is_published(tmp_path, data_root):
    with pytest.raises(UsageError, match="needs the gold passages"):
        played(tmp_path, data_root, "hotpotqa", policy="rag", retriever="oracle", limit=1)


@pytest.mark.data
def test_the_default_policy_searches_and_its_searches_are_counted(tmp_path, data_root):
    ask = "<|begin_of_query|> Lyon<|end_of_query|>"
    result = played(tmp_path, data_root, "hotpotqa_ctx", ask, policy="", limit=2)
    (records,) = result.records
    for doc in records.docs:
        (sample,) = doc.samples
        assert sample.metrics["searches"] == 8
        assert sample.metrics["em"] == 0
        assert {"no_answer", "repeated_query"} <= set(sample.reasons)


def test_the_sets_of_the_paper_name_no_supporting_passages():
    assert rows.gold("hotpotqa") is None
    assert rows.gold("own") is None


def test_no_prompt_shows_a_test_question(data_root):
    for name in SIZES:
        docs = rows.build_docs(name, data_root)
        for template in ("reader", "reader_documents"):
            assert find_leaks(docs, template=rows.prompt(template)) == {}


# --- prompt ---------------------------------------------------------------------------------


def test_documents_are_in_the_prompt_only_where_there_are_some():
    doc = Doc("q", "{documents}?", ("x",))
    assert rows.doc_to_text(doc_to_row(doc)).endswith("\n\nQuestion: {documents}?")
    shown = Doc("q", "Q?", ("x",), (Passage("1", "{question} body", title="Title"),))
    text = rows.doc_to_text(doc_to_row(shown))
    assert "Documents:\n(1) Title {question} body\n\nQuestion: Q?" in text


# --- one's own questions --------------------------------------------------------------------


def test_a_file_of_questions_is_a_task(tmp_path):
    result = played(tmp_path, write(tmp_path / "mine.jsonl", *OWN), "qa_jsonl")
    (records,) = result.records
    metrics = {d.doc_id: d.samples[0].metrics["em"] for d in records.docs}
    assert metrics == {"a": 1.0, "b": 0.0}


def test_a_folder_gives_questions_and_a_corpus(tmp_path):
    write(tmp_path / "questions.jsonl", *OWN)
    write(
        tmp_path / "corpus.jsonl",
        {"id": 1, "title": "Lyon", "text": "A city."},
        {"id": "2", "contents": "Ann   A writer."},
        {"id": 3, "contents": "Bob\nA clerk."},
    )
    assert [d.targets for d in rows.build_docs("own", tmp_path)] == [("France",), ("Ann",)]
    corpus = rows.corpus("own", str(tmp_path))
    assert [(p.doc_id, p.title, p.text) for p in corpus.passages] == [
        ("1", "Lyon", "A city."), ("2", "Ann", "A writer."), ("3", "Bob", "A clerk."),
    ]  # fmt: skip
    (found,) = open_retriever("bm25", corpus).retrieve(["Lyon"], 5)
    assert [p.doc_id for p in found] == ["1"]  # by its title


def test_verl_rows_are_read_too():
    row = {"data_source": "x/hotpot", "reward_model": {"ground_truth": {"target": ["yes"]}},
           "extra_info": {"index": 3, "question": "Is it?"}}  # fmt: skip
    question = layouts.flashrag("f:1", row)
    assert (question.id, question.text, question.targets) == ("x/hotpot-3", "Is it?", ("yes",))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"question": "Q?", "golden_answers": ["x"]}, "key 'id' is missing"),
        ({"id": "a", "golden_answers": ["x"]}, "key 'question' is missing"),
        ({"id": "a", "question": "Q?"}, "key 'golden_answers' is missing"),
        ({"id": "a", "question": "Q?", "golden_answers": []}, "must be a list of answers"),
        ({"id": "a", "question": "Q?", "golden_answers": 5}, "must be a list of answers"),
        ({"id": "a", "question": " ", "golden_answers": ["x"]}, "key 'question' is empty"),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_key(tmp_path, line, said):
    path = write(tmp_path / "mine.jsonl", OWN[0], line)
    with pytest.raises(DataError, match=r"mine\.jsonl:2: .*") as error:
        rows.build_docs("own", path)
    assert said in str(error.value)


def test_a_missing_file_and_an_unknown_name_are_one_line(tmp_path):
    for data in (None, tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(DataError, match=r"give data=FILE\.jsonl"):
            rows.build_docs("own", data)
    with pytest.raises(UsageError, match="r1_passages_hotpotqa"):
        rows.corpus("r1_passages_hotpot")
    with pytest.raises(UsageError, match="hotpotqa"):
        rows.build_docs("hotpot")
