"""The connection to the warehouse system (WMS), as small as it can be: one call that works or does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from scangate.parcels import Parcel


class UplinkError(Exception):
    """The WMS did not take a parcel. `status` is its answer, 0 if there was none."""

    def __init__(self, status: int) -> None:
        super().__init__(f"warehouse system answered {status}" if status else "warehouse system did not answer")
        self.status = status


class Uplink(Protocol):
    def send(self, parcel: Parcel) -> None:
        """Book one parcel or raise `UplinkError`."""


@dataclass
class SimulatedUplink:
    """Answers with the given statuses in turn, then with success. 409 means that the parcel is booked already."""

    statuses: list[int] = field(default_factory=list)
    booked: list[Parcel] = field(default_factory=list)

    def send(self, parcel: Parcel) -> None:
        status = self.statuses.pop(0) if self.statuses else 200
        if status != 200:
            raise UplinkError(status)
        self.booked.append(parcel)
