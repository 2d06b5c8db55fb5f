"""The leg over documents: filter, both searches, fusion, rerank, and Cedar in full on what is about to leave.

INVARIANT: every passage that leaves was allowed by Cedar in full (tests/unit/test_ask.py::test_recheck_drops_and_next_moves_up).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from router import execute, plan, rank
from router.domain import Candidate, Degraded, Grants, Leg, Passage, Principal, Purpose, Question, Ranked, Receipt, Steps, Stored
from router.execute import Watch
from router.filters import digest
from router.line import Evidence, Line
from router.policy import PolicySet


def search_documents(
    line: Line,
    policies: PolicySet,
    principal: Principal,
    grants: Grants,
    question: Question,
    decision_id: str,
    watch: Watch,
    found: Evidence,
) -> None:
    """Fills `found` with passages, receipts and policies. Raises `SourceError` only where no leg is left."""
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
    found: Evidence,
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
    line: Line, policies: PolicySet, principal: Principal, question: Question, ranked: Sequence[Ranked], found: Evidence
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
