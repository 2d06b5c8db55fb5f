"""Joining the reads of several cameras into one parcel.

Sequence numbers restart at midnight and overlap in the hour of the autumn clock change, so that a parcel is found by sequence *and* time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from scangate.reads import Read

NO_READ = ""


@dataclass(frozen=True)
class Parcel:
    tunnel: str
    sequence: int
    first_ms: int
    label: str
    cameras: frozenset[str]

    @property
    def is_no_read(self) -> bool:
        return self.label == NO_READ


def choose_label(reads: Iterable[Read]) -> str:
    """The label that most cameras agree on. A tie between two labels is a no-read: two labels on a parcel are one too many."""
    votes = Counter(read.data for read in reads if read.data)
    ranked = votes.most_common(2)
    if not ranked:
        return NO_READ
    if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
        return NO_READ
    return ranked[0][0]


def join_reads(reads: Iterable[Read], window_ms: int) -> Iterator[Parcel]:
    """Group reads, which arrive in order of time, into parcels. A group closes once a read is later than `window_ms`."""
    open_groups: dict[tuple[str, int], list[Read]] = {}
    for read in reads:
        for key in [key for key, group in open_groups.items() if read.at_ms - group[0].at_ms > window_ms]:
            yield _close(open_groups.pop(key))
        open_groups.setdefault((read.tunnel, read.sequence), []).append(read)
    for group in open_groups.values():
        yield _close(group)


def _close(group: list[Read]) -> Parcel:
    first = group[0]
    return Parcel(first.tunnel, first.sequence, first.at_ms, choose_label(group), frozenset(read.camera for read in group))
