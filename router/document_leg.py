"""The leg over documents: filter, both searches, fusion, rerank, and Cedar in full on what is about to leave.

INVARIANT: every passage that leaves was allowed by Cedar in full (tests/unit/test_ask.py::test_recheck_drops_and_next_moves_up).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial

from router import execute, plan
from router.config import SearchSettings
from router.domain import (
    SINCE_FIELD,
    Degraded,
    Embedded,
    Index,
    Leg,
    Passage,
    Purpose,
    Ranked,
    Receipt,
    Steps,
    Stored,
)
from router.errors import SourceError
from router.expand import Joined, alone, cut, fold, join, reach, spread, without_superseded
from router.filters import ALWAYS, digest
from router.follow import follow
from router.line import Asking
from router.narrow import apply_narrowing, narrow, receipts_of
from router.remote import seek
from router.search.dates import find_as_of, without_day
from router.search.freshness import prefer_recent
from router.search.linked import prefer_subject
from router.search.narrowing import IN_FORCE, UNTIL, Narrowing, holding_at
from router.search.relevance import NEAREST, build_nearest, build_note, settled_by_rows
from router.search.strategies import STRATEGIES, choose_strategy, parse_strategy
from router.strategy import run_strategy

_INDEX: Mapping[str, Index] = {"documents": "plain", "contextual": "contextual"}
"""What a caller's word says of sources that have both."""
_OLDER = re.compile(
    r"\b(?:v(?:ersion)?\.? ?\d+|old(?:er)?|former|formerly|previous|previously|earlier|superseded|used to)\b(?! than\b)",
    re.IGNORECASE,
)
"""Words that ask for what no longer holds: older versions then stay. `older than` compares."""
_AGE = re.compile(r"\b(?:how|days?|weeks?|months?|years?|hours?)[ -]old\b", re.IGNORECASE)
_YEAR = re.compile(
    # "2000 euro" is no year
    r"\b(?:in|during|of|since|from|until|till|before|after|by|for|through|to|and|or|year|early|late|mid|spring|summer|autumn|winter|"
    r"january|february|march|april|may|june|july|august|september|october|november|december|q[1-4])\s+((?:19|20)\d\d)\b"
    r"(?!\s*(?:%|€|\$|£|[-.,]\d|(?:euros?|eur|usd|dollars?|pounds?|percent|kg|g|mm|cm|m|km|h|hours?|days?|pieces?|units?|parts?|claims?)\b))",
    re.IGNORECASE,
)
OLDER_KEPT = "versions that were replaced are among the passages: the question asks for what held before"
PER_DOCUMENT = 3
"""Passages of one document before each other document had its turn."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What the first search found, before anything of it is loaded."""

    steps: Steps
    done: execute.Executed


def prepare_question(asking: Asking) -> execute.Embedding:
    """The question for the embedder, which can begin beside what needs no vector yet. It comes to None where the embedder failed,
    which is said."""
    line = asking.line
    purpose = Purpose(asking.principal.name, "embed_question", frozenset(), asking.decision_id)
    begin = cache(
        partial(
            execute.begin_embed,
            asking.question.text,
            purpose,
            embedder=line.embedder,
            threads=line.threads,
            watch=asking.watch,
            share=line.embed_share,
        )
    )

    @cache
    def result() -> Embedded | None:
        made, degraded = begin()()
        asking.found.degraded.extend(degraded)
        return None if made is None else seek(asking, made, asking.question.text)

    return execute.Embedding(begin, result)


def search_legs(search: SearchSettings) -> tuple[Leg, ...]:
    return ("dense", "lexical") if search.legs == "both" else (search.legs,)


def find_candidates(asking: Asking, embedded: execute.Embedding | None) -> Candidates:
    """The first search under the caller's filter. Raises `SourceError` only where no leg is left."""
    line, grants, watch = asking.line, asking.grants, asking.watch
    steps = watch.stage(
        "plan",
        lambda: plan.build(
            grants,
            asking.policies.document_type,
            legs=search_legs(line.search),
            candidates=line.search.candidates,
            rerank=line.search.rerank,
            index=_INDEX.get(asking.question.route or ""),
            prefer_plain=line.prefer_plain,
        ),
    )
    tenant, text = asking.principal.tenant, asking.question.text
    planned = _spanned(asking, replace(steps, strategy=_strategy(asking)))
    steps, narrowing = _narrow(asking, planned)
    done = execute.run(steps, text, embedded, tenant=tenant, store=line.store, model_id=line.card.id, watch=watch)
    if narrowing.version and done.found.version not in ("", narrowing.version):  # words were read by what is no longer there
        again, narrowing = _narrow(asking, planned)
        if again != steps:
            steps = again
            done = execute.run(steps, text, embedded, tenant=tenant, store=line.store, model_id=line.card.id, watch=watch)
    if not done.found.candidates and narrowing.notes:
        steps = apply_narrowing(steps, narrowing.asked, asking.policies.document_type)
        asking.found.degraded.append(Degraded("narrowing", f"nothing found where {', '.join(narrowing.notes)}: searched without"))
        done = execute.run(steps, text, embedded, tenant=tenant, store=line.store, model_id=line.card.id, watch=watch)
    asking.found.degraded.extend(execute.failed_legs(done.found))
    receipt = digest(steps.filter, key=line.key, tenant=tenant, source="*", text=steps.text)
    asking.found.filters += tuple(Receipt(leg, receipt) for leg in done.legs)
    asking.found.filters += receipts_of(asking, steps)
    asking.found.policies |= {policy for grant in grants.search for policy in grant.policies}
    return Candidates(steps, done)


