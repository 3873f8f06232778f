"""Language of the labelled lines: the harness's rules beside two identifiers on their own.

    python benchmarks/language_id.py        # confusion tables, accuracy, time a line

The lines are tests/scoring/language_lines.tsv, halved by a hash: the rules were written with one
half in view. The identifiers alone have no "mixed" and see code and formulas, so they are shown
on the lines of one language only as well. lingua is optional: pip install lingua-language-detector.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.scoring.language import identify, strip  # noqa: E402  (after the path)

CODES = ("ko", "en", "zh", "ja")


def lines() -> list[tuple[str, str]]:
    text = (ROOT / "tests" / "scoring" / "language_lines.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t", 2) for line in text.splitlines()]
    return [(label, body.replace("\\n", "\n")) for label, _, body in rows]


def held_out(text: str) -> bool:
    raw = text.replace("\n", "\\n")
    return hashlib.sha256(raw.encode()).digest()[-1] % 2 == 1


def peers() -> dict[str, Callable[[str], str]]:
    import py3langid

    py3langid.set_languages([*CODES, "fr", "de", "es"])
    found: dict[str, Callable[[str], str]] = {
        "py3langid": lambda text: str(py3langid.classify(text)[0])
    }
    try:
        from lingua import Language, LanguageDetectorBuilder
    except ImportError:
        return found
    names = (Language.KOREAN, Language.ENGLISH, Language.CHINESE, Language.JAPANESE,
             Language.FRENCH, Language.GERMAN, Language.SPANISH)  # fmt: skip
    detector = LanguageDetectorBuilder.from_languages(*names).build()

    def lingua(text: str) -> str:
        code = detector.detect_language_of(text)
        return "none" if code is None else code.iso_code_639_1.name.lower()

    return {**found, "lingua": lingua}


def main() -> None:
    data = lines()
    for name, half in (("tuning", False), ("held out", True)):
        part = [(label, text) for label, text in data if held_out(text) is half]
        table = Counter((label, identify(text)) for label, text in part)
        labels = sorted({x for pair in table for x in pair})
        right = sum(table[x, x] for x in labels)
        print(f"\n{name}: {right} of {len(part)} = {right / len(part):.4f} (rows: label)")
        print(tabulate([[a, *(table[a, b] or "" for b in labels)] for a in labels], ["", *labels]))
    single = [(label, text) for label, text in data if label not in ("mixed", "none")]
    rows: list[list[object]] = []
    methods = {"harness": identify, **peers()}
    for name, call in list(methods.items()):
        if name != "harness":
            methods[f"{name} after strip"] = lambda text, call=call: call(strip(text))
    for name, call in methods.items():
        call(single[0][1])
        call("A first line of five words or more to load the models")
        start = time.perf_counter()
        right = sum(call(text) == label for label, text in single)
        spent = (time.perf_counter() - start) / len(single)
        everything = sum(call(text) == label for label, text in data)
        rows.append([name, f"{right / len(single):.4f}", f"{everything / len(data):.4f}",
                     f"{spent * 1e6:.0f}"])  # fmt: skip
    print()
    print(tabulate(rows, ["method", f"one language ({len(single)})", f"all ({len(data)})",
                          "us a line"], disable_numparse=True))  # fmt: skip


if __name__ == "__main__":
    main()
