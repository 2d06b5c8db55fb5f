"""What an operator does over months, as whole commands with documents in OpenSearch: going back, mending, kept versions, models of
one's own, and an index that an older version left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from connectors.opensearch_documents import mapping
from connectors.opensearch_documents.mapping import entry_id
from router.app import Router
from router.config import load_settings
from router.filters import ALWAYS, Eq
from router.storable import partition_name
from tests import own_world, world
from tests.conformance import corpus, suite
from tests.conformance.corpus import TENANT, document, labels
from tests.opensearch.opensearch_lab import NODES, OpenSearchLab, call, lab_of
from tests.opensearch.opensearch_world import QUESTION, ask, remove_indices, write_on

PREFIX = "maintained"
PRESS, OIL, GUARD, BELT = (f"handbook/staff/{name}.md" for name in ("press", "oil", "guard", "belt"))
NO_OIL = '  - { match: "staff/oil.md", groups: ["dev:staff"], sensitivity: restricted }\n'


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of a world that keeps versions, indexed by nobody yet."""
    config = write_on(tmp_path / "world", NODES[:1], prefix=PREFIX)
    config.write_text(config.read_text().replace('path = "handbook"\n', 'path = "handbook"\nkeep_versions = 3\n'))
    schema = tmp_path / "world" / "policies" / "schema.cedarschema"
    schema.write_text(schema.read_text().replace("effective_from?: Long,", "effective_to?: Long,\n    effective_from?: Long,"))
    yield tmp_path / "world"
    remove_indices(PREFIX)


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    done = world.run_command(*arguments, cwd=folder)
    said: str = (done.stdout + done.stderr).decode()
    assert done.returncode == code, said
    return said


def shown(folder: Path, person: str = "ada", question: str = QUESTION) -> dict[str, str]:
    """Documents of the staff and their text, as a process that starts now shows them today."""
    with Router(load_settings(folder / "pointsman.toml")) as router:
        answer = ask(router, person, question, now=datetime.now(UTC))
        return {one.document_id: one.text for one in answer.passages if one.document_id.startswith("handbook/staff/")}


def current() -> str:
    [index] = call("GET", f"/_alias/{PREFIX}-{partition_name('north')}")
    return str(index)


def test_going_back_and_mending_as_commands(folder: Path) -> None:
    run(folder, "index")
    world.write_page(folder, PRESS, "# Pressing plates\n\nThe press runs at 70 bar. ERR-4012 means low oil pressure.")
    run(folder, "index")
    run(folder, "index", "--full")
    assert current().endswith("g-000002")
    rules = folder / "handbook" / "labels.yaml"
    rules.write_text(rules.read_text() + NO_OIL)
    (folder / BELT).unlink()
    run(folder, "index")

    run(folder, "index", "rollback", "--tenant", "north")
    assert current().endswith("g-000001")
    back = shown(folder)
    assert set(back) & {PRESS, OIL, GUARD, BELT} == {PRESS, GUARD}, "what was narrowed and deleted since stays so"
    assert "70 bar" in back[PRESS]
    assert OIL in shown(folder, "max")
    then = shown(folder, question="At which pressure did the press run, as of January 2026?")
    assert [text for name, text in then.items() if name.startswith(f"{PRESS}@@") and "40 bar" in text]
    assert not [name for name in shown(folder, "low", "At which pressure did the press run, as of January 2026?") if "@@" in name]
    run(folder, "index", "verify")

    row = call("GET", f"/{current()}/_doc/{entry_id('document', GUARD)}?routing={entry_id('document', GUARD)}")["_source"]
    member = row["members"].split()[0]
    call("DELETE", f"/{current()}/_doc/{member}?routing={entry_id('document', GUARD)}&refresh=true")
    assert "not all there" in run(folder, "index", "verify", code=1)
    run(folder, "index", "verify", "--repair")
    assert GUARD in shown(folder)
    run(folder, "index", "verify")

    run(folder, "index", "rollback", "--tenant", "north", "--to", "g-000002")
    assert current().endswith("g-000002")
    assert set(shown(folder)) & {PRESS, OIL, GUARD, BELT} == {PRESS, GUARD}
    run(folder, "index", "forget", PRESS)
    assert not [name for name in shown(folder, question="pressure of the press as of January 2026") if name.startswith(PRESS)]
    status = json.loads(run(folder, "index", "status", "--json"))
    assert "g-000001" in json.dumps(status)
    run(folder, "index", "verify")


