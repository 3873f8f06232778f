"""Training recipes: trainers/recipes/NAME.toml -> `Recipe`.

A recipe says what a checkpoint is made of: data, base, algorithm, reward, policy,
hyper-parameters and back end. Adding one is adding a file; `python -m harness recipes` lists them.
Nothing heavy is imported here.
"""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import ConfigError, UsageError, nearest

RECIPES = Path(__file__).parent / "recipes"

ALGORITHMS = ("sft", "grpo", "dr_grpo", "reinforce_pp", "dapo")
"""sft: next-token loss on the target. The others draw `generations` rollouts a doc:

    grpo          advantage (r - group mean) / group deviation, mean over each rollout's tokens
                  (DeepSeekMath, arXiv 2402.03300)
    dr_grpo       advantage r - group mean, sum over tokens / a constant (arXiv 2503.20783)
    reinforce_pp  advantage (r - group mean) / deviation over the batch, mean over all tokens
                  (REINFORCE++-baseline, arXiv 2501.03262)
    dapo          grpo's advantage, mean over all tokens, clipped at 0.2 and 0.28 (arXiv 2503.14476)
"""

BACKENDS = ("trl", "llamafactory", "verl")
"""trl trains here; for the others `train emit=DIR` writes a configuration to start from."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Data:
    """What is learnt from.

    Attributes:
        source: One of `trainers.data.SOURCES`.
        rows: Rows to take, of a fixed seeded order; 0 takes all.
        skip: Rows of that order to leave out first (the part that SFT has seen, say).
        options: Settings of the source (top_k, file, ...).
        corpus: Corpus that a searching policy searches (`tasks.multihop_qa.rows.CORPORA`).
        retriever: Retriever over that corpus.
    """

    source: str
    rows: int = 0
    skip: int = 0
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    corpus: str = ""
    retriever: str = "bm25"


@dataclass(frozen=True, slots=True)
class Lora:
    """A low-rank adapter; rank 0 trains all weights.

    Attributes:
        targets: "all-linear", or names of modules with commas.
    """

    rank: int = 8
    alpha: int = 16
    dropout: float = 0.0
    targets: str = "all-linear"


@dataclass(frozen=True, slots=True)
class Hyper:
    """Hyper-parameters, in the field's usual names.

    Attributes:
        epochs: Passes over the rows, where `steps` is 0.
        steps: Optimisation steps; 0 lets `epochs` decide.
        batch: Rows (SFT) or rollouts (RL) in one forward pass on one device.
        accumulation: Passes that one step adds up: a step is batch x accumulation x devices.
        warmup: Share of the steps, in [0, 1).
        generations: Rollouts a doc.
        max_tokens: Longest generation of the model; Dr.GRPO's constant divisor.
        max_length: Tokens of prompt and target that SFT keeps.
        temperature, top_p, top_k: Of the rollouts.
        beta: Weight of the KL term; 0 loads no reference model.
        save_every: Steps between saved states: what a stopped run goes back to.
        dtype: bfloat16 or float32, of the matrix products; weights and sums are float32 on a CPU.
        thinking: As `Sampling.thinking`.
        checkpointing: Trade time for memory.
    """

    learning_rate: float
    epochs: float = 1.0
    steps: int = 0
    batch: int = 1
    accumulation: int = 1
    scheduler: str = "constant"
    warmup: float = 0.0
    weight_decay: float = 0.0
    generations: int = 0
    max_tokens: int = 256
    max_length: int = 4096
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    beta: float = 0.0
    save_every: int = 10
    seed: int = 0
    dtype: str = "bfloat16"
    thinking: bool | None = None
    checkpointing: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a checkpoint is made.

    Attributes:
        about: One line for the listing.
        base: Card of the checkpoint to start from.
        makes: Name of the checkpoint that comes of it, unless the command gives another.
        algorithm: One of `ALGORITHMS`.
        backend: One of `BACKENDS`: what the published run used, or trl.
        reward: One of `harness.scoring.rewards.REWARDS`; "" for SFT.
        scorer: Scorer whose judge gives the reward its verdicts ("" for rewards that need none).
        judge: Card of the model that plays the oracle judge; "" without one.
        policy, policy_options: How a doc is played (`harness.rollouts.POLICIES`).
        tasks: What the new card evaluates by default.
        assumed: Settings that the publication does not give, in a sentence.
    """

    name: str
    about: str
    base: str
    makes: str
    algorithm: str
    data: Data
    hyper: Hyper
    backend: str = "trl"
    reward: str = ""
    scorer: str = ""
    judge: str = ""
    policy: str = "single_turn"
    policy_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lora: Lora = field(default_factory=Lora)
    tasks: tuple[str, ...] = ()
    assumed: str = ""

    @property
    def is_rl(self) -> bool:
        """Whether rollouts are played."""
        return self.algorithm != "sft"


