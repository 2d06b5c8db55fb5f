"""What was forgotten stays forgotten, whichever file of the state folder is lost, put back, or was not written any more."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.ledger import SqlLedger
from connectors.manifest import SqlManifest, open_manifest
from router import decision
from router.app import Router
from router.burials import bury_forgotten
from router.config import load_settings
from router.domain import Link, Record
from tests.world import ROOT, build_world

OIL = "handbook/staff/oil.md"
TENANT = "north"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return build_world(tmp_path / "world")


def shown(router: Router) -> bool:
    return OIL in {info.document_id for info in router.store.documents(TENANT)}


def forget(config: Path) -> None:
    with Router(load_settings(config)) as router:
        assert shown(router)
        router.index_forget(OIL)
        assert not shown(router)


def files(config: Path, name: str) -> list[Path]:
    found = [path for path in load_settings(config).state_folder.glob(f"{name}*") if not path.name.endswith(".lock")]
    assert found
    return found


def lose(config: Path, name: str) -> None:
    for path in files(config, name):
        path.unlink()


def save(config: Path, name: str) -> Path:
    (path,) = (path for path in files(config, name) if path.suffix in {".sqlite", ".db"})
    return Path(shutil.copy(path, path.parent.parent / f"saved-{path.name}"))


def put_back(config: Path, saved: Path) -> None:
    name = saved.name.removeprefix("saved-")
    lose(config, name)
    shutil.copy(saved, load_settings(config).state_folder / name)


def comes_back(config: Path, *, full: bool) -> bool:
    with Router(load_settings(config)) as router:
        router.index(full=full)
        assert router.index_verify() == []
        return shown(router)


def stored(config: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (load_settings(config).state_folder / "stores").rglob("*") if path.is_file())


def forgotten_on_record(config: Path) -> list[str]:
    with Router(load_settings(config)) as router:
        bodies = [
            json.loads(record.body) for _, record in router.ledger.read(TENANT) if record.kind == decision.CONTENT_FORGOTTEN
        ]
        return [content_hash for body in bodies for content_hash in body["content_hashes"]]


@pytest.mark.parametrize("full", [True, False])
def test_a_lost_manifest(config: Path, full: bool) -> None:
    forget(config)
    lose(config, "manifest.sqlite")
    assert not comes_back(config, full=full)


@pytest.mark.parametrize("full", [True, False])
def test_a_manifest_put_back(config: Path, full: bool) -> None:
    assert comes_back(config, full=False), "of the world as it is, which the copy knows to be indexed"
    saved = save(config, "manifest.sqlite")
    forget(config)
    put_back(config, saved)
    assert not comes_back(config, full=full)


def test_forgetting_is_on_record_without_text(config: Path) -> None:
    forget(config)
    with Router(load_settings(config)) as router:
        (record,) = (record for _, record in router.ledger.read(TENANT) if record.kind == decision.CONTENT_FORGOTTEN)
    source, hashes = decision.load_forgotten(record)
    assert (source, len(hashes)) == ("handbook", 1)
    assert b"oil" not in record.body
    assert record.inputs is None


def test_a_lost_ledger(config: Path) -> None:
    """First the ledger, and the next command tells the new one; then the manifest."""
    forget(config)
    lose(config, "ledger")
    assert not comes_back(config, full=False)
    assert len(forgotten_on_record(config)) == 1
    lose(config, "manifest.sqlite")
    assert not comes_back(config, full=True)


def test_a_ledger_put_back(config: Path) -> None:
    saved = save(config, "ledger")
    forget(config)
    assert not comes_back(config, full=False)
    put_back(config, saved)
    assert not comes_back(config, full=True)
    assert len(forgotten_on_record(config)) == 1
    lose(config, "manifest.sqlite")
    assert not comes_back(config, full=True)


def test_burials_of_an_earlier_version(config: Path) -> None:
    """Which recorded none: the first command does."""
    with Router(load_settings(config)) as router:
        (row,) = (row for row in router.manifest.rows(TENANT, router.store.generation(TENANT) or "") if row.document_id == OIL)
        router.manifest.bury(TENANT, "handbook", row.content_hash, at_us=1)
    assert not comes_back(config, full=False)
    assert forgotten_on_record(config) == [row.content_hash]
    lose(config, "manifest.sqlite")
    assert not comes_back(config, full=True)


KILLED = """
import os, signal, sys
from pathlib import Path
from connectors.manifest import SqlManifest
from router.app import Router
from router.config import load_settings
SqlManifest.bury = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
with Router(load_settings(Path(sys.argv[1]))) as router:
    router.index_forget(sys.argv[2])