def _spanned(asking: Asking, steps: Steps) -> Steps:
    """Only what holds on the day that is asked about, which is mostly today; everything, where older text or a day of labels is."""
    document_type, day = asking.policies.document_type, _day(asking)
    by_day = any(text.partition("=")[0].strip() in (IN_FORCE, UNTIL) for text in asking.question.filters)
    if by_day or day is None or asking.line.search.versions == "all":
        return steps
    span = holding_at(document_type, int(day.timestamp() * 1000))
    return apply_narrowing(replace(steps, span=span), ALWAYS, document_type)


def _day(asking: Asking) -> datetime | None:
    """The moment of which documents are asked for: the end of the day that the question names, else now; None where it asks for
    what held before."""
    question = asking.question
    day = find_as_of(question.text, question.now.date())
    if day is not None:
        return datetime(day.year, day.month, day.day, 23, 59, 59, tzinfo=UTC)
    return None if asks_for_older(question.text, question.now) else question.now


def _strategy(asking: Asking) -> str:
    """By the caller's word, else by configuration; one that asks a model gives way to the plain search where none can be asked."""
    asked, model = asking.question.strategy, asking.line.model() is not None
    if asked is not None:
        parse_strategy(asked, model=model)
        return asked
    name = choose_strategy(asking.question.text, asking.line.search.strategy)
    if STRATEGIES[name].model and not model:
        asking.found.degraded.append(Degraded("strategy", f"{name}: no model can be asked, searched with the question alone"))
        return "simple"
    return name


def _narrow(asking: Asking, steps: Steps) -> tuple[Steps, Narrowing]:
    """Recognising what a question means may fail; what the caller asked to leave out may not."""
    try:
        steps, narrowing = narrow(asking, steps)
    except SourceError as error:
        if asking.question.sources or asking.question.filters:
            raise
        asking.found.degraded.append(Degraded("narrowing", f"{error.code}: searched without"))
        return steps, Narrowing()
    if narrowing.notes:
        asking.watch.note(note=", ".join(narrowing.notes))
    return steps, narrowing


def rank_candidates(asking: Asking, candidates: Candidates) -> bool:
    """Run the strategy, recheck: what of the candidates leaves, in `found`. True where a small source was handed over whole."""
    watch, found, question = asking.watch, asking.found, asking.question
    if not candidates.done.found.candidates:
        return False
    found.data_versions["documents"] = candidates.done.found.version or asking.line.store.version(
        asking.principal.tenant, deadline_s=watch.left_s()
    )
    ordered = run_strategy(asking, candidates.steps, candidates.done)
    passages = prefer_recent(ordered.passages, asking.line.recency_days, question.now)
    if asking.line.search.subject_first and not ordered.whole:
        passages = prefer_subject(question.text, passages)
    if ordered.answers and asking.line.search.versions == "current":
        passages = watch.stage("fold", lambda: _current(asking, candidates.steps, passages, whole=ordered.whole))
    k = len(passages) if ordered.whole else question.k if ordered.answers else NEAREST
    kept = watch.stage("recheck", lambda: _recheck(asking, passages, k))
    matter = question.text if candidates.steps.span == ALWAYS else without_day(question.text, question.now.date())
    if note := build_note(matter, kept):
        found.notes += (note,)
    if not ordered.answers:
        found.nearest = build_nearest([item.stored.chunk for item in kept])
        kept = []
    watch.note(count_in=len(kept), count_out=len(kept))  # what was dropped stands in the record, never in the answer
    joined = watch.stage("expand", lambda: _expand(asking, candidates.steps, kept)) if _expands(asking) else alone(kept)
    if asking.line.search.linked and kept and not ordered.whole:
        joined += watch.stage("link", lambda: _linked(asking, candidates.steps, kept, joined))
    found.passages = tuple(_passage(rank_at, item) for rank_at, item in enumerate(joined, 1))
    return ordered.whole


def withdraw_beside_rows(asking: Asking) -> None:
    """Passages that were found beside tables whose answer is that there is nothing: they are near, and no evidence."""
    found = asking.found
    if found.passages and settled_by_rows(asking.question.text, found.route.scores, found.tables):
        found.nearest = build_nearest(found.passages[:NEAREST])
        found.passages = ()


