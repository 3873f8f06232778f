import json

import pytest

from harness.errors import DataError, UsageError
from trainers.data import examples, fingerprint
from trainers.recipe import load_recipe

DEMO = ("railway_demo_sft", "railway_demo_sft_rl", "railway_demo_zero")


def jsonl(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


def test_sft_and_rl_of_the_demo_share_no_row_and_zero_takes_them_all():
    sft, rl, zero = ({e.doc.id for e in examples(load_recipe(name))} for name in DEMO)
    assert (len(sft), len(rl), len(zero)) == (100, 68, 168)
    assert not sft & rl and sft | rl == zero


def test_the_demo_is_prompted_in_training_as_in_evaluation():
    from tasks.railway_demo import rows

    docs, _ = rows.build_docs("train", 3)
    asked = {e.doc.id: e for e in examples(load_recipe("railway_demo_sft"))}
    doc = next(d for d in docs if d.id in asked)
    from harness.scoring.process import doc_to_row

    row = doc_to_row(doc)
    assert asked[doc.id].messages[0].content == rows.doc_to_text(row)
    assert asked[doc.id].target == rows.doc_to_target(row)


def test_the_fingerprint_follows_content():
    rows = examples(load_recipe("railway_demo_sft"))
    assert fingerprint(rows) == fingerprint(examples(load_recipe("railway_demo_sft")))
    assert fingerprint(rows) != fingerprint(rows[:-1])


def test_unpublished_data_are_asked_for_in_one_line():
    with pytest.raises(UsageError, match=r"recipe 'korean_sft': .* give data=FILE.jsonl"):
        examples(load_recipe("korean_sft"))


def test_own_rows_are_read_with_their_answers(tmp_path):
    data = jsonl(tmp_path, {"id": "a", "question": "1 + 1?", "answer": 2},
                 {"id": "b", "question": "2 + 2?", "answer": "4"})  # fmt: skip
    rows = {e.doc.id: e for e in examples(load_recipe("korean_dr_grpo"), data)}
    assert rows["a"].doc.targets == ("2",) and rows["b"].doc.targets == ("4",)
    assert rows["a"].doc.meta["kind"] == "number"


def test_sft_refuses_a_row_without_a_completion(tmp_path):
    data = jsonl(tmp_path, {"id": "a", "question": "1 + 1?", "answer": "2"})
    with pytest.raises(DataError, match="row 'a' has no completion"):
        examples(load_recipe("korean_sft"), data)


def test_an_id_that_stands_twice_is_refused(tmp_path):
    row = {"id": "a", "prompt": "Why?", "completion": "Because."}
    with pytest.raises(DataError, match="share the id 'a'"):
        examples(load_recipe("korean_sft"), jsonl(tmp_path, row, row))


@pytest.mark.parametrize(
    ("name", "rows"),
    [("railway_sft", 100), ("railway_sft_rl", 390), ("railway_zero", 490),
     ("r1_searcher_qwen_stage1", 350), ("r1_searcher_qwen_stage2", 8148)],
)  # fmt: skip
def test_published_rows_are_all_there(data_root, name, rows):
    found = examples(load_recipe(name), str(data_root))
    assert len(found) == rows and all(e.doc.question and e.doc.targets for e in found)
    if name.startswith("railway"):
        assert all(e.target.startswith("<answer>") for e in found)
        assert all(isinstance(e.doc.meta["gold_page"], int) for e in found)
