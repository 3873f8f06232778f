"""What a user may change about an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import paths
from harness.judges import OpenJudge


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may change about an evaluation.

    Attributes:
        tasks: Tasks or groups; empty takes the card's.
        policy: Replaces the task's policy; "" keeps it.
        policy_options: Settings of the policy, over the card's.
        retriever: Replaces the task's retriever; "" keeps it.
        retriever_options: Settings of the retriever.
        task_options: Given to the tasks' builders, over their YAML (`subjects`, `shots`, ...);
            marks the row off protocol.
        limit: Docs a task at most (nested seeded sample).
        repeats: Samples a doc; None takes the task's.
        seed: Of the run.
        sampling: Overrides of the task's protocol; marks the row off protocol.
        window: Rollouts in flight; None takes the card's, or 16.
        data: Root of outside data sets; None takes CHECKRAIL_DATA.
        out: Folder of runs.
        tasks_folder: Folder of tasks.
        language: Also measure language consistency: ko, en, zh, ja, or prompt.
        judge: An LLM judge (`harness.judges.open_judge`); None leaves it to the scorer's own.
        unsafe_code: Run programs that a model wrote without a sandbox where there is none.
        fresh: Start over, keeping the old run beside the new one.
    """

    tasks: tuple[str, ...] = ()
    policy: str = ""
    policy_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    retriever: str = ""
    retriever_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    task_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limit: int | None = None
    repeats: int | None = None
    seed: int = 0
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])
    window: int | None = None
    data: Path | None = None
    out: Path = paths.RUNS
    tasks_folder: Path = paths.TASKS
    language: str = ""
    judge: OpenJudge | None = None
    unsafe_code: bool = False
    fresh: bool = False
