"""The leg over tables: what the caller's words may stand for, a draft, and its rows through the gate.

INVARIANT: a draft, whoever made it, is untrusted text: it meets the gate like any other (tests/unit/test_table_leg.py).
INVARIANT: what is asked back names granted things only (…::test_a_hidden_name_reads_like_one_that_does_not_exist).
INVARIANT: a model is shown granted things only, through `egress`, and nothing that it says or fails in raises
(tests/unit/test_table_leg_model.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from router.catalog import Catalog
from router.domain import Clarify, Degraded, Embedded, Purpose, Receipt, Table, Verdict
from router.draft import Draft, draft, small_groups, tell
from router.egress import RemoteModel
from router.errors import Refused, SourceError
from router.filters import digest
from router.lexicon import identifiers
from router.line import Asking
from router.routing.follow_up import FIELD, KindOf
from router.routing.gates import Gate, NamedThings, build_named, exact_hits, gate_rows, gate_rows_by_words
from router.sql.draft import Undrafted, draft_by_model
from router.sql.tools import match_tools
from router.sql.vocabulary import Vocabulary, build_vocabulary, vocabulary_key

MISSING_S = 5.0
"""How long a vocabulary that misses stored values is used before it is built again: on a busy machine each question would build it
anew."""
LEAST_LEFT, LEAST_LEFT_S = 0.25, 2.0
"""The share of a deadline, and the seconds, that must be left for what was missing to count as the engine's fault and not as the
deadline's."""


@dataclass(frozen=True, slots=True)
class _Running:
    """Runs texts for one question. `ran` holds rows of texts that were run while they were judged."""

    asking: Asking
    ran: dict[str, Table] = field(default_factory=dict)

    def run(self, text: str) -> Table:
        return self.asking.line.tables().run_governed(text, self.asking.grants.query, compiled=True, **self._options())

    def judge(self, text: str, compiled: bool) -> Verdict:
        """The gate, and the engine, which alone knows of some mistakes; nothing but a code comes of either."""
        told: list[Verdict] = []
        options = {"compiled": compiled, "judged": told.append, **self._options()}
        try:
            self.ran[text] = self.asking.line.tables().run_governed(text, self.asking.grants.query, **options)
        except Refused as refused:
            return Verdict(refused.code, refused.message)
        return told[0]

    def _options(self) -> dict[str, Any]:
        asking = self.asking
        return {
            "tenant": asking.principal.tenant,
            "today": asking.question.now.date(),
            "limits": asking.line.limits,
            "deadline_s": asking.watch.left_s(),
        }


@dataclass(frozen=True, slots=True)
class _Known:
    """What the gate of this leg knows of one vocabulary: names with their vectors, and stored values in lower case."""

    named: NamedThings
    values: frozenset[str]


def gate_tables(asking: Asking, embedded: Embedded | None) -> Gate:
    """Whether what is granted of the tables can hold the answer. A stored value that is named, or a tool, settles it. Without an
    embedding the words alone say."""
    vocabulary = asking.watch.stage("vocabulary", lambda: _vocabulary(asking))
    text = asking.question.text

    def told_by(values: frozenset[str]) -> tuple[str, ...]:
        tool = match_tools(text, vocabulary.tools, asking.question.now.date(), None)
        return (
            *exact_hits(text, values, identifiers(text)),
            *((f"`{tool.tool.name}` answers this",) if tool is not None else ()),
        )

    def judge() -> Gate:
        if embedded is None:
            values = frozenset(value.lower() for one in vocabulary.values for value in one.values)
            return gate_rows_by_words(text, vocabulary.index.catalog, told_by(values))
        known: _Known = asking.line.vocabularies.get(
            (_vocabulary_key(asking), "known", vocabulary.built_s), lambda: _known(vocabulary, partial(_embed, asking))
        )
        return gate_rows(text, embedded.vector, known.named, told_by(known.values))

    return asking.watch.stage("gate", judge)


