"""Runs the steps of a plan under one deadline. Request threads and deadlines live here and nowhere else.

INVARIANT: a stage that fails or is late is left out and named in `degraded`; the filter of what remains is the same
(tests/unit/test_ask.py::test_embedder_fails, ::test_embedder_hangs).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass
from typing import TypeVar

from router.domain import Degraded, Embedded, Found, Purpose, Search, Stage, Steps
from router.errors import SourceError
from router.filters import Never
from router.ports import DocStore, Embedder

T = TypeVar("T")

THREADS = 16


class Watch:
    """The deadline of one question and the stages measured so far."""

    def __init__(self, deadline_s: float) -> None:
        self._start = time.perf_counter_ns()
        self._deadline_s = deadline_s
        self.stages: list[Stage] = []

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
    """The bounded request threads of one router. A call that outlives its deadline keeps its thread until it ends."""

    def __init__(self, count: int = THREADS) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="pointsman")

    def within(self, deadline_s: float, run: Callable[[], T]) -> T:
        """The result of `run`, or `SourceError("deadline")` after `deadline_s`."""
        future = self._pool.submit(run)
        try:
            return future.result(deadline_s)
        except LateError:
            future.cancel()
            raise SourceError(
                "deadline", "the stage took longer than its share of the deadline", "raise the deadline", retryable=True
            ) from None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Executed:
    found: Found
    question: Embedded | None
    degraded: tuple[Degraded, ...]


def run(
    steps: Steps,
    text: str,
    purpose: Purpose,
    *,
    tenant: str,
    store: DocStore,
    embedder: Embedder,
    threads: Threads,
    watch: Watch,
    embed_share: float,
) -> Executed:
    """Embed the question and search both legs. Raises `SourceError` only when no leg is left."""
    if isinstance(steps.filter, Never):
        return Executed(Found((), 0), None, ())
    degraded: list[Degraded] = []
    question: Embedded | None = None
    if "dense" in steps.legs:
        question = _embed(text, purpose, embedder, threads, watch, embed_share, degraded)
    lexical = "lexical" in steps.legs
    if question is None and not lexical:
        raise SourceError("no_leg", "the question could not be embedded and the lexical leg is off", "try again", retryable=True)
    search = Search(
        tenant=tenant,
        filter=steps.filter,
        text=text if lexical else None,
        vector=question.vector if question is not None else None,
        model_id=embedder.card.id,
        limit=steps.candidates,
        deadline_s=watch.left_s(),
    )
    found = watch.stage("search", lambda: store.search(search))
    watch.note(count_in=found.admitted, count_out=len(found.candidates))
    return Executed(found, question, tuple(degraded))


def _embed(
    text: str, purpose: Purpose, embedder: Embedder, threads: Threads, watch: Watch, share: float, degraded: list[Degraded]
) -> Embedded | None:
    try:
        return watch.stage(
            "embed", lambda: threads.within(watch.left_s() * share, lambda: embedder.embed_question(text, purpose))
        )
    except SourceError as error:
        degraded.append(Degraded("embed", f"{error.code}: only the lexical leg was searched"))
    except Exception as error:  # noqa: BLE001 (a model may fail in any way; the lexical leg stands without it)
        degraded.append(Degraded("embed", f"{type(error).__name__}: only the lexical leg was searched"))
    watch.note(note="left out")
    return None
