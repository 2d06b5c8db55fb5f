"""Hybrid search through the port over the same SQL run by hand, under a filter that admits 2 %, at 10,000 and 100,000 chunks.

The statement is the one the store really runs: it is taken from the connection by a trace, then run on a bare connection
with its values bound and its rows fetched, and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from connectors.sqlite_documents import SqliteDocuments
from router.domain import SOURCE_FIELD, Labels, ModelCard, Search
from router.filters import EntityType, Eq, Filter, Overlaps, all_of, any_of, compile_filter, matches
from router.plan import with_source
from tests.bench import worlds
from tests.bench.measure import Figure, run_pairs

BAR = 1.15
SIZES = (10_000, 100_000)
QUESTIONS, PAIRS = 40, 400
SHARE = 0.02
CARD = ModelCard("synthetic", "0" * 64, worlds.DIMENSIONS, worlds.TOKEN_DIMENSIONS, 256)


def run(folder: Path) -> Iterator[Figure]:
    with worlds.open_world(folder / "world") as router:
        entity = router.policies.current().document_type
    corpus = worlds.build_corpus()
    for size in SIZES:
        store = SqliteDocuments(folder / f"store-{size}", lambda: entity)
        worlds.fill_store(store, corpus, size, model=CARD, tokens=4)
        yield _figure(store, corpus, entity, size)
        store.close()


def _figure(store: SqliteDocuments, corpus: worlds.Corpus, entity: EntityType, size: int) -> Figure:
    f = narrow_filter(corpus, entity)
    texts, vectors = worlds.build_questions(corpus, QUESTIONS), worlds.build_vectors(corpus, QUESTIONS)
    searches = [Search(worlds.TENANT, f, text, vector, CARD.id, 50, 60.0) for text, vector in zip(texts, vectors, strict=True)]
    with traced() as trace:
        admitted = store.search(searches[0]).admitted
        calls = []
        for search in searches:
            trace.statements.clear()
            store.search(search)
            calls.append(max(trace.statements, key=lambda call: len(call[0])))
    bare = bare_connection(trace)
    pairs = run_pairs(
        lambda at: store.search(searches[at % QUESTIONS]),
        lambda at: bare.execute(*calls[at % QUESTIONS]).fetchall(),
        PAIRS,
        warm=40,
    )
    bare.close()
    note = f"{admitted} chunks admitted ({100 * admitted / size:.1f} %)"
    return pairs.figure(f"search {size // 1000}k, 2 %", "store.search : its SQL by hand", BAR, note=note)


def narrow_filter(corpus: worlds.Corpus, entity: EntityType) -> Filter:
    """Tenant, up to twenty groups and a class, so that about 2 % of the labels pass."""
    full = with_source(entity)

    def build(groups: frozenset[str]) -> Filter:
        wanted = (Eq("tenant", worlds.TENANT), Overlaps("groups", groups), any_of([Eq("sensitivity", at) for at in range(3)]))
        return compile_filter(all_of(wanted), full)

    chosen: frozenset[str] = frozenset()
    for at in range(worlds.GROUPS - 1, 0, -1):
        more = chosen | {f"dev:g{at:03d}"}
        share = sum(matches(build(more), _row(source, labels)) for source, labels in corpus.labels) / len(corpus.labels)
        if share <= SHARE and len(more) <= 20:
            chosen = more
    return build(chosen)


def _row(source: str, labels: Labels) -> dict[str, Any]:
    return {**labels, SOURCE_FIELD: source}


# --- the statements by hand -------------------------------------------------------------------------------------------


class Trace:
    """What was run on connections opened while this was on, and on which file."""

    def __init__(self) -> None:
        self.statements: list[tuple[str, Any]] = []
        self.set_up: list[str] = []
        self.connections: list[apsw.Connection] = []
        self.path = ""

    def opened(self, connection: apsw.Connection) -> None:
        self.connections.append(connection)
        self.path = connection.filename or self.path
        connection.exec_trace = self._run

    def _run(self, _: Any, sql: str, bound: Any) -> bool:
        self.statements.append((sql, dict(bound) if isinstance(bound, dict) else bound))
        if sql.lstrip().upper().startswith("CREATE VIRTUAL TABLE TEMP"):
            self.set_up.append(sql)
        return True


@contextlib.contextmanager
def traced() -> Iterator[Trace]:
    trace = Trace()
    apsw.connection_hooks.append(trace.opened)
    try:
        yield trace
    finally:
        apsw.connection_hooks.remove(trace.opened)
        for connection in trace.connections:
            with contextlib.suppress(apsw.ConnectionClosedError):
                connection.exec_trace = None


def bare_connection(trace: Trace) -> apsw.Connection:
    """The same file with the extension, and nothing of the product on it."""
    import sqlite_vec

    con = apsw.Connection(trace.path, flags=apsw.SQLITE_OPEN_READWRITE)
    con.execute("PRAGMA mmap_size = 0; PRAGMA cache_size = -65536")
    con.enable_load_extension(True)
    con.load_extension(sqlite_vec.loadable_path())
    con.enable_load_extension(False)
    for sql in dict.fromkeys(trace.set_up):
        con.execute(sql)
    return con
