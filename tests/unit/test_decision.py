"""The record of a decision: its bytes, what stays out of them, its schema."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router import decision
from router.domain import (
    Degraded,
    Link,
    Passage,
    Principal,
    Question,
    Receipt,
    Record,
    Refusal,
    Route,
    Span,
    Stage,
)
from router.egress import Sent
from router.errors import LedgerError

KEY = bytes(range(32))
AT_US = 1_770_000_000_123_456
ADA = Principal(
    "corp",
    "ada",
    "User",
    "fabrikam",
    frozenset({"corp:hr", "corp:all"}),
    (("clearance", 2), ("regions", frozenset({"n", "e"}))),
    0,
)


def ask(text: str = "Who opens the gate at depot 4?", **options: Any) -> Record:
    question = Question(text, datetime(2026, 2, 2, tzinfo=UTC), 10, 10.0)
    settings: dict[str, Any] = {"policy_version": "a" * 64, "at_us": AT_US, "key": KEY} | options
    return decision.asked(principal=ADA, question=question, **settings)


def passage(rank: int) -> Passage:
    document = f"handbook/{rank}.md"
    return Passage(
        rank, "handbook", document, f"{document}#0", "A title", ("A",), "SECRET TEXT", "file:///x", Span(), None, None, ("dense",)
    )


def answer(asked: Record, **options: Any) -> Record:
    settings: dict[str, Any] = {
        "at_us": AT_US + 50_000,
        "outcome": "answered",
        "policy_version": "a" * 64,
        "total_us": 49_999,
        "route": Route("documents", {"documents": 0.9, "sql": 0.1}, 0.8, False, ("only documents are granted",)),
        "filters": [Receipt("dense", "f" * 64), Receipt("lexical", "f" * 64)],
        "policies": ["tenant-wall", "staff-read-their-groups", "tenant-wall"],
        "stages": [Stage("grants", 310), Stage("search", 9_000, 420, 50), Stage("rerank", 4_000, 50, 10, "note")],
        "evidence": [passage(1), passage(2)],
        "degraded": [Degraded("rerank", "timed_out")],
        "versions": {"pointsman": "0.1.0"},
        "data_versions": {"handbook": "g1:7"},
        "dropped": {"recheck": 1},
    }
    return decision.answered(asked=asked, **(settings | options))


# --- bytes ---


def test_golden_bytes() -> None:
    opened = ask(decision_id="d-" + "0" * 26, salt=b"s" * 32)
    sealed = answer(opened)
    assert opened.inputs == (
        b'{"principal":{"attributes":{"clearance":2,"regions":["e","n"]},"groups":["corp:all","corp:hr"],"kind":"User",'
        b'"name":"corp#ada"},"question":{"text":"Who opens the gate at depot 4?"},'
        b'"request":{"deadline_us":10000000,"k":10,"now_us":1769990400000000}}'
    )
    assert opened.body == (
        b'{"at":1770000000123456,"decision_id":"d-00000000000000000000000000","policy_version":"' + b"a" * 64 + b'",'
        b'"principal":"ddd4e846f3d7ab0ac89141ad299777ee31f32b4a5e0d864357d1dece20fa00ee","question":{"digest":'
        b'"63eabf41bba1eb7dea0b14bada3cb3332f6e1b4572e4206cb1ab0cab33268708","form":"kept"},"schema":1,"tenant":"fabrikam"}'
    )
    assert hashlib.sha256(sealed.body).hexdigest() == "b59f3e2a67436f99ed1a265ee4cfc4fea61033a5057fd2631119969a29fdeea6"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters()) | st.just("\ud800x\udfff\0"),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
        max_leaves=12,
    )
)
def test_canonical_bytes_read_back(value: Any) -> None:
    written = decision.canonical(value)
    written.decode("utf-8")
    assert json.loads(written) == value
    assert decision.canonical(json.loads(written)) == written


def test_order_of_keys_does_not_matter() -> None:
    assert decision.canonical({"b": 1, "a": {"d": 1, "c": 2}}) == decision.canonical({"a": {"c": 2, "d": 1}, "b": 1})


@pytest.mark.parametrize("value", [1.0, float("nan"), {"a": [0.5]}, {1: "a"}, ("a",), b"x", 2**63, {"a": {1}}])
def test_what_has_no_exact_form_is_refused(value: object) -> None:
    with pytest.raises(LedgerError) as raised:
        decision.canonical(value)
    assert raised.value.code == "record_invalid"


def test_lone_surrogates_in_a_question() -> None:
    for text in ("\ud800", "a\udfffb", "\0", "emoji \U0001f600 \u202e", "x" * 20_000):
        opened = ask(text)
        assert decision.load_inputs(opened)["question"] == {"text": text}  # type: ignore[index]


@pytest.mark.parametrize(("score", "expected"), [(0, 0), (1, 1_000_000), (0.1234567, 123457), (1 + 1e-9, 1_000_000), (-1e-9, 0)])
def test_millionths(score: float, expected: int) -> None:
    assert decision.millionths(score) == expected


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -0.001, 1.001])
def test_impossible_scores_are_refused(score: float) -> None:
    with pytest.raises(LedgerError):
        decision.millionths(score)


# --- ids and digests ---


def test_ids_are_ordered_by_time_and_unguessable() -> None:
    ids = [decision.new_id(at_us) for at_us in range(AT_US, AT_US + 200_000, 1_000)]
    assert ids == sorted(ids)
    assert all(re.fullmatch(r"d-[0-9a-hjkmnp-tv-z]{26}", one) for one in ids)
    same = {decision.new_id(AT_US)[12:] for _ in range(2_000)}
    assert len(same) == 2_000
    assert len({one[0] for one in same}) > 16


def test_principal_digest_is_keyed_and_per_tenant() -> None:
    digests = {
        decision.principal_digest(key, tenant, name)
        for key in (KEY, bytes(32))
        for tenant, name in (
            ("fabrikam", "corp#ada"),
            ("northwind", "corp#ada"),
            ("fabrikam", "corp#bob"),
            ("fabrikamcorp", "#ada"),
        )
    }
    assert len(digests) == 8
    with pytest.raises(LedgerError):
        decision.principal_digest(b"short", "fabrikam", "corp#ada")


# --- what stays out ---


def test_personal_inputs_stay_out_of_the_body() -> None:
    opened = ask("Does Grace earn more than 50000?")
    for body in (opened.body, answer(opened).body):
        for text in (b"Grace", b"corp#ada", b'"ada"', b"corp:hr", b"clearance", b"SECRET", b"A title"):
            assert text not in body
    first, second = json.loads(ask("same").body), json.loads(ask("same").body)
    assert first["question"]["digest"] != second["question"]["digest"], "equal questions must look unequal"
    assert first["principal"] == second["principal"]


def test_forms_of_the_question() -> None:
    text = "Call ada@fabrikam.example at +49 30 1234-5678 about PN-88213 and ERR-4012, account 123456789"
    kept, redacted, digest = (ask(text, form=form) for form in ("kept", "redacted", "digest"))
    assert text.encode() in (kept.inputs or b"")
    assert decision.load_inputs(redacted)["question"] == {
        "text": "Call [mail] at [number] about PN-88213 and ERR-4012, account [number]"
    }  # type: ignore[index]
    assert b"PN-88213" not in (digest.inputs or b"")
    assert [json.loads(record.body)["question"]["form"] for record in (kept, redacted, digest)] == ["kept", "redacted", "digest"]


@pytest.mark.parametrize("text", ["x" * 20_000, "1 " * 10_000, "1-" * 4 + "x" * 9_000, "a@" * 10_000, "+1(" * 7_000])
def test_redacting_hostile_text_is_quick(text: str) -> None:
    before = time.perf_counter()
    decision.redact(text)
    assert time.perf_counter() - before < 0.5


def test_edited_inputs_are_never_shown() -> None:
    opened = ask()
    edited = Record(
        opened.tenant, opened.decision_id, opened.kind, opened.at_us, opened.body, b'{"question":{"text":"x"}}', opened.salt
    )
    with pytest.raises(LedgerError):
        decision.load_inputs(edited)
    erased = Record(opened.tenant, opened.decision_id, opened.kind, opened.at_us, opened.body)
    assert decision.load_inputs(erased) is None


# --- the schema ---


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"outcome": "empty", "evidence": [], "filters": []},
        {"outcome": "refused", "route": None, "refusal": Refusal("policy_invalid", "the policies are not valid"), "stages": []},
        {"egress": [Sent("cohere", "rerank-test", "rerank", (0, 1), 900, 3, "0" * 64).as_json()]},
    ],
)
def test_every_record_fits_the_model(options: dict[str, Any]) -> None:
    line = decision.decision_line(answer(ask(), **options), Link(2, "0" * 64, "1" * 64))
    model = decision.decision_model().model_validate(line)
    assert model.model_dump(by_alias=True) == line
    assert (line["seq"], line["previous"], line["digest"]) == (2, "0" * 64, "1" * 64)


def test_fields_are_those_of_the_interface() -> None:
    names = [field.alias or name for name, field in decision.decision_model().model_fields.items()]
    assert sorted(names) == sorted(
        "schema decision_id seq at tenant principal question route margin outcome refusal policy_version filter_digests policies "
        "stages total_us evidence sql egress degraded versions data_versions dropped cache previous digest".split()
    )
    assert set(json.loads(ask().body)) < set(names)


def test_a_stage_that_ran_twice_is_one_entry() -> None:
    sealed = answer(ask(), stages=[Stage("search", 100, 420, 50), Stage("rerank", 5), Stage("search", 30, 50, 7)])
    assert json.loads(sealed.body)["stages"] == {
        "search": {"us": 130, "in": 420, "out": 7},
        "rerank": {"us": 5, "in": None, "out": None},
    }


def test_the_documented_fields_are_the_models() -> None:
    text = (Path(__file__).parents[2] / "deploy" / "decision.md").read_text()
    table = decision.decision_fields_markdown()
    assert text.endswith(table), "write decision_fields_markdown() at the end of deploy/decision.md"
    assert table.count("\n") == len(decision.decision_model().model_fields) + 2
    assert "|  |" not in table


# --- other records ---


def test_other_kinds_are_exact_and_name_no_person() -> None:
    records = [
        decision.label_change(tenant="t", at_us=AT_US, by="indexer", source="s", document_id="s/a", old=None, new="b" * 64),
        decision.index_run(
            tenant="t",
            at_us=AT_US,
            by="indexer",
            source="s",
            generation="g1",
            total_us=5,
            counts={"put": 3},
            failures={"no_text": 1},
            data_version="7",
        ),
        decision.content_forgotten(tenant="t", at_us=AT_US, by="indexer", source="s", content_hashes=["b" * 64, "a" * 64]),
        decision.policy_loaded(at_us=AT_US, policy_version="a" * 64, previous_version=None),
        decision.refused_tokens(at_us=AT_US, issuer="corp", code="token_expired", count=7),
        decision.audit_use(tenant="t", at_us=AT_US, principal=ADA, key=KEY, action="log_show", target="d-1", subject="corp#bob"),
    ]
    for record in records:
        body = json.loads(record.body)
        assert body["kind"] == record.kind
        assert body["record_id"] == record.decision_id
        assert b"#ada" not in record.body
        assert b"#bob" not in record.body
    assert [record.tenant for record in records] == ["t", "t", "t", "-", "-", "t"]
    assert decision.load_forgotten(records[2]) == ("s", ("a" * 64, "b" * 64))
    assert decision.load_inputs(records[-1]) == {"reviewer": "corp#ada", "subject": "corp#bob"}


class TestRefusedTokens:
    def test_one_record_per_minute_issuer_and_code(self) -> None:
        now = [60_000_000 * 100 + 5]
        refused = decision.RefusedTokens(lambda: now[0])
        for _ in range(3):
            assert refused.add("corp", "token_expired") == []
        refused.add("corp", "token_unsigned")
        now[0] += 60_000_000
        done = [json.loads(record.body) for record in refused.add("corp", "token_expired")]
        assert [(body["at"], body["issuer"], body["code"], body["count"]) for body in done] == [
            (6_000_000_000, "corp", "token_expired", 3),
            (6_000_000_000, "corp", "token_unsigned", 1),
        ]
        assert [json.loads(record.body)["count"] for record in refused.drain()] == [1]
        assert refused.drain() == []

    def test_a_flood_of_issuers_is_bounded(self) -> None:
        refused = decision.RefusedTokens(lambda: 0)
        for number in range(5_000):
            refused.add(f"{number}" + "x" * 10_000, "issuer_unknown")
        bodies = [json.loads(record.body) for record in refused.drain()]
        assert len(bodies) <= decision.MAX_REFUSED_KEYS + 1
        assert sum(body["count"] for body in bodies) == 5_000
        assert max(len(body["issuer"]) for body in bodies) <= 64

    def test_threads_lose_no_count(self) -> None:
        refused = decision.RefusedTokens(lambda: 0)
        threads = [threading.Thread(target=lambda: [refused.add("corp", "token_expired") for _ in range(500)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [json.loads(record.body)["count"] for record in refused.drain()] == [4_000]
