"""The line: from a token to governed passages, in one direction, on one screen.

identity -> record "asked" -> grants -> route -> plan -> execute -> fuse -> rerank -> recheck -> record "answered" -> answer

INVARIANT: nothing is searched before `asked` is durable, and nothing is returned before `answered` is
(tests/unit/test_ask.py::test_no_record_no_answer). INVARIANT: every passage that leaves was allowed by Cedar in full
(…::test_recheck_drops_and_next_moves_up).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from router import decision, execute, plan, rank, route
from router.config import SearchSettings
from router.domain import (
    Answer,
    Candidate,
    Degraded,
    Leg,
    Link,
    Outcome,
    Passage,
    Principal,
    Purpose,
    Question,
    Ranked,
    Receipt,
    Record,
    Refusal,
    Route,
    Stage,
    Steps,
    Stored,
)
from router.errors import PointsmanError, Refused, UsageError
from router.execute import Threads, Watch
from router.filters import digest
from router.identity import identify
from router.policy import LivePolicies, PolicySet
from router.ports import DocStore, Embedder, Ledger, Verifier

MAX_QUESTION_CHARS = 10_000
NO_ROUTE = Route("documents", {}, 0.0, abstained=True, reasons=())


@dataclass(frozen=True, slots=True)
class Line:
    """What a question meets on its way; built once by `app.py`."""

    policies: LivePolicies
    verifier: Callable[[PolicySet], Verifier]
    ledger: Ledger
    store: DocStore
    embedder: Embedder
    threads: Threads
    search: SearchSettings
    embed_share: float
    rerank_share: float
    key: bytes
    question_form: decision.QuestionForm
    clock_us: Callable[[], int]
    sealed: Callable[[Record, Link], None]
    alarm: Callable[..., None]


@dataclass(slots=True)
class _Found:
    """What the decision will say, filled while the question moves along."""

    route: Route = NO_ROUTE
    passages: tuple[Passage, ...] = ()
    degraded: list[Degraded] = field(default_factory=list)
    filters: tuple[Receipt, ...] = ()
    policies: frozenset[str] = frozenset()
    dropped: int = 0
    refusal: Refusal | None = None
    data_versions: dict[str, str] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        return "refused" if self.refusal else "answered" if self.passages else "empty"


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
    found = _Found()
    if question.as_of:
        found.degraded.append(Degraded("now", f"asked as of {question.now.date()}, not as of today"))
    try:
        _search(line, policies, principal, question, opened.decision_id, watch, found)
    except Refused as error:
        found.refusal = Refusal(error.code, error.message)
    except PointsmanError as error:
        found.refusal = Refusal(error.code, error.message)
        _seal(line, policies, opened, watch, found)
        error.decision_id = opened.decision_id
        raise
    _seal(line, policies, opened, watch, found)
    return Answer(
        decision_id=opened.decision_id,
        outcome=found.outcome,
        route=found.route,
        passages=found.passages,
        stages=_shown(watch.stages, found.dropped),
        degraded=tuple(found.degraded),
        policy_version=policies.version,
        filters=found.filters,
        refusal=found.refusal,
    )


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


def _search(
    line: Line, policies: PolicySet, principal: Principal, question: Question, decision_id: str, watch: Watch, found: _Found
) -> None:
    grants = watch.stage("grants", lambda: policies.grants(principal, question.now))
    found.route = watch.stage("route", lambda: route.choose(grants))
    legs: tuple[Leg, ...] = ("dense", "lexical") if line.search.legs == "both" else (line.search.legs,)
    steps = watch.stage(
        "plan",
        lambda: plan.build(
            grants,
            policies.document_type,
            legs=legs,
            candidates=line.search.candidates,
            rerank=line.search.rerank,
        ),
    )
    receipt = digest(steps.filter, key=line.key, tenant=principal.tenant, source="*", text=steps.text)
    found.filters = tuple(Receipt(leg, receipt) for leg in steps.legs)
    found.policies = frozenset(policy for grant in grants.search for policy in grant.policies)
    purpose = Purpose(principal.name, "embed_question", frozenset(), decision_id)
    done = execute.run(
        steps,
        question.text,
        purpose,
        tenant=principal.tenant,
        store=line.store,
        embedder=line.embedder,
        threads=line.threads,
        watch=watch,
        embed_share=line.embed_share,
    )
    found.degraded.extend(done.degraded)
    found.filters = tuple(Receipt(leg, receipt) for leg in done.legs)
    if not done.found.candidates:
        return
    found.data_versions["documents"] = line.store.version(principal.tenant)
    fused = watch.stage(
        "fuse", lambda: rank.fuse(done.found.candidates, line.search.fusion, dense_weight=line.search.dense_weight)
    )
    ids = [candidate.chunk_id for candidate in fused[: max(steps.rerank, question.k)]]
    stored = watch.stage("load", lambda: line.store.load(principal.tenant, ids, steps.filter, deadline_s=watch.left_s()))
    ranked = _rerank(line, question, steps, done, fused, stored, watch, found)
    kept = watch.stage("recheck", lambda: _recheck(line, policies, principal, question, ranked, found))
    watch.note(count_in=len(kept), count_out=len(kept))  # what was dropped stands in the record, never in the answer
    found.passages = tuple(_passage(rank_at, item) for rank_at, item in enumerate(kept, 1))


def _rerank(
    line: Line,
    question: Question,
    steps: Steps,
    done: execute.Executed,
    fused: Sequence[Candidate],
    stored: Sequence[Stored],
    watch: Watch,
    found: _Found,
) -> list[Ranked]:
    """The first `steps.rerank` in their new order, the rest as fused. Where the rerank is off, fails or has no time left,
    the fused order stands, and that is said."""
    by_id = {item.chunk.chunk_id: item for item in stored}
    order = [candidate for candidate in fused if candidate.chunk_id in by_id]
    head = [by_id[candidate.chunk_id] for candidate in order[: steps.rerank]]
    if done.question is not None and line.search.rerank_by == "local":
        if watch.left_s() < question.deadline_s * line.rerank_share:
            found.degraded.append(Degraded("rerank", "no time left: the fused order stands"))
        else:
            try:
                order[: len(head)] = watch.stage("rerank", partial(rank.rerank, question.text, done.question, fused, head))
                watch.note(count_in=len(head), count_out=len(head))
            except Exception as error:  # noqa: BLE001 (whatever a stored vector does, the fused order stands)
                found.degraded.append(Degraded("rerank", f"{type(error).__name__}: the fused order stands"))
                watch.note(note="failed")
    return [Ranked(by_id[candidate.chunk_id], candidate.legs) for candidate in order]


def _recheck(
    line: Line, policies: PolicySet, principal: Principal, question: Question, ranked: Sequence[Ranked], found: _Found
) -> list[Ranked]:
    """Cedar in full on what is about to leave, in rank order, until `k` are allowed. A disagreement is dropped and alarmed."""
    kept: list[Ranked] = []
    at = 0
    while len(kept) < question.k and at < len(ranked):
        batch = ranked[at : at + question.k - len(kept)]
        at += len(batch)
        things = [(item.stored.chunk.source, item.stored.chunk.document_id, item.stored.labels) for item in batch]
        verdicts = policies.recheck(principal, question.now, things)
        kept.extend(item for item, verdict in zip(batch, verdicts, strict=True) if verdict)
        found.dropped += sum(not verdict for verdict in verdicts)
    if found.dropped:
        line.alarm("recheck_denied", dropped=found.dropped, policy_version=policies.version)
    return kept


def _seal(line: Line, policies: PolicySet, opened: Record, watch: Watch, found: _Found) -> None:
    versions: dict[str, Any] = {"embedder": line.embedder.card.id}
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
        degraded=found.degraded,
        versions=versions,
        data_versions=found.data_versions,
        dropped={"recheck": found.dropped} if found.dropped else {},
    )
    links = watch.stage("answered", lambda: line.ledger.append([sealed]))
    line.sealed(sealed, links[0])


def _passage(rank_at: int, ranked: Ranked) -> Passage:
    chunk, effective = ranked.stored.chunk, ranked.stored.labels.get("effective_from")
    return Passage(
        rank=rank_at,
        source=chunk.source,
        document_id=chunk.document_id,
        chunk_id=chunk.chunk_id,
        title=chunk.title,
        heading_path=chunk.heading_path,
        text=chunk.text,
        uri=chunk.uri,
        span=chunk.span,
        version=chunk.version,
        effective_from=_date(effective) if isinstance(effective, int) else None,
        why=ranked.legs,
    )


def _date(epoch_ms: int) -> str | None:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return None