"""


@pytest.mark.parametrize("full", [True, False])
def test_killed_before_the_burial(config: Path, full: bool) -> None:
    """The next run takes it away, out of every generation."""
    assert comes_back(config, full=True), "now an earlier generation holds it, too"
    done = subprocess.run([sys.executable, "-c", KILLED, str(config), OIL], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == -9
    with Router(load_settings(config)) as router:
        assert shown(router), "nothing but the record was written"
    assert b"PN-88213 is the oil filter" in stored(config)
    assert not comes_back(config, full=full)
    assert len(forgotten_on_record(config)) == 1
    assert b"PN-88213 is the oil filter" not in stored(config)


# --- how far the ledger is read ---


class Looking(SqlLedger):
    """Says over which rows kinds were looked for."""

    def __init__(self, where: Path) -> None:
        super().__init__(where)
        self.looked: list[tuple[int, int]] = []

    def read_kind(self, tenant: str, kind: str, *, after_seq: int, to_seq: int) -> Iterator[tuple[Link, Record]]:
        self.looked.append((after_seq, to_seq))
        return super().read_kind(tenant, kind, after_seq=after_seq, to_seq=to_seq)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Looking]:
    opened = Looking(tmp_path / "ledger.db")
    yield opened
    opened.close()


@pytest.fixture
def manifest(tmp_path: Path) -> Iterator[SqlManifest]:
    opened = open_manifest(f"sqlite:///{tmp_path}/manifest.sqlite")
    yield opened
    opened.close()


def forgotten(tenant: str, *hashes: str) -> Record:
    return decision.content_forgotten(tenant=tenant, at_us=1, by="indexer", source="docs", content_hashes=hashes)


def other(tenant: str) -> Record:
    return decision.label_change(tenant=tenant, at_us=1, by="indexer", source="docs", document_id="docs/a", old=None, new="b")


def catch_up(ledger: SqlLedger, manifest: SqlManifest) -> None:
    bury_forgotten(ledger, manifest, by="indexer", now_us=lambda: 7)


def test_only_new_rows_are_looked_at(ledger: Looking, manifest: SqlManifest) -> None:
    ledger.append([other("t")] * 3 + [forgotten("t", "a", "b")])
    catch_up(ledger, manifest)
    assert manifest.buried("t", "docs") == {"a", "b"}
    catch_up(ledger, manifest)
    ledger.append([other("t"), forgotten("t", "c")])
    catch_up(ledger, manifest)
    assert manifest.buried("t", "docs") == {"a", "b", "c"}
    assert ledger.looked == [(0, 4), (4, 6)]
    assert ledger.head("t") is not None
    assert ledger.head("t").seq == 6  # type: ignore[union-attr]  # nothing was told to a ledger that knows


def test_tenants_do_not_share_what_was_forgotten(ledger: Looking, manifest: SqlManifest) -> None:
    ledger.append([forgotten("t", "a"), forgotten("u", "b")])
    catch_up(ledger, manifest)
    assert [manifest.buried(tenant, "docs") for tenant in "tu"] == [{"a"}, {"b"}]


def test_another_ledger_of_the_same_length(ledger: Looking, manifest: SqlManifest, tmp_path: Path) -> None:
    ledger.append([other("t"), forgotten("t", "a")])
    catch_up(ledger, manifest)
    another = Looking(tmp_path / "another.db")
    another.append([other("t"), forgotten("t", "b"), other("t")])
    catch_up(another, manifest)
    assert manifest.buried("t", "docs") == {"a", "b"}
    told = [
        decision.load_forgotten(record) for _, record in another.read_kind("t", decision.CONTENT_FORGOTTEN, after_seq=0, to_seq=9)
    ]
    assert told == [("docs", ("b",)), ("docs", ("a",))]
    another.close()


def test_many_burials_are_several_records(ledger: Looking, manifest: SqlManifest) -> None:
    hashes = {f"{number:064x}" for number in range(1_100)}
    manifest.note_ledger("t", [("docs", content_hash) for content_hash in hashes], mark=(9, "of a ledger that was lost"), at_us=1)
    catch_up(ledger, manifest)
    rows = list(ledger.read_kind("t", decision.CONTENT_FORGOTTEN, after_seq=0, to_seq=9))
    assert [len(decision.load_forgotten(record)[1]) for _, record in rows] == [500, 500, 100]
    assert {content_hash for _, record in rows for content_hash in decision.load_forgotten(record)[1]} == hashes
