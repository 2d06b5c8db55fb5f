"""Processes are started from several threads at once, and the main module stays what it was."""

from __future__ import annotations

import multiprocessing
import sys
import threading

from router.forked import start_without_main


def _nothing() -> None:
    return


def test_main_module_survives():
    main = sys.modules["__main__"]
    context = multiprocessing.get_context("forkserver")
    processes = [context.Process(target=_nothing, daemon=True) for _ in range(6)]
    threads = [threading.Thread(target=start_without_main, args=(process,)) for process in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in processes:
        process.join(20)
        assert process.exitcode == 0
    assert sys.modules["__main__"] is main
