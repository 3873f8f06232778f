"""Configuration for back ends that train elsewhere: LLaMA-Factory (SFT) and veRL (GRPO).

Both pin other versions of transformers and have environments of their own; neither has been run
from here. What is written is a start: settings of the recipe under the back end's names.

    LLaMA-Factory    train.yaml, dataset_info.json, rows.json (alpaca)
    veRL             train.sh with the overrides; rows.jsonl. The reward is not exported: wire
                     harness.scoring.rewards through veRL's custom_reward_function.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.models import load_model
from trainers.data import Example, examples
from trainers.recipe import Recipe


def emit(recipe: Recipe, folder: Path, data: str | None = None) -> list[Path]:
    """Write the files of a recipe's kind and return their paths.

    Raises:
        UsageError: The algorithm has no counterpart there.
        DataError: The rows cannot be read.
    """
    if recipe.algorithm not in ("sft", "grpo", "dr_grpo") or recipe.policy != "single_turn":
        raise UsageError(
            f"recipe '{recipe.name}': only sft, grpo and dr_grpo with policy single_turn can be "
            f"emitted; backend=trl trains it here"
        )
    rows = examples(recipe, data)
    base = load_model(recipe.base).path or f"PATH_OF_{recipe.base}"
    files = _verl(recipe, rows, base) if recipe.is_rl else _llamafactory(recipe, rows, base)
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, text in files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _llamafactory(recipe: Recipe, rows: list[Example], base: str) -> dict[str, str]:
    h, lora = recipe.hyper, recipe.lora
    settings: dict[str, Any] = {
        "model_name_or_path": base,
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora" if lora.rank else "full",
        **({"lora_rank": lora.rank, "lora_target": "all"} if lora.rank else {}),
        "dataset_dir": ".",
        "dataset": "rows",
        "template": "qwen3_nothink" if h.thinking is False else "qwen3",
        "cutoff_len": h.max_length,
        "output_dir": recipe.makes,
        "per_device_train_batch_size": h.batch,
        "gradient_accumulation_steps": h.accumulation,
        "learning_rate": h.learning_rate,
        "num_train_epochs": h.epochs,
        "lr_scheduler_type": h.scheduler,
        "warmup_ratio": h.warmup,
        "bf16": h.dtype == "bfloat16",
        "seed": h.seed,
    }
    alpaca = [
        {"instruction": "", "input": row.messages[-1].content, "output": row.target} for row in rows
    ]
    yaml = "".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items())
    return {
        "train.yaml": f"# {recipe.about}\n# llamafactory-cli train train.yaml\n{yaml}",
        "dataset_info.json": json.dumps({"rows": {"file_name": "rows.json"}}, indent=2) + "\n",
        "rows.json": json.dumps(alpaca, ensure_ascii=False, indent=1) + "\n",
    }


def _verl(recipe: Recipe, rows: list[Example], base: str) -> dict[str, str]:
    h = recipe.hyper
    dr = recipe.algorithm == "dr_grpo"
    settings: dict[str, Any] = {
        "algorithm.adv_estimator": "grpo",
        "actor_rollout_ref.model.path": base,
        "actor_rollout_ref.actor.optim.lr": h.learning_rate,
        "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": h.warmup,
        "actor_rollout_ref.rollout.n": h.generations,
        "actor_rollout_ref.rollout.temperature": h.temperature,
        "actor_rollout_ref.actor.use_kl_loss": h.beta > 0,
        "actor_rollout_ref.actor.kl_loss_coef": h.beta,
        "data.train_files": "rows.parquet",
        "data.train_batch_size": h.batch * h.accumulation // h.generations,
        "data.max_response_length": h.max_tokens,
        "trainer.total_training_steps": h.steps or "null",
    }
    if dr:
        settings["algorithm.norm_adv_by_std_in_grpo"] = False
        settings["actor_rollout_ref.actor.loss_agg_mode"] = "seq-mean-token-sum-norm"
    made = [
        {
            "data_source": recipe.data.source,
            "prompt": [{"role": m.role, "content": m.content} for m in row.messages],
            "reward_model": {"style": "rule", "ground_truth": list(row.doc.targets)},
            "extra_info": {"id": row.doc.id},
        }
        for row in rows
    ]
    overrides = " \\\n".join(f"    {key}={value!s}" for key, value in settings.items())
    return {
        "train.sh": f"# {recipe.about}\n# rows.jsonl has to become rows.parquet; the reward "
        f"'{recipe.reward}' has to be wired through custom_reward_function.\n"
        f"python3 -m verl.trainer.main_ppo \\\n{overrides}\n",
        "rows.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made),
    }
