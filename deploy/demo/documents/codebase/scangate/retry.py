"""Sending with back-off, and parking what could not be sent.

Known weakness: status 409 (booked already) is treated like any other failure, so that a parked parcel which somebody has booked by hand is
tried again and again. See the incident of 8 October 2026.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from scangate.codes import Code, Event
from scangate.parcels import Parcel
from scangate.settings import Settings
from scangate.uplink import Uplink, UplinkError


def waits_ms(settings: Settings) -> Iterator[int]:
    """200, 400, 800, 1600, 3200 with the defaults: doubled each time, one wait for each retry."""
    for attempt in range(settings.max_retry_count):
        yield settings.backoff_ms * 2**attempt


@dataclass
class ParkingLot:
    """Parcels that could not be handed on, kept for `keep_parked_h` hours until somebody presses *send again*."""

    settings: Settings
    parked: dict[tuple[str, int, int], tuple[int, Parcel]] = field(default_factory=dict)

    def park(self, parcel: Parcel, now_ms: int) -> None:
        self.parked[(parcel.tunnel, parcel.sequence, parcel.first_ms)] = (now_ms, parcel)

    def drop_old(self, now_ms: int) -> int:
        """Forget what is older than the limit; returns how many were forgotten."""
        limit_ms = now_ms - self.settings.keep_parked_h * 3_600_000
        old = [key for key, (since_ms, _) in self.parked.items() if since_ms < limit_ms]
        for key in old:
            del self.parked[key]
        return len(old)


def send_with_retry(
    parcel: Parcel, uplink: Uplink, lot: ParkingLot, now_ms: int, sleep: Callable[[float], None] = time.sleep
) -> Event | None:
    """Try once, then up to `max_retry_count` times more. Returns ERR-9012 when the parcel had to be parked."""
    last = 0
    for wait_ms in [0, *waits_ms(lot.settings)]:
        sleep(wait_ms / 1000)
        try:
            uplink.send(parcel)
        except UplinkError as error:
            last = error.status
        else:
            return None
    lot.park(parcel, now_ms)
    return Event(Code.RETRY_LIMIT, parcel.tunnel, now_ms, f"status {last}")


def send_again(lot: ParkingLot, uplink: Uplink, now_ms: int, sleep: Callable[[float], None] = time.sleep) -> list[Event]:
    """Menu 8: everything that is parked, oldest first. What fails is parked anew."""
    waiting = sorted(lot.parked.values(), key=lambda entry: entry[0])
    lot.parked.clear()
    events = [send_with_retry(parcel, uplink, lot, now_ms, sleep) for _, parcel in waiting]
    return [event for event in events if event is not None]
