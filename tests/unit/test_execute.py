"""Deadlines and request threads: what is late is left out, what hangs keeps nobody."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref

import pytest

from router.errors import SourceError
from router.execute import Threads, Watch
from tests.world import ROOT


@pytest.fixture
def threads():
    made = Threads(count=2)
    yield made
    made.close()


def test_watch_measures_what_raises_too():
    watch = Watch(10)
    with pytest.raises(ZeroDivisionError):
        watch.stage("broken", lambda: 1 // 0)
    assert watch.stage("whole", lambda: 3) == 3
    watch.note(count_in=2, count_out=1, note="left out")
    assert [(stage.name, stage.count_in, stage.count_out, stage.note) for stage in watch.stages] == [
        ("broken", None, None, ""),
        ("whole", 2, 1, "left out"),
    ]
    assert watch.stages[1].us <= watch.total_us


def test_time_left_never_falls_below_a_millisecond():
    watch = Watch(0.02)
    assert 0.001 < watch.left_s() <= 0.02
    time.sleep(0.03)
    assert watch.left_s() == 0.001


def test_result_and_error_come_from_the_call(threads):
    assert threads.within(1, lambda: "done") == "done"
    with pytest.raises(KeyError, match="mine"):
        threads.within(1, lambda: {}["mine"])


def test_a_late_call_is_a_retryable_error_of_its_own(threads):
    released = threading.Event()
    started = time.monotonic()
    with pytest.raises(SourceError) as raised:
        threads.within(0.05, released.wait)
    released.set()
    assert raised.value.code == "deadline"
    assert raised.value.retryable
    assert time.monotonic() - started < 1


def test_a_time_out_inside_the_call_is_not_taken_for_its_deadline(threads):
    def fails():
        raise TimeoutError("the model's own")

    with pytest.raises(TimeoutError, match="the model's own"):
        threads.within(1, fails)


def test_threads_are_bounded_and_a_waiting_call_that_is_late_never_runs(threads):
    released, ran = threading.Event(), []
    for _ in range(2):
        with pytest.raises(SourceError):
            threads.within(0.02, released.wait)
    with pytest.raises(SourceError):
        threads.within(0.02, lambda: ran.append(1))
    released.set()
    assert threads.within(1, lambda: "free again") == "free again"
    assert ran == []
    assert sum(thread.name.startswith("pointsman_") for thread in threading.enumerate()) <= 2 + _others(threads)


def _others(threads):
    """Threads of pools that other tests opened and that are still ending."""
    return sum(
        thread.name.startswith("pointsman_") and getattr(thread._target, "__self__", None) is not threads
        for thread in threading.enumerate()
    )


def test_one_thread_serves_calls_that_follow_each_other(threads):
    names = {threads.within(1, lambda: threading.current_thread().name) for _ in range(50)}
    assert len(names) <= 2


def test_many_callers_at_once_each_get_their_own_result():
    pool, got = Threads(count=4), {}
    callers = [threading.Thread(target=lambda at=at: got.update({at: pool.within(5, lambda: at * at)})) for at in range(200)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    pool.close()
    assert got == {at: at * at for at in range(200)}


def test_threads_end_when_closed():
    pool = Threads(count=3)
    mine = pool.within(1, threading.current_thread)
    pool.close()
    mine.join(2)
    assert not mine.is_alive()


def test_nothing_of_a_question_outlives_it(threads):
    class Text:
        pass

    text = Text()
    held = weakref.ref(text)
    threads.within(1, lambda text=text: id(text))
    del text
    deadline = time.monotonic() + 2
    while held() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert held() is None


def test_hung_call_does_not_keep_the_process():
    script = """
import threading
from router.errors import SourceError
from router.execute import Threads
threads = Threads()
try:
    threads.within(0.05, threading.Event().wait)
except SourceError as error:
    print(error.code)
threads.close()
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.stderr, done.returncode) == ("deadline\n", "", 0)
