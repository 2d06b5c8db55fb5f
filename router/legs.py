"""The legs of a question: which of them it takes, and their run, at the same time where it takes both.

The first search of the documents is the probe that the gate of that leg judges, so nothing is searched twice. A leg that fails
beside another that found something is said to have failed; alone, its failure is the caller's.

INVARIANT: gates see the caller's own catalogue and what the caller's filter admits, so what is not granted changes no route
(tests/unit/test_legs.py::test_two_callers_who_differ_in_grants).
INVARIANT: a leg never waits for a thread that another leg holds (tests/unit/test_consult.py::test_legs_leave_threads_to_their_calls).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

from router import route
from router.consult import consult_follow_up, consult_route
from router.document_leg import Candidates, find_candidates, prepare_question, rank_candidates, search_legs, withdraw_beside_rows
from router.domain import Clarify, Degraded, Embedded, Route
from router.errors import PointsmanError, Refused, SourceError, UsageError
from router.execute import Embedding
from router.line import Asking, failure_of, fault_of
from router.routing.follow_up import KindOf, goes_on, leans, points_back, resolve
from router.routing.gates import CLOSED, UNJUDGED, Gate, Probe, content_words, gate_text, looked_up
from router.routing.heads import score
from router.routing.language import is_foreign
from router.seeded import DESCRIBED, Spelled, find_pointing, is_described, number_first, spell_out_for, tell_first

FOREIGN = "language_unsupported: the question does not look English; documents are searched with its words as they stand"
LEANS = "it leans on an earlier question"
NARROWED = "tables were not asked: sources and filters narrow documents"
UNREAD = "tables were asked too, and could not read it"
NOT_SAID = "what is meant is not said: please name it, or give the earlier question"
NOT_WHOLE = "this leans on an earlier question, and it is not certain how; please ask it in full"
SPEAKS = 0.9
OTHER_SCALE = 0.45
"""Instead of cosines of another model, which the gate of documents was not fitted to. Derived from the gate itself, whose threshold
this is just above (0.41) where no word is covered: so it is never shut there, and words alone say how far it is open."""
BY_MODEL = {
    "documents": "a model reads it as a question to documents",
    "sql": "a model reads it as a question to tables",
    "both": "a model reads it as a question to documents and tables",
    "none": "a model finds nothing in it to look up",
}
NOT_HELD = "nothing that is granted to you seems to hold this; what is it about?"


def gather(asking: Asking) -> None:
    """Fills the findings of `asking`. Raises `Refused` and `SourceError` of a leg that stands alone."""
    if asking.question.context:
        whole = asking.watch.stage("context", lambda: _resolve(asking))
        leaning = whole is None or (whole == asking.question.text and points_back(whole))
        read = consult_follow_up(asking) if leaning else None
        if read is not None:
            asking.watch.note(count_in=1, count_out=1, note=f"read as: {read}")
            asking = replace(asking, question=replace(asking.question, text=read))
        elif whole is None:
            if not _gather_leaning(asking):
                asking.found.clarify = Clarify(NOT_WHOLE, ())
            return
        elif whole != asking.question.text:
            asking.watch.note(note=f"read as: {whole}")
            asking = replace(asking, question=replace(asking.question, text=whole))
        elif _says_too_little(whole) or points_back(whole):
            if not _gather_leaning(asking):
                _gather(asking)
                if asking.found.clarify is not None:
                    asking.found.clarify = Clarify(NOT_WHOLE, ())  # what it leans on is why it could not be read
            return
    elif _says_too_little(asking.question.text):
        asking.found.route = Route("clarify", {}, 0.0, abstained=True, reasons=("it points at something that was not said",))
        asking.found.clarify = Clarify(NOT_SAID, ())
        return
    _gather(asking)


def _says_too_little(text: str) -> bool:
    """Without a question before: it goes on from one, or hardly more than points at it."""
    return goes_on(text) or (points_back(text) and len(content_words(text)) < 2)


def _gather_leaning(asking: Asking) -> bool:
    """Prose may be searched with the words of both questions, since passages show what they are about; rows may not, since a
    guess would be answered as if it had been asked. False where prose was not asked for or is not there."""
    if asking.question.route == "sql":
        asking.found.route = Route("clarify", {}, 0.0, abstained=True, reasons=(LEANS,))
        return False
    text = f"{asking.question.context[-1]} {asking.question.text}"
    both = replace(asking, question=replace(asking.question, text=text))
    embedded = prepare_question(both)
    candidates, failure = _find(both, embedded) if _is_prose(both, embedded.result()) else (None, None)
    if failure is not None:
        raise failure
    if candidates is None or not _gate_prose(both, candidates).is_open:
        _forget_search(asking)
        asking.found.route = Route("clarify", {}, 0.0, abstained=True, reasons=(LEANS,))
        return False
    asking.found.route = Route("documents", {}, 0.0, abstained=True, reasons=(f"{LEANS}: both were searched for together",))
    rank_candidates(both, candidates)
    return True


def _is_prose(asking: Asking, embedded: Embedded | None) -> bool:
    if embedded is None or asking.question.route is not None:
        return True
    likely = score(asking.line.heads(), asking.question.text, embedded.vector)
    return likely.text >= likely.rows


def _gather(asking: Asking) -> None:
    if is_foreign(asking.question.text):
        asking.found.degraded.append(Degraded("language", FOREIGN))
    wanted = asking.question.route
    if wanted == "sql" and asking.narrowed:
        message = "sources and filters narrow documents, and only tables are asked"
        raise UsageError("narrowing_not_for_tables", message, "say it in the question, or ask without --route sql")
    if wanted is not None:
        asking.found.route = asking.watch.stage("route", lambda: route.chosen(wanted))
        if wanted == "sql":
            _tables(asking, None)
            return
    begun = _begin_tables(asking, None) if wanted == "both" and not is_described(asking.question.text) else None
    prepared = prepare_question(asking) if wanted is None or "dense" in search_legs(asking.line.search) else None
    candidates, failure = _find(asking, prepared)
    embedded = None if prepared is None else prepared.result()
    if wanted is None:
        _choose(asking, embedded, candidates, failure)
    name = asking.found.route.name
    if failure is not None and name == "clarify":
        raise failure  # what cannot be searched is no reason to ask the caller
    if failure is not None and name in ("sql", "none"):
        asking.found.degraded.append(Degraded("documents", f"{failure.code}: {failure.message}"))
    if name == "documents" and wanted is None and _is_contextual(asking):
        asking.found.route = replace(asking.found.route, name="contextual")
    if name == "both" and failure is None and number_first(asking):
        return
    if name == "both":
        _both(asking, begun or _begin_tables(asking, embedded), candidates, failure)
    elif name == "sql":
        _forget_search(asking)
        _tables(asking, embedded)
    elif name in ("documents", "contextual"):
        if failure is not None:
            raise failure
        if candidates is not None:
            rank_candidates(asking, candidates)
    else:
        _forget_search(asking)


def _resolve(asking: Asking) -> str | None:
    """The whole question that is meant after the earlier ones; the question itself where it stands alone, None where it leans on
    them in a way that is not certain."""
    question = asking.question
    resolved = resolve(question.context, question.text, _kind_of(asking))
    if resolved is not None:
        return resolved.question
    return None if leans(question.text) else question.text


def _kind_of(asking: Asking) -> KindOf:
    """What words stand for, of the caller's own tables; nothing where there are none."""
    if asking.policies.catalog is None or not asking.grants.query:
        return lambda _: None
    from router.table_leg import kinds_of_words

    try:
        return kinds_of_words(asking)
    except (Refused, SourceError):
        return lambda _: None


