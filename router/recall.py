"""Evidence that was gathered before for the same question under the same grants (adr/0031). Off unless `[cache]` says so.

Kept is the evidence, never the decision: whoever asks is identified, has both records under an id of their own, and what is about to
leave is judged by Cedar in full as ever. An entry is found under everything that the evidence depends on: two people share one only
where no leg could have told them apart. To the caller a recalled answer is the one that would have been gathered, times aside: whether
somebody asked before is not the caller's to know. The record says it.

INVARIANT: nobody recalls what was gathered under another filter, column or mask, or with other permits to disclose
(tests/unit/test_recall.py::test_two_people_share_only_under_equal_grants, ::test_permits_to_disclose_keep_people_apart).
INVARIANT: with and without it answers are equal, ids and times aside, through every change of policies, people, documents and tables
(…::test_answers_are_those_that_would_be_gathered).
INVARIANT: no entry outlives the moment at which the period of anything that its filters admit begins or ends, also of what a search
narrowed to today does not see (…::test_it_ends_where_any_period_begins_or_ends).
INVARIANT: what failed, fell back or was doubted by the recheck is never kept (…::test_degraded_answers_are_not_kept,
::test_a_recheck_that_refuses_empties_the_entry).
"""

from __future__ import annotations

import hashlib
import json
import pickle
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from router import plan
from router.domain import CLASSES, SINCE_FIELD, UNTIL_FIELD, Stage, TableGrant, with_spans
from router.egress import DISCLOSED_AS
from router.errors import SourceError
from router.filters import canonical
from router.kept import Kept
from router.line import Asking, Evidence, Keeping
from router.search.narrowing import IN_FORCE, UNTIL

RECALL, RECHECK = "recall", "recall_recheck"
"""The stages of looking and of judging what was found there; they stand in the record alone."""
_KEPT = ("route", "passages", "tables", "clarify", "filters", "policies", "reads", "notes", "nearest", "data_versions", "judged")
"""Of the evidence, what is kept and put back. The rest is of one decision: what it sent, what it was refused, what fell back."""


@dataclass(frozen=True, slots=True)
class _Place:
    key: bytes
    versions: Mapping[str, str]


def recall_or_gather(asking: Asking, gather: Callable[[Asking], None]) -> None:
    """Fills the findings of `asking`: with what is kept, else by `gather`, whose errors are raised; that is then kept where it may."""
    keeping, found, watch = asking.line.keeping, asking.found, asking.watch
    if keeping is None:
        gather(asking)
        return
    kept, place = keeping.kept, watch.stage(RECALL, lambda: _find_place(asking, keeping))
    if place is None:
        found.cache = "bypass"
        gather(asking)
        return
    if _recall(asking, kept, place):
        found.cache = "hit"
        return
    found.cache = "miss"
    stages, degraded = len(watch.stages), len(found.degraded)
    gather(asking)
    whole = len(found.degraded) == degraded and not found.dropped and found.refusal is None
    seen = {name: found.data_versions.get(name, version) for name, version in place.versions.items()}
    if not whole or seen != place.versions:
        return
    try:
        until_ms = min((one for one in (found.until_ms, _next_period_ms(asking, place)) if one is not None), default=None)
    except SourceError:
        return
    if _versions(asking) != place.versions:
        return
    ends_in_s = None if until_ms is None else (until_ms - _now_ms(asking)) / 1000
    shown = tuple(Stage(stage.name, 0, stage.count_in, stage.count_out, stage.note) for stage in watch.stages[stages:])
    told = {name: getattr(found, name) for name in _KEPT}
    told["judged"] = [(source, document_id, dict(labels)) for source, document_id, labels in found.judged]
    value = pickle.dumps((told, shown, _now_ms(asking), until_ms))
    kept.put(place.key, value, tenant=asking.principal.tenant, versions=place.versions, ends_in_s=ends_in_s)


def _recall(asking: Asking, kept: Kept, place: _Place) -> bool:
    value = kept.get(place.key, tenant=asking.principal.tenant, versions=place.versions)
    if value is None:
        return False
    held, shown, since_ms, until_ms = pickle.loads(value)  # noqa: S301 (bytes of this very process that never left its memory)
    if not since_ms <= _now_ms(asking) or (until_ms is not None and until_ms <= _now_ms(asking)):
        return False  # another version of something is in force at this hour
    verdicts = asking.watch.stage(RECHECK, lambda: asking.policies.recheck(asking.principal, asking.question.now, held["judged"]))
    if not all(verdicts):
        kept.drop(place.key)
        asking.line.alarm("recall_denied", dropped=sum(not one for one in verdicts), policy_version=asking.policies.version)
        return False
    for name, value_of in held.items():
        setattr(asking.found, name, value_of)
    asking.found.recalled = shown
    return True