def recipe_names(folder: Path = RECIPES) -> list[str]:
    """Names of all recipes, sorted."""
    return sorted(p.stem for p in folder.glob("*.toml"))


def load_recipe(name: str, folder: Path = RECIPES) -> Recipe:
    """Read a recipe by name, or by the path of a .toml file.

    Raises:
        UsageError: No such recipe; the message gives the nearest names.
        ConfigError: A mistake in the file; the message names file and key.
    """
    path = Path(name).expanduser() if name.endswith(".toml") else folder / f"{name}.toml"
    if not name or not path.is_file():
        raise UsageError(f"unknown recipe '{name}': {nearest(name, recipe_names(folder))}")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    recipe = _section(Recipe, {"name": path.stem, **data}, str(path))
    _check(recipe, str(path))
    return recipe


def _section(kind: type[T], data: Mapping[str, Any], where: str) -> T:
    """A dataclass of a TOML table, each key checked for name and type."""
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(typing.cast(Any, kind))}
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in fields:
            raise ConfigError(f"{where}: unknown key '{key}', {nearest(key, fields)}")
        values[key] = _value(hints[key], value, f"{where}: '{key}'")
    for name, f in fields.items():
        if name not in values and f.default is f.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{where}: key '{name}' is missing")
    return kind(**values)


def _value(hint: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ConfigError(f"{where} must be a table")
        return _section(typing.cast(type, hint), typing.cast("dict[str, Any]", value), where)
    origin = typing.get_origin(hint)
    if origin is types.UnionType:  # X | None
        hint = typing.get_args(hint)[0]
    if origin is tuple:
        if not isinstance(value, list) or not all(
            isinstance(v, str) for v in typing.cast("list[Any]", value)
        ):
            raise ConfigError(f"{where} must be a list of strings")
        return tuple(typing.cast("list[str]", value))
    if origin is Mapping:
        hint = dict
    wanted = (int, float) if hint is float else hint
    if not isinstance(value, wanted) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{where} must be a {hint.__name__}, is {type(value).__name__}")
    return float(value) if hint is float else value


_WHOLE = ("steps", "top_k", "seed")
_POSITIVE = ("batch", "accumulation", "max_tokens", "max_length", "save_every")


def _check(recipe: Recipe, where: str) -> None:
    for key, known in (("algorithm", ALGORITHMS), ("backend", BACKENDS)):
        value = getattr(recipe, key)
        if value not in known:
            raise ConfigError(f"{where}: '{key}' is '{value}', {nearest(value, known)}")
    h = recipe.hyper
    ranges: list[tuple[str, float, bool, str]] = [
        ("learning_rate", h.learning_rate, 0 < h.learning_rate <= 1, "in (0, 1]"),
        ("epochs", h.epochs, h.epochs > 0, "above 0"),
        ("warmup", h.warmup, 0 <= h.warmup < 1, "in [0, 1)"),
        ("temperature", h.temperature, h.temperature > 0 or not recipe.is_rl, "above 0"),
        ("top_p", h.top_p, 0 < h.top_p <= 1, "in (0, 1]"),
        ("beta", h.beta, h.beta >= 0, "0 or more"),
        *((k, getattr(h, k), getattr(h, k) >= 0, "0 or more") for k in _WHOLE),
        *((k, getattr(h, k), getattr(h, k) >= 1, "1 or more") for k in _POSITIVE),
    ]
    for key, value, fine, wanted in ranges:
        if not fine:
            raise ConfigError(f"{where}: 'hyper.{key}' is {value:g}, must be {wanted}")
    if not recipe.is_rl:
        if recipe.reward:
            raise ConfigError(f"{where}: 'reward' means nothing with algorithm 'sft'")
        return
    from harness.scoring.rewards import REWARDS

    if recipe.reward not in REWARDS:
        raise ConfigError(
            f"{where}: 'reward' is '{recipe.reward}', {nearest(recipe.reward, REWARDS)}"
        )
    if h.generations < 2:
        raise ConfigError(
            f"{where}: 'hyper.generations' is {h.generations}, a group needs 2 or more"
        )
    if h.batch * h.accumulation % h.generations:
        raise ConfigError(
            f"{where}: 'hyper.batch' x 'hyper.accumulation' is {h.batch * h.accumulation}, must be "
            f"a multiple of 'hyper.generations' ({h.generations}): a step takes whole groups"
        )
