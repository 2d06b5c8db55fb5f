"""`ask` and indexing with documents in OpenSearch, over the same work by hand, on one node.

Asking, without model calls, over its raw parts in turns: those of `tests/bench/ask.py` with the store's statements replaced by
the requests that one question needs (the count, both legs in one `_msearch`, the texts of what is reranked), sent with the
engine's own client from prepared bodies, their answers parsed and no more. The ratio over the two searches alone is in the note.
Indexing over the embedder alone on the same texts, or over the same bulk requests by hand where these are slower.

Uses the node of POINTSMAN_TEST_OPENSEARCH, else starts one with 1 GB and stops it. POINTSMAN_BENCH_CHUNKS=20000 measures fewer.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opensearchpy import OpenSearch

from connectors.opensearch_documents import OpenSearchDocuments
from router.app import Router
from router.config import OpenSearchSettings, Settings
from router.domain import Record
from tests.bench import ask as whole
from tests.bench import indexing, worlds
from tests.bench.governance import bare_append, bare_ledger
from tests.bench.measure import Figure, run_pairs, timed

ASK_BAR, INDEX_BAR = 1.10, 0.85
SIZES = tuple(int(size) for size in os.environ.get("POINTSMAN_BENCH_CHUNKS", "20000 100000").split())
TOKENS, QUESTIONS, PAIRS, K = 80, 20, 200, 5
INDEX_PAIRS = 4
SCRIPT = Path(__file__).parents[2] / "deploy" / "dev" / "opensearch.sh"


def run(folder: Path) -> Iterator[Figure]:
    with node() as host:
        corpus = worlds.build_corpus()
        for size in SIZES:
            with _world(folder / f"world-{size}", host) as router:
                began = time.monotonic()
                worlds.fill_store(router.store, corpus, size, model=router.embedder.card, tokens=TOKENS)
                _settle(host, router)
                yield _ask_figure(router, corpus, size, host, folder, filled_s=time.monotonic() - began)
        with _world(folder / "world-index", host) as router:
            yield _index_figure(router, host)


@contextlib.contextmanager
def node() -> Iterator[str]:
    """The address of a node that runs, or of one that is started for the bench."""
    given = os.environ.get("POINTSMAN_TEST_OPENSEARCH", "").split()
    if given:
        yield given[0]
        return
    env = {**os.environ, "HEAP": os.environ.get("HEAP", "1g")}
    subprocess.run([SCRIPT, "stop"], check=True)
    started = subprocess.run([SCRIPT, "start"], check=True, capture_output=True, text=True, env=env)
    try:
        yield started.stdout.split()[0]
    finally:
        subprocess.run([SCRIPT, "stop"], check=True)


def on(settings: Settings, host: str) -> Settings:
    """The same with its documents in OpenSearch; as in `tests/bench/ask.py`, made-up words are not judged to hold no answer."""
    store = OpenSearchSettings(hosts=(host,), prefix=f"bench{secrets.token_hex(6)}", replicas=0, wait_s=300)
    stores = settings.stores.model_copy(update={"opensearch": store})
    search = settings.search.model_copy(update={"relevance": "off", "versions": "all"})
    return settings.model_copy(update={"stores": stores, "search": search})


@contextlib.contextmanager
def _world(folder: Path, host: str) -> Iterator[Router]:
    settings = on(worlds.write_world(folder), host)
    assert settings.stores.opensearch is not None
    try:
        with Router(settings) as router:
            yield router
    finally:
        OpenSearch([host]).indices.delete(index=f"{settings.stores.opensearch.prefix}-*")


def _settle(host: str, router: Router) -> None:
    """Until nothing merges any more, as in an index that was written a while ago."""
    client = OpenSearch([host], timeout=600)
    assert router.settings.stores.opensearch is not None
    client.indices.forcemerge(index=f"{router.settings.stores.opensearch.prefix}-*", max_num_segments=1)
    client.indices.refresh(index="_all")


# --- asking -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the store sent it, and what the client gave back."""

    method: str
    path: str
    body: Any
    params: dict[str, Any]
    headers: Any
    answer: Any


@contextlib.contextmanager
def listening(store: OpenSearchDocuments) -> Iterator[list[Call]]:
    calls: list[Call] = []
    transport = store._wire._client.transport
    perform = transport.perform_request

    def perform_request(method: str, path: str, *, body: Any = None, params: Any = None, headers: Any = None, **more: Any) -> Any:
        answer = perform(method, path, body=body, params=dict(params or {}), headers=headers, **more)
        calls.append(Call(method, path, body, dict(params or {}), headers, answer))
        return answer

    transport.perform_request = perform_request
    try:
        yield calls
    finally:
        transport.perform_request = perform


def _ask_figure(router: Router, corpus: worlds.Corpus, size: int, host: str, folder: Path, *, filled_s: float) -> Figure:
    token = router.mint("narrow", minutes=600)
    questions = worlds.build_questions(corpus, QUESTIONS)
    for question in questions:  # the engine compiles, caches of a policy's filter fill
        router.ask(question, token=token, k=K, route="documents")
    ledger, client = bare_ledger(folder / f"bare-{size}.sqlite"), OpenSearch([host], timeout=60)
    parts = [_RawParts(router, token, question, client, ledger) for question in questions]

    def product(at: int) -> None:
        assert router.ask(questions[at % QUESTIONS], token=token, k=K, route="documents").passages

    pairs = run_pairs(product, lambda at: parts[at % QUESTIONS].run(), PAIRS, warm=2 * QUESTIONS)
    bare = [timed(lambda at: parts[at].search(), at % QUESTIONS)[0] for at in range(PAIRS)]
    stages: dict[str, list[int]] = {}
    for question in questions:
        for stage in router.ask(question, token=token, k=K, route="documents").stages:
            stages.setdefault(stage.name, []).append(stage.us)
    admitted = statistics.median(part.admitted for part in parts)
    searches_ms = statistics.median(bare) / 1e6
    note = (
        f"{admitted:.0f} chunks admitted ({100 * admitted / size:.1f} %), {parts[0].sent} requests sent, 3 needed; count and legs alone "
        f"{searches_ms:.2f} ms, ask {statistics.median(pairs.product) / 1e6 / searches_ms:.2f} of it; filled at {size / filled_s:.0f} chunks "
        f"a second; stages in ms: {', '.join(f'{name} {statistics.median(us) / 1000:.2f}' for name, us in stages.items())}"
    )
    return pairs.figure(f"OpenSearch ask {size // 1000}k", "router.ask : the sum of its raw parts", ASK_BAR, note=note)


