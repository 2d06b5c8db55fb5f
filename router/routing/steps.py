"""A table question whose number is only described: documents have to say it before anything can be compared.

"How many open claims are above the amount that a technician may give away?" has a table question and a description without a
number. Here is only wording, and what the caller's catalogue says of its fields; what is found, and by whom it may be seen, is the
business of `router/seeded.py`.

INVARIANT: a filled question is the caller's own words, a number and a unit in the router's spelling, and a name of the caller's
catalogue: nothing of a document stands in it (tests/unit/test_routing_steps.py::test_a_hostile_document_gives_a_number_or_nothing).
INVARIANT: a number is compared only with a field that the catalogue says to be in its unit (…::test_a_number_meets_its_own_unit_only).
INVARIANT: a comparison that names its number, its field or an average is no description (…::test_near_misses_are_no_descriptions).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from router.catalog import Catalog, Dataset, DatasetField
from router.routing.gates import content_tokens
from router.routing.numerals import DURATIONS, Kind, Quantity, kinds_in, unit_kind, units_in
from router.routing.quantities import is_generic, stem

LONGEST_QUESTION = 600


@dataclass(frozen=True, slots=True)
class Described:
    """`rows` is what is counted or listed, `op` the comparison in a spelling of the planner's, `as_said` the words up to the
    description. `noun` is what the description calls the number, where that could be a field. `wanted` are the kinds of quantity
    that could answer, empty where any could."""

    rows: str
    op: str
    description: str
    as_said: str
    noun: str = ""
    wanted: frozenset[Kind] = frozenset()


_OPS = {
    "above": "above over beyond exceed exceeds exceeding exceeded|more than|greater than|higher than|larger than|bigger than",
    "below": "below under|less than|lower than|smaller than|fewer than|short of",
    "at least": "reach reaches|at least|not below|not under|no less than|not less than|no fewer than",
    "at most": "within|at most|not above|not over|not exceed|not exceeding|no more than|not more than|up to",
}
_CANONICAL = {
    phrase: op
    for op, words in _OPS.items()
    for group, said in enumerate(words.split("|"))
    for phrase in (said.split() if group == 0 and op != "at most" else [said])
}
_COMPARATIVES = "older|younger|newer|longer|shorter"
_BY_DAYS = ("older than", "younger than", "newer than")
_MEASURED = re.compile(
    r"\b(?:in\s+)?(?:kg|kilograms?|kilos?|grams?|tonn?es?|lbs?|mm|cm|met(?:re|er)s?|km|kilomet(?:re|er)s?|miles?|lit(?:re|er)s?|seconds?|ms|volts?|"
    r"amperes?|watts?|kw|kwh|bar|celsius|degrees?|newton|nm|chf|yen|cents?|thousands?|millions?|share|ratio)\b",
    re.IGNORECASE,
)
"""Units that no number is read in: a field in one of them is no plain count."""
_UNITS = r"days|hours|weeks|months|years|minutes|euros?|dollars|pounds|per ?cent|%"
_COMPARES = re.compile(
    rf"\b(?:(?P<unit>(?:more|fewer|less|longer)\s+(?:{_UNITS})(?:\s+of\s+\w+)?\s+than)|(?P<own>(?:{_COMPARATIVES})\s+than)|"
    rf"(?P<op>{'|'.join(sorted((re.escape(phrase).replace(chr(92) + ' ', chr(92) + 's+') for phrase in _CANONICAL), key=len, reverse=True))}))"
    r"\s+(?=\S)",
    re.IGNORECASE,
)
_COPULA = re.compile(
    r"[\s,]+(?:(?:that|which|who)\s+)?(?:(?:is|are|was|were|be|do|does|did|have|has|had|lie|lies|stand|stands|cost|costs|go|goes|run|"
    r"runs|last|lasts|lasted|take|takes|took|been)\s*)*$",
    re.IGNORECASE,
)
_TAIL = re.compile(
    r"\s+(?:are|is|were|was)\s+there\b|\s+(?:do|did|does)\s+(?:we|i|you|they)\s+have\b|\s+have\s+we\b", re.IGNORECASE
)
_ASKS_ROWS = re.compile(
    r"\b(?:how\s+many|how\s+much|which|what|list|show|name|count|number\s+of|give\s+me|find|who)\b", re.IGNORECASE
)

_HEADS: dict[str, tuple[Kind, ...]] = {
    **dict.fromkeys("amount sum price cost value budget fee charge".split(), ("money", "count")),
    **dict.fromkeys("deadline period time term notice age duration".split(), tuple(DURATIONS)),
    **dict.fromkeys("share percentage rate".split(), ("percent",)),
    **dict.fromkeys("number count quantity".split(), ("count",)),
    **dict.fromkeys(
        "limit limits maximum minimum threshold ceiling cap quota allowance level mark bar target discount".split(), ()
    ),
}
"""What a description may call its number, and which kinds of quantity that could be (none: any)."""
_FIELD_HEADS = frozenset("amount sum price cost value budget fee charge age duration quantity discount".split())
"""Heads that a field could be called by."""
_MAY = r"may|can|could|must|should|is\s+allowed|are\s+allowed|is\s+permitted|are\s+permitted|needs?\s+no|has\s+to|have\s+to"
_RULES = (
    r"(?:rules?|policy|policies|handbook|guidelines?|contract|agreement|law|regulations?|manual|terms|warranty|bulletin|standard)"
)
_SETS = r"(?:allows?|permits?|sets?|says?|require[sd]?|demands?|foresees?|grants?|states?|lays?\s+down|prescribes?|names?|gives?|calls?\s+for)"
_HEAD = re.compile(rf"(?<!free of )\b(?P<head>{'|'.join(_HEADS)})\b", re.IGNORECASE)
_OF_IT = re.compile(rf"(?<!^)\b(?:that|which|who|for|in|by|at|on|to|set|given|an|a|we|they|you|i|{_MAY})\b", re.IGNORECASE)
_MODAL = re.compile(rf"\b(?:{_MAY})\b", re.IGNORECASE)
_BY_RULES = re.compile(rf"\b{_RULES}\b.*\b{_SETS}\b|\b{_SETS}\s+(?:by|in)\s+.*\b{_RULES}\b", re.IGNORECASE)
_DETERMINED = re.compile(r"^(?:the|our|their|its|what|whatever|a|an|any|my|this|that)\b|^\w+['\u2019]s\b", re.IGNORECASE)
_NEW_QUESTION = re.compile(r"(?:[?!;.]|\b(?:and|or|but|also|then))[\s,]*$|[?!;]", re.IGNORECASE)
"""Before a comparison: it begins a question of its own, "How many claims are open, and up to which amount may ...?"."""
_INVERTED = re.compile(rf"(?:which|whose)\b|what\s+(?:{'|'.join(_HEADS)})\s+(?:{_MAY})\b", re.IGNORECASE)
_PERIODS = frozenset("period time term duration".split())
_NUMBER = re.compile(r"(?<![\w-])[-+]?\d|\b(?:average|mean|median|sum\s+of\s+all|last|previous|next)\b", re.IGNORECASE)
_PLACE = re.compile(
    r"\b(?:in|at|from|since|during|before|after|for|by)\s+(?:the\s+)?(?P<thing>[\w-]+(?:\s+[\w-]+)?)\s*$", re.IGNORECASE
)


def parse_described(text: str) -> Described | None:
    """None where nothing is compared with a description. The earliest comparison whose other side is one."""
    text = " ".join(text.split()).rstrip(" ?.!")
    if not text or len(text) > LONGEST_QUESTION:
        return None
    for match in _COMPARES.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        if not _ASKS_ROWS.search(before) or _NEW_QUESTION.search(before):
            continue
        tail = _TAIL.search(after)
        description = (after[: tail.start()] if tail else after).strip(" ,;")
        if not _describes(description) or ((match["op"] or "").lower() == "over" and _head(description) in _PERIODS):
            continue  # "over the period that ..." is said of a time, and compares nothing
        rest = f" {after[tail.end() :].strip()}" if tail else ""
        return _described(match, before, description, rest.rstrip())
    return None


def _describes(words: str) -> bool:
    """Whether it is a description of a number that a rule sets: it names a limit, or says what somebody may, or what rules allow."""
    if not words or _NUMBER.search(words) or "?" in words or ";" in words or _INVERTED.match(words):
        return False
    if _MODAL.search(words) or _BY_RULES.search(words):
        return True
    head = _head(words)
    if head is None or _DETERMINED.match(words) is None:
        return False
    # "the amount of CLM-1" is a cell, "the limit" alone says of nothing; "the approval limit" and "the limit for fitters" do
    before, _, rest = words.lower().partition(head)
    said = content_tokens(before) or rest.strip()
    return bool(said) and (not rest.strip().startswith(("of ", "in total")) or head not in _FIELD_HEADS)


def _head(description: str) -> str | None:
    """What the description calls its number: the last such word before what it says of it."""
    if re.match(r"what(?:ever)?\b", description, re.IGNORECASE):
        return None
    phrase = _OF_IT.split(description, maxsplit=1)[0]
    found = [match["head"].lower() for match in _HEAD.finditer(phrase)]
    return found[-1] if found else None


def _described(match: re.Match[str], before: str, description: str, rest: str) -> Described:
    rows = _COPULA.sub("", f"{before.rstrip()} ").strip(" ,") + rest
    head = _head(description) or ""
    wanted = kinds_in(description) or frozenset(_HEADS.get(head, ()))
    if match["own"]:
        op = "below" if match["own"].lower().startswith("shorter") else "above"
        return Described(rows, op, description, f"{before}{match['own']}", wanted=wanted or DURATIONS)
    if match["unit"]:
        more, unit, *of = match["unit"].split()
        kind = unit_kind(unit)
        said = Described(rows, _CANONICAL[f"{more.lower().replace('longer', 'more')} than"], description, f"{before}{more} than")
        return replace(said, noun=" ".join(of[1:-1]), wanted=wanted if kind is None else frozenset({kind}))
    op = _CANONICAL[" ".join(match["op"].lower().split())]
    return Described(rows, op, description, f"{before}{match['op']}", head if head in _FIELD_HEADS else "", wanted)


def searched_words(described: Described) -> str:
    """What step 1 looks for: the description, and what is counted where it says nothing of its own."""
    if any(not is_generic(stem(word)) for word in content_tokens(described.description)):
        return described.description
    return f"{described.description} for {' '.join(content_tokens(described.rows))}"


def ends_in_place(described: Described) -> str | None:
    """`in region West` at the end of a description could be said of the rows as well: the words that it ends in."""
    match = _PLACE.search(described.description)
    return match["thing"] if match else None


def fill(described: Described, quantity: Quantity, catalog: Catalog) -> tuple[str, ...]:
    """The table question with the number in it, likeliest first: each a reading of its own for the planner, which refuses what does
    not fit. Nothing where no field is said to be in what the number is in, or two could be meant, neither of which is what the rows
    are called by."""
    if described.as_said.lower().endswith(_BY_DAYS):
        return (f"{described.as_said} {quantity.words}",) if quantity.kind in DURATIONS else ()
    nouns = [described.noun] if described.noun and _is_in(described, quantity, catalog) else []
    nouns += [noun for noun in _fields(described, quantity, catalog) if noun not in nouns]
    return tuple(f"{described.rows} with {_article(noun)} {noun} {described.op} {quantity.words}" for noun in nouns)


def _article(noun: str) -> str:
    return "an" if noun[0].lower() in "aeiou" else "a"


def _meant(described: Described, catalog: Catalog) -> list[Dataset]:
    words = _stems(described.rows)
    return [one for one in catalog.datasets if words & _called(one)]


def _is_in(described: Described, quantity: Quantity, catalog: Catalog) -> bool:
    """Whether each field that the description's word could mean is said to be in what the number is in."""
    words = _stems(described.noun)
    fields = [one for dataset in _meant(described, catalog) or catalog.datasets for one in dataset.fields]
    exact = [one for one in fields if words in [_stems(name) for name in _names(one)]]
    near = [one for one in fields if any(words <= _stems(name) for name in _names(one))]
    meant = [one for one in exact if words == _stems(one.name)] or exact or near
    return bool(meant) and all(_measures(one, quantity) for one in meant)


