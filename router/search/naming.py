"""What a question names so exactly that its answer has to hold it: codes, numbered things (`tunnel 2`, `zone H`), names of several
words, a month of a year. Near neighbours of such a thing are like it in every score, so they are told apart by letters alone.

Only the question and the passages in hand are looked at: a thing that is hidden and one that does not exist read alike.

INVARIANT: a code is held as it is written, however it is joined, or by a passage that speaks of its whole family (`ERR-52xx`)
(tests/unit/test_search_naming.py::test_a_family_holds_its_members).
INVARIANT: each function takes time linear in its text (…::test_hostile_text_takes_linear_time).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from router.lexicon import STOP_WORDS, identifiers
from router.search.decomposed import clauses

LONGEST = 2_000
"""Characters of a question that are looked at."""

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH_OF_YEAR = re.compile(rf"\b({'|'.join(_MONTHS)}) ((?:19|20)\d\d)\b", re.IGNORECASE)
_YEAR = re.compile(r"(?:19|20)\d\d")
_NUMBERED = re.compile(r"(?<![\w.'’-])([a-z]{3,}) (\d{1,3}|[B-HJ-Z])(?![\w%°$€£/-]|[.,:]\w)(?! ?(?:%|percent))")
"""A word and its number or letter. `I` and `A` are words."""
_NAME = re.compile(r"(?<=[a-z0-9,;] )[A-Z][a-z]+(?: [A-Z][a-z]+)+")
"""Two capitalised words or more that begin no sentence."""
_COUNTED_AFTER = re.compile(
    r" (?!to\b|at\b|in\b|on\b|of\b|for\b|from\b|by\b|with\b|and\b|or\b|is\b|are\b|was\b|be\b|do\b|does\b)[a-z]{3,}s\b"
)
"""`within 15 minutes`, `needs 4 bolts`: what is counted stands behind, and the word before names nothing."""
_NO_THING = STOP_WORDS | frozenset(
    """
    than least most top first last next past previous around exactly nearly almost within until since till per every another get
    got use used using say says make made take made want need set via ago back has have had are was were cost costs pay pays
    """.split()
) | frozenset(_MONTHS)  # fmt: skip

_CODE = r"[A-Za-z]{1,8}[-_ ]?\d{1,8}"
_WILD = re.compile(rf"\b({_CODE})([xX]{{1,6}}|[*#…]|\.\.\.)(?!\w)")
_BEGINNING = re.compile(rf"\b(?:begin|start)(?:s|ning|ing)? with [`\"'“‘]?({_CODE})\b", re.IGNORECASE)
_RANGE = re.compile(
    r"\b([A-Za-z]{1,8}[-_ ]?)(\d{1,8}) ?(?:to|through|until|–|—|-|\.\.\.?|…) ?(?:([A-Za-z]{1,8}[-_ ]?))?(\d{1,8})\b"
)
_WORD = re.compile(r"[^\W\d_]+")
_JOINTS = re.compile(r"[-_./ ]")


@dataclass(frozen=True, slots=True)
class Held:
    """One passage, as it is looked through."""

    lowered: str
    joined: str
    families: tuple[tuple[str, str], ...]
    """(first, last) of codes that it speaks of together, joined and in small letters."""


def read_passage(text: str) -> Held:
    return Held(text.lower(), join_parts(text), tuple(_families(text)))


def join_parts(text: str) -> str:
    return _JOINTS.sub("", text.lower())


def named_things(text: str) -> list[str]:
    """In small letters, once each: what `identifiers` finds, numbered things, names, months of years. A year alone need not stand in
    its answer."""
    text = text[:LONGEST]
    found = [name for name in identifiers(text) if not _YEAR.fullmatch(name)]
    for match in _NUMBERED.finditer(text):
        word, number = match.groups()
        counted = number.isdigit() and _COUNTED_AFTER.match(text, match.end())
        if word not in _NO_THING and not word.endswith(("ed", "ing", "ly")) and not counted:
            found.append(f"{word} {number}".lower())
    found += [f"{month} {year}".lower() for month, year in _MONTH_OF_YEAR.findall(text)]
    if not _is_headline(text):
        found += [match.lower() for match in _NAME.findall(text)]
    return list(dict.fromkeys(found))


def _is_headline(text: str) -> bool:
    """Where most words are capitalised, capitals tell no name."""
    words = _WORD.findall(text)
    return bool(sum(word[0].isupper() for word in words) * 2 > len(words))


def share_held(text: str, passages: Sequence[Held]) -> float:
    """How much of what the question names stands together in one passage, as a mean over the questions that the text holds; one that
    names nothing counts as 1. Squared: what holds one of two things that are named is about another matter."""
    parts = [named_things(clause) for clause in clauses(text[:LONGEST])]
    return sum(max((_share(one, names) for one in passages), default=0.0) ** 2 if names else 1.0 for names in parts) / len(parts)


def _share(passage: Held, names: Sequence[str]) -> float:
    return sum(holds(passage, name) for name in names) / len(names)


def holds(passage: Held, name: str) -> bool:
    first, _, last = name.rpartition(" ")
    if not first:
        return name in passage.lowered or holds_code(passage, name)
    if first in _MONTHS:
        number = f"{_MONTHS.index(first) + 1:02d}"
        return f"{last}-{number}" in passage.lowered or (first in passage.lowered and last in passage.lowered)
    spaced = r"\W+".join(re.escape(word) for word in name.split(" "))
    return bool(re.search(rf"(?<!\w){spaced}(?!\w)", passage.lowered))


def holds_code(passage: Held, name: str) -> bool:
    code = join_parts(name)
    return code in passage.joined or any(_is_member(code, low, high) for low, high in passage.families)


def _is_member(code: str, low: str, high: str) -> bool:
    return code.startswith(low) if not high else len(code) == len(low) and low <= code <= high


def _families(text: str) -> Iterator[tuple[str, str]]:
    """Codes that a text speaks of together: `ERR-52xx`, `ERR-52*`, `beginning with ERR-52`, `ERR-5200 to ERR-5299`. One without an
    end holds whatever begins like it."""
    for code, rest in _WILD.findall(text):
        low = join_parts(code)
        if "x" in rest.lower():
            yield low + "0" * len(rest), low + "9" * len(rest)
        else:
            yield low, ""
    for code in _BEGINNING.findall(text):
        yield join_parts(code), ""
    for letters, first, again, last in _RANGE.findall(text):
        if len(first) == len(last) and (not again or join_parts(again) == join_parts(letters)):
            yield join_parts(letters) + first, join_parts(letters) + last
