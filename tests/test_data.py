"""Outside data sets: the list, where files are looked for, and what is said when they are not."""

import gzip
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading

import pytest

from harness import data
from harness.errors import ConfigError, DataError
from tests.conftest import ROOT

CONTENT = b'{"id": 1}\n{"id": 2}\n'


def sha(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHECKRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CHECKRAIL_DATA", raising=False)
    monkeypatch.setattr(data, "_CHECKSUMS", {})


@pytest.fixture
def listing(tmp_path):
    return write_listing(tmp_path, f'"a/rows.jsonl" = {{ sha256 = "{sha(CONTENT)}", rows = 2 }}')


def write_listing(folder, files, head='upstream = "github.com/o/r"', extra=""):
    path = folder / "datasets.toml"
    path.write_text(
        f'[tiny]\nabout = "t"\n{head}\nrevision = "abc123"\nlicence = "MIT"\nfolder = "tiny"\n'
        f"{extra}[tiny.files]\n{files}\n"
    )
    return path


def put(root, content=CONTENT, name="a/rows.jsonl"):
    path = root / "tiny" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def refused(root, listing, file="a/rows.jsonl"):
    with pytest.raises(DataError) as error:
        data.locate("tiny", file, root, listing=listing)
    message = str(error.value)
    assert "\n" not in message
    assert "'tiny'" in message
    return message


def test_a_file_with_the_right_content_is_found(tmp_path, listing):
    path = put(tmp_path / "root")
    assert data.locate("tiny", "a/rows.jsonl", tmp_path / "root", listing=listing) == path
    assert data.locate("tiny", "a/rows.jsonl", str(tmp_path / "root"), listing=listing) == path


def test_the_environment_names_the_root_where_no_argument_does(tmp_path, listing, monkeypatch):
    path = put(tmp_path / "root")
    monkeypatch.setenv("CHECKRAIL_DATA", str(tmp_path / "root"))
    for nothing in (None, ""):
        assert data.locate("tiny", "a/rows.jsonl", nothing, listing=listing) == path
    refused(tmp_path / "elsewhere", listing)  # an argument outranks the environment


def test_without_a_root_one_line_says_what_from_where_and_how(listing):
    message = refused(None, listing)
    for part in ("github.com/o/r@abc123", "MIT", "DIR/tiny/", "data=DIR", "CHECKRAIL_DATA"):
        assert part in message


def test_a_missing_file_is_named_with_its_place_and_its_origin(tmp_path, listing):
    message = refused(tmp_path / "root", listing)
    for part in ("root/tiny/a/rows.jsonl", "github.com/o/r@abc123", "data=DIR", "CHECKRAIL_DATA"):
        assert part in message


def test_changed_content_is_refused_with_both_checksums(tmp_path, listing):
    put(tmp_path, CONTENT[:-1])
    message = refused(tmp_path, listing)
    assert sha(CONTENT) in message
    assert sha(CONTENT[:-1]) in message
    assert "tiny/a/rows.jsonl" in message


def test_a_file_is_read_once_and_again_when_it_changes(tmp_path, listing, monkeypatch):
    path = put(tmp_path)
    data.locate("tiny", "a/rows.jsonl", tmp_path, listing=listing)
    monkeypatch.setattr(data, "_CHECKSUMS", {})  # another process
    monkeypatch.setattr(data, "_computed", lambda *_: pytest.fail("read again"))
    assert data.locate("tiny", "a/rows.jsonl", tmp_path, listing=listing) == path
    monkeypatch.undo()
    monkeypatch.setenv("CHECKRAIL_CACHE", str(tmp_path / "cache"))
    path.write_bytes(CONTENT + b"\n")
    refused(tmp_path, listing)


@pytest.mark.parametrize("rubbish", ["", "[]", '{"x": 1}', '{"%s": [1, 2, "no"]}', "\x00"])
def test_a_spoilt_cache_is_done_without(tmp_path, listing, rubbish):
    path = put(tmp_path)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "checksums.json").write_text(rubbish.replace("%s", str(path)))
    assert data.locate("tiny", "a/rows.jsonl", tmp_path, listing=listing) == path


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, listing, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CHECKRAIL_CACHE", str(tmp_path / "file"))
    path = put(tmp_path)
    assert data.locate("tiny", "a/rows.jsonl", tmp_path, listing=listing) == path


