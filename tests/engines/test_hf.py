"""The transformers engine: batching, sampling, log-likelihoods, adapters."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed: pip install checkrail[hf]")
pytest.importorskip("transformers", reason="pip install checkrail[hf]")

from harness.engines import hf_batch, hf_score, open_engine  # noqa: E402  # needs torch
from harness.errors import EngineError, UsageError  # noqa: E402
from harness.schema import Message, Model, Sampling  # noqa: E402
from tests.engines.conftest import say, say_all, user  # noqa: E402

CHOICES = [" Paris", " London", " a very large city in Europe", " Paris."]


def test_greedy_texts_do_not_depend_on_batch_mates(hf: Any) -> None:
    prompts = [user(f"What is the capital of {c}?{' Think.' * n}") for n, c in
               enumerate(["France", "Spain", "Italy", "Korea", "Chile", "Cuba"])]  # fmt: skip
    samplings = [Sampling(max_tokens=4 + 3 * n) for n in range(6)]
    alone = [say_all(hf, [p], [s])[0] for p, s in zip(prompts, samplings, strict=True)]
    crowd = say_all(hf, prompts, samplings)
    assert [c.token_ids for c in crowd] == [c.token_ids for c in alone]
    for one, other in zip(crowd, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-3)


def test_greedy_ids_are_those_of_generate_in_transformers(hf: Any) -> None:
    ids = hf.render(user("Name three colours."), None)
    with torch.inference_mode():
        stock = hf._model.generate(torch.tensor([ids]), max_new_tokens=16, do_sample=False)
    assert list(say(hf, ids, 16).token_ids or ()) == stock[0, len(ids) :].tolist()


def test_log_probabilities_are_those_of_a_forward_pass(hf: Any) -> None:
    made = say(hf, user("Name a river."), 6, temperature=0.7, seed=1)
    assert made.prompt_ids and made.token_ids and made.logprobs
    ids = [*made.prompt_ids, *made.token_ids]
    with torch.inference_mode():
        table = hf._model(torch.tensor([ids])).logits[0].log_softmax(-1)
    start = len(made.prompt_ids)
    expected = [float(table[start + i - 1, t]) for i, t in enumerate(made.token_ids)]
    assert made.logprobs == pytest.approx(expected, abs=1e-3)


def test_a_chat_renders_as_transformers_renders_it(hf: Any) -> None:
    chat = [Message("system", "Be brief."), *user("Hi"), Message("assistant", "Hello, I")]
    raw = [{"role": m.role, "content": m.content} for m in chat]
    stock = hf._codec.tokenizer.apply_chat_template(raw, continue_final_message=True)
    assert hf.render(chat, None) == list(stock["input_ids"])


def test_thinking_is_handed_to_the_template(hf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    template = "{{ messages[0].content }}|{{ enable_thinking | default('open') }}|"
    monkeypatch.setattr(hf._codec.tokenizer, "chat_template", template)
    rendered = {t: hf._codec.decode(hf.render(user("x"), t)) for t in (True, False, None)}
    assert rendered == {True: "x|True|", False: "x|False|", None: "x|open|"}


def test_weights_without_a_template_say_what_to_set(
    hf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hf._codec.tokenizer, "chat_template", None)
    with pytest.raises(UsageError, match='or to "none" for a base model'):
        hf.render(user("x"), None)


# --- log-likelihood --------------------------------------------------------------------------


def test_log_likelihoods_are_sums_over_a_forward_pass(hf: Any) -> None:
    context = "The capital of France is"
    for text, (value, greedy) in zip(
        CHOICES, asyncio.run(hf.loglikelihood(context, CHOICES)), strict=True
    ):
        head = hf._codec.encode(context, special=True)
        whole = hf._codec.encode(context + text, special=True)
        with torch.inference_mode():
            table = hf._model(torch.tensor([whole])).logits[0].log_softmax(-1)
        rows = range(len(head), len(whole))
        assert value == pytest.approx(sum(float(table[i - 1, whole[i]]) for i in rows), abs=1e-3)
        assert greedy == all(int(table[i - 1].argmax()) == whole[i] for i in rows)


def test_log_likelihoods_are_those_of_lm_eval(hf: Any) -> None:
    lm_eval = pytest.importorskip("lm_eval.models.huggingface", reason="needs lm-eval[hf]")
    from lm_eval.api.instance import Instance

    pairs = [
        ("The capital of France is", " Paris"),
        ("Trailing spaces move  ", "to the continuation"),
        ("Question: 1+1?\nAnswer:", " 2"),
        ("", "An empty context"),
        ("long " * 600, "context is cut on the left"),
    ]
    theirs = lm_eval.HFLM(
        pretrained=hf._model, tokenizer=hf._codec.tokenizer, max_length=hf.context_length,
        device="cpu", batch_size=2,
    )  # fmt: skip
    requests = [Instance("loglikelihood", {}, pair, 0) for pair in pairs]
    expected = theirs.loglikelihood(requests, disable_tqdm=True)

    async def run() -> list[tuple[float, bool]]:
        rows = await asyncio.gather(*(hf.loglikelihood(c, [t]) for c, t in pairs))
        return [row[0] for row in rows]

    for (value, greedy), (their_value, their_greedy) in zip(
        asyncio.run(run()), expected, strict=True
    ):
        assert value == pytest.approx(their_value, abs=2e-3)
        assert greedy == their_greedy


CONTEXTS = ("The capital of France is", "A much longer context, so that rows differ: 1, 2, 3,")
ANSWERS = (" Paris", " Paris, of course", " a city by the river Seine", " B", " 4, 5, 6", "")


def one_by_one(hf: Any, context: str, text: str) -> tuple[float, bool]:
    head, tail = hf._codec.pair(context, text)
    if not tail:
        return 0.0, True
    with torch.inference_mode():
        table = hf._model(torch.tensor([head + tail])).logits[0].log_softmax(-1)
    rows = [(table[len(head) + i - 1], token) for i, token in enumerate(tail)]
    return sum(float(r[t]) for r, t in rows), all(int(r.argmax()) == t for r, t in rows)


@pytest.mark.parametrize("budget", [16, 64, 4096])
@pytest.mark.parametrize("pack", [True, False])
def test_choices_that_share_a_row_do_not_see_each_other(
    hf: Any, budget: int, pack: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not pack:
        monkeypatch.setattr(hf_score, "can_pack", lambda model: False)
    asked = [(c, a) for a in ANSWERS for c in CONTEXTS]
    pairs = [hf._codec.pair(c, a) for c, a in asked]
    made = hf_score.score(hf._model, pairs, 512, budget)
    for (context, text), (value, greedy) in zip(asked, made, strict=True):
        expected, expected_greedy = one_by_one(hf, context, text)
        assert value == pytest.approx(expected, abs=1e-3)
        assert greedy == expected_greedy


@given(st.data())
def test_every_continuation_is_asked_once_behind_its_own_context(data: st.DataObject) -> None:
    tokens = st.lists(st.integers(1, 9), max_size=6)
    contexts = data.draw(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1))
    pairs = [(data.draw(st.sampled_from(contexts)), data.draw(tokens)) for _ in range(6)]
    limit, budget = data.draw(st.integers(2, 12)), data.draw(st.integers(2, 30))
    made = hf_score.rows(pairs, limit, budget, pack=data.draw(st.booleans()))
    asked = {number: (row, wanted, places) for row in made for number, wanted, places in row.asked}
    assert set(asked) == {i for i, (_, tail) in enumerate(pairs) if tail}
    for number, (row, wanted, places) in asked.items():
        whole = (pairs[number][0] + pairs[number][1])[-(limit + 1) :]
        assert wanted == pairs[number][1][-limit:]
        assert max(row.positions()) < limit
        for token_place, read in zip(
            places, range(len(whole) - len(wanted), len(whole)), strict=True
        ):
            seen = [row.ids[j] for j in row.mask()[token_place].nonzero().flatten().tolist()]
            assert seen == whole[:read]


def test_choices_of_one_prompt_read_it_once() -> None:
    prompt = list(range(100))
    letters = hf_score.rows([(prompt, [i]) for i in range(4)], 512, 4096, pack=False)
    assert [len(row.ids) for row in letters] == [100]
    texts = [(prompt, [i, i, i]) for i in range(4)]
    assert [len(row.ids) for row in hf_score.rows(texts, 512, 4096, pack=True)] == [108]
    assert len(hf_score.rows(texts, 512, 4096, pack=False)) == 4


def test_generating_and_scoring_at_once_both_come_back(hf: Any) -> None:
    async def run() -> tuple[str, list[tuple[float, bool]]]:
        made, scores = await asyncio.gather(
            hf.generate(user("Say hello."), Sampling(max_tokens=8)),
            hf.loglikelihood("One two", [" three", ""]),
        )
        return made.text, scores

    text, scores = asyncio.run(run())
    assert text and scores[0][0] < 0 and scores[1] == (0.0, True)


# --- failures --------------------------------------------------------------------------------


def test_an_id_outside_the_vocabulary_fails_alone(hf: Any) -> None:
    for ids in ([-1], [10**9], []):
        with pytest.raises(EngineError, match="token ids from 0 to 49151"):
            say(hf, ids)


def test_a_failure_reaches_the_callers_and_the_engine_goes_on(
    hf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> None:
            raise RuntimeError("CUDA out of memory. Tried to allocate 1 GiB")

        patch.setattr(hf_batch.Batch, "_forward", fail)
        with pytest.raises(EngineError, match=r"lower parallelism\.requests"):
            say(hf, user("x"))
        with pytest.raises(EngineError, match="out of memory"):
            patch.setattr(hf_score, "score", fail)
            asyncio.run(hf.loglikelihood("a", [" b"]))
    assert say(hf, user("x")).text


def test_weights_that_cannot_be_loaded_name_the_folder(card: Model, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "no-such-type"}')
    (tmp_path / "model.safetensors").write_bytes(b"12345678")
    with pytest.raises(EngineError, match="transformers could not load"):
        open_engine(dataclasses.replace(card, path=str(tmp_path)))
    with pytest.raises(UsageError, match=r"unknown dtype 'float31', did you mean .*float32"):
        open_engine(card, dtype="float31")


# --- adapters and dtypes ---------------------------------------------------------------------


def test_an_adapter_changes_output_and_fingerprint(
    hf: Any, card: Model, safetensors: Path, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install checkrail[hf]")
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(safetensors, dtype=torch.float32)
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    wrapped = peft.get_peft_model(base, config)
    wrapped.save_pretrained(tmp_path / "lora")
    tuned = open_engine(dataclasses.replace(card, adapter=str(tmp_path / "lora")), device="cpu")
    ids = tuned.render(user("What is the capital of France?"), None)
    made = say(tuned, ids, 4)
    with torch.inference_mode():
        table = wrapped(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
    assert made.logprobs and made.token_ids
    assert made.logprobs[0] == pytest.approx(float(table[made.token_ids[0]]), abs=1e-2)
    assert made.logprobs[0] != pytest.approx((say(hf, ids, 1).logprobs or (0,))[0], abs=1e-2)
    assert tuned.fingerprint != hf.fingerprint
    tuned.close()


def test_the_dtype_is_part_of_the_fingerprint(hf: Any, card: Model) -> None:
    half = open_engine(dataclasses.replace(card, flags={"dtype": "bfloat16"}), device="cpu")
    assert say(half, [*half.render(user("Hi"), None)], 3).completion_tokens == 3
    assert half.fingerprint != hf.fingerprint
    half.close()


# --- parts -----------------------------------------------------------------------------------


def row(size: int) -> hf_batch.Row:
    return hf_batch.Row([1] * size, Sampling(), 1, "length", Future())


@given(st.lists(st.integers(1, 3000), max_size=40), st.integers(1, 4000))
def test_groups_hold_every_row_once_and_little_padding(sizes: list[int], budget: int) -> None:
    made = hf_batch.groups([row(size) for size in sizes], budget)
    assert sorted(len(r.prompt) for group in made for r in group) == sorted(sizes)
    for group in made:
        longest = max(len(r.prompt) for r in group)
        assert len(group) == 1 or longest * len(group) <= budget
        assert longest <= 1.25 * min(len(r.prompt) for r in group) + 16


def nucleus(logits: list[float], sampling: Sampling) -> list[float]:
    """The distribution by the definition, token by token."""
    weight = [math.exp(value / sampling.temperature) for value in logits]
    order = sorted(range(len(weight)), key=lambda i: -weight[i])
    if sampling.top_k:
        order = order[: sampling.top_k]
    total = sum(weight[i] for i in order)
    kept, mass = [], 0.0
    for i in order:
        if mass >= sampling.top_p and kept:
            break
        kept.append(i)
        mass += weight[i] / total
    whole = sum(weight[i] for i in kept)
    return [weight[i] / whole if i in kept else 0.0 for i in range(len(weight))]


@settings(max_examples=40)
@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=12, unique=True),
    st.sampled_from([0.3, 1.0, 1.7]),
    st.sampled_from([0.1, 0.55, 0.93, 1.0]),
    st.sampled_from([0, 1, 3, 50]),
)
def test_sampling_follows_the_definition(
    tenths: list[int], temperature: float, top_p: float, top_k: int
) -> None:
    logits = [value / 10 for value in tenths]
    sampling = Sampling(temperature, top_p, top_k)
    expected = nucleus(logits, sampling)
    draws = 400
    counts = [0] * len(logits)
    table = torch.tensor(logits)
    for i in range(draws):
        counts[hf_batch.sample(table, sampling, (i + 0.5) / draws)] += 1
    for count, share in zip(counts, expected, strict=True):
        assert count / draws == pytest.approx(share, abs=2 / draws + 1e-4)


def test_a_nucleus_wider_than_the_first_candidates_is_still_whole() -> None:
    flat = torch.zeros(5000)
    drawn = {hf_batch.sample(flat, Sampling(1.0, top_p=0.99), (i + 0.5) / 50) for i in range(50)}
    assert len(drawn) == 50


def test_models_with_sliding_windows_run_one_request_at_a_time() -> None:
    from transformers import LlamaConfig, MistralConfig

    class Network:
        def __init__(self, config: Any) -> None:
            self.config = config

    assert hf_batch.can_batch(Network(LlamaConfig(num_hidden_layers=2)))
    assert not hf_batch.can_batch(Network(MistralConfig(num_hidden_layers=2, sliding_window=8)))


def test_a_tiny_model_with_a_sliding_window_answers_every_request(
    card: Model, safetensors: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer, MistralConfig, MistralForCausalLM

    torch.manual_seed(1)
    config = MistralConfig(
        vocab_size=49152, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, sliding_window=8,
        max_position_embeddings=256,
    )  # fmt: skip
    network = MistralForCausalLM(config)
    network.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(safetensors).save_pretrained(tmp_path)
    engine = open_engine(dataclasses.replace(card, path=str(tmp_path)), device="cpu")
    ids = [[5, 6, 7] * n for n in (2, 5, 9)]

    async def run() -> list[tuple[int, ...] | None]:
        made = await asyncio.gather(*(engine.generate(i, Sampling(max_tokens=12)) for i in ids))
        return [c.token_ids for c in made]

    for prompt, said in zip(ids, asyncio.run(run()), strict=True):
        stock = network.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)
        assert list(said or ()) == stock[0, len(prompt) :].tolist()
    assert engine.context_length == 256
    engine.close()
