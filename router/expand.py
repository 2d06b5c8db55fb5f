"""From ranked hits to the passages that are handed over: older versions and mirrors left out, documents mixed, neighbours joined,
cut to a budget. Pure functions over what the caller's filter admitted; the line loads what they ask for and has it rechecked.

Order: `without_superseded`, `fold`, `spread` over all ranked hits; recheck of the first k; `reach`, which says what to load under the
same filter; recheck of what came; `join`; `cut`.

INVARIANT: what is left out, folded or moved depends on the given hits alone, so a hidden document folds nothing
(tests/unit/test_expand.py::test_a_hidden_mirror_folds_nothing; for versions …::test_only_an_admitted_version_supersedes).
INVARIANT: nothing is folded across sources or owners, nor where a number or an identifier differs
(…::test_nothing_folds_across_owners, ::test_a_number_that_differs_keeps_both).
INVARIANT: documents that replace each other are all handed over (…::test_a_circle_replaces_nothing).
INVARIANT: no piece is handed over twice, and every piece is one named chunk of the hit's own document (…::test_no_piece_twice).
INVARIANT: a cut passage is the beginning of what was found, and its place says no more than what is left (…::test_cut_keeps_citations).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from router.domain import Ranked, Span, Stored

Count = Callable[[str], int]

SAME_SHARE = 0.8
"""Shared three-word runs, of all that either has, from which on two texts are one."""
FEWEST_CUT_TOKENS = 24
"""Less than this of a passage says nothing: it is left out instead."""
_RUN = 3
_WORD = re.compile(r"\w+(?:[.\-/:]\w+)*")
_END = re.compile(r"(?<=[.!?:;])[ \t]+|\n")


@dataclass(frozen=True, slots=True)
class Folded:
    """`mirrors` names, by the chunk that stands for them, the documents that hold the same text."""

    kept: tuple[Ranked, ...]
    mirrors: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Reach:
    """Ordinals of one document, both ends included: what `DocStore.siblings` is to be asked for."""

    document_id: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Joined:
    """A hit and the pieces around it, in reading order, the hit among them. `whole` is False once it was cut; `why` says what else
    than a search brought it."""

    ranked: Ranked
    parts: tuple[Stored, ...]
    text: str
    span: Span
    whole: bool = True
    why: tuple[str, ...] = ()

    @property
    def chunk_ids(self) -> tuple[str, ...]:
        return tuple(part.chunk.chunk_id for part in self.parts)


# --- versions and mirrors ---------------------------------------------------------------------------------------------


def without_superseded(ranked: Sequence[Ranked], newer: Iterable[Stored], now: datetime) -> tuple[Ranked, ...]:
    """Without documents of which an admitted one says that it replaces them, from the day on which that one holds.

    `newer` is what `DocStore.superseding` gave for the documents of `ranked`. A claim counts inside one source and owner. Documents
    that replace each other in a circle replace nothing: somebody mixed them up, and to hide them all would hide that, too.
    """
    now_ms = int(now.timestamp() * 1000)
    given = [*newer, *(item.stored for item in ranked)]
    claims: dict[_Place, set[_Place]] = {}
    for item in given:
        if "supersedes" in item.chunk.meta and _holds(item, now_ms):
            claims.setdefault(_named(item, item.chunk.meta["supersedes"]), set()).add(_named(item, item.chunk.document_id))
    return tuple(item for item in ranked if not _is_replaced(_named(item.stored, item.stored.chunk.document_id), claims))


_Place = tuple[str, str, object]
"""Document, source and owner."""


def _named(item: Stored, document_id: str) -> _Place:
    return document_id, item.chunk.source, _owner(item)


def _is_replaced(one: _Place, claims: Mapping[_Place, set[_Place]]) -> bool:
    """Whether one of those that say so is not itself replaced, in the end, by this one."""
    return any(one not in _above(by, claims) for by in claims.get(one, ()))


def _above(one: _Place, claims: Mapping[_Place, set[_Place]]) -> set[_Place]:
    """It, and all that replace it, or what replaces it."""
    seen, waiting = {one}, [one]
    while waiting:
        more = claims.get(waiting.pop(), set()) - seen
        seen |= more
        waiting += more
    return seen


def _holds(item: Stored, now_ms: int) -> bool:
    since = item.labels.get("effective_from")
    return type(since) is not int or since <= now_ms


def _owner(item: Stored) -> object:
    return item.labels.get("owner")


def fold(ranked: Sequence[Ranked]) -> Folded:
    """One passage for each text that several documents of one source and owner hold: the best ranked stands for the others.

    Two texts are one when nearly all their words agree and every number and identifier does, in title and text: pages that
    differ in a torque or a machine are no mirrors.
    """
    kept: list[Ranked] = []
    mirrors: dict[str, tuple[str, ...]] = {}
    standing: dict[tuple[object, ...], list[tuple[Ranked, frozenset[str]]]] = {}
    for item in ranked:
        chunk = item.stored.chunk
        exact = tuple(sorted(_facts(f"{chunk.title}\n{chunk.text}").items()))
        runs = _runs(chunk.text)
        peers = standing.setdefault((chunk.source, _owner(item.stored), exact), [])
        same = next((other for other, held in peers if _is_mirror(item, runs, other, held)), None)
        if same is None:
            kept.append(item)
            peers.append((item, runs))
        else:
            name = same.stored.chunk.chunk_id
            mirrors[name] = tuple(dict.fromkeys((*mirrors.get(name, ()), chunk.document_id)))
    return Folded(tuple(kept), mirrors)


def _is_mirror(item: Ranked, runs: frozenset[str], other: Ranked, held: frozenset[str]) -> bool:
    if item.stored.chunk.document_id == other.stored.chunk.document_id:
        return False  # a document does not mirror itself: that is what neighbours are for
    shared = len(runs & held)
    return shared >= SAME_SHARE * (len(runs) + len(held) - shared)


def _facts(text: str) -> Counter[str]:
    return Counter(word.casefold() for word in _WORD.findall(text) if any(char.isdigit() for char in word))


def _runs(text: str) -> frozenset[str]:
    words = [word.casefold() for word in _WORD.findall(text)]
    return frozenset(" ".join(words[at : at + _RUN]) for at in range(max(1, len(words) - _RUN + 1)))


# --- diversity --------------------------------------------------------------------------------------------------------


def spread(ranked: Sequence[Ranked], *, per_document: int) -> tuple[Ranked, ...]:
    """At most so many passages of one document before each other document had its turn: the rest follow behind, in order."""
    seen: Counter[str] = Counter()
    first: list[Ranked] = []
    behind: list[Ranked] = []
    for item in ranked:
        document_id = item.stored.chunk.document_id
        seen[document_id] += 1
        (first if seen[document_id] <= per_document else behind).append(item)
    return (*first, *behind)


# --- neighbours and parents -------------------------------------------------------------------------------------------


def reach(kept: Sequence[Ranked], *, neighbours: int = 1, section: int = 0) -> tuple[Reach, ...]:
    """What to load around the passages, one range a document: `neighbours` on each side, or up to `section` pieces on each side
    where those of the hit's own section (its parent) may be wanted, too."""
    around = max(neighbours, section)
    if around <= 0:
        return ()
    ranges: dict[str, tuple[int, int]] = {}
    for item in kept:
        chunk = item.stored.chunk
        low, high = ranges.get(chunk.document_id, (chunk.ordinal, chunk.ordinal))
        ranges[chunk.document_id] = min(low, max(0, chunk.ordinal - around)), max(high, chunk.ordinal + around)
    return tuple(Reach(name, low, high) for name, (low, high) in ranges.items())


