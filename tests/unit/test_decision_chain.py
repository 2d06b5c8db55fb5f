"""A chain of records: what its verification finds, and the figures read from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router import decision
from router.decision import verify_chain
from router.domain import CHAIN_START, Degraded, Link, Principal, Question, Record, Refusal, Route, Stage, link_digest

Row = tuple[Link, Record]
KEY = bytes(range(32))
AT_US = 1_770_000_000_123_456
ADA = Principal("corp", "ada", "User", "fabrikam", frozenset({"corp:all"}), (), 0)


def ask(text: str = "Who opens the gate?", **options: Any) -> Record:
    question = Question(text, datetime(2026, 2, 2, tzinfo=UTC), 10, 10.0)
    return decision.asked(
        principal=ADA, question=question, **({"policy_version": "a" * 64, "at_us": AT_US, "key": KEY} | options)
    )


def answer(asked: Record, **options: Any) -> Record:
    route = Route("documents", {"documents": 0.9}, 0.8, False, ())
    settings: dict[str, Any] = {"at_us": AT_US + 50_000, "outcome": "answered", "policy_version": "a" * 64, "total_us": 49_999}
    return decision.answered(asked=asked, **(settings | {"route": route} | options))


def chain(records: list[Record]) -> list[Row]:
    rows, previous = [], CHAIN_START
    for seq, record in enumerate(records, 1):
        link = Link(seq, previous, link_digest(seq, previous, record))
        rows.append((link, record))
        previous = link.digest
    return rows


def decisions(count: int) -> list[Record]:
    return [record for number in range(count) for record in _pair(ask(f"question {number}", at_us=AT_US + number))]


def _pair(asked: Record) -> tuple[Record, Record]:
    return asked, answer(asked)


ROWS = chain(decisions(5))


def codes(rows: list[Row], **options: tuple[int, str]) -> set[str]:
    return {fault.code for fault in verify_chain(iter(rows), **options).faults}


def changed(row: Row, **options: object) -> Row:
    return row[0], dataclasses.replace(row[1], **options)  # type: ignore[arg-type]


def linked(row: Row, **options: object) -> Row:
    return dataclasses.replace(row[0], **options), row[1]  # type: ignore[arg-type]


def resealed(row: Row, body: bytes) -> Row:
    """An edit by somebody who also computes the row's digest anew."""
    record = dataclasses.replace(row[1], body=body)
    return dataclasses.replace(row[0], digest=link_digest(row[0].seq, row[0].previous, record)), record


def test_a_whole_chain() -> None:
    verdict = verify_chain(iter(ROWS))
    assert verdict.whole
    assert (verdict.rows, verdict.open, verdict.erased, verdict.head) == (10, (), 0, ROWS[-1][0])
    assert verify_chain(ROWS, anchor=(ROWS[3][0].seq, ROWS[3][0].digest)).whole
    assert verify_chain([]).whole


MANIPULATIONS: dict[str, tuple[Callable[[list[Row]], list[Row]], set[str]]] = {
    "body edited": (lambda rows: [*rows[:3], changed(rows[3], body=rows[3][1].body + b" "), *rows[4:]], {"edited"}),
    "body edited and sealed anew": (lambda rows: [*rows[:3], resealed(rows[3], b"{}"), *rows[4:]], {"broken"}),
    "time edited": (lambda rows: [*rows[:3], changed(rows[3], at_us=1), *rows[4:]], {"edited"}),
    "kind edited": (lambda rows: [*rows[:3], changed(rows[3], kind="policy_loaded"), *rows[4:]], {"edited"}),
    "id edited": (lambda rows: [*rows[:3], changed(rows[3], decision_id="d-x"), *rows[4:]], {"edited", "unasked"}),
    "tenant edited": (lambda rows: [*rows[:3], changed(rows[3], tenant="other"), *rows[4:]], {"edited"}),
    "digest edited": (lambda rows: [*rows[:3], linked(rows[3], digest="0" * 64), *rows[4:]], {"edited", "broken"}),
    "previous edited": (lambda rows: [*rows[:3], linked(rows[3], previous="0" * 64), *rows[4:]], {"edited", "broken"}),
    "first deleted": (lambda rows: rows[1:], {"gap", "unasked"}),
    "middle deleted": (lambda rows: rows[:4] + rows[6:], {"gap"}),
    "deleted and renumbered": (
        lambda rows: rows[:4] + [linked(row, seq=row[0].seq - 2) for row in rows[6:]],
        {"edited", "broken"},
    ),
    "swapped": (lambda rows: [*rows[:3], rows[4], rows[3], *rows[5:]], {"gap", "reordered"}),
    "swapped and renumbered": (
        lambda rows: [*rows[:3], linked(rows[4], seq=4), linked(rows[3], seq=5), *rows[5:]],
        {"edited", "broken"},
    ),
    "repeated": (lambda rows: rows[:5] + rows[4:], {"reordered"}),
    "foreign row inserted": (lambda rows: rows[:5] + chain(decisions(9))[5:6] + rows[5:], {"broken", "reordered", "unasked"}),
    "inputs edited": (lambda rows: [*rows[:2], changed(rows[2], inputs=b"{}"), *rows[3:]], {"inputs_edited"}),
    "salt edited": (lambda rows: [*rows[:2], changed(rows[2], salt=b"x" * 32), *rows[3:]], {"inputs_edited"}),
    "inputs of another": (
        lambda rows: [changed(rows[0], inputs=rows[2][1].inputs, salt=rows[2][1].salt), *rows[1:]],
        {"inputs_edited"},
    ),
    "inputs given to an answer": (
        lambda rows: [rows[0], changed(rows[1], inputs=b"{}", salt=b"x"), *rows[2:]],
        {"inputs_edited"},
    ),
}


