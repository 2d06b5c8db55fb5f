"""A node fails while the whole line asks and indexes: what the caller is told, what the record says, and that nobody sees more."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.opensearch_documents import OpenSearchDocuments
from router import decision
from router.app import Router
from router.config import load_settings
from router.errors import SourceError
from router.storable import partition_name
from tests.opensearch.opensearch_lab import NODES, Door, call
from tests.opensearch.opensearch_world import WHO, answered, ask, degraded_in, index_all, refused_in, router_on, write_on
from tests.opensearch.tls_front import Front, issue, make_authority
from tests.world import ids, write_page

Made = tuple[Router, Door]
NOT_HIS = ("hidden", "/board/", "/hr/", "elsewhere")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """One world, behind a door that can be slowed; each test leaves it as it was."""
    door = Door(NODES[0])
    with router_on(write_on(tmp_path_factory.mktemp("asking") / "world", [door.address], wait_s=10.0)) as router:
        index_all(router)
        yield router, door
    door.shut()


@pytest.fixture
def router(made: Made) -> Iterator[Router]:
    """Whatever happened in between, the same is answered to the same people before and after, and the chain of records is whole."""
    opened, _ = made
    before = everybody(opened)
    yield opened
    assert everybody(opened) == before
    assert opened.store.verify("north") == []
    assert decision.verify_chain(opened.ledger.read("north")).whole


def everybody(router: Router) -> dict[str, list[str]]:
    return {person: ids(ask(router, person, deadline_s=60.0)) for person in WHO}


def prefix_of(router: Router) -> str:
    assert router.settings.stores.opensearch is not None
    return router.settings.stores.opensearch.prefix


def current(router: Router) -> str:
    """The index behind the tenant's alias."""
    [index] = call("GET", f"/_alias/{prefix_of(router)}-{partition_name('north')}")
    return str(index)


def refused(router: Router, code: str, *, retryable: bool, deadline_s: float = 3.0) -> None:
    """The question fails with that code, in time, and its record says so."""
    start = time.monotonic()
    with pytest.raises(SourceError) as caught:
        ask(router, deadline_s=deadline_s)
    assert (refused_in(router, caught.value), caught.value.retryable) == (code, retryable)
    body = answered(router, caught.value.decision_id)
    assert (body["outcome"], body["evidence"]) == ("refused", [])
    assert time.monotonic() - start < deadline_s + 1.0


def run_fails(router: Router, code: str) -> None:
    """An index run that ends with that code, and is on record as failed."""
    with pytest.raises(SourceError) as caught:
        router.index()
    assert caught.value.code == code
    assert router.manifest.runs(limit=1)[0].outcome == "failed"


def test_cluster_red(router: Router) -> None:
    """The primary shard is nowhere: no answer, and none that looks like nothing found."""
    index = current(router)
    alias, lost = index.rpartition("-g-")[0], f"{index[:-6]}999999"
    held = call("GET", f"/{index}")[index]
    settings = {name: held["settings"]["index"][name] for name in ("knn", "similarity", "analysis")}
    nowhere = {"knn.derived_source.enabled": False, "number_of_replicas": 0, "routing.allocation.require._name": "nobody"}
    body = {"settings": {"index": {**settings, **nowhere}}, "mappings": held["mappings"]}
    call("PUT", f"/{lost}?wait_for_active_shards=0", body)
    point(alias, index, lost)
    refused(router, "store_unavailable", retryable=True)
    assert router.readiness()["documents"] == "store_unavailable"
    point(alias, lost, index)
    call("DELETE", f"/{lost}")


def point(alias: str, old: str, new: str) -> None:
    moves = [{kind: {"index": index, "alias": alias}} for kind, index in (("remove", old), ("add", new))]
    call("POST", "/_aliases", {"actions": moves})


def test_read_only_while_indexing(router: Router) -> None:
    """The disk is at its flood stage: the run fails aloud, what was there is answered as before, and afterwards the run finishes."""
    place = f"/{current(router)}/_settings"
    write_page(router.settings.folder, "notes/new.md", "# New\n\nA new note on the press and ERR-4012.")
    labels = router.settings.folder / "notes" / "labels.yaml"
    kept = labels.read_text()
    call("PUT", place, {"index.blocks.read_only_allow_delete": True})
    before = ids(ask(router))
    assert [name for name in before if name.startswith("notes/")]
    run_fails(router, "store_read_only")
    assert ids(ask(router)) == before
    labels.write_text(kept.replace("internal", "restricted"))
    run_fails(router, "store_read_only")
    assert ids(ask(router)) == before, "a change of labels that the store refused is not half done"
    call("PUT", place, {"index.blocks.read_only_allow_delete": None})
    index_all(router)
    assert not [name for name in ids(ask(router)) if name.startswith("notes/")]
    assert "notes/new.md" in ids(ask(router, "max"))
    labels.write_text(kept)
    (router.settings.folder / "notes" / "new.md").unlink()
    index_all(router)


