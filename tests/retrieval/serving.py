"""A real retrieval server in a thread, on a port of its own or a given one."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import uvicorn

from harness.retrieval.server import create_app


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serving(retriever, port=0, **options):
    """Serve until the block ends; gives the address."""
    app = create_app(retriever, **options)
    port = port or free_port()
    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
