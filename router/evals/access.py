"""The differential on live data: random principals x live documents and rows; the store's filter, the reference evaluator and
Cedar in full must say the same of every pair, in both legs and in DuckDB, and every column must be granted as Cedar says of it.
Nothing is returned but counts and, for a disagreement, ids of documents and names of tables.

INVARIANT: a filter or a column that is wider than Cedar is a leak, a narrower one an over-block
(tests/unit/test_evals.py, tests/unit/test_access_rows.py)."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from router.app import Router, open_rows
from router.domain import Labels, Principal, Search, TableGrant
from router.errors import SourceError
from router.filters import Filter, Scalar, matches
from router.plan import build
from router.policy import PolicySet, Verdict
from router.policy.governance import ColumnFacts

DAY = timedelta(days=1)
KEPT = 20
AT_ONCE = 300
"""Of one tenant or dataset, for one principal: more principals say more than more of the same."""


@dataclass(slots=True)
class AccessReport:
    """`leaks`: the store admits what Cedar denies. `over_blocks`: the reverse. `disagreements`: reference against Cedar,
    or a leg's hits against the admitted set."""

    cases: int = 0
    principals: int = 0
    documents: int = 0
    rows: int = 0
    columns: int = 0
    allowed: int = 0
    leaks: int = 0
    over_blocks: int = 0
    disagreements: int = 0
    examples: list[str] = field(default_factory=list)

    def note(self, what: str, where: str) -> None:
        if len(self.examples) < KEPT:
            self.examples.append(f"{what}: {where}")

    def judge(self, what: str, where: str, *, admitted: bool, allowed: bool) -> None:
        """One pair: what the enforcing side does, and what Cedar in full says."""
        self.cases += 1
        self.allowed += allowed
        if admitted and not allowed:
            self.leaks += 1
            self.note(f"{what} leak".lstrip(), where)
        if allowed and not admitted:
            self.over_blocks += 1
            self.note(f"{what} over-block".lstrip(), where)


def run_access(router: Router, cases: int, seed: int, progress: Callable[[int], None] | None = None) -> AccessReport:
    """At least `cases` pairs, each judged three ways. Deterministic in `seed` and the live data."""
    draw = random.Random(seed)  # noqa: S311 (a sample, not a secret)
    policies = router.policies.current()
    live = {
        tenant: list(router.store.labelled(tenant)) for tenant in sorted({source.tenant for source in policies.sources.values()})
    }
    live = {tenant: documents for tenant, documents in live.items() if documents}
    with _tables(router, policies) as tables:
        report = AccessReport(documents=sum(map(len, live.values())), rows=sum(len(table.rows) for table in tables))
        if not live and not report.rows:
            return report
        labels = [*(each for documents in live.values() for _, _, each in documents), *(row for t in tables for row in t.rows)]
        words = _Words.of(policies, labels)
        tenants = sorted({*live, *(str(row["tenant"]) for table in tables for row in table.rows if "tenant" in row)})
        while report.cases < cases:
            principal = words.principal(draw, policies, tenants)
            now = datetime(2026, 1, 1, tzinfo=UTC) + DAY * draw.randrange(-400, 800)
            for tenant, documents in live.items():
                sample = draw.sample(documents, min(len(documents), AT_ONCE, max(1, cases - report.cases)))
                _judge(router, policies, principal, now, tenant, sample, report)
            for table in tables:
                _judge_table(policies, principal, now, table, draw, report)
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
        report.judge("", document_id, admitted=document_id in admitted, allowed=verdict.allowed)
        if matches(f, {**labels, "@source": source}) != verdict.allowed:
            report.disagreements += 1
            report.note("reference", document_id)
    _judge_legs(router, tenant, f, admitted, report)


def _judge_legs(router: Router, tenant: str, f: Filter, admitted: set[str], report: AccessReport) -> None:
    """With no limit in the way the dense leg returns every admitted document, and the lexical leg none beyond."""
    card = router.index_card
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


# --- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Table:
    """Some rows of a dataset, and how DuckDB answers for all of them under a grant."""

    name: str
    rows: list[dict[str, Any]]
    admitted: Callable[[TableGrant], list[bool]]


@contextmanager
def _tables(router: Router, policies: PolicySet) -> Iterator[list[_Table]]:
    """None where no table is governed or none has been copied yet."""
    if not policies.datasets:
        yield []
        return
    try:
        database = router.snapshots.path()
    except SourceError as error:
        if error.code != "tables_missing":
            raise
        yield []
        return
    live = open_rows(database)
    try:
        yield [
            _Table(facts.name, live.read(facts.name, facts.relation, facts.attributes), live.admitted)
            for facts in policies.datasets.values()
        ]
    finally:
        live.close()


def _judge_table(
    policies: PolicySet, principal: Principal, now: datetime, table: _Table, draw: random.Random, report: AccessReport
) -> None:
    """Rows by the grant's filter, as DuckDB and the reference evaluator read it; columns by what the grant lists."""
    grant = next((grant for grant in policies.grants(principal, now).query if grant.name == table.name), None)
    may = policies.judge_columns(principal, now, table.name)
    sample = sorted(draw.sample(range(len(table.rows)), min(len(table.rows), AT_ONCE)))
    rows = [table.rows[at] for at in sample]
    verdicts = policies.judge_rows(principal, now, table.name, rows)
    reached = any(may[column.name, "read_column"] or _masked(may, column) for column in policies.datasets[table.name].columns)
    admitted = table.admitted(grant) if grant is not None else [False] * len(table.rows)
    for at, row, verdict in zip(sample, rows, verdicts, strict=True):
        allowed = verdict.allowed and reached  # a table none of whose columns may be read is no table
        report.judge("row", table.name, admitted=admitted[at], allowed=allowed)
        if (grant is not None and matches(grant.filter, row)) != allowed:
            report.disagreements += 1
            report.note("row reference", table.name)
    if grant is not None:
        _judge_columns(policies, grant, may, report)


def _masked(may: Mapping[tuple[str, str], Verdict], column: ColumnFacts) -> bool:
    return column.mask is not None and may[column.name, "read_masked"].allowed


def _judge_columns(policies: PolicySet, grant: TableGrant, may: Mapping[tuple[str, str], Verdict], report: AccessReport) -> None:
    """Each column three ways: read as it is, read at all, and its raw value in predicates."""
    granted = {column.name: column for column in grant.columns}
    for column in policies.datasets[grant.name].columns:
        found, where = granted.get(column.name), f"{grant.name}.{column.name}"
        raw = may[column.name, "read_column"].allowed
        predicates = raw or (_masked(may, column) and may[column.name, "filter_raw"].allowed)
        pairs = (
            ("column", found is not None and found.mask is None, raw),
            ("masked column", found is not None, raw or _masked(may, column)),
            ("raw predicate", found is not None and (found.mask is None or found.filter_raw), predicates),
        )
        for what, admitted, allowed in pairs:
            report.columns += 1
            report.judge(what, where, admitted=admitted, allowed=allowed)


# --- who asks ---------------------------------------------------------------------------------------------------------


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
        "rows": report.rows,
        "columns": report.columns,
        "allowed": report.allowed,
        "leaks": report.leaks,
        "over_blocks": report.over_blocks,
        "disagreements": report.disagreements,
        "examples": report.examples,
    }
