"""The policy version in force: reloaded as a whole when the folder's bytes change, and refused when it stays broken.

INVARIANT: a broken folder turns `ready` false at once; the last good version serves for `grace_s`, then every question
is refused `policy_invalid` (tests/faults/test_policies.py::test_folder_broken_while_running).
INVARIANT: a file that can no longer be read breaks the folder; it never counts as unchanged or as gone
(tests/faults/test_policies.py::test_a_link_that_breaks_while_running).
INVARIANT: what is in force was read from one moment of the folder: it looked the same before and after reading
(tests/unit/test_policy_live.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from router.errors import PolicyError, Refused
from router.policy.decide import PolicySet
from router.policy.folder import compute_version, list_entries, read_folder
from router.policy.load import inspect_files, load_policies
from router.policy.strict import Fault, Faults

LOOK_EVERY_S = 1.0
_RACY_NS = 2_000_000_000
"""A file changed this short before it was read may change again without a new time stamp: look at its bytes again."""

Look = tuple[tuple[str, int, int, int, int], ...]


class LivePolicies:
    """Holds the current `PolicySet`. `current()` is cheap and safe to call from every thread for every question."""

    def __init__(
        self,
        folder: Path,
        *,
        grace_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        on_load: Callable[[PolicySet], object] = lambda _: None,
        on_fault: Callable[[Fault], object] = lambda _: None,
    ) -> None:
        """Raises `PolicyError` when the folder is wrong from the start. `on_load` sees each version before it serves."""
        self._folder, self._grace_s, self._clock = folder, grace_s, clock
        self._on_load, self._on_fault = on_load, on_fault
        self._lock = threading.Lock()
        self._look = _look(folder)
        self._policies = load_policies(folder)
        self._on_load(self._policies)
        self._looked_at_s = clock()
        self._broken_since_s: float | None = None

    def current(self) -> PolicySet:
        """The version in force; `Refused` when the folder has been broken for longer than the grace."""
        self._poll()
        broken_since_s = self._broken_since_s
        if broken_since_s is not None and self._clock() - broken_since_s >= self._grace_s:
            raise Refused(
                "policy_invalid", "the policy folder is broken, so nothing is answered", "see `pointsman policies check`"
            )
        return self._policies

    def latest(self) -> PolicySet:
        """The version that stands on disk this moment, for those who change what is shown. Raises `PolicyError` where there is none."""
        for pause_s in (0.05, 0.2, 0.0):
            with self._lock:
                look = _look(self._folder)
                self._looked_at_s = self._clock()
                whole = self._reload(look)
                if whole and self._broken_since_s is None:
                    return self._policies
            if whole:
                break
            time.sleep(pause_s)  # it is being written
        raise PolicyError("policy_broken", "the policy folder is broken, so nothing is indexed", "see `pointsman policies check`")

    @property
    def ready(self) -> bool:
        """Whether the folder as it stands on disk is the version in force."""
        self._poll()
        return self._broken_since_s is None

    def _poll(self) -> None:
        if self._clock() - self._looked_at_s < LOOK_EVERY_S or not self._lock.acquire(blocking=False):
            return
        try:
            self._looked_at_s = self._clock()
            look = _look(self._folder)
            if look != self._look or self._broken_since_s is not None or _is_racy(look):
                self._reload(look)
        finally:
            self._lock.release()

    def _reload(self, look: Look) -> bool:
        """Whether the folder was read at one moment."""
        faults = Faults()
        raw = read_folder(self._folder, faults)
        if _look(self._folder) != look:
            return False  # still being written; the next look decides
        fault: Fault | None = Fault("policy_unreadable", self._folder.name, 0, "the folder cannot be read", "see the log")
        try:
            fault = self._replace(raw, faults)
        finally:
            # Whatever happened above, an unchecked folder never counts as ready.
            self._look = look
            if fault is None:
                self._broken_since_s = None
            elif self._broken_since_s is None:
                self._broken_since_s = self._clock()
                self._on_fault(fault)
        return True

    def _replace(self, raw: dict[str, bytes], faults: Faults) -> Fault | None:
        """Put the folder just read in force, or say what is wrong with it."""
        if not faults.items and compute_version(raw) == self._policies.version and _same_beside(raw, self._policies):
            return None
        policies, found = inspect_files(raw, faults) if raw else (None, faults.items)
        if policies is None:
            return found[0]
        try:
            self._on_load(policies)
        except OSError as error:
            # A version that cannot be kept cannot be explained later, so it does not serve.
            message = f"the version cannot be kept ({error.strerror})"
            return Fault("policy_not_kept", self._folder.name, 0, message, "check the disk")
        self._policies = policies
        return None


def _same_beside(raw: dict[str, bytes], policies: PolicySet) -> bool:
    """people.yaml is not part of the version, but the command line mints tokens from it."""
    return raw.get("people.yaml") == policies.raw.get("people.yaml")


def _look(folder: Path) -> Look:
    """What a change of the folder changes. That something cannot be looked at is a look of its own, unlike every other."""
    try:
        paths = list_entries(folder)
    except OSError as error:
        return (("", 0, 0, 0, error.errno or -1),)
    return tuple(_look_at(path) for path in paths)


def _look_at(path: Path) -> tuple[str, int, int, int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        return (path.name, 0, 0, 0, error.errno or -1)
    # The change time moves with the right to read, which leaves the other times alone.
    return (path.name, stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_ctime_ns)


def _is_racy(look: Look) -> bool:
    return bool(look) and time.time_ns() - max(entry[1] for entry in look) < _RACY_NS
