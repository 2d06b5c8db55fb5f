"""A SQLite store that was damaged in ways that SQL can do: what `verify` names, and what `mend` makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.domain import SOURCE_FIELD
from router.filters import ALWAYS, Ge, Overlaps
from tests.conformance import corpus
from tests.conformance.corpus import TENANT, document, labels
from tests.conformance.labs import SqliteLab, quick_folder
from tests.conformance.suite import ask, hits, put

DAMAGES = {
    "a lost word": "DELETE FROM fts_data WHERE id > 10",
    "a lost label": "DELETE FROM cn WHERE rid = 1",
    "a lost vector": "DELETE FROM emb WHERE rid = 1",
    "a lost text of the index": "DELETE FROM ft WHERE rid = 1",
    "a short vector": "UPDATE emb SET v = x'0000803f' WHERE rid = 1",
    "a lost document": "DELETE FROM document WHERE did = 1",
    "a lost chunk": "DELETE FROM chunk WHERE rid = 1",
    "a chunk under the other label": "UPDATE cn SET lid = (SELECT max(lid) FROM label) WHERE rid = 1",
    "a document under the other label": "UPDATE document SET lid = (SELECT max(lid) FROM label) WHERE did = 1",
    "a label that reads otherwise": "UPDATE label SET json = replace(json, '\"corp:b\"', '\"corp:a\"')",
    "a label of no kind": "UPDATE label SET json = '7' WHERE lid = 1",
    "a wider member": "UPDATE label_set SET value = 'corp:a' WHERE value = 'corp:b'",
    "a lost member": "DELETE FROM label_set",
    "another rank": "UPDATE label SET l_rank = 9",
    "another source": f"UPDATE label SET \"s_{SOURCE_FIELD}\" = 'other' WHERE lid = 1",
    "wrong counts": "UPDATE label SET n = n + 5, s = 0",
}
SOME_B = Overlaps("groups", frozenset({"corp:b"}))
SOME_A = Overlaps("groups", frozenset({"corp:a"}))


@pytest.fixture
def lab() -> Iterator[SqliteLab]:
    with quick_folder() as folder:
        opened = SqliteLab(folder)
        yield opened
        opened.close()


def fill(lab: SqliteLab) -> None:
    """`a` is of group b alone, `b` of group a alone."""
    put(lab.store, [document("a", labels(groups=frozenset({"corp:b"}), rank=1), "first words", "second words")])
    put(lab.store, [document("b", labels(rank=2), "third words")])


def damage(lab: SqliteLab, *statements: str) -> None:
    con = apsw.Connection(str(lab.current(TENANT)))
    con.execute("PRAGMA writable_schema = OFF")
    for statement in statements:
        con.execute(statement)
    con.close()


def check(lab: SqliteLab) -> None:
    """What is left is whole, and shown under the labels that it was stored under."""
    assert lab.store.verify(TENANT) == []
    held = {info.document_id for info in lab.store.documents(TENANT)}
    assert set(hits(ask(lab.store, ALWAYS))) == set(lab.store.admitted(TENANT, ALWAYS)) == held
    assert set(hits(ask(lab.store, ALWAYS, None, corpus.question(1, 0, 0, 0)))) == held
    assert set(hits(ask(lab.store, SOME_A))) == held - {"s/a"}
    assert set(hits(ask(lab.store, SOME_B))) == held - {"s/b"}
    assert set(hits(ask(lab.store, Ge("rank", 2)))) == held - {"s/a"}


@pytest.mark.parametrize("name", sorted(DAMAGES))
def test_each_damage_is_named_and_mended(lab: SqliteLab, name: str) -> None:
    fill(lab)
    damage(lab, DAMAGES[name])
    assert lab.store.verify(TENANT)
    doubtful = set(lab.store.doubtful(TENANT))
    assert lab.store.mend(TENANT)
    check(lab)
    there = {info.document_id for info in lab.store.documents(TENANT)}
    assert there == {"s/a", "s/b"} - doubtful - ({"s/a"} if name == "a lost document" else set())
    assert lab.store.mend(TENANT) == []


@settings(max_examples=60)
@given(st.lists(st.sampled_from(sorted(DAMAGES)), min_size=1, max_size=4, unique=True))
def test_mend_never_widens(names: list[str]) -> None:
    """Any of them together, also where one hides another."""
    with quick_folder() as folder:
        lab = SqliteLab(folder)
        try:
            fill(lab)
            # What happens to the words comes last: without them no row leaves their index, as in a store that is whole.
            damage(lab, *(DAMAGES[name] for name in sorted(names, key="a lost word".__eq__)))
            lab.store.mend(TENANT)
            check(lab)
        finally:
            lab.close()


def test_what_only_needs_making_anew_loses_nothing(lab: SqliteLab) -> None:
    fill(lab)
    damage(lab, DAMAGES["a lost word"], DAMAGES["wrong counts"], DAMAGES["a lost member"])
    assert len(lab.store.mend(TENANT)) == 3
    assert hits(ask(lab.store, ALWAYS)) == ["s/a", "s/b"]
    assert hits(ask(lab.store, ALWAYS, "first")) == ["s/a"]


def test_a_removed_document_leaves_no_text(lab: SqliteLab) -> None:
    fill(lab)
    damage(lab, "DELETE FROM document WHERE did = 1")
    lab.store.mend(TENANT)
    con = apsw.Connection(str(lab.current(TENANT)))
    assert con.execute("SELECT count(*) FROM ft WHERE body LIKE '%first%'").get == 0
    assert con.execute("SELECT count(*) FROM chunk WHERE body LIKE '%first%'").get == 0
    assert json.loads(str(con.execute("SELECT value FROM meta WHERE key = 'tenant'").get)) == TENANT
    con.close()


def test_a_file_that_is_no_store_is_not_whole(lab: SqliteLab, tmp_path: Path) -> None:
    fill(lab)
    (lab.folder(TENANT) / "g-000009.sqlite").write_bytes(b"rubbish " * 4096)
    (lab.folder(TENANT) / "g-000010.sqlite").write_bytes(b"")
    assert [(one.name, one.whole, one.documents) for one in lab.store.generations(TENANT)[1:]] == [
        ("g-000009", False, 0),
        ("g-000010", False, 0),
    ]
    lab.store.discard(TENANT, "g-000009")
    assert len(lab.store.generations(TENANT)) == 2
