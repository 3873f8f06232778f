import threading
import time

import pytest

from harness.rollouts.driver import GIVE_UP_AFTER, Driver, Job, request_seed
from harness.rollouts.single_turn import single_turn
from harness.schema import (
    Completion,
    Doc,
    Embed,
    Generate,
    Message,
    PolicyConfig,
    RetrievalError,
    Retrieve,
    Rollout,
    Sampling,
)


class Engine:
    """Answers with the last message and the seed; counts what is in flight."""

    fingerprint, capabilities, context_length = "e", frozenset({"generate"}), 100

    def __init__(self, delay=0.0, fails=lambda text: False):
        self.delay, self.fails = delay, fails
        self.now = self.most = 0

    async def generate(self, prompt, sampling):
        import asyncio

        text = prompt[-1].content
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.delay if isinstance(self.delay, float) else self.delay(text))
        self.now -= 1
        if self.fails(text):
            raise RuntimeError("engine died")
        return Completion(f"{text}:{sampling.seed}", (1,), (2,), (-0.1,), "stop", None, 1, 1)


def jobs(n, policy=single_turn):
    for i in range(n):
        config = PolicyConfig((Message("user", f"q{i}"),), Sampling())
        yield Job("t", Doc(f"d{i}", f"q{i}", ("a",)), config, policy, "r")


def play(driver, work):
    done = []
    driver.run(work, lambda job, rollout: done.append(rollout))
    return done


def test_every_job_ends_exactly_once():
    done = play(Driver(Engine(), window=7), jobs(100))
    assert sorted(r.doc_id for r in done) == sorted(f"d{i}" for i in range(100))


def test_no_more_than_the_window_is_in_flight():
    engine = Engine(delay=0.002)
    play(Driver(engine, window=5), jobs(40))
    assert engine.most == 5


def test_a_failure_is_recorded_and_the_others_go_on():
    engine = Engine(fails=lambda text: text in ("q3", "q4"))
    done = play(Driver(engine, window=4), jobs(20))
    failed = [r for r in done if r.error]
    assert {r.doc_id for r in failed} == {"d3", "d4"}
    assert all(r.finish == "error" and "engine died" in r.error for r in failed)
    assert len(done) == 20


def test_a_dead_engine_is_given_up_on():
    driver = Driver(Engine(fails=lambda text: True), window=2)
    done = play(driver, jobs(500))
    assert "engine died" in driver.gave_up
    assert GIVE_UP_AFTER * 2 <= len(done) < 40


def test_seeds_depend_on_what_is_asked_and_not_on_when():
    first = {r.doc_id: r.answer for r in play(Driver(Engine(), window=1), jobs(20))}
    slow = Engine(delay=lambda text: 0.001 * (7 - int(text[1:]) % 7))
    again = {r.doc_id: r.answer for r in play(Driver(slow, window=9), jobs(20))}
    other = {r.doc_id: r.answer for r in play(Driver(Engine(), seed=1), jobs(20))}
    assert first == again
    assert all(first[k] != other[k] for k in first)
    assert len({request_seed(0, "t", "d", r, t) for r in range(9) for t in range(9)}) == 81


def test_a_slow_rollout_does_not_hold_up_the_rest():
    order = []
    engine = Engine(delay=lambda text: 0.2 if text == "q0" else 0.0)
    Driver(engine, window=2).run(jobs(30), lambda job, r: order.append(r.doc_id))
    assert order[-1] == "d0"


def test_an_error_while_storing_stops_the_run_and_is_raised():
    def full(job, rollout):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Driver(Engine(), window=3).run(jobs(50), full)


class Retriever:
    fingerprint = "r"

    def __init__(self):
        self.calls = []

    def retrieve(self, queries, k):
        assert threading.current_thread().name != "rollouts", "retrieval blocks the event loop"
        self.calls.append(len(queries))
        time.sleep(0.01)
        return [RetrievalError(q, "no") if "bad" in q else [] for q in queries]


def two_hops(doc, config):
    first = yield Retrieve((doc.question,), 3)
    second = yield Retrieve(("bad", doc.question), 3)
    return Rollout(doc.id, 0, (), f"{len(first)} {len(second)} {type(second[0]).__name__}")


def test_retrievals_that_arrive_together_are_answered_together():
    retriever = Retriever()
    done = play(Driver(None, retriever, window=16), jobs(16, two_hops))
    assert {r.answer for r in done} == {"1 2 RetrievalError"}
    assert len(retriever.calls) < 32
    assert sum(retriever.calls) == 48


def test_a_retriever_that_breaks_fails_its_rollouts_only():
    class Broken:
        fingerprint = "b"

        def retrieve(self, queries, k):
            raise ValueError("index gone")

    done = play(Driver(None, Broken(), window=4), jobs(4, two_hops))
    assert all("index gone" in r.error for r in done)


def test_a_policy_without_its_engine_says_so():
    def asks(doc, config):
        yield Generate(config.messages, config.sampling)

    done = play(Driver(None), jobs(1, asks))
    assert "no engine" in done[0].error


def test_what_is_asked_and_what_is_searched_are_embedded_apart():
    seen = []

    class Encoder:
        fingerprint = "e"
        dimension = 1

        def encode(self, texts, kind="passage"):
            seen.append((sorted(texts), kind))
            return [[float(len(text))] for text in texts]

    def embedding(doc, config):
        (one,) = yield Embed((doc.id,))
        (two,) = yield Embed((doc.id + "?",), "query")
        return Rollout(doc.id, 0, (), f"{one[0]} {two[0]}")

    rollouts = play(Driver(None, encoder=Encoder()), jobs(2, embedding))
    assert sorted(r.answer for r in rollouts) == ["2.0 3.0"] * 2
    assert sorted(seen) == [(["d0", "d1"], "passage"), (["d0?", "d1?"], "query")]