def test_a_remembered_checksum_is_kept_by_size_and_time(tmp_path, listing):
    path = put(tmp_path)
    data.locate("tiny", "a/rows.jsonl", tmp_path, listing=listing)
    (entry,) = json.loads((tmp_path / "cache" / "checksums.json").read_text()).values()
    assert entry == [path.stat().st_size, path.stat().st_mtime_ns, sha(CONTENT)]


def test_a_packed_file_is_checked_by_its_content(tmp_path):
    listing = write_listing(tmp_path, f'"r.gz" = {{ sha256 = "{sha(CONTENT)}", packed = true }}')
    path = put(tmp_path, gzip.compress(CONTENT, 1, mtime=7), "r.gz")
    assert data.locate("tiny", "r.gz", tmp_path, listing=listing) == path
    for broken in (gzip.compress(CONTENT)[:-9], b"plain text", gzip.compress(b"other")):
        put(tmp_path, broken, "r.gz")
        with pytest.raises(DataError):
            data.locate("tiny", "r.gz", tmp_path, listing=listing)


def test_a_folder_in_the_place_of_a_file_is_a_missing_file(tmp_path, listing):
    (tmp_path / "tiny" / "a" / "rows.jsonl").mkdir(parents=True)
    assert "is missing" in refused(tmp_path, listing)


def test_files_that_are_made_from_upstream_say_how(tmp_path):
    listing = write_listing(
        tmp_path, f'"x" = {{ sha256 = "{sha(CONTENT)}" }}', extra='recipe = "sorted lines"\n'
    )
    message = refused(tmp_path, listing, "x")
    assert "make x from github.com/o/r@abc123 (sorted lines)" in message


def test_an_unknown_data_set_or_file_gets_the_nearest_names(listing):
    with pytest.raises(ConfigError, match="did you mean tiny"):
        data.locate("tinny", "a/rows.jsonl", listing=listing)
    with pytest.raises(ConfigError, match=r"did you mean a/rows\.jsonl"):
        data.locate("tiny", "a/row.jsonl", listing=listing)


def test_problems_lists_what_is_wrong_and_nothing_else(tmp_path):
    listing = write_listing(
        tmp_path,
        f'"x" = {{ sha256 = "{sha(CONTENT)}" }}\n"y" = {{ sha256 = "{sha(CONTENT)}" }}',
    )
    assert len(data.problems("tiny", listing=listing)) == 1  # no root: said once
    put(tmp_path, name="x")
    (only,) = data.problems("tiny", tmp_path, listing=listing)
    assert "tiny/y" in only
    put(tmp_path, name="y")
    assert data.problems("tiny", tmp_path, listing=listing) == []


GOOD = f'"x" = {{ sha256 = "{sha(CONTENT)}" }}'


@pytest.mark.parametrize(
    ("files", "head", "said"),
    [
        (GOOD, "", "key 'upstream' is missing"),
        (GOOD, "upstream = 3", "'upstream' must be a str"),
        (GOOD, 'upstream = ""', "key 'upstream' is missing"),
        (GOOD, 'upstream = "u"\nlicense = "MIT"', "unknown key 'license'"),
        ("", 'upstream = "u"', "names no file"),
        ('"x" = { sha256 = "abc" }', 'upstream = "u"', "64 lower-case"),
        ('"x" = { rows = 3 }', 'upstream = "u"', "'sha256' is missing"),
        ('"x" = "abc"', 'upstream = "u"', "must be a table"),
        (GOOD.replace("}", ", rows = true }"), 'upstream = "u"', "'rows' must be a int"),
        (GOOD.replace('"x"', '"../x"'), 'upstream = "u"', "plain relative path"),
        (GOOD.replace('"x"', '"/x"'), 'upstream = "u"', "plain relative path"),
        ("=", 'upstream = "u"', "datasets.toml"),
    ],
)
def test_a_mistake_in_the_list_names_file_set_and_key(tmp_path, files, head, said):
    listing = write_listing(tmp_path, files, head)
    with pytest.raises(ConfigError) as error:
        data.load_datasets(listing)
    assert said in str(error.value)
    assert str(listing) in str(error.value)


