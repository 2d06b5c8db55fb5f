"""The second half of a question points back at its first: what stands for it, by what the first half asks for.

"Which part is lowest in stock, and how do I replace it?" leaves the name out: tables, or the first half itself, say it first. A
pronoun stands for what the first half asks for, and never for what it only measures or filters by; where that is not certain, the
second half is searched for as it stands. Here is only wording; what is found, and by whom it may be seen, is the business of
`router/seeded.py`.

INVARIANT: a name that rows give is a cell of the column of what was asked for
(tests/unit/test_routing_steps.py::test_a_pronoun_stands_for_what_was_asked_for).
INVARIANT: a name that the question says is what its first half is about (…::test_what_points_at_nothing_certain_is_left).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from router.catalog import Catalog, Dataset
from router.routing.gates import content_tokens
from router.routing.quantities import stem

MOST_SEEDS = 3
"""Names that a search is given at most: more of them are a list, and no name."""
LONGEST_SEED = 80
MOST_LOOKED_UP = 2

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
_COUNTS_OTHERS = re.compile(r"(?:how\s+many|list|show|count)\s+(?:(?:the|all|our|me)\s+)*(?:[a-z]+\s+){1,3}", re.IGNORECASE)
_PLACE = re.compile(
    r"\b(?:at|in|of|from|for)\s+(?:the\s+)?(?:depot|region|zone|site|plant|branch|office|desk|warehouse|hall|line|bin)\b",
    re.IGNORECASE,
)
_OF_PLACE = re.compile(
    r"\bwho\s+(?:leads?|runs?|manages?|heads|is\s+in\s+charge|works?)\b|\bwhere\s+(?:is|are)\b|\bhow\s+(?:do|can)\s+\w+\s+(?:get|go|drive)\b|"
    r"\b(?:address|located|opening\s+hours)\b",
    re.IGNORECASE,
)
_APART = re.compile(r"^\s*(?:\w+\s+){0,3}?(?:at|in|on|from)\b", re.IGNORECASE)
"""Behind what a question is about: a second name stands for a place."""
MOST_NOUN_WORDS = 3
_ASKED = re.compile(
    r"(?:which|what|list|show|name|find|give\s+me|tell\s+me)\s+(?:(?:the|all|our|me|of|one|two|three|first|last|top|\d+)\s+)*(?P<thing>\w.{0,60})",
    re.IGNORECASE,
)
_MOST_OF = re.compile(r"\b(?:most|fewest|least|more|fewer|number\s+of)\s+(?P<what>[a-z]+(?:\s+[a-z]+)?)", re.IGNORECASE)
_ITS_NAME = re.compile(
    r"(?:what\s+(?:is|are)|which\s+(?:is|are)|list|show|name|give\s+me)\s+(?:the\s+)?(?P<name>(?:\w+\s+)?(?:sku|code|number|no|id|name|serial))s?\s+of\b",
    re.IGNORECASE,
)
_TOLD_BY = frozenset(map(stem, "sku code number no id name description title designation serial".split()))
_VERBS = frozenset(
    """
    is are was were has have had do does did can could may must should will would in at of on with by for from to about that which who
    whose holds hold needs need costs cost lies lie stands stand lost got went takes take broke breaks gets get comes come
    """.split()
)


def points(clause: str) -> bool:
    """Whether a word of it stands for one thing that a question before it is about."""
    return not _DUMMY.search(clause) and any(one.search(clause) for one in (_NEW_ONE, _THIS, _IT, _THEM))


def named_in(first: str, second: str) -> str | None:
    """The name that the first question says of what the second one points at; None where there is none, more than one, or where the
    first question is not about what it names: of "Which depot has most of PN-1, and who leads it?" the depot is meant, and of "Is
    PN-1 in stock at WH-2?" the part."""
    names: list[str] = list(
        dict.fromkeys(one for one in _NAME.findall(first) if any(map(str.isdigit, one)) and any(map(str.isalpha, one)))
    )
    if not names or not points(second) or any(re.search(re.escape(one), second, re.IGNORECASE) for one in names):
        return None
    if _OF_PLACE.search(second) and _PLACE.search(first):
        return None  # who leads it? rather the depot than the part in it
    subjects = [one for one in names if _is_subject(first, one)]
    several = _THEM.search(second) and not _THIS.search(second)
    if len(names) == 1 and not subjects and not several and _COUNTS_OTHERS.match(first) and not _PLACE.search(first):
        return names[0]  # of several claims about one machine, `it` is the machine
    if len(subjects) != 1 or (len(names) > 1 and not _APART.search(first.partition(subjects[0])[2])):
        return None
    return subjects[0] if not several or re.search(rf"\b{_COUNTED}{re.escape(subjects[0])}", first, re.IGNORECASE) else None


