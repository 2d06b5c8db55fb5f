"""Newer documents first where a source says that this matters: news age, rules do not.

Works on ranks, so that no score has to be comparable between sources. Only the caller's own passages are looked at.

INVARIANT: the result is a permutation (tests/unit/test_search_freshness.py::test_a_permutation).
INVARIANT: passages of other sources keep their order among themselves (…::test_others_keep_their_order).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from router.domain import Ranked

MOST_PLACES = 5
"""How far, in places, the newest passage can rise over one without a date."""
_DAY_MS = 86_400_000


def prefer_recent(ranked: Sequence[Ranked], half_life_days: Mapping[str, float], now: datetime) -> tuple[Ranked, ...]:
    """`half_life_days` by source: after so many days half of the boost is left. Sources that are not named get none."""
    if not half_life_days:
        return tuple(ranked)
    now_ms = int(now.timestamp() * 1000)
    lifts = [_lift(item, half_life_days, now_ms) for item in ranked]
    order = sorted(range(len(ranked)), key=lambda at: (at - MOST_PLACES * lifts[at], at))
    return tuple(ranked[at] for at in order)


def _lift(item: Ranked, half_life_days: Mapping[str, float], now_ms: int) -> float:
    """1 for what is from today, halved with each half-life; 0 where no date is known."""
    days = half_life_days.get(item.stored.chunk.source)
    since = item.stored.labels.get("effective_from")
    if days is None or days <= 0 or type(since) is not int:
        return 0.0
    return float(0.5 ** (max(0, now_ms - since) / _DAY_MS / days))