def test_a_list_that_is_not_there_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        data.load_datasets(tmp_path / "none.toml")


def test_the_projects_own_list_is_sound():
    sets = data.load_datasets()
    assert {"bjtu_railway", "r1_searcher", "aime24", "aime25", "gsm8k", "cmrc2018"} <= set(sets)
    places = [f"{d.folder}/{f}" for d in sets.values() for f in d.files]
    assert len(set(places)) == len(places)
    for found in sets.values():
        if found.hub:  # nobody here holds its files: there is nothing to list
            assert found.upstream == f"huggingface.co/datasets/{found.hub}"
            assert not found.files
            continue
        assert found.upstream.startswith("github.com/")
        assert len(found.revision) == 12
        int(found.revision, 16)


@pytest.mark.data
def test_every_listed_file_is_as_published_and_has_the_rows_it_should(data_root):
    lines = 0
    for name, found in data.load_datasets().items():
        if not (data_root / found.folder).is_dir():
            continue
        assert data.problems(name, data_root) == []
        for file in found.files.values():
            path = data_root / found.folder / file.path
            if file.rows and file.path.endswith((".jsonl", ".jsonl.gz")):
                opener = gzip.open if file.path.endswith(".gz") else open
                with opener(path, "rb") as stream:
                    assert sum(1 for line in stream if line.strip()) == file.rows, path
                lines += 1
    assert lines > 10


# --- hub sets ----------------------------------------------------------------------------------


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub as a download asks for: one file, one gated repository."""

    def do_HEAD(self):
        self.answer(send=False)

    def do_GET(self):
        self.answer(send=True)

    def answer(self, send):
        body = b"question,answer\nq,1\n"
        if "/gated/" in self.path:
            self.send_response(403)
            self.send_header("X-Error-Code", "GatedRepo")
            body = b""
        else:
            self.send_response(200)
            self.send_header("ETag", '"0123abcd"')
            self.send_header("X-Repo-Commit", "c" * 40)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if send:
            self.wfile.write(body)

    def log_message(self, *_):
        pass


ASK = """
import sys
from pathlib import Path
from harness.data import find
from harness.errors import DataError
try:
    print(find(sys.argv[1], "a.csv", sys.argv[2], listing=Path(sys.argv[3])).read_text())
except DataError as error:
    print(error)
"""


def ask_hub(tmp_path, name, endpoint):
    listing = tmp_path / "datasets.toml"
    listing.write_text(
        "".join(
            f'[{n}]\nabout = "x"\nupstream = "hub"\nrevision = "main"\nlicence = "x"\n'
            f'folder = "{n}"\nhub = "{n}/set"\n'
            for n in ("open", "gated")
        )
    )
    environment = {
        **os.environ, "HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT), "HF_HUB_DISABLE_TELEMETRY": "1",
    }  # fmt: skip
    command = [sys.executable, "-c", ASK, name, str(tmp_path / "root"), str(listing)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def hub_server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_hub_file_comes_from_the_data_root_else_from_the_hub(tmp_path, hub_server):
    assert ask_hub(tmp_path, "open", hub_server) == "question,answer\nq,1"
    (tmp_path / "root" / "open").mkdir(parents=True)
    (tmp_path / "root" / "open" / "a.csv").write_text("mine")
    assert ask_hub(tmp_path, "open", hub_server) == "mine"


def test_a_gated_set_says_what_to_do(tmp_path, hub_server):
    said = ask_hub(tmp_path, "gated", hub_server)
    assert "gated: accept its terms on the hub, then `hf auth login`" in said
    assert "hf download gated/set --repo-type dataset --local-dir" in said


def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path):
    said = ask_hub(tmp_path, "open", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9 cannot be reached" in said
    assert "\n" not in said
