"""Calls of one provider: tried again within a deadline, few at once, not at all while it is down, and counted.

A hosted connector makes one attempt; everything that decides about another one is here, once for all providers. Whether another
try can help is said by the error (`retryable`), never by its words.

INVARIANT: a call ends within its deadline, pauses and `retry-after` included (tests/unit/test_attempts.py::test_it_ends_in_time).
INVARIANT: after `OPEN_AFTER` failures in a row nobody waits for the provider until a single trial succeeded
(…::test_a_provider_that_is_down_is_left_alone).
INVARIANT: a caller with little time does not close a provider to others (…::test_a_hasty_caller_counts_for_nothing).
INVARIANT: never more calls at once than allowed (…::test_few_at_once).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from router.errors import SourceError

T = TypeVar("T")

TRIES = 4
FIRST_PAUSE_S = 0.5
LEAST_CALL_S = 0.25
"""A pause is not begun that would leave less than this for the call after it."""
OPEN_AFTER = 5
REST_S = 30.0
FAIR_S = 2.0
"""A call that had less time than this and was late says nothing of the provider."""
LATE = "model_late"


@dataclass(frozen=True, slots=True)
class Spent:
    """What calls of one provider came to since the start. `cost_micros` are millionths of what its prices are in."""

    calls: int = 0
    failed: int = 0
    texts: int = 0
    bytes: int = 0
    tokens: int = 0
    searches: int = 0
    cost_micros: int = 0


class Attempts:
    """Thread-safe; one for each provider, for as long as a router lives."""

    def __init__(
        self,
        provider: str,
        *,
        at_once: int = 4,
        call_s: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.provider, self._call_s, self._clock, self._sleep = provider, call_s, clock, sleep
        self._slots = threading.BoundedSemaphore(at_once)
        self._lock = threading.Lock()
        self._failures = 0
        self._rests_until = 0.0
        self._spent = Spent()

    def run(self, attempt: Callable[[float], T], *, deadline_s: float) -> T:
        """The result of `attempt(seconds it may take)`. Raises what the last attempt raised, or that none could be made."""
        until = self._clock() + deadline_s
        pause_s = FIRST_PAUSE_S
        for tried in range(1, TRIES + 1):
            try:
                return self._once(attempt, until)
            except SourceError as error:
                wait_s = max(pause_s, error.retry_after_s)
                again = error.retryable and error.code not in _NOT_AGAIN and tried < TRIES
                if not again or self._clock() + wait_s + LEAST_CALL_S > until:
                    raise
            self._sleep(wait_s)
            pause_s *= 2
        raise AssertionError("the last try returns or raises")

    def _once(self, attempt: Callable[[float], T], until: float) -> T:
        self._let_through()
        if not self._slots.acquire(timeout=max(0.0, until - self._clock())):
            raise SourceError(
                "model_busy", f"as many calls of `{self.provider}` run as may run at once", "ask later", retryable=True
            )
        try:
            left_s = min(self._call_s, until - self._clock())
            if left_s <= 0:
                raise SourceError(LATE, f"no time was left for `{self.provider}`", "allow more time", retryable=True)
            try:
                result = attempt(left_s)
            except SourceError as error:
                self._failed(counts=error.retryable and not (error.code == LATE and left_s < FAIR_S))
                raise
            self._answered()
            return result
        finally:
            self._slots.release()

    # --- whether it is tried at all -----------------------------------------------------------------------------------

    def _let_through(self) -> None:
        """While it rests nobody; after the rest one caller, and the others only when that one was answered."""
        with self._lock:
            if self._failures < OPEN_AFTER:
                return
            now = self._clock()
            if now >= self._rests_until:
                self._rests_until = now + self._call_s
                return
        raise SourceError(
            "model_resting", f"`{self.provider}` failed several times in a row and is left alone for a while", "ask later",
            retryable=True,
        )  # fmt: skip

    def _failed(self, *, counts: bool) -> None:
        with self._lock:
            self._spent = replace(self._spent, failed=self._spent.failed + 1)
            if counts:
                self._failures += 1
                if self._failures >= OPEN_AFTER:
                    self._rests_until = self._clock() + REST_S

    def _answered(self) -> None:
        with self._lock:
            self._failures = 0

    # --- what it came to ----------------------------------------------------------------------------------------------

    def sent(self, texts: int, size: int) -> None:
        with self._lock:
            was = self._spent
            self._spent = replace(was, calls=was.calls + 1, texts=was.texts + texts, bytes=was.bytes + size)

    def cost(self, *, tokens: int = 0, searches: int = 0, cost_micros: int = 0) -> None:
        with self._lock:
            was = self._spent
            self._spent = replace(
                was,
                tokens=was.tokens + tokens,
                searches=was.searches + searches,
                cost_micros=was.cost_micros + cost_micros,
            )

    def spent(self) -> Spent:
        with self._lock:
            return self._spent


_NOT_AGAIN = frozenset({"model_busy", "model_resting"})
"""Here nothing was tried, so that there is nothing to try again."""
