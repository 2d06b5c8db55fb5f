"""The leg over tables: what the caller's words may stand for, a draft, and its rows through the gate.

INVARIANT: a draft, whoever made it, is untrusted text: it meets the gate like any other (tests/unit/test_table_leg.py).
INVARIANT: what is asked back names granted things only (…::test_a_hidden_name_reads_like_one_that_does_not_exist).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any

from router.domain import Clarify, Degraded, Grants, Principal, Purpose, Question, Receipt, Table
from router.draft import Similarity, draft
from router.execute import Watch
from router.filters import digest
from router.line import Evidence, Line
from router.policy import PolicySet
from router.sql.vocabulary import Vocabulary, build_vocabulary, vocabulary_key


def query_tables(
    line: Line,
    policies: PolicySet,
    principal: Principal,
    grants: Grants,
    question: Question,
    decision_id: str,
    watch: Watch,
    found: Evidence,
) -> None:
    """Fills `found` with a table and its receipts, or with what to ask back. Raises `Refused` and `SourceError`."""
    if policies.catalog is None or not grants.query:
        return
    today = question.now.date()

    def run(text: str) -> Table:
        return line.tables().run_governed(text, grants.query, **_options(line, principal, today, watch), compiled=True)

    vocabulary = watch.stage("vocabulary", lambda: _vocabulary(line, policies, principal, grants, run, found))
    purpose = Purpose(principal.name, "embed_question", frozenset(), decision_id)
    drafted = watch.stage("draft", lambda: draft(question.text, vocabulary, today, _similarity(line, purpose)))
    if isinstance(drafted, Clarify):
        watch.note(note="asked back")
        found.clarify = drafted
        return
    watch.note(note=drafted.origin)
    found.reads = drafted.reads
    read = [grant for grant in grants.query if grant.name in drafted.reads]
    found.policies |= {policy for grant in read for policy in grant.policies}
    found.filters += tuple(
        Receipt(f"sql:{grant.name}", digest(grant.filter, key=line.key, tenant=principal.tenant, source=grant.name))
        for grant in read
    )
    table = watch.stage("rows", lambda: run(drafted.sql))
    watch.note(count_out=len(table.rows))
    found.tables = (replace(table, origin=drafted.origin, reading=drafted.reading),)


def _options(line: Line, principal: Principal, today: date, watch: Watch) -> dict[str, Any]:
    return {"tenant": principal.tenant, "today": today, "limits": line.limits, "deadline_s": watch.left_s()}


def _vocabulary(
    line: Line, policies: PolicySet, principal: Principal, grants: Grants, run: Callable[[str], Table], found: Evidence
) -> Vocabulary:
    """Kept per policy version, grant and snapshot; one that misses values is used once."""
    catalog = policies.catalog
    assert catalog is not None
    version = found.data_versions["tables"] = line.tables_version()
    key = vocabulary_key(policies.version, principal.tenant, version, grants.query)
    open_values = frozenset(
        (facts.name.lower(), column.name.lower())
        for facts in policies.datasets.values()
        for column in facts.columns
        if column.values != "no"
    )
    built: Vocabulary = line.vocabularies.get(
        key, lambda: build_vocabulary(catalog, grants.query, policies.tools, open_values, run)
    )
    if built.missing:
        line.vocabularies.drop(key)
        found.degraded.append(Degraded("vocabulary", f"stored values of {', '.join(built.missing)} could not be read just now"))
    return built


def _similarity(line: Line, purpose: Purpose) -> Similarity:
    """Cosines of a text with others, under the line's own embedder. The others are examples of tools: each is embedded once."""

    def embedded(text: str) -> bytes:
        return line.embedder.embed_question(text, purpose).vector

    def similar(text: str, others: tuple[str, ...]) -> list[float]:
        import numpy as np

        own = np.frombuffer(embedded(text), np.float32)
        vectors = (line.examples.get(other, partial(embedded, other)) for other in others)
        return [float(own @ np.frombuffer(vector, np.float32)) for vector in vectors]

    return similar
