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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import paths
from harness.errors import CheckrailError, UsageError, nearest

EXIT_CODES = """exit codes
  0 pass   1 crash   2 usage or configuration   3 incomplete (the same command resumes)
  10 regressed   11 inconclusive where the profile fails on it   12 not comparable
  13 no baseline where the profile demands one"""


def _key(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass
class Where:
    """Folders, the same for every verb."""

    out: str = _key(str(paths.RUNS), "folder of runs")
    baselines: str = _key(str(paths.BASELINES), "folder of model cards, baselines and gates")


@dataclass
class Gate(Where):
    """What a comparison needs."""

    baseline: str = _key("", "name of a frozen baseline or run (default: parent, else own)")
    vary: str = _key("weights", "what may differ: weights, policy, retriever, sampling, ...")
    profile: str = _key("pr", "pr: inconclusive warns; release: inconclusive fails")
    gate: str = _key("", "where to write gate.json (default: OUT/gate.json)")


@dataclass
class EvalArgs(Gate):
    """Run an evaluation, write the leaderboards, check against the baseline."""

    model: str = _key("", "model card, or several with commas (default: the embedded demo)")
    tasks: str = _key("", "tasks or groups, with commas (default: the card's)")
    limit: int | None = _key(None, "docs a task: a nested seeded sample")
    repeats: int | None = _key(None, "samples a doc")
    seed: int = _key(0, "seed of the run")
    policy: str = _key("", "how to play a doc (default: the task's)")
    policy_options: dict[str, Any] = field(
        default_factory=dict[str, Any],
        metadata={"help": "settings of the policy: policy_options.KEY=VALUE"},
    )
    retriever: str = _key("", "where passages come from (default: the task's)")
    retriever_options: dict[str, Any] = field(
        default_factory=dict[str, Any],
        metadata={"help": "settings of the retriever: retriever_options.KEY=VALUE"},
    )
    task_options: dict[str, Any] = field(
        default_factory=dict[str, Any],
        metadata={"help": "settings of the tasks: task_options.subjects=Law,Math"},
    )
    engine: str = _key("", "engine, instead of the card's")
    path: str = _key("", "weights, instead of the card's")
    adapter: str = _key("", "LoRA folder, instead of the card's")
    endpoint: str = _key("", "OpenAI-compatible server instead of weights: http://HOST:PORT/v1")
    served: str = _key("", "the server's name for the model (default: the one that it serves)")
    data: str = _key("", f"root of outside data sets (default: ${paths.DATA_VARIABLE})")
    window: int | None = _key(None, "rollouts in flight")
    temperature: float | None = _key(None, "over the protocol; marks the row off protocol")
    top_p: float | None = _key(None, "likewise")
    top_k: int | None = _key(None, "likewise")
    max_tokens: int | None = _key(None, "likewise")
    thinking: bool | None = _key(None, "likewise")
    language: str = _key("", "also measure language consistency: ko, en, zh, ja, prompt")
    judge: str = _key("", "deterministic, or the card of an LLM judge, or both: the first decides")
    judge_endpoint: str = _key("", "OpenAI-compatible server of the LLM judge")
    judge_served: str = _key("", "that server's name for the judge")
    judge_prompt: str = _key("", "railway, railway_spans, acc_l (default: the task's)")
    unsafe_code: bool = _key(False, "run programs of the model without a sandbox")
    fresh: bool = _key(False, "start over; the old run is kept beside the new one")
    boards: str = _key(str(paths.LEADERBOARDS), "folder of leaderboards")


@dataclass
class PlanArgs(EvalArgs):
    """Say what an evaluation will take and what its gate can decide, before it runs."""

    calibrate: bool | None = _key(
        None, "load the engine and measure it (default: weights under 2 GiB, never run here)"
    )


@dataclass
class ServeArgs:
    """Serve a retriever over HTTP, as Search-R1, veRL and FlashRAG clients ask."""

    corpus: str = _key("", "passages: JSON lines or TSV")
    retriever: str = _key("bm25", "what answers")
    retriever_options: dict[str, Any] = field(
        default_factory=dict[str, Any],
        metadata={"help": "settings of the retriever: retriever_options.KEY=VALUE"},
    )
    host: str = _key("127.0.0.1", "another address than loopback needs a key")
    port: int = _key(8100, "0 takes a free one")
    key_env: str = _key("", "environment variable with the key that clients have to send")
    top_k: int = _key(5, "passages where a request does not say")


@dataclass
class CompareArgs(Gate):
    """Compare two runs from stored records: no model is loaded."""

    model: str = _key("", "model name (its newest run), run id, or run folder")
    tasks: str = _key("", "only these tasks")
    budget: int | None = _key(None, "new tokens a sample may take on either side; more: no answer")


@dataclass
class FreezeArgs(Where):
    """Freeze a finished run as a baseline."""

    run: str = _key("", "run id, run folder, or model name (its newest run)")
    as_: str = _key("", "name of the baseline: baselines/NAME/")
    tasks: str = _key("", "only these tasks")
    texts: bool = _key(True, "false: hashes of the outputs, not the outputs")


@dataclass
class RescoreArgs(Where):
    """Score and judge stored records again; no model is loaded, no raw output is lost."""

    run: str = _key("", "run id or run folder; or")
    model: str = _key("", "model name: its newest run")
    tasks: str = _key("", "only these tasks")
    judge: str = _key(
        "again", "again: judges that are code; keep: none; or the card of an LLM judge, as for eval"
    )
    judge_endpoint: str = _key("", "OpenAI-compatible server of the LLM judge")
    judge_served: str = _key("", "that server's name for the judge")
    judge_prompt: str = _key("", "railway, railway_spans, acc_l (default: the task's)")
    fresh: bool = _key(False, "ask an LLM judge again even where its verdict is stored")


@dataclass
class LabelArgs(Where):
    """Label a random sample of outputs, blind to the model, and correct the figures by it."""

    run: str = _key("", "run id, run folder or model name, or several with commas")
    tasks: str = _key("", "one task of the runs")
    metric: str = _key("", "what to label (default: answer_accuracy, acc_l, or the main metric)")
    n: int = _key(150, "docs to draw; of each the outputs of all runs are labelled")
    seed: int = _key(0, "of the draw")
    name: str = _key("", "of the sample: OUT/labels/NAME.jsonl (default: by what is asked for)")
    labeller: str = _key("", "who labels; kept with each label")
    report: bool = _key(False, "ask nothing: correct the figures by the labels that are there")


@dataclass
class ImportArgs(Where):
    """Import predictions that were made elsewhere into a run; no model is loaded."""

    file: str = _key("", "JSONL with id and prediction, or lm-eval's samples_TASK_*.jsonl")
    task: str = _key("", "the task that was asked: its docs, targets and scorer")
    model: str = _key("", "what to call the model that was asked")
    id: str = _key("id", "field of the doc's id")
    answer: str = _key("prediction", "field of the text, or of a list of texts (repeats)")
    partial: bool = _key(False, "allow docs without a prediction: the run is then incomplete")
    data: str = _key("", f"root of outside data sets (default: ${paths.DATA_VARIABLE})")


@dataclass
class SelectArgs(Where):
    """Write training sets by difficulty: rollouts of a run to the first right answer."""

    run: str = _key("", "run id, run folder, or model name (its newest run)")
    tasks: str = _key("", "one task of the run")
    metric: str = _key("", "metric that says right (default: the task's main one)")
    right: float = _key(1.0, "least value that counts as right")
    to: str = _key("", "folder for easy, medium, difficult, unanswered, unfinished.jsonl")


@dataclass
class BuildArgs:
    """Build a benchmark from a document: page chunks, questions, test and training sets."""

    document: str = _key("", "a .pdf, .txt, .md file, or .jsonl with a page a line")
    endpoint: str = _key("", "OpenAI-compatible server that writes the questions")
    served: str = _key("", "the server's name for the model (default: the one that it serves)")
    out: str = _key("", "folder of the benchmark; the same command resumes there")
    questions: int = _key(15, "questions a page")
    answers: str = _key("free", "free: the model picks them; spans: clauses of the page are given")
    form: str = _key("chat", "chat, or completion for base models")
    temperature: float = _key(0.5, "of the model")
    page_chars: int = _key(0, "characters a page of a text without form feeds")
    skip_empty: bool = _key(False, "leave out pages without text")
    split: str = _key("chunk", "chunk: test pages are not trained on; or question")
    sft: int = _key(100, "training questions for SFT; the rest is for RL")
    retriever: str = _key("bm25", "whose top 5 stand in the training rows")
    requests: int = _key(4, "pages asked for at once")
    timeout: float = _key(600.0, "seconds without a byte of a reply")
    seed: int = _key(0, "of the model and of the split")
    fresh: bool = _key(False, "drop what is stored there and start over")


@dataclass
class AnnotateArgs:
    """Cut chains of thought into substeps and reflections: training data for Bookmark."""

    file: str = _key("", "JSONL with question, reasoning, answer (and id)")
    endpoint: str = _key("", "OpenAI-compatible server of the annotator")
    served: str = _key("", "the server's name for the model (default: the one that it serves)")
    out: str = _key("", "folder of the rows; the same command resumes there")
    requests: int = _key(4, "chains asked for at once")
    max_tokens: int = _key(16384, "of a reply")


@dataclass
class RunsArgs(Where):
    """List the stored runs."""


@dataclass
class CheckArgs(Where):
    """Verify stored runs and frozen baselines: every record readable, nothing missing."""

    run: str = _key("", "one run (default: all)")
    export: str = _key("", "also write the run's records to this JSONL file")


@dataclass
class BoardArgs(Where):
    """Write the leaderboards again from stored records and baselines."""

    boards: str = _key(str(paths.LEADERBOARDS), "folder of leaderboards")
    figures: bool = _key(False, "also draw the figures: BOARDS/figures/*.svg and .png")


@dataclass
class TrainArgs(Where):
    """Make a checkpoint of a recipe, with its card; or report on what a run rewarded."""

    recipe: str = _key("", "recipe, or the path of one (recipes lists them)")
    model: str = _key("", "card to start from (default: the recipe's base)")
    path: str = _key("", "its weights, instead of the card's")
    adapter: str = _key("", "its LoRA folder, instead of the card's")
    name: str = _key("", "name of the new checkpoint (default: what the recipe makes)")
    data: str = _key("", f"root of outside data, or the recipe's file (${paths.DATA_VARIABLE})")
    judge: str = _key("", "card of the model that plays the oracle judge")
    backend: str = _key("", "trl: train here, whatever the recipe says")
    emit: str = _key("", "folder: write the configuration for LLaMA-Factory or veRL instead")
    limit_steps: int | None = _key(None, "steps of this call; the next one goes on")
    merge: bool = _key(False, "write whole weights instead of an adapter")
    contaminated: str = _key("", "allow: train even if the rows show many test questions")
    fresh: bool = _key(False, "start over; the old run is kept beside the new one")
    report: str = _key("", "a trained checkpoint: what its reward may be bought with")


@dataclass
class ListArgs(Where):
    """List what there is."""


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
