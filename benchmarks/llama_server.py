"""Serve a GGUF file, by a card's name or its path, through llama.cpp's OpenAI server, until Ctrl-C.

    python benchmarks/llama_server.py SmolLM2-135M slots=2 context=8192
    python benchmarks/llama_server.py DIR/gemma-3-270m-q4_k_m.gguf slots=2 context=1280
    python -m harness eval model=NAME endpoint=http://127.0.0.1:PORT/v1     # the printed address

Any free port of 127.0.0.1. For a larger model, llama.cpp's `llama-server` does the same.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from pathlib import Path

from harness.engines.llamacpp import LlamaCppEngine
from harness.models import load_model
from harness.paths import BASELINES
from harness.schema import Model


def main() -> None:
    name, *rest = sys.argv[1:] or ["SmolLM2-135M"]
    given = {key: int(value) for key, _, value in (a.partition("=") for a in rest)}
    file = Path(name)
    named = file.suffix == ".gguf"
    card = dataclasses.replace(
        Model(file.stem, "llamacpp", str(file)) if named else load_model(name, BASELINES),
        engine="llamacpp",
        context_length=given.get("context"),
        parallelism={"requests": given.get("slots", 2)},
        flags={},
    )
    engine = LlamaCppEngine(card)
    print(f"http://{engine.address}/v1", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        engine.close()


if __name__ == "__main__":
    main()