def join(kept: Sequence[Ranked], loaded: Iterable[Stored], *, neighbours: int = 1, section: int = 0) -> tuple[Joined, ...]:
    """Each passage with its neighbours, and with the pieces of its section that follow on without a gap.

    `loaded` may leave out anything that a filter or a recheck kept back: a gap ends the passage there. A piece goes to the best
    ranked hit that reaches it, and a hit stays a passage of its own.
    """
    held = {(item.chunk.document_id, item.chunk.ordinal): item for item in loaded}
    taken = {_place(item.stored) for item in kept}
    joined: list[Joined] = []
    for item in kept:
        parts = [item.stored]
        for step in (-1, 1):
            for distance in range(1, max(neighbours, section) + 1):
                document_id, ordinal = _place(item.stored)
                place = document_id, ordinal + step * distance
                piece = held.get(place)
                if piece is None or place in taken or not _wanted(item.stored, piece, distance, neighbours):
                    break
                taken.add(place)
                parts.insert(0 if step < 0 else len(parts), piece)
        joined.append(Joined(item, tuple(parts), _text(parts), _span(parts)))
    return tuple(joined)


def _place(item: Stored) -> tuple[str, int]:
    return item.chunk.document_id, item.chunk.ordinal


def _wanted(hit: Stored, piece: Stored, distance: int, neighbours: int) -> bool:
    return distance <= neighbours or piece.chunk.heading_path == hit.chunk.heading_path