def _is_contextual(asking: Asking) -> bool:
    """Where granted sources have two indexes and the contextual one was searched of all of them. With one index there is no choice
    and the route is `documents`."""
    two = asking.line.two_indexes & {grant.source for grant in asking.grants.search}
    return bool(two) and not two & asking.line.prefer_plain


def _find(asking: Asking, embedded: Embedding | None) -> tuple[Candidates | None, SourceError | None]:
    try:
        return find_candidates(asking, embedded), None
    except SourceError as error:
        return None, error
    except PointsmanError:
        raise  # the caller's own: a strategy that does not exist, a filter that says nothing
    except Exception as error:  # noqa: BLE001 (whatever it is, rows may still answer)
        return None, fault_of(asking, error)


def _forget_search(asking: Asking) -> None:
    """The probe was no search of the answer: its receipts stay in the record's stages alone."""
    asking.found.filters = ()
    asking.found.policies = frozenset()


def _choose(asking: Asking, embedded: Embedded | None, candidates: Candidates | None, failure: SourceError | None) -> None:
    """Documents whose search failed are not said to hold nothing: the wording alone decides whether they are needed."""
    line, question = asking.line, asking.question
    vector = embedded.vector if embedded is not None else None
    rows = _gate_rows(asking, embedded)
    prose = _gate_prose(asking, candidates) if failure is None else UNJUDGED
    closed = not rows.is_open and not prose.is_open
    options = _options(asking) if closed and not asking.narrowed else ()
    # Small talk meets nothing: where what is granted speaks for a search by itself, there is something to look up.
    speaks = max(rows.open, 0.0 if prose is UNJUDGED else prose.open) >= SPEAKS
    point = replace(line.point, none=1.0) if speaks else line.point
    asking.found.route, back = asking.watch.stage(
        "route",
        lambda: route.choose(question.text, vector, line.heads(), rows=rows, prose=prose, point=point, options=options),
    )
    chosen = asking.found.route
    if chosen.name in ("sql", "documents") and rows.is_open and prose.is_open and is_described(question.text):
        asking.found.route = replace(chosen, name="both", reasons=(*chosen.reasons, DESCRIBED))
    if chosen.name == "clarify" and not (candidates is not None and _widen(asking)):
        asking.found.clarify = Clarify(NOT_HELD, back)


def _widen(asking: Asking) -> bool:
    """Where the gates left nothing, a permitted model may name a leg that exists, or say that there is nothing to look up."""
    found, readable = asking.found, "tables" not in {one.stage for one in asking.found.degraded}
    name = consult_route(asking, tables=readable and asking.policies.catalog is not None and bool(asking.grants.query))
    if name is None:
        return False
    found.route = replace(found.route, name=name, reasons=(*found.route.reasons, BY_MODEL[name]))
    return True


