"""AIME, MATH-500 and GSM8K: rows, prompts, samples."""

import json
from dataclasses import replace

import pytest

from harness import paths
from harness.catalog import catalog
from harness.engines.scripted import ScriptedEngine
from harness.errors import DataError
from harness.evaluate import Settings, evaluate
from harness.progress import Progress
from harness.report.markdown import board
from harness.report.published import load_all
from harness.rescore import rescore
from harness.schema import Model
from harness.store import Store
from tasks.aime.rows import problems as aime
from tasks.aime.rows import to_doc as aime_doc
from tasks.gsm8k.rows import problems as gsm8k
from tasks.gsm8k.rows import to_doc as gsm8k_doc
from tasks.gsm8k.rows import with_examples
from tasks.math500.rows import problems as math500
from tasks.mathematics import BOXED, read_docs

MODEL = Model("scripted", "scripted", think_tags=("<think>", "</think>"))


def play(tmp_path, task, data, replies, **settings):
    engine = ScriptedEngine(replies)
    made = evaluate(
        MODEL,
        Settings((task,), data=data, out=tmp_path, **settings),
        engine=engine,
        progress=Progress(quiet=True),
    )
    (records,) = made.records
    return records, engine, made


@pytest.mark.data
def test_aime_has_thirty_problems_a_year_with_ids_of_the_exam(data_root):
    for year in (2024, 2025):
        docs = aime(year, data_root)
        assert {d.id for d in docs} == {
            f"{year}-{exam}-{i}" for exam in ("I", "II") for i in range(1, 16)
        }
        assert all(d.targets[0] == str(int(d.targets[0])) for d in docs)


@pytest.mark.data
def test_ids_are_distinct_and_depend_on_no_order(data_root):
    for docs in (gsm8k("test", data_root), math500(data_root)):
        assert len({d.id for d in docs}) == len(docs) in (1319, 500)


@pytest.mark.data
def test_sixteen_samples_have_their_own_seed_and_record(data_root, tmp_path):
    seeds = []

    def reply(prompt, sampling):
        seeds.append(sampling.seed)
        assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.6, 0.95, 20)
        assert (sampling.max_tokens, sampling.thinking) == (38912, True)
        return rf"<think>hm</think>\boxed{{{sampling.seed % 1000}}}"

    records, engine, made = play(tmp_path, "aime24", data_root, reply, limit=2)
    assert records.repeats == 16
    assert engine.calls == len(seeds) == len(set(seeds)) == 32
    with Store.open(made.run) as store:
        kept = list(store.records("aime24", 2))
    assert len({(r.doc_id, r.repeat) for r in kept}) == 32
    assert all(BOXED in p for p in engine.prompts)
    again, engine, _ = play(tmp_path, "aime24", data_root, [], limit=2)
    assert engine.calls == 0  # nothing is asked twice
    assert again.docs == records.docs


@pytest.mark.data
def test_the_card_s_own_think_tags_hold_the_thinking_and_rescoring_knows_them(data_root, tmp_path):
    target = aime(2024, data_root)[0].targets[0]
    model = replace(MODEL, think_tags=("[THINK]", "[/THINK]"))
    made = evaluate(
        model,
        Settings(("aime24",), data=data_root, out=tmp_path, limit=1, repeats=2),
        engine=ScriptedEngine({"": rf"[THINK]\boxed{{{target}}} or not"}),
        progress=Progress(quiet=True),
    )
    (sample, _) = made.records[0].docs[0].samples
    assert {"unclosed_think"} <= set(sample.reasons)
    assert sample.metrics["accuracy"] == 0
    (again,) = rescore(str(made.run), out=tmp_path)
    assert (again.samples, again.docs) == (2, 0)


@pytest.mark.data
def test_a_board_shows_pass_at_k_majority_and_both_parts_of_the_error(data_root, tmp_path):
    targets = {d.question: d.targets[0] for d in aime(2025, data_root)}

    def reply(prompt, sampling):
        target = next(t for q, t in targets.items() if q.strip() in prompt[-1].content)
        return rf"\boxed{{{target if sampling.seed % 4 else 999}}}"

    records, _, _ = play(tmp_path, "aime25", data_root, reply)
    tables = tuple(load_all(paths.BASELINES / "published").values())
    text = board("aime", [records], lambda *_: {}, tables)
    head = next(x for x in text.splitlines() if x.startswith("| model") and "maj@n" in x)
    assert "decoding only" in head
    assert all(f"pass@{k}" in head for k in (2, 4, 8, 16))
    row = next(x for x in text.splitlines() if x.startswith("| scripted") and "/30" in x)
    assert "| 30 " in row
    assert "| 16 " in row
    measured = text.partition("## Published tables")[0]
    assert any("Bookmark SFT" in x and ".4167" in x for x in measured.splitlines())
    assert "§ =" in measured  # the single samples are marked


@pytest.mark.data
def test_gold_answers_score_one_on_every_task(data_root, tmp_path):
    every = [*aime(2024, data_root), *gsm8k("test", data_root), *math500(data_root)]
    known = {d.question.strip(): d.targets[0] for d in every}

    def reply(prompt, sampling):
        question = prompt[-1].content.partition(f"\n\n{BOXED}")[0]
        return rf"\boxed{{{known[question]}}}"

    for task in ("aime24", "gsm8k", "math500"):
        records, _, made = play(tmp_path, task, data_root, reply, limit=5, repeats=1)
        assert all(d.mean("accuracy") == 1 for d in records.docs), task
        assert made.lm_eval[task]["accuracy,none"] == 1


@pytest.mark.data
def test_without_its_training_set_the_few_shot_variant_says_how_to_get_it(data_root, tmp_path):
    if (data_root / "gsm8k_train" / "train.jsonl").exists():
        pytest.skip("the training set is at hand")
    with pytest.raises(DataError, match=r"train\.jsonl is missing: get grade_school_math/data"):
        play(tmp_path, "gsm8k_5shot", data_root, ["x"])


def test_worked_examples_stand_before_the_question():
    shown = gsm8k_doc(1, {"question": "1+1?", "answer": "1+1=<<1+1=2>>2\n#### 2"})
    asked = gsm8k_doc(2, {"question": "2+2?", "answer": "#### 4"})
    assert with_examples(asked, [shown]) == (
        "Question: 1+1?\nAnswer: 1+1=<<1+1=2>>2\n#### 2\n\nQuestion: 2+2?\nAnswer:"
    )


def test_leading_zeros_are_no_part_of_a_target():
    url = "https://example.org/index.php/2024_AIME_I_Problems/Problem_2"
    made = aime_doc(1, {"problem": "p", "answer": "025", "url": url})
    assert (made.id, made.targets) == ("2024-I-2", ("25",))


@pytest.mark.parametrize("line", ['{"problem": "p"}', "{", "[]"])
def test_a_malformed_line_is_named(tmp_path, line):
    path = tmp_path / "x.jsonl"
    path.write_text(
        json.dumps({"problem": "p", "answer": "1", "url": "2024_AIME_I_Problems/Problem_2"})
        + f"\n{line}\n",
        encoding="utf-8",
    )
    with pytest.raises(DataError, match=r"x\.jsonl, line 2"):
        read_docs(path, aime_doc)


def test_the_groups_name_their_tasks():
    entries = catalog(paths.TASKS)
    assert entries["aime"].members == ("aime24", "aime25")
