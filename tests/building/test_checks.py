"""Candidates are accepted or rejected for a named reason; questions split without leaks."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.building.checks import Question, across, validate
from harness.building.split import split
from harness.errors import DataError
from harness.schema import Passage
from harness.scoring.text import normalise, squeeze

PAGE = Passage("p1_c0", "列车长应 立即\n通知司机停车，并组织乘务人员疏散旅客。", page=1)
OTHER = Passage("p2_c0", "司机应立即通知列车长，并打开车门。", page=2)
GOOD = {"question": "列车发生火灾时应由谁通知司机停车？", "answer": "列车长"}


def reasons(*candidates, examples=()):
    return [r.reason for r in validate([PAGE], {"p1_c0": candidates}, examples)[1]]


def test_a_good_candidate_is_kept_without_final_punctuation_and_white_space():
    candidate = {"question": " 列车长要组织乘务人员做什么事情？", "answer": "疏散旅客。 "}
    ((question,), rejects) = validate([PAGE], {"p1_c0": [candidate]})
    assert not rejects
    assert (question.question, question.answer) == ("列车长要组织乘务人员做什么事情？", "疏散旅客")
    assert (question.page, question.chunk_id) == (1, "p1_c0")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"question": ""}, "malformed"),
        ({"answer": 7}, "malformed"),
        ({"answer": "。"}, "malformed"),
        ({"answer": "列车\ud800长"}, "malformed"),
        ({"question": "列车发生火灾时由列车长通知司机"}, "not_a_question"),
        ({"question": "谁停车？"}, "not_a_question"),
        ({"question": "发生火灾时应当立即通知司机停车？"}, "not_a_question"),
        ({"question": "发生火灾时是否应当通知司机停车？"}, ""),
        ({"question": "通知司机停车的人员是？"}, ""),
        ({"question": "The conductor tells the driver to stop at once?"}, "not_a_question"),
        ({"question": "In a fire, is the driver told to stop at once?"}, ""),
        ({"question": "화재가 발생하면 기관사에게 통지합니까?"}, ""),
        ({"question": "除前款规定外，应由谁通知司机停车？"}, "refers_to_page"),
        ({"answer": "乘警"}, "answer_not_on_page"),
        ({"answer": "列车 长应立即通知\n司机"}, ""),
        ({"question": "发生火灾时列车长应通知谁来停车？"}, "answer_in_question"),
        ({"question": "根据本页内容，应由谁通知司机停车？"}, "refers_to_page"),
        ({"question": "发生上述情况时，应由谁通知司机停车？"}, "refers_to_page"),
        ({"question": "如下表所示，应由谁通知司机停车？"}, "refers_to_page"),
        ({"question": "晚点15分钟及以上时，应由谁通知司机停车？"}, ""),
        ({"question": "In the table below, who is it that tells the driver?"}, "refers_to_page"),
        ({"question": "Who tells the driver that a train has caught fire?"}, ""),
    ],
)
def test_every_fault_has_its_reason(change, reason):
    assert reasons(GOOD | change) == ([reason] if reason else [])


@pytest.mark.parametrize("candidate", [None, 3, "text", [], ["question"], {}])
def test_a_candidate_of_any_other_shape_is_malformed(candidate):
    assert reasons(candidate) == ["malformed"]


def test_an_answer_as_long_as_the_page_is_refused():
    page = Passage("p1_c0", "甲" * 200, page=1)
    candidate = {"question": "这里一共写了一些什么内容？", "answer": "甲" * 121}
    assert validate([page], {"p1_c0": [candidate]})[1][0].reason == "answer_too_long"


def test_a_question_of_the_prompt_is_not_taken_for_the_models_own():
    assert reasons(GOOD, examples=[GOOD["question"] + " "]) == ["from_prompt"]
    assert reasons(GOOD, examples=["运输" + GOOD["question"]]) == ["from_prompt"]
    assert reasons(GOOD, examples=["旅客拒绝行李安全检查时，车站可以怎样处理？"]) == []


def test_repeats_are_rejected_across_pages_and_name_what_they_repeat():
    again = {"question": "列车发生火灾时应由谁通知司机停车? ", "answer": "列车长"}
    near = {"question": "在列车发生火灾时应由谁通知司机停车？", "answer": "司机"}
    accepted, rejects = validate([PAGE, OTHER], {"p1_c0": [GOOD], "p2_c0": [again, near]})
    assert [q.chunk_id for q in accepted] == ["p1_c0"]
    assert [r.reason for r in rejects] == ["duplicate", "answer_in_question"]
    near["answer"] = "车门"
    _, rejects = validate([PAGE, OTHER], {"p1_c0": [GOOD], "p2_c0": [near]})
    assert [(r.reason, r.other) for r in rejects] == [("near_duplicate", accepted[0].id)]


def test_the_published_split_shares_two_exact_and_two_near_questions(data_root):
    folder = data_root / "bjtu_railway" / "dataset"

    def read(name):
        with (folder / name).open(encoding="utf-8", newline="") as stream:
            return [
                Question(str(i), int(r["page"]), r["chunk_id"], r["question"], r["answer"])
                for i, r in enumerate(csv.DictReader(stream))
            ]

    found = across(read("sft_data/test.csv"), read("rl_data/train_for_rl_zero.csv"))
    assert sorted(reason for reason, _, _ in found) == ["duplicate"] * 2 + ["near_duplicate"] * 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("列车长通知司机停？ab\ud800", max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["question", "answer", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(json_values, max_size=8))
def test_what_is_accepted_stands_on_its_page_and_is_there_once(candidates):
    accepted, rejects = validate([PAGE], {"p1_c0": candidates})
    assert len(accepted) + len(rejects) == len(candidates)
    assert all(squeeze(q.answer) in squeeze(PAGE.text) for q in accepted)
    assert len({normalise(q.question) for q in accepted}) == len(accepted)


def made(pages, each):
    return [
        Question(f"{p}.{i}", p, f"p{p}_c0", f"question {p} {i}", "a")
        for p in range(1, pages + 1)
        for i in range(each)
    ]


@given(
    st.integers(2, 20), st.integers(1, 15), st.sampled_from(["chunk", "question"]),
    st.integers(0, 5), st.integers(1, 120),
)  # fmt: skip
def test_a_split_is_whole_disjoint_and_about_seven_to_three(pages, each, how, seed, sft):
    questions = made(pages, each)
    sets = split(questions, how, sft, seed)
    ids = [q.id for q in (*sets.test, *sets.sft, *sets.rl)]
    assert sorted(ids) == sorted(q.id for q in questions)
    assert {q.id for q in sets.zero} == {q.id for q in (*sets.sft, *sets.rl)}
    assert sets.test and sets.zero
    unit = each if how == "chunk" else 1
    assert abs(len(sets.test) - 0.3 * len(questions)) <= unit
    if len(sets.zero) > sft:
        assert len(sets.sft) == sft
    if how == "chunk":
        assert not {q.chunk_id for q in sets.test} & {q.chunk_id for q in sets.zero}
    backwards = split(questions[::-1], how, sft, seed)
    assert {q.id for q in backwards.test} == {q.id for q in sets.test}
    assert {q.id for q in backwards.sft} == {q.id for q in sets.sft}


def test_the_published_sizes_give_a_hundred_for_sft():
    sets = split(made(48, 15), "chunk")
    assert (len(sets.test), len(sets.sft), len(sets.rl)) == (225, 100, 395)


def test_one_page_cannot_be_split_by_page():
    with pytest.raises(DataError, match=r"on 1 page.*split=question"):
        split(made(1, 9), "chunk")
    assert len(split(made(1, 9), "question").test) == 3
