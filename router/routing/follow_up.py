"""`and in the North?` after `How many claims were filed in the South last year?`: the whole question that was meant.

Only what follows from the words is resolved: one value, period, number or grouping of the earlier question gives way to another
of the same kind, or is added where the earlier question had none. Everything else is None, and the line asks a permitted model
or asks back: a guess here would be answered as if it had been asked.

What the words may stand for comes from outside as `kind_of`, built from the caller's own vocabulary, so that a name that is not
granted is a word like any other. Periods, identifiers, numbered things and `top 5` are recognised here.

INVARIANT: what is not resolved for certain is not resolved (tests/unit/test_routing_follow_up.py::test_near_misses).
INVARIANT: nothing enters the resolved question but the caller's own words and `in`, `that are` (…::test_only_words_of_the_questions).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

KindOf = Callable[[str], str | None]
"""Lower-case words -> the field whose stored value they are (`claims.region`), `FIELD` for the name of a field to group by,
None for everything else."""
FIELD = "field"
PERIOD = "period"

MAX_CHARS, MAX_WORDS = 1_000, 60
MAX_FRAGMENT_WORDS = 8
MAX_VALUE_WORDS = 5
MAX_EARLIER = 10


@dataclass(frozen=True, slots=True)
class Resolved:
    """`changes` are (what stood there, what stands there now); the first is empty where something was added."""

    question: str
    changes: tuple[tuple[str, str], ...]


def resolve(earlier: Sequence[str], question: str, kind_of: KindOf) -> Resolved | None:
    """The question that `question` is after the `earlier` ones, oldest first; None where it stands alone or is not certain."""
    if not earlier:
        return None
    whole = ""
    for one in earlier[-MAX_EARLIER:]:
        done = _resolve_one(whole, one, kind_of) if whole else None
        whole = done.question if done else "" if _leans(one, first=not whole) else one
    return _resolve_one(whole, question, kind_of) if whole else None


def _resolve_one(whole: str, question: str, kind_of: KindOf) -> Resolved | None:
    fragment = _fragment(question)
    if fragment is None or len(whole) > MAX_CHARS or len(whole.split()) > MAX_WORDS:
        return None
    parts = _parts(fragment, kind_of)
    if not parts:
        return None
    text, changes = whole, []
    for part in parts:
        done = _put(text, part, kind_of)
        if done is None:
            return None
        text, change = done
        changes.append(change)
    return None if text == whole else Resolved(text, tuple(changes))


_BACK = re.compile(
    r"\b(?:it|its|they|them|their|those|these|he|she|him|his|her|(?:this|that|the (?:same|other)) one|the same)\b", re.IGNORECASE
)
_BARE = re.compile(
    r"\W*(?:and\s+|but\s+)?(?:why|why not|how|how so|how come|who|whose|where|when|since when|until when|by whom|what for|which|which ones?)\W*",
    re.IGNORECASE,
)
"""A question word and nothing else."""
_LED = re.compile(r"\b(?:what|how) about\b|\bthe same\b|\binstead\b", re.IGNORECASE)


def leans(question: str) -> bool:
    """Whether the question, with others before it, is no question by itself: `and on the wrapper?`."""
    lead = _LEAD.match(question[:MAX_CHARS].strip())
    led = lead.group().strip() if lead else ""
    if _LED.search(led):
        return True
    return _fragment(question) is not None and (bool(led) or len(question.split()) <= 3)


def goes_on(question: str) -> bool:
    """Whether it begins as what follows another question and is none by itself: `and in the North?`. What is asked `about` can be
    looked for."""
    led = re.match(r"\s*(?:and|or|but|then)\b(?!.*\b(?:what|how) about\b)", question, re.IGNORECASE)
    return _BARE.fullmatch(question) is not None or (led is not None and leans(question))


def points_back(question: str) -> bool:
    """Whether a word of it stands for something in the questions before."""
    return _BACK.search(question[:MAX_CHARS]) is not None


# --- the elliptical question ------------------------------------------------------------------------------------------

_LEAD = re.compile(
    r"^(?:(?:ok(?:ay)?|so|and|but|now|then|also|well|right|alright|please|,)\s*,?\s+)*"
    r"(?:(?:what|how) about|(?:do )?(?:the )?same (?:thing |question )?(?:but |just )?(?=for|in|by|per|at|with|of|on|only|from|since)"
    r"|make (?:it|that)|show (?:it|that|them|me that)|instead)?\s*,?\s*",
    re.IGNORECASE,
)
_TAIL = re.compile(
    r"(?:[,\s]+(?:then|instead|too|as well|please|again|this time|only|now|alone|rather))*\s*[?.!…]*\s*$", re.IGNORECASE
)
_VERBAL = re.compile(
    r"\b(?:is|are|was|were|be|been|do|does|did|has|have|had|can|could|may|might|must|should|will|would|why|how|who|whom|whose|what"
    r"|when|where|which|if|because|explain|describe|list|count|find|give|tell|compare|calculate|sort|rank|it|they|them|this one"
    r"|that one|those|these|there|i|we|you|not|no|except|excluding|without|besides|other|others|both|either|neither|all|any|none"
    r"|before that|after that|more|less|fewer|than)\b",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:the|a|an|our|my)\s+", re.IGNORECASE)
_ONES = re.compile(r"\s+ones?$", re.IGNORECASE)
_ONLY = re.compile(r"^(?:only|just)\s+", re.IGNORECASE)
_GROUPING = re.compile(r"^(?:(?:grouped |split |broken down )?by|per|for each|for every)\s+", re.IGNORECASE)
_PREPOSITION = re.compile(r"^(?:in|for|at|from|of|on|with|within|during|to|over)\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Part:
    """One thing that the elliptical question says. `preposition` is the caller's own, with its article, where there is one."""

    words: str
    kind: str
    preposition: str = ""
    only: bool = False


