"""A question in two steps: what it compares rows with is only described, or its second half points back at its first.

"How many open claims are above the amount that a technician may give away?" has a table question and a description without a
number: documents say the number first. "Which part is lowest in stock, and how do I replace it?" has a table question and a
question of prose that leaves the name out: tables, or the first half itself, say the name first. Here is only wording; what is
found, and by whom it may be seen, is the business of `router/seeded.py`.

INVARIANT: a filled question is the caller's own words, a number and a unit in the router's spelling, and a name of the caller's
catalogue: nothing of a document stands in it (tests/unit/test_routing_steps.py::test_a_hostile_document_gives_a_number_or_nothing).
INVARIANT: a comparison that names its number, its field or an average is no description (…::test_near_misses_are_no_descriptions).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from router.catalog import Catalog, Dataset, DatasetField
from router.routing.gates import content_tokens
from router.routing.quantities import DURATIONS, Kind, Quantity, is_generic, kinds_in, stem, unit_kind

MOST_SEEDS = 3
"""Names that a search is given at most: more of them are a list, and no name."""
LONGEST_SEED = 80
MOST_LOOKED_UP = 2
LONGEST_QUESTION = 600


# --- documents seed the table -----------------------------------------------------------------------------------------


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
_OWN_FIELD = tuple(f"{word} than" for word in _COMPARATIVES.split("|"))
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
        if not _ASKS_ROWS.search(before):
            continue
        tail = _TAIL.search(after)
        description = (after[: tail.start()] if tail else after).strip(" ,;")
        if not _describes(description):
            continue
        rest = f" {after[tail.end() :].strip()}" if tail else ""
        return _described(match, before, description, rest.rstrip())
    return None


def _describes(words: str) -> bool:
    """Whether it is a description of a number that a rule sets: it names a limit, or says what somebody may, or what rules allow."""
    if not words or _NUMBER.search(words) or "?" in words or ";" in words:
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
        return Described(rows, "above", description, f"{before}{match['own']}", wanted=wanted or DURATIONS)
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
    not fit. Two fields that could be meant, neither of which is what the rows are called by, give nothing."""
    as_said = f"{described.as_said} {quantity.words}"
    if described.as_said.lower().endswith(_OWN_FIELD):
        return (as_said,)
    nouns = [described.noun] if described.noun else []
    nouns += [noun for noun in _fields(described, quantity, catalog) if noun not in nouns]
    return (*(f"{described.rows} with {_article(noun)} {noun} {described.op} {quantity.words}" for noun in nouns), as_said)


def _article(noun: str) -> str:
    return "an" if noun[0].lower() in "aeiou" else "a"


def _fields(described: Described, quantity: Quantity, catalog: Catalog) -> list[str]:
    """The one field that is what rows of this kind are measured by in this kind of quantity."""
    words = {stem(word) for word in content_tokens(described.rows)}
    meant = [one for one in catalog.datasets if words & _called(one)]
    if len(meant) != 1:
        return []
    (dataset,) = meant
    fields = [one for one in dataset.fields if _measures(one, quantity.kind) and not _is_key(one, dataset)]
    own = [one for one in fields if any(_called(dataset) & _stems(name) for name in one.synonyms)]
    chosen = own if len(own) == 1 else fields
    return [chosen[0].name.replace("_", " ")] if len(chosen) == 1 else []


def _called(dataset: Dataset) -> set[str]:
    return set().union(*(_stems(name) for name in (dataset.name, *dataset.synonyms)))


def _stems(name: str) -> set[str]:
    return {stem(word) for word in content_tokens(name)}


def _measures(field: DatasetField, kind: Kind) -> bool:
    """Whether the catalogue says that the field is in this kind of quantity; a number without a kind fits any number without one."""
    if field.datatype not in ("Integer", "Decimal", "Float", "Double", "Number", None) or field.is_time:
        return False
    said = kinds_in(" ".join((field.name.replace("_", " "), field.label or "", field.description, *field.synonyms)))
    return kind in said if kind != "count" else not said and field.datatype is not None


def _is_key(field: DatasetField, dataset: Dataset) -> bool:
    return any(field.expression.strip('"').lower() in key for key in dataset.keys) or field.name.lower().endswith(("_id", "id"))


# --- a table, or the first half, seeds the documents ------------------------------------------------------------------