class _RawParts:
    """What one question cannot do without, prepared."""

    def __init__(self, router: Router, token: str, question: str, client: OpenSearch, ledger: sqlite3.Connection) -> None:
        assert isinstance(router.store, OpenSearchDocuments)
        with listening(router.store) as calls:
            answer = router.ask(question, token=token, k=K, route="documents")
        self.sent = len(calls)
        [self._count] = [call for call in calls if '"aggs"' in str(call.body)]
        [self._legs] = [call for call in calls if '"sort":[{"_score"' in str(call.body)]
        [self._load] = [call for call in calls if '"token' not in str(call.body) and '"labels"' in str(call.body)]
        self.admitted = self._count.answer["responses"][1]["hits"]["total"]["value"]
        self._client, self._ledger = client, ledger
        self._record = Record("bench", "d-1", "asked", 1, b"x" * 900, b"y" * 400, b"z" * 32)
        self._embedding = whole._embedding(router, question)
        self._signature = whole._signature(router, token)
        self._batch = whole._batch(router, token, answer.passages)
        self._products = whole._products(router, question, _rows(self._load))

    def run(self) -> None:
        self._signature()
        bare_append(self._ledger, self._record)
        self._embedding()
        self.search()
        self._send(self._load)
        self._products()
        self._batch()
        bare_append(self._ledger, self._record)

    def search(self) -> None:
        self._send(self._count)
        self._send(self._legs)

    def _send(self, call: Call) -> None:
        self._client.transport.perform_request(
            call.method, call.path, body=call.body, params=dict(call.params), headers=call.headers, timeout=60
        )


def _rows(load: Call) -> list[tuple[Any, ...]]:
    """Word-piece ids and token vectors of what was loaded, as `_products` takes them."""
    import base64

    hits = load.answer["responses"][1]["hits"]["hits"]
    bodies = [hit["_source"]["body"] for hit in hits]
    return [(base64.b64decode(body["token_ids"]), base64.b64decode(body["token_vectors"])) for body in bodies]


# --- indexing ---------------------------------------------------------------------------------------------------------


def _index_figure(router: Router, host: str) -> Figure:
    """Full builds of a folder; the embedder alone on the same texts; the bulk requests of one build sent by hand."""
    indexing.write_pages(router.settings.folder / "pages")
    model, store = router.embedder, router.store
    assert isinstance(store, OpenSearchDocuments)
    kept = indexing._Kept(model)
    with listening(store) as calls:
        assert indexing._index(router, kept) == len(kept.texts)
    texts, client = kept.texts, OpenSearch([host], timeout=120)
    bulks = [call for call in calls if call.path.endswith("/_bulk")]
    raw_s = statistics.median(_bulk_s(client, bulks) for _ in range(3))

    def product(_: int) -> None:
        assert indexing._index(router, model) == len(texts)

    def bare(_: int) -> None:
        model.embed_chunks(texts, indexing.PURPOSE)

    pairs = run_pairs(product, bare, INDEX_PAIRS, warm=1)
    embed_s = statistics.median(pairs.bare) / 1e9
    by_hand: Callable[[int], object] = lambda _: _bulk_s(client, bulks)  # noqa: E731 (a name for what is measured)
    if raw_s > embed_s:
        pairs = run_pairs(product, by_hand, INDEX_PAIRS, warm=1)
    speed = len(texts) / (statistics.median(pairs.product) / 1e9)
    note = (
        f"{len(texts)} chunks, {speed:.0f} a second; embedder alone {len(texts) / embed_s:.0f}, raw bulk {len(texts) / raw_s:.0f}"
    )
    what = "chunks a second, whole line : embedder alone or raw bulk, the slower"
    return pairs.figure("OpenSearch indexing", what, INDEX_BAR, rate=True, note=note)


def _bulk_s(client: OpenSearch, bulks: Sequence[Call]) -> float:
    """Into an index made for it, like the one that these entries were for."""
    name = bulks[0].path.split("/")[1]
    held = client.indices.get(index=name)[name]
    settings = {part: held["settings"]["index"][part] for part in ("knn", "similarity", "analysis")}
    index = {**settings, "knn.derived_source.enabled": False, "number_of_replicas": 0, "refresh_interval": "1s"}
    copy = f"{name.partition('-')[0]}-raw-{secrets.token_hex(4)}"
    client.indices.create(index=copy, body={"settings": {"index": index}, "mappings": held["mappings"]})
    start = time.perf_counter()
    for call in bulks:
        client.transport.perform_request(
            "POST", f"/{copy}/_bulk", body=call.body, params=dict(call.params), headers=call.headers, timeout=120
        )
    took_s = time.perf_counter() - start
    client.indices.delete(index=copy)
    return took_s
