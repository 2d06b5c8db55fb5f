"""Rounds: never two at once, failures rest, a held lock is waited for, and a wish to stop is heard."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import LedgerError, PolicyError, SourceError
from router.ingest.watch import MOST_REST_S, Seen, Stop, Stopped, rest_s, run_rounds
from router.ingest.workshop import IndexReport, SourceReport


@pytest.fixture
def stop() -> Iterator[Stop]:
    made = Stop()
    yield made
    made.close()


def report(*sources: SourceReport) -> IndexReport:
    return IndexReport("run", False, 0.0, sources)


def failing(name: str) -> SourceReport:
    return SourceReport(name, "t", error=SourceError("source_missing", "it is not there"))


@given(st.floats(0.2, 86_400), st.integers(1, 10_000))
def test_rest_is_bounded(every_s: float, failures: int) -> None:
    assert every_s <= rest_s(every_s, failures) <= max(every_s, MOST_REST_S)
    assert rest_s(every_s, failures) <= rest_s(every_s, failures + 1)


def test_a_failing_source_rests_and_comes_back(stop: Stop) -> None:
    asked: list[frozenset[str]] = []
    broken = [True]

    def look(resting: frozenset[str]) -> Seen:
        asked.append(resting)
        its = [] if "bad" in resting else [failing("bad") if broken[0] else SourceReport("bad", "t")]
        return Seen(report(SourceReport("good", "t", indexed=1), *its))

    rounds = run_rounds(look, every_s=0.05, stop=stop)
    first = next(rounds)
    assert (first.number, set(first.failed), first.changed) == (1, {"bad"}, True)
    second = next(rounds)
    assert set(second.resting) == {"bad"}
    assert second.failed == {}
    while "bad" in second.resting:
        second = next(rounds)
    assert set(second.failed) == {"bad"}
    assert [len(resting) for resting in asked[:2]] == [0, 1]
    broken[0] = False
    while not asked[-1] or "bad" in asked[-1]:
        third = next(rounds)
        if not third.resting:
            break
    assert third.failed == {}
    assert next(rounds).resting == {}


@pytest.mark.parametrize("error", [PolicyError("policy_broken", "x"), LedgerError("ledger_full", "x"), SourceError("store", "x")])
def test_a_failing_round_is_tried_again(stop: Stop, error: Exception) -> None:
    calls: list[float] = []

    def look(_: frozenset[str]) -> Seen:
        calls.append(time.monotonic())
        if len(calls) < 3:
            raise error
        return Seen(report())

    rounds = run_rounds(look, every_s=0.05, stop=stop)
    told = [next(rounds) for _ in range(4)]
    assert [one.error for one in told] == [error, error, None, None]
    assert calls[1] - calls[0] >= 0.1
    assert calls[2] - calls[1] >= 0.2
    assert 0.05 <= calls[3] - calls[2] < 0.1 + 0.5


def test_a_fault_of_ours_is_not_swallowed(stop: Stop) -> None:
    def look(_: frozenset[str]) -> Seen:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        next(run_rounds(look, every_s=0.05, stop=stop))


def test_a_held_lock_is_told_once_and_waited_for(stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.ingest.watch.BUSY_S", 0.02)
    calls = [0]

    def look(_: frozenset[str]) -> Seen:
        calls[0] += 1
        if calls[0] < 5:
            raise SourceError("index_busy", "another run is changing this index", retryable=True)
        return Seen(report())

    rounds = run_rounds(look, every_s=60, stop=stop)
    busy, done = next(rounds), next(rounds)
    assert busy.error is not None
    assert busy.error.code == "index_busy"
    assert (done.number, done.error, calls[0]) == (1, None, 5)


def test_stopping_ends_waiting_and_working(stop: Stop) -> None:
    rounds = run_rounds(lambda _: Seen(report()), every_s=60, stop=stop)
    next(rounds)
    timer = threading.Timer(0.1, lambda: stop.ask(signal.SIGTERM))
    timer.start()
    began = time.monotonic()
    assert list(rounds) == []
    assert time.monotonic() - began < 5
    with pytest.raises(Stopped):
        stop.check()
    with pytest.raises(KeyboardInterrupt):
        stop.ask(signal.SIGTERM)

    def look(_: frozenset[str]) -> Seen:
        stop.check()
        raise AssertionError

    assert list(run_rounds(look, every_s=60, stop=stop)) == []


def test_a_signal_wakes_who_waits(stop: Stop) -> None:
    before = signal.signal(signal.SIGUSR1, stop.ask)
    try:
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        began = time.monotonic()
        assert stop.wait(30)
        assert time.monotonic() - began < 5
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_process_with_many_open_files_can_wait() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_030)]
    try:
        stop = Stop()
        assert not stop.wait(0.01)
        stop.ask(signal.SIGTERM)
        assert stop.wait(5.0)
        stop.close()
    finally:
        for one in held:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
