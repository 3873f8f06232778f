"""The keys of every verb: one dataclass each, read by `harness/cli.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from harness import paths


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
