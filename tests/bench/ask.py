"""`ask` on 10,000 chunks over the sum of its raw parts, measured in turns in the same run; grants are memoised.

The raw parts, each by hand and with everything prepared: one session run of the embedder on prepared ids, the store's own
search and load statements, the matrix products of the rerank, one signature check, one batched authorisation of the passages
that leave, and two commits with fsync of a record of that size.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import cedarpy
import jwt
import numpy as np

from connectors.local_models import MAX_TOKENS
from connectors.oidc import load_development_key
from router.app import Router
from router.domain import Passage, Record
from router.lexicon import apart
from router.policy.decide import principal_id, to_day_ms
from tests.bench import worlds
from tests.bench.governance import bare_append, bare_ledger
from tests.bench.measure import Figure, run_pairs
from tests.bench.search import Trace, bare_connection, traced

BAR = 1.3
CHUNKS, TOKENS = 10_000, 80
QUESTIONS, PAIRS, K = 20, 200, 5


def run(folder: Path) -> Iterator[Figure]:
    settings = worlds.write_world(folder / "world")
    # words that mean nothing hold no answer, and nothing here was replaced
    search = settings.search.model_copy(update={"relevance": "off", "versions": "all"})
    with Router(settings.model_copy(update={"search": search})) as router:
        corpus = worlds.build_corpus()
        worlds.fill_store(router.store, corpus, CHUNKS, model=router.embedder.card, tokens=TOKENS)
        for person in ("narrow", "usual"):
            yield _figure(router, corpus, person, folder)


def _figure(router: Router, corpus: worlds.Corpus, person: str, folder: Path) -> Figure:
    token = router.mint(person, minutes=600)
    questions = worlds.build_questions(corpus, QUESTIONS)
    router.store.close()  # so that the trace sees a connection from its opening
    with traced() as trace:
        router.ask(questions[0], token=token, k=K, route="documents")
        con, ledger = bare_connection(trace), bare_ledger(folder / f"bare-{person}.sqlite")
        parts = [_RawParts(router, token, question, trace, con, ledger) for question in questions]

    def product(at: int) -> None:
        assert router.ask(questions[at % QUESTIONS], token=token, k=K, route="documents").passages

    pairs = run_pairs(product, lambda at: parts[at % QUESTIONS].run(), PAIRS, warm=QUESTIONS)
    stages: dict[str, list[int]] = {}
    for question in questions:
        for stage in router.ask(question, token=token, k=K, route="documents").stages:
            stages.setdefault(stage.name, []).append(stage.us)
    note = ", ".join(f"{name} {statistics.median(us) / 1000:.2f}" for name, us in stages.items())
    return pairs.figure(f"ask 10k, {person}", "router.ask : the sum of its raw parts", BAR, note=f"stages in ms: {note}")


class _RawParts:
    """What one question cannot do without, prepared."""

    def __init__(
        self, router: Router, token: str, question: str, trace: Trace, con: apsw.Connection, ledger: sqlite3.Connection
    ) -> None:
        trace.statements.clear()
        answer = router.ask(question, token=token, k=K, route="documents")
        long = sorted(trace.statements, key=lambda call: len(call[0]))[-2:]
        self._calls = sorted(long, key=trace.statements.index)
        self._con, self._ledger = con, ledger
        self._record = Record("bench", "d-1", "asked", 1, b"x" * 900, b"y" * 400, b"z" * 32)
        self._embedding = _embedding(router, question)
        self._signature = _signature(router, token)
        self._batch = _batch(router, token, answer.passages)
        self._products = _products(router, question, self._con.execute(*self._calls[1]).fetchall())

    def run(self) -> None:
        self._signature()
        bare_append(self._ledger, self._record)
        self._embedding()
        for call in self._calls:
            self._con.execute(*call).fetchall()
        self._products()
        self._batch()
        bare_append(self._ledger, self._record)


def _embedding(router: Router, question: str) -> Callable[[], Any]:
    model = router.embedder
    ids = np.array([model._words.encode(apart(question), MAX_TOKENS)], dtype=np.int64)
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    names = ["sentence_embedding", "last_hidden_state"]
    return lambda: model._session.run(names, feed)


def _signature(router: Router, token: str) -> Callable[[], Any]:
    issuer = router.policies.current().issuers["dev"]
    key = load_development_key(router.development_key).public_key()
    return lambda: jwt.decode(token, key, algorithms=["EdDSA"], audience=issuer.audiences[0], issuer=issuer.iss)


def _batch(router: Router, token: str, passages: tuple[Passage, ...]) -> Callable[[], Any]:
    policies, principal = router.policies.current(), router.whoami(token)
    engine, context = policies.engine, {"now": to_day_ms(datetime.now(UTC))}
    labels = {document_id: (source, given) for source, document_id, given in router.store.labelled(worlds.TENANT)}
    documents = []
    for at, passage in enumerate(passages):
        source, given = labels[passage.document_id]
        plain = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in given.items()}
        uid = {"type": "Pointsman::Document", "id": f"{at:032x}"}
        documents.append({"uid": uid, "attrs": plain, "parents": [{"type": "Pointsman::Source", "id": source}]})
    entities = policies._principal_entities(principal).with_added_json_str(json.dumps(documents), engine.schema)
    who = {"type": "Pointsman::User", "id": principal_id(principal)}
    what = {"type": "Pointsman::Action", "id": "search"}
    requests = [{"principal": who, "action": what, "resource": item["uid"], "context": context} for item in documents]
    return lambda: cedarpy.is_authorized_batch(requests, engine.policies, entities, engine.schema)


def _products(router: Router, question: str, rows: list[tuple[Any, ...]]) -> Callable[[], Any]:
    """Similarities of every question token with every stored token, the best a passage, and the word-piece matches."""
    from router.domain import Purpose
    from router.matrix import multiply

    asked = router.embedder.embed_question(question, Purpose("bench", "embed_question", frozenset(), "d-0"))
    blobs = [[value for value in row if isinstance(value, bytes)] for row in rows]
    ids = np.frombuffer(b"".join(ids for ids, _ in blobs), "<u2")
    tokens = np.frombuffer(b"".join(vectors for _, vectors in blobs), np.int8).reshape(len(ids), -1)
    mine = np.frombuffer(asked.token_ids, "<u2")
    directions = np.frombuffer(asked.token_vectors, np.int8).reshape(len(mine), -1).T.astype(np.float32)
    starts = np.concatenate(([0], np.cumsum([len(ids) // 2 for ids, _ in blobs])[:-1]))

    def products() -> None:
        np.maximum.reduceat(multiply(tokens, directions), starts, axis=0)
        np.logical_or.reduceat(mine[:, None] == ids[None, :], starts, axis=1).sum(axis=1)

    return products
