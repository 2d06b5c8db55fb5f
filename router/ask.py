"""The line: from a token to governed evidence, in one direction, on one screen.

identity -> record "asked" -> grants -> route -> legs (documents: plan, search, fuse, rerank, recheck; tables: draft, gate, rows)
(or, where `[cache]` is on, the evidence of the same question under the same grants, rechecked: router/recall.py)
-> record "answered" -> answer

INVARIANT: nothing is searched before `asked` is durable, and nothing is returned before `answered` is
(tests/unit/test_ask.py::test_no_record_no_answer).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from router import decision
from router.domain import Answer, Degraded, Principal, Question, Record, Refusal, Stage
from router.egress import Egress, Sent
from router.errors import PointsmanError, Refused, SourceError, UsageError
from router.execute import Watch
from router.identity import identify
from router.legs import gather
from router.line import Asking, Evidence, Line
from router.policy import PolicySet
from router.rank import rank_together
from router.recall import recall_or_gather, shown_stages

MAX_QUESTION_CHARS = 10_000


def ask(line: Line, token: str, question: Question) -> Answer:
    """Raises `Refused` before there is a principal, then `LedgerError` and `SourceError`; a policy refusal is an answer."""
    watch = Watch(question.deadline_s)
    policies = line.policies.current()
    principal = watch.stage(
        "identity",
        lambda: identify(token, line.verifier(policies), policies.issuers, policies.types, now_s=line.clock_us() // 1_000_000),
    )
    if question.as_of and not principal.development:
        raise UsageError(
            "now_not_permitted",
            "another day than today is for tests: only a development issuer's token may ask so",
            "leave it out",
        )
    opened = decision.asked(
        principal=principal,
        question=question,
        policy_version=policies.version,
        at_us=line.clock_us(),
        key=line.key,
        form=line.question_form,
    )
    watch.stage("asked", lambda: line.ledger.append([opened]))
    found = Evidence(egress=_open_egress(line, policies, principal, opened))
    if question.as_of:
        found.degraded.append(Degraded("now", f"asked as of {question.now.date()}, not as of today"))
    try:
        grants = watch.stage("grants", lambda: policies.grants(principal, question.now))
        recall_or_gather(Asking(line, policies, principal, grants, question, opened.decision_id, watch, found), gather)
        found.passages, found.tables = rank_together(found.passages, found.tables, found.route.scores)
    except Refused as error:
        found.refusal = Refusal(error.code, error.message)
    except PointsmanError as error:
        found.refusal = Refusal(error.code, error.message)
        _seal(line, policies, opened, watch, found)
        error.decision_id = opened.decision_id
        raise
    except Exception as error:
        line.alarm("fault", error=type(error).__name__, decision_id=opened.decision_id)
        fault = SourceError("fault", "something failed inside, and nothing was answered", "the log names the kind of error")
        found.refusal = Refusal(fault.code, fault.message)
        _seal(line, policies, opened, watch, found)
        fault.decision_id = opened.decision_id
        raise fault from error
    _seal(line, policies, opened, watch, found)
    return Answer(
        decision_id=opened.decision_id,
        outcome=found.outcome,
        route=found.route,
        passages=found.passages,
        tables=found.tables,
        clarify=found.clarify,
        notes=found.notes,
        nearest=found.nearest,
        stages=_shown(shown_stages(found, watch.stages), found.dropped),
        degraded=tuple(found.degraded),
        policy_version=policies.version,
        filters=found.filters,
        refusal=found.refusal,
    )


def _open_egress(line: Line, policies: PolicySet, principal: Principal, opened: Record) -> Egress:
    """Each attempt to send is durable before its first byte, as the question was before anything was searched."""

    def record(sent: Sent, _: str) -> None:
        line.ledger.append(
            [decision.question_egress(asked=opened, at_us=line.clock_us(), policy_version=policies.version, sent=sent.before())]
        )

    return Egress(principal, policies.may_disclose, opened.salt or b"", record)


def _shown(stages: Sequence[Stage], dropped: int) -> tuple[Stage, ...]:
    """The stages as the caller sees them: what the recheck dropped was never there, also not by subtraction."""
    if not dropped:
        return tuple(stages)
    return tuple(
        Stage(stage.name, stage.us, _less(stage.count_in, dropped), _less(stage.count_out, dropped), stage.note)
        if stage.name in _BEFORE_RECHECK
        else stage
        for stage in stages
    )


_BEFORE_RECHECK = frozenset({"search", "rerank"})


def _less(count: int | None, dropped: int) -> int | None:
    return None if count is None else max(0, count - dropped)


def _seal(line: Line, policies: PolicySet, opened: Record, watch: Watch, found: Evidence) -> None:
    versions: dict[str, Any] = {**line.models()}
    sealed = decision.answered(
        asked=opened,
        at_us=line.clock_us(),
        outcome=found.outcome,
        policy_version=policies.version,
        total_us=watch.total_us,
        route=found.route,
        refusal=found.refusal,
        filters=found.filters,
        policies=found.policies,
        stages=watch.stages,
        evidence=found.passages,
        sql=decision.sql_record(
            opened,
            "\n".join(table.generated for table in found.tables),
            found.reads,
            sum(len(table.rows) for table in found.tables),
        ),
        egress=found.egress.seal() if found.egress else (),
        degraded=found.degraded,
        versions=versions,
        data_versions=found.data_versions,
        dropped={"recheck": found.dropped} if found.dropped else {},
        cache=found.cache,
    )
    links = watch.stage("answered", lambda: line.ledger.append([sealed]))
    line.sealed(sealed, links[0])
