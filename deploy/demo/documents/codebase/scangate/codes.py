"""The codes that this service raises. Nothing else may print an ERR number, so that the list in the manual stays true."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Code(Enum):
    NO_READ_RATE = "ERR-9001"
    CONNECTION_LOST = "ERR-9004"
    RETRY_LIMIT = "ERR-9012"
    CLOCK_DRIFT = "ERR-9020"


STOPS_THE_LINE: frozenset[Code] = frozenset()
"""Empty on purpose: a gateway that stops a sorter costs more than a parcel in exit 40."""


@dataclass(frozen=True)
class Event:
    code: Code
    tunnel: str
    at_ms: int
    detail: str = ""

    def panel_text(self) -> str:
        """What the lamp panel shows: at most 24 characters, the code first."""
        return f"{self.code.value} {self.tunnel} {self.detail}"[:24].rstrip()