def _text(parts: Sequence[Stored]) -> str:
    text = parts[0].chunk.text
    for part in parts[1:]:
        more = part.chunk.text
        shared = _overlap(text, more)
        gap = "\n" if part.chunk.kind == "code" else "\n\n"
        text = text + more[shared:] if shared else f"{text}{gap}{more}"
    return text


_LEAST_OVERLAP, _MOST_OVERLAP = 12, 600


def _overlap(before: str, after: str) -> int:
    """Characters that the end of one window and the beginning of the next share."""
    most = min(len(before), len(after), _MOST_OVERLAP)
    return next((size for size in range(most, _LEAST_OVERLAP - 1, -1) if before.endswith(after[:size])), 0)


def _span(parts: Sequence[Stored]) -> Span:
    """Page and sheet only where all parts stand on it; lines from the first to the last."""
    spans = [part.chunk.span for part in parts]
    if len(spans) == 1:
        return spans[0]
    lines = [span.lines for span in spans if span.lines is not None]
    around = (min(first for first, _ in lines), max(last for _, last in lines)) if len(lines) == len(spans) else None
    pages, sheets = {span.page for span in spans}, {span.sheet for span in spans}
    return Span(spans[0].page if len(pages) == 1 else None, around, spans[0].sheet if len(sheets) == 1 else None)


def alone(kept: Sequence[Ranked]) -> tuple[Joined, ...]:
    """Each passage as it was found."""
    return tuple(Joined(item, (item.stored,), item.stored.chunk.text, item.stored.chunk.span) for item in kept)


# --- budget -----------------------------------------------------------------------------------------------------------


def cut(joined: Sequence[Joined], *, budget_tokens: int, count: Count) -> tuple[Joined, ...]:
    """As many passages as the budget holds, in order. Hits come before neighbours: what lies around them is left out first, from
    the last passage up; the passage at the border is cut where a sentence or line ends."""
    bare = [count(item.ranked.stored.chunk.text) for item in joined]
    full = [count(item.text) for item in joined]
    left = budget_tokens - sum(bare)
    kept: list[Joined] = []
    spent = 0
    for item, alone, together in zip(joined, bare, full, strict=True):
        more = together - alone
        if more <= left or len(item.parts) == 1:
            chosen, cost = item, together if len(item.parts) > 1 else alone
            left -= more if len(item.parts) > 1 else 0
        else:
            chosen, cost = _alone(item), alone
        if spent + cost > budget_tokens:
            shortened = _shortened(_alone(item), budget_tokens - spent, count)
            return (*kept, shortened) if shortened is not None else tuple(kept)
        kept.append(chosen)
        spent += cost
    return tuple(kept)


def _alone(item: Joined) -> Joined:
    stored = item.ranked.stored
    return replace(item, parts=(stored,), text=stored.chunk.text, span=stored.chunk.span)


def _shortened(item: Joined, room: int, count: Count) -> Joined | None:
    if room < FEWEST_CUT_TOKENS:
        return None
    ends = [match.start() for match in _END.finditer(item.text)]
    low, high = 0, len(ends)
    while low < high:  # the longest beginning that fits; more text never takes fewer tokens
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(item.text[: ends[middle - 1]]) <= room else (low, middle - 1)
    text = item.text[: ends[low - 1]].rstrip() if low else ""
    if count(text) < FEWEST_CUT_TOKENS:
        return None
    return replace(item, text=text, span=_cut_span(item, text), whole=False)


def _cut_span(item: Joined, text: str) -> Span:
    """Lines of code are lines of the file, so they can be counted; where they cannot, the place stays that of the whole piece."""
    lines = item.span.lines
    if lines is None or item.ranked.stored.chunk.kind != "code":
        return item.span
    return replace(item.span, lines=(lines[0], min(lines[1], lines[0] + text.count("\n"))))
