"""The values of the line: frozen, and with exactly the JSON that is promised outside."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router import domain
from router.domain import (
    Answer,
    Degraded,
    Link,
    ManifestRow,
    ModelCard,
    Passage,
    Principal,
    Receipt,
    Record,
    Refusal,
    Route,
    Span,
    Stage,
    label_digest,
    link_digest,
)

CLASSES = [kind for _, kind in inspect.getmembers(domain, inspect.isclass) if kind.__module__ == "router.domain"]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_noun_is_a_frozen_value(kind):
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert "__slots__" in kind.__dict__


def passage(**changes) -> Passage:
    made = Passage(1, "s", "s/d", "s/d#0", "T", ("H",), "text", "file:///d", Span(), None, None, ("dense",))
    return dataclasses.replace(made, **changes)


def answer(**changes) -> Answer:
    made = Answer("d-1", "answered", Route("documents", {"documents": 1.0}, 1.0, False, ("r",)), (passage(),), (), (), "v", ())
    return dataclasses.replace(made, **changes)


def test_answer_has_the_promised_keys_in_order():
    body = answer().as_json()
    assert list(body) == [
        "decision_id", "outcome", "route", "passages", "tables", "stages", "degraded", "policy_version", "filters", "notes", "nearest",
    ]  # fmt: skip
    assert list(body["route"]) == ["name", "scores", "margin", "abstained", "reasons"]
    assert json.loads(json.dumps(body)) == body


def test_refusal_is_there_only_where_something_was_refused():
    assert "refusal" not in answer().as_json()
    body = answer(outcome="refused", passages=(), refusal=Refusal("c", "r")).as_json()
    assert body["refusal"] == {"code": "c", "reason": "r"}


@pytest.mark.parametrize(
    ("span", "shown"),
    [
        (Span(), {}),
        (Span(page=3), {"page": 3}),
        (Span(lines=(1, 4)), {"lines": (1, 4)}),
        (Span(sheet="S"), {"sheet": "S"}),
        (Span(page=1, lines=(2, 3)), {"page": 1, "lines": (2, 3)}),
    ],
)
def test_a_span_shows_what_it_knows(span, shown):
    assert answer(passages=(passage(span=span),)).as_json()["passages"][0]["span"] == shown


def test_stages_are_milliseconds_outside():
    body = answer(
        stages=(Stage("search", 1_234, 9, 5, "n"),), degraded=(Degraded("embed", "late"),), filters=(Receipt("dense", "ab"),)
    ).as_json()
    assert body["stages"] == [{"name": "search", "ms": 1.234, "in": 9, "out": 5, "note": "n"}]
    assert body["degraded"] == [{"stage": "embed", "reason": "late"}]
    assert body["filters"] == [{"leg": "dense", "digest": "ab"}]


def test_names():
    principal = Principal("corp", "ada", "User", "t", frozenset(), (), 1)
    assert principal.name == "corp#ada"
    assert principal == dataclasses.replace(principal, expires_at_s=2, development=True), "a new token is the same principal"
    assert ModelCard("m", "0123456789abcdef", 1, 1, 1).id == "m@0123456789ab"
    assert ManifestRow("t", "g", "s", "a/b.md", "indexed", "f", "h").document_id == "s/a/b.md"


# --- digests ----------------------------------------------------------------------------------------------------------

labels = st.dictionaries(
    st.text(max_size=5),
    st.one_of(st.text(max_size=5), st.integers(), st.booleans(), st.frozensets(st.text(max_size=3), max_size=3)),
)


@given(st.text(max_size=5), labels, st.text(max_size=5), labels)
def test_label_digests_are_equal_for_equal_labels_only(source, one, other_source, other):
    same = (source, plain(one)) == (other_source, plain(other))
    assert (label_digest(source, one) == label_digest(other_source, other)) is same


def plain(value):
    """True is not 1, and a set of names is not its order."""
    return sorted(
        (name, type(item).__name__, sorted(item) if isinstance(item, frozenset) else item) for name, item in value.items()
    )


def test_label_digest_does_not_depend_on_order():
    assert label_digest("s", {"a": 1, "b": frozenset({"x", "y"})}) == label_digest("s", {"b": frozenset({"y", "x"}), "a": 1})


def test_link_digest_covers_every_part():
    record = Record("t", "d", "k", 1, b"{}")
    base = link_digest(1, "p", record)
    changed = [
        link_digest(2, "p", record),
        link_digest(1, "q", record),
        *(
            link_digest(1, "p", dataclasses.replace(record, **change))
            for change in ({"tenant": "u"}, {"decision_id": "e"}, {"kind": "l"}, {"at_us": 2}, {"body": b"[]"})
        ),
    ]
    assert len({base, *changed}) == 8
    assert base == hashlib.sha256(b'[1,"p","t","d","k",1]\n{}').hexdigest()
    assert Link(1, "p", base).digest == base


def test_link_digest_keeps_neighbours_apart():
    """No text can move from one part into the next."""
    assert link_digest(1, 'a","b', Record("c", "d", "k", 1, b"")) != link_digest(1, "a", Record('b","c', "d", "k", 1, b""))
