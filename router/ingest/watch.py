"""Scheduled runs: one round after the other, never two at once, until somebody asks to stop.

A round that fails is tried again, later each time; so is a source that fails, while the others go on. Waiting is interruptible, and
so is a round, between two documents: what was stored is whole, and the next run continues.

INVARIANT: a source that fails keeps neither the others nor the next round from being brought up to date
(tests/faults/test_watch.py::test_a_failing_source_stops_nobody).
INVARIANT: while the policy folder is broken nothing is indexed (tests/faults/test_watch.py::test_broken_policies_refuse_the_round).
INVARIANT: nothing waits longer for its next try than `MOST_REST_S`, or the interval (tests/unit/test_ingest_watch.py::test_rest_is_bounded).
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from router.errors import PointsmanError
from router.ingest.tables import TableReport
from router.ingest.workshop import IndexReport, Progress

BUSY_S = 1.0
"""How soon a lock that somebody else holds is tried again."""
MOST_REST_S = 300.0
BUSY = "index_busy"


class Stopped(KeyboardInterrupt):
    """Raised between two documents of a round that is to end."""


class Stop:
    """A wish to stop that a signal handler may utter: it wakes whoever waits. A second one does not wait for the transaction."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.signal = 0
        self._selector = selectors.DefaultSelector()  # `select` itself knows no more than 1,024 open files
        self._selector.register(self._read, selectors.EVENT_READ)

    def ask(self, number: int, _: object = None) -> None:
        """A handler for `signal.signal`. Raises `KeyboardInterrupt` where it is asked again."""
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number
        os.write(self._write, b"!")

    def asked(self) -> bool:
        return self.signal != 0

    def check(self, _: Progress | None = None) -> None:
        """Raises `Stopped` once it was asked; takes the place of progress."""
        if self.signal:
            raise Stopped

    def wait(self, for_s: float) -> bool:
        """Whether it was asked within that time."""
        until_s = time.monotonic() + for_s
        while not self.signal and (left_s := until_s - time.monotonic()) > 0:
            self._selector.select(left_s)
        return bool(self.signal)

    def close(self) -> None:
        """Let go of the pipe."""
        self._selector.close()
        os.close(self._read)
        os.close(self._write)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one round came to. `faults` are of sources that could not even be opened, `not_copied` is why no table could be copied."""

    report: IndexReport | None = None
    tables: tuple[TableReport, ...] = ()
    faults: Mapping[str, PointsmanError] = field(default_factory=dict)
    not_copied: PointsmanError | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One round as it is told. `error` is why there was none; `resting` are sources that were left alone after they failed, and for
    how many seconds more; `next_s` is when the next one begins."""

    number: int
    at_us: int
    elapsed_s: float
    seen: Seen
    error: PointsmanError | None
    resting: Mapping[str, float]
    next_s: float

    @property
    def failed(self) -> dict[str, PointsmanError]:
        """Sources that failed in this round."""
        report = self.seen.report
        errors: dict[str, PointsmanError] = {
            source.source: source.error for source in (report.sources if report is not None else ()) if source.error is not None
        }
        return {**errors, **self.seen.faults}

    @property
    def changed(self) -> bool:
        """Whether the index is another one than before."""
        report = self.seen.report
        return any(source.changed for source in (report.sources if report is not None else ())) or any(
            table.outcome not in ("unchanged", "failed") for table in self.seen.tables
        )


def rest_s(every_s: float, failures: int) -> float:
    """How long after its `failures`th failure in a row something is tried again."""
    return max(every_s, min(MOST_REST_S, every_s * 2.0 ** min(failures, 30)))


@dataclass(slots=True)
class _Rest:
    failures: int = 0
    until_s: float = 0.0


def run_rounds(
    look: Callable[[frozenset[str]], Seen], *, every_s: float, stop: Stop, clock: Callable[[], float] = time.monotonic
) -> Iterator[Round]:
    """Call `look` with the sources that are to be left alone, again and again, and tell what came of it. A lock that is held elsewhere
    is told once and waited for. Ends when `stop` was asked; what is no `PointsmanError` ends it, too."""
    rests: dict[str, _Rest] = {}
    number, failed, busy = 0, 0, False
    while not stop.asked():
        began_s, at_us = clock(), time.time_ns() // 1000
        resting = {name: rest.until_s - began_s for name, rest in rests.items() if rest.until_s > began_s}
        seen, error = Seen(), None
        try:
            seen = look(frozenset(resting))
        except Stopped:
            return
        except PointsmanError as caught:
            if stop.asked():  # whoever ends all processes of a group ends those that this one works with, too
                return
            error = caught
        if error is not None and error.code == BUSY:
            if not busy:
                yield Round(number + 1, at_us, clock() - began_s, seen, error, resting, BUSY_S)
            busy = True
            stop.wait(BUSY_S)
            continue
        number, busy, failed = number + 1, False, failed + 1 if error is not None else 0
        pause_s = rest_s(every_s, failed) if failed else every_s
        told = Round(number, at_us, clock() - began_s, seen, error, resting, max(0.0, began_s + pause_s - clock()))
        if error is None:
            _rest(rests, told, every_s, began_s, resting)
        yield told
        stop.wait(max(0.0, began_s + pause_s - clock()))


def _rest(rests: dict[str, _Rest], told: Round, every_s: float, began_s: float, resting: Mapping[str, float]) -> None:
    """What failed waits, longer each time; what did not, and was tried, has a clean slate."""
    failed = told.failed
    for name in [name for name in rests if name not in failed and name not in resting]:
        del rests[name]
    for name in failed:
        rest = rests.setdefault(name, _Rest())
        rest.failures += 1
        rest.until_s = began_s + rest_s(every_s, rest.failures)
