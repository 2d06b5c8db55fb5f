"""Labels: rules, envelope, narrowing. Wider is never possible; unreadable is never open."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.domain import RawLabels, Source, label_digest
from router.filters import EntityType, Field
from router.ingest.label import Labelled, Unlabelled, build_labels, narrowing_json, narrowing_of, refusal_of

DOCUMENT = EntityType(
    "Document",
    {
        "tenant": Field("string", True),
        "groups": Field("set", True),
        "tags": Field("set", True),
        "sensitivity": Field("long", True),
        "effective_from": Field("long", False),
        "region": Field("string", False),
        "owner": Field("string", False),
        "draft": Field("bool", False),
    },
)
SOURCE = Source("handbook", "fabrikam", "folder", frozenset({"corp:all", "corp:hr", "corp:legal"}), 1, "", "")
DAY_MS = 86_400_000


def label(*rules: dict[str, Any], front: dict[str, Any] | None = None, sidecar: dict[str, Any] | None = None) -> Labelled:
    raw = RawLabels(rules, (sidecar,) if sidecar is not None else ())
    return build_labels(DOCUMENT, SOURCE, raw, front or {})


def refused(*rules: dict[str, Any], **narrowing: Any) -> str:
    with pytest.raises(Unlabelled) as caught:
        label(*rules, **narrowing)
    return caught.value.reason


WIDE = {"groups": ["corp:all", "corp:hr"], "sensitivity": "internal"}


def test_all_matching_rules_apply_and_the_strictest_wins() -> None:
    made = label(
        {"groups": ["corp:all", "corp:hr"], "sensitivity": "internal", "effective_from": date(2025, 1, 1)},
        {"groups": ["corp:hr", "corp:legal"], "sensitivity": "confidential"},
        {"effective_from": date(2026, 1, 1), "owner": "hr"},
    )
    assert made.labels == {
        "tenant": "fabrikam",
        "groups": frozenset({"corp:hr"}),
        "tags": frozenset(),
        "sensitivity": 2,
        "effective_from": int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1000,
        "owner": "hr",
    }
    assert made.digest == label_digest("handbook", made.labels)


def test_order_of_rules_does_not_matter() -> None:
    rules = [WIDE, {"groups": ["corp:hr"], "sensitivity": 3}, {"effective_from": "2025-05-05"}]
    assert label(*rules).labels == label(*reversed(rules)).labels


def test_other_attributes_must_agree() -> None:
    assert label(WIDE, {"region": "west"}, {"region": "west"}).labels["region"] == "west"
    assert refused(WIDE, {"region": "west"}, {"region": "east"}) == "label_conflict"


def test_no_rule_no_label() -> None:
    assert refused() == "no_labels"
    assert refused({"groups": ["corp:all"]}) == "incomplete_labels"
    assert refused({"sensitivity": "internal"}) == "incomplete_labels"


def test_envelope() -> None:
    assert refused({"groups": ["corp:all", "corp:board"], "sensitivity": "internal"}) == "outside_envelope"
    assert refused({"groups": ["corp:all"], "sensitivity": "public"}) == "outside_envelope"
    assert refused({"groups": ["corp:all"], "sensitivity": "public"}, front={"sensitivity": "restricted"}) == "outside_envelope"
    assert label({"groups": ["corp:all"], "sensitivity": "public"}, {"sensitivity": "internal"}).labels["sensitivity"] == 1


def test_an_empty_set_of_groups_is_a_label() -> None:
    made = label({"groups": ["corp:all"], "sensitivity": 1}, {"groups": ["corp:hr"]})
    assert made.labels["groups"] == frozenset()
    assert made.notes == ("no group is left",)


def test_tenant_is_the_sources() -> None:
    assert label(WIDE, front={"tenant": "fabrikam"}).labels["tenant"] == "fabrikam"
    assert refused(WIDE, front={"tenant": "contoso"}) == "other_tenant"
    assert refused(WIDE, sidecar={"tenant": "contoso"}) == "other_tenant"
    assert refused({**WIDE, "tenant": "contoso"}) == "other_tenant"


def test_wider_groups_are_not_added() -> None:
    made = label({"groups": ["corp:hr"], "sensitivity": "internal"}, front={"groups": ["corp:hr", "corp:all", "other:x"]})
    assert made.labels["groups"] == frozenset({"corp:hr"})
    assert "beyond its labels" in made.notes[0]


def test_front_matter_sets_no_other_attribute() -> None:
    made = label({**WIDE, "region": "west"}, front={"region": "east", "sensitivity": 2})
    assert made.labels["region"] == "west"
    assert narrowing_of({"region": "east", "groups": ["corp:hr"], "title": "x"}, SOURCE) == {"groups": ["corp:hr"]}


def test_earlier_date_does_not_open() -> None:
    made = label({**WIDE, "effective_from": "2027-01-01"}, front={"effective_from": "2020-01-01"})
    assert made.labels["effective_from"] == int(datetime(2027, 1, 1, tzinfo=UTC).timestamp()) * 1000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (date(1970, 1, 2), DAY_MS),
        (datetime(1970, 1, 2, tzinfo=UTC), DAY_MS),
        (datetime(1970, 1, 2), DAY_MS),  # noqa: DTZ001 (YAML gives such values)
        ("1970-01-02", DAY_MS),
        ("1970-01-02T01:00:00+01:00", DAY_MS),
        (date(1969, 12, 31), -DAY_MS),
        (10**11, 10**11),
        ("4102444800000", 4_102_444_800_000),
    ],
)
def test_dates_become_epoch_milliseconds(value: Any, expected: int) -> None:
    assert label({**WIDE, "effective_from": value}).labels["effective_from"] == expected


@pytest.mark.parametrize(
    "rule",
    [
        {"groups": "hr"},
        {"groups": ["all"]},
        {"groups": [":all"]},
        {"groups": ["corp:"]},
        {"groups": [1]},
        {"groups": {"corp:all": 1}},
        {"groups": ["corp:a\0ll"]},
        {"groups": ["corp:\ud800"]},
        {"sensitivity": "secret"},
        {"sensitivity": 4},
        {"sensitivity": -1},
        {"sensitivity": True},
        {"sensitivity": 1.5},
        {"sensitivity": None},
        {"effective_from": "soon"},
        {"effective_from": 2099},
        {"effective_from": 20990101},
        {"effective_from": "20990101"},
        {"effective_from": "2099"},
        {"effective_from": 4_070_908_800},
        {"effective_from": 0},
        {"effective_from": -(10**12)},
        {"groups": [" corp:all"]},
        {"groups": ["corp:all\u00a0"]},
        {"groups": [["corp:all"]]},
        {"effective_from": 1.5},
        {"effective_from": True},
        {"effective_from": 2**63},
        {"effective_from": None},
        {"region": 5},
        {"region": None},
        {"region": "we\0st"},
        {"draft": "yes"},
        {"tags": 5},
        {"sensitvity": "internal"},
    ],
)
def test_bad_values(rule: dict[str, Any]) -> None:
    assert refused(WIDE, rule) == "bad_label"
    name = next(iter(rule))
    if name in {"groups", "sensitivity", "effective_from"}:
        assert refused(WIDE, front=rule) == "bad_label"
        assert refused(WIDE, sidecar=rule) == "bad_label"


def test_a_fault_of_the_source_is_no_label() -> None:
    with pytest.raises(Unlabelled, match="bad_label"):
        build_labels(DOCUMENT, SOURCE, RawLabels((WIDE,), fault="its sidecar cannot be read"), {})


def test_groups_are_compared_in_nfc() -> None:
    source = Source("s", "t", "folder", frozenset({"corp:caf\u00e9"}), 0, "", "")
    made = build_labels(DOCUMENT, source, RawLabels(({"groups": ["corp:cafe\u0301"], "sensitivity": 0},)), {})
    assert made.labels["groups"] == frozenset({unicodedata.normalize("NFC", "corp:cafe\u0301")})


GROUPS = st.lists(st.sampled_from(["corp:all", "corp:hr", "corp:legal"]), max_size=3)
ANY_GROUPS = st.lists(st.sampled_from(["corp:all", "corp:hr", "corp:legal", "corp:board", "other:all"]), max_size=4)
DATES = st.one_of(st.dates(), st.integers(10**11, 10**13))
RULE = st.fixed_dictionaries(
    {"groups": GROUPS, "sensitivity": st.integers(1, 3)}, optional={"effective_from": DATES, "owner": st.just("hr")}
)
NARROWING = st.fixed_dictionaries(
    {}, optional={"groups": ANY_GROUPS, "sensitivity": st.integers(0, 3), "effective_from": DATES, "owner": st.text(max_size=3)}
)


@given(st.lists(RULE, min_size=1, max_size=3), NARROWING, NARROWING)
def test_narrowing_never_widens(rules: list[dict[str, Any]], front: dict[str, Any], sidecar: dict[str, Any]) -> None:
    plain = label(*rules).labels
    narrowed = label(*rules, front=narrowing_of(front, SOURCE), sidecar=sidecar).labels
    assert narrowed["groups"] <= plain["groups"]  # type: ignore[operator]
    assert narrowed["sensitivity"] >= plain["sensitivity"]  # type: ignore[operator]
    if "effective_from" in plain:
        assert narrowed["effective_from"] >= plain["effective_from"]  # type: ignore[operator]
    rest = {"tenant", "owner", "tags", "region", "draft"}
    assert {name: value for name, value in narrowed.items() if name in rest} == {
        name: value for name, value in plain.items() if name in rest
    }


@given(st.lists(RULE, min_size=1, max_size=4))
def test_labels_are_complete(rules: list[dict[str, Any]]) -> None:
    labels = label(*rules).labels
    for name, spec in DOCUMENT.fields.items():
        if spec.kind == "set":
            assert isinstance(labels[name], frozenset)
        elif spec.required:
            assert type(labels[name]) is {"string": str, "long": int, "bool": bool}[spec.kind]


@given(st.lists(RULE, min_size=1, max_size=3), RULE)
def test_one_more_rule_never_widens(rules: list[dict[str, Any]], more: dict[str, Any]) -> None:
    before, after = label(*rules).labels, label(*rules, more).labels
    assert after["groups"] <= before["groups"]  # type: ignore[operator]
    assert after["sensitivity"] >= before["sensitivity"]  # type: ignore[operator]


@given(NARROWING)
def test_what_the_manifest_remembers_gives_the_same_labels(front: dict[str, Any]) -> None:
    narrowing = narrowing_of(front, SOURCE)
    remembered = json.loads(narrowing_json(narrowing))
    assert label(WIDE, front=front).labels == label(WIDE, front=narrowing).labels == label(WIDE, front=remembered).labels
    assert narrowing_of(remembered, SOURCE) == narrowing


@pytest.mark.parametrize(
    "name",
    [
        "Sensitivity",
        "SENSITIVITY",
        " sensitivity ",
        "\u00a0sensitivity",
        "sensi\u00adtivity",
        "\u200bsensitivity",
        "ｓensitivity",
    ],
)
def test_names_of_narrowing_in_any_spelling(name: str) -> None:
    assert label(WIDE, front={name: "restricted"}).labels["sensitivity"] == 3
    assert label(WIDE, sidecar={name: "restricted"}).labels["sensitivity"] == 3
    assert refused(WIDE, {name: "restricted"}) == "bad_label"  # rules are the operator's: exact, or said aloud


def test_narrowing_said_twice_is_no_narrowing() -> None:
    assert refused(WIDE, front={"Groups": ["corp:hr"], "groups": ["corp:all"]}) == "bad_label"
    for name in ("effective-from", "Effective From", "effectiveFrom"):
        assert "effective_from" in label(WIDE, front={name: "2099-01-01"}).labels


@pytest.mark.parametrize(
    "front",
    [
        {"labels": {"sensitivity": "restricted"}},
        {"access": [{"Groups": ["corp:hr"]}]},
        {"a": {"b": {"effective_from": "2099-01-01"}}},
    ],
)
def test_narrowing_in_the_wrong_place(front: dict[str, Any]) -> None:
    with pytest.raises(Unlabelled, match="below another name"):
        narrowing_of(front, SOURCE)


def test_a_sidecar_says_labels_and_nothing_else() -> None:
    assert refused(WIDE, sidecar={"sensitvity": "restricted"}) == "bad_label"
    assert label(WIDE, sidecar={"owner": "x"}).notes == ("`owner` in its sidecar is no label: it is set by rules only",)


def test_refused_values_are_not_remembered() -> None:
    for front in (
        {"sensitivity": "zlevel77"},
        {"groups": ["zlevel77"]},
        {"groups": ["a: zlevel77 "]},
        {"groups": "a:zlevel77, b:c"},
        {"effective_from": "zlevel77"},
        {"tenant": "zlevel77"},
    ):
        with pytest.raises(Unlabelled) as caught:
            narrowing_of(front, SOURCE)
        remembered = narrowing_json(refusal_of(caught.value))
        assert "zlevel77" not in remembered
        with pytest.raises(Unlabelled) as again:
            label(WIDE, front=json.loads(remembered))
        assert (again.value.reason, again.value.detail) == (caught.value.reason, caught.value.detail)


def test_a_comma_is_part_of_a_name() -> None:
    source = Source("s", "t", "folder", frozenset({"corp:Sales, EMEA", "corp:Sales"}), 0, "", "")
    rule = {"groups": "corp:Sales, EMEA", "sensitivity": 0}
    made = build_labels(DOCUMENT, source, RawLabels((rule,)), {"groups": "corp:Sales, EMEA"})
    assert made.labels["groups"] == frozenset({"corp:Sales, EMEA"})
    assert refused({"groups": "corp:all, corp:hr", "sensitivity": 1}) == "outside_envelope"


def test_texts_are_in_nfc() -> None:
    made = label({**WIDE, "owner": "Cafe\u0301", "tags": ["Cafe\u0301"]})
    assert made.labels["owner"] == "Caf\u00e9"
    assert made.labels["tags"] == frozenset({"Caf\u00e9"})
    assert label({**WIDE, "owner": "Cafe\u0301"}, {"owner": "Caf\u00e9"}).labels["owner"] == "Caf\u00e9"
