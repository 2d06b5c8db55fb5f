"""The line for a text of SQL that somebody wrote: identity, record "asked", grants, gate and rows, record "answered".

    identity -> record "asked" -> grants -> gate and rows -> record "answered" -> rows

The gate judges inside the worker that runs what it lets through, once; what it lets through is heard of before that is run.

INVARIANT: nothing is returned before the record of it is durable, a refusal included (tests/unit/test_ask_sql.py).
INVARIANT: a text that the gate lets through is on record with what it reads, whatever becomes of its rows
(…::test_what_fails_while_it_runs_is_on_record).
INVARIANT: the generated text, which holds row filters and masks, is returned only with `audit`
(tests/unit/test_ask_sql.py::test_generated_text_needs_audit).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from router import decision
from router.domain import Degraded, Link, Outcome, Principal, Question, Receipt, Record, Refusal, Route, SqlLimits, Table, Verdict
from router.errors import PointsmanError, Refused, UsageError
from router.execute import Watch
from router.filters import digest
from router.identity import identify
from router.policy import LivePolicies, PolicySet
from router.ports import Ledger, SqlEngine, Verifier

ROUTE = Route("sql", {}, 1.0, abstained=False, reasons=("written as SQL",))


@dataclass(frozen=True, slots=True)
class SqlLine:
    policies: LivePolicies
    verifier: Callable[[PolicySet], Verifier]
    ledger: Ledger
    tables: SqlEngine
    limits: SqlLimits
    key: bytes
    question_form: decision.QuestionForm
    clock_us: Callable[[], int]
    sealed: Callable[[Record, Link], None]


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """`verdict` is the gate's; `table` the rows where it was run. `generated` is empty without `audit`."""

    decision_id: str
    outcome: Outcome
    verdict: Verdict
    table: Table | None
    generated: str
    policy_version: str

    def as_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"decision_id": self.decision_id, "outcome": self.outcome, "policy_version": self.policy_version}
        if self.verdict.code:
            shown["refusal"] = {"code": self.verdict.code, "reason": self.verdict.reason}
        shown["reads"] = list(self.verdict.tables)
        if self.table is not None:
            columns = [{"name": column.name, "type": column.type, "masked": column.masked} for column in self.table.columns]
            rows = [list(row) for row in self.table.rows]
            shown |= {"sql": self.table.sql, "columns": columns, "rows": rows, "truncated": self.table.truncated}
        return shown | ({"generated": self.generated} if self.generated else {})


def ask_sql(line: SqlLine, token: str, question: Question, *, run: bool) -> SqlAnswer:
    """The gate's verdict on `question.text`, and its rows where `run`. What policy or gate refuses is an answer."""
    watch = Watch(question.deadline_s)
    policies = line.policies.current()
    principal = watch.stage(
        "identity",
        lambda: identify(token, line.verifier(policies), policies.issuers, policies.types, now_s=line.clock_us() // 1_000_000),
    )
    if question.as_of and not principal.development:
        message = "another day than today is for tests: only a development issuer's token may ask so"
        raise UsageError("now_not_permitted", message, "leave it out")
    opened = decision.asked(
        principal=principal,
        question=question,
        policy_version=policies.version,
        at_us=line.clock_us(),
        key=line.key,
        form=line.question_form,
    )
    watch.stage("asked", lambda: line.ledger.append([opened]))
    found = _Found()
    try:
        _run(line, policies, principal, question, watch, found, run=run)
    except Refused as error:
        found.verdict = replace(found.verdict, code=error.code, reason=error.message)
    except PointsmanError as error:
        found.verdict = replace(found.verdict, code=error.code, reason=error.message)
        _seal(line, policies, opened, question, watch, found)
        error.decision_id = opened.decision_id
        raise
    _seal(line, policies, opened, question, watch, found)
    audit = found.verdict.generated and policies.authorize(principal, question.now, "audit", tenant=principal.tenant)
    generated = found.verdict.generated if audit else ""
    return SqlAnswer(opened.decision_id, found.outcome, found.verdict, found.table, generated, policies.version)


@dataclass(slots=True)
class _Found:
    verdict: Verdict = field(default_factory=lambda: Verdict("", ""))
    table: Table | None = None
    filters: tuple[Receipt, ...] = ()
    policies: frozenset[str] = frozenset()

    @property
    def outcome(self) -> Outcome:
        if self.verdict.code:
            return "refused"
        return "empty" if self.table is not None and not self.table.rows else "answered"


def _run(
    line: SqlLine, policies: PolicySet, principal: Principal, question: Question, watch: Watch, found: _Found, *, run: bool
) -> None:
    grants = watch.stage("grants", lambda: policies.grants(principal, question.now))
    today = question.now.date()

    def options() -> dict[str, Any]:
        return {"tenant": principal.tenant, "today": today, "limits": line.limits, "deadline_s": watch.left_s()}

    def judged(verdict: Verdict) -> None:
        found.verdict = verdict
        read = [grant for grant in grants.query if grant.name in verdict.tables]
        found.policies = frozenset(policy for grant in read for policy in grant.policies)
        found.filters = tuple(
            Receipt(f"sql:{grant.name}", digest(grant.filter, key=line.key, tenant=principal.tenant, source=grant.name))
            for grant in read
        )

    if not run:
        judged(watch.stage("gate", lambda: line.tables.check(question.text, grants.query, bound=True, **options())))
        return
    found.table = watch.stage("rows", lambda: line.tables.run_governed(question.text, grants.query, judged=judged, **options()))
    watch.note(count_out=len(found.table.rows))


def _seal(line: SqlLine, policies: PolicySet, opened: Record, question: Question, watch: Watch, found: _Found) -> None:
    refusal = Refusal(found.verdict.code, found.verdict.reason) if found.verdict.code else None
    as_of = (Degraded("now", f"asked as of {question.now.date()}, not as of today"),) if question.as_of else ()
    sealed = decision.answered(
        asked=opened,
        at_us=line.clock_us(),
        outcome=found.outcome,
        policy_version=policies.version,
        total_us=watch.total_us,
        route=ROUTE,
        refusal=refusal,
        filters=found.filters,
        policies=found.policies,
        stages=watch.stages,
        degraded=as_of,
        sql=decision.sql_record(
            opened, found.verdict.generated, found.verdict.tables, len(found.table.rows) if found.table else 0
        ),
    )
    links = watch.stage("answered", lambda: line.ledger.append([sealed]))
    line.sealed(sealed, links[0])