def _expands(asking: Asking) -> bool:
    return asking.line.search.neighbours > 0 or asking.line.search.budget_tokens is not None


def _expand(asking: Asking, steps: Steps, kept: Sequence[Ranked]) -> tuple[Joined, ...]:
    """What lies around the passages inside the same filter, judged in full like them, cut to the budget."""
    line, search = asking.line, asking.line.search
    loaded: list[Stored] = []
    for one in reach(kept, neighbours=search.neighbours):
        try:
            loaded += line.store.siblings(
                asking.principal.tenant, one.document_id, one.first, one.last, steps.searched, deadline_s=asking.watch.left_s()
            )
        except SourceError as error:
            asking.found.degraded.append(Degraded("expand", f"{error.code}: passages stand without their neighbours"))
            break
    things = [(item.chunk.source, item.chunk.document_id, item.labels) for item in loaded]
    verdicts = asking.policies.recheck(asking.principal, asking.question.now, things)
    allowed = [item for item, verdict in zip(loaded, verdicts, strict=True) if verdict]
    asking.found.judged += [thing for thing, verdict in zip(things, verdicts, strict=True) if verdict]
    joined = join(kept, allowed, neighbours=search.neighbours)
    if search.budget_tokens is None:
        return joined
    return cut(joined, budget_tokens=search.budget_tokens, count=line.embedder.count_tokens)


def _linked(asking: Asking, steps: Steps, kept: Sequence[Ranked], joined: Sequence[Joined]) -> tuple[Joined, ...]:
    """What other documents are about that the passages name, behind them; of older versions only where these are asked for."""
    at = None if asking.line.search.versions == "all" else _day(asking)
    return follow(asking, steps, kept, joined, holding_at=at)


def _current(asking: Asking, steps: Steps, passages: Sequence[Ranked], *, whole: bool) -> tuple[Ranked, ...]:
    """Without versions that another one replaced and without mirrors, documents mixed; all of what the filter admitted. What is handed
    over whole keeps its mirrors and its order."""
    kept, day = tuple(passages), _day(asking)
    older, at = day is None, day or asking.question.now
    if kept:
        names = tuple(dict.fromkeys(item.stored.chunk.document_id for item in kept))
        try:
            newer = asking.line.store.superseding(
                asking.principal.tenant, names, steps.searched, deadline_s=asking.watch.left_s()
            )
        except SourceError as error:
            asking.found.degraded.append(Degraded("fold", f"{error.code}: older versions may be among the passages"))
        else:
            current = without_superseded(kept, newer, at)
            if older and len(current) < len(kept):
                asking.found.notes += (OLDER_KEPT,)
            kept = kept if older else current
    return kept if whole else spread(fold(kept).kept, per_document=PER_DOCUMENT)


def asks_for_older(text: str, now: datetime) -> bool:
    """Whether a question is about what another version replaced: by its words, or by a year that is over."""
    years = [int(year) for year in _YEAR.findall(text)]
    return bool(_OLDER.search(_AGE.sub("", text))) or any(year < now.year for year in years)


def _recheck(asking: Asking, ranked: Sequence[Ranked], k: int) -> list[Ranked]:
    """Cedar in full on what is about to leave, in rank order, until `k` are allowed. A disagreement is dropped and alarmed."""
    policies, principal, question, found = asking.policies, asking.principal, asking.question, asking.found
    kept: list[Ranked] = []
    at = 0
    while len(kept) < k and at < len(ranked):
        batch = ranked[at : at + k - len(kept)]
        at += len(batch)
        things = [(item.stored.chunk.source, item.stored.chunk.document_id, item.stored.labels) for item in batch]
        verdicts = policies.recheck(principal, question.now, things)
        kept.extend(item for item, verdict in zip(batch, verdicts, strict=True) if verdict)
        found.dropped += sum(not verdict for verdict in verdicts)
        found.judged += [thing for thing, verdict in zip(things, verdicts, strict=True) if verdict]
    if found.dropped:
        asking.line.alarm("recheck_denied", dropped=found.dropped, policy_version=policies.version)
    return kept


def _passage(rank_at: int, joined: Joined) -> Passage:
    ranked = joined.ranked
    chunk, labels = ranked.stored.chunk, ranked.stored.labels
    effective = labels.get(IN_FORCE, labels.get(SINCE_FIELD))
    return Passage(
        rank=rank_at,
        source=chunk.source,
        document_id=chunk.document_id,
        chunk_id=chunk.chunk_id,
        title=chunk.title,
        heading_path=chunk.heading_path,
        text=joined.text,
        uri=chunk.uri,
        span=joined.span,
        version=chunk.version,
        effective_from=_date(effective) if isinstance(effective, int) else None,
        why=joined.why or ranked.legs,
    )


def _date(epoch_ms: int) -> str | None:
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).date().isoformat()
    except (OverflowError, OSError, ValueError):
        return None
