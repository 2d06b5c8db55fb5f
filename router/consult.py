"""Asks a hosted model where rules alone cannot tell: for the leg of a question that no gate is open for, and for what a follow-up means.

Both are last resorts, asked only where the line would ask back. Whatever fails, is late, is not permitted or is no reply leaves the
line where it was, and is said under `degraded`. Both are sent for the purpose `route`, and both together have the first half of the
deadline: what is searched after them needs the rest.

INVARIANT: without a provider or a permit nothing is sent, and the answer is what it was (tests/unit/test_consult.py::test_without_a_permit_nothing_is_sent).
INVARIANT: a model hears of granted things only, and of a source only where its least class may be sent (…::test_what_a_model_hears_is_granted_and_may_be_sent).
INVARIANT: nothing but a `LedgerError` leaves from here, whatever a model does (…::test_a_bad_day_of_the_provider_is_asked_back).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from router.domain import Degraded, Purpose
from router.egress import DISCLOSED_AS, RemoteModel
from router.errors import LedgerError, PointsmanError
from router.line import Asking
from router.routing.by_model import (
    FOLLOW_UP_SCHEMA,
    FOLLOW_UP_SYSTEM,
    ROUTE_SYSTEM,
    Asked,
    Told,
    build_follow_up_prompt,
    build_route_prompt,
    offer_routes,
    parse_follow_up,
    parse_route,
    route_schema,
)
from router.routing.faithful import accept_whole

KEPT_BACK = 0.5
"""The share of the deadline that is not spent on asking a model, whatever is asked."""
LEAST_CALL_S = 0.25
INVALID = "the model's answer is not what was asked for"
UNFAITHFUL = "what the model made of it says something that was not asked"


@dataclass(frozen=True, slots=True)
class _Call:
    """One question to a model, and the classes of what it is shown."""

    stage: Literal["route_by_model", "follow_up_by_model"]
    system: str
    prompt: str
    schema: Mapping[str, Any]
    classes: frozenset[int]


def consult_route(asking: Asking, *, tables: bool) -> Asked | None:
    """The route that a model reads from the question: a leg that exists for the caller, or `none`. None where there is no such word."""
    remote = asking.line.model()
    documents = bool(asking.grants.search)
    if remote is None or not (documents or tables):
        return None
    sources, classes = _sources(asking, remote)
    offered = offer_routes(documents=documents, tables=tables)
    prompt = build_route_prompt(asking.question.text, sources, _datasets(asking) if tables else ())
    reply = _ask(asking, remote, _Call("route_by_model", ROUTE_SYSTEM, prompt, route_schema(offered), classes))
    if reply is None:
        return None
    named = parse_route(reply, offered)
    if named is None:
        _fail(asking, "model_reply_invalid", INVALID)
    return None if named == "clarify" else named


def consult_follow_up(asking: Asking) -> str | None:
    """The whole question that a model reads from this one and those before, where it says nothing that they do not say."""
    remote, question = asking.line.model(), asking.question
    if remote is None:
        return None
    prompt = build_follow_up_prompt(question.context, question.text)
    reply = _ask(asking, remote, _Call("follow_up_by_model", FOLLOW_UP_SYSTEM, prompt, FOLLOW_UP_SCHEMA, asking.text_classes))
    if reply is None:
        return None
    text = parse_follow_up(reply)
    if not text:
        if text is None:
            _fail(asking, "model_reply_invalid", INVALID)
        return None
    whole = accept_whole(question.context, question.text, text)
    if whole is None:
        _fail(asking, "follow_up_unfaithful", UNFAITHFUL)
    return whole


def _ask(asking: Asking, remote: RemoteModel, call: _Call) -> Any:
    """What a model replied, unchecked; None where it did not, which is said. The stage counts one call, and how many were of use."""
    watch, egress = asking.watch, asking.found.egress
    budget_s = watch.left_s() - KEPT_BACK * asking.question.deadline_s
    if egress is None or budget_s < LEAST_CALL_S:
        asking.found.degraded.append(Degraded(call.stage, "deadline: no time was left to ask a model"))
        return None
    purpose = Purpose(asking.principal.name, "route", call.classes, asking.decision_id)
    draft = partial(egress.model(remote).draft, call.system, call.prompt, call.schema, purpose=purpose, deadline_s=budget_s)
    try:
        reply = watch.stage(call.stage, lambda: asking.line.threads.within(budget_s, draft))
    except LedgerError:
        raise
    except Exception as error:  # noqa: BLE001 (a model may fail in any way; without it the caller is asked)
        told = (error.code, error.message) if isinstance(error, PointsmanError) else (type(error).__name__, "the model failed")
        _fail(asking, *told)
        return None
    watch.note(count_in=1, count_out=1)
    return reply.value


def _fail(asking: Asking, code: str, message: str) -> None:
    """Of the call that was the latest stage."""
    asking.watch.note(count_in=1, count_out=0, note=code)
    asking.found.degraded.append(Degraded(asking.watch.stages[-1].name, f"{code}: {message}"))


# --- what a model is told of ------------------------------------------------------------------------------------------


def _sources(asking: Asking, remote: RemoteModel) -> tuple[list[Told], frozenset[int]]:
    """Granted sources whose least class may be sent beside the question, and the classes of it all."""
    policies, classes = asking.policies, asking.text_classes
    word = DISCLOSED_AS["route"]
    told = []
    for source in (policies.sources[grant.source] for grant in asking.grants.search):
        if source.least in classes or policies.may_disclose(
            asking.principal, provider=remote.hosted.provider, purpose=word, sensitivity=source.least
        ):
            told.append(Told(source.name, source.description, source.question))
            classes |= {source.least}
    return told, classes


def _datasets(asking: Asking) -> list[Told]:
    """Granted datasets with the columns that may be read as they are."""
    catalog = asking.policies.catalog
    about = {} if catalog is None else {one.name: one.description for one in catalog.datasets}
    return [
        Told(grant.name, about[grant.name], fields=tuple(one.name for one in grant.columns if one.mask is None))
        for grant in asking.grants.query
        if grant.name in about
    ]
