import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contamination import Item, overlaps, shares, shown

WORDS = [a + b for a in ("ka", "lo", "mi", "tu", "re") for b in ("ban", "dir", "fel", "gos", "hun")]


def sentence(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n)).capitalize() + "?"


def row(n, question, target="done", prompt="", passages=()):
    return shown(f"r{n}", question, prompt or f"Answer: {question}", target, passages)


def planted(rng, question, how):
    """A test question as a training set may hide it."""
    if how == "verbatim":
        return question, "done"
    if how == "retyped":
        return question.upper().replace(" ", "  ").replace("?", " !"), "done"
    if how == "embedded":
        return f"Earlier somebody asked: {question} What then?", "done"
    if how == "in_target":
        return sentence(rng, 9), f"First recall that {question} Then stop."
    words = question.rstrip("?").split()  # "edited": the ends are another's
    return " ".join(["Tell", *words[2:-2], "now"]) + "?", "done"


HOWS = ("verbatim", "retyped", "embedded", "in_target", "edited")


def test_twenty_planted_test_questions_are_all_found_and_nothing_else():
    rng = random.Random(7)
    items = [Item("exam", f"t{i}", sentence(rng, 18)) for i in range(200)]
    rows = [row(i, sentence(rng, 18)) for i in range(400)]
    chosen = rng.sample(range(200), 20)
    for place, i in enumerate(chosen):
        question, target = planted(rng, items[i].question, HOWS[place % 5])
        rows[place * 17] = row(place * 17, question, target)
    found = overlaps(rows, items)
    assert {o.item.id for o in found} == {f"t{i}" for i in chosen}
    by_item = {o.item.id: o for o in found}
    assert all(f"r{place * 17}" in by_item[f"t{i}"].rows for place, i in enumerate(chosen))
    assert shares(found, items) == {"exam": (20, 200)}


def test_twenty_planted_chinese_questions_are_all_found():
    rng = random.Random(3)
    letters = "列车长司机乘务员应当在发现火灾后立即报告并组织旅客疏散到安全位置"
    items = [
        Item("exam", f"t{i}", "".join(rng.choice(letters) for _ in range(24)) + "？")
        for i in range(60)
    ]
    rows = [row(i, "".join(rng.choice(letters) for _ in range(24))) for i in range(80)]
    for i in range(20):
        rows[i] = row(i, f"请回答：{items[i].question[:-1]}。谢谢")
    assert {o.item.id for o in overlaps(rows, items)} == {f"t{i}" for i in range(20)}


def test_equal_questions_are_exact_and_shared_stretches_are_ngrams():
    question = " ".join(WORDS[:20])
    item = Item("exam", "t", question)
    (exact,) = overlaps([row(0, question.upper())], [item])
    assert (exact.kind, exact.share) == ("exact", 1.0)
    (partly,) = overlaps([row(0, " ".join(WORDS[:14]) + " and so on")], [item])
    assert partly.kind == "ngram" and partly.share == pytest.approx(2 / 8)


def test_a_short_question_is_found_only_where_it_is_the_question():
    item = Item("exam", "t", "Who came?")
    assert overlaps([row(0, "Say who came? to the ball")], [item]) == []
    assert overlaps([row(0, "who came")], [item])[0].kind == "exact"


def test_retrieved_documents_are_no_questions_but_worked_examples_are():
    question = " ".join(WORDS[:15])
    item = Item("exam", "t", question)
    prompt = f"Documents: {question}. Example: none. Question: something else entirely?"
    assert overlaps([row(0, "Something else", prompt=prompt, passages=[question])], [item]) == []
    shot = f"Example: {question} Answer: 3. Question: something else entirely?"
    (found,) = overlaps([row(0, "Something else", prompt=shot)], [item])
    assert found.kind == "ngram"


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_question_long_enough_is_found_in_itself(question, around):
    item = Item("exam", "t", question)
    found = overlaps([row(0, question, target=around)], [item])
    from harness.leaks import bare

    assert bool(found) or not bare(question)


def test_the_published_railway_training_set_shows_its_known_duplicates(data_root):
    from tasks.railway_rag.rows import build_docs
    from trainers.data import examples
    from trainers.recipe import load_recipe

    docs, _ = build_docs(5, data=str(data_root))
    items = [Item("railway_rag", d.id, d.question) for d in docs]
    rows = [
        shown(e.doc.id, e.doc.question, e.messages[0].content, e.target,
              [p.text for p in e.doc.passages])
        for e in examples(load_recipe("railway_zero"), str(data_root))
    ]  # fmt: skip
    found = overlaps(rows, items)
    assert sum(o.kind == "exact" for o in found) == 2  # known of the published split
    assert docs[0].id in {o.item.id for o in found}  # the prompt's worked example
