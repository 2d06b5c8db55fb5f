"""Narrowing by what documents are labelled with: asked for (`--source`, `--filter`), or recognised in the question's own words.

A narrowing is only ever AND-ed under the policy's filter. It speaks of the fields and values that the caller's own documents carry,
so a field or value that is hidden is one that does not exist. What was recognised, not asked for, drops contradicting documents
only: one that lacks the label may well be meant.

INVARIANT: with a narrowing nothing is found that is not found without (tests/unit/test_search_narrowing.py::test_narrowing_only_takes_away).
INVARIANT: the policy's filter and its receipt stay what they were (…::test_receipt_of_the_policy_stays).
INVARIANT: a hidden field, value or source reads as one that does not exist (…::test_hidden_reads_as_missing).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from router.domain import CLASSES, SINCE_FIELD, SOURCE_FIELD, UNTIL_FIELD, Labels
from router.errors import UsageError
from router.filters import ALWAYS, And, EntityType, Eq, Field, Filter, Ge, Gt, Has, In, Le, Lt, Not, Or, Overlaps, Scalar, Within
from router.lexicon import code_name
from router.search.dates import find_as_of, parse_period, to_ms

NEVER_NAMED = frozenset({"tenant", "groups"})
"""Labels that say who may see a document: they would name other people's groups."""
IN_FORCE = "effective_from"
UNTIL = "effective_to"
ENTITY = "entity"
"""What passages are narrowed by that is no label: a code, product or name that they hold."""
MOST_FILTERS = 20
MOST_VALUES = 500
_MOST_ENTITY_CHARS = 200
_PLACES = frozenset({"region", "country", "site", "location", "language"})
"""Fields whose value stands after a preposition without the field's name: "in the north", "in German"."""
_WORD = re.compile(r"[^\W_]+")
_NEGATED = frozenset({"not", "no", "except", "without", "outside", "other", "than", "but", "excluding"})
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Fields:
    """What the caller may narrow by: granted sources, and for each field its kind and the values that visible documents carry."""

    sources: tuple[str, ...]
    kinds: Mapping[str, Field]
    values: Mapping[str, tuple[Scalar, ...]]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.values))


@dataclass(frozen=True, slots=True)
class Narrowing:
    """`asked` must hold, and so must a passage name all of `entities`; `recognised` is given up where nothing is found under it.
    `notes` say in words what was recognised, by what documents were labelled with at `version`."""

    asked: Filter = ALWAYS
    recognised: Filter = ALWAYS
    notes: tuple[str, ...] = ()
    as_of: date | None = None
    version: str = ""
    entities: frozenset[str] = frozenset()


def build_fields(document_type: EntityType, sources: Iterable[str], labels: Iterable[Labels]) -> Fields:
    """`labels` are those of documents that the caller may see."""
    values: dict[str, set[Scalar]] = {}
    for one in labels:
        for name, value in one.items():
            if name in document_type.fields and name not in NEVER_NAMED:
                values.setdefault(name, set()).update(value if isinstance(value, frozenset) else (value,))
    kept = {
        name: tuple(sorted(found, key=lambda value: (str(value), str(type(value))))) for name, found in values.items() if found
    }
    return Fields(tuple(sorted(sources)), {name: document_type.fields[name] for name in kept}, kept)


def holding_at(document_type: EntityType, at_ms: int) -> Filter:
    """Leaves out what no longer holds then, and of what has an end what does not hold yet: by what its author wrote, and of a kept
    version by when its text stood there. Says nothing where documents have no such day."""
    if document_type.fields.get(UNTIL) != Field("long", required=False):
        return ALWAYS
    dated = document_type.fields.get(IN_FORCE) == Field("long", required=False)
    return And((_within(IN_FORCE if dated else None, UNTIL, at_ms), _within(SINCE_FIELD, UNTIL_FIELD, at_ms)))


def _within(since: str | None, until: str, at_ms: int) -> Filter:
    begun: Filter = ALWAYS if since is None else Or((Not(Has(since)), Le(since, at_ms)))
    return Or((Not(Has(until)), And((Gt(until, at_ms), begun))))


# --- asked for --------------------------------------------------------------------------------------------------------


def parse_narrowing(fields: Fields, sources: Sequence[str], filters: Sequence[str]) -> Filter:
    """`filters` read FIELD=VALUE. Each narrows; two that contradict leave nothing. Raises `UsageError`."""
    if len(filters) > MOST_FILTERS or len(sources) > MOST_FILTERS:
        raise UsageError("filters_too_many", f"there are more than {MOST_FILTERS} filters or sources", "give fewer")
    terms: list[Filter] = []
    if sources:
        for name in sources:
            if name not in fields.sources:
                raise UsageError("source_not_yours", f"`{name[:60]}` is none of your sources", _choose(fields.sources))
        terms.append(In(SOURCE_FIELD, frozenset(sources)))
    for text in filters:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError("filter_malformed", f"`{text[:60]}` is no filter", "write FIELD=VALUE")
        terms.append(_term(fields, name.strip(), value.strip()))
    return And(tuple(terms)) if terms else ALWAYS


