"""From a plan to one that is narrower: what the caller asks to leave out, and what the question's own words say.

INVARIANT: what is given up where nothing is found is never the span (tests/unit/test_asking_versions.py::test_the_span_is_never_given_up).
INVARIANT: the policy's filter stays whole inside the narrower one (tests/unit/test_search_narrowing.py::test_narrowing_only_takes_away).
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

from router.domain import Receipt, Steps
from router.filters import ALWAYS, And, EntityType, Filter, canonical, compile_part, digest, simplify
from router.line import Asking
from router.plan import with_source
from router.search.narrowing import IN_FORCE, Fields, Narrowing, build_fields, parse_narrowing, part_entities, recognise

MOST_LABELS = 5_000
"""With more distinct labels than this nothing is recognised in questions: to read them would cost more than it gives."""


def narrow(asking: Asking, steps: Steps) -> tuple[Steps, Narrowing]:
    """The plan with what is asked for and what was recognised. Raises `UsageError` for a field or source that is not the caller's."""
    question = asking.question
    document_type = asking.policies.document_type
    entities, filters = part_entities(document_type, question.filters)
    steps = replace(steps, entities=entities)
    asked_for = bool(question.sources or filters)
    if not asked_for and asking.line.search.narrowing == "off":
        return steps, Narrowing(entities=entities)
    version = asking.line.store.version(asking.principal.tenant, deadline_s=asking.watch.left_s(), seen=True)
    fields = _fields(asking, steps, version)
    asked = parse_narrowing(fields, question.sources, filters) if asked_for else ALWAYS
    meant = Narrowing()
    if asking.line.search.narrowing == "question":
        dated = IN_FORCE in fields.values and document_type.fields[IN_FORCE].kind == "long"
        meant = recognise(question.text, fields, question.now.date(), as_of=dated)
    narrowing = replace(meant, asked=asked, version=version, entities=entities)
    return apply_narrowing(steps, And((asked, meant.recognised)), document_type), narrowing


def apply_narrowing(steps: Steps, term: Filter, document_type: EntityType) -> Steps:
    """`term` and the plan's span AND-ed under its filter; the plan as it is where they say nothing."""
    entity = with_source(document_type)
    part = compile_part(And((term, steps.span)), entity).filter
    if part == ALWAYS:
        return replace(steps, narrowed=None)
    return replace(steps, narrowed=simplify(And((steps.filter, part)), entity))


def receipts_of(asking: Asking, steps: Steps) -> tuple[Receipt, ...]:
    """Of the narrowing alone: the policy's receipt stays what it was."""
    key, tenant = asking.line.key, asking.principal.tenant
    receipts = [] if steps.narrowed is None else [digest(steps.narrowed, key=key, tenant=tenant, source="*")]
    if steps.entities:
        receipts.append(digest(steps.searched, key=key, tenant=tenant, source="*", text=_entities_text(steps)))
    return tuple(Receipt("narrowing", receipt) for receipt in receipts)


def _entities_text(steps: Steps) -> str:
    return json.dumps([canonical(steps.searched), sorted(steps.entities)])


def _fields(asking: Asking, steps: Steps, version: str) -> Fields:
    """Kept per filter and version of the documents."""
    line, tenant = asking.line, asking.principal.tenant
    sources = tuple(grant.source for grant in asking.grants.search)
    key = ("fields", asking.policies.version, tenant, steps.text or canonical(steps.filter), sources, version)

    def build() -> Fields:
        labels = line.store.admitted_labels(tenant, steps.filter, deadline_s=asking.watch.left_s())
        return build_fields(asking.policies.document_type, sources, labels[:MOST_LABELS])

    fields: Fields = line.vocabularies.get(key, partial(build))
    return fields
