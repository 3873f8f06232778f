"""Figures: what they show, that every character has a glyph, and that bytes repeat."""

import re
from dataclasses import replace

import pytest

from harness import paths
from harness.errors import UsageError
from harness.records import DocSamples, RecordSet, Sample
from harness.report.figures import FIGURES, Bar, bars, draw, find_font, link, write_figures
from harness.report.published import load_all

pytest.importorskip("matplotlib", reason="needs checkrail[figures]")

TABLES = tuple(load_all(paths.BASELINES / "published").values())
FIGURE = FIGURES["railway_rag"]


def records(name="mine", task="railway_rag_top5", right=100, **info):
    docs = tuple(
        DocSamples(
            f"d{i}", f"p{i % 15}", None, "sha",
            (Sample(0, "x", "stop", {"answer_accuracy": float(i < right), "page_accuracy": 1.0},
                    (), 5),),
        )
        for i in range(225)
    )  # fmt: skip
    about = {"fingerprints": {}, "metric": "joint_accuracy", "retriever": "published", **info}
    return RecordSet(name, task, "run", about, docs, 225, 225, 1)


def test_the_published_figure_is_four_models_two_depths_two_metrics():
    drawn = bars(FIGURE, (), TABLES)
    assert len(drawn) == 16
    assert all(bar.published and bar.low is None for bar in drawn)
    assert {b.model for b in drawn} == {"Qwen3-8B", "Qwen3-8B-Zero", "Qwen3-8B-SFT",
                                        "Qwen3-8B-SFT-RL"}  # fmt: skip
    best = next(b for b in drawn if b.model == "Qwen3-8B-SFT-RL" and b.metric == "answer_accuracy")
    assert (best.task, best.value) == ("railway_rag_top5", 0.6044)


def test_measured_bars_have_intervals_and_stand_beside_published_ones_of_the_model():
    drawn = bars(FIGURE, [records("Qwen3-8B", right=90)], TABLES)
    (bar,) = [b for b in drawn if not b.published and b.metric == "answer_accuracy"]
    assert (bar.model, bar.value) == ("Qwen3-8B", 0.4)
    assert bar.low < 0.4 < bar.high
    assert sum(b.published for b in drawn) == 16


@pytest.mark.parametrize(
    "change",
    [
        {"selected": 50},
        {"info": {"retriever": "oracle"}},
        {"info": {"retriever": "published", "off_protocol": ["temperature"]}},
    ],
)
def test_what_is_not_the_protocol_in_full_is_not_drawn(change):
    odd = replace(records(), **change)
    assert bars(FIGURE, [odd], ()) == ()


def test_the_same_figures_give_the_same_bytes(tmp_path):
    sets = [records(), records(task="railway_rag_top3")]
    first = {p.name: p.read_bytes() for p in write_figures(tmp_path / "a", sets, TABLES)}
    again = {p.name: p.read_bytes() for p in write_figures(tmp_path / "b", sets, TABLES)}
    assert first == again
    assert set(first) == {"railway_rag.svg", "railway_rag.png"}
    assert b"<text" not in first["railway_rag.svg"]  # outlines: no viewer needs the font


def test_the_hatch_of_published_bars_is_seen_in_the_svg_too(tmp_path):
    draw(FIGURE, bars(FIGURE, (), TABLES), tmp_path / "x.svg")
    svg = (tmp_path / "x.svg").read_text()
    patterns = re.findall(r"<pattern.*?</pattern>", svg, re.DOTALL)
    assert len(patterns) == 2
    for pattern in patterns:
        ground, lines = re.findall(r"fill[=:] ?\"?(#\w+)", pattern)
        assert ground != lines
    assert "fill-opacity" not in "".join(re.findall(r"fill: url.*", svg))


def test_a_board_shows_its_figure_until_the_records_change(tmp_path):
    assert link(tmp_path, "railway_rag", (), TABLES) == []
    write_figures(tmp_path, (), TABLES)
    assert "](figures/railway_rag.svg)" in link(tmp_path, "railway_rag", (), TABLES)[0]
    assert "older records" in link(tmp_path, "railway_rag", [records()], TABLES)[0]
    assert link(tmp_path, "aime", (), TABLES) == []


def test_every_character_that_is_drawn_has_a_glyph():
    from matplotlib.ft2font import FT2Font

    have = FT2Font(str(find_font())).get_charmap()
    texts = [FIGURE.title, FIGURE.axis, FIGURE.published, FIGURE.measured]
    texts += [label for _, label in FIGURE.metrics]
    assert [c for text in texts for c in text if ord(c) not in have] == []


def test_a_font_that_would_show_boxes_is_refused(tmp_path):
    from matplotlib import font_manager

    latin = font_manager.findfont("DejaVu Sans")
    bar = Bar("railway_rag_top5", "m", "answer_accuracy", 0.5, None, None, True)
    with pytest.raises(UsageError, match=r"has no .*would show boxes"):
        draw(FIGURE, [bar], tmp_path / "x.svg", tmp_path.joinpath(latin))
    assert not (tmp_path / "x.svg").exists()
