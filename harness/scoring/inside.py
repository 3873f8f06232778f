"""What runs inside the sandbox: handed to a bare Python as text, so the standard library alone.

Two processes, each in a sandbox of its own, joined by two pipes:

    checker     runs the tests of the data set; its `candidate` sends each call as data
    candidate   runs the program under test; answers each call with data

Only the checker has the pipe on which a verdict is given, so a program can return wrong values
but can neither see an expected one nor declare itself right. Values travel as JSON with tags; an
object that is no plain data (`Opaque`) equals nothing, whatever its `__eq__` says.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

MAX_LINE = 16 * 1024 * 1024
"""Bytes of one call or answer."""

MAX_DEPTH = 200
"""Nesting of a value."""


class Opaque:
    """Stands for an object that cannot travel as data; equal only to itself."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def encode(value: Any, depth: int = 0) -> Any:
    """A value as JSON: scalars as they are, all else as a one-key tag.

    Subclasses travel as the builtin type whose equality they inherit (a Counter is a dict).

    Raises:
        ValueError: Nested deeper than `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return {"i": hex(int(value))}
    if isinstance(value, float):
        return {"f": float(value).hex()}
    if isinstance(value, complex):
        return {"c": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, str):
        return {"s": [ord(c) for c in value]} if _surrogates(value) else str(value)
    if isinstance(value, (bytes, bytearray)):
        return {"b": bytes(value).hex()}
    if isinstance(value, list):
        return [encode(v, depth + 1) for v in list(value)]
    if isinstance(value, tuple):
        return {"t": [encode(v, depth + 1) for v in tuple(value)]}
    if isinstance(value, (set, frozenset)):
        return {"e": [encode(v, depth + 1) for v in value]}
    if isinstance(value, dict):
        return {"d": [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in value.items()]}
    for module, name in (("decimal", "Decimal"), ("fractions", "Fraction")):
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(value, kind):
            return {"n": [name, str(value)]}
    return {"o": type(value).__name__[:80]}


def decode(data: Any) -> Any:
    """Inverse of `encode`; builds plain data only, whatever it is given.

    Raises:
        ValueError, TypeError, KeyError, RecursionError: It is not what `encode` writes.
    """
    if data is None or isinstance(data, (bool, str)):
        return data
    if isinstance(data, list):
        return [decode(v) for v in data]
    ((tag, body),) = data.items()
    if tag == "i":
        return int(body, 16)
    if tag == "f":
        return float.fromhex(body)
    if tag == "c":
        return complex(float.fromhex(body[0]), float.fromhex(body[1]))
    if tag == "s":
        return "".join(map(chr, body))
    if tag == "b":
        return bytes.fromhex(body)
    if tag == "t":
        return tuple(decode(v) for v in body)
    if tag == "e":
        return {decode(v) for v in body}
    if tag == "d":
        return {decode(k): decode(v) for k, v in body}
    if tag == "n":
        return _number(*body)
    if tag == "o":
        return Opaque(str(body))
    raise ValueError(f"unknown tag {tag!r}")


def _number(name: str, text: str) -> Any:
    import decimal
    import fractions

    if len(text) > 4000:
        raise ValueError("number too long")
    return {"Decimal": decimal.Decimal, "Fraction": fractions.Fraction}[name](text)


def _surrogates(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


class Ended(BaseException):
    """The candidate's process is gone, or what it sent is no answer."""


