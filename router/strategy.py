"""Runs a strategy over the documents: embeds, searches, loads and reranks what it asks for, under one filter and one deadline.

The first search of the plain question may have been made already, as the probe of the route; it is not made again.

INVARIANT: every search and every load of a strategy has the plan's filter (tests/unit/test_search_strategies.py::test_one_filter_for_every_search).
INVARIANT: a text is shown to a model only after Cedar allowed it in full (tests/unit/test_search_models.py::test_rounds_show_only_what_was_judged).
INVARIANT: what a later search fails in is left out and said; the first one's failure is the caller's
(tests/unit/test_search_strategies.py::test_a_later_search_may_fail).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from router import execute, rank
from router.domain import CLASSES, Candidate, Degraded, Embedded, Labels, Purpose, Ranked, Search, Stage, Steps, Stored
from router.errors import SourceError
from router.filters import ALWAYS
from router.line import Asking
from router.own import reorder_by_own
from router.ports import Model
from router.remote import class_of, reorder, seek
from router.routing.gates import Probe, looked_up
from router.routing.heads import score
from router.routing.language import is_foreign
from router.search import relevance
from router.search.dates import without_day
from router.search.decomposed import clauses
from router.search.gated import gated
from router.search.merge import take_turns
from router.search.port import Batch, Hits, Ordered, Part, Query, Tools, Trace, drive
from router.search.strategies import parse_strategy

MODEL_SHARE = 0.5
"""The most of the time left that one call of a model may take: what is searched with its words needs the rest."""


@dataclass(slots=True)
class _Run:
    asking: Asking
    steps: Steps
    done: execute.Executed
    trace: Trace
    loaded: dict[str, Stored] = field(default_factory=dict)
    first: Hits | None = None


def run_strategy(asking: Asking, steps: Steps, done: execute.Executed) -> Ordered:
    """`done` is the search of the question as it stands. Raises `SourceError` where the first batch fails."""
    line = asking.line
    if _is_small(asking, done):
        steps = replace(steps, strategy="whole")
    model = _open_model(asking)
    known = parse_strategy(steps.strategy, model=model is not None)
    run = _Run(asking, steps, done, Trace(steps.strategy))
    judged = line.search.relevance == "gate"
    tools = Tools(
        rank=partial(_rank, run),
        vectors=partial(_vectors, run),
        shown=partial(_disclosed, run),
        draft=partial(_draft, run, model) if known.model and model is not None else None,
        candidates=steps.candidates,
        rerank=steps.rerank,
        trace=run.trace,
        whole_chunks=line.search.whole_chunks,
        likelihood=partial(_likelihood, run, None) if judged else lambda _: None,
        likelihood_of=partial(_likelihood, run) if judged else lambda _, __: None,
        first=lambda: run.first,
    )
    strategy = gated(known.run, relevance.load_gate()) if judged else known.run
    ordered = drive(strategy(asking.question.text, tools), partial(_search, run))
    if steps.strategy != "simple" or run.trace.searches > 1 or not ordered.answers:
        asking.watch.stages.append(Stage("strategy", 0, note=run.trace.words()))
    if run.trace.model_failed:
        asking.found.degraded.append(Degraded("strategy", f"{run.trace.model_failed} model calls failed: searched without them"))
    if run.trace.undisclosed:
        asking.found.degraded.append(Degraded("strategy", "disclosure_not_permitted: searched without the model"))
    return ordered


def _is_small(asking: Asking, done: execute.Executed) -> bool:
    """Whether all that the caller is admitted to may be handed over, where nobody named another strategy."""
    search = asking.line.search
    chosen = asking.question.strategy is not None or search.strategy != "auto"
    return not chosen and 0 < done.found.admitted <= search.whole_chunks


# --- searching --------------------------------------------------------------------------------------------------------


def _search(run: _Run, batch: Batch) -> tuple[Hits, ...]:
    found: list[Hits] = []
    for at, query in enumerate(batch):
        try:
            hits = _search_one(run, query)
        except SourceError as error:
            if (at == 0 and not run.trace.searches) or not error.retryable:
                raise
            run.asking.found.degraded.append(Degraded("strategy", f"{error.code}: one of its searches was left out"))
            continue
        run.trace.searches += 1
        run.trace.queries.append(query.text or (query.meaning if isinstance(query.meaning, str) else ""))
        run.first = run.first or hits
        found.append(hits)
    return tuple(found)


def _search_one(run: _Run, query: Query) -> Hits:
    asking, steps = run.asking, run.steps
    text, limit = asking.question.text, query.candidates or steps.candidates
    if query.text == query.meaning == text and limit == steps.candidates:
        done = run.done
        return Hits(query, done.question, _fuse(run, done.found.candidates), done.found.admitted, done.found.possible)
    question, vector = _embed(run, query)
    lexical = query.text if "lexical" in steps.legs else None
    if lexical is None and vector is None:
        raise SourceError("no_leg", "no leg is left for this search", "try again", retryable=True)
    search = Search(
        tenant=asking.principal.tenant,
        filter=steps.searched,
        text=lexical,
        vector=vector,
        model_id=asking.line.card.id,
        limit=limit,
        deadline_s=asking.watch.left_s(),
        plain=steps.plain,
        entities=steps.entities,
    )
    found = asking.watch.stage("search", lambda: asking.line.store.search(search))
    asking.found.degraded.extend(execute.failed_legs(found))
    asking.watch.note(count_in=found.admitted, count_out=len(found.candidates), note=found.proof)
    return Hits(query, question, _fuse(run, found.candidates), found.admitted, found.possible)


def _embed(run: _Run, query: Query) -> tuple[Embedded | None, bytes | None]:
    """What the dense leg is given; nothing where it is off, or failed for this text, which is said."""
    asking = run.asking
    if query.meaning is None or "dense" not in run.steps.legs:
        return None, None
    if isinstance(query.meaning, bytes):
        return None, query.meaning
    if query.meaning == asking.question.text:
        return run.done.question, run.done.question.dense if run.done.question else None
    purpose = Purpose(asking.principal.name, "embed_question", frozenset(), asking.decision_id)
    line = asking.line
    embedded, degraded = execute.embed(
        query.meaning, purpose, embedder=line.embedder, threads=line.threads, watch=asking.watch, share=line.embed_share
    )
    asking.found.degraded.extend(degraded)
    if embedded is None:
        return None, None
    embedded = seek(asking, embedded, query.meaning, _labels(run))
    return embedded, embedded.dense


def _fuse(run: _Run, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    if not candidates:
        return ()
    search = run.asking.line.search
    fused = run.asking.watch.stage("fuse", lambda: rank.fuse(candidates, search.fusion, dense_weight=search.dense_weight))
    return tuple(fused)


# --- ranking ----------------------------------------------------------------------------------------------------------


def _rank(run: _Run, parts: Sequence[Part]) -> tuple[Ranked, ...]:
    ordered = [_rank_one(run, part) for part in parts if part.candidates]
    if len(ordered) == 1:
        return tuple(ordered[0])
    return tuple(take_turns(ordered, lambda item: item.stored.chunk.chunk_id))


def _rank_one(run: _Run, part: Part) -> list[Ranked]:
    """The first `depth` in their new order, the rest as they came. Where the rerank is off, fails or has no time left, the order
    stands, and that is said."""
    depth = part.depth or run.steps.rerank
    _load(run, [candidate.chunk_id for candidate in part.candidates[: max(depth, run.asking.question.k)]])
    order = [candidate for candidate in part.candidates if candidate.chunk_id in run.loaded]
    order = order[: max(depth, run.asking.question.k)]
    head = [run.loaded[candidate.chunk_id] for candidate in order[:depth]]
    question = part.question
    if question is not None and run.asking.line.search.rerank_by != "none":
        order[: len(head)] = _rerank(run, part, question, head) or order[: len(head)]
        order[: len(head)] = _reorder(run, part, order[: len(head)])
    return [Ranked(run.loaded[candidate.chunk_id], candidate.legs) for candidate in order]


def _rerank(run: _Run, part: Part, question: Embedded, head: Sequence[Stored]) -> list[Candidate]:
    asking = run.asking
    watch, degraded = asking.watch, asking.found.degraded
    if watch.left_s() < asking.question.deadline_s * asking.line.rerank_share:
        degraded.append(Degraded("rerank", "no time left: the fused order stands"))
        return []
    try:
        ranked = watch.stage("rerank", partial(rank.rerank, part.text, question, part.candidates, head))
        watch.note(count_in=len(head), count_out=len(head))
    except Exception as error:  # noqa: BLE001 (whatever a stored vector does, the fused order stands)
        degraded.append(Degraded("rerank", f"{type(error).__name__}: the fused order stands"))
        watch.note(note="failed")
        return []
    return ranked


def _reorder(run: _Run, part: Part, head: list[Candidate]) -> list[Candidate]:
    """Where time is left, by a judge of one's own on this machine; or by the hosted reranker: a border, so that Cedar judges each
    passage in full before."""
    asking = run.asking
    own = asking.line.own_reranker
    if own is None and asking.line.remote_reranker() is None:
        return head
    if asking.watch.left_s() < asking.question.deadline_s * asking.line.rerank_share:
        if own is not None:
            asking.found.degraded.append(Degraded("rerank", "no time left: ranked without the model of your own"))
        return head
    stored = [run.loaded[candidate.chunk_id] for candidate in head]
    by_id = {candidate.chunk_id: candidate for candidate in head}
    if own is not None:
        return [by_id[chunk_id] for chunk_id in reorder_by_own(asking, part.text, stored, own)]
    allowed = [item.stored for item in _shown(run, [Ranked(item, ()) for item in stored])]
    return [by_id[chunk_id] for chunk_id in reorder(asking, part.text, stored, allowed, _labels(run))]


def _labels(run: _Run) -> list[Labels]:
    """Of everything that was read so far: what words of a later search may come from."""
    return [item.labels for item in run.loaded.values()]


def _load(run: _Run, chunk_ids: Sequence[str]) -> None:
    """Each chunk is read once, under the filter."""
    missing = [chunk_id for chunk_id in chunk_ids if chunk_id not in run.loaded]
    if not missing:
        return
    line, watch, tenant = run.asking.line, run.asking.watch, run.asking.principal.tenant
    stored = watch.stage("load", lambda: line.store.load(tenant, missing, run.steps.searched, deadline_s=watch.left_s()))
    run.loaded.update((item.chunk.chunk_id, item) for item in stored)


def _vectors(run: _Run, chunk_ids: Sequence[str]) -> list[bytes]:
    line, watch, tenant = run.asking.line, run.asking.watch, run.asking.principal.tenant
    return watch.stage("load", lambda: line.store.vectors(tenant, chunk_ids, run.steps.searched, deadline_s=watch.left_s()))


# --- judging and asking -----------------------------------------------------------------------------------------------


def _likelihood(run: _Run, hits: Hits | None, ranked: Sequence[Ranked]) -> float | None:
    """By the scores of one search of one question, which alone are comparable, and the text of what was ranked: `hits`, or where
    there are none the question's own."""
    question, first = (run.done.question, run.done.found) if hits is None else (hits.question, hits)
    text = run.asking.question.text if hits is None else hits.query.text or ""
    if (
        question is None
        or question.sought is not None
        or not ranked
        or len(text.split()) > relevance.MOST_WORDS
        or is_foreign(text)
    ):
        return None
    head = ranked[: relevance.JUDGED]
    if run.steps.span != ALWAYS:  # the day is kept by the search, and passages of that day do not repeat it
        text = without_day(text, run.asking.question.now.date())

    def judge() -> float:
        maxsim = rank.similarities(question, [item.stored for item in head])
        found = relevance.Found(text, first.candidates, first.possible, head, maxsim)
        likely = relevance.load_gate().likelihood(relevance.features(found))
        return likely if relevance.is_about(text, head) else _weigh(run, likely)

    try:
        return run.asking.watch.stage("relevance", judge)
    except ValueError:
        run.asking.watch.note(note="not judged")  # damaged vectors: the rerank has said so
        return None


