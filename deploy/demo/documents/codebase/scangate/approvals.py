"""Who must approve an amount given free of charge. Version 3 of the approval limits, in force since 1 February 2026."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    TECHNICIAN = "service technician"
    DEPOT_LEAD = "depot lead"
    REGIONAL_MANAGER = "regional manager"
    HEAD_OF_SERVICE = "head of service"


FREE_OF_CHARGE_EUR = {Role.TECHNICIAN: 400, Role.DEPOT_LEAD: 2_000, Role.REGIONAL_MANAGER: 15_000}


def who_approves(amount_eur: float, earlier_same_serial_eur: float = 0.0) -> Role:
    """The lowest role whose limit covers the case. Cases on one serial number within 30 days are added up."""
    if amount_eur < 0:
        raise ValueError("an amount cannot be negative")
    total = amount_eur + earlier_same_serial_eur
    for role, limit in FREE_OF_CHARGE_EUR.items():
        if total <= limit:
            return role
    return Role.HEAD_OF_SERVICE
