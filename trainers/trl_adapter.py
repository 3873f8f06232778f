"""The TRL back end: SFT, GRPO, Dr.GRPO, REINFORCE++-baseline and DAPO of a recipe.

    train_sft(job, rows)        next-token loss on the target; the prompt is masked
    train_rl(job, rows, rule)   rollouts by the harness's policies, rewards by its scorers

TRL renders, generates and rewards nothing here: prompts are rendered by the engine that evaluates
the checkpoint, rollouts are played by the driver, rewards come from `harness.scoring`. Both go on
from the last saved state of their folder.

Settings were read off TRL 1.16 (`GRPOConfig`, `SFTConfig`), whose rollout hook is experimental.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, disable_progress_bars
from peft import LoraConfig, PeftModel, get_peft_model_state_dict
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils import logging as transformers_logging
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from harness.engines.chat import template_text
from harness.engines.codec import ChatCodec
from harness.engines.hf import HFEngine
from harness.engines.weights import resolve, safetensors_from_gguf
from harness.errors import DataError, EngineError
from harness.progress import Progress
from harness.schema import Doc, Encoder, Engine, Model, Retriever, Rollout, Verdict
from trainers.cpu import fitted, release
from trainers.data import Example
from trainers.log import Log
from trainers.play import Player, hook_output
from trainers.recipe import Hyper, Recipe
from trainers.rewarding import Rule, played, trl_reward
from trainers.trl_turns import TurnTrainer

LOSSES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo", "scale_rewards": "group"},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "reinforce_pp": {"loss_type": "dapo", "scale_rewards": "batch"},
    "dapo": {"loss_type": "dapo", "scale_rewards": "group", "epsilon_high": 0.28},
}
"""Algorithm of a recipe -> TRL's settings. TRL's `dapo` loss is the mean over all tokens."""


@dataclass(frozen=True, slots=True)
class Job:
    """One training run.

    Attributes:
        model: Card of the checkpoint to start from.
        folder: Saved states (checkpoints/) and the log.
        limit_steps: Steps of this invocation; None for all.
    """

    recipe: Recipe
    model: Model
    folder: Path
    progress: Progress
    limit_steps: int | None = None


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of a run.

    Attributes:
        network: With its adapter, if it has one.
        step, steps: Optimisation steps done, and of the whole run.
    """

    network: Any
    tokenizer: Any
    step: int
    steps: int


# --- settings -------------------------------------------------------------------------------


def sft_config(recipe: Recipe, folder: Path) -> SFTConfig:
    """TRL's settings for SFT."""
    return SFTConfig(
        **_common(recipe.hyper, folder),
        max_length=recipe.hyper.max_length,
        shuffle_dataset=False,
        packing=False,
        dataset_num_proc=None,
    )


def grpo_config(recipe: Recipe, folder: Path) -> GRPOConfig:
    """TRL's settings for the algorithms with rollouts."""
    h = recipe.hyper
    return GRPOConfig(
        **_common(h, folder),
        **LOSSES[recipe.algorithm],
        num_generations=h.generations,
        max_completion_length=h.max_tokens,
        temperature=h.temperature,  # scales the log-probabilities of the loss as well
        beta=h.beta,
        remove_unused_columns=False,
    )


def _common(h: Hyper, folder: Path) -> dict[str, Any]:
    on_gpu = torch.cuda.is_available()
    return {
        "output_dir": str(folder / "checkpoints"),
        "learning_rate": h.learning_rate,
        "num_train_epochs": h.epochs,
        "max_steps": h.steps or -1,
        "per_device_train_batch_size": h.batch,
        "gradient_accumulation_steps": h.accumulation,
        "lr_scheduler_type": h.scheduler,
        "warmup_steps": h.warmup,  # below 1: a share of the steps
        "weight_decay": h.weight_decay,
        "seed": h.seed,
        "bf16": on_gpu and h.dtype == "bfloat16",
        "use_cpu": not on_gpu,
        "gradient_checkpointing": h.checkpointing,
        "save_strategy": "steps",
        "save_steps": h.save_every,
        "save_total_limit": 2,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": on_gpu,
    }


# --- the two kinds of training ---------------------------------------------------------------


def train_sft(job: Job, rows: Sequence[Example]) -> Trained:
    """Learn the targets.

    Raises:
        DataError: A row is longer than `max_length`: a target that is cut teaches a cut answer.
        EngineError: The weights cannot be loaded, or memory ran out.
    """
    network, tokenizer = load(job.model, job.recipe)
    made = Dataset.from_list([sft_row(job, row, _codec(job.model, tokenizer)) for row in rows])
    trainer: Any = SFTTrainer(
        model=network,
        args=sft_config(job.recipe, job.folder),
        train_dataset=made,
        processing_class=tokenizer,
        peft_config=_lora(job.recipe, network),
    )
    return _run(job, trainer, tokenizer)


