"""Seconds from a change of labels to "not retrievable": 100 changes at 100,000 chunks in files, and in OpenSearch.

A change is what the index line does with one: it is recorded in the ledger, then the store shows it. Half of them raise a
document's class, half give it to other groups. Whoever asks has the store open elsewhere, as another process has, and asks by the
document's own vector and by its chunk's id until neither finds it. That a person leaves a group needs no store: the next question
is asked under another filter; how long that takes until the store answers under it is in the note.

The part on OpenSearch needs POINTSMAN_TEST_OPENSEARCH, or starts a node. POINTSMAN_BENCH_CHUNKS=20000 measures fewer chunks.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opensearchpy import OpenSearch

from connectors.opensearch_documents import OpenSearchDocuments, Place
from connectors.sqlite_documents import SqliteDocuments
from router.app import Router
from router.domain import SOURCE_FIELD, LabelChange, Labels, Search
from router.filters import EntityType, Filter, matches
from router.ports import DocStore
from tests.bench import worlds
from tests.bench.measure import Figure
from tests.bench.opensearch import node
from tests.bench.search import CARD, narrow_filter

CHUNKS = int(os.environ.get("POINTSMAN_BENCH_CHUNKS", "100000").split()[-1])
CHANGES = 100
REFRESH_S = 1.0
"""Of an index in OpenSearch, by `connectors/opensearch_documents/mapping.py`."""
FILES_BAR_S, OPENSEARCH_BAR_S = 1.0, REFRESH_S + 1.0


def run(folder: Path) -> Iterator[Figure]:
    with worlds.open_world(folder / "world") as router:
        entity = router.policies.current().document_type
        corpus = worlds.build_corpus()
        stores = [SqliteDocuments(folder / "store", lambda: entity) for _ in range(2)]
        yield _figure(router, corpus, entity, *stores, "files", FILES_BAR_S)
        for store in stores:
            store.close()
        with node() as host:
            prefix = f"bench{os.getpid()}"
            there = [OpenSearchDocuments(Place((host,)), lambda: entity, prefix=prefix, replicas=0, wait_s=300) for _ in range(2)]
            yield _figure(router, corpus, entity, *there, "OpenSearch", OPENSEARCH_BAR_S)
            for opened in there:
                opened.close()
            OpenSearch([host]).indices.delete(index=f"{prefix}-*")


def _figure(
    router: Router, corpus: worlds.Corpus, entity: EntityType, writer: DocStore, reader: DocStore, name: str, bar_s: float
) -> Figure:
    worlds.fill_store(writer, corpus, CHUNKS, model=CARD, tokens=4)
    f = narrow_filter(corpus, entity)
    seen = [
        (source, document_id, labels)
        for source, document_id, labels in writer.labelled(worlds.TENANT)
        if matches(f, {**labels, SOURCE_FIELD: source})
    ]
    assert len(seen) >= CHANGES
    took = [_revoke(router, writer, reader, f, *one, at=at) for at, one in enumerate(seen[:CHANGES])]
    left_s = _leave(router, reader, corpus)
    low, middle, high = statistics.quantiles(took, n=4)
    return Figure(
        name=f"revocation, {name}",
        what=f"seconds from a change of labels to not retrievable, the longest of {CHANGES} at {CHUNKS} chunks",
        ratio=round(max(took), 3),
        low=round(low, 3),
        high=round(high, 3),
        bar=bar_s,
        at_least=False,
        product_ms=round(middle * 1000, 2),
        bare_ms=round(bar_s * 1000, 2),
        pairs=CHANGES,
        note=f"the next search of a person who left a group, grants made anew: {left_s * 1000:.0f} ms at most",
    )


def _revoke(
    router: Router, writer: DocStore, reader: DocStore, f: Filter, source: str, document_id: str, labels: Labels, *, at: int
) -> float:
    """One change as the index line makes it, and how long until neither a search nor an id finds the document."""
    chunk = f"{document_id}#0"
    [vector] = reader.vectors(worlds.TENANT, [chunk], f, deadline_s=60)
    wanted = Search(worlds.TENANT, f, None, vector, CARD.id, 50, 60.0)
    assert document_id in {found.document_id for found in reader.search(wanted).candidates}
    other: dict[str, Any] = {"sensitivity": 3} if at % 2 else {"groups": frozenset({"dev:g199"})}
    new = {**labels, **other}
    change = LabelChange(source, document_id, writer.label_digest(source, labels), writer.label_digest(source, new), "relabelled")
    start = time.perf_counter()
    router.workshop.record(worlds.TENANT, [change])
    assert writer.relabel(worlds.TENANT, {document_id: new}) == 1
    while (
        any(found.document_id == document_id for found in reader.search(wanted).candidates)
        or reader.load(worlds.TENANT, [chunk], f, deadline_s=60)
        or reader.vectors(worlds.TENANT, [chunk], f, deadline_s=60)
    ):
        time.sleep(0.005)
    return time.perf_counter() - start


def _leave(router: Router, reader: DocStore, corpus: worlds.Corpus) -> float:
    """A person with one group less each time: the longest until the store has answered under the filter of what is left."""
    policies, person = router.policies.current(), router.whoami(router.mint("usual"))
    [vector] = worlds.build_vectors(corpus, 1)
    longest_s = 0.0
    for at in range(len(person.groups)):
        fewer = replace(person, groups=frozenset(sorted(person.groups)[at + 1 :]))
        start = time.perf_counter()
        for grant in policies.grants(fewer, datetime.now(UTC)).search:
            reader.search(Search(worlds.TENANT, grant.filter, None, vector, CARD.id, 50, 60.0))
        longest_s = max(longest_s, time.perf_counter() - start)
    return longest_s
