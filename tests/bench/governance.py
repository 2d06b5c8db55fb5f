"""What governance of one question costs over the calls it cannot avoid, at 60 policies and five sources.

The product is the unchanged line, `router.ask.ask`, over a store that answers at once: identity, the record "asked", grants,
plan, receipts, recheck of ten passages, the record "answered" and its log line. The bare calls: one signature check by
PyJWT, one partial evaluation of the whole set, one batched authorisation of ten documents, with everything prepared.
The ledger writes both records, without fsync here (`synchronous = OFF`, set on its connections by this bench and nowhere
else); what fsync adds, with one asker and with sixteen, is a figure of its own.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cedarpy
import jwt
import sqlalchemy as sa

from connectors.oidc import load_development_key
from router.app import Router
from router.ask import ask
from router.config import SearchSettings
from router.domain import Candidate, Found, Labels, ModelCard, Principal, Question, Record, Stored
from router.policy.decide import PolicySet, principal_id, to_day_ms
from tests.bench import worlds
from tests.bench.measure import Figure, run_pairs

COLD_BAR, MEMOISED_BAR = 2.5, 1.3
PAIRS = 200
ASKERS, ROUNDS = 16, 40
CARD = ModelCard("none", "0" * 64, 384, 64, 256)


def run(folder: Path) -> Iterator[Figure]:
    with worlds.open_world(folder / "world") as router:
        token = router.mint("usual", minutes=600)
        policies, principal = router.policies.current(), router.whoami(token)
        stored = _passages(policies, principal)
        line = dataclasses.replace(
            router.line,
            store=_Ready(stored),  # type: ignore[arg-type]
            search=SearchSettings(
                legs="lexical", rerank_by="none", strategy="simple", relevance="off", narrowing="off", versions="all"
            ),
        )
        question = Question("what does ERR-4012 mean", datetime.now(UTC), 10, 10.0, route="documents")
        bare = _bare_calls(router, policies, principal, token, question, stored)
        _without_fsync(router)

        def product(_: int) -> None:
            assert len(ask(line, token, question).passages) == 10

        def cold(at: int) -> None:
            _forget(policies)
            product(at)

        pairs = run_pairs(product, lambda _: bare(), PAIRS, warm=10)
        yield pairs.figure(
            "governance memoised", "the line over an instant store : signature + partial + batch of 10", MEMOISED_BAR
        )
        pairs = run_pairs(cold, lambda _: bare(), PAIRS, warm=10)
        yield pairs.figure("governance cold", "the same, grants compiled anew", COLD_BAR)
    yield from _fsync(folder)


class _Ready:
    """A store that holds ten passages and costs nothing."""

    def __init__(self, stored: list[Stored]) -> None:
        self._stored = stored
        hits = [
            Candidate(item.chunk.chunk_id, item.chunk.document_id, item.chunk.source, 10.0 - at, 0.0, ("lexical",))
            for at, item in enumerate(stored)
        ]
        self._found = Found(tuple(hits), 200)

    def search(self, _: Any) -> Found:
        return self._found

    def load(self, *_: Any, **__: Any) -> list[Stored]:
        return self._stored

    def version(self, _: str, **__: object) -> str:
        return "g-000001.1"


def _passages(policies: PolicySet, principal: Principal) -> list[Stored]:
    """Ten passages with ten different labels that this person may read."""
    found: list[Stored] = []
    for source, labels in {str(item): item for item in worlds.build_corpus().labels}.values():
        if policies.recheck(principal, datetime.now(UTC), [(source, "x", labels)])[0]:
            chunk = worlds._chunk(f"{source}/{len(found):06d}", source, 0, "text")
            found.append(Stored(chunk, labels, b"", b"", 1.0))
    assert len(found) >= 10
    return found[:10]


def _bare_calls(
    router: Router, policies: PolicySet, principal: Principal, token: str, question: Question, stored: list[Stored]
) -> Callable[[], None]:
    """The three calls with everything they need prepared beforehand."""
    issuer = policies.issuers["dev"]
    key = load_development_key(router.development_key).public_key()
    engine, context = policies.engine, {"now": to_day_ms(question.now)}
    me = policies._principal_entities(principal)
    request = {
        "principal": f'Pointsman::User::"{principal_id(principal)}"',
        "action": 'Pointsman::Action::"search"',
        "context": context,
    }
    documents = [_entity(at, item.chunk.source, item.labels) for at, item in enumerate(stored)]
    entities = me.with_added_json_str(json.dumps(documents), engine.schema)
    who, what = {"type": "Pointsman::User", "id": principal_id(principal)}, {"type": "Pointsman::Action", "id": "search"}
    requests = [{"principal": who, "action": what, "resource": item["uid"], "context": context} for item in documents]

    def bare() -> None:
        jwt.decode(token, key, algorithms=["EdDSA"], audience=issuer.audiences[0], issuer=issuer.iss)
        cedarpy.is_authorized_partial(request, engine.policies, me, engine.schema)
        results = cedarpy.is_authorized_batch(requests, engine.policies, entities, engine.schema)
        assert all(result.allowed for result in results)

    return bare


def _entity(at: int, source: str, labels: Labels) -> dict[str, Any]:
    plain = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in labels.items()}
    parents = [{"type": "Pointsman::Source", "id": source}]
    return {"uid": {"type": "Pointsman::Document", "id": f"{at:032x}"}, "attrs": plain, "parents": parents}


def _forget(policies: PolicySet) -> None:
    policies.engine.granted._held.clear()
    policies.engine.entities._held.clear()
    policies.engine.granted.weight = policies.engine.entities.weight = 0


def _without_fsync(router: Router) -> None:
    engine = router.ledger._engine
    sa.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    router.ledger._drop_writer()
    engine.dispose()


# --- fsync apart ------------------------------------------------------------------------------------------------------


def _fsync(folder: Path) -> Iterator[Figure]:
    from connectors.ledger import SqlLedger

    record = Record("bench", "d-1", "asked", 1, b"x" * 700, b"y" * 400, b"z" * 32)
    ledger = SqlLedger(folder / "fsync.sqlite")
    other = bare_ledger(folder / "bare.sqlite")
    pairs = run_pairs(lambda _: ledger.append([record]), lambda _: bare_append(other, record), PAIRS, warm=10)
    yield pairs.figure("ledger fsync, 1 asker", "one durable record : the same two inserts and fsync by hand", None)
    alone_ms = statistics.median(pairs.product) / 1e6
    commits = ledger.commits
    each_ms = statistics.median(_crowd(ledger, record) for _ in range(5))
    shared = 5 * ASKERS * ROUNDS / (ledger.commits - commits)
    note = f"{shared:.1f} records a commit"
    yield Figure(
        "ledger fsync, 16 askers", "ms a durable record, sixteen threads : one", round(each_ms / alone_ms, 3), 0.0, 0.0, None,
        False, round(each_ms, 4), round(alone_ms, 4), 5, note=note,
    )  # fmt: skip
    ledger.close()
    other.close()


def _crowd(ledger: Any, record: Record) -> float:
    """Milliseconds of the wall a record, sixteen threads appending."""
    threads = [threading.Thread(target=lambda: [ledger.append([record]) for _ in range(ROUNDS)]) for _ in range(ASKERS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - start) * 1e3 / (ASKERS * ROUNDS)


def bare_ledger(path: Path) -> sqlite3.Connection:
    """Two tables with the ledger's columns, indices and durability."""
    con = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    for pragma in ("synchronous=FULL", "secure_delete=ON", "temp_store=MEMORY", "journal_mode=TRUNCATE"):
        con.execute(f"PRAGMA {pragma}").fetchall()
    con.execute(
        "CREATE TABLE records(tenant TEXT, seq BIGINT, previous TEXT, digest TEXT, decision_id TEXT, kind TEXT, at_us BIGINT, "
        "body BLOB, PRIMARY KEY(tenant, seq))"
    )
    con.execute("CREATE INDEX by_id ON records(tenant, decision_id)")
    con.execute("CREATE INDEX by_time ON records(tenant, at_us)")
    con.execute("CREATE TABLE inputs(tenant TEXT, seq BIGINT, salt BLOB, inputs BLOB, PRIMARY KEY(tenant, seq)) WITHOUT ROWID")
    con.execute("CREATE TABLE at(n)")
    return con


def bare_append(con: sqlite3.Connection, record: Record) -> None:
    """One record and its inputs, durable when it returns; no chain, no digest."""
    con.execute("BEGIN IMMEDIATE")
    last = con.execute("SELECT coalesce(max(seq), 0) FROM records WHERE tenant = ?", (record.tenant,)).fetchone()[0]
    row = (record.tenant, last + 1, "0" * 64, "0" * 64, record.decision_id, record.kind, record.at_us, record.body)
    con.execute("INSERT INTO records VALUES(?, ?, ?, ?, ?, ?, ?, ?)", row)
    if record.inputs is not None:
        con.execute("INSERT INTO inputs VALUES(?, ?, ?, ?)", (record.tenant, last + 1, record.salt, record.inputs))
    con.execute("COMMIT")