def sft_row(job: Job, row: Example, codec: ChatCodec) -> dict[str, list[int]]:
    """Token ids of prompt, target and end of turn; the labels of the prompt are -100.

    Raises:
        DataError: The row is longer than `max_length`.
    """
    h = job.recipe.hyper
    prompt = codec.render(row.messages, h.thinking)
    target = [*codec.encode(row.target, special=False), int(codec.tokenizer.eos_token_id)]
    ids = [*prompt, *target]
    if len(ids) > h.max_length:
        raise DataError(
            f"recipe '{job.recipe.name}': row '{row.doc.id}' has {len(ids)} tokens, over "
            f"'hyper.max_length' ({h.max_length}): raise it, or leave the row out"
        )
    return {"input_ids": ids, "labels": [-100] * len(prompt) + target}


def train_rl(
    job: Job,
    rows: Sequence[Example],
    rule: Rule,
    retriever: Retriever | None = None,
    encoder: Encoder | None = None,
) -> Trained:
    """Learn from rollouts.

    Raises:
        EngineError: The weights cannot be loaded, a rollout failed, or memory ran out.
        IncompleteError: A rollout has no reward (a judge said nothing).
    """
    network, tokenizer = load(job.model, job.recipe)
    log = Log(job.folder)
    trainer = rl_trainer(job, rows, rule, network, tokenizer, log, retriever, encoder)
    try:
        return _run(job, trainer, tokenizer, log)
    finally:
        trainer.close_engine()


def rl_trainer(
    job: Job,
    rows: Sequence[Example],
    rule: Rule,
    network: Any,
    tokenizer: Any,
    log: Log,
    retriever: Retriever | None = None,
    encoder: Encoder | None = None,
    engine: Engine | None = None,
) -> Any:
    """TRL's trainer with the harness's rollouts and rewards in it.

    Args:
        job: The run.
        rows: What is played.
        rule: The reward.
        network: The model in training.
        tokenizer: Its tokenizer.
        log: Told of rollouts and steps.
        retriever: For policies that search.
        encoder: For policies that embed.
        engine: Plays the rollouts; None takes the network itself.
    """
    opened: list[Engine] = [engine] if engine else []

    def seen(doc: Doc, rollout: Rollout, verdicts: Sequence[Verdict], value: float) -> None:
        log.rollout(played(rule, doc, rollout, verdicts, value, trainer.state.global_step))

    def hook(prompts: list[str], trainer: Any) -> dict[str, Any]:
        unwrapped: Any = trainer.accelerator.unwrap_model(trainer.model)
        inner = unwrapped.get_base_model() if isinstance(unwrapped, PeftModel) else unwrapped
        if not opened:
            opened.append(HFEngine(job.model, loaded=(inner, tokenizer)))
        player = Player(job.recipe, rows, opened[0], retriever, encoder)
        training = trainer.model.training
        trainer.model.eval()
        try:
            rollouts = player.play(prompts, trainer.state.global_step)
        finally:
            trainer.model.train(training)
        docs = [player.doc(doc_id) for doc_id in prompts]
        columns, trainer.every = hook_output(docs, rollouts, int(tokenizer.pad_token_id))
        return {**columns, "logprobs": None}

    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    reward: Any = trl_reward(rule, seen)
    trainer: Any = TurnTrainer(
        model=network,
        reward_funcs=reward,
        args=grpo_config(job.recipe, job.folder),
        train_dataset=Dataset.from_list([{"prompt": row.doc.id} for row in rows]),
        processing_class=tokenizer,
        peft_config=_lora(job.recipe, network),
        rollout_func=hook,
    )
    trainer.close_engine = lambda: [engine.close() for engine in opened]
    return trainer


# --- weights --------------------------------------------------------------------------------


def load(model: Model, recipe: Recipe) -> tuple[Any, Any]:
    """Network and tokenizer of a card, ready to train.

    An adapter of the card is trained further where the recipe trains adapters; else it is
    merged first.

    Raises:
        UsageError: The weights are not on this machine.
        EngineError: transformers cannot load them.
    """
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    disable_progress_bars()
    logging.getLogger("trl").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"trl|peft|transformers|accelerate|torch")
    path = resolve(model)
    folder = safetensors_from_gguf(path) if path.suffix == ".gguf" else path
    dtype = getattr(torch, recipe.hyper.dtype, torch.float32)
    dtype = dtype if torch.cuda.is_available() else torch.float32
    try:
        network: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True
        )
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if model.adapter:
            trained = recipe.lora.rank > 0
            adapted: Any = PeftModel.from_pretrained(network, model.adapter, is_trainable=trained)
            network = adapted if trained else adapted.merge_and_unload()
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0][:300]
        raise EngineError(f"{model.name}: cannot load {path} to train it ({reason})") from error
    _codec(model, tokenizer)
    return network, tokenizer


