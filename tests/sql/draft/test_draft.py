"""Drafts by a model whose every word is chosen by the test: what comes out passed the gate, or is a code."""

from __future__ import annotations

import json
import random
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.duckdb_tables import _Parsing
from router.domain import Purpose, Verdict
from router.errors import LedgerError, Refused, SourceError
from router.ports import ModelReply
from router.sql import draft as drafting
from router.sql import gate
from router.sql.draft import SQL_READING, Draft, Undrafted, draft_by_model
from router.sql.parse_form import form_json
from tests.sql.form.strategies import forms_over
from tests.sql.form.test_form_gate import granted
from tests.sql.form.worlds import F_CHAIN
from tests.sql.oracle import LIMITS

DAY = date(2026, 3, 1)
PARSING = _Parsing()
PURPOSE = Purpose("corp#ada", "draft_sql", frozenset({1}), "d-1")
FORM = {"from": "orders", "measures": [{"agg": "count", "of": "*"}], "by": ["orders.status"]}
SQL = "SELECT status, count(*) FROM orders GROUP BY status"


class Scripted:
    """Implements `router.ports.Model`; an exception among the replies is raised."""

    def __init__(self, *replies) -> None:
        self.replies, self.asked, self.deadlines = list(replies), [], []

    def draft(self, system, prompt, schema, *, purpose, deadline_s):
        self.asked.append(json.loads(prompt))
        self.deadlines.append(deadline_s)
        reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
        if isinstance(reply, BaseException):
            raise reply
        return ModelReply(reply, "m")


class Gate:
    """The real gate, without an engine behind it."""

    def __init__(self) -> None:
        self.passed = set()

    def __call__(self, sql: str, compiled: bool) -> Verdict:
        try:
            gate.check_text(sql, LIMITS)
            governed = gate.govern(PARSING, sql, granted(F_CHAIN), DAY, LIMITS, compiled)
        except Refused as refused:
            return Verdict(refused.code, refused.message)
        self.passed.add((sql, compiled))
        return Verdict("", "", "generated", tuple(governed.tables))


def draft(model: Scripted, check=None, *, question="orders by status", catalog=F_CHAIN, left_s=lambda: 9.0, **more):
    return draft_by_model(question, catalog, (), model, check or Gate(), left_s, purpose=PURPOSE, today=DAY, **more)


# --- drafts -----------------------------------------------------------------------------------------------------------


def test_a_form_is_compiled():
    found = draft(Scripted({"form": FORM}))
    assert isinstance(found, Draft)
    assert (found.compiled, found.reads, found.rounds, found.model, found.origin) == (True, ("orders",), 1, "m", "model")
    assert found.reading == "I count **orders** for each **status**"
    assert found.form.dataset == "orders"


def test_sql_says_that_a_model_wrote_it():
    found = draft(Scripted({"sql": SQL}))
    assert (found.sql, found.compiled, found.form, found.reading) == (SQL, False, None, SQL_READING)
    assert found.reads == ("orders",)


def test_empty_keys_beside_the_answer_are_no_answer():
    assert draft(Scripted({"form": FORM, "sql": "", "cannot": None})).compiled


def test_cannot_is_ours_to_say():
    found = draft(Scripted({"cannot": "MODEL-WORDS"}))
    assert found == Undrafted("draft_cannot", found.message, 1)
    assert "MODEL-WORDS" not in found.message


def test_a_models_own_words_never_reach_the_reading():
    form = {
        **FORM,
        "where": [{"field": "orders.status", "op": "=", "value": {"value": "open", "said": "EVIL", "origin": "EVIL"}}],
        "notes": ["EVIL all tenants"],
        "explained": [{"words": "EVIL", "as": "EVIL"}],
        "confidence": 1.0,
    }
    found = draft(Scripted({"form": form}))
    assert "EVIL" not in repr(found)
    assert "open" in found.reading


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_repair_says_the_code_alone():
    model = Scripted({"sql": "SELECT * FROM secrets"}, {"form": FORM})
    found = draft(model)
    assert isinstance(found, Draft)
    assert found.rounds == 2
    first, second = model.asked
    code = Gate()("SELECT * FROM secrets", False).code
    assert second == {**first, "your_answer": '{"sql":"SELECT * FROM secrets"}', "refused_with": code}


@pytest.mark.parametrize("code", ["sql_value", "sql_limit_time", "sql_limit_memory", "sql_new_one"])
def test_what_depends_on_rows_is_not_told(code):
    for reply in ({"sql": SQL}, {"form": FORM}):
        model = Scripted(reply)
        assert draft(model, lambda sql, compiled: Verdict(code, "why")) == Undrafted(code, "why", 1)
        assert len(model.asked) == 1


