"""Training on a CPU is made faster, not different."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="trl is not installed: nox -s tests_train")
torch = pytest.importorskip("torch")
cpu = pytest.importorskip("trainers.cpu")
fitted = cpu.fitted

if torch.cuda.is_available():
    pytest.skip("a GPU is at hand, where nothing is changed", allow_module_level=True)


def loss_and_gradients():
    """TRL's own loss over two rows, most of whose positions have no label."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2,
    )  # fmt: skip
    network = LlamaForCausalLM(config)
    add_fused_lm_head(network)
    ids = torch.randint(0, 64, (2, 12))
    labels = ids.clone()
    labels[:, :8] = -100
    loss = network(input_ids=ids, labels=labels, fused_lm_head=True).loss
    loss.backward()
    return loss.detach(), [p.grad for p in network.parameters()]


def test_positions_without_a_label_change_neither_loss_nor_gradients():
    plain, plain_gradients = loss_and_gradients()
    with fitted("float32"):
        loss, gradients = loss_and_gradients()
    torch.testing.assert_close(loss, plain)
    for ours, theirs in zip(gradients, plain_gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_head_is_asked_about_labelled_positions_alone(monkeypatch):
    import trl.trainer.utils as utils

    asked = []
    real = utils._ChunkedLogProbFunction.apply
    monkeypatch.setattr(
        utils._ChunkedLogProbFunction, "apply", lambda h, *a: asked.append(len(h)) or real(h, *a)
    )
    with fitted("float32"):
        loss_and_gradients()
    assert asked == [2 * 4]


@pytest.mark.parametrize("dtype, inside", [("bfloat16", "medium"), ("float32", "highest")])
def test_precision_is_the_recipes_and_is_put_back_after_a_failure(dtype, inside):
    before = torch.get_float32_matmul_precision()
    assert before == "highest"
    with pytest.raises(RuntimeError), fitted(dtype):
        assert torch.get_float32_matmul_precision() == inside
        raise RuntimeError
    assert torch.get_float32_matmul_precision() == before


def resident():
    """MiB of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_freed_memory_is_kept_while_training_and_given_back_on_release():
    with fitted("float32"):
        before = resident()
        held = [torch.ones(2**20) for _ in range(100)]  # 4 MiB each
        pin = torch.ones(64)  # above them on the heap, so that its end cannot sink
        del held
        assert resident() - before > 300
        cpu.release()
        assert resident() - before < 100
    del pin
