"""Units of numbers: "over 3 days" is not said of a field of hours, nor "2 million" of one that counts in ones.

Nothing is converted. Where the catalogue says in which unit a field or a metric is, a number in another one is asked back.

INVARIANT: a number in another unit than the field's stops the plan (tests/sql/planner/test_plan_meaning.py::test_asked_back).
"""

from __future__ import annotations

from collections.abc import Iterable

from router.sql.planner.draft import Stop
from router.sql.planner.index import FieldKey, Index
from router.sql.planner.segment import Piece
from router.sql.planner.tokens import Number, name_words
from router.sql.planner.words import PERCENT, UNIT_NAMES

_MUST_BE_SAID = frozenset({"million", "percent"})
"""These change the number: the field itself must be said to be in them."""

_MONEY = frozenset("dollar dollars usd $ eur euro euros".split())


def units_said(pieces: Iterable[Piece]) -> dict[Number, set[str]]:
    """By number the units that stand beside it."""
    found: dict[Number, set[str]] = {}
    before: Piece | None = None
    for piece in pieces:
        if before is not None and before.number is not None and piece.kind in ("unit", "percent"):
            found.setdefault(before.number, set()).add("percent" if piece.kind == "percent" else piece.words.lower())
        if before is not None and before.kind == "unit" and before.words == "$" and piece.number is not None:
            found.setdefault(piece.number, set()).add("$")
        before = piece
    return found


def refuse_unit(index: Index, key: FieldKey, number: object, units: dict[Number, set[str]], said: str) -> None:
    """Stops where the number was said in a unit that the field is not in."""
    if not isinstance(number, bool) and number in units:
        _refuse(_texts(index, key), key[1], units[number], said)  # type: ignore[index]


def refuse_unit_of_metric(index: Index, name: str, number: object, units: dict[Number, set[str]], said: str) -> None:
    metric = index.catalog.metric(name)
    if metric is not None and not isinstance(number, bool) and number in units:
        _refuse((metric.name, metric.description, *metric.synonyms), name, units[number], said)  # type: ignore[index]


def money_fields(index: Index, dataset: str, units: set[str]) -> list[FieldKey]:
    """ "Claims above 3,000 euros": the numbers of these rows that the catalogue says to be in the money that was said."""
    said = {name for unit in units if unit in _MONEY for name in UNIT_NAMES[unit]}
    infos = [index.info[dataset, one.name] for one in index.declared[dataset].fields]
    keys = [(dataset, info.name) for info in infos if info.numeric and not info.key]
    return [key for key in keys if said & _units_of(_texts(index, key))]


def in_percent(index: Index, name: str) -> bool:
    """Whether a metric is said to be in percent, and not a share of one."""
    metric = index.catalog.metric(name)
    return metric is not None and "percent" in _units_of((metric.name, metric.description, *metric.synonyms))


def _texts(index: Index, key: FieldKey) -> tuple[str, ...]:
    one = index.declared[key[0]].field(key[1])
    return (one.name, one.label or "", one.description, *one.synonyms) if one is not None else (key[1],)


def _refuse(texts: tuple[str, ...], name: str, units: set[str], said: str) -> None:
    own = _units_of(texts)
    for unit in units:
        meant = UNIT_NAMES.get(unit, frozenset({unit}) if unit in _MUST_BE_SAID else frozenset())
        if meant and not (meant & own) and (own or meant & _MUST_BE_SAID):
            raise Stop("planner_unit", (f"{said} {unit}",), f"whether `{name}` is in `{unit}` is not certain")


def _units_of(texts: tuple[str, ...]) -> frozenset[str]:
    found: set[str] = set()
    for text in texts:
        for word in name_words(text):
            found |= UNIT_NAMES.get(word, frozenset())
            found |= {"percent"} if word in PERCENT else set()
    return frozenset(found)
