"""The differential on live data: random principals x live documents; the store's filter, the reference evaluator and Cedar in
full must say the same of every pair, in both legs. Nothing is returned but counts and, for a disagreement, ids."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from router.app import Router
from router.domain import Labels, Principal, Search
from router.filters import Filter, Scalar, matches
from router.plan import build
from router.policy import PolicySet

DAY = timedelta(days=1)
KEPT = 20


@dataclass(slots=True)
class AccessReport:
    """`leaks`: the store admits what Cedar denies. `over_blocks`: the reverse. `disagreements`: reference against Cedar,
    or a leg's hits against the admitted set."""

    cases: int = 0
    principals: int = 0
    documents: int = 0
    allowed: int = 0
    leaks: int = 0
    over_blocks: int = 0
    disagreements: int = 0
    examples: list[str] = field(default_factory=list)

    def note(self, what: str, document_id: str) -> None:
        if len(self.examples) < KEPT:
            self.examples.append(f"{what}: {document_id}")


def run_access(router: Router, cases: int, seed: int, progress: Callable[[int], None] | None = None) -> AccessReport:
    """At least `cases` pairs, each judged three ways. Deterministic in `seed` and the live data."""
    draw = random.Random(seed)  # noqa: S311 (a sample, not a secret)
    policies = router.policies.current()
    live = {
        tenant: list(router.store.labelled(tenant)) for tenant in sorted({source.tenant for source in policies.sources.values()})
    }
    live = {tenant: documents for tenant, documents in live.items() if documents}
    report = AccessReport(documents=sum(len(documents) for documents in live.values()))
    if not live:
        return report
    words = _Words.of(policies, [labels for documents in live.values() for _, _, labels in documents])
    while report.cases < cases:
        principal = words.principal(draw, policies, sorted(live))
        now = datetime(2026, 1, 1, tzinfo=UTC) + DAY * draw.randrange(-400, 800)
        for tenant, documents in live.items():
            sample = draw.sample(documents, min(len(documents), max(1, cases - report.cases)))
            _judge(router, policies, principal, now, tenant, sample, report)
        report.principals += 1
        if progress is not None:
            progress(report.cases)
    return report


def _judge(
    router: Router,
    policies: PolicySet,
    principal: Principal,
    now: datetime,
    tenant: str,
    documents: list[tuple[str, str, Labels]],
    report: AccessReport,
) -> None:
    """The store is asked in `tenant`, also where that is not the principal's: the wall must hold without the partition."""
    f = build(policies.grants(principal, now), policies.document_type, legs=(), candidates=1, rerank=1).filter
    admitted = set(router.store.admitted(tenant, f))
    verdicts = policies.recheck(principal, now, documents)
    for (source, document_id, labels), verdict in zip(documents, verdicts, strict=True):
        report.cases += 1
        report.allowed += bool(verdict)
        if document_id in admitted and not verdict:
            report.leaks += 1
            report.note("leak", document_id)
        if document_id not in admitted and verdict:
            report.over_blocks += 1
            report.note("over-block", document_id)
        if matches(f, {**labels, "@source": source}) != bool(verdict):
            report.disagreements += 1
            report.note("reference", document_id)
    _judge_legs(router, tenant, f, admitted, report)


def _judge_legs(router: Router, tenant: str, f: Filter, admitted: set[str], report: AccessReport) -> None:
    """With no limit in the way the dense leg returns every admitted document, and the lexical leg none beyond."""
    card = router.embedder.card
    vector = struct.pack(f"<{card.dimensions}f", 1.0, *([0.0] * (card.dimensions - 1)))
    found = router.store.search(Search(tenant, f, "the error machine report", vector, card.id, 1_000_000, 60.0))
    hits = {candidate.document_id for candidate in found.candidates}
    dense = {candidate.document_id for candidate in found.candidates if "dense" in candidate.legs}
    for document_id in hits - admitted:
        report.leaks += 1
        report.note("leg leak", document_id)
    for document_id in admitted - dense:
        report.over_blocks += 1
        report.note("leg over-block", document_id)


@dataclass(frozen=True, slots=True)
class _Words:
    """Values that occur in labels and people, from which principals are drawn: chance alone would never meet a group."""

    groups: tuple[str, ...]
    strings: tuple[str, ...]
    longs: tuple[int, ...]

    @staticmethod
    def of(policies: PolicySet, labels: Iterable[Labels]) -> _Words:
        sets, strings, longs = {"corp:nobody"}, {"", "*", "'", "zzz"}, {-1, 0, 1, 2, 3, 4}
        for each in labels:
            for value in each.values():
                if isinstance(value, frozenset):
                    sets.update(value)
                elif isinstance(value, str):
                    strings.add(value)
                elif not isinstance(value, bool):
                    longs.add(value)
        for alias, claims in ((str(person.get("issuer")), person) for person in policies.people.values()):
            groups = claims.get("groups")
            sets.update(f"{alias}:{group}" for group in groups if isinstance(group, str)) if isinstance(groups, list) else None
        return _Words(tuple(sorted(sets)), tuple(sorted(strings)), tuple(sorted(longs)))

    def principal(self, draw: random.Random, policies: PolicySet, tenants: list[str]) -> Principal:
        alias = draw.choice(sorted(policies.issuers))
        user = policies.types["User"]
        attributes = [
            (name, self._value(draw, spec.kind))
            for name, spec in sorted(user.fields.items())
            if name not in ("tenant", "groups") and (spec.required or draw.random() < 0.6)
        ]
        groups = frozenset(draw.sample(self.groups, min(len(self.groups), draw.randrange(6))))
        return Principal(alias, f"p{draw.randrange(10**9)}", "User", draw.choice(tenants), groups, tuple(attributes), 2**40)

    def _value(self, draw: random.Random, kind: str) -> Scalar | frozenset[str]:
        if kind == "long":
            return draw.choice((0, 1, 2, 3)) if draw.random() < 0.7 else draw.choice(self.longs)
        if kind == "bool":
            return draw.random() < 0.5
        if kind == "set":
            return frozenset(draw.sample(self.groups, min(len(self.groups), draw.randrange(4))))
        return draw.choice(self.strings)


def as_json(report: AccessReport) -> dict[str, Any]:
    return {
        "cases": report.cases,
        "principals": report.principals,
        "documents": report.documents,
        "allowed": report.allowed,
        "leaks": report.leaks,
        "over_blocks": report.over_blocks,
        "disagreements": report.disagreements,
        "examples": report.examples,
    }