class Candidate:
    """The checker's stand-in for the function under test: a call is a line out and a line in."""

    def __init__(self, answers: Any, requests: Any) -> None:
        self._answers = answers
        self._requests = requests
        self.raised = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Ask the candidate; an exception there is raised here, as its builtin type."""
        self.ask({"args": encode(args), "kwargs": encode(kwargs)})
        answer = self.read()
        if "value" in answer:
            self.raised = ""
            try:
                return decode(answer["value"])
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError,
                    OverflowError, ArithmeticError) as error:  # fmt: skip
                raise Ended(f"unreadable answer ({type(error).__name__})") from None
        self.raised = str(answer.get("raise", "?"))[:200]
        import builtins

        kind = getattr(builtins, self.raised.partition(":")[0], None)
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            kind = RuntimeError
        try:
            error = kind(self.raised)
        except TypeError:  # UnicodeDecodeError and its like want five arguments
            error = RuntimeError(self.raised)
        raise error

    def ask(self, request: dict[str, Any]) -> None:
        """Send one line; a dead candidate shows at the next read."""
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        except OSError:
            pass

    def read(self) -> dict[str, Any]:
        """Read one line."""
        line = self._answers.readline(MAX_LINE)
        if not line.endswith(b"\n"):
            raise Ended("the process ended" if len(line) < MAX_LINE else "the answer is too long")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise Ended("the answer is not in the protocol")
        return answer


def check(job: dict[str, Any], candidate: Candidate) -> dict[str, Any]:
    """Run the tests of the data set against the candidate and say what came of it."""
    import random

    random.seed(0)  # some tests draw their cases
    sys.setrecursionlimit(10_000)
    try:
        ready = candidate.read()
        if "failed" in ready:
            return {"passed": False, "reason": str(ready["failed"]),
                    "detail": str(ready.get("detail", ""))[:200]}  # fmt: skip
        names: dict[str, Any] = {"__name__": "checker"}
        exec(compile(job["setup"], "<setup>", "exec"), names)
        names[job["entry"]] = candidate
        exec(compile(job["test"], "<test>", "exec"), names)
        if job["call"]:
            names[job["call"]](candidate)
    except Ended as error:
        return {"passed": False, "reason": "exited_early", "detail": str(error)}
    except MemoryError:
        return {"passed": False, "reason": "memory", "detail": "the answer fills the memory"}
    except BaseException as error:
        if candidate.raised:
            reason = "memory" if candidate.raised.startswith("MemoryError") else "runtime_error"
            return {"passed": False, "reason": reason, "detail": candidate.raised}
        return {"passed": False, "reason": "wrong_answer", "detail": type(error).__name__}
    return {"passed": True, "reason": "", "detail": ""}


def answer(job: dict[str, Any], requests: Any, answers: Any) -> None:
    """Run the program under test, then answer calls until there are no more."""
    write = answers.write

    def say(message: dict[str, Any]) -> None:
        write(json.dumps(message).encode() + b"\n")
        answers.flush()

    try:
        code = compile(job["source"], "<program>", "exec")
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
        return say({"failed": "syntax_error", "detail": f"{type(error).__name__}: {error}"[:200]})
    names: dict[str, Any] = {"__name__": "program"}
    try:
        exec(code, names)
        function = names.get(job["entry"])
    except MemoryError:
        return say({"failed": "memory"})
    except BaseException as error:
        return say({"failed": "runtime_error", "detail": _named(error)})
    if not callable(function):
        return say({"failed": "missing_function", "detail": job["entry"]})
    say({})
    for line in requests:
        request = json.loads(line)
        try:
            value = function(*decode(request["args"]), **decode(request["kwargs"]))
            message = {"value": encode(value)}
        except BaseException as error:
            message = {"raise": _named(error)}
        say(message)
    return None


def _named(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:200]
    except BaseException:
        return type(error).__name__[:200]


def limit(limits: dict[str, int]) -> None:
    """Lower this process's limits for good (soft and hard, core dumps off)."""
    limits = {"CORE": 0, **limits}
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        top = value + 1 if name == "CPU" else value  # SIGXCPU first, SIGKILL a second later
        top = top if hard == resource.RLIM_INFINITY else min(top, hard)
        resource.setrlimit(kind, (min(value, top), top))


def main(status: int) -> None:
    """Say that the sandbox stands, read the job from standard input, do it."""
    os.write(status, b"ready\n")
    with open(0, "rb", closefd=False) as stream:
        job = json.loads(stream.read())
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    limit(job["limits"])
    role = job["role"]
    if role == "check":
        with (
            os.fdopen(job["answers"], "rb") as answers,
            os.fdopen(job["requests"], "wb") as requests,
        ):
            verdict = check(job, Candidate(answers, requests))
        os.write(status, json.dumps(verdict).encode() + b"\n")
        os._exit(0)
    os.close(status)
    if role == "answer":
        with (
            os.fdopen(job["requests"], "rb") as requests,
            os.fdopen(job["answers"], "wb") as answers,
        ):
            answer(job, requests, answers)
        os._exit(0)
    exec(compile(job["source"], "<program>", "exec"), {"__name__": "__main__"})
