"""Retrievers that are searched while a rollout plays, one a (retriever, corpus).

A task says in its metadata what there is to search:

    metadata:
      retriever: bm25      # which retriever, unless the command line names one
      corpus: NAME         # given to the function `corpus` of the task's own module

    def corpus(corpus: str, data: str | None = None, **_) -> harness.retrieval.Corpus: ...

The function stands beside the builder that the YAML names as `custom_dataset` and gets the same
settings. A function `gold` there (question -> ids of its passages) is what the oracle reads.
Opening reads the corpus for its fingerprint; the index is built at the first query.

`retriever_options.corpus=FILE` searches another corpus, which stays in its file
(harness/retrieval/passage_file.py). What the web or a server answers is kept in the run's folder;
`retriever=replay retriever_options.run=RUN` plays it again without a network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness import codec
from harness.errors import UsageError
from harness.retrieval import Corpus, journal, open_retriever
from harness.retrieval.journal import Recorded
from harness.retrieval.passage_file import open_corpus
from harness.retrieval.table import RECORDED, WITHOUT_CORPUS
from harness.runs import find_run
from harness.schema import Retriever
from harness.task_loader import LoadedTask

DEFAULT = "bm25"


class LiveRetrievers:
    """Opens what tasks search; tasks that share a corpus share the index.

    Args:
        name: Retriever for all tasks; "" leaves it to each.
        options: The retriever's own settings.
        settings: What the tasks' builders were given (data, ...).
        folder: Of the run, where answers from outside are recorded.
    """

    def __init__(
        self, name: str, options: Mapping[str, Any], settings: Mapping[str, Any], folder: Path
    ) -> None:
        self._name = name
        self._options = dict(options)
        self._settings = dict(settings)
        self._folder = folder
        self._opened: dict[str, Retriever] = {}

    def name(self, task: LoadedTask) -> str:
        """Name of the retriever that a task is searched with."""
        return self._name or str(task.metadata.get("retriever") or DEFAULT)

    def open(self, task: LoadedTask) -> Retriever:
        """The retriever of a task.

        Raises:
            UsageError: The task has no corpus, or the retriever does not exist.
            DataError: The corpus cannot be read.
        """
        name = self.name(task)
        given = {**task.metadata, **self._settings}
        own = [] if name in WITHOUT_CORPUS else [given.get("corpus"), _source(task)]
        asked = [task.name] if name == "oracle" else []  # gold passages are a task's own
        key = codec.sha([name, *own, *asked])
        if key not in self._opened:
            options = self._replayed() if name == "replay" else dict(self._options)
            file = options.pop("corpus", "") if name not in WITHOUT_CORPUS else ""
            if file:
                corpus = open_corpus(str(file))
            else:
                corpus = Corpus.of(()) if name in WITHOUT_CORPUS else _corpus(task, given)
            gold = _beside(task, "gold")(**given) if name == "oracle" else None
            retriever = open_retriever(name, corpus, gold, **options)
            if name in RECORDED:
                retriever = Recorded(retriever, self._folder / journal.NAME)
            self._opened[key] = retriever
        return self._opened[key]

    def _replayed(self) -> dict[str, Any]:
        options = dict(self._options)
        if "run" in options:
            run = find_run(str(options.pop("run")), self._folder.parent)
            options["path"] = run / journal.NAME
        return options


def _source(task: LoadedTask) -> str:
    return str(getattr(task.task.config.custom_dataset, "__module__", task.name))


def _beside(task: LoadedTask, function: str) -> Callable[..., Any]:
    """A function of the module of the task's builder."""
    names = getattr(task.task.config.custom_dataset, "__globals__", {})
    if function not in names:
        raise UsageError(
            f"task '{task.name}' has no {function} to search with: use another policy or "
            f"retriever, or write a function {function}() beside the task's builder"
        )
    return names[function]


def _corpus(task: LoadedTask, given: Mapping[str, Any]) -> Corpus:
    if not given.get("corpus"):
        raise UsageError(
            f"task '{task.name}' has no corpus to search: use another policy, or name a "
            f"'corpus' in its metadata"
        )
    return _beside(task, "corpus")(**given)
