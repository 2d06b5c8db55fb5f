"""Calls of one provider: tried again within a deadline, few at once, not at all while it is down, and counted.

A hosted connector makes one attempt; everything that decides about another one is here, once for all providers. Whether another
try can help is said by the error (`retryable`), never by its words.

INVARIANT: a call ends within its deadline, pauses and `retry-after` included (tests/unit/test_attempts.py::test_it_ends_in_time).
INVARIANT: after `OPEN_AFTER` failures in a row nobody waits for the provider until a single trial succeeded
(…::test_a_provider_that_is_down_is_left_alone, ::test_who_waited_for_a_place_is_not_let_through_either).
INVARIANT: what a provider asks for by `retry-after` holds for every caller (…::test_retry_after_holds_for_all).
INVARIANT: a provider that refuses key or model is not sent the next text at once (…::test_a_provider_that_refuses_us_is_not_sent_more).
INVARIANT: who is patient waits an outage out, and the next one does not wait for the same outage again
(…::test_the_patient_wait_an_outage_out).
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
LONGEST_PAUSE_S = 30.0
OPEN_AFTER = 5
REST_S = 30.0
MOST_ASKED_S = 600.0
"""The longest that a provider's `retry-after` is kept."""
PATIENCE_S = 120.0
"""How long after its first failure an outage is waited out by those who can."""
FAIR_S = 0.75
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
        self._failing_since: float | None = None
        self._asked_until = 0.0
        self._why: SourceError | None = None
        self._spent = Spent()

    def run(self, attempt: Callable[[float], T], *, deadline_s: float, patient: bool = False) -> T:
        """The result of `attempt(seconds it may take)`. Raises what the last attempt raised, or that none could be made. Who is `patient`
        tries until the deadline or the end of patience, and waits while the provider rests."""
        until = self._clock() + deadline_s
        pause_s, tried = FIRST_PAUSE_S, 0
        while True:
            tried += 1
            try:
                return self._once(attempt, until)
            except SourceError as error:
                wait_s = max(pause_s, error.retry_after_s)
                waits = patient and self._is_short()
                again = error.retryable and (waits or (error.code not in _NOT_AGAIN and tried < TRIES))
                if not again or self._clock() + wait_s + LEAST_CALL_S > until:
                    raise
            self._sleep(wait_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _once(self, attempt: Callable[[float], T], until: float) -> T:
        self._let_through(claim=False)  # nobody waits for a place at a provider that rests
        if not self._slots.acquire(timeout=max(0.0, until - self._clock())):
            raise SourceError(
                "model_busy", f"as many calls of `{self.provider}` run as may run at once", "ask later", retryable=True
            )
        try:
            self._let_through(claim=True)
            left_s = min(self._call_s, until - self._clock())
            if left_s <= 0:
                raise SourceError(LATE, f"no time was left for `{self.provider}`", "allow more time", retryable=True)
            try:
                result = attempt(left_s)
            except SourceError as error:
                self._failed(error, counts=error.retryable and not (error.code == LATE and left_s < FAIR_S))
                raise
            self._answered()
            return result
        finally:
            self._slots.release()

    # --- whether it is tried at all -----------------------------------------------------------------------------------

    def _let_through(self, *, claim: bool) -> None:
        """While it rests nobody; after the rest the caller who claims the trial, and the others only when that one was answered."""
        with self._lock:
            now = self._clock()
            if now < self._asked_until:
                why, left_s = self._why, self._asked_until - now
            elif self._failures < OPEN_AFTER:
                return
            elif now >= self._rests_until:
                if claim:
                    self._rests_until = now + self._call_s
                return
            else:
                why, left_s = None, self._rests_until - now
        if why is not None and not why.retryable:
            raise SourceError(why.code, why.message, why.hint)
        raise SourceError(
            "model_resting", f"`{self.provider}` failed several times in a row, or asked for it, and is left alone for a while",
            "ask later", retryable=True, retry_after_s=left_s,
        )  # fmt: skip

    def _is_short(self) -> bool:
        """Whether what fails now has not failed for so long that nobody should wait for it any more."""
        with self._lock:
            return self._failing_since is None or self._clock() - self._failing_since < PATIENCE_S

    def _failed(self, error: SourceError, *, counts: bool) -> None:
        with self._lock:
            now = self._clock()
            self._spent = replace(self._spent, failed=self._spent.failed + 1)
            asked_s = REST_S if error.code in _REFUSES_US else min(error.retry_after_s, MOST_ASKED_S)
            if asked_s > 0 and now + asked_s > self._asked_until:
                self._asked_until, self._why = now + asked_s, error
            if counts:
                self._failing_since = now if self._failing_since is None else self._failing_since
                self._failures += 1
                if self._failures >= OPEN_AFTER:
                    self._rests_until = now + REST_S

    def _answered(self) -> None:
        with self._lock:
            self._failures, self._failing_since = 0, None

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
_REFUSES_US = frozenset({"model_unauthorised", "model_unknown"})