_NOT_A_NOUN = (
    r"the|a|an|we|i|you|they|it|he|she|is|are|was|were|do|does|did|can|could|may|must|should|will|would|has|have|had|of|in|on|at|to|"
    r"for|by|with|and|or|but|not|no|happens?|means?|works?|looks?|all|my|our|your|his|her|their|its|this|that|these|those|there|be|been"
)
_NEW_ONE = re.compile(r"\b(?:a|the|another)\s+(?:new\s+|spare\s+|fresh\s+)?one\b(?!\s+(?:of|at|time|day|by)\b)", re.IGNORECASE)
_THIS = re.compile(rf"\b(?:this|that|these|those)\s+(?=(?!(?:{_NOT_A_NOUN})\b)[a-z]{{3,}})", re.IGNORECASE)
_IT = re.compile(r"\b(?:it|its)\b", re.IGNORECASE)
_THEM = re.compile(r"\b(?:they|them|their|these|those)\b(?!\s+(?:who|which|that)\b)", re.IGNORECASE)
_DUMMY = re.compile(
    r"\bit\s+(?:takes?|seems?|means?|depends|rains?)\b|\b(?:does|will|did|would)\s+it\s+(?:take|mean|matter|cost\s+to)\b|"
    r"\b(?:is|was|'s)\s+it\s+\w+\s+(?:to|that|if|for)\b|\bit\s+is\s+\w+\s+(?:to|that)\b|\bwhat\s+time\s+is\s+it\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"[A-Za-z0-9]+(?:[-_./][A-Za-z0-9]+)*")
_CALLED = frozenset("name description title designation".split())
_COUNTED = r"(?:how\s+many|any|many|more|few|enough)\s+"


def points(clause: str) -> bool:
    """Whether a word of it stands for one thing that a question before it is about."""
    return not _DUMMY.search(clause) and any(one.search(clause) for one in (_NEW_ONE, _THIS, _IT, _THEM))


def named_in(first: str, second: str) -> str | None:
    """The name that the first question says of what the second one points at; None where there is none, or more than one."""
    names = list(dict.fromkeys(one for one in _NAME.findall(first) if any(map(str.isdigit, one)) and any(map(str.isalpha, one))))
    if len(names) != 1 or not points(second) or re.search(re.escape(names[0]), second, re.IGNORECASE):
        return None
    many = _THEM.search(second) and not _THIS.search(second)
    return names[0] if not many or re.search(rf"\b{_COUNTED}{re.escape(names[0])}", first, re.IGNORECASE) else None


def spell_out(clause: str, names: Sequence[str]) -> str:
    """The clause with the names in place of what points at them."""
    said = ", ".join(names)
    if _NEW_ONE.search(clause):
        return _NEW_ONE.sub(lambda _: f"a new {said}", clause)
    if _THIS.search(clause):
        return _THIS.sub(lambda _: f"{said} ", clause)
    pronoun = _IT if _IT.search(clause) else _THEM
    return pronoun.sub(lambda _: said, clause)


def asks_what_it_is_called(name: str, catalog: Catalog, open_values: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """Questions to the tables for what the thing of this identifier is called, by fields that say so and whose values reviewers
    opened to questions: prose writes "the sorter shoe" more often than its number."""
    fields = [
        one
        for dataset in catalog.datasets
        for one in dataset.fields
        if (dataset.name.lower(), one.expression.strip('"').lower()) in open_values
        and any(word in _CALLED for said in (one.name, *one.synonyms) for word in said.lower().replace("_", " ").split())
    ]
    return tuple(f"What is the {one.name.replace('_', ' ')} of {name}?" for one in fields[:MOST_LOOKED_UP])


def one_name(first: Sequence[Sequence[object]], *, masked: bool) -> str | None:
    """The only value of the only row, where it is words that a search can be made with."""
    if masked or len(first) != 1 or len(first[0]) != 1 or not isinstance(first[0][0], str):
        return None
    (seed,) = _distinct([first[0][0]]) or ("",)
    return seed if " " in seed or seed.isalpha() else None


def pick_seeds(
    first: str, columns: Sequence[tuple[str, str, bool]], rows: Sequence[Sequence[object]]
) -> tuple[str, tuple[str, ...]] | None:
    """A column, and the names in it that rows give to what a question is about; `columns` are (name, type, masked). None where no
    column holds names, no names where there are too many of them.

    First a column of identifiers, then one of texts, then a number of the thing that the question asks for (`which depot`)."""
    cells = [[row[at] for row in rows] for at in range(len(columns))]
    open_ = [(name, kind, values) for (name, kind, masked), values in zip(columns, cells, strict=True) if not masked and values]
    # decimals and days are texts, too, once they have left the engine: the column's type tells
    texts = [(name, values) for name, kind, values in open_ if kind == "VARCHAR" and all(isinstance(one, str) for one in values)]
    for held in ([one for one in texts if all(map(is_identifier, one[1]))], texts):
        if held:
            return held[0][0], _distinct([str(value) for value in held[0][1]])
    for name, _, values in open_:
        word = name.replace("_", " ").removesuffix(" id").removesuffix(" no")
        asked = re.search(rf"\b(?:which|what)\s+{re.escape(word)}\b", first, re.IGNORECASE)
        if asked and all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            return name, _distinct([f"{word} {value}" for value in values])
    return None


def is_identifier(value: object) -> bool:
    """Letters and digits in one token: `PN-45510`."""
    text = str(value)
    return _NAME.fullmatch(text) is not None and any(map(str.isdigit, text)) and any(map(str.isalpha, text))


def _distinct(values: Sequence[str]) -> tuple[str, ...]:
    """Empty where there are too many of them, or one is no name: long, or with characters that are not for reading."""
    held = tuple(dict.fromkeys(value.strip() for value in values))
    plain = all(0 < len(value) <= LONGEST_SEED and value.isprintable() for value in held)
    return held if plain and len(held) <= MOST_SEEDS else ()
