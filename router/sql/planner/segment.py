"""From tokens to pieces: the heaviest way to cover a question with names, values, operator phrases, periods and numbers.

Names of the catalogue and operator phrases weigh more than stored values, so that a value spelled like one of them hijacks
nothing unless it is quoted; longer phrases win over their parts. What nothing covers is an unknown piece and stops the plan.

INVARIANT: every token is in exactly one piece (tests/sql/planner/test_plan_invariants.py::test_every_token_is_in_one_piece).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from router.sql.planner.dates import Period, read_period
from router.sql.planner.index import FieldKey, Index, Meaning, quoted_words
from router.sql.planner.literals import coded
from router.sql.planner.stock import PIECES
from router.sql.planner.tokens import Number, Token, lemma
from router.sql.planner.words import COMPARATIVES, FILLER, GRAINS, LONGEST, PHRASES, SHARES, SUPERLATIVES, UNITS, VERBS

NAME, PART, OPERATOR, VALUE, CODE, FILL, UNKNOWN, EACH_PIECE = 1.0, 0.93, 1.01, 0.9, 0.85, 0.62, -4.0, 0.04


MOST_VALUE_TOKENS = 32
_QUANTITIES = frozenset({"amount", "value", "quantity"})
_WITHIN = frozenset("-&/+")
"""Marks that may stand within a stored value: "pull-cord switch", "Smith & Sons"."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`kind` is `name`, `value`, `quoted`, `number`, `period`, `fill`, `verb`, `superlative`, `comparative`, `grain`, `unit`,
    `unknown`, or what an operator phrase does (`agg:avg`)."""

    kind: str
    at: int
    length: int
    words: str
    meaning: Meaning | None = None
    stored: dict[FieldKey, str] | None = None
    number: Number | None = None
    period: Period | None = None
    literal: str = ""
    derived: bool = False


_AT_START = frozenset(
    "name state list report select identify get see sort order rank record number numbers provide show display find search".split()
)
_DETERMINERS = frozenset("a an the their its his her our your".split())
"""Within a name these say nothing: "below their reorder level" is "below reorder level"."""
_SINGLE = frozenset({"with", "is", "of", "in", "and", "or", "by", "his"})


def segment(tokens: Sequence[Token], index: Index, today: date) -> list[Piece]:
    """The pieces in order. `tokens` are those of `spread`."""
    count = len(tokens)
    best: list[float] = [0.0] * (count + 1)
    chosen: list[Piece | None] = [None] * count
    for at in range(count - 1, -1, -1):
        top = -1e9
        for weight, piece in _at(tokens, at, index, today):
            total = weight - EACH_PIECE + best[at + piece.length]
            if total > top:
                top, chosen[at] = total, piece
        best[at] = top
    pieces: list[Piece] = []
    at = 0
    while at < count:
        found = chosen[at]
        assert found is not None
        pieces.append(found)
        at += found.length
    return pieces


def spread(tokens: Sequence[Token], index: Index) -> Sequence[Token]:
    """ "First and last names" says two names: the shared noun is put where it is meant."""
    out: list[Token] = []
    for at, token in enumerate(tokens):
        out.append(token)
        known = index.phrases.get((token.lemma,))
        if token.kind != "word" or (known is not None and (known.fields or known.datasets)):
            continue
        for step in (1, 2, 3):
            if at + step + 2 > len(tokens):
                break
            if tokens[at + step].low not in ("and", "or", ","):
                break
            other, noun = tokens[at + step + 1], tokens[at + step + 2] if at + step + 2 < len(tokens) else None
            if noun is not None and (token.lemma, noun.lemma) in index.phrases and (other.lemma, noun.lemma) in index.phrases:
                out.append(noun)
                break
    return out


def _at(
    tokens: Sequence[Token], at: int, index: Index, today: date, most: int = MOST_VALUE_TOKENS
) -> Iterator[tuple[float, Piece]]:
    """Everything that may start here, with its weight; values of at most so many tokens."""
    token = tokens[at]
    if token.kind == "quoted":
        yield 2.0, _quoted(token, at, index)
        return
    yield from _operators(tokens, at, index)
    found = read_period(tokens, at, today)
    if found is not None:
        yield found[1] * OPERATOR, Piece("period", at, found[1], found[0].said, period=found[0], number=_year_of(found[0]))
    if token.number is not None:
        yield (0.9 if token.kind == "number" else 0.7), Piece("number", at, 1, token.text, number=token.number)
    yield from _names(tokens, at, index)
    yield from _values(tokens, at, index, today, most)
    stored = coded(token, index)
    if stored:
        yield CODE, Piece("value", at, 1, token.text, stored=stored)
    if token.low in SHARES and at + 1 < len(tokens) and tokens[at + 1].low == "of":
        yield 0.7, Piece("percent", at, 1, token.text)
    if token.low in VERBS and not _noun_like(tokens, at):
        yield 0.6, Piece("verb", at, 1, token.text)
    if token.low in FILLER:
        yield FILL, Piece("fill", at, 1, token.text)
    if token.low in ("%", "percent") and at and tokens[at - 1].number is not None:
        yield 0.9, Piece("percent", at, 1, token.text)
    if (token.low in UNITS and at and tokens[at - 1].number is not None) or (
        token.low in ("$",) and at + 1 < len(tokens) and tokens[at + 1].kind == "number"
    ):
        yield 0.65, Piece("unit", at, 1, token.text)
    if token.lemma in GRAINS:
        yield 0.64, Piece("grain", at, 1, token.text, literal=GRAINS[token.lemma])
    yield from _derived(token, at, index)
    yield UNKNOWN, Piece("unknown", at, 1, token.text)


def _noun_like(tokens: Sequence[Token], at: int) -> bool:
    """ "The reserve": after an article a verb is none, unless it is a participle."""
    return bool(at) and tokens[at - 1].low in ("the", "a", "an") and not tokens[at].low.endswith(("ed", "en", "ing"))


def _quoted(token: Token, at: int, index: Index) -> Piece:
    stored = index.values.get(quoted_words(token.text))
    meaning = index.phrases.get(tuple(token.low.split())) if not stored else None
    return Piece("quoted", at, 1, token.text, stored=stored, literal=token.text, meaning=meaning)


def _year_of(period: Period) -> int | None:
    return period.years[0] if period.bare and period.years else None


_ENDINGS = (
    ("ies", "y"), ("s", ""), ("ese", "e"), ("ese", "a"), ("ese", ""), ("ian", "y"), ("ian", "ia"), ("ian", ""), ("ean", "e"), ("an", "a"),
    ("an", ""), ("n", ""),
)  # fmt: skip


def _derived(token: Token, at: int, index: Index) -> Iterator[tuple[float, Piece]]:
    """A stored value in another form, where the word is nothing else: "republics", "African"."""
    low = token.low
    if token.kind != "word" or len(low) < 5 or (token.lemma,) in index.phrases or (low,) in index.values:
        return
    for ending, instead in _ENDINGS:
        if low.endswith(ending):
            stored = index.values.get((low[: -len(ending)] + instead,))
            if stored is not None:
                yield 0.5, Piece("value", at, 1, token.text, stored=stored, derived=True)
                return


def _operators(tokens: Sequence[Token], at: int, index: Index) -> Iterator[tuple[float, Piece]]:
    table = PHRASES.get(tokens[at].low)
    for size in range(1, min(LONGEST, len(tokens) - at) + 1) if table else ():
        words = tuple(token.low for token in tokens[at : at + size])
        what = table.get(words) if table else None
        if what is None or (size > 1 and _names_a_field(words, index)) or (what == "instock" and words in index.phrases):
            continue
        if size == 1 and words[0] in _AT_START and at and tokens[at - 1].low not in (".", "?", "please", ";", ":", "then"):
            continue
        weight = 0.8 if what in _SINGLE and size == 1 else OPERATOR * size
        yield weight, Piece(what, at, size, " ".join(token.text for token in tokens[at : at + size]))
    low = tokens[at].low
    pair = f"{low} {tokens[at + 1].low}" if at + 1 < len(tokens) else ""
    for size, words_ in ((1, low), (2, pair)):
        if words_ in SUPERLATIVES:
            yield OPERATOR * size, Piece("superlative", at, size, words_, literal=words_)
        if words_ in COMPARATIVES and at + size < len(tokens) and tokens[at + size].low == "than":
            yield OPERATOR * (size + 1), Piece("comparative", at, size + 1, words_ + " than", literal=words_)


def _names_a_field(words: tuple[str, ...], index: Index) -> bool:
    """ "Total amount of" adds up whatever follows, but not where there is an amount, and "units of" counts, but not where there are
    units."""
    counted = (lemma(word) for word in words)
    return any((word in _QUANTITIES or word in PIECES) and (word,) in index.phrases for word in counted)


def _names(tokens: Sequence[Token], at: int, index: Index) -> Iterator[tuple[float, Piece]]:
    longest = min(index.longest.get(tokens[at].lemma, 0), len(tokens) - at)
    words: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    for size in range(1, min(longest + 1, len(tokens) - at) + 1):
        token = tokens[at + size - 1]
        if token.kind == "quoted":
            return
        words = (*words, token.lemma)
        if token.low not in _DETERMINERS:
            bare = (*bare, token.lemma)
        meaning = index.phrases.get(words) or (index.phrases.get(bare) if token.low not in _DETERMINERS else None)
        if meaning is None:
            continue
        exact = bool(meaning.fields or meaning.metrics or meaning.roles or 1.0 in meaning.datasets.values())
        if not exact and size == 1 and words[0] in FILLER:
            continue
        said = " ".join(one.text for one in tokens[at : at + size])
        yield size * (NAME if exact else PART), Piece("name", at, size, said, meaning=meaning)


def _values(tokens: Sequence[Token], at: int, index: Index, today: date, most: int) -> Iterator[tuple[float, Piece]]:
    longest = max(index.longest_value.get(tokens[at].low, 0), index.longest_value.get(tokens[at].lemma, 0))
    words: tuple[str, ...] = ()
    lemmas: tuple[str, ...] = ()
    for size in range(1, min(2 * longest, len(tokens) - at, most) + 1):
        token = tokens[at + size - 1]
        if len(words) == longest:
            return
        if token.kind == "quoted":
            return
        if token.kind == "mark" and token.low != "'s":
            if token.low not in _WITHIN or size == 1:
                return
            continue
        words = (*words, token.low)
        stored = index.values.get(words)
        lemmas = (*lemmas, token.lemma)
        if stored is None and size > 1:  # "heated hoses", "scraper blades 600"
            stored = index.values.get((*words[:-1], token.lemma)) or index.values.get(lemmas)
        if stored is None:
            continue
        said = " ".join(one.text for one in tokens[at : at + size])
        weight = VALUE * size
        if size == 1:
            spelled = any(value == token.text for value in stored.values())
            shouted = spelled and token.text != token.low and (at > 0 or len(tokens) == 1)
            # A verb says nothing by itself, a stored value does: `open` is a status before it is what a shop does.
            common = token.low in FILLER or token.low in PHRASES or token.lemma in GRAINS
            if common and not shouted:
                continue
            weight = 1.03 if common and shouted and (token.text.isupper()) else VALUE
        if token.kind == "number" and size == 1:
            continue
        if size > 1 and reads_otherwise(tokens[at : at + size], said, stored, index, today):
            continue
        yield weight, Piece("value", at, size, said, stored=stored)


def reads_otherwise(tokens: Sequence[Token], said: str, stored: dict[FieldKey, str], index: Index, today: date) -> bool:
    """Whether a value of several words is a part of a question by itself: `by region`, `this year`, `Oakum Paper and status is paid`.
    Such a value is meant only in quotes, or where it is written with the capitals that it is stored with."""
    if all(token.text[:1].isupper() for token in tokens) and said in stored.values():
        return False
    whole = len(tokens)
    reached = [True] + [False] * whole
    for at in range(whole):
        if not reached[at]:
            continue
        for _, piece in _at(tokens, at, index, today, most=whole - 1):
            if piece.kind != "unknown" and not piece.derived:
                reached[min(whole, at + piece.length)] = True
    return reached[whole]