def _weigh(run: _Run, likely: float) -> float:
    """By the wording; and beside tables that it asks for, passages are only shown where they need no second search to be believed:
    there is another answer, and it explains every word of the question."""
    wording = _wording(run)
    weighed = relevance.weigh(likely, 1.0 if _needs_no_wording(run) else wording)
    return relevance.load_gate().doubt(weighed) if run.asking.found.route.name == "both" and wording < 0.5 else weighed


def _needs_no_wording(run: _Run) -> bool:
    """Where it is only something to look up, or where tables are no way out, because there are none for anybody."""
    found, text = run.done.found, run.asking.question.text
    bm25 = max((one.bm25 for one in found.candidates), default=0.0)
    return run.asking.policies.catalog is None or bool(looked_up(text, Probe(bm25, found.possible, found.admitted, 0.0)))


def _wording(run: _Run) -> float:
    """How likely the wording made it that text is needed at all; 1 where nobody weighed it. Of several questions in one, that which
    asks most for text decides: its answer is no less looked for beside a count."""
    prior = relevance.prior_of_text(run.asking.found.route.scores)
    parts = clauses(run.asking.question.text) if prior < 0.5 else []
    return max([prior, *(_prior_of_part(run, part) for part in parts)]) if len(parts) > 1 else prior