def _fragment(question: str) -> str | None:
    """What is left when lead-ins and tails are off; None where a question of its own is left."""
    if len(question) > MAX_CHARS:
        return None
    lead = _LEAD.match(question.strip())
    rest = _TAIL.sub("", question.strip()[lead.end() if lead else 0 :]).strip(" ,")
    if not rest or len(rest.split()) > MAX_FRAGMENT_WORDS or _VERBAL.search(_PERIODS.sub(" ", rest)):
        return None
    return rest


def _leans(question: str, *, first: bool) -> bool:
    """On an earlier question, whether it can be resolved or not. The first one leans only where it says so: `claims by region`."""
    lead = _LEAD.match(question[:MAX_CHARS].strip())
    led = bool(lead and lead.group().strip())
    return led or (not first and _fragment(question) is not None and len(question.split()) <= 3)


def _parts(fragment: str, kind_of: KindOf) -> list[_Part]:
    """The fragment as one part, or as a period beside one other; empty where a word is left that stands for nothing."""
    whole = _part(fragment, kind_of)
    if whole:
        return [whole]
    found = list(_PERIODS.finditer(fragment))
    if len(found) != 1:
        return []
    at = found[0]
    period = _part(at.group(), kind_of)
    rest = f"{fragment[: at.start()]} {fragment[at.end() :]}".strip(" ,")
    other = _part(rest, kind_of)
    return [other, period] if other and period else []


def _part(text: str, kind_of: KindOf) -> _Part | None:
    only = bool(_ONLY.match(text))
    bare = _ONLY.sub("", text.strip())
    if _PERIODS.fullmatch(bare):
        return _Part(bare, PERIOD, only=only)
    if grouped := _GROUPING.match(bare):
        words = _ARTICLE.sub("", bare[grouped.end() :])
        return _Part(words, FIELD, grouped.group().strip()) if kind_of(words.lower()) == FIELD else None
    preposition = None if kind_of(bare.lower()) else _PREPOSITION.match(bare)  # a value may begin with one: `on hold`
    words = _ONES.sub("", _ARTICLE.sub("", bare[preposition.end() if preposition else 0 :]))
    kind = _kind(words, kind_of)
    if kind is None or kind == FIELD:
        return None
    led = bare[: bare.rfind(words)].strip() if preposition else ""
    return _Part(words, kind, led, only)


# --- kinds ------------------------------------------------------------------------------------------------------------

_MONTH = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?"
    "|dec(?:ember)?"
)
_MOMENT = rf"(?:(?:{_MONTH})(?: (?:19|20)\d\d)?|q[1-4](?: (?:19|20)\d\d)?|(?:19|20)\d\d(?:-\d\d(?:-\d\d)?)?)"
_UNIT = r"(?:day|week|month|quarter|year|season|fiscal year)s?"
_PERIODS = re.compile(
    rf"(?:\b(?:in|during|for|over|since|until|before|after|from|of|on|within)(?: the)? )?"
    rf"\b(?:between {_MOMENT} and {_MOMENT}|{_MOMENT} (?:to|until|through) {_MOMENT}"
    rf"|(?:the )?(?:last|past|previous|this|next|current)(?: \d+)? {_UNIT}|yesterday|today|tomorrow|so far this year"
    rf"|year to date|{_MOMENT}|\d+ {_UNIT} ago)(?!-)\b",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"^([a-z]+(?: [a-z]+)?) (?:no\.? |number )?#?\d+[a-z]?$")
