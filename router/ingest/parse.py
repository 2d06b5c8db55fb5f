"""Parsing in processes that can be killed: hostile or broken documents cost a process, never the indexer.

One process reads one document at a time; it is replaced after `REPLACE_AFTER` documents and after any failure of its own.
It has a memory limit, a clock, no network, and can write no file. Bytes go in, JSON comes out.

INVARIANT: a document that hangs, bursts memory or crashes the process is a reported failure, and the next document is
read (tests/faults/test_documents.py::test_parser_that_hangs, ::test_parser_that_crashes, ::test_parser_out_of_memory).
INVARIANT: a document that was being read when the process was told to end is not taken for a broken one
(tests/faults/test_documents.py::test_parser_that_is_told_to_end).
INVARIANT: a parser process reaches no network and writes no file (tests/unit/test_ingest_parse.py::test_no_network).
INVARIANT: nothing from a parser process is unpickled (tests/unit/test_ingest_parse.py::test_reply_is_plain_json).
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import sys
import time
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from router.errors import SourceError
from router.forked import start_without_main
from router.ingest.blocks import LIMITS, REASONS, Parsed, ParseLimits, Unreadable, from_plain, to_plain
from router.ingest.detect import read_document

REPLACE_AFTER = 200
_ENDED_UNSEEN = 255  # what is said of a process whose fork server was ended with it
_GRACE_S = 2.0  # for a process that is late because the machine is busy: its own alarm rings first


class Parser:
    """Documents to `Parsed` through one process. Not for several threads. `start` begins on a document, `result` waits."""

    def __init__(self, limits: ParseLimits = LIMITS) -> None:
        self._limits = limits
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["router.ingest.parse"])
        self._process: Any = None
        self._pipe: Connection | None = None
        self._done = 0
        self._started_at = 0.0
        self._failed: Unreadable | None = None

    def __enter__(self) -> Parser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def parse(self, data: bytes, name: str) -> Parsed:
        """Raises `Unreadable`."""
        self.start(data, name)
        return self.result()

    def start(self, data: bytes, name: str) -> None:
        """Hand over one document; the caller may do something else until `result`."""
        self._failed = None
        if len(data) > self._limits.file_bytes:
            self._failed = Unreadable("too_large", f"{len(data)} bytes; the limit is {self._limits.file_bytes}")
            return
        if self._process is None or self._done >= REPLACE_AFTER:
            self._replace()
        assert self._pipe is not None
        self._started_at = time.monotonic()
        try:
            self._pipe.send_bytes(name.encode("utf-8", "replace"))
            self._pipe.send_bytes(data)
        except OSError:
            self._failed = self._lost()

    def result(self) -> Parsed:
        if self._failed is not None:
            raise self._failed
        assert self._pipe is not None
        left_s = self._started_at + self._limits.seconds + _GRACE_S - time.monotonic()
        try:
            if not self._pipe.poll(max(0.0, left_s)):
                self._kill()
                raise Unreadable("timeout", f"not read within {self._limits.seconds:g} s")
            reply = self._pipe.recv_bytes()
        except (OSError, EOFError):
            raise self._lost() from None
        self._done += 1
        return self._taken(reply)

    def _taken(self, reply: bytes) -> Parsed:
        try:
            answer = json.loads(reply)
            if "reason" not in answer:
                return from_plain(answer)
            failure = Unreadable(answer["reason"] if answer["reason"] in REASONS else "crashed", str(answer["detail"])[:300])
        except (ValueError, KeyError, TypeError, RecursionError):
            failure = Unreadable("crashed", "the parser gave no usable answer")
        if failure.reason in {"memory", "crashed"}:
            self._kill()
        raise failure

    def _lost(self) -> Unreadable:
        """What became of the process, and its end. Raises `SourceError` where it was told to end, as a supervisor tells all processes
        of a group: that is no fault of the document, which stays as it is."""
        self._process.join(_GRACE_S)
        code = self._process.exitcode
        self._kill()
        if code in (-signal.SIGTERM, _ENDED_UNSEEN):
            raise SourceError("parser_ended", "the process that reads documents was told to end", "run again", retryable=True)
        if code == -signal.SIGALRM:
            return Unreadable("timeout", f"not read within {self._limits.seconds:g} s")
        if code == -signal.SIGKILL:
            return Unreadable("memory", "the system ended the parser, most likely for want of memory")
        return Unreadable("crashed", f"the parser ended with {code}")

    def _replace(self) -> None:
        self._kill()
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._limits), daemon=True)
        start_without_main(process)
        self._process, self._pipe, self._done = process, ours, 0  # only now: Ctrl-C while it starts leaves nothing to kill
        theirs.close()

    def _kill(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        self._process, self._pipe = None, None

    def close(self) -> None:
        self._kill()


# --- inside the process -----------------------------------------------------------------------------------------------


def _serve(pipe: Connection, limits: ParseLimits) -> None:
    _confine(limits)
    while True:
        try:
            name = pipe.recv_bytes().decode("utf-8")
            data = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        signal.setitimer(signal.ITIMER_REAL, limits.seconds)
        reply = _answer(data, name, limits)
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            pipe.send_bytes(reply)
        except OSError:
            return


def _answer(data: bytes, name: str, limits: ParseLimits) -> bytes:
    try:
        return json.dumps(to_plain(read_document(data, name, limits))).encode()
    except Unreadable as failure:
        return json.dumps({"reason": failure.reason, "detail": failure.detail}).encode()
    except (MemoryError, RecursionError) as error:
        return json.dumps({"reason": "memory", "detail": type(error).__name__}).encode()
    except Exception as error:  # noqa: BLE001 (a parser library may raise anything at a broken file)
        return json.dumps({"reason": "corrupt", "detail": f"{type(error).__module__}.{type(error).__qualname__}"}).encode()


def _confine(limits: ParseLimits) -> None:
    """Take from this process what reading a document does not need."""
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _leave_network()
    sys.addaudithook(_refuse)


def _leave_network() -> None:
    """A network name space of its own, without any interface, where the system allows it; the audit hook holds anyway."""
    import ctypes
    import os

    new_user, new_net = 0x10000000, 0x40000000
    flags = new_net if os.geteuid() == 0 else new_user | new_net
    try:
        ctypes.CDLL(None, use_errno=True).unshare(flags)
    except (OSError, AttributeError):
        return


def _refuse(event: str, _: tuple[Any, ...]) -> None:
    if event.startswith(("socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.bind", "socket.sendto")) or event in {
        "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty",
    }:  # fmt: skip
        raise PermissionError(f"a parser process may not call {event}")
