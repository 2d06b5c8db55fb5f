"""A bounded map of what was computed once and may be needed again; its key must name every input."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Memo:
    """Bounded by weight; the least recently used entry goes first. Values are computed outside the lock."""

    limit: int = 4_096
    weight: int = 0
    _held: OrderedDict[Hashable, tuple[Any, int]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: Hashable, compute: Callable[[], Any], weight: int = 1) -> Any:
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key][0]
        value = compute()
        with self._lock:
            if key not in self._held:
                self._held[key] = (value, weight)
                self.weight += weight
            while self.weight > self.limit:
                self.weight -= self._held.popitem(last=False)[1][1]
        return value

    def drop(self, key: Hashable) -> None:
        """What was computed of inputs that were not whole is computed again."""
        with self._lock:
            self.weight -= self._held.pop(key, (None, 0))[1]

    def __len__(self) -> int:
        return len(self._held)
