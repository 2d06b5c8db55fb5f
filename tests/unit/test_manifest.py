"""The manifest: whole writes, one writer, schemas it knows; SQLite here, PostgreSQL where one is given."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from connectors.manifest import SCHEMA, SqlManifest, open_manifest
from router.domain import Gone, IndexRun, ManifestRow, SourceState
from router.errors import SourceError

POSTGRES = os.environ.get("POINTSMAN_TEST_POSTGRES", "")


@pytest.fixture(params=["sqlite", *(["postgresql"] if POSTGRES else [])])
def manifest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlManifest]:
    made = open_manifest(POSTGRES if request.param == "postgresql" else f"sqlite:///{tmp_path}/m.sqlite")
    yield made
    made.keep("t", [])
    made.close()


def row(key: str, **changes: object) -> ManifestRow:
    return replace(ManifestRow("t", "g-1", "docs", key, "indexed", "f", "h", None, 2, "d", "{}", "m", "1", "", "", 5), **changes)


def test_rows_come_back_as_they_were(manifest: SqlManifest) -> None:
    hostile = ["a'b", 'a"b', "a\nb", "a;b--", "größe/契約", "\u202eabc", "a" * 3000, "%_*"]
    rows = [row(key, version=None if at % 2 else "v1", narrowing='{"groups":["x"]}') for at, key in enumerate(hostile)]
    manifest.write(rows)
    assert manifest.rows("t", "g-1") == sorted(rows, key=lambda item: item.key)
    assert manifest.rows("t", "g-1", source="other") == []
    assert manifest.rows("T", "g-1") == []


def test_write_replaces(manifest: SqlManifest) -> None:
    manifest.write([row("a"), row("b")])
    manifest.write([row("a", state="failed", reason="corrupt")])
    assert [(item.key, item.state) for item in manifest.rows("t", "g-1")] == [("a", "failed"), ("b", "indexed")]
    manifest.remove([row("a")])
    assert [item.key for item in manifest.rows("t", "g-1")] == ["b"]
    manifest.write([])
    manifest.remove([])


def test_relabel(manifest: SqlManifest) -> None:
    manifest.write([row("a"), row("b"), row("b", source="other"), row("b", generation="g-2")])
    manifest.relabel("t", "g-1", "docs", {"b": "new", "unknown": "new"})
    manifest.relabel("t", "g-1", "docs", {})
    found = [
        (item.generation, item.source, item.key)
        for name in ("g-1", "g-2")
        for item in manifest.rows("t", name)
        if item.label_digest == "new"
    ]
    assert found == [("g-1", "docs", "b")]


def test_many_rows(manifest: SqlManifest) -> None:
    rows = [row(f"k{at:05}") for at in range(2_500)]
    manifest.write(rows)
    assert manifest.rows("t", "g-1") == rows


def test_write_is_all_or_nothing(manifest: SqlManifest) -> None:
    good = [row(f"k{at}") for at in range(700)]
    bad = replace(good[0], key="bad", fingerprint=None)  # type: ignore[arg-type]
    with pytest.raises(SourceError):
        manifest.write([*good, bad])
    assert manifest.rows("t", "g-1") == []


def test_generations(manifest: SqlManifest) -> None:
    manifest.write([row("a"), row("b", source="other"), row("c", tenant="u")])
    manifest.copy("t", old="g-1", new="g-2", sources=["other"])
    assert [item.key for item in manifest.rows("t", "g-2")] == ["b"]
    assert manifest.generations("t") == ["g-1", "g-2"]
    manifest.keep("t", ["g-2"])
    assert manifest.generations("t") == ["g-2"]
    assert [item.key for item in manifest.rows("u", "g-1")] == ["c"]
    manifest.keep("u", [])


def test_buried(manifest: SqlManifest) -> None:
    manifest.bury("t", "docs", "abc", at_us=1)
    manifest.bury("t", "docs", "abc", at_us=2)
    assert manifest.buried("t", "docs") == frozenset({"abc"})
    assert manifest.buried("t", "other") == frozenset()


def test_burials_and_the_mark(manifest: SqlManifest) -> None:
    assert manifest.ledger_mark("t") is None
    manifest.note_ledger("t", [("docs", "abc"), ("docs", "abc"), ("docs", "def"), ("other", "abc")], mark=(3, "c"), at_us=1)
    manifest.note_ledger("t", [], mark=(5, "e"), at_us=2)
    assert manifest.burials("t") == {("docs", "abc"), ("docs", "def"), ("other", "abc")}
    assert (manifest.ledger_mark("t"), manifest.ledger_mark("u")) == ((5, "e"), None)
    assert (manifest.burials("u"), manifest.buried_tenants()) == (set(), ["t"])
    with pytest.raises(SourceError):
        manifest.note_ledger("t", [("docs", "never")], mark=(6, None), at_us=3)  # type: ignore[arg-type]  # refused by the second table
    assert ("docs", "never") not in manifest.burials("t")
    assert manifest.ledger_mark("t") == (5, "e")


def test_runs(manifest: SqlManifest) -> None:
    for number in range(5):
        manifest.note_run(IndexRun(f"r{number}", number, number + 1, "done", {"indexed": number}))
    assert [run.run_id for run in manifest.runs(limit=2)] == ["r4", "r3"]
    assert manifest.runs(limit=1)[0].summary == {"indexed": 4}


def test_second_holder_is_refused(tmp_path: Path) -> None:
    first, second = (open_manifest(f"sqlite:///{tmp_path}/m.sqlite") for _ in range(2))
    with first.exclusive(), pytest.raises(SourceError, match="index_busy") as caught, second.exclusive():
        pass
    assert caught.value.retryable
    with second.exclusive():
        pass


def test_killed_holder_lets_go(tmp_path: Path) -> None:
    code = (
        "import os,sys\nfrom connectors.manifest import open_manifest\n"
        "with open_manifest(sys.argv[1]).exclusive():\n    os.kill(os.getpid(), 9)\n"
    )
    url = f"sqlite:///{tmp_path}/m.sqlite"
    assert subprocess.run([sys.executable, "-c", code, url], check=False).returncode == -9
    with open_manifest(url).exclusive():
        pass


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    open_manifest(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE manifest_about SET value = ?", (str(SCHEMA + 1),))
    with pytest.raises(SourceError, match="manifest_newer"):
        open_manifest(f"sqlite:///{path}")


def test_no_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "m.sqlite").write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(SourceError) as caught:
        open_manifest(f"sqlite:///{tmp_path}/m.sqlite")
    assert "sqlite3" not in str(caught.value).lower()
    with pytest.raises(SourceError, match="manifest_url"):
        open_manifest("what is this")


@pytest.mark.parametrize("there", [True, False], ids=["replaced", "removed"])
def test_nothing_is_written_to_a_file_that_nobody_finds_again(tmp_path: Path, there: bool) -> None:
    path, beside = tmp_path / "m.sqlite", tmp_path / "copy"
    manifest = open_manifest(f"sqlite:///{path}")
    manifest.write([row("a")])
    shutil.copyfile(path, beside)
    beside.replace(path) if there else path.unlink()
    for _ in range(2):
        with pytest.raises(SourceError, match="manifest_unavailable"):
            manifest.write([row("b")])
    assert open_manifest(f"sqlite:///{path}").rows("t", "g-1") == ([row("a")] if there else [])


def test_rollback_journal(tmp_path: Path) -> None:
    open_manifest(f"sqlite:///{tmp_path}/m.sqlite").write([row("a")])
    with sqlite3.connect(tmp_path / "m.sqlite") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)  # what a plain connection uses: no WAL
    assert not list(tmp_path.glob("*-wal"))


def test_files_are_for_their_owner(tmp_path: Path) -> None:
    """Also where the folder was made by somebody careless, and a file of an older version is there."""
    tmp_path.chmod(0o755)
    path = tmp_path / "m.sqlite"
    (tmp_path / "m.sqlite-journal").touch(0o644)
    before = os.umask(0)
    try:
        made = open_manifest(f"sqlite:///{path}")
        made.write([row("a")])
        with made.exclusive():
            assert {item.name: item.stat().st_mode & 0o777 for item in tmp_path.iterdir()} == {
                "m.sqlite": 0o600,
                "m.sqlite-journal": 0o600,
                "m.sqlite.lock": 0o600,
            }
        made.close()
        path.chmod(0o644)
        open_manifest(f"sqlite:///{path}").close()
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def gone(key: str, at_us: int, *, content_hash: str = "h") -> Gone:
    return Gone("t", "docs", key, content_hash, at_us, "gone")


def test_what_was_removed(manifest: SqlManifest) -> None:
    """A document may come back and be removed again; forgetting leaves no note of either."""
    manifest.forget_gone("t", "docs", ["a", "b", "c", "d"], [])
    manifest.write([row("a"), row("b"), row("c")])
    manifest.remove([row("a")], [gone("a", 1)])
    manifest.remove([row("b")], [gone("b", 2, content_hash="other")])
    manifest.write([row("c", state="failed")], [gone("c", 3)])
    manifest.remove([], [gone("a", 4), gone("d", 5, content_hash="other")])
    assert [(item.key, item.at_us) for item in manifest.gone(limit=9)] == [("d", 5), ("a", 4), ("c", 3), ("b", 2), ("a", 1)]
    assert [item.at_us for item in manifest.gone(limit=2)] == [5, 4]
    assert manifest.gone(limit=9, source="elsewhere") == []
    manifest.forget_gone("t", "elsewhere", ["a"], ["h"])
    manifest.forget_gone("t", "docs", ["a"], ["other"])
    assert [item.key for item in manifest.gone(limit=9)] == ["c"]
    with pytest.raises(SourceError):
        manifest.remove([row("c")], [gone("e", 1), replace(gone("f", 1), at_us=None)])  # type: ignore[arg-type]
    assert [item.key for item in manifest.rows("t", "g-1")] == ["c"]
    assert [item.key for item in manifest.gone(limit=9)] == ["c"]
    manifest.forget_gone("t", "docs", ["c"], [])


def test_how_runs_over_sources_went(manifest: SqlManifest) -> None:
    first = SourceState("t", "docs", 5, 7)
    manifest.note_states([first, SourceState("t", "other", failures=2, code="source_missing", failed_at_us=9)])
    manifest.note_states([])
    assert manifest.states()[0] == first
    manifest.note_states([replace(first, failures=1, code="x", failed_at_us=11)])
    assert [(state.source, state.failures, state.good_at_us) for state in manifest.states()] == [("docs", 1, 7), ("other", 2, 0)]


def test_old_runs_are_let_go(manifest: SqlManifest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.manifest.KEPT_RUNS", 3)
    for number in range(6):
        manifest.note_run(IndexRun(f"old{number}", 1_000 + number, 2_000, "done", {}))
    assert [run.run_id for run in manifest.runs(limit=9)][:3] == ["old5", "old4", "old3"]
    assert len(manifest.runs(limit=9)) == 3
