"""The ranking that ships with a data set."""

import pytest

from harness.errors import DataError, RetrieverError, UsageError
from harness.retrieval import Corpus, open_retriever, ranking
from harness.schema import Passage, RetrievalError, Retriever

CORPUS = Corpus.of([Passage(f"p{i}", f"text {i}", page=i, title="plan") for i in range(1, 5)])
RANKINGS = {"who?": ["p3", "p1", "p2"], "when?": ["p2"]}


def published(rankings=RANKINGS, corpus=CORPUS):
    return open_retriever("published", corpus, rankings=rankings)


def test_it_returns_the_ranking_and_never_more_than_asked_or_published():
    retriever = published()
    assert isinstance(retriever, Retriever)
    for k, wanted in ((0, []), (1, ["p3"]), (3, ["p3", "p1", "p2"]), (9, ["p3", "p1", "p2"])):
        (found,) = retriever.retrieve(["who?"], k)
        assert [p.doc_id for p in found] == wanted


def test_passages_keep_text_page_and_title_and_scores_fall_with_the_rank():
    ((first, second, _),) = published().retrieve(["who?"], 3)
    assert (first.text, first.page, first.title) == ("text 3", 3, "plan")
    assert first.score > second.score > 0


def test_a_question_without_a_ranking_is_an_error_of_that_question_alone():
    found, missing = published().retrieve(["when?", "why?"], 1)
    assert [p.doc_id for p in found] == ["p2"]
    assert isinstance(missing, RetrievalError)
    assert missing.query == "why?"
    with pytest.raises(RetrieverError, match="published"):
        ranking("published", CORPUS, ["why?"], 1, rankings=RANKINGS)


def test_the_fingerprint_covers_ranking_and_corpus_and_nothing_else():
    same = published({"when?": ("p2",), "who?": ["p3", "p1", "p2"]})
    assert published().fingerprint == same.fingerprint
    others = [
        published({**RANKINGS, "who?": ["p1", "p3", "p2"]}),
        published({"who?": RANKINGS["who?"]}),
        published({**RANKINGS, "who? ": ["p1"]}),
        published(corpus=Corpus.of([*CORPUS.passages, Passage("p9", "more")])),
    ]
    assert len({published().fingerprint, *(o.fingerprint for o in others)}) == 5


def test_a_ranking_that_does_not_fit_the_corpus_is_a_data_error():
    with pytest.raises(DataError, match="'p7'"):
        published({"who?": ["p1", "p7"]})
    with pytest.raises(DataError, match="twice"):
        published({"who?": ["p1", "p1"]})


def test_a_task_without_a_ranking_is_told_so():
    with pytest.raises(UsageError, match="needs a ranking"):
        open_retriever("published", CORPUS)
    with pytest.raises(UsageError, match="did you mean rankings"):
        open_retriever("published", CORPUS, ranking=RANKINGS)


def test_the_oracle_can_stand_on_it():
    oracle = open_retriever(
        "oracle", CORPUS, {"who?": "p4", "when?": "p2"}, base="published", rankings=RANKINGS
    )
    found = oracle.retrieve(["who?", "when?"], 3)
    assert [[p.doc_id for p in row] for row in found] == [["p4", "p3", "p1"], ["p2"]]
