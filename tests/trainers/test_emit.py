import json

import pytest
import yaml

from harness.errors import UsageError
from trainers.emit import emit
from trainers.recipe import load_recipe


def test_sft_becomes_a_llama_factory_run_with_the_published_settings(tmp_path):
    written = {p.name: p for p in emit(load_recipe("railway_demo_sft"), tmp_path)}
    settings = yaml.safe_load(written["train.yaml"].read_text("utf-8"))
    assert settings["learning_rate"] == 3e-4 and settings["lora_rank"] == 8
    rows = json.loads(written["rows.json"].read_text("utf-8"))
    assert len(rows) == 100 and rows[0]["output"].startswith("<answer>")
    assert json.loads(written["dataset_info.json"].read_text("utf-8"))["rows"]["file_name"]


def test_grpo_becomes_overrides_of_verl(tmp_path):
    written = {p.name: p for p in emit(load_recipe("railway_demo_zero"), tmp_path)}
    script = written["train.sh"].read_text("utf-8")
    assert "actor_rollout_ref.rollout.n=4" in script and "custom_reward_function" in script
    assert len(written["rows.jsonl"].read_text("utf-8").splitlines()) == 168


def test_a_searching_policy_is_not_emitted(tmp_path):
    with pytest.raises(UsageError, match="backend=trl"):
        emit(load_recipe("r1_searcher_qwen_stage1"), tmp_path)
