"""Who may see a document: the source's rules inside the reviewed envelope, narrowed by what the author wrote.

Rules come from labels.yaml (or columns); all that match apply and the strictest wins: groups intersect, sensitivity is
the highest, `effective_from` the latest, any other attribute must agree. Front matter and sidecars can take away, never
give: they are read for groups, sensitivity and effective_from only. The tenant is the source's, from reviewed policy.

INVARIANT: no narrowing ever makes a label wider (tests/unit/test_ingest_label.py::test_narrowing_never_widens).
INVARIANT: labels are complete for the entity type, every set present, types exact, or there are none
(tests/unit/test_ingest_label.py::test_labels_are_complete).
INVARIANT: what cannot be read is a fault, never a missing restriction (tests/unit/test_ingest_label.py::test_bad_values,
::test_names_of_narrowing_in_any_spelling, ::test_narrowing_in_the_wrong_place).
INVARIANT: what the manifest remembers of front matter is its narrowing as understood, never a value that was refused
(tests/unit/test_ingest_label.py::test_refused_values_are_not_remembered).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, Literal

from router.domain import CLASSES, Labels, RawLabels, Source, label_digest
from router.errors import PolicyError
from router.filters import LONG_MAX, LONG_MIN, EntityType, Field, Scalar, check_text
from router.ingest.front_matter import NARROWING_WORDS, fold_name

LabelReason = Literal["no_labels", "incomplete_labels", "label_conflict", "outside_envelope", "other_tenant", "bad_label"]
NARROWING = NARROWING_WORDS
_KINDS = {
    "groups": Field("set", required=True),
    "sensitivity": Field("long", required=True),
    "effective_from": Field("long", required=False),
}
_REFUSED = "refused"
_LEAST_INSTANT_MS = 10**11  # 1973: a smaller number is a year or a date without dashes, and was meant to be later
_LATEST = frozenset({"sensitivity", "effective_from"})


class Unlabelled(Exception):  # noqa: N818 (says what the document is)
    """No valid labels, so the document is not indexed. The detail names attributes and groups, never text."""

    def __init__(self, reason: LabelReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Labelled:
    labels: Labels
    digest: str
    notes: tuple[str, ...] = ()


def build_labels(entity: EntityType, source: Source, raw: RawLabels, front: Mapping[str, Any]) -> Labelled:
    """Complete labels of one document. `front` is the front matter's narrowing (`narrowing_of`). Raises `Unlabelled`."""
    if raw.fault:
        raise Unlabelled("bad_label", raw.fault)
    if not raw.rules:
        raise Unlabelled("no_labels", "no rule of the source's labels matches it")
    if _REFUSED in front:
        raise Unlabelled(*front[_REFUSED])
    labels = _by_rules(entity, source, raw)
    notes: list[str] = []
    for sidecar in raw.narrowing:
        _narrow(labels, entity, _sidecar_narrowing(sidecar, entity, source, notes), "sidecar", notes)
    _narrow(labels, entity, _understood(front, source, "its front matter"), "front matter", notes)
    labels["tenant"] = source.tenant
    for name, spec in entity.fields.items():
        if spec.kind == "set":
            labels.setdefault(name, frozenset())
    missing = sorted(name for name, spec in entity.fields.items() if spec.required and name not in labels)
    if missing:
        raise Unlabelled("incomplete_labels", f"no rule says `{'`, `'.join(missing)}`")
    if "groups" in labels and not labels["groups"]:
        notes.append("no group is left")
    return Labelled(labels, label_digest(source.name, labels), tuple(notes))