def kinds_of_words(asking: Asking) -> KindOf:
    """Stored values that are open to the caller by the field they stand in, and names of fields. A word that stands in two fields
    of different names is neither."""
    vocabulary = asking.watch.stage("vocabulary", lambda: _vocabulary(asking))

    def build() -> dict[str, str]:
        kinds: dict[str, str] = {}
        for one in vocabulary.values:
            for value in one.values:
                told = kinds.setdefault(value.lower(), f"{one.dataset}.{one.field}")
                if told.rpartition(".")[2] != one.field:
                    kinds[value.lower()] = ""
        for dataset in vocabulary.catalog.datasets:
            for one_field in dataset.fields:
                for name in (one_field.name.replace("_", " "), *one_field.synonyms):
                    kinds[name.lower()] = FIELD
        return kinds

    kinds: dict[str, str] = asking.line.vocabularies.get((_vocabulary_key(asking), "kinds", vocabulary.built_s), build)
    return lambda words: kinds.get(words) or None


def _known(vocabulary: Vocabulary, embed: Callable[[str], bytes]) -> _Known:
    values = frozenset(value.lower() for one in vocabulary.values for value in one.values)
    return _Known(build_named(vocabulary.index.catalog, embed), values)


def reads_rows(asking: Asking) -> bool:
    """Whether a tool or the planner reads the question as it stands, by the caller's own words; nothing is run."""
    vocabulary = asking.watch.stage("vocabulary", lambda: _vocabulary(asking))
    similar = partial(_similar, asking, None)
    text, today = asking.question.text, asking.question.now.date()
    drafted = asking.watch.stage("draft", lambda: draft(text, vocabulary, today, similar))
    asking.watch.note(note="asked back" if isinstance(drafted, Clarify) else drafted[0].origin)
    return not isinstance(drafted, Clarify)


def granted_catalog(asking: Asking) -> Catalog:
    """The part of the catalogue that exists for the caller, masked columns left out."""
    return asking.watch.stage("vocabulary", lambda: _vocabulary(asking)).catalog


def query_tables(asking: Asking, embedded: Embedded | None) -> None:
    """Fills the findings with a table and its receipts, or with what to ask back. Raises `Refused` and `SourceError`."""
    if asking.policies.catalog is None or not asking.grants.query:
        return
    question, watch, found = asking.question, asking.watch, asking.found
    running = _Running(asking)
    vocabulary = watch.stage("vocabulary", lambda: _vocabulary(asking))
    similar = partial(_similar, asking, embedded)
    drafted = watch.stage("draft", lambda: draft(question.text, vocabulary, question.now.date(), similar))
    watch.note(note="asked back" if isinstance(drafted, Clarify) else drafted[0].origin)
    if isinstance(drafted, Clarify):
        drafted = _by_model(running, vocabulary) or drafted
    if isinstance(drafted, Clarify):
        found.clarify = drafted
        return
    _receive(asking, drafted)
    for one in drafted:
        table = running.ran.get(one.sql) or watch.stage("rows", partial(running.run, one.sql))
        watch.note(count_out=len(table.rows))
        found.tables += (replace(table, origin=one.origin, reading=one.reading, why=one.why),)


def _receive(asking: Asking, drafted: tuple[Draft, ...]) -> None:
    """Which datasets are read, under which filters, by whose word."""
    found = asking.found
    reads = {name for one in drafted for name in one.reads}
    read = [grant for grant in asking.grants.query if grant.name in reads]
    found.reads = tuple(sorted(reads))
    found.policies |= {policy for grant in read for policy in grant.policies}
    key, tenant = asking.line.key, asking.principal.tenant
    found.filters += tuple(
        Receipt(f"sql:{grant.name}", digest(grant.filter, key=key, tenant=tenant, source=grant.name)) for grant in read
    )


def _vocabulary_key(asking: Asking) -> Hashable:
    version = asking.found.data_versions["tables"] = asking.line.tables_version()
    return vocabulary_key(asking.policies.version, asking.principal.tenant, version, asking.grants.query)


