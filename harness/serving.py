"""The verb `serve`: a retriever over HTTP (harness/retrieval/server.py)."""

from __future__ import annotations

import os
import socket

from harness.arguments import ServeArgs
from harness.errors import RetrieverError, UsageError, missing_dependency
from harness.retrieval import Corpus, open_retriever
from harness.retrieval.passage_file import open_corpus
from harness.retrieval.server import check_bind, create_app
from harness.retrieval.table import WITHOUT_CORPUS
from harness.schema import RetrievalError


def serve_command(args: ServeArgs) -> int:
    """Serve until interrupted; the index is built or opened before the first request."""
    try:
        import uvicorn
    except ImportError as error:
        raise missing_dependency("uvicorn", "serve", error) from None
    key = os.environ.get(args.key_env, "").strip() if args.key_env else ""
    if args.key_env and not key:
        raise UsageError(f"key_env={args.key_env}: not set in the environment")
    check_bind(args.host, key)
    if (args.retriever in WITHOUT_CORPUS) == bool(args.corpus):
        wanted = "searches something else than" if args.corpus else "needs"
        raise UsageError(f"retriever '{args.retriever}' {wanted} corpus=FILE")
    if args.top_k < 1:
        raise UsageError(f"top_k={args.top_k}: must be 1 or more")
    corpus = open_corpus(args.corpus) if args.corpus else Corpus.of(())
    retriever = open_retriever(args.retriever, corpus, **args.retriever_options)
    listening = _bind(args.host, args.port)
    (first,) = retriever.retrieve(["warm up"], 1)
    if isinstance(first, RetrievalError):
        raise RetrieverError(f"nothing to serve: {first.message}")
    host, port = listening.getsockname()[:2]
    where = f"[{host}]" if ":" in host else host
    keyed = "with a key" if key else "this machine only, without a key"
    print(f"serving {retriever.fingerprint} at http://{where}:{port} ({keyed})", flush=True)
    app = create_app(retriever, key=key, default_k=args.top_k)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
    return 0


def _bind(host: str, port: int) -> socket.socket:
    """A listening socket, so that a port that is taken is said before the index is opened."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen on {host}:{port} ({error}); choose port=") from None
    return listening
