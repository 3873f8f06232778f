"""Are the names, keys and weights of an evaluation there? Asked before anything is installed.

    python -m harness.preflight eval model=NAME ...

`nox -s eval` asks this before it installs an engine of several gigabytes, so that a missing
checkpoint is one line at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from harness.cli import one_line, parse
from harness.commands import models_of
from harness.engines.weights import resolve
from harness.errors import CheckrailError


def main(arguments: Sequence[str]) -> int:
    """Exit code of the check: 0, or that of the first mistake, which is printed.

    Args:
        arguments: The verb (eval or plan) and its key=value arguments.
    """
    verb, *rest = arguments
    try:
        for model in models_of(parse(verb, rest)):
            if model.engine not in ("none", "scripted", "openai"):
                resolve(model)
    except CheckrailError as error:
        print(f"checkrail {verb}: {one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
