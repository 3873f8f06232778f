from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scoring import degenerate
from harness.scoring.text import split_thinking

THINK = ("<think>", "</think>")

CHECK = "请检查一下这个回答是否符合要求，是否需要修改？"
ANSWER = (
    "<answer> 列车长应立即通过对讲机或列车通话单元呼叫全体乘务人员参与扑救，"
    "在列车长的统一指挥下集中列车所有灭火器材 </answer> <page> 5 </page> "
)
MORE = "请检查一下，是否还有其他页码需要补充？"
SHORT = "<answer> 防止旅客跳车和混乱等意外情况发生 </answer> <page> 2 </page> "

LOOPS = {
    "appendix B, one": (ANSWER + CHECK) * 4 + ANSWER,
    "appendix B, two": (SHORT + MORE) * 2 + MORE * 9,
    "appendix A": ("<answer> 老弱病残孕等旅客 </answer> <page> 10 </page> 请检查一下？") * 3,
    "English sentence": "The answer is on page 5. " * 3,
    "English block": "Let me check again. Is the page right? It is page 5.\n" * 3,
    "after a good start": "The guard closes the fire door. " + "Please check your answer. " * 6,
    "in the middle": "First. "
    + "I will verify the page once more. " * 5
    + "So it is page 7, done.",
    "words": "the guard " * 12,
    "one word": "no " * 40,
    "Chinese words": "列车长" * 12,
    "clauses": "通知司机关闭车门，组织旅客下车，" * 4,
    "no spaces": "verify" * 1 + " verify" * 12,
    "counter": "".join(f"Step {i}: check the page number again.\n" for i in range(40)),
    "coming back": "".join(
        f"Is it {w}? Please look at the reference document once more.\n"
        for w in ("cat", "dog", "hen", "fox", "cow")
    ),
    "one mark": "=" * 400,
    "cut in the middle of a unit": ("It may be page 4, or it may be page 9. " * 6)[:-11],
}

