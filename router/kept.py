"""What was found for a question, kept in memory for a short while: bounded by entries, bytes and time, emptied by change.

Values are bytes, so that the bound is exact and no two answers share an object. Nothing is written anywhere.

INVARIANT: of a tenant nothing is kept that was found under another version than the latest one that anybody saw
(tests/unit/test_kept.py::test_a_new_version_empties_what_was_found_under_the_old_one).
INVARIANT: what is kept never exceeds its bounds (…::test_never_more_than_its_bounds).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_OVERHEAD_BYTES = 512
"""Of an entry beside its value, about."""


@dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes
    tenant: str
    versions: Mapping[str, str]
    ends_s: float

    @property
    def weight(self) -> int:
        return len(self.value) + _OVERHEAD_BYTES


class Kept:
    """Oldest first out. `versions` are those of everything that an entry was found under: policies, documents, tables."""

    def __init__(
        self, *, most_entries: int, most_bytes: int, lifetime_s: float, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._most_entries, self._most_bytes, self._lifetime_s, self._clock_s = most_entries, most_bytes, lifetime_s, clock_s
        self._held: OrderedDict[bytes, _Entry] = OrderedDict()
        self._latest: dict[tuple[str, str], str] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: bytes, *, tenant: str, versions: Mapping[str, str]) -> bytes | None:
        """What is kept under `key`, after everything that has ended or was found under other versions went."""
        with self._lock:
            self._sweep(tenant, versions)
            entry = self._held.get(key)
            return None if entry is None else entry.value

    def put(self, key: bytes, value: bytes, *, tenant: str, versions: Mapping[str, str], ends_in_s: float | None = None) -> bool:
        """Whether it was kept: not what is larger than all there is room for, or was found under versions that are no longer."""
        now_s = self._clock_s()
        lives_s = self._lifetime_s if ends_in_s is None else min(self._lifetime_s, ends_in_s)
        entry = _Entry(value, tenant, dict(versions), now_s + lives_s)
        with self._lock:
            current = all(self._latest.get((tenant, kind), version) == version for kind, version in versions.items())
            if not current or lives_s <= 0 or entry.weight > self._most_bytes or self._most_entries < 1:
                return False
            self._remove(key)
            self._held[key] = entry
            self._bytes += entry.weight
            while self._bytes > self._most_bytes or len(self._held) > self._most_entries:
                self._remove(next(iter(self._held)))
        return True

    def drop(self, key: bytes) -> None:
        with self._lock:
            self._remove(key)

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
            self._latest.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def weight_bytes(self) -> int:
        return self._bytes

    def _sweep(self, tenant: str, versions: Mapping[str, str]) -> None:
        changed = any(self._latest.get((tenant, kind)) != version for kind, version in versions.items())
        self._latest.update({(tenant, kind): version for kind, version in versions.items()})
        now_s = self._clock_s()
        for key, entry in [*self._held.items()]:
            stale = changed and entry.tenant == tenant and any(
                self._latest.get((tenant, kind)) != version for kind, version in entry.versions.items()
            )  # fmt: skip
            if stale or entry.ends_s <= now_s:
                self._remove(key)

    def _remove(self, key: bytes) -> None:
        entry = self._held.pop(key, None)
        if entry is not None:
            self._bytes -= entry.weight