def _prior_of_part(run: _Run, part: str) -> float:
    line, asking = run.asking.line, run.asking
    purpose = Purpose(asking.principal.name, "embed_question", frozenset(), asking.decision_id)
    embedded, degraded = execute.embed(
        part, purpose, embedder=line.embedder, threads=line.threads, watch=asking.watch, share=line.embed_share
    )
    asking.found.degraded.extend(degraded)
    if embedded is None:
        return 1.0
    likely = score(line.heads(), part, embedded.vector)
    return relevance.prior_of_part(likely.rows, likely.text)


def _shown(run: _Run, ranked: Sequence[Ranked]) -> list[Ranked]:
    """Those that Cedar allows in full: the border where text leaves for a model."""
    asking = run.asking
    things = [(item.stored.chunk.source, item.stored.chunk.document_id, item.stored.labels) for item in ranked]
    verdicts = asking.policies.recheck(asking.principal, asking.question.now, things)
    return [item for item, verdict in zip(ranked, verdicts, strict=True) if verdict]


def _disclosed(run: _Run, ranked: Sequence[Ranked]) -> list[Ranked]:
    """Those of them that may be shown to the model beside the question. What stays is said."""
    asking, allowed = run.asking, _shown(run, ranked)
    remote, egress = asking.line.model(), asking.found.egress
    if remote is None or egress is None or not allowed:
        return []
    classes = {item.stored.chunk.chunk_id: class_of(item.stored.labels) for item in allowed}
    open_ = egress.permitted(remote.hosted.provider, "plan_search", asking.text_classes.union(classes.values()))
    if not asking.text_classes <= open_:
        run.trace.undisclosed += 1
        run.trace.notes.append("model: disclosure_not_permitted")
        return []
    stay = sorted(set(classes.values()) - open_)
    entry = Degraded("strategy", f"what is {', '.join(CLASSES[one] for one in stay)} was not shown to `{remote.hosted.provider}`")
    if stay and entry not in asking.found.degraded:
        asking.found.degraded.append(entry)
    return [item for item in allowed if classes[item.stored.chunk.chunk_id] in open_]


def _open_model(asking: Asking) -> Model | None:
    remote = asking.line.model()
    return asking.found.egress.model(remote) if remote is not None and asking.found.egress is not None else None


def _draft(run: _Run, model: Model, system: str, prompt: str, schema: Mapping[str, Any], shown: frozenset[int]) -> Any:
    """Sent under the classes of the question and of all that is shown beside it."""
    asking, watch = run.asking, run.asking.watch
    purpose = Purpose(asking.principal.name, "plan_search", asking.text_classes | shown, asking.decision_id)
    share = watch.left_s() * MODEL_SHARE

    def call() -> Any:
        return model.draft(system, prompt, schema, purpose=purpose, deadline_s=share).value

    return watch.stage("model", lambda: asking.line.threads.within(share, call))