def save_adapter(network: Any, folder: Path, base: str, dtype: str) -> None:
    """Write a LoRA adapter in a dtype; its configuration names the base as the card does."""
    network.peft_config["default"].base_model_name_or_path = base
    kept = get_peft_model_state_dict(network)
    network.save_pretrained(
        str(folder),
        selected_adapters=["default"],
        state_dict={name: value.to(getattr(torch, dtype)) for name, value in kept.items()},
    )
    (folder / "README.md").unlink(missing_ok=True)  # peft's blank form


def save_merged(network: Any, tokenizer: Any, folder: Path) -> None:
    """Write whole weights, an adapter merged into them."""
    whole = network.merge_and_unload() if isinstance(network, PeftModel) else network
    whole.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))


def _codec(model: Model, tokenizer: Any) -> ChatCodec:
    return ChatCodec(model, tokenizer, template_text(model))


def _lora(recipe: Recipe, network: Any) -> LoraConfig | None:
    lora = recipe.lora
    if lora.rank == 0 or isinstance(network, PeftModel):
        return None
    names = [name.strip() for name in lora.targets.split(",")]
    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.targets if lora.targets == "all-linear" else names,
        task_type="CAUSAL_LM",
    )


# --- running --------------------------------------------------------------------------------


class _Steps(TrainerCallback):
    """Counts steps, keeps the log, and stops after the steps of this invocation."""

    def __init__(self, job: Job, log: Log, start: int) -> None:
        self._job = job
        self._log = log
        self._stop = None if job.limit_steps is None else start + job.limit_steps
        self._told: set[str] = set()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._job.progress.sample()
        if self._stop is not None and state.global_step >= self._stop:
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        release()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if not logs or "loss" not in logs:
            return
        self._log.step(state.global_step - 1, logs)
        for alarm in self._log.alarms:
            name = alarm.partition(":")[0]
            if name not in self._told:
                self._told.add(name)
                self._job.progress.say(f"  collapse? {alarm} (step {state.global_step})")


def _run(job: Job, trainer: Any, tokenizer: Any, log: Log | None = None) -> Trained:
    states = job.folder / "checkpoints"
    last = get_last_checkpoint(str(states)) if states.is_dir() else None
    start = int(last.rpartition("-")[2]) if last else 0
    log = log or Log(job.folder)
    log.rewind(start)
    trainer.remove_callback(PrinterCallback)  # the log has it all
    trainer.add_callback(_Steps(job, log, start))
    steps = _steps_of(trainer)
    job.progress.say(
        f"training {job.recipe.name}: {steps} steps" + (f", {start} done" * bool(last))
    )
    try:
        progress = job.progress.samples(steps, done=start, unit="steps", name="steps")
        with fitted(job.recipe.hyper.dtype), progress:
            trainer.train(resume_from_checkpoint=last)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        raise EngineError(f"{job.recipe.name}: {memory_advice(job.recipe)}") from error
    return Trained(trainer.model, tokenizer, int(trainer.state.global_step), steps)


def _steps_of(trainer: Any) -> int:
    """Optimisation steps of the whole run, counted as the trainer counts them."""
    if trainer.args.max_steps > 0:
        return int(trainer.args.max_steps)
    a_epoch = max(
        len(trainer.get_train_dataloader()) // trainer.args.gradient_accumulation_steps, 1
    )
    return int(-(-a_epoch * trainer.args.num_train_epochs // 1))


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    text = str(error).lower()
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        said in text for said in ("out of memory", "can't allocate memory", "not enough memory")
    )


def memory_advice(recipe: Recipe) -> str:
    """What to change in a recipe when memory runs out, the mildest first."""
    h = recipe.hyper
    tips: list[str] = []
    if h.batch > 1:
        tips.append(f"hyper.batch = {h.batch // 2} with hyper.accumulation = {h.accumulation * 2}")
    if not h.checkpointing:
        tips.append("hyper.checkpointing = true")
    if recipe.lora.rank == 0:
        tips.append("lora.rank = 8 in place of all weights")
    tips.append("a lower hyper.max_tokens" if recipe.is_rl else "a lower hyper.max_length")
    return "out of memory; try " + ", then ".join(tips) + " (the last saved step is kept)"
