"""A model's draft: a form where it can say it, else SQL; whatever comes back is untrusted and meets the gate like any text.

The model is asked for the form first, because then the checks of the compiler apply, too. What it adds of its own words (notes,
explanations, its confidence) is dropped: the reading must say what is compiled and not what a model says of it. A draft that is
refused is given back once, with nothing but the code of the refusal.

INVARIANT: nothing but a `LedgerError` leaves `draft_by_model`, whatever model and gate do (tests/sql/draft/test_draft.py::test_any_reply_is_a_draft_or_a_code,
::test_failures_of_model_and_gate_are_codes).
INVARIANT: no draft leaves that the gate has not passed, SQL as free text and only compiled forms as compiled (…::test_the_gate_has_the_last_word).
INVARIANT: a repair names a code that depends on no row, and holds nothing else of what happened here
(tests/sql/draft/test_draft.py::test_a_repair_says_the_code_alone, ::test_what_depends_on_rows_is_not_told).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from router.catalog import Catalog
from router.domain import Purpose, Verdict
from router.errors import LedgerError, PointsmanError, Refused
from router.ports import Model
from router.sql.compile import lower_form
from router.sql.form import Form
from router.sql.parse_form import parse_form
from router.sql.prompt import MAX_QUESTION_CHARS, REPLY_SCHEMA, SYSTEM, FieldValues, build_prompt, build_repair
from router.sql.reading import read_form

ROUNDS = 2
LEAST_ROUND_S = 1.0
"""A repair is not begun with less time than this."""
MODEL_SHARE = 0.75
"""Of the time that is left: the rest is for the gate and the rows."""
MAX_DEPTH = 24
SQL_READING = "SQL that a model wrote; there is no form behind it, so read the text itself before you rely on it"

_OWN_WORDS = frozenset({"notes", "explained", "said", "origin", "confidence"})
"""Keys of a form in which a model could say something that is not compiled."""

Check = Callable[[str, bool], Verdict]
"""The gate over one text: (sql, whether it comes of a compiled form). It may run the text, too, and then tells what that refused:
an unknown column, say, which only the engine sees."""

_ROWLESS = frozenset(
    """sql_too_large sql_characters sql_syntax sql_not_one sql_not_select sql_parameter sql_construct sql_cte_name sql_unknown_table
    sql_unknown_column sql_function sql_type sql_series sql_small_groups""".split()
)
"""Codes that depend on the text alone and never on a row: only these go back to the model."""


@dataclass(frozen=True, slots=True)
class Draft:
    """One SELECT over governed names that the gate passed. Run it with `compiled` as it stands here. `form` is None for SQL;
    `reads` are the datasets that it touches, `rounds` how often the model was asked."""

    sql: str
    compiled: bool
    reading: str
    reads: tuple[str, ...]
    form: Form | None
    model: str
    rounds: int
    origin: Literal["model"] = "model"


@dataclass(frozen=True, slots=True)
class Undrafted:
    """Why there is no draft. `message` is ours: nothing of a model's text stands in it."""

    code: str
    message: str
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class _Faulty:
    """A draft that was refused, and the code."""

    code: str


def draft_by_model(
    question: str,
    catalog: Catalog,
    values: Iterable[FieldValues],
    model: Model,
    check: Check,
    left_s: Callable[[], float],
    *,
    purpose: Purpose,
    today: date,
    min_group: Mapping[str, int] | None = None,
) -> Draft | Undrafted:
    """`catalog` and `values` are the caller's part of them; `purpose` names the classes of all that is shown."""
    if not catalog.datasets:
        return Undrafted("draft_nothing_granted", "there is no table that you may ask about")
    if len(question) > MAX_QUESTION_CHARS:
        return Undrafted("draft_question_too_long", f"the question is over {MAX_QUESTION_CHARS} characters, too long for a draft")
    prompt = build_prompt(question, catalog, values, today)
    asked, code = prompt, ""
    for at in range(1, ROUNDS + 1):
        if at > 1 and left_s() < LEAST_ROUND_S:
            return _refused(code, at - 1)
        try:
            reply = model.draft(SYSTEM, asked, REPLY_SCHEMA, purpose=purpose, deadline_s=left_s() * MODEL_SHARE)
            found = _judge(reply.value, reply.model, catalog, check, dict(min_group or {}), at)
        except LedgerError:
            raise
        except PointsmanError as error:
            return Undrafted(error.code, error.message, at)
        if not isinstance(found, _Faulty):
            return found
        code = found.code
        asked = build_repair(prompt, reply.value if isinstance(reply.value, dict) else {}, code)
    return _refused(code, ROUNDS)


def _refused(code: str, rounds: int) -> Undrafted:
    return Undrafted("draft_refused", f"a model's draft was refused (`{code}`)", rounds)


def _judge(
    value: Any, model: str, catalog: Catalog, check: Check, min_group: dict[str, int], at: int
) -> Draft | Undrafted | _Faulty:
    """What came back, held to the form, the compiler and the gate. Errors of the gate's engine are raised."""
    given = {key: part for key, part in value.items() if part not in ("", None)} if isinstance(value, dict) else value
    match given:
        case {"cannot": str(), **rest} if not rest:
            return Undrafted("draft_cannot", "a model finds no answer to this in the tables that you may ask about", at)
        case {"form": form, **rest} if not rest:
            return _compiled(form, model, catalog, check, min_group, at)
        case {"sql": str() as sql, **rest} if not rest:
            verdict = check(sql, False)
            if verdict.code:
                return _stopped(verdict, at)
            return Draft(sql, False, SQL_READING, verdict.tables, None, model, at)
    return _Faulty("draft_reply_invalid")


def _compiled(
    given: Any, model: str, catalog: Catalog, check: Check, min_group: dict[str, int], at: int
) -> Draft | Undrafted | _Faulty:
    try:
        form = parse_form(_bare(given, 0))
        compiled = lower_form(form, catalog, min_group=min_group)
    except Refused as refused:
        return _Faulty(refused.code)
    verdict = check(compiled.sql, True)
    if verdict.code:
        return _stopped(verdict, at)
    return Draft(compiled.sql, True, read_form(form), verdict.tables, form, model, at)


def _stopped(verdict: Verdict, at: int) -> Undrafted | _Faulty:
    return _Faulty(verdict.code) if verdict.code in _ROWLESS else Undrafted(verdict.code, verdict.reason, at)


def _bare(given: Any, depth: int) -> Any:
    """A form without the model's own words; no key of a form is the name of something, so keys can be dropped by name."""
    if depth > MAX_DEPTH:
        raise Refused("form_invalid", "the form is nested too deeply")
    if isinstance(given, dict):
        return {key: _bare(value, depth + 1) for key, value in given.items() if key not in _OWN_WORDS}
    return [_bare(value, depth + 1) for value in given] if isinstance(given, list) else given
