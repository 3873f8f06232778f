import pytest

from trainers.diagnostics import Played
from trainers.hacking import HeldOut, report, spams, tag_count

HONEST = "<answer> the depot foreman </answer>\n<page> 57 </page>"


def run(late_text=HONEST, late_reward=0.5, late=None, **changed):
    """Nine steps of four rollouts; the last three as given."""
    rows = []
    for step in range(9):
        for repeat in range(4):
            is_late = step >= 6
            fields = {
                "tokens": 20,
                "judged": True,
                "contained": True,
                **((late or {}) if is_late else {}),
            }
            text, reward = (late_text, late_reward) if is_late else (HONEST, 0.5)
            rows.append(Played(step, f"d{step}", repeat, reward, text=text, **fields))
    return rows


def flagged(played, held_out=()):
    return {f.name for f in report(played, held_out) if f.flagged}


def test_an_honest_run_is_not_flagged():
    held = [HeldOut("railway_demo_top3", "joint_accuracy", 0.1, 0.3)]
    assert flagged(run(late_reward=1.5), held) == set()


@pytest.mark.parametrize(
    "text",
    [
        "<answer></answer>" * 6 + "<page> 1 </page>",
        HONEST + "\n<answer> x </answer><answer> y </answer>",
        "<answer><page>" * 10,
    ],
)
def test_a_planted_tag_spam_policy_is_flagged(text):
    assert "tag_spam" in flagged(run(text, late_reward=1.9))


def test_reward_that_rises_while_the_held_out_score_falls_is_flagged():
    held = [HeldOut("railway_demo_top3", "joint_accuracy", 0.3, 0.1)]
    assert flagged(run(late_reward=1.5), held) == {"reward_up_score_down"}
    assert flagged(run(late_reward=0.4), held) == set()


def test_length_repetition_and_judge_only_wins_are_flagged():
    assert flagged(run(late={"tokens": 90})) == {"length_drift"}
    assert flagged(run(late={"reasons": ("repeated_output",)})) == {"repetition"}
    assert flagged(run(late={"contained": False})) == {"judge_only_wins"}


def test_the_tags_of_a_search_are_no_spam():
    turn = "<|begin_of_query|> a <|end_of_query|><|begin_of_documents|> b <|end_of_documents|>"
    assert not spams(turn * 8) and tag_count(turn) == 4


def test_nothing_played_is_no_report():
    assert report([]) == []
