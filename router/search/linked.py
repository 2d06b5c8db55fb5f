"""One hop from what was found: a passage names an incident or a part, and another document that the caller may see is about it.

Pure: what passages name stands with them, what is about it comes from the store under the caller's own filter, and which of it is
handed over is decided by those two alone. A document that is hidden is no subject here, so it neither links nor crowds out.

INVARIANT: what is linked stands behind all that was found and displaces none of it (tests/unit/test_search_linked.py::test_links_come_last).
INVARIANT: hidden documents change no link (tests/e2e/test_linked_noninterference.py::test_hidden_documents_change_no_link).
INVARIANT: passages about a code come first only where the question names one alone (tests/unit/test_search_linked.py::test_one_code_goes_first).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from router.domain import Ranked, Stored
from router.lexicon import read_asked_codes, read_codes

READ = 5
"""Passages whose names are followed, from the best."""
MOST_NAMES = 16
MOST_DOCUMENTS = 3
"""What more documents are about is a topic, and none of them is meant."""


@dataclass(frozen=True, slots=True)
class Linked:
    """A chunk that stands in for its document; `name` is what it is linked by."""

    stored: Stored
    name: str

    @property
    def why(self) -> str:
        return f"linked by {self.name.upper()}"


def names_to_follow(question: str, kept: Sequence[Ranked]) -> tuple[str, ...]:
    """Codes that the best passages are about or name, those that the question names first."""
    codes = [entity for item in kept[:READ] for entity in item.stored.chunk.entities if entity.kind == "code"]
    asked = set(read_codes(question))
    named = dict.fromkeys(entity.name for entity in codes)
    return tuple(sorted(named, key=lambda name: name not in asked))[:MOST_NAMES]


def without_topics(subjects: Sequence[tuple[str, Stored]]) -> list[tuple[str, Stored]]:
    """Of each name there comes one document more than `MOST_DOCUMENTS`, where there are so many: it is then a topic."""
    count = Counter(name for name, _ in subjects)
    return [(name, stored) for name, stored in subjects if count[name] <= MOST_DOCUMENTS]


def choose_linked(
    names: Sequence[str], subjects: Iterable[tuple[str, Stored]], kept: Sequence[Ranked], most: int
) -> tuple[Linked, ...]:
    """At most `most`, one a document, in the order of `names`. `subjects` are the first chunks of documents about each name."""
    there = {item.stored.chunk.document_id for item in kept}
    about: dict[str, list[Stored]] = {name: [] for name in names}
    for name, stored in subjects:
        about[name].append(stored)
    chosen: list[Linked] = []
    for name in names:
        for stored in about[name]:
            if stored.chunk.document_id not in there and len(chosen) < most:
                there.add(stored.chunk.document_id)
                chosen.append(Linked(stored, name))
    return tuple(chosen)


def prefer_subject(question: str, ranked: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """Passages about the one code that the question names come first, each group in its order. Which of a question's words are codes
    the passages in hand say: one that none of them is about is not known."""
    asked = read_asked_codes(question)
    about = [{entity.name for entity in item.stored.chunk.entities if entity.subject} for item in ranked] if asked else []
    known = [name for name in asked if any(name in names for names in about)]
    if len(known) != 1:
        return tuple(ranked)
    first = [item for item, names in zip(ranked, about, strict=True) if known[0] in names]
    rest = [item for item, names in zip(ranked, about, strict=True) if known[0] not in names]
    return (*first, *rest)
