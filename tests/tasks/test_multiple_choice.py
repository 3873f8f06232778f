"""KMMLU, MMLU and GPQA-Diamond on files of their schemas, with questions invented here."""

import csv
import random
import zipfile

import pytest

from harness import cli
from harness.engines.scripted import ScriptedEngine
from harness.errors import DataError, UsageError
from harness.evaluate import Settings, evaluate
from harness.progress import Progress
from harness.report.summary import summarise
from harness.schema import Model
from harness.store import Store
from tasks.gpqa import rows as gpqa
from tasks.kmmlu import rows as kmmlu
from tasks.mmlu import rows as mmlu
from tasks.multiple_choice import Question, to_docs

MODEL = Model("scripted", "scripted")


def write(path, header, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows([*([header] if header else []), *lines])


@pytest.fixture(scope="module")
def korean(tmp_path_factory):
    """45 invented subjects of 3 to 11 questions, five dev questions each, as the hub has them."""
    root = tmp_path_factory.mktemp("data")
    draw = random.Random(0)
    header = ["question", "answer", "A", "B", "C", "D", "Category", "Human Accuracy"]
    for k, subject in enumerate(kmmlu.SUBJECTS):
        for split, n in (("test", 3 + k % 9), ("dev", 5)):
            lines = [
                [f"{subject} {split} {i}번 문제는?", draw.randint(1, 4), "가", "나", "다", "라",
                 subject, 0.5]
                for i in range(n)
            ]  # fmt: skip
            write(root / "kmmlu" / "data" / f"{subject}-{split}.csv", header, lines)
    return root


def gold(questions):
    return {q.text: "ABCD"[q.gold] for q in questions}


def run(tmp_path, task, data, replies=None, likelihood=None, **options):
    engine = ScriptedEngine(replies or {}, likelihood=likelihood)
    settings = Settings((task,), task_options=options, data=data, out=tmp_path)
    result = evaluate(MODEL, settings, engine=engine, progress=Progress(quiet=True))
    (records,) = result.records
    return records, engine, result


def test_gold_answers_score_one_and_macro_and_micro_differ_as_subjects_do(korean, tmp_path):
    every = kmmlu.test_set("", korean)
    right = gold(every)
    large = {q.text for q in every if kmmlu.SUBJECTS.index(q.subject) % 9 >= 6}

    def reply(prompt, sampling):
        text = prompt[-1].content
        question = next(line for line in text.splitlines() if line in right)
        return f"풀이...\n정답: {right[question]}" if question in large else "모르겠습니다."

    records, _, _ = run(tmp_path, "kmmlu", korean, reply)
    assert (len(records.docs), len({d.stratum for d in records.docs})) == (len(every), 45)
    estimates = summarise(records).estimates
    assert estimates["accuracy"].mean == pytest.approx(len(large) / len(every))
    assert estimates["macro_accuracy"].mean == pytest.approx(15 / 45)
    assert estimates["answered"].mean == estimates["accuracy"].mean
    assert summarise(records).reasons == {"no_answer": len(every) - len(large)}


def test_five_worked_examples_of_the_same_subject_stand_before_the_question(korean, tmp_path):
    right = gold(kmmlu.test_set("", korean))

    def likelihood(context, continuation):
        question = context.removesuffix("\nassistant: ").splitlines()[-6]
        return (-1.0 if continuation == right[question] else -2.0), False

    records, engine, result = run(tmp_path, "kmmlu_ll", korean, likelihood=likelihood)
    assert summarise(records).estimates["macro_accuracy"].mean == 1.0
    with Store.open(result.run) as store:
        doc = next(iter(store.docs("kmmlu_ll")))
    (message,) = doc.messages
    blocks = message.content.split("\n\n")
    assert len(blocks) == 6
    dev = kmmlu.questions(doc.doc.stratum, "dev", korean)
    for block, example in zip(blocks, dev, strict=False):
        assert block.startswith(example.text)
        assert block.endswith(f"D. 라\n정답： {'ABCD'[example.gold]}")
    assert blocks[-1] == f"{doc.doc.question}\nA. 가\nB. 나\nC. 다\nD. 라\n정답："
    assert len(engine.prompts) == len(records.docs)


def test_subjects_can_be_chosen_which_makes_another_run_off_protocol(korean, tmp_path):
    reply = {"": "정답: A"}
    records, _, result = run(tmp_path, "kmmlu", korean, reply, subjects="Math,Law")
    assert {d.stratum for d in records.docs} == {"Math", "Law"}
    assert records.info["off_protocol"] == ["subjects"]
    whole, _, other = run(tmp_path, "kmmlu", korean, reply)
    assert other.run != result.run
    assert whole.info["off_protocol"] == []


def test_an_unknown_subject_or_option_is_one_line(korean, tmp_path):
    with pytest.raises(UsageError, match=r"subjects=Lawn: did you mean .*Law"):
        run(tmp_path, "kmmlu", korean, subjects="Lawn")
    with pytest.raises(UsageError, match="no task here has the option 'subject': did you mean"):
        run(tmp_path, "kmmlu", korean, subject="Law")


def test_a_missing_set_says_in_one_line_how_to_get_it(tmp_path, capsys, korean):
    for task, hint in (
        ("kmmlu", "hf download HAERAE-HUB/KMMLU --repo-type dataset"),
        ("mmlu", "get train/evaluation/mmlu/mmlu.zip of"),
        ("gpqa_diamond", "dataset.zip of github.com/idavidrein/gpqa"),
    ):
        command = ["eval", "model=SmolLM2-135M", f"tasks={task}", f"data={tmp_path / 'none'}"]
        assert cli.main([*command, f"out={tmp_path}"]) == 2
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert hint in said
        assert "data=DIR" in said
    with pytest.raises(DataError, match=r"Math-dev\.csv is missing"):
        (korean / "kmmlu" / "data" / "Math-dev.csv").rename(tmp_path / "moved.csv")
        try:
            kmmlu.build_likelihood("Math", 5, korean)
        finally:
            (tmp_path / "moved.csv").rename(korean / "kmmlu" / "data" / "Math-dev.csv")


def test_subjects_at_hand_are_named_where_others_are_missing(tmp_path):
    header = ["question", "answer", "A", "B", "C", "D"]
    write(tmp_path / "kmmlu/data/Math-test.csv", header, [["1+1?", 2, "1", "2", "3", "4"]])
    with pytest.raises(DataError, match=r"at hand: task_options\.subjects=Math$"):
        kmmlu.build("", tmp_path)
    assert len(kmmlu.build("Math", tmp_path)["test"]) == 1


@pytest.mark.parametrize("answer", ["0", "5", "B", ""])
def test_a_malformed_answer_names_file_and_line(tmp_path, answer):
    header = ["question", "answer", "A", "B", "C", "D"]
    write(tmp_path / "kmmlu/data/Math-test.csv", header, [["1+1?", answer, "1", "2", "3", "4"]])
    with pytest.raises(DataError, match=r"Math-test\.csv, line 2: answer is"):
        kmmlu.build("Math", tmp_path)


# --- ids and docs ----------------------------------------------------------------------------


def test_ids_depend_on_content_and_not_on_order_and_copies_are_numbered():
    one, two = (Question("s", f"q{i}?", ("a", "b"), i) for i in (0, 1))
    ids = {d.question: d.id for d in to_docs([one, two])}
    assert ids == {d.question: d.id for d in to_docs([two, one])}
    first, second = to_docs([one, one])
    assert second.id == f"{first.id}-2"
    other = Question("s", "q0?", ("a", "b"), 1)
    assert to_docs([other])[0].id != first.id


# --- MMLU ------------------------------------------------------------------------------------


def mmlu_zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        for subject in ("knot_theory", "tea"):
            for split, n in (("dev", 5), ("test", 4)):
                lines = "".join(
                    f'"{subject} {split} {i}, what?",one,two,three,four,{"ABCD"[i % 4]}\n'
                    for i in range(n)
                )
                archive.writestr(f"data/{split}/{subject}_{split}.csv", lines)
    return path


def test_mmlu_reads_the_archive_and_puts_the_subject_s_examples_first(tmp_path, monkeypatch):
    path = mmlu_zip(tmp_path / "mmlu.zip")
    monkeypatch.setattr(mmlu, "locate", lambda *_: path)
    test = mmlu.build_likelihood()["test"]
    assert len(test) == 8
    prompt = test[0]["prompt"]
    assert prompt.startswith(
        "The following are multiple choice questions (with answers) about knot theory.\n\n"
        "knot_theory dev 0, what?\nA. one\nB. two\nC. three\nD. four\nAnswer: A\n\n"
    )
    assert prompt.count("Answer:") == 6
    assert prompt.endswith("D. four\nAnswer:")
    assert mmlu.build_likelihood(shots=0)["test"][0]["prompt"].count("Answer:") == 1
    stated = mmlu.build("tea")["test"]
    assert {row["stratum"] for row in stated} == {"tea"}
    assert "A) one\nB) two" in stated[0]["prompt"]


def test_a_broken_archive_is_a_data_error(tmp_path):
    (tmp_path / "no.zip").write_text("no zip")
    with pytest.raises(DataError, match="cannot be read"):
        mmlu.read(tmp_path / "no.zip", "test")
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("data/test/tea_test.csv", "q,a,b,c,d,A\nq,a,b,c,A\n")
    with pytest.raises(DataError, match=r"tea_test\.csv, line 2"):
        mmlu.read(tmp_path / "bad.zip", "test")
    with pytest.raises(DataError, match="holds no data/dev"):
        mmlu.read(tmp_path / "bad.zip", "dev")


@pytest.mark.data
def test_the_published_archive_has_57_subjects_and_14042_questions(data_root):
    test = mmlu.build(data=data_root)["test"]
    assert (len(test), len(set(test["stratum"]))) == (14042, 57)
    assert len(set(test["id"])) == 14042


@pytest.mark.data
def test_the_published_korean_subject_is_read_from_its_own_place(data_root):
    test = kmmlu.build("Criminal-Law", data_root)["test"]
    assert (len(test), set(test["stratum"])) == (200, {"Criminal-Law"})


# --- GPQA ------------------------------------------------------------------------------------

GPQA_HEADER = [
    "Record ID", "Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2",
    "Incorrect Answer 3", "High-level domain", "Subdomain", "Explanation",
]  # fmt: skip


def gpqa_csv(path, n=40):
    lines = [
        [f"rec{i:03d}", f"Invented question {i}?\n", f"right {i} ", "wrong 1", "wrong 2", "wrong 3",
         ("Physics", "Chemistry", "Biology")[i % 3], "", ""]
        for i in range(n)
    ]  # fmt: skip
    write(path, GPQA_HEADER, lines)


def test_gpqa_options_stand_in_an_order_that_the_id_decides(tmp_path):
    gpqa_csv(tmp_path / "gpqa" / "gpqa_diamond.csv")
    first, again = gpqa.questions(tmp_path), gpqa.questions(tmp_path)
    assert first == again
    for i, q in enumerate(first):
        assert q.choices[q.gold] == f"right {i}"
        assert sorted(q.choices) == [f"right {i}", "wrong 1", "wrong 2", "wrong 3"]
    assert {q.gold for q in first} == {0, 1, 2, 3}
    assert gpqa.order("rec001") != gpqa.order("rec002") or gpqa.order("rec003")


def test_the_right_option_is_in_every_place_equally_often():
    places = [gpqa.order(f"record {i}").index(0) for i in range(4000)]
    for place in range(4):
        assert 900 < places.count(place) < 1100


def test_gpqa_plays_from_a_file_and_gold_answers_score_one(tmp_path):
    gpqa_csv(tmp_path / "gpqa" / "gpqa_diamond.csv")
    right = {q.text.strip(): "ABCD"[q.gold] for q in gpqa.questions(tmp_path)}

    def reply(prompt, sampling):
        question = prompt[-1].content.split("\n\n")[1].partition("\n")[0]
        return f"<think>Let me see.</think>\n\nAnswer: {right[question]}"

    records, _, _ = run(tmp_path / "runs", "gpqa_diamond", tmp_path, reply)
    assert {d.doc_id for d in records.docs} == {f"rec{i:03d}" for i in range(40)}
    assert summarise(records).estimates["accuracy"].mean == 1.0
    assert {d.stratum for d in records.docs} == {"Physics", "Chemistry", "Biology"}


def test_gpqa_reads_the_official_archive(tmp_path):
    gpqa_csv(tmp_path / "gpqa_diamond.csv")
    (tmp_path / "gpqa").mkdir()
    with zipfile.ZipFile(tmp_path / "gpqa" / "dataset.zip", "w") as archive:
        archive.write(tmp_path / "gpqa_diamond.csv", "dataset/gpqa_diamond.csv")
    assert len(gpqa.questions(tmp_path)) == 40
    (tmp_path / "gpqa" / "dataset.zip").write_bytes(b"cut short")
    with pytest.raises(DataError, match=r"dataset\.zip: cannot be read"):
        gpqa.questions(tmp_path)


def test_a_gpqa_file_without_its_columns_says_which(tmp_path):
    write(tmp_path / "gpqa" / "gpqa_diamond.csv", ["Record ID", "Question"], [["r", "q"]])
    with pytest.raises(DataError, match="column 'High-level domain' is missing"):
        gpqa.questions(tmp_path)
