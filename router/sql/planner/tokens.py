"""A question as tokens: words with their lemma, numbers with their value, quoted strings whole, codes whole.

Names of the catalogue, stored values and questions go through the same function, so that they meet whatever its rules are.

INVARIANT: time is linear in the text and no text raises (tests/sql/planner/test_plan_hostile.py::test_any_text_is_answered_or_declined).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Literal

from router.sql.planner.words import ABBREVIATIONS, CONTRACTIONS, IRREGULAR, NUMBER_WORDS

Number = int | Decimal
Kind = Literal["word", "number", "quoted", "mark"]

_TOKEN = re.compile(
    r"""
      "(?P<q1>[^"\n]{1,200})" | “(?P<q2>[^”\n]{1,200})” | ‘(?P<q3>[^’\n]{1,200})’
    | (?<![\w])'(?P<q4>[^'\n]{1,200})'(?!\w)
    | (?P<date>\d{4}-\d{1,2}-\d{1,2}(?!\d)|\d{1,2}/\d{1,2}/\d{4}(?!\d))
    | (?P<mail>[\w.+-]{1,64}@[\w.-]{1,64}\w)
    | (?P<code>(?=[A-Za-z\d_\-/]{0,40}\d)(?=[\d_\-/]{0,40}[A-Za-z])[A-Za-z\d]+(?:[_\-/][A-Za-z\d]+)*(?![\w]))
    | (?P<num>(?:(?<![\w)])-)?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,15}(?!\d))(?:\.\d{1,9}(?!\d))?)
    | (?P<nt>[A-Za-z]{2,6}n['’]t\b)
    | (?P<word>[^\W\d_]+(?:\.(?=[^\W\d_]\b)[^\W\d_])*)
    | (?P<poss>['’]s\b|(?<=s)['’](?=\s))
    | (?P<mark><=|>=|<>|!=|[<>=%,;:?.&$])
    | (?P<other>\S)
    """,
    re.VERBOSE,
)
_SCALED = re.compile(r"(\d+(?:\.\d+)?)(k|m|bn|st|nd|rd|th)", re.IGNORECASE)
_SCALE = {"k": 1_000, "m": 1_000_000, "bn": 1_000_000_000}
_PLURAL = re.compile(r"\b([A-Z]{2,})s\b")
_NAME_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Token:
    """`low` is the folded text, `lemma` the singular; `number` the value of figures and of number words.

    `said`: how the question spells it, where it was put in other words."""

    text: str
    low: str
    lemma: str
    kind: Kind
    number: Number | None = None
    said: str | None = None

    @property
    def spelled(self) -> str:
        return self.text if self.said is None else self.said


def tokenise(text: str) -> tuple[Token, ...]:
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        found.extend(_tokens(match))
    return tuple(found)


def _tokens(match: re.Match[str]) -> list[Token]:
    group, text = match.lastgroup or "other", match.group()
    if group in ("q1", "q2", "q3", "q4"):
        inner = match.group(group).strip()
        return [Token(inner, inner.casefold(), inner.casefold(), "quoted")]
    if group == "num":
        return [Token(text, text, text, "number", _number(text))]
    if group == "poss":
        return [Token("'s", "'s", "'s", "mark", said=text)]
    low = text.casefold()
    if group == "nt":
        return [_word(part, part.casefold()) for part in CONTRACTIONS.get(low.replace("’", "'"), (text,))]
    if group == "word":
        return [_word(text, low)]
    if group == "code" and (scaled := _SCALED.fullmatch(low)):
        value = Decimal(scaled[1]) * _SCALE.get(scaled[2], 1)
        return [Token(text, low, low, "number", int(value) if value == value.to_integral() else value)]
    return [Token(text, low, low, "mark" if group in ("mark", "other") else "word")]


def _word(text: str, low: str) -> Token:
    plural = len(text) > 2 and text[-1] == "s" and text[:-1].isupper()  # SKUs, IDs
    return Token(text, low, low[:-1] if plural else lemma(low), "word", NUMBER_WORDS.get(low))


def _number(text: str) -> Number:
    plain = text.replace(",", "")
    return Decimal(plain) if "." in plain else int(plain)


@lru_cache(maxsize=16_384)
def lemma(word: str) -> str:
    """The singular of a noun, by rule; other words may come out odd, but always alike."""
    known = IRREGULAR.get(word)
    if known is not None:
        return known
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is", "ics")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zzes", "uses")) and not word.endswith(("houses", "causes", "aches")):
        return word[:-2]
    return word[:-1]


@lru_cache(maxsize=65_536)
def name_words(name: str) -> tuple[str, ...]:
    """A name of the catalogue as lemmas: `maxRetryCount`, `max_retry_count` and "max retry counts" are the same three."""
    return tuple(lemma(part.casefold()) for part in _NAME_PARTS.findall(_PLURAL.sub(r"\1", name)))


def opened(words: tuple[str, ...]) -> tuple[str, ...]:
    """The same name with its abbreviations written out."""
    out: list[str] = []
    for word in words:
        out.extend(ABBREVIATIONS.get(word, (word,)))
    return tuple(out)


def value_words(value: str) -> tuple[str, ...]:
    """A stored text as folded tokens."""
    return tuple(token.low for token in tokenise(value) if token.kind != "mark" or token.low == "'s")