def part_entities(document_type: EntityType, filters: Sequence[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Names that passages must hold, and the filters that are left. `entity` is no label, so it is there for everybody and says
    nothing of what there is; where a label is called so, the label is meant. Raises `UsageError`."""
    if ENTITY in document_type.fields:
        return frozenset(), tuple(filters)
    names, rest = set(), []
    for text in filters:
        field, equals, value = text.partition("=")
        if not equals or field.strip() != ENTITY:
            rest.append(text)
        elif name := code_name(value[:_MOST_ENTITY_CHARS]):
            names.add(name)
        else:
            raise UsageError("filter_malformed", f"`{text[:60]}` names nothing", "write entity=PN-88213, or a product or name")
    return frozenset(names), tuple(rest)


def _term(fields: Fields, name: str, value: str) -> Filter:
    if name not in fields.values:
        raise UsageError("field_not_yours", f"`{name[:60]}` is no field of your documents", _choose(fields.names))
    kind = fields.kinds[name].kind
    if kind in ("string", "set"):
        same = frozenset(str(known) for known in fields.values[name] if _folded(str(known)) == _folded(value)) or frozenset(
            {value}
        )
        if "\0" in value or any(0xD800 <= ord(char) < 0xE000 for char in value):
            raise UsageError("filter_malformed", "a filter's value holds NUL or half a character", "take it out")
        return Overlaps(name, same) if kind == "set" else In(name, frozenset(same))
    if kind == "bool":
        if value.lower() not in ("true", "false"):
            raise UsageError("filter_malformed", f"`{name}` is true or false", "write one of them")
        return Eq(name, value.lower() == "true")
    return _number(name, value)


def _number(name: str, value: str) -> Filter:
    """A class by its name, an instant by its day, month or year, else a whole number."""
    if name == "sensitivity" and value.lower() in CLASSES:
        return Eq(name, CLASSES.index(value.lower()))
    period = parse_period(value) if name.endswith(("_from", "_until", "_at", "_on")) else None
    if period:
        return And((Ge(name, to_ms(period[0])), Lt(name, to_ms(period[1] + _DAY))))
    try:
        number = int(value) if len(value) < 20 else None
    except ValueError:
        number = None
    if number is None or not -(2**63) <= number < 2**63:
        raise UsageError(
            "filter_malformed", f"`{value[:60]}` is no value of `{name}`", "write a whole number, a day, a month or a year"
        )
    return Eq(name, number)


def _choose(known: Sequence[str]) -> str:
    return f"one of {', '.join(known)}" if known else "there is none that you may see"


def _folded(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))


# --- recognised -------------------------------------------------------------------------------------------------------


def recognise(question: str, fields: Fields, today: date, *, as_of: bool) -> Narrowing:
    """What the question's words say of the fields. `as_of` says that documents have a day from which they are in force."""
    words = _WORD.findall(question[:2_000].casefold())
    terms: list[Filter] = []
    notes: list[str] = []
    for name in fields.names:
        if fields.kinds[name].kind not in ("string", "set") or len(fields.values[name]) < 2:
            continue
        meant = _meant(words, name, [str(value) for value in fields.values[name][:MOST_VALUES]])
        if meant:
            held: Filter = Overlaps(name, meant) if fields.kinds[name].kind == "set" else In(name, frozenset(meant))
            lacks: Filter = Within(name, frozenset()) if fields.kinds[name].kind == "set" else Not(Has(name))
            terms.append(Or((lacks, held)))
            notes.append(f"{name} is {' or '.join(f'`{value}`' for value in sorted(meant))}")
    day = find_as_of(question, today) if as_of else None
    if day is not None:
        terms.append(Or((Not(Has(IN_FORCE)), Le(IN_FORCE, to_ms(day + _DAY) - 1))))
        notes.append(f"as of {day}")
    return Narrowing(recognised=And(tuple(terms)) if terms else ALWAYS, notes=tuple(notes), as_of=day)


def _meant(words: Sequence[str], name: str, values: Sequence[str]) -> frozenset[str]:
    """Values of one field that the question names beyond doubt; none where one of them is negated."""
    called = _WORD.findall(name.casefold().replace("_", " "))
    found: set[str] = set()
    for value in values:
        spelled = _WORD.findall(value.casefold().replace("_", " "))
        if not spelled:
            continue
        for at in _places(words, spelled):
            before, after = words[:at], words[at + len(spelled) :]
            if not _is_meant(before, after, called, spelled, name):
                continue
            if _NEGATED & set(before[-3:]):
                return frozenset()
            found.add(value)
    return frozenset(found)


def _places(words: Sequence[str], spelled: Sequence[str]) -> list[int]:
    return [at for at in range(len(words) - len(spelled) + 1) if list(words[at : at + len(spelled)]) == list(spelled)]


def _is_meant(before: Sequence[str], after: Sequence[str], called: Sequence[str], spelled: Sequence[str], name: str) -> bool:
    """Beside the field's name; or a value that names itself (several words, or letters with digits); or, for places, after `in`."""
    if list(after[: len(called)]) == list(called) or list(before[-len(called) :]) == list(called):
        return True
    if len(before) > len(called) and before[-1] in ("is", "of", "the") and list(before[-len(called) - 1 : -1]) == list(called):
        return True
    if len(spelled) > 1 or (any(char.isdigit() for char in spelled[0]) and any(char.isalpha() for char in spelled[0])):
        return True
    if name not in _PLACES:
        return False
    lead = before[-2:] if before[-1:] == ["the"] else before[-1:]
    return bool(lead) and lead[0] in ("in", "for", "from") and (not after or after[0] in _AFTER_A_PLACE)


_AFTER_A_PLACE = frozenset(
    "and or is are was were do does did has have had will would must should can may when if what who how where there that which "
    "on at by with since until before after during last this".split()
)
