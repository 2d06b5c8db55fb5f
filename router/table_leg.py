"""The leg over tables: what the caller's words may stand for, a draft, and its rows through the gate.

INVARIANT: a draft, whoever made it, is untrusted text: it meets the gate like any other (tests/unit/test_table_leg.py).
INVARIANT: what is asked back names granted things only (…::test_a_hidden_name_reads_like_one_that_does_not_exist).
INVARIANT: a model is shown granted things only, through `egress`, and nothing that it says or fails in raises
(tests/unit/test_table_leg_model.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from router.domain import Clarify, Degraded, Grants, Principal, Purpose, Question, Receipt, Table, TableGrant, Verdict
from router.draft import Draft, Similarity, draft, tell
from router.errors import Refused
from router.execute import Watch
from router.filters import digest
from router.line import Evidence, Line
from router.policy import PolicySet
from router.ports import HostedModel
from router.sql.draft import Undrafted, draft_by_model
from router.sql.vocabulary import Vocabulary, build_vocabulary, vocabulary_key


@dataclass(frozen=True, slots=True)
class _Asking:
    """One question on this leg. `ran` holds rows of texts that were run while they were judged."""

    line: Line
    policies: PolicySet
    principal: Principal
    query: tuple[TableGrant, ...]
    question: Question
    decision_id: str
    watch: Watch
    found: Evidence
    ran: dict[str, Table] = field(default_factory=dict)

    def run(self, text: str, *, compiled: bool = True) -> Table:
        return self.line.tables().run_governed(
            text,
            self.query,
            tenant=self.principal.tenant,
            today=self.question.now.date(),
            limits=self.line.limits,
            deadline_s=self.watch.left_s(),
            compiled=compiled,
        )

    def judge(self, text: str, compiled: bool) -> Verdict:
        """The gate, and the engine, which alone knows of some mistakes; nothing but a code comes of either."""
        try:
            self.ran[text] = self.run(text, compiled=compiled)
        except Refused as refused:
            return Verdict(refused.code, refused.message)
        return self.line.tables().check(
            text,
            self.query,
            tenant=self.principal.tenant,
            today=self.question.now.date(),
            limits=self.line.limits,
            deadline_s=self.watch.left_s(),
            compiled=compiled,
        )


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
    asking = _Asking(line, policies, principal, grants.query, question, decision_id, watch, found)
    vocabulary = watch.stage("vocabulary", lambda: _vocabulary(asking))
    drafted = watch.stage("draft", lambda: draft(question.text, vocabulary, question.now.date(), _similarity(asking)))
    watch.note(note="asked back" if isinstance(drafted, Clarify) else drafted.origin)
    if isinstance(drafted, Clarify):
        drafted = _by_model(asking, vocabulary) or drafted
    if isinstance(drafted, Clarify):
        found.clarify = drafted
        return
    _receive(asking, drafted)
    table = asking.ran.get(drafted.sql) or watch.stage("rows", partial(asking.run, drafted.sql))
    watch.note(count_out=len(table.rows))
    found.tables = (replace(table, origin=drafted.origin, reading=drafted.reading),)


def _receive(asking: _Asking, drafted: Draft) -> None:
    """Which datasets are read, under which filters, by whose word."""
    found = asking.found
    read = [grant for grant in asking.query if grant.name in drafted.reads]
    found.reads = drafted.reads
    found.policies |= {policy for grant in read for policy in grant.policies}
    key, tenant = asking.line.key, asking.principal.tenant
    found.filters += tuple(
        Receipt(f"sql:{grant.name}", digest(grant.filter, key=key, tenant=tenant, source=grant.name)) for grant in read
    )


def _vocabulary(asking: _Asking) -> Vocabulary:
    """Kept per policy version, grant and snapshot; one that misses values is used once."""
    line, policies, found = asking.line, asking.policies, asking.found
    catalog = policies.catalog
    assert catalog is not None
    version = found.data_versions["tables"] = line.tables_version()
    key = vocabulary_key(policies.version, asking.principal.tenant, version, asking.query)
    open_values = frozenset(
        (facts.name.lower(), column.name.lower())
        for facts in policies.datasets.values()
        for column in facts.columns
        if column.values != "no"
    )

    def build() -> Vocabulary:
        return build_vocabulary(catalog, asking.query, policies.tools, open_values, asking.run)

    built: Vocabulary = line.vocabularies.get(key, build)
    if built.missing:
        line.vocabularies.drop(key)
        found.degraded.append(Degraded("vocabulary", f"stored values of {', '.join(built.missing)} could not be read just now"))
    return built


def _similarity(asking: _Asking) -> Similarity:
    """Cosines of a text with others, under the line's own embedder. The others are examples of tools: each is embedded once."""
    line = asking.line
    purpose = Purpose(asking.principal.name, "embed_question", frozenset(), asking.decision_id)

    def embedded(text: str) -> bytes:
        return line.embedder.embed_question(text, purpose).vector

    def similar(text: str, others: tuple[str, ...]) -> list[float]:
        import numpy as np

        own = np.frombuffer(embedded(text), np.float32)
        vectors = (line.examples.get(other, partial(embedded, other)) for other in others)
        return [float(own @ np.frombuffer(vector, np.float32)) for vector in vectors]

    return similar


def _by_model(asking: _Asking, vocabulary: Vocabulary) -> Draft | None:
    """What a hosted model makes of the question, where one is named and the policies let the question go to it."""
    hosted = asking.line.model()
    if hosted is None or asking.found.egress is None:
        return None
    drafted = asking.watch.stage("model", lambda: _ask_model(asking, vocabulary, hosted))
    if isinstance(drafted, Undrafted):
        asking.watch.note(note=drafted.code)
        asking.found.degraded.append(Degraded("model", f"{drafted.code}: {drafted.message}"))
        return None
    return drafted


def _ask_model(asking: _Asking, vocabulary: Vocabulary, hosted: HostedModel) -> Draft | Undrafted:
    assert asking.found.egress is not None
    sensitivity = asking.policies.question_class(asking.principal.tenant)
    drafted = draft_by_model(
        asking.question.text,
        vocabulary.catalog,
        vocabulary.values,
        asking.found.egress.model(hosted),
        asking.judge,
        asking.watch.left_s,
        purpose=Purpose(asking.principal.name, "draft_sql", frozenset({sensitivity}), asking.decision_id),
        today=asking.question.now.date(),
        min_group=vocabulary.min_group,
    )
    if isinstance(drafted, Undrafted):
        return drafted
    reading = drafted.reading if drafted.form is None else tell(drafted.form)
    return Draft("model", drafted.sql, reading, drafted.reads)