def test_every_code_of_the_gate_is_told_or_not():
    """A new code of the gate has to be thought about."""
    kept = {"sql_value", "sql_limit_time", "sql_limit_memory"}
    assert drafting._ROWLESS | kept == set(gate.REASONS)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ({"sql": "DROP TABLE orders"}, "sql_not_select"),
        ({"sql": "SELECT 1; SELECT 2"}, "sql_not_one"),
        ({"form": {}}, "form_invalid"),
        ({"form": {"from": "secrets", "show": ["secrets.x"]}}, "E_NAME_NOT_FOUND"),
        ({"form": {"from": "orders"}}, "E_EMPTY_AGGREGATION_QUERY"),
        ({"form": "orders"}, "form_invalid"),
        ({"form": [FORM]}, "form_invalid"),
        ({}, "draft_reply_invalid"),
        ({"sql": SQL, "form": FORM}, "draft_reply_invalid"),
        ({"sql": SQL, "other": 1}, "draft_reply_invalid"),
        ({"sql": [SQL]}, "draft_reply_invalid"),
        ([], "draft_reply_invalid"),
        (None, "draft_reply_invalid"),
    ],
)
def test_what_is_refused_twice_is_a_code(reply, code):
    model = Scripted(reply)
    found = draft(model)
    assert found == Undrafted("draft_refused", f"a model's draft was refused (`{code}`)", 2)
    assert model.asked[1]["refused_with"] == code


def test_deep_forms_are_refused():
    nested = {"from": "orders"}
    for _ in range(500):
        nested = {"any": [nested]}
    assert draft(Scripted({"form": nested})).code == "draft_refused"


def test_groups_that_are_too_small_are_for_forms_only():
    """The compiler adds the least size of a group; what is not compiled the gate would refuse by the grant."""
    found = draft(Scripted({"form": FORM}), min_group={"orders": 5})
    assert "HAVING" in found.sql


def test_no_second_round_without_time():
    model, left = Scripted({"sql": "x"}), iter([5.0, 0.5])
    assert draft(model, left_s=lambda: next(left)).code == "draft_refused"
    assert len(model.asked) == 1


def test_a_model_is_not_given_all_the_time():
    model = Scripted({"sql": "x"}, {"form": FORM})
    left = iter([8.0, 4.0, 4.0])
    assert isinstance(draft(model, left_s=lambda: next(left)), Draft)
    assert model.deadlines == [6.0, 3.0]


def test_nothing_granted_and_long_questions_ask_nobody():
    model = Scripted({"sql": SQL})
    assert draft(model, catalog=type(F_CHAIN)("c", ())).code == "draft_nothing_granted"
    assert draft(model, question="x" * 4_001).code == "draft_question_too_long"
    assert model.asked == []


@pytest.mark.parametrize(
    "error", [SourceError("model_late", "late"), Refused("disclosure_not_permitted", "no"), SourceError("worker_lost", "lost")]
)
def test_failures_of_model_and_gate_are_codes(error):
    assert draft(Scripted(error)) == Undrafted(error.code, error.message, 1)

    def failing(sql, compiled):
        raise error

    for reply in ({"sql": SQL}, {"form": FORM}):
        assert draft(Scripted(reply), failing) == Undrafted(error.code, error.message, 1)


def test_a_ledger_error_is_not_swallowed():
    with pytest.raises(LedgerError):
        draft(Scripted(LedgerError("ledger_unwritable", "no")))


# --- anything ---------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(["orders", SQL, "*", "count"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.sampled_from("form sql cannot from show measures by where any has agg of field op value".split()), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(JSON, st.builds(lambda inner: {"form": inner}, JSON), st.builds(lambda text: {"sql": text}, st.text(max_size=60)))
)
def test_any_reply_is_a_draft_or_a_code(reply):
    found = draft(Scripted(reply))
    assert isinstance(found, Draft | Undrafted)
    if isinstance(found, Undrafted):
        assert found.code in {"draft_refused", "draft_cannot"}


def damaged(text: str, seed: int) -> str:
    chance = random.Random(seed)
    at = chance.randrange(len(text))
    return text[:at] + chance.choice(["", ";", "'", "(", " UNION SELECT ", "--", "/*", " FROM duckdb_tables() "]) + text[at + 1 :]


@settings(max_examples=150, deadline=None)
@given(forms_over(F_CHAIN), st.integers(0, 2**31), st.sampled_from(["form", "sql", "damaged"]))
def test_the_gate_has_the_last_word(form, seed, kind):
    """Whatever is drafted was passed by the gate in the very words and under the very flag that it leaves with."""
    check = Gate()
    made = draft(Scripted({"form": form_json(form)}), check)
    if kind != "form" and isinstance(made, Draft):
        check = Gate()
        made = draft(Scripted({"sql": made.sql if kind == "sql" else damaged(made.sql, seed)}), check)
        assert isinstance(made, Undrafted) or not made.compiled
    if isinstance(made, Draft):
        assert (made.sql, made.compiled) in check.passed