def _names(field: DatasetField) -> tuple[str, ...]:
    return (field.name.replace("_", " "), *field.synonyms)


def _fields(described: Described, quantity: Quantity, catalog: Catalog) -> list[str]:
    """The one field that is what rows of this kind are measured by in what the number is in."""
    meant = _meant(described, catalog)
    if len(meant) != 1:
        return []
    (dataset,) = meant
    fields = [one for one in dataset.fields if _measures(one, quantity) and not _is_key(one, dataset)]
    own = [one for one in fields if any(_called(dataset) & _stems(name) for name in one.synonyms)]
    chosen = own if len(own) == 1 else fields
    return [chosen[0].name.replace("_", " ")] if len(chosen) == 1 else []


def _called(dataset: Dataset) -> set[str]:
    return set().union(*(_stems(name) for name in (dataset.name, *dataset.synonyms)))


def _stems(name: str) -> set[str]:
    return {stem(word) for word in content_tokens(name)}


def _measures(field: DatasetField, quantity: Quantity) -> bool:
    """Whether the catalogue says that the field is in the unit of a quantity; a number without one fits a field without one."""
    if field.datatype not in ("Integer", "Decimal", "Float", "Double", "Number", None) or field.is_time:
        return False
    texts = " ".join((*_names(field), field.label or "", field.description))
    said = units_in(texts)
    if quantity.kind == "count":
        return not said and _MEASURED.search(texts) is None and field.datatype is not None
    # "What is claimed in euros, within 30 days": a sum that speaks of days is a sum
    return said == {(quantity.kind, quantity.unit)} or (
        quantity.kind == "money"
        and {unit for kind, unit in said if kind == "money"} == {quantity.unit}
        and "percent" not in kinds_in(texts)
    )


def _is_key(field: DatasetField, dataset: Dataset) -> bool:
    return any(field.expression.strip('"').lower() in key for key in dataset.keys) or field.name.lower().endswith(("_id", "id"))
