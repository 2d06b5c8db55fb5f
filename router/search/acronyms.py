"""Acronyms as the caller's own documents define them: "Reverse Osmosis (RO)". Neither leg knows that the two are the same.

The first search brings the chunks that speak of the acronym; a definition found in them gives the second search the words, and
the other way round. No list of acronyms is kept: what another caller's documents define does not exist here.

INVARIANT: a definition is only read in what the caller's own search found (tests/unit/test_search_strategies.py::test_acronyms_of_the_callers_own).
INVARIANT: reading takes time linear in the text (tests/unit/test_search_acronyms.py::test_hostile_text_takes_linear_time).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from router.domain import Ranked
from router.search.merge import merge
from router.search.port import Ordered, Part, Query, Searching, Tools, plain

READ = 40
MOST = 3
_ACRONYM = re.compile(r"(?<![\w\-/.])[A-Z][A-Z0-9]{1,6}s?(?![\w\-/])")
_IN_BRACKETS = re.compile(r"\(([A-Z][A-Z0-9]{1,6})s?\)")
_BRACKETED = re.compile(r"\b([A-Z][A-Z0-9]{1,6})s? \(([A-Za-z][A-Za-z0-9 \-]{3,80})\)")
_WORD = re.compile(r"[A-Za-z0-9]+")
_SMALL = frozenset({"of", "and", "the", "for", "in", "to", "on", "a", "an", "at", "by", "with"})


def acronyms(question: str, tools: Tools) -> Searching:
    """The question, and the acronyms in it alone; then the question in the other words, where they were found."""
    short = _spoken(question)
    first = yield (plain(question), *(Query(one, None) for one in short))
    whole = first[0]
    ranked = tools.rank([Part(question, whole.question, merge([(1.0, hits.candidates) for hits in first]))])
    other = rewrite(question, read_definitions(ranked[:READ]))
    if other == question:
        return Ordered(tools.rank([Part(question, whole.question, whole.candidates)]))
    tools.trace.notes.append("acronyms read")
    second = yield (plain(other),)
    if not second:
        return Ordered(ranked)
    merged = merge([(1.0, whole.candidates), *((1.0, hits.candidates) for hits in second)])
    return Ordered(tools.rank([Part(other, second[0].question, merged)]))


def _spoken(question: str) -> list[str]:
    """At least two letters, and no part of an identifier such as ERR-4012."""
    found = (match.group().rstrip("s") for match in _ACRONYM.finditer(question))
    return list(dict.fromkeys(one for one in found if sum(char.isalpha() for char in one) > 1))[:MOST]


def has_acronym(question: str) -> bool:
    """Also where all of it is in capitals, then it has none."""
    return bool(_spoken(question)) and question.upper() != question


def read_definitions(ranked: Sequence[Ranked]) -> dict[str, str]:
    """Acronym to words; of two definitions the one in the better passage."""
    found: dict[str, str] = {}
    for item in ranked:
        for short, words in _defined(f"{item.stored.chunk.title}. {item.stored.chunk.text}"):
            found.setdefault(short, words)
    return found


def _defined(text: str) -> Iterator[tuple[str, str]]:
    for match in _IN_BRACKETS.finditer(text):
        words = _WORD.findall(text[max(0, match.start() - 120) : match.start()])
        meant = _meant(match.group(1), words)
        if meant:
            yield match.group(1), meant
    for match in _BRACKETED.finditer(text):
        words = _WORD.findall(match.group(2))
        if _meant(match.group(1), words) == " ".join(words):
            yield match.group(1), " ".join(words)


def _meant(short: str, words: Sequence[str]) -> str:
    """The last of `words` whose initials spell `short`; small words between them may be passed over."""
    left, at = len(short), len(words)
    while left and at:
        at -= 1
        if words[at][0].upper() == short[left - 1]:
            left -= 1
        elif words[at].lower() not in _SMALL:
            return ""
    return "" if left else " ".join(words[at:])


def rewrite(question: str, definitions: Mapping[str, str]) -> str:
    """The question with the words beside each acronym in it, and the acronym beside each of the words."""
    added: list[str] = []
    lowered = f" {' '.join(_WORD.findall(question.lower()))} "
    short = set(_spoken(question))
    for acronym, words in definitions.items():
        said = f" {' '.join(_WORD.findall(words.lower()))} " in lowered
        if acronym in short and not said:
            added.append(words)
        elif said and acronym not in short:
            added.append(acronym)
    return f"{question} {' '.join(added[:MOST])}" if added else question