def _vocabulary(asking: Asking) -> Vocabulary:
    """Kept per policy version, grant and snapshot; one that misses values is soon built again."""
    line, policies, found = asking.line, asking.policies, asking.found
    catalog = policies.catalog
    assert catalog is not None
    key = _vocabulary_key(asking)
    open_values = frozenset(
        (facts.name.lower(), column.name.lower())
        for facts in policies.datasets.values()
        for column in facts.columns
        if column.values != "no"
    )

    def build() -> Vocabulary:
        return build_vocabulary(catalog, asking.grants.query, policies.tools, open_values, _Running(asking).run)

    built: Vocabulary = line.vocabularies.get(key, build)
    if built.missing and time.monotonic() - built.built_s > MISSING_S:
        line.vocabularies.drop(key)
        built = line.vocabularies.get(key, build)
    if built.missing:
        if asking.watch.left_s() < max(LEAST_LEFT_S, LEAST_LEFT * asking.question.deadline_s):
            line.vocabularies.drop(key)  # what this caller had no time for is not missing for others
        missing = Degraded("vocabulary", f"stored values of {', '.join(built.missing)} could not be read just now")
        if missing not in found.degraded:
            found.degraded.append(missing)
    return built


def _embed(asking: Asking, text: str) -> bytes:
    purpose = Purpose(asking.principal.name, "embed_question", frozenset(), asking.decision_id)
    return asking.line.embedder.embed_question(text, purpose).vector


def _similar(asking: Asking, embedded: Embedded | None, text: str, others: tuple[str, ...]) -> list[float]:
    """Cosines of a text with examples of tools; each example is embedded once. `text` is the question with values masked. What the
    embedder fails in is said here, and raised: the words then decide alone."""
    import numpy as np

    try:
        vector = _embed(asking, text) if embedded is None or text != asking.question.text else embedded.vector
        own = np.frombuffer(vector, np.float32)
        vectors = [asking.line.examples.get(other, partial(_embed, asking, other)) for other in others]
    except Exception as error:
        asking.found.degraded.append(Degraded("embed", f"{type(error).__name__}: query tools were told apart by words alone"))
        raise
    return [float(own @ np.frombuffer(one, np.float32)) for one in vectors]


def _by_model(running: _Running, vocabulary: Vocabulary) -> tuple[Draft, ...] | None:
    """What a hosted model makes of the question, where one is named and the policies let the question go to it."""
    asking = running.asking
    remote = asking.line.model()
    if remote is None or asking.found.egress is None:
        return None
    try:
        drafted: Draft | Undrafted = asking.watch.stage(
            "model", lambda: asking.line.threads.within(asking.watch.left_s(), lambda: _ask_model(running, vocabulary, remote))
        )
    except SourceError as error:  # the call outlived the deadline; what it sends from now on is stopped by the sealed egress
        drafted = Undrafted(error.code, error.message)
    if isinstance(drafted, Undrafted):
        asking.watch.note(note=drafted.code)
        asking.found.degraded.append(Degraded("model", f"{drafted.code}: {drafted.message}"))
        return None
    return (drafted,)


def _ask_model(running: _Running, vocabulary: Vocabulary, remote: RemoteModel) -> Draft | Undrafted:
    asking = running.asking
    assert asking.found.egress is not None
    drafted = draft_by_model(
        asking.question.text,
        vocabulary.catalog,
        vocabulary.values,
        asking.found.egress.model(remote),
        running.judge,
        asking.watch.left_s,
        purpose=Purpose(asking.principal.name, "draft_sql", asking.text_classes, asking.decision_id),
        today=asking.question.now.date(),
        min_group=vocabulary.min_group,
    )
    if isinstance(drafted, Undrafted):
        return drafted
    reading = drafted.reading if drafted.form is None else tell(drafted.form)
    return Draft("model", drafted.sql, reading + small_groups(drafted.reads, vocabulary), drafted.reads, ("model",))
