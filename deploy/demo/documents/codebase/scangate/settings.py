"""Parameters of the gateway service, with defaults and limits.

Do not confuse `max_retry_count` with the parameter of the same name on hand scanners. Service version 2.6 did, and parked
parcels after 1.4 seconds for six weeks (SB-2026-01).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

LIMITS: dict[str, tuple[int, int]] = {
    "max_retry_count": (1, 8),
    "backoff_ms": (50, 1000),
    "heartbeat_lost_s": (5, 120),
    "parcel_window_ms": (200, 3000),
    "keep_parked_h": (1, 24),
    "drift_limit_ms": (500, 10_000),
}


class SettingError(ValueError):
    """A parameter that does not exist or lies outside its limits."""


@dataclass(frozen=True)
class Settings:
    max_retry_count: int = 5
    backoff_ms: int = 200
    heartbeat_lost_s: int = 15
    parcel_window_ms: int = 800
    keep_parked_h: int = 4
    drift_limit_ms: int = 2000
    noread_limit_pct: float = 2.0

    def longest_wait_ms(self) -> int:
        """Sum of all waits: doubled after each attempt, 6200 ms with the defaults."""
        return self.backoff_ms * ((1 << self.max_retry_count) - 1)


def parse_settings(raw: Mapping[str, str]) -> Settings:
    """Turn `name=value` pairs of a site's sheet into settings; an unknown name is an error, never ignored."""
    known = {field.name for field in fields(Settings)}
    settings = Settings()
    for name, text in raw.items():
        if name not in known:
            raise SettingError(f"no parameter {name!r}; known are {', '.join(sorted(known))}")
        value = float(text) if name == "noread_limit_pct" else int(text)
        low, high = LIMITS.get(name, (0, 100))
        if not low <= value <= high:
            raise SettingError(f"{name} must lie between {low} and {high}, not {value}")
        checked: dict[str, Any] = {name: value}
        settings = replace(settings, **checked)
    return settings
