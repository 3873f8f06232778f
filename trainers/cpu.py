"""What makes training bearable on a CPU; on a GPU it does nothing.

`benchmarks/train_steps.py` measures what it brings.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager, suppress
from unittest.mock import patch

import torch

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # glibc, malloc.h


@contextmanager
def fitted(dtype: str) -> Generator[None]:
    """Fit torch, TRL and the allocator to a CPU while a training runs.

    Matrix products are computed in bfloat16 where the recipe says so (weights and sums stay in
    float32): a CPU with AVX512-BF16 or AMX is several times faster by it, another computes in
    float32 as before. Positions without a label are left out of the head's logits, as TRL leaves
    them out on a GPU; the loss is the same. Freed memory is kept, until `release`, since a quarter
    of the time would go into clearing pages of logits that come and go.

    Args:
        dtype: `Hyper.dtype`.
    """
    if torch.cuda.is_available():
        yield
        return
    _keep_memory(keep=True)
    before = torch.get_float32_matmul_precision()
    if dtype == "bfloat16":
        torch.set_float32_matmul_precision("medium")
    try:
        with patch("trl.trainer.utils._use_triton", _yes):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
        _keep_memory(keep=False)
        release()


def _yes(device: torch.device) -> bool:
    del device
    return True


def release() -> None:
    """Give back memory that nothing uses: rows of changing lengths leave more and more holes."""
    if not torch.cuda.is_available():
        _libc("malloc_trim", 0)


def _keep_memory(*, keep: bool) -> None:
    _libc("mallopt", _M_MMAP_MAX, 0 if keep else 65_536)  # glibc's own values
    _libc("mallopt", _M_TRIM_THRESHOLD, 2**31 - 1 if keep else 128 * 1024)


def _libc(name: str, *arguments: int) -> None:
    with suppress(OSError, AttributeError):  # another C library: slower, not wrong
        getattr(ctypes.CDLL("libc.so.6"), name)(*arguments)