def narrowing_of(front_matter: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """What front matter takes away, as understood. Raises `Unlabelled`; the manifest then remembers `refusal_of` that."""
    deeper = _words_below(front_matter)
    if deeper:
        raise Unlabelled("bad_label", f"its front matter has `{deeper}` below another name; write it at the left margin")
    understood = _understood(front_matter, source, "its front matter")
    return {name: _plain(name, value) for name, value in understood.items()}


def _plain(name: str, value: Scalar | frozenset[str]) -> object:
    """For the manifest, so that reading it again gives the same: an early moment as a date, which its number is not."""
    if isinstance(value, frozenset):
        return sorted(value)
    if name == "effective_from" and isinstance(value, int) and value < _LEAST_INSTANT_MS:
        return (_EPOCH + value * _MILLISECOND).isoformat()
    return value


def refusal_of(fault: Unlabelled) -> dict[str, Any]:
    """In place of a narrowing that was refused: why, and no value."""
    return {_REFUSED: [fault.reason, fault.detail]}


def narrowing_json(narrowing: Mapping[str, Any]) -> str:
    return json.dumps(narrowing, sort_keys=True, ensure_ascii=True, default=str, separators=(",", ":"))


# --- rules ------------------------------------------------------------------------------------------------------------


def _by_rules(entity: EntityType, source: Source, raw: RawLabels) -> dict[str, Scalar | frozenset[str]]:
    labels: dict[str, Scalar | frozenset[str]] = {}
    for rule in raw.rules:
        for name, value in rule.items():
            if name in {"match", "tenant"}:
                _check_tenant(name, value, source, "a label rule")
                continue
            spec = entity.fields.get(name)
            if spec is None:
                raise Unlabelled(
                    "bad_label", f"a label rule names `{_short(name)}`, which schema.cedarschema does not give documents"
                )
            _add(labels, name, _value(name, spec, value, source, "a label rule"))
    if "groups" in entity.fields and "groups" not in labels:
        raise Unlabelled("incomplete_labels", "no rule says `groups`")
    sensitivity = labels.get("sensitivity")
    if isinstance(sensitivity, int) and sensitivity < source.least:
        raise Unlabelled(
            "outside_envelope",
            f"its sensitivity is {_class_name(sensitivity)}, the least of the source is {_class_name(source.least)}",
        )
    return labels


def _add(labels: dict[str, Scalar | frozenset[str]], name: str, value: Scalar | frozenset[str]) -> None:
    before = labels.get(name)
    if before is None:
        labels[name] = value
    elif name == "groups" and isinstance(before, frozenset) and isinstance(value, frozenset):
        labels[name] = before & value
    elif name in _LATEST and isinstance(before, int) and isinstance(value, int):
        labels[name] = max(before, value)
    elif before != value:
        raise Unlabelled("label_conflict", f"two rules give `{name}` different values")


# --- narrowing --------------------------------------------------------------------------------------------------------


def _understood(given: Mapping[str, Any], source: Source, where: str) -> dict[str, Scalar | frozenset[str]]:
    """Names in any spelling, values in one; no message quotes a value, which is its author's."""
    found: dict[str, Scalar | frozenset[str]] = {}
    for written, value in given.items():
        name = _NAMES.get(fold_name(written))
        if name is None:
            continue
        if name in found:
            raise Unlabelled("bad_label", f"{where} says `{name}` twice")
        if name == "tenant":
            _check_tenant(name, value, source, where)
            continue
        if name == "groups" and isinstance(value, str) and "," in value and _nfc(value) not in source.groups:
            raise Unlabelled("bad_label", f"{where} gives `groups` as one text with a comma; write a list")
        found[name] = _value(name, _KINDS[name], value, source, where, envelope=False)
    return found


def _words_below(value: Any, *, top: bool = True) -> str | None:
    """A word of narrowing that stands inside another mapping or a list, where nothing reads it."""
    if isinstance(value, Mapping):
        for written, item in value.items():
            name = _NAMES.get(fold_name(written))
            if not top and name is not None and name != "tenant":
                return name
            deeper = _words_below(item, top=False)
            if deeper:
                return deeper
    elif isinstance(value, list):
        return next(filter(None, (_words_below(item, top=False) for item in value)), None)
    return None


def _sidecar_narrowing(
    sidecar: Mapping[str, Any], entity: EntityType, source: Source, notes: list[str]
) -> dict[str, Scalar | frozenset[str]]:
    """A sidecar says labels and nothing else, so a name in it that is none is most likely a misspelt restriction."""
    for name in sidecar:
        if fold_name(name) in _NAMES:
            continue
        if name not in entity.fields:
            raise Unlabelled("bad_label", f"its sidecar says `{_short(name)}`, which narrows nothing")
        notes.append(f"`{name}` in its sidecar is no label: it is set by rules only")
    return _understood(sidecar, source, "its sidecar")


def _narrow(
    labels: dict[str, Scalar | frozenset[str]],
    entity: EntityType,
    narrowing: Mapping[str, Scalar | frozenset[str]],
    where: str,
    notes: list[str],
) -> None:
    for name, value in narrowing.items():
        if name not in entity.fields:
            raise Unlabelled("bad_label", f"its {where} narrows `{name}`, which schema.cedarschema does not give documents")
        before = labels.get(name)
        if isinstance(before, frozenset) and isinstance(value, frozenset):
            if value - before:
                notes.append(f"its {where} names groups beyond its labels; they are not added")
            labels[name] = before & value
        elif isinstance(value, int) and (before is None or isinstance(before, int)):
            labels[name] = value if before is None else max(before, value)


_NAMES = {fold_name(name): name for name in (*NARROWING, "tenant")}


def _check_tenant(name: str, value: object, source: Source, where: str) -> None:
    if name == "tenant" and value != source.tenant:
        raise Unlabelled("other_tenant", f"{where} names another tenant than sources.yaml")


# --- values -----------------------------------------------------------------------------------------------------------


def _value(
    name: str, spec: Field, value: object, source: Source, where: str, *, envelope: bool = True
) -> Scalar | frozenset[str]:
    if name == "groups":
        return _groups(value, source, where, envelope=envelope)
    if name == "sensitivity":
        return _sensitivity(value, where)
    if spec.kind == "set":
        return frozenset(_text(name, item, where) for item in _items(name, value, where))
    if name == "effective_from":
        return _instant(name, value, where)
    if spec.kind == "long":
        return _long(name, value, where)
    if spec.kind == "bool":
        if not isinstance(value, bool):
            raise Unlabelled("bad_label", f"{where} gives `{name}` no true or false")
        return value
    return _text(name, value, where)


def _groups(value: object, source: Source, where: str, *, envelope: bool) -> frozenset[str]:
    """`envelope` is of the source's own rules, whose words a message may quote."""
    groups: set[str] = set()
    for item in _items("groups", value, where):
        group = _text("groups", item, where)
        named = f" `{_short(group)}`" if envelope else ""
        if group != group.strip():
            raise Unlabelled("bad_label", f"{where} names a group with blanks around it{named and f', {named.strip()}'}")
        if ":" not in group.strip(":"):
            raise Unlabelled(
                "bad_label",
                f"{where} names a group without its issuer; write `issuer:name`" + (f" in place of{named}" if named else ""),
            )
        if envelope and group not in source.groups:
            raise Unlabelled(
                "outside_envelope", f"{where} names the group `{_short(group)}`, which sources.yaml does not permit here"
            )
        groups.add(group)
    return frozenset(groups)


def _items(name: str, value: object, where: str) -> Sequence[object]:
    """One text is one item, whatever stands in it: names of groups may hold commas."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    raise Unlabelled("bad_label", f"{where} gives `{name}` no list of texts")


def _text(name: str, value: object, where: str) -> str:
    if not isinstance(value, str):
        raise Unlabelled("bad_label", f"{where} gives `{name}` a value that is no text; quote it")
    try:
        check_text(value, f"`{name}`")
    except PolicyError as error:
        raise Unlabelled("bad_label", error.message) from None
    return _nfc(value)


def _nfc(text: str) -> str:
    """As claims are: policies compare code points."""
    return unicodedata.normalize("NFC", text)


def _sensitivity(value: object, where: str) -> int:
    if isinstance(value, str):
        name = value.strip().lower()
        value = int(name) if name in {"0", "1", "2", "3"} else CLASSES.index(name) if name in CLASSES else value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(CLASSES):
        raise Unlabelled("bad_label", f"{where} gives a sensitivity that is none of {', '.join(CLASSES)}")
    return value


def _instant(name: str, value: object, where: str) -> int:
    """A date, or epoch milliseconds; `2099` and `20990101` would be moments of 1970, and the document in force at once."""
    number = _number_or_date(value.strip()) if isinstance(value, str) else value
    if isinstance(number, int) and not isinstance(number, bool) and number < _LEAST_INSTANT_MS:
        raise Unlabelled("bad_label", f"{where} gives `{name}` a number that is no moment; write a date such as 2099-01-31")
    return _long(name, value, where)


def _long(name: str, value: object, where: str) -> int:
    if isinstance(value, str):
        value = _number_or_date(value.strip())
    if isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        value = (aware - _EPOCH) // _MILLISECOND
    if isinstance(value, bool) or not isinstance(value, int) or not LONG_MIN <= value <= LONG_MAX:
        raise Unlabelled("bad_label", f"{where} gives `{name}` neither a whole number nor a date")
    return value


def _number_or_date(text: str) -> object:
    if text.removeprefix("-").isdecimal() and len(text) < 20 and text.isascii():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


_MILLISECOND = datetime.resolution * 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _class_name(value: int) -> str:
    return CLASSES[value] if 0 <= value < len(CLASSES) else str(value)


def _short(text: object) -> str:
    return "".join(char for char in str(text) if char.isprintable())[:60]