def test_a_model_of_ones_own(tmp_path: Path) -> None:
    """Of 64 dimensions, beside a cross-encoder: the index takes the model's, and vectors of two models never meet."""
    config = write_on(tmp_path / "world", NODES[:1], prefix="owned")
    shipped = config.read_text()
    own_world.name_models(config)
    try:
        run(config.parent, "index")
        with Router(load_settings(config)) as router:
            answer = ask(router)
            assert [entry.stage for entry in answer.degraded] == ["now"]
            assert "dense" in {leg for passage in answer.passages for leg in passage.why}
            assert router.line.card.dimensions == 64
        [held] = call("GET", f"/owned-{partition_name('north')}/_mapping").values()
        assert held["mappings"]["properties"]["v"]["dimension"] == 64
        config.write_text(shipped)
        assert "model_changed" in run(config.parent, "index", code=2)
        run(config.parent, "index", "--full")
        with Router(load_settings(config)) as router:
            assert ask(router).passages
            assert router.line.card.dimensions == 384
    finally:
        remove_indices("owned")


def first_schema(lab: OpenSearchLab) -> str:
    """The tenant's index as a version wrote it that knew nothing of what chunks name, nor of marks."""
    index = lab.current(TENANT)
    old, made = lab.store._partitions, f"{lab.prefix}-kept"
    held = call("GET", f"/{index}/_doc/meta?routing=meta")["_source"]["meta"]
    body: dict[str, Any] = json.loads(json.dumps(mapping.index_settings(1, 0)))
    for name in mapping.ENTITIES:
        del body["mappings"]["properties"][name]
    call("PUT", f"/{made}", body)
    properties = call("GET", f"/{index}/_mapping")[index]["mappings"]["properties"]
    call("PUT", f"/{made}/_mapping", {"properties": {name: properties[name] for name in ("l", "v")}})
    keep = {"bool": {"must_not": [{"term": {"kind": "meta"}}]}}
    call("POST", "/_reindex?refresh=true", {"source": {"index": index, "query": keep}, "dest": {"index": made}})
    plain = {name: value for name, value in held.items() if name not in ("identity", "mark")} | {"schema": 1}
    call("PUT", f"/{made}/_doc/meta?routing=meta&refresh=true", {"kind": "meta", "meta": plain})
    old.remove(index)
    call("PUT", f"/{index}", body)
    call("PUT", f"/{index}/_mapping", {"properties": {name: properties[name] for name in ("l", "v")}})
    call("POST", "/_reindex?refresh=true", {"source": {"index": made}, "dest": {"index": index}})
    call("DELETE", f"/{made}")
    call("POST", "/_aliases", {"actions": [{"add": {"index": index, "alias": lab.alias(TENANT)}}]})
    return index


def meta_of(index: str) -> dict[str, Any]:
    held: dict[str, Any] = call("GET", f"/{index}/_doc/meta?routing=meta")["_source"]["meta"]
    return held


def naming(key: str, name: str) -> Any:
    return suite._naming(document(key, labels(rank=1), "valve"), name)


@pytest.mark.parametrize("first_write", ["relabel", "put", "delete", "full"])
def test_an_index_of_the_first_schema_is_read_and_brought_up(first_write: str) -> None:
    """Read as it is, also by what only newer ones have; the next write brings it up, and nothing is lost or shown on the way."""
    with lab_of() as lab:
        suite.put(lab.store, [document("a", labels(rank=1), "pump"), document("b", labels(rank=2), "pump")])
        index = first_schema(lab)
        store = lab.reopened()
        assert suite.hits(suite.ask(store, Eq("rank", 1), "pump", corpus.question(1, 0, 0, 0))) == ["s/a"]
        assert store.subjects(TENANT, ["PN-1"], ALWAYS, most=5, deadline_s=30.0) == []
        assert suite.hits(store.search(suite._named("PN-1"))) == []
        assert store.verify(TENANT) == []
        before = store.version(TENANT)
        if first_write == "relabel":
            store.relabel(TENANT, {"s/b": labels(rank=3)})
        elif first_write == "delete":
            store.delete(TENANT, ["s/b"])
        elif first_write == "full":
            store.switch(TENANT, store.begin_generation(TENANT, keep_sources=["s"]))
        suite.put(store, [naming("c", "PN-1!")])
        for each in (store, lab.reopened(), lab.store):
            assert each.version(TENANT) != before
            assert each.admitted(TENANT, ALWAYS) == (["s/a", "s/c"] if first_write == "delete" else ["s/a", "s/b", "s/c"])
            assert each.admitted(TENANT, Eq("rank", 1)) == ["s/a", "s/c"]
            assert suite.hits(each.search(suite._named("PN-1"))) == ["s/c"]
            assert [name for name, _ in each.subjects(TENANT, ["PN-1"], ALWAYS, most=5, deadline_s=30.0)] == ["PN-1"]
        said = meta_of(index if first_write != "full" else lab.current(TENANT))
        assert said["schema"] == mapping.SCHEMA
        assert said["identity"]
        assert lab.reopened().verify(TENANT) == []