_CODE = re.compile(r"^([a-z]+)[-_/ ]?\d[\w\-/]*$")
_TOP = re.compile(r"^(top|bottom|first|last|latest|worst|best) \d+$")


def _kind(words: str, kind_of: KindOf) -> str | None:
    """What may give way to what: two things of one kind may."""
    lower = " ".join(words.lower().split())
    if not lower or len(lower.split()) > MAX_VALUE_WORDS:
        return None
    if known := kind_of(lower):
        return known
    if top := _TOP.match(lower):
        return f"rank {top[1]}"
    if code := _CODE.match(lower):
        return f"code {code[1]}"
    if numbered := _NUMBERED.match(lower):
        return f"numbered {numbered[1]}"
    return None


# --- the earlier question ---------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"[^\s,?!;:()\"“”]*[^\s,?!;:()\"“”.]")
_REFUSING = re.compile(
    r"\b(?:not|no|except|excluding|without|besides|than|versus|vs\.?|other than|apart from|neither|nor|unlike)"
    r"(?: (?:in|for|at|from|of|the|a|an))*\s*$",
    re.IGNORECASE,
)
_JOINED = re.compile(r"^\s*(?:,|and|or|to|versus|vs\.?|with|than)\s+(?:the\s+)?", re.IGNORECASE)
_BY = re.compile(r"\b(?:by|per|for each|for every)(?: the)?\s+$", re.IGNORECASE)
_END = re.compile(r"\s*[?.!]*\s*$")


def _put(whole: str, part: _Part, kind_of: KindOf) -> tuple[str, tuple[str, str]] | None:
    """The question with the part in place of the one of its kind, or added; None where more than one place would do."""
    places = list(_places(whole, part, kind_of))
    if len(places) > 1:
        return None
    new = _spoken(part)
    if not places:
        return _add(whole, part, new)
    start, end = places[0]
    if _REFUSING.search(whole[:start]) or _is_joined(whole, start, end, kind_of):
        return None
    old = whole[start:end]
    if old.lower() == new.lower():
        return None
    if start == 0:
        new = new[:1].upper() + new[1:]
    return whole[:start] + new + whole[end:], (old, new)


def _spoken(part: _Part) -> str:
    """A bare year or month wants a preposition where it stands in a sentence."""
    if part.kind == PERIOD and re.fullmatch(_MOMENT, part.words, re.IGNORECASE):
        return f"in {part.words}"
    return part.words


def _places(whole: str, part: _Part, kind_of: KindOf) -> Iterator[tuple[int, int]]:
    if part.kind == PERIOD:
        yield from (match.span() for match in _PERIODS.finditer(whole))
        return
    tokens = [match.span() for match in _TOKEN.finditer(whole)]
    at = 0
    while at < len(tokens):
        for size in range(min(MAX_VALUE_WORDS, len(tokens) - at), 0, -1):
            start, end = tokens[at][0], tokens[at + size - 1][1]
            words = whole[start:end]
            if _kind(words, kind_of) == part.kind and (part.kind != FIELD or _BY.search(whole[:start])):
                yield start, end
                at += size - 1
                break
        at += 1


def _is_joined(whole: str, start: int, end: int, kind_of: KindOf) -> bool:
    """Stands in a list, of which it is not said whether all of it gives way: `North and Midlands`."""
    behind = _JOINED.match(whole[end:])
    if behind is None:
        return False
    following = _TOKEN.findall(whole[end + behind.end() :])[:1]
    before = _kind(whole[start:end], kind_of)
    return bool(following) and before is not None and before == _kind(following[0], kind_of)


def _add(whole: str, part: _Part, new: str) -> tuple[str, tuple[str, str]] | None:
    """At the end, where the caller's words say how it hangs there."""
    if part.kind == FIELD:
        added = f"{part.preposition} {new}"
    elif part.kind == PERIOD:
        added = new
    elif part.preposition:
        added = f"{part.preposition} {new}"
    elif part.only and not part.kind.startswith(("rank", "code")):
        added = f"that are {new}"
    else:
        return None
    if part.kind in (FIELD, PERIOD) and _has_second_sentence(whole):
        return None
    end = _END.search(whole)
    cut = end.start() if end else len(whole)
    return f"{whole[:cut]} {added}{whole[cut:].rstrip()}", ("", added)


def _has_second_sentence(whole: str) -> bool:
    return bool(re.search(r"[?;.]\s+\S", whole))
