"""Verbs and key=value arguments: `python -m harness VERB key=value ...`.

Nothing heavy is imported here: `--help` and the listings answer at once, and an unknown key,
model or task is refused before any model library is loaded.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import paths
from harness.arguments import (
    AnnotateArgs,
    BoardArgs,
    BuildArgs,
    CheckArgs,
    CompareArgs,
    EvalArgs,
    FreezeArgs,
    ImportArgs,
    LabelArgs,
    ListArgs,
    PlanArgs,
    RescoreArgs,
    RunsArgs,
    SelectArgs,
    ServeArgs,
    TrainArgs,
)
from harness.errors import CheckrailError, UsageError, nearest

EXIT_CODES = """exit codes
  0 pass   1 crash   2 usage or configuration   3 incomplete (the same command resumes)
  10 regressed   11 inconclusive where the profile fails on it   12 not comparable
  13 no baseline where the profile demands one"""


@dataclass(frozen=True, slots=True)
class Verb:
    """A command: its arguments and where its function is."""

    args: type
    function: str
    gated: bool = False


VERBS = {
    "eval": Verb(EvalArgs, "harness.commands:evaluate_command", gated=True),
    "plan": Verb(PlanArgs, "harness.plan:plan_command"),
    "serve": Verb(ServeArgs, "harness.serving:serve_command"),
    "compare": Verb(CompareArgs, "harness.commands:compare_command", gated=True),
    "freeze": Verb(FreezeArgs, "harness.commands:freeze_command"),
    "rescore": Verb(RescoreArgs, "harness.record_commands:rescore_command"),
    "label": Verb(LabelArgs, "harness.label_commands:label_command"),
    "import": Verb(ImportArgs, "harness.record_commands:import_command"),
    "select": Verb(SelectArgs, "harness.record_commands:select_command"),
    "build": Verb(BuildArgs, "harness.build_command:build_command"),
    "annotate": Verb(AnnotateArgs, "harness.record_commands:annotate_command"),
    "runs": Verb(RunsArgs, "harness.commands:runs_command"),
    "check": Verb(CheckArgs, "harness.commands:check_command"),
    "leaderboard": Verb(BoardArgs, "harness.commands:leaderboard_command"),
    "tasks": Verb(ListArgs, "harness.listings:tasks_command"),
    "models": Verb(ListArgs, "harness.listings:models_command"),
    "retrievers": Verb(ListArgs, "harness.listings:retrievers_command"),
    "encoders": Verb(ListArgs, "harness.listings:encoders_command"),
    "policies": Verb(ListArgs, "harness.listings:policies_command"),
    "train": Verb(TrainArgs, "harness.train_commands:train_command"),
    "recipes": Verb(ListArgs, "harness.train_commands:recipes_command"),
}

LISTINGS = {"tasks": "List the tasks.", "models": "List the model cards.",
            "retrievers": "List the retrievers.", "encoders": "List the encoders.",
            "policies": "List the policies.", "recipes": "List the training recipes."}  # fmt: skip


def usage() -> str:
    """The text of `--help`."""
    lines = ["usage: python -m harness VERB key=value ...   (or: nox -s VERB -- key=value ...)", ""]
    for name, verb in VERBS.items():
        lines.append(f"  {name:12} {_summary(name, verb)}")
    lines += [
        "",
        "python -m harness VERB --help lists the keys of a verb.",
        "python -m harness eval runs the embedded demo: a real 135M model, no data, no GPU.",
        "",
        EXIT_CODES,
    ]
    return "\n".join(lines)


def verb_usage(name: str) -> str:
    """The text of `VERB --help`."""
    verb = VERBS[name]
    lines = [f"usage: python -m harness {name} key=value ...", "", _summary(name, verb), ""]
    for f in dataclasses.fields(verb.args):
        default = f.default if f.default is not dataclasses.MISSING else ""
        shown = "" if default in ("", None, False) else f" [{default}]"
        lines.append(f"  {_shown(f.name) + '=':16} {f.metadata['help']}{shown}")
    if verb.gated:
        lines += ["", EXIT_CODES]
    return "\n".join(lines)


def _summary(name: str, verb: Verb) -> str:
    return LISTINGS.get(name) or str(verb.args.__doc__)


def _shown(field_name: str) -> str:
    return field_name.rstrip("_")


def parse(name: str, arguments: Sequence[str]) -> Any:
    """Parse key=value arguments of a verb into its dataclass.

    Raises:
        UsageError: Unknown verb or key (with the nearest names), or a value of the wrong type.
    """
    if name not in VERBS:
        raise UsageError(f"unknown verb '{name}': {nearest(name, VERBS)}")
    kind = VERBS[name].args
    names = {_shown(f.name): f.name for f in dataclasses.fields(kind)}
    given: dict[str, Any] = {}
    for argument in arguments:
        key, separator, value = argument.partition("=")
        if not separator:
            raise UsageError(f"'{argument}' is not key=value (see python -m harness {name} --help)")
        head, dot, rest = key.partition(".")
        if head not in names:
            raise UsageError(f"unknown key '{head}' of {name}: {nearest(head, names)}")
        if dot:
            given.setdefault(names[head], {})[rest] = _plain(value)
        else:
            given[names[head]] = value  # as text: a run id like 12e4 must stay what it is
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(kind), given))
    except (OmegaConfBaseException, ValueError) as error:
        first = str(error).splitlines()[0]
        where = getattr(error, "full_key", None)
        raise UsageError(f"bad value for '{_shown(str(where))}': {first}") from None


def _plain(value: str) -> Any:
    """A policy option: a number or true/false where it reads as one, else text."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def split(value: str) -> tuple[str, ...]:
    """Comma-separated names."""
    return tuple(part.strip() for part in value.split(",") if part.strip())


def one_line(text: str) -> str:
    """A message without line ends and control characters (names may be hostile)."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    name, rest = arguments[0], arguments[1:]
    if name in VERBS and any(a in ("-h", "--help") for a in rest):
        print(verb_usage(name))
        return 0
    gated = name in VERBS and VERBS[name].gated
    try:
        args = parse(name, rest)
        module, _, function = VERBS[name].function.partition(":")
        run: Callable[[Any], int] = getattr(importlib.import_module(module), function)
        return run(args)
    except CheckrailError as error:
        message = one_line(str(error))
        print(f"checkrail {name}: {message}", file=sys.stderr)
        if gated:
            _gate_of_failure(rest, error.exit_code, message)
        return error.exit_code
    except KeyboardInterrupt:
        print("\ninterrupted: what was finished is stored, the same command resumes",
              file=sys.stderr)  # fmt: skip
        if gated:
            _gate_of_failure(rest, 3, "interrupted")
        return 3
    except BrokenPipeError:
        return 0
    except BaseException:
        if gated:
            _gate_of_failure(rest, 1, "crashed")
        raise


def _gate_of_failure(arguments: Sequence[str], code: int, message: str) -> None:
    """Write gate.json for a command that failed: a stale pass must not be read as this one."""
    given = {key: value for key, _, value in (a.partition("=") for a in arguments)}
    path = Path(given.get("gate") or Path(given.get("out") or paths.RUNS) / "gate.json")
    body = {"exit_code": code, "error": message, "comparisons": []}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(body, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        print(f"cannot write {path}: {error.strerror}", file=sys.stderr)