def _is_subject(first: str, name: str) -> bool:
    """Whether a question is about the thing of this name: "Is X in stock", "How many X", "What is the status of claim X"."""
    said = rf"(?:the\s+|an?\s+)?(?:\w+\s+)?{re.escape(name)}(?![\w-])"
    return re.match(
        rf"(?:is|are|was|were|do|does|did|has|have)\s+(?:there\s+)?(?:(?:any|enough|some|we\s+have|we\s+still\s+have|we\s+stock)\s+)*{said}|"
        rf"{_COUNTED}(?:(?:pieces|units|of)\s+)*{said}|(?:in|at|on|from)\s+(?:which|what)\s+\w+\s+(?:is|are|was|were)\s+{said}|"
        rf"where\s+(?:is|are|was|were)\s+{said}|(?:what|who|when)\s+(?:is|are|was|were)\s+(?:the\s+)?(?:[\w-]+\s+){{1,3}}(?:of|for)\s+{said}|"
        rf"what\s+(?:is|are)\s+{said}['\u2019]s\b|(?:when|why|how)\s+(?:is|was|were|did|does)\s+{said}|"
        rf"(?:what\s+does|how\s+much\s+(?:is|does))\s+{said}",
        first.strip(),
        re.IGNORECASE,
    ) is not None  # fmt: skip


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
    """Questions to the tables for what the thing of this identifier is called, by fields that say so of their own rows and whose values
    reviewers opened to questions: prose writes "the sorter shoe" more often than its number."""
    fields = [
        one
        for dataset in catalog.datasets
        for one in dataset.fields
        if (dataset.name.lower(), one.expression.strip('"').lower()) in open_values
        and any(_calls(dataset, said) for said in (one.name, *one.synonyms))
    ]
    return tuple(f"What is the {one.name.replace('_', ' ')} of {name}?" for one in fields[:MOST_LOOKED_UP])


def _calls(dataset: Dataset, said: str) -> bool:
    """Whether a field is what the rows themselves are called by: of claims, "machine name" is another thing's."""
    words = said.lower().replace("_", " ").split()
    own = {stem(word) for name in (dataset.name, *dataset.synonyms) for word in content_tokens(name.replace("_", " "))}
    return any(word in _CALLED for word in words) and {stem(word) for word in content_tokens(" ".join(words))} <= own | _TOLD_BY


def one_name(first: Sequence[Sequence[object]], *, masked: bool) -> str | None:
    """The only value of the only row, where it is words that a search can be made with."""
    if masked or len(first) != 1 or len(first[0]) != 1 or not isinstance(first[0][0], str):
        return None
    (seed,) = _distinct([first[0][0]]) or ("",)
    return seed if " " in seed or seed.isalpha() else None


def speaks_of_others(first: str, second: str) -> bool:
    """Whether the second question does something with what the first one only counts: "most open claims", "how do I reopen it"."""
    match = _MOST_OF.search(first)
    counted = {stem(word) for word in content_tokens(match["what"])} if match else set()
    return any(stem(word) in counted or stem(word.removeprefix("re")) in counted for word in content_tokens(second))


