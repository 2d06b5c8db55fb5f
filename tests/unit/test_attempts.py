"""Trying again, leaving alone, few at once, counting: with a clock that the tests turn."""

from __future__ import annotations

import contextlib
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from router.attempts import FAIR_S, FIRST_PAUSE_S, MOST_ASKED_S, OPEN_AFTER, PATIENCE_S, REST_S, TRIES, Attempts, Spent
from router.errors import Refused, SourceError, parse_retry_after


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def made(clock: Clock, **options) -> Attempts:
    return Attempts("cohere", clock=clock, sleep=clock.sleep, **options)


class Failing:
    """Raises the errors in turn, then answers. `takes_s` is how long each try takes."""

    def __init__(self, *errors: SourceError, clock: Clock | None = None, takes_s: float = 0.0) -> None:
        self.errors, self.clock, self.takes_s = list(errors), clock, takes_s
        self.tried: list[float] = []

    def __call__(self, left_s: float) -> str:
        self.tried.append(left_s)
        if self.clock is not None:
            self.clock.now += min(self.takes_s, left_s)
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def failed(code: str = "model_failed", *, retryable: bool = True, after_s: float = 0.0) -> SourceError:
    return SourceError(code, "no", retryable=retryable, retry_after_s=after_s)


def test_it_is_tried_again_with_longer_pauses():
    clock, call = Clock(), Failing(failed(), failed(), failed())
    assert made(clock).run(call, deadline_s=60.0) == "answer"
    assert clock.slept == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]


def test_not_for_ever_and_not_where_it_cannot_help():
    call = Failing(*[failed()] * 9)
    with pytest.raises(SourceError):
        made(Clock()).run(call, deadline_s=60.0)
    assert len(call.tried) == TRIES
    for error in (failed("model_unauthorised", retryable=False), failed("model_reply_invalid", retryable=False)):
        call = Failing(error)
        with pytest.raises(SourceError) as raised:
            made(Clock()).run(call, deadline_s=60.0)
        assert (raised.value, len(call.tried)) == (error, 1)


def test_retry_after_is_kept():
    clock = Clock()
    assert made(clock).run(Failing(failed("model_rate_limited", after_s=7.0)), deadline_s=60.0) == "answer"
    assert clock.slept == [7.0]


@pytest.mark.parametrize("after_s", [0.0, 3.0, 1e8])
def test_it_ends_in_time(after_s):
    """A pause that leaves no time for the call after it is not begun, and a call gets what is left."""
    clock = Clock()
    call = Failing(*[failed(after_s=after_s)] * 9, clock=clock, takes_s=1.0)
    with pytest.raises(SourceError):
        made(clock).run(call, deadline_s=4.0)
    assert clock.now <= 104.0
    assert all(left_s <= 4.0 for left_s in call.tried)


def test_a_call_takes_no_more_than_one_call_may():
    call = Failing()
    made(Clock(), call_s=3.0).run(call, deadline_s=60.0)
    assert call.tried == [3.0]


def down(attempts: Attempts) -> None:
    for _ in range(OPEN_AFTER):
        with pytest.raises(SourceError):
            attempts.run(Failing(failed()), deadline_s=0.3)


def code_of(attempts: Attempts, call=None) -> str:
    with pytest.raises(SourceError) as raised:
        attempts.run(call or Failing(), deadline_s=10.0)
    return raised.value.code


def test_a_provider_that_is_down_is_left_alone():
    clock = Clock()
    attempts = made(clock)
    down(attempts)
    call = Failing()
    assert code_of(attempts, call) == "model_resting"
    assert (call.tried, clock.slept) == ([], [])
    clock.now += REST_S + 1
    assert code_of(attempts, Failing(*[failed()] * 9)) == "model_resting"  # the trial failed, and nobody tries after it
    assert code_of(attempts) == "model_resting"
    clock.now += REST_S + 1
    assert attempts.run(Failing(), deadline_s=10.0) == "answer"
    assert attempts.run(Failing(), deadline_s=10.0) == "answer"


def test_one_trial_after_the_rest():
    """While it runs, the others do not wait for it."""
    clock = Clock()
    attempts = made(clock)
    down(attempts)
    clock.now += REST_S + 1
    codes: list[str] = []

    def trial(_: float) -> str:
        codes.append(code_of(attempts))
        return "answer"

    assert attempts.run(trial, deadline_s=10.0) == "answer"
    assert codes == ["model_resting"]


def test_who_waited_for_a_place_is_not_let_through_either():
    attempts, inside, go, calls = Attempts("cohere", at_once=1), threading.Event(), threading.Event(), []

    def hold(_: float) -> None:
        inside.set()
        go.wait(5)
        raise failed()

    def count(_: float) -> None:
        calls.append(1)
        raise failed()

    def run(call) -> None:
        with contextlib.suppress(SourceError):
            attempts.run(call, deadline_s=0.4 if call is count else 5.0)

    for _ in range(OPEN_AFTER - 1):
        attempts._failed(failed(), counts=True)
    threads = [threading.Thread(target=run, args=(call,)) for call in (hold, *[count] * 6)]
    threads[0].start()
    inside.wait(5)
    for thread in threads[1:]:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(10)
    assert calls == []