def test_circuit_breaker(router: Router) -> None:
    """No memory for even one request: asked again after a pause, then refused as busy, and so is an index run."""
    limit = "network.breaker.inflight_requests.limit"
    call("PUT", "/_cluster/settings", {"transient": {limit: "300b"}})
    refused(router, "store_busy", retryable=True)
    call("PUT", "/_cluster/settings", {"transient": {limit: None}})


def test_slow_node(made: Made, router: Router) -> None:
    """Slower than the deadline: the caller hears it in time."""
    made[1].delay_s = 2.0
    refused(router, "deadline", retryable=True, deadline_s=1.0)
    made[1].delay_s = 0.0
    time.sleep(2.0)  # what was sent slowly has gone through


def test_a_leg_that_fails(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one answers under the same filter; answer and record say which is missing and why."""
    assert isinstance(router.store, OpenSearchDocuments)
    search_many = router.store._wire.search_many

    def broken(index: str, parts: Any, **more: Any) -> Any:
        return search_many(index, [part.replace('"cosinesimil"', '"nonsense"') for part in parts], **more)

    monkeypatch.setattr(router.store._wire, "search_many", broken)
    answer = ask(router)
    body = answered(router, answer.decision_id)
    assert ("search", "store_failed: the dense leg was left out") in degraded_in(body)
    assert [receipt["leg"] for receipt in body["filter_digests"]] == ["lexical"]
    assert ids(answer)
    assert not [name for name in ids(answer) for part in NOT_HIS if part in name]
    monkeypatch.undo()


def test_mapping_conflict(router: Router) -> None:
    """Somebody mapped a label's field as another type: the run fails, no document is shown under a label that was not stored."""
    call("PUT", f"/{current(router)}/_mapping", {"properties": {"l": {"properties": {"s_owner": {"type": "long"}}}}})
    labels = router.settings.folder / "notes" / "labels.yaml"
    kept = labels.read_text()
    labels.write_text(kept.replace("sensitivity: internal", "sensitivity: internal, owner: ops"))
    before = ids(ask(router))
    run_fails(router, "store_failed")
    assert ids(ask(router)) == before
    labels.write_text(kept)
    index_all(router)


def test_an_index_that_vanished(tmp_path: Path) -> None:
    """Removed by hand: every question fails with what to do, and a full run makes it anew."""
    with router_on(write_on(tmp_path / "world", NODES[:1])) as router:
        index_all(router)
        before = ids(ask(router))
        call("DELETE", f"/{current(router)}")
        refused(router, "store_missing", retryable=False)
        assert router.readiness()["documents"] == "store_missing"
        router.index(full=True)
        assert ids(ask(router)) == before


def test_a_node_that_is_gone(tmp_path: Path) -> None:
    """Nobody listens any more: said in time, to the caller, to the probe and in the record."""
    door = Door(NODES[0])
    with router_on(write_on(tmp_path / "world", [door.address])) as router:
        index_all(router)
        door.shut()
        refused(router, "store_unreachable", retryable=True)
        assert router.readiness()["documents"] == "store_unreachable"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda text, other: text, ""),
        (lambda text, other: text.replace("ours.pem", "theirs.pem"), "store_untrusted"),
        (lambda text, other: text.replace("POINTSMAN_TEST_RIGHT", "POINTSMAN_TEST_EXPIRED"), "store_denied"),
    ],
    ids=["as it should be", "another authority", "expired credentials"],
)
def test_certificates_and_credentials(
    change: Callable[[str, str], str], code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a node that nobody vouches for no credential is said; one that expired is a code of its own, on record too."""
    monkeypatch.setenv("POINTSMAN_TEST_RIGHT", "right")
    monkeypatch.setenv("POINTSMAN_TEST_EXPIRED", "old")
    ours, _ = make_authority(tmp_path, "ours"), make_authority(tmp_path, "theirs")
    front = Front(issue(tmp_path, "node", ours), "ada", "right")
    more = {"username": "ada", "password_env": "POINTSMAN_TEST_RIGHT", "ca": str(tmp_path / "ours.pem")}
    config = write_on(tmp_path / "world", [front.address], **more)
    with router_on(config) as router:
        index_all(router)
        assert ids(ask(router))
        heard = front.heard
        if code:
            shutil.copy(config, tmp_path / "world" / "other.toml")
            other = tmp_path / "world" / "other.toml"
            other.write_text(change(config.read_text(), code))
            with Router(load_settings(other)) as failing:
                refused(failing, code, retryable=False)
                run_fails(failing, code)
                assert failing.readiness()["documents"] == code
            assert (front.heard == heard) is (code == "store_untrusted")
    front.close()
