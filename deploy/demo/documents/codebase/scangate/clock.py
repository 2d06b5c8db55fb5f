"""Clock of the tunnel against clock of the server.

A tunnel whose buffer battery (PN-30940) is at its end starts in the year 2000 after each power cut. Such a jump is told apart from slow drift,
because the cure differs: a battery, not a time server.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from scangate.codes import Code, Event

YEAR_2001_MS = 978_307_200_000


@dataclass
class DriftWatch:
    tunnel: str
    limit_ms: int
    samples: deque[int] = field(default_factory=lambda: deque(maxlen=21))

    def observe(self, tunnel_ms: int, server_ms: int) -> Event | None:
        """One heartbeat. The median of 21 keeps a single late packet from raising ERR-9020."""
        if tunnel_ms < YEAR_2001_MS:
            return Event(Code.CLOCK_DRIFT, self.tunnel, server_ms, "battery")
        self.samples.append(tunnel_ms - server_ms)
        if len(self.samples) < 5:
            return None
        drift_ms = median(self.samples)
        if abs(drift_ms) <= self.limit_ms:
            return None
        return Event(Code.CLOCK_DRIFT, self.tunnel, server_ms, f"{drift_ms / 1000:+.1f} s")
