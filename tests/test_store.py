import json
import os
import sqlite3
import stat

import pytest

from harness.audit import export, inspect
from harness.errors import StoreError
from harness.schema import Doc, Message, Rollout, Score, Turn, Verdict
from harness.store import FILE, Store, StoredDoc, file_system, find_runs

META = {"run_id": "abc", "model": "m", "identity": {}}
INFO = {"fingerprints": {"dataset": "d1"}}


def stored(doc_id, rank, request="r1"):
    doc = Doc(doc_id, f"question {doc_id}", ("yes",), cluster="c")
    return StoredDoc(doc, rank, (Message("user", doc.question),), "p" + doc_id, request)


def rollout(doc_id, repeat=0, text="yes"):
    turn = Turn("model", text, (1, 2), (3, 4), (-0.5, -0.25))
    return Rollout(doc_id, repeat, (turn,), text, prompt_tokens=2, completion_tokens=2)


def filled(folder, n=4, request="r1"):
    store = Store.create(folder, META)
    store.begin({"environment": {}})
    store.put_task("t", INFO, 10, 1, [stored(f"d{i}", i, request) for i in range(n)])
    for i in range(n):
        verdict = Verdict("j", {"right": True}, "raw")
        store.put_sample(
            "t", request, rollout(f"d{i}"), [verdict], Score({"acc": 1.0}, ("x",)), "s"
        )
    return store


def test_what_was_committed_is_read_back_whole(tmp_path):
    with filled(tmp_path / "run") as store:
        store.complete("t", 4)
    with Store.open(tmp_path / "run") as store:
        records = list(store.records("t"))
    assert [r.doc_id for r in records] == ["d0", "d1", "d2", "d3"]
    assert records[0].rollout == rollout("d0")
    assert records[0].score == Score({"acc": 1.0}, ("x",))
    assert records[0].verdicts[0].raw == "raw"


def test_text_that_is_no_unicode_is_stored_without_loss(tmp_path):
    with filled(tmp_path, n=1) as store:
        store.put_task("t", INFO, 10, 1, [stored("d0", 0), stored("d1", 1)])
        store.put_sample("t", "r1", rollout("d1", text="\ud800 \x00 \x1b[31m"), [], None, "s")
        assert list(store.records("t", 2))[1].rollout.answer == "\ud800 \x00 \x1b[31m"


def test_a_sample_is_never_stored_twice(tmp_path):
    with filled(tmp_path) as store:
        store.put_sample("t", "r1", rollout("d0", text="other"), [], None, "s")
        assert [r.rollout.answer for r in store.records("t", 1)] == ["yes"]


def test_only_completed_selections_are_results(tmp_path):
    with filled(tmp_path) as store:
        assert list(store.records("t")) == []
        store.complete("t", 2)
        assert len(list(store.records("t"))) == 2
        store.complete("t", 1)
        assert store.tasks()["t"].complete == 2


def test_a_changed_prompt_makes_its_sample_missing_and_keeps_the_old_one(tmp_path):
    with filled(tmp_path) as store:
        store.complete("t", 4)
        docs = [stored(f"d{i}", i, "r2" if i == 1 else "r1") for i in range(4)]
        store.put_task("t", INFO, 10, 1, docs)
        assert store.finished("t") == {("d0", 0), ("d2", 0), ("d3", 0)}
        assert store.tasks()["t"].complete == 0
        assert store.redone() == 1


def test_a_smaller_selection_leaves_a_larger_one_as_it_is(tmp_path):
    with filled(tmp_path) as store:
        store.complete("t", 4)
        store.put_task("t", INFO, 10, 1, [stored("d0", 0), stored("d1", 1)])
        assert store.tasks()["t"].complete == 4
        assert len(list(store.records("t"))) == 4


def test_more_repeats_reopen_a_completed_selection(tmp_path):
    with filled(tmp_path) as store:
        store.complete("t", 4)
        store.put_task("t", INFO, 10, 2, [stored(f"d{i}", i) for i in range(4)])
        assert store.tasks()["t"].complete == 0


def test_another_data_set_replaces_the_docs(tmp_path):
    with filled(tmp_path) as store:
        store.put_task("t", {"fingerprints": {"dataset": "d2"}}, 2, 1, [stored("new", 0)])
        assert [d.doc.id for d in store.docs("t")] == ["new"]


def test_a_failure_is_logged_and_its_sample_stays_missing(tmp_path):
    with filled(tmp_path, n=1) as store:
        store.put_task("t", INFO, 10, 1, [stored("d0", 0), stored("d1", 1)])
        store.put_failure("t", "d1", 0, "r1", "engine died")
        assert store.finished("t") == {("d0", 0)}
        assert store.failures() == [("t", "d1", 0, "engine died")]


def test_two_processes_cannot_write_one_run(tmp_path):
    with filled(tmp_path), pytest.raises(StoreError, match="another process"):
        Store.create(tmp_path, META)


def test_readers_do_not_mind_a_writer(tmp_path):
    with filled(tmp_path) as writer:
        writer.complete("t", 4)
        with Store.open(tmp_path) as reader:
            assert len(list(reader.records("t"))) == 4


@pytest.mark.parametrize("content", [b"", b"not a database at all, just text" * 40])
def test_a_foreign_file_is_refused_in_one_line(tmp_path, content):
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(StoreError) as caught:
        Store.open(tmp_path)
    assert FILE in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_truncated_file_is_refused(tmp_path):
    filled(tmp_path, n=200).close()
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    try:
        with Store.open(tmp_path) as store:
            assert inspect(store).problems
    except StoreError as error:
        assert FILE in str(error)


def test_a_file_of_a_newer_schema_is_refused(tmp_path):
    filled(tmp_path).close()
    db = sqlite3.connect(tmp_path / FILE)
    db.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    db.commit()
    db.close()
    with pytest.raises(StoreError, match="schema 99"):
        Store.open(tmp_path)


def test_a_read_only_folder_is_refused_in_one_line(tmp_path, monkeypatch):
    folder = tmp_path / "ro"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    if os.geteuid() == 0:  # root writes everywhere: play the file system's refusal instead

        def refuse(*_args, **_kwargs):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match="out=DIR"):
        Store.create(folder, META)


def test_inspection_finds_a_damaged_and_a_missing_sample(tmp_path):
    store = filled(tmp_path)
    store.complete("t", 4)
    store.close()
    db = sqlite3.connect(tmp_path / FILE)
    db.execute("DELETE FROM samples WHERE doc_id = 'd3'")
    db.execute("UPDATE samples SET rollout = '{' WHERE doc_id = 'd2'")
    db.commit()
    db.close()
    with Store.open(tmp_path) as store:
        problems = " ".join(inspect(store).problems)
    assert "d3" in problems
    assert "d2" in problems


def test_export_writes_every_sample_with_its_doc_and_ids(tmp_path):
    with filled(tmp_path) as store:
        count = export(store, tmp_path / "out.jsonl")
    lines = [json.loads(x) for x in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert count == len(lines) == 4
    assert lines[0]["doc"]["targets"] == ["yes"]
    assert lines[0]["turns"][0]["token_ids"] == [3, 4]


def test_runs_are_found_newest_first(tmp_path):
    for name in ("a", "b"):
        filled(tmp_path / name, n=1).close()
    os.utime(tmp_path / "a" / FILE, (2e9, 2e9))
    assert [p.name for p in find_runs(tmp_path)] == ["a", "b"]


def test_the_file_system_of_a_path_is_named(tmp_path):
    assert isinstance(file_system(tmp_path), str)