USABLE = {
    "an answer": "<answer> 调度 </answer>\n\n<page> 5 </page>",
    "a list": "1. Fire extinguisher\n2. First-aid kit\n3. Emergency ladder\n4. Megaphone\n5. Torch",
    "a Chinese list": "1.1 灭火：由列车长任组长。\n1.2 救护：由机械师任组长。\n1.3 保护：乘警。",
    "numbered rows": "\n".join(f"Row {i}: {'pass' if i % 3 else 'fail'}" for i in range(12)),
    "a matrix": "0 0 0 0\n0 0 0 0\n0 0 0 0\n0 0 0 0",
    "decimals": "1/3 = 0.3333333333333333333333333333 and 1/7 = 0.142857142857142857142857142857",
    "a table": "| page | text |\n|------|------|\n| 1 | yes |\n| 2 | yes |\n| 3 | yes |\n| 4 | no",
    "laughter": "哈哈哈哈哈, no no no!",
    "repeating for effect": "Never, never, never give up. Location, location, location.",
    "code": "for i in range(3):\n    print(i)\n    print(i)\nreturn [None, None, None, None]\n",
    "prose": (
        "The conductor leads the response. The mechanic and the officer are deputies. When a fire "
        "is reported, the crew goes to the scene, judges how serious it is, and tells the "
        "conductor. If the fire is small, the crew puts it out with the extinguishers of the car."
    ),
    "working aloud": "".join(
        f"Wait, let me check. With n = {i}, the sum of the first {i} odd numbers is {i * i}, "
        f"{word} as the formula says. "
        for i, word in enumerate(("exactly", "again", "just", "precisely", "indeed", "still"))
    ),
    "a title, thrice": "Robert Anderson Van Wyck Robert Anderson Van Wyck Robert Anderson Van Wyck "
    "(1849 to 1918) was the first mayor of New York City after the consolidation.",
    "a rule": "Title\n" + "-" * 80 + "\nText",
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_are_repeated_output(name: str) -> None:
    assert "repeated_output" in degenerate.reasons(LOOPS[name])


@pytest.mark.parametrize("name", USABLE)
def test_ordinary_outputs_are_usable(name: str) -> None:
    assert degenerate.reasons(USABLE[name]) == ()


@pytest.mark.parametrize(
    "text",
    [
        "<answer> 机械师 </answer> <page>1</page>Human: 问题：高铁组发生旅客疾病时，应由谁到现场？",
        "The mechanic.\nHuman: And who is first?",
        "The mechanic.\n\nQuestion: Who is first?\nAnswer: the officer",
        "机械师。\n问题：谁会同乘警到达现场？",
        "page 5<|im_end|>\n<|im_start|>user\nNext question",
        "The mechanic. [INST] Next [/INST]",
    ],
)
def test_playing_the_next_turn_is_over_output(text: str) -> None:
    assert "over_output" in degenerate.reasons(text)


def test_restating_the_question_first_is_no_over_output() -> None:
    assert degenerate.reasons("Question: who leads?\nThe conductor does.") == ()
    assert degenerate.reasons("The user: a passenger. Human: a species.") == ()


@pytest.mark.parametrize(
    ("text", "finish", "expected"),
    [
        ("A fine answer", "length", ("truncated",)),
        ("A fine answer", "context", ("context_overflow",)),
        ("", "stop", ("empty_output",)),
        (" \n ", "stop", ("empty_output",)),
        ("<think>hm</think>\n", "stop", ("empty_output",)),
        ("<think>hm", "length", ("unclosed_think", "truncated")),
        ("<think>\n\n</think>\n\nyes", "stop", ()),
        ("hm</think>yes", "stop", ()),
    ],
)
def test_each_way_to_end_has_its_reason(text: str, finish: str, expected: tuple[str, ...]) -> None:
    assert degenerate.reasons(text, finish, THINK) == expected


def test_circles_in_a_finished_thought_are_forgiven_and_in_an_endless_one_not() -> None:
    circles = "Is it page 5? Let me look again. " * 9
    assert degenerate.reasons(f"<think>{circles}</think>Page 5.", "stop", THINK) == ()
    assert degenerate.reasons(f"<think>{circles}", "length", THINK) == (
        "repeated_output",
        "unclosed_think",
        "truncated",
    )


def test_thinking_is_split_off_whole() -> None:
    assert split_thinking("<think>a</think>b", THINK) == ("a", "b", True)
    assert split_thinking("a</think>b", THINK) == ("a", "b", True)
    assert split_thinking("b", THINK) == ("", "b", True)
    assert split_thinking("b<think>a", THINK) == ("a", "b", False)
    assert split_thinking("<think>a</think>b<think>c", THINK) == ("a\nc", "b", False)
    assert split_thinking("<think>a</think>b", None) == ("", "<think>a</think>b", True)


@given(
    st.text()
    | st.lists(st.sampled_from(["<think>", "</think>", "Human:", "。", "页", "a "])).map("".join),
    st.sampled_from(["stop", "length", "context", "error"]),
    st.sampled_from([None, THINK]),
)
def test_any_text_gets_reasons_of_the_vocabulary_in_its_order(
    text: str, finish: str, tags: tuple[str, str] | None
) -> None:
    found = degenerate.reasons(text, finish, tags)
    assert list(found) == [r for r in degenerate.REASONS if r in found]


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz页码旅客", min_size=20), st.integers(3, 9))
def test_a_long_unit_three_times_over_is_always_found(unit: str, times: int) -> None:
    assert degenerate.repeats(f"{unit}. " * times) or len(set(unit)) == 1


@pytest.mark.parametrize(
    "text",
    ["页码" * 500_000, " " * 1_000_000, "<answer>" * 100_000, ">Human:" * 100_000, "=|" * 300_000],
)
def test_a_megabyte_of_junk_is_no_obstacle(text: str) -> None:
    assert set(degenerate.reasons(text)) <= set(degenerate.REASONS)