def _gate_rows(asking: Asking, embedded: Embedded | None) -> Gate:
    """Closed where no table is granted, or where tables cannot be read just now, which is said."""
    if asking.policies.catalog is None or not asking.grants.query:
        return CLOSED
    if asking.narrowed:
        asking.found.notes += (NARROWED,)
        return CLOSED
    from router.table_leg import gate_tables  # with it comes the parser of SQL, which a world without tables needs not

    try:
        return gate_tables(asking, embedded)
    except (Refused, SourceError) as error:
        asking.found.degraded.append(Degraded("tables", f"{error.code}: only documents can be searched"))
        return CLOSED


def _gate_prose(asking: Asking, candidates: Candidates | None) -> Gate:
    """From the first search: the best of its candidates in either leg, and what the question could reach at most. Where wording
    says nothing, because there is none or none that is understood, documents are searched."""
    if candidates is None:
        return CLOSED
    found = candidates.done.found
    bm25 = max((one.bm25 for one in found.candidates), default=0.0)
    cosine, question = max((one.cosine for one in found.candidates), default=0.0), candidates.done.question
    if question is not None and question.sought is not None:
        cosine = OTHER_SCALE
    probe = Probe(bm25, found.possible, found.admitted, cosine)
    return gate_text(probe, looked_up(asking.question.text, probe))


def _options(asking: Asking) -> tuple[str, ...]:
    """Up to three granted things to ask about."""
    sources = [asking.policies.sources[grant.source] for grant in asking.grants.search]
    told = [f"documents on {one.description or one.name}" for one in sources]
    catalog = asking.policies.catalog
    named = {} if catalog is None else {one.name: one.description for one in catalog.datasets}
    tables = [f"tables of {grant.name.replace('_', ' ')}" for grant in asking.grants.query if grant.name in named]
    return tuple([*told[: 3 - min(1, len(tables))], *tables][:3])


def _tables(asking: Asking, embedded: Embedded | None) -> None:
    if asking.narrowed:
        asking.found.notes += (NARROWED,)
        return
    from router.table_leg import query_tables

    query_tables(asking, embedded)


@dataclass(frozen=True, slots=True)
class _Begun:
    """The leg over tables on a thread of its own."""

    rows: Asking
    running: Future[None]


def _begin_tables(asking: Asking, embedded: Embedded | None) -> _Begun:
    rows = asking.beside()
    return _Begun(rows, asking.line.leg_threads.start(partial(_tables, rows, embedded)))


def _both(asking: Asking, begun: _Begun, candidates: Candidates | None, failure: SourceError | None) -> None:
    """Rows on a thread of their own, documents here, inside one deadline; findings are joined in this order. Documents that are to
    be searched with a name which only the rows can say wait for them."""
    pointing = None if candidates is None or asking.narrowed else find_pointing(asking)
    rows_failed: PointsmanError | None = None
    if pointing is not None and pointing.name is None:
        tell_first(asking, pointing)
        if (rows_failed := failure_of(asking, partial(_await, asking, begun))) is None:
            asking.watch.stages += begun.rows.watch.stages
            begun.rows.watch.stages = []
    spelled = Spelled(())
    if pointing is not None and rows_failed is None:
        spelled = spell_out_for(asking, pointing, begun.rows.found)
    documents_failed = failure or failure_of(asking, partial(_rank, asking, candidates, spelled.tries))
    rows_failed = rows_failed or failure_of(asking, partial(_await, asking, begun))
    if rows_failed is None:
        asking.join(begun.rows)
    if spelled.looked_up is not None:
        asking.found.add(spelled.looked_up)
    if documents_failed is not None and (rows_failed is not None or not asking.found.tables):
        raise documents_failed
    if rows_failed is not None and not asking.found.passages:
        raise rows_failed  # that nothing was found is more than anybody knows
    for stage, failed in (("documents", documents_failed), ("tables", rows_failed)):
        if failed is not None:
            asking.found.degraded.append(Degraded(stage, f"{failed.code}: {failed.message}"))
    if pointing is None:
        withdraw_beside_rows(asking)
    if asking.found.passages and asking.found.clarify is not None:
        asking.found.notes += (f"{UNREAD}: {asking.found.clarify.question}",)
        asking.found.clarify = None  # what the tables could not read, the documents answer


def _await(asking: Asking, begun: _Begun) -> None:
    asking.line.leg_threads.wait(asking.watch.left_s(), begun.running)


def _rank(asking: Asking, candidates: Candidates | None, spelled: Sequence[Asking]) -> None:
    """Of the first search, or of others with a name in place of what points at it; the probe's receipts then give way."""
    for one in spelled:
        _forget_search(asking)
        asking.found.nearest = ()
        rank_candidates(one, find_candidates(one, prepare_question(one)))
        if asking.found.passages:
            return
    if candidates is not None and not spelled:
        rank_candidates(asking, candidates)
