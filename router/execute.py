"""Runs the steps of a plan under one deadline. Request threads and deadlines live here and nowhere else.

INVARIANT: a stage that fails or is late is left out and named in `degraded`; the filter of what remains is the same
(tests/unit/test_ask.py::test_embedder_fails, ::test_embedder_hangs).
INVARIANT: a call that hangs keeps neither its question nor the process (tests/unit/test_execute.py::test_hung_call_does_not_keep_the_process).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

from router.domain import Degraded, Embedded, Found, Leg, Purpose, Search, Stage, Steps
from router.errors import SourceError
from router.ports import DocStore, Embedder

T = TypeVar("T")

THREADS = 16


class Watch:
    """The deadline of one question and the stages measured so far."""

    def __init__(self, deadline_s: float) -> None:
        self._start = time.perf_counter_ns()
        self._deadline_s = deadline_s
        self.stages: list[Stage] = []

    def beside(self) -> Watch:
        """The same deadline with stages of its own, for what runs at the same time."""
        other = Watch(self._deadline_s)
        other._start = self._start
        return other

    @property
    def total_us(self) -> int:
        return (time.perf_counter_ns() - self._start) // 1000

    def left_s(self) -> float:
        """Seconds left, never below a millisecond: what is late fails by its own deadline, not by a negative one."""
        return max(0.001, self._deadline_s - self.total_us / 1e6)

    def stage(self, name: str, run: Callable[[], T]) -> T:
        """Measure one stage; one that raises is measured too."""
        start = time.perf_counter_ns()
        try:
            return run()
        finally:
            self.stages.append(Stage(name, (time.perf_counter_ns() - start) // 1000))

    def note(self, *, count_in: int | None = None, count_out: int | None = None, note: str = "") -> None:
        """Add counts to the latest stage."""
        last = self.stages[-1]
        self.stages[-1] = Stage(last.name, last.us, count_in, count_out, note)


class Threads:
    """The bounded request threads of one router. A call that outlives its deadline keeps its thread until it ends.

    They are daemons: a pool of the standard library is joined at exit, and a call that hangs would keep the process.
    """

    def __init__(self, count: int = THREADS) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._count, self._started = count, 0

    def within(self, deadline_s: float, run: Callable[[], T]) -> T:
        """The result of `run`, or `SourceError("deadline")` after `deadline_s`."""
        return self.wait(deadline_s, self.start(run))

    def start(self, run: Callable[[], T]) -> Future[T]:
        """`run` on a thread, beside whoever called."""
        future: Future[T] = Future()
        self._calls.put(lambda: _fulfil(future, run))
        self._start_when_busy()
        return future

    def wait(self, deadline_s: float, future: Future[T]) -> T:
        """Its result, or `SourceError("deadline")` after `deadline_s`."""
        try:
            return future.result(deadline_s)
        except LateError:
            if future.done() and not future.cancelled():
                raise  # the call itself ran into a time-out of its own
            future.cancel()
            raise SourceError(
                "deadline", "the stage took longer than its share of the deadline", "raise the deadline", retryable=True
            ) from None

    def _start_when_busy(self) -> None:
        with self._lock:
            if self._idle.acquire(blocking=False) or self._started == self._count:
                return
            self._started += 1
            threading.Thread(target=self._serve, name=f"pointsman_{self._started}", daemon=True).start()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # or the last answer would live until the next question
            self._idle.release()

    def close(self) -> None:
        """Threads end when they are done; nobody waits for them."""
        with self._lock:
            for _ in range(self._started):
                self._calls.put(None)


def open_door_threads(count: int) -> ThreadPoolExecutor:
    """The threads of a door for many at once: each carries one question through the line. Joined when the door closes."""
    return ThreadPoolExecutor(count, thread_name_prefix="pointsman_door")


def _fulfil(future: Future[T], run: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(run())
    except BaseException as error:  # noqa: BLE001 (it is the caller's, whatever it is)
        future.set_exception(error)


@dataclass(frozen=True, slots=True)
class Embedding:
    """The question under the embedder: `begin` puts a thread to it, `result` waits for that; each does it once. Whoever began waits
    whatever happens meanwhile: a process that ends beside a native thread is aborted."""

    begin: Callable[[], object]
    result: Callable[[], Embedded | None]


@dataclass(frozen=True, slots=True)
class Executed:
    """`legs` are those that ran; `question` is None where the dense one is off or the question could not be read by the model."""

    found: Found
    question: Embedded | None
    legs: tuple[Leg, ...]


def run(
    steps: Steps, text: str, embedded: Embedding | None, *, tenant: str, store: DocStore, model_id: str, watch: Watch
) -> Executed:
    """Search the legs of `steps`, the dense one with the embedded question. Raises `SourceError` only when no leg is left.

    Where nothing is granted the stages are the same, so that the answer has the shape of nothing found; the store does no I/O.
    """
    lexical = "lexical" in steps.legs
    search = Search(
        tenant=tenant,
        filter=steps.searched,
        text=text if lexical else None,
        vector=None,
        model_id=model_id,
        limit=steps.candidates,
        deadline_s=watch.left_s(),
        plain=steps.plain,
        entities=steps.entities,
    )
    foreseen = _foresee(search, embedded, store=store, watch=watch) if embedded is not None and "dense" in steps.legs else None
    question = None if embedded is None else embedded.result()
    vector = question.dense if question is not None and "dense" in steps.legs else None
    dense = vector is not None
    if not dense and not lexical:
        raise SourceError("no_leg", "the question could not be embedded and the lexical leg is off", "try again", retryable=True)
    search = replace(search, vector=vector, foreseen=foreseen, deadline_s=watch.left_s())
    found = watch.stage("search", lambda: store.search(search))
    watch.note(count_in=found.admitted, count_out=len(found.candidates), note=found.proof)
    failed = {leg for leg, _ in found.failed}
    ran = tuple(leg for leg in steps.legs if (leg == "lexical" or dense) and leg not in failed)
    return Executed(found, question if "dense" in steps.legs else None, ran)


def _foresee(search: Search, embedded: Embedding, *, store: DocStore, watch: Watch) -> object:
    embedded.begin()
    try:
        foreseen = watch.stage("foresee", lambda: store.foresee(search))
    except BaseException:
        embedded.result()
        raise
    if foreseen is None:
        watch.stages.pop()  # nothing was asked
    return foreseen


def failed_legs(found: Found) -> tuple[Degraded, ...]:
    """What a store could not search to its end, for the answer and the record: its hits are not there, instead of some of them."""
    return tuple(Degraded("search", f"{code}: the {leg} leg was left out") for leg, code in found.failed)


def embed(
    text: str, purpose: Purpose, *, embedder: Embedder, threads: Threads, watch: Watch, share: float
) -> tuple[Embedded | None, tuple[Degraded, ...]]:
    """The question under the embedder within its share of the deadline; None where that failed, and why."""
    return begin_embed(text, purpose, embedder=embedder, threads=threads, watch=watch, share=share)()


def begin_embed(
    text: str, purpose: Purpose, *, embedder: Embedder, threads: Threads, watch: Watch, share: float
) -> Callable[[], tuple[Embedded | None, tuple[Degraded, ...]]]:
    """The same on a thread, while other things are done: what comes back waits for it, once."""
    end = time.monotonic() + watch.left_s() * share
    running = threads.start(lambda: embedder.embed_question(text, purpose))
    return partial(_await_embedded, running, end, threads, watch)


def _await_embedded(
    running: Future[Embedded], end: float, threads: Threads, watch: Watch
) -> tuple[Embedded | None, tuple[Degraded, ...]]:
    try:
        embedded = watch.stage("embed", lambda: threads.wait(max(0.0, end - time.monotonic()), running))
    except SourceError as error:
        failed = Degraded("embed", f"{error.code}: only the lexical leg was searched")
    except Exception as error:  # noqa: BLE001 (a model may fail in any way; the lexical leg stands without it)
        failed = Degraded("embed", f"{type(error).__name__}: only the lexical leg was searched")
    else:
        return embedded, ()
    watch.note(note="left out")
    return None, (failed,)