def _next_period_ms(asking: Asking, place: _Place) -> int | None:
    """When the next document that the caller's filter admits comes into force or ends. From then on it may be found, or no more, and
    what it replaces the other way round: the answer is another one. Kept per filter and version of the documents."""
    line, tenant, document_type = asking.line, asking.principal.tenant, asking.policies.document_type
    names = [name for name in (IN_FORCE, UNTIL, SINCE_FIELD, UNTIL_FIELD) if name in with_spans(document_type).fields]
    if "documents" not in place.versions or not names:
        return None
    steps = plan.build(asking.grants, document_type, legs=(), candidates=0, rerank=0)
    key = ("periods", asking.policies.version, tenant, steps.text or canonical(steps.filter), place.versions["documents"])

    def build() -> list[int]:
        several = line.store.admitted_labels(tenant, steps.filter, deadline_s=asking.watch.left_s())
        return sorted({day for labels in several for name in names if type(day := labels.get(name)) is int})

    moments: list[int] = line.vocabularies.get(key, build)
    later = bisect_right(moments, _now_ms(asking))
    return moments[later] if later < len(moments) else None


def _now_ms(asking: Asking) -> int:
    return int(asking.question.now.timestamp() * 1000)


# --- where it is kept -------------------------------------------------------------------------------------------------


def _find_place(asking: Asking, keeping: Keeping) -> _Place | None:
    """None where nothing may be kept: a version cannot be read, or the order of a granted source changes by the minute."""
    line = asking.line
    if any(grant.source in line.recency_days for grant in asking.grants.search):
        return None
    versions = _versions(asking)
    if versions is None:
        return None
    permits = _disclosable(asking, keeping)
    said = [_asked(asking), _granted(asking), permits, sorted(versions.items()), keeping.settings_digest, line.models()]
    return _Place(hashlib.sha256(json.dumps(said, sort_keys=True).encode("utf-8", "backslashreplace")).digest(), versions)


def _versions(asking: Asking) -> Mapping[str, str] | None:
    """Of all that the caller's evidence can come from; None where one cannot be read, which the legs will say."""
    line, grants = asking.line, asking.grants
    versions = {"policies": asking.policies.version}
    try:
        if grants.search:
            versions["documents"] = line.store.version(asking.principal.tenant, deadline_s=asking.watch.left_s())
        if grants.query:
            versions["tables"] = line.tables_version()
    except SourceError:
        return None
    return versions


def _asked(asking: Asking) -> list[Any]:
    """The question as it was put. The clock counts by its day, as in the policies; a day that was asked for counts to the moment."""
    question = asking.question
    moment = question.now.isoformat() if question.as_of else question.now.date().isoformat()
    wishes = (question.text, question.context, question.route, question.strategy, question.k, question.sources, question.filters)
    return [asking.principal.tenant, moment, asking.grants.day_ms, *wishes]


def _granted(asking: Asking) -> list[Any]:
    """Every filter, column and mask, and who speaks in them, since the record names the policies. Filters by canonical text: to
    Python, 1 and True are equal."""
    search = [(grant.source, canonical(grant.filter), grant.policies) for grant in asking.grants.search]
    return [search, [_table(grant) for grant in asking.grants.query]]


def _table(grant: TableGrant) -> dict[str, Any]:
    said = {one.name: getattr(grant, one.name) for one in fields(grant) if one.name not in ("filter", "columns")}
    return {**said, "filter": canonical(grant.filter), "columns": [(one.name, one.mask, one.filter_raw) for one in grant.columns]}


def _disclosable(asking: Asking, keeping: Keeping) -> list[Any]:
    """What could be sent to whom for this caller: hosted models take part in an answer by it. Nothing where none is named."""
    line, policies, principal = asking.line, asking.policies, asking.principal
    remote = (line.model(), line.remote_embedder(), line.remote_reranker())
    providers = sorted({one.hosted.provider for one in remote if one is not None})
    if not providers:
        return []

    def judge() -> list[Any]:
        return [
            [
                provider,
                word,
                [bool(policies.may_disclose(principal, provider=provider, purpose=word, sensitivity=one)) for one in _ALL],
            ]
            for provider in providers
            for word in sorted(set(DISCLOSED_AS.values()))
        ]

    found: list[Any] = keeping.permits.get((policies.version, principal, tuple(providers)), judge)
    return found


_ALL = range(len(CLASSES))


def shown_stages(found: Evidence, stages: Sequence[Stage]) -> list[Stage]:
    """As the caller is shown them: those of the gathering that is recalled, and no word of whether there was one."""
    at = next((at for at, stage in enumerate(stages) if stage.name == RECALL), 0)
    return [*stages[:at], *found.recalled, *(stage for stage in stages[at:] if stage.name not in (RECALL, RECHECK))]
