"""Before an engine is installed, names and weights are checked."""

from __future__ import annotations

import pytest

from harness.preflight import main


def test_a_card_without_weights_is_one_line_that_names_the_ways_to_give_them(capsys):
    assert main(["eval", "model=Qwen3-8B-SFT-RL"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "path=" in line
    assert "endpoint=" in line
    assert "HF_ENDPOINT" in line


@pytest.mark.parametrize("argument", ["model=Qwen3-8B-SFTRL", "modell=x", "tasks=railway_dem"])
def test_a_wrong_name_is_found_before_any_engine_is_installed(argument, capsys):
    assert main(["plan", argument]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_needs_no_weights_passes():
    assert main(["eval", "model=extractive", "tasks=railway_demo"]) == 0