@pytest.mark.parametrize("name", MANIPULATIONS)
def test_each_manipulation_is_found(name: str) -> None:
    manipulate, expected = MANIPULATIONS[name]
    found = codes(manipulate(list(ROWS)))
    assert found
    assert found <= expected, "only what happened is reported"


@given(st.data())
@settings(max_examples=200)
def test_any_one_byte_is_found(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(ROWS) - 1))
    link, record = ROWS[at]
    offset = data.draw(st.integers(0, len(record.body) - 1))
    flip = data.draw(st.integers(1, 255))
    body = bytearray(record.body)
    body[offset] ^= flip
    assert "edited" in codes([*ROWS[:at], (link, dataclasses.replace(record, body=bytes(body))), *ROWS[at + 1 :]])


def test_a_cut_tail_is_found_by_an_anchor_only() -> None:
    anchor = (ROWS[-1][0].seq, ROWS[-1][0].digest)
    assert codes(ROWS[:8]) == set()
    assert codes(ROWS[:8], anchor=anchor) == {"truncated"}
    assert codes([], anchor=anchor) == {"truncated"}
    assert codes(chain(decisions(7)), anchor=anchor) == {"replaced"}, "a whole chain written anew"


def test_open_decisions_are_no_fault() -> None:
    verdict = verify_chain(chain([*decisions(1), ask(decision_id="d-open"), *decisions(1)]))
    assert verdict.whole
    assert verdict.open == ("d-open",)
    assert codes(chain([answer(ask())])) == {"unasked"}


def test_erased_inputs_leave_the_chain_verifiable() -> None:
    rows = [changed(row, inputs=None, salt=None) if row[0].seq in {1, 5} else row for row in ROWS]
    verdict = verify_chain(rows)
    assert verdict.whole
    assert verdict.erased == 2


def test_faults_are_counted_but_not_kept_without_end() -> None:
    rows = [linked(row, digest="0" * 64) for row in chain([ask() for _ in range(700)])]
    verdict = verify_chain(rows)
    assert verdict.fault_count == 1_399
    assert len(verdict.faults) == decision.MAX_FAULTS


def test_summary() -> None:
    opened = [ask(at_us=AT_US + number) for number in range(100)]
    sealed = [
        answer(one, total_us=1_000 * (number + 1), stages=[Stage("search", number + 1)], degraded=[], dropped={"recheck": 2})
        for number, one in enumerate(opened)
    ]
    sealed[7] = answer(opened[7], outcome="refused", route=None, refusal=Refusal("policy_invalid", "x"), stages=[], degraded=[])
    sealed[8] = answer(
        opened[8],
        degraded=[Degraded("rerank", "timed_out")],
        egress=[{"provider": "cohere", "purpose": "rerank", "classes": [1], "bytes": 70, "items": 2}],
    )
    others = [
        ask(at_us=AT_US),
        decision.refused_tokens(at_us=AT_US, issuer="corp", code="token_expired", count=7),
        decision.audit_use(tenant="t", at_us=AT_US, principal=ADA, key=KEY, action="log_show", target="d-1"),
        dataclasses.replace(ask(), at_us=1),
    ]
    found = decision.summary(chain([*opened, *sealed, *others]), since_us=AT_US)
    assert found.kinds == {"asked": 101, "answered": 100, "refused_tokens": 1, "audit_use": 1}
    assert (found.rows, found.open) == (203, 1)
    assert found.routes == {"documents": 99, "-": 1}
    assert found.outcomes == {"answered": 99, "refused": 1}
    assert found.refusals == {"policy_invalid": 1}
    assert found.refused_tokens == {"corp: token_expired": 7}
    assert found.degraded == {"rerank: timed_out": 1}
    assert found.dropped == {"recheck": 196}
    assert found.egress_bytes == {"cohere: rerank": 70}
    assert (found.total.count, found.total.p50_us, found.total.p95_us) == (100, 50_000, 95_000)
    assert found.stages["search"].count == 98
    assert decision.summary([]).total.count == 0
