"""From the counters of a shift to drafts of claims.

A draft is not a claim: somebody at the claims desk has to read it. The rules are few and in one place, because adjusters ask for the reason of a
draft more often than for the draft.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from scangate.approvals import Role, who_approves

WARRANTY_MONTHS = ((date(2026, 4, 1), 24), (date(2023, 1, 1), 18), (date.min, 12))
"""(delivered from, months), newest first. The date of delivery decides, not the date of the failure."""

WINDOW_PRICE_EUR = 186.0


@dataclass(frozen=True)
class Shift:
    tunnel: str
    delivered: date
    ended: date
    parcels: int
    no_reads: int
    falling_cameras: frozenset[str]
    screwdriver_number: str | None


@dataclass(frozen=True)
class Draft:
    tunnel: str
    claim_type: str
    amount_eur: float
    approver: Role
    reason: str


def warranty_months(delivered: date) -> int:
    return next(months for since, months in WARRANTY_MONTHS if delivered >= since)


def in_warranty(delivered: date, on: date) -> bool:
    months = (on.year - delivered.year) * 12 + on.month - delivered.month - (on.day < delivered.day)
    return months < warranty_months(delivered)


def triage_shift(shift: Shift, noread_limit_pct: float) -> Draft | None:
    """A draft if the read rate was missed by one camera alone. All cameras falling together means labels, which nobody pays for."""
    if shift.parcels < 500 or 100 * shift.no_reads / shift.parcels <= noread_limit_pct:
        return None
    if len(shift.falling_cameras) != 1:
        return None
    camera = next(iter(shift.falling_cameras))
    if not in_warranty(shift.delivered, shift.ended):
        return None
    if shift.screwdriver_number is None:
        return Draft(shift.tunnel, "G1", WINDOW_PRICE_EUR / 2, who_approves(WINDOW_PRICE_EUR / 2), f"{camera}: no screwdriver number")
    return Draft(shift.tunnel, "W1", WINDOW_PRICE_EUR, who_approves(WINDOW_PRICE_EUR), f"{camera}: window, warranty")
