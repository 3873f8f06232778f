"""What to do when vLLM fails, by what it says."""

from __future__ import annotations

_MEMORY = (
    "out of memory", "memory on node", "memory for the cache blocks", "KV cache is needed",
    "Free memory on", "can't allocate memory", "cannot allocate memory", "not enough memory",
    "exit code -9",
)  # fmt: skip
_NO_DEVICE = (
    "infer device type", "Device string must not be empty", "No CUDA GPUs", "NVIDIA driver",
    "CUDA driver", "libcuda", "number of available GPUs", "larger than the number of",
)  # fmt: skip


def advice(cause: str) -> str:
    """The next step for a cause in vLLM's (or torch's) words."""
    if any(text in cause for text in _MEMORY):
        return (
            "memory is short: lower context_length or parallelism.requests, change "
            "flags.gpu_memory_utilization, or spread the weights with parallelism.tensor"
        )
    if any(text in cause for text in _NO_DEVICE):
        return (
            "vLLM needs GPUs that it can see, parallelism.tensor of them: without, use "
            "engine=hf or engine=llamacpp, or an endpoint with engine=openai"
        )
    return "check the card's path and flags"
