"""Processes that can be killed: how one is started without the caller's script, and what is taken from it.

Both processes that read what others wrote (the parser of documents, the worker for tables) start and confine themselves here,
under one lock: for a moment a starting process has no main module, and two at once would lose it.

INVARIANT: two threads that start processes at once leave the main module as it was
(tests/unit/test_forked.py::test_main_module_survives).
"""

from __future__ import annotations

import signal
import sys
import threading
from multiprocessing import resource_tracker
from types import ModuleType
from typing import Any

_STARTING = threading.Lock()


def start_without_main(process: Any) -> None:
    """Start without the caller's main module: multiprocessing would import it again in the new process, which costs time
    and runs a script that has no `if __name__ == "__main__"` a second time. Ctrl-C waits until it runs, and the new process
    never gets it: half-started it would show a trace of its own."""
    with _STARTING:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        resource_tracker.ensure_running()  # it would lift the block below
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            sys.modules["__main__"] = main
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def confine(*, more_memory_mb: int, cpu: bool) -> None:
    """Take from this process what it does not need: memory beyond its share, files to write, a network, Ctrl-C.

    `more_memory_mb` may be added to the addresses it has now (stacks and arenas of threads make up most of those).
    With `cpu` the process may raise its own soft limit of processor time later; going over it ends the process."""
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if cpu:
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    sys.dont_write_bytecode = True
    with open("/proc/self/statm", encoding="ascii") as statm:
        most = int(statm.read().split()[0]) * resource.getpagesize() + (more_memory_mb << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _leave_network()


def _leave_network() -> None:
    """A network name space of its own, without any interface, where the system allows it."""
    import ctypes
    import os

    new_user, new_net = 0x10000000, 0x40000000
    flags = new_net if os.geteuid() == 0 else new_user | new_net
    try:
        ctypes.CDLL(None, use_errno=True).unshare(flags)
    except (OSError, AttributeError):
        return