def asked_things(first: str) -> tuple[str, ...]:
    """What a question asks for, "which depot", in words from the longest reading on: where its noun ends and its verb begins is not
    known. Of "the sku of the part with ..." what a thing is called by stands for the thing."""
    called = _ITS_NAME.match(first)
    if called is not None:
        return (called["name"].lower(),)
    match = _ASKED.match(first)
    words = re.findall(r"[^\W\d_][\w-]*", match["thing"].lower()) if match else []
    cut = next((at for at, word in enumerate(words) if word in _VERBS), len(words))
    words = words[:cut][:MOST_NOUN_WORDS]
    return tuple(" ".join(words[:many]) for many in range(len(words), 0, -1))


def pick_seeds(
    first: str,
    columns: Sequence[tuple[str, str, bool]],
    rows: Sequence[Sequence[object]],
    called: Mapping[str, Collection[str]] | None = None,
) -> tuple[str, tuple[str, ...]] | None:
    """The column of what a question asks for, and the names in it; `columns` are (name, type, masked), `called` is what else the
    catalogue calls them. None where no column is of that, no names where there are too many of them.

    A value of any other column is something that rows are measured or filtered by, and no pronoun stands for it."""
    for thing in asked_things(first):
        held = []
        for at, (name, kind, masked) in enumerate(columns):
            values = [row[at] for row in rows]
            if not masked and values and any(_is_of(thing, said) for said in (name, *(called or {}).get(name, ()))):
                held.append((name, kind, values))
        # decimals and days are texts, too, once they have left the engine: the column's type tells
        texts = [one for one in held if one[1] == "VARCHAR" and all(isinstance(value, str) for value in one[2])]
        for name, _, values in sorted(texts, key=lambda one: not all(map(is_identifier, one[2]))):
            return name, _distinct([str(value) for value in values])
        for name, _, values in held:
            if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
                return name, _distinct([f"{thing} {value}" for value in values])
    return None


def called_in(catalog: Catalog, reads: Collection[str]) -> dict[str, set[str]]:
    """What else the columns of these datasets are called: by their synonyms; and by their dataset's names where people know its rows
    by them."""
    called: dict[str, set[str]] = {}
    known: dict[str, int] = {}
    for dataset in catalog.datasets:
        if dataset.name not in reads:
            continue
        for one in dataset.fields:
            words = {stem(word) for word in content_tokens(one.name.replace("_", " "))}
            knows = one.name == dataset.label or (bool(words) and words <= _TOLD_BY)
            for column in {one.name, one.expression.strip('"')}:
                called.setdefault(column, set()).update(one.synonyms)
                known[column] = known.get(column, 0) + 1
                if knows and known[column] == 1:
                    called[column].update((dataset.name, *dataset.synonyms))
    return called


def _is_of(thing: str, said: str) -> bool:
    """Whether a column is that of a thing: it is called so, or so and by what things are told apart by ("depot name", `claim_id`)."""
    wanted = [stem(word) for word in content_tokens(thing)]
    words = {stem(word) for word in content_tokens(said.replace("_", " "))}
    return bool(wanted) and wanted[-1] in words and not words - set(wanted) - _TOLD_BY


def is_identifier(value: object) -> bool:
    """Letters and digits in one token: `PN-45510`."""
    text = str(value)
    return _NAME.fullmatch(text) is not None and any(map(str.isdigit, text)) and any(map(str.isalpha, text))


def _distinct(values: Sequence[str]) -> tuple[str, ...]:
    """Empty where there are too many of them, or one is no name: long, or with characters that are not for reading."""
    held = tuple(dict.fromkeys(value.strip() for value in values))
    plain = all(0 < len(value) <= LONGEST_SEED and value.isprintable() for value in held)
    return held if plain and len(held) <= MOST_SEEDS else ()