def test_retry_after_holds_for_all():
    clock = Clock()
    attempts = made(clock)
    with pytest.raises(SourceError):
        attempts.run(Failing(failed("model_rate_limited", after_s=300.0)), deadline_s=10.0)
    call = Failing()
    with pytest.raises(SourceError) as raised:
        attempts.run(call, deadline_s=10.0)
    assert (raised.value.code, raised.value.retry_after_s, call.tried) == ("model_resting", 300.0, [])
    clock.now += 300.0
    assert attempts.run(call, deadline_s=10.0) == "answer"
    with pytest.raises(SourceError):
        attempts.run(Failing(failed("model_rate_limited", after_s=1e8)), deadline_s=10.0)
    clock.now += MOST_ASKED_S  # nobody may close it for longer
    assert attempts.run(call, deadline_s=10.0) == "answer"


def test_a_provider_that_refuses_us_is_not_sent_more():
    clock, call = Clock(), Failing()
    attempts = made(clock)
    assert code_of(attempts, Failing(failed("model_unauthorised", retryable=False))) == "model_unauthorised"
    assert (code_of(attempts, call), call.tried) == ("model_unauthorised", [])
    clock.now += REST_S
    assert attempts.run(call, deadline_s=10.0) == "answer"


def test_the_patient_wait_an_outage_out():
    clock = Clock()
    attempts, call = made(clock), Failing(*[failed("model_rate_limited")] * 6)
    assert attempts.run(call, deadline_s=300.0, patient=True) == "answer"
    assert clock.now - 100.0 < PATIENCE_S
    call = Failing(*[failed()] * 10_000)
    with pytest.raises(SourceError):
        attempts.run(call, deadline_s=300.0, patient=True)
    waited_s = clock.now
    with pytest.raises(SourceError):  # the same outage: nobody waits for it again
        attempts.run(call, deadline_s=300.0, patient=True)
    assert clock.now == waited_s
    clock.now += REST_S
    assert attempts.run(Failing(), deadline_s=300.0, patient=True) == "answer"


def test_an_answer_between_failures_forgets_them():
    attempts = made(Clock())
    for _ in range(3 * OPEN_AFTER):
        attempts.run(Failing(failed()), deadline_s=10.0)
    assert attempts.run(Failing(), deadline_s=10.0) == "answer"


@pytest.mark.parametrize("error", [failed("model_unauthorised", retryable=False), failed("model_reply_invalid", retryable=False)])
def test_what_is_ours_to_mend_closes_nothing(error):
    attempts = made(Clock())
    for _ in range(3 * OPEN_AFTER):
        assert code_of(attempts, Failing(error)) == error.code


def test_a_hasty_caller_counts_for_nothing():
    attempts = made(Clock())
    for _ in range(3 * OPEN_AFTER):
        with pytest.raises(SourceError):
            attempts.run(Failing(failed("model_late")), deadline_s=FAIR_S / 4)
    assert attempts.run(Failing(), deadline_s=10.0) == "answer"
    for _ in range(OPEN_AFTER):
        with pytest.raises(SourceError):
            attempts.run(Failing(*[failed("model_late")] * 9), deadline_s=FAIR_S)
    assert code_of(attempts) == "model_resting"


def test_few_at_once():
    attempts, lock, state = Attempts("cohere", at_once=3), threading.Lock(), {"now": 0, "most": 0}
    gate = threading.Event()

    def call(_: float) -> None:
        with lock:
            state["now"] += 1
            state["most"] = max(state["most"], state["now"])
        gate.wait(0.05)
        with lock:
            state["now"] -= 1

    threads = [threading.Thread(target=lambda: attempts.run(call, deadline_s=10.0)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert state == {"now": 0, "most": 3}


def test_who_waits_too_long_for_a_place_is_told():
    attempts, inside, go = Attempts("cohere", at_once=1), threading.Event(), threading.Event()

    def hold(_: float) -> None:
        inside.set()
        go.wait(5)

    thread = threading.Thread(target=lambda: attempts.run(hold, deadline_s=10.0))
    thread.start()
    inside.wait(5)
    with pytest.raises(SourceError) as raised:
        attempts.run(Failing(), deadline_s=0.05)
    go.set()
    thread.join(5)
    assert (raised.value.code, raised.value.retryable) == ("model_busy", True)


def test_a_refusal_goes_through_and_frees_the_place():
    attempts = made(Clock(), at_once=1)

    def refused(_: float) -> None:
        raise Refused("egress_sealed", "no")

    for _ in range(3):
        with pytest.raises(Refused):
            attempts.run(refused, deadline_s=1.0)
    assert attempts.run(Failing(), deadline_s=1.0) == "answer"


def test_what_it_came_to():
    attempts = made(Clock())
    attempts.run(Failing(failed()), deadline_s=10.0)
    attempts.sent(3, 100)
    attempts.sent(2, 50)
    attempts.cost(tokens=5, cost_micros=7)
    attempts.cost(searches=1, cost_micros=2000)
    assert attempts.spent() == Spent(calls=2, failed=1, texts=5, bytes=150, tokens=5, searches=1, cost_micros=2007)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [(None, 0), ("", 0), ("3", 3), ("-1", 0), ("nan", 0), ("1e300", 0), ("soon", 0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0)],
)
def test_what_a_provider_asks_for(text, wanted):
    assert parse_retry_after(text) == wanted


def test_a_date_is_a_wish_too():
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 55 < parse_retry_after(at) <= 60
