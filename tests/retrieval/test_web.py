"""Web search over real local servers: the two APIs, the pages, and what is never fetched."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import RetrieverError, UsageError
from harness.retrieval import Corpus, open_retriever
from harness.retrieval.pages import PageLimits, around, fetch_text, html_text, is_public
from harness.schema import RetrievalError
from tests import standin

NOTHING = Corpus.of(())


@pytest.fixture
def keys(monkeypatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "secret-key")
    monkeypatch.setenv("GOOGLE_CSE_ID", "engine")


@pytest.fixture
def google(keys):
    base = []
    with standin.server(lambda path, query: standin.google(base[0])(path, query)) as (url, seen):
        base.append(url)
        yield url, seen


def test_google_gives_title_address_and_snippet(google):
    url, seen = google
    ((first, second),) = open_retriever("google", NOTHING, url=url).retrieve(["bridge"], 5)
    assert (first.doc_id, first.title, first.text) == (f"{url}/page", "Bridge", "on bridge Bell")
    assert first.score > second.score
    assert seen == [
        ("/customsearch/v1", {"key": "secret-key", "cx": "engine", "q": "bridge", "num": "5"})
    ]


def test_pages_are_fetched_as_text_and_a_missing_page_leaves_its_snippet(google):
    url, _ = google
    web = open_retriever("google", NOTHING, url=url, pages=True, allow_private=True)
    ((first, second),) = web.retrieve(["bridge"], 5)
    assert "was built by Ann Bell" in first.text
    assert "hidden" not in first.text
    assert "Products" not in first.text
    assert second.text == "only a snippet"


def test_a_page_at_a_private_address_is_not_even_asked(google):
    url, seen = google
    ((first, _),) = open_retriever("google", NOTHING, url=url, pages=True).retrieve(["b"], 5)
    assert first.text == "on b Bell"
    assert [path for path, _ in seen] == ["/customsearch/v1"]


def test_a_search_without_hits_is_an_empty_list_and_no_error(google):
    url, _ = google
    assert open_retriever("google", NOTHING, url=url).retrieve(["nothing", "b"], 1)[0] == []


def test_a_refused_key_is_an_error_of_each_query_that_does_not_show_it(google, monkeypatch):
    url, _ = google
    monkeypatch.setenv("GOOGLE_API_KEY", "other-key")
    first, second = open_retriever("google", NOTHING, url=url).retrieve(["a", "b"], 1)
    assert isinstance(first, RetrievalError)
    assert isinstance(second, RetrievalError)
    assert "403" in first.message
    assert "other-key" not in first.message


def test_searxng_gives_its_results_in_order():
    with standin.server(standin.searxng("http://h")) as (url, seen):
        ((first, second),) = open_retriever("searxng", NOTHING, url=url).retrieve(["q é"], 2)
        assert (first.title, first.text) == ("Bridge", "Ann Bell and q é")
        assert second.doc_id == "http://h/b"
        assert len(open_retriever("searxng", NOTHING, url=url).retrieve(["q"], 1)[0]) == 1
    assert seen[0][1]["q"] == "q é"


def test_an_answer_that_is_no_search_result_is_an_error_of_the_query():
    with standin.server(lambda path, query: standin.json_reply(["no"])) as (url, _):
        (found,) = open_retriever("searxng", NOTHING, url=url).retrieve(["q"], 2)
    assert isinstance(found, RetrievalError)


def test_a_missing_key_or_address_is_named(monkeypatch):
    for name in ("GOOGLE_API_KEY", "GOOGLE_CSE_ID", "SEARXNG_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="GOOGLE_API_KEY"):
        open_retriever("google", NOTHING)
    with pytest.raises(UsageError, match="SEARXNG_URL"):
        open_retriever("searxng", NOTHING)
    with pytest.raises(UsageError, match=r"did you mean .*pages"):
        open_retriever("searxng", NOTHING, url="http://h", page=True)


def test_the_fingerprint_is_that_of_engine_and_settings_and_holds_no_key(keys):
    one = open_retriever("google", NOTHING)
    assert one.fingerprint == open_retriever("google", NOTHING).fingerprint
    assert one.fingerprint != open_retriever("google", NOTHING, pages=True).fingerprint
    assert "secret" not in one.fingerprint


# --- pages ------------------------------------------------------------------------------------

LOCAL = PageLimits(allow_private=True, timeout=5.0)


def fetch(url, limits=LOCAL):
    return asyncio.run(fetch_text(url, limits))


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/x",
        "http:///x",
        "http://127.0.0.1/",
        "http://localhost/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://10.0.0.8/",
        "http://169.254.169.254/latest/meta-data",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0/",
        "http://127.0.0.1:notaport/",
    ],
)
def test_what_is_no_public_page_is_refused(url):
    with pytest.raises(RetrieverError):
        fetch(url, PageLimits(timeout=5.0))


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("100.64.0.1", False),
        ("192.168.1.1", False),
        ("224.0.0.1", False),
        ("fe80::1%eth0", False),
        ("::ffff:10.0.0.1", False),
        ("2002:7f00:1::", False),
    ],
)
def test_addresses_are_public_or_not(address, public):
    assert is_public(address) is public


def test_redirects_are_followed_and_each_is_checked():
    def answer(path, query):
        if path == "/start":
            return 302, {"Location": "/end"}, b""
        if path == "/loop":
            return 302, {"Location": "/loop"}, b""
        if path == "/away":
            return 302, {"Location": "file:///etc/passwd"}, b""
        return 200, {"Content-Type": "text/plain"}, b"arrived"

    with standin.server(answer) as (url, _):
        assert fetch(f"{url}/start") == "arrived"
        with pytest.raises(RetrieverError, match="redirects"):
            fetch(f"{url}/loop")
        with pytest.raises(RetrieverError, match="only http"):
            fetch(f"{url}/away")


def test_a_page_is_cut_at_its_limit_and_other_types_are_not_read():
    def answer(path, query):
        kind = "image/png" if path == "/image" else "text/plain; charset=latin-1"
        return 200, {"Content-Type": kind}, b"\xe9" * 5000

    with standin.server(answer) as (url, _):
        text = fetch(f"{url}/text", PageLimits(max_bytes=1000, allow_private=True))
        assert text == "é" * 1000
        with pytest.raises(RetrieverError, match="image/png"):
            fetch(f"{url}/image")


def test_a_page_that_never_comes_is_given_up_on():
    import threading

    hold = threading.Event()

    def answer(path, query):
        hold.wait(10)
        return 200, {"Content-Type": "text/plain"}, b"late"

    with standin.server(answer) as (url, _):
        with pytest.raises(RetrieverError, match=r"within 0\.3 s"):
            fetch(url, PageLimits(timeout=0.3, allow_private=True))
        hold.set()


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read_as_a_page(content):
    assert isinstance(html_text(content), str)


def test_the_main_part_is_read_without_menus_and_scripts():
    page = "<nav>Menu</nav><main><p>One</p><script>no()</script><p>Two <b>bold</b></p></main>Foot"
    assert html_text(page).split() == ["One", "Two", "bold"]
    assert html_text("") == ""


def test_the_part_around_the_snippet_is_kept():
    text = "filler " * 500 + "the bridge of Ironford was built here " + "filler " * 500
    cut = around(text, "bridge Ironford built", 200)
    assert "bridge of Ironford was built" in cut
    assert len(cut) <= 200
    assert around("short", "anything", 200) == "short"
