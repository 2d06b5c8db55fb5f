"""What goes wrong with one tenant is raised when all others are taken care of: their removals and restrictions do not wait for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.folder import Folder
from connectors.sqlite_documents import SqliteDocuments, partition_name
from router.domain import Source
from router.errors import PointsmanError, SourceError
from router.ingest.build import index_sources
from router.ingest.workshop import SourceJob
from tests.ingest_world import DOCUMENT, ENVELOPE, RULES, TENANT, World

OTHER = "contoso"
DECLARED = frozenset({"docs", "handbook"})


class Two(World):
    """The world of one tenant, and a second one behind it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.record = lambda tenant, changes: self.changes.extend(changes)
        self.write("labels.yaml", RULES)
        self.write("a.md", "# A\n\nA text.\n")
        self.other = root / "handbook"
        self.other.mkdir()
        (self.other / "labels.yaml").write_text(RULES)
        (self.other / "s.md").write_text("# S\n\nOld of the other.\n")
        index_sources(self.both(), self.workshop(), declared=DECLARED)

    def both(self) -> list[SourceJob]:
        return [*self.jobs(), SourceJob(Source("handbook", OTHER, "folder", ENVELOPE, 1, "", ""), Folder(self.other))]

    def generations(self, tenant: str) -> list[tuple[str, bool, bool]]:
        return [(one.name, one.current, one.whole) for one in self.store.generations(tenant)]


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


def test_a_damaged_store_holds_up_no_other_tenant(two: Two, tmp_path: Path) -> None:
    file = tmp_path / "store" / partition_name(TENANT) / "g-000001.sqlite"
    for beside in file.parent.glob("g-000001.sqlite*"):
        beside.unlink()
    file.write_bytes(b"x" * 8192)
    two.store = SqliteDocuments(tmp_path / "store", lambda: DOCUMENT)
    (two.other / "s.md").unlink()
    (two.other / "n.md").write_text("# N\n\nNew of the other.\n")
    with pytest.raises(SourceError) as caught:
        index_sources(two.both(), two.workshop(), declared=DECLARED)
    assert (caught.value.code, caught.value.exit_code) == ("store_corrupt", 4)
    assert [info.document_id for info in two.store.documents(OTHER)] == ["handbook/n.md"]


@pytest.mark.parametrize("fails", ["comparison", "last look"])
def test_a_full_build_that_fails_holds_up_no_other_tenant(two: Two, fails: str) -> None:
    jobs = two.both()
    (two.other / "s.md").write_text("# S\n\nNew of the other.\n")

    def judge(tenant: str, old: str, new: str) -> bool:
        if tenant == TENANT and fails == "comparison":
            raise SourceError("compare_incomplete", "a search failed", "try again")
        if tenant == TENANT:
            jobs[0].documents.entries = gone  # type: ignore[method-assign]
        return True

    def gone() -> None:
        raise SourceError("source_missing", "gone away", "mount it", retryable=True)

    with pytest.raises(PointsmanError) as caught:
        index_sources(jobs, two.workshop(), declared=DECLARED, full=True, judge=judge)
    assert caught.value.code == ("compare_incomplete" if fails == "comparison" else "source_missing")
    assert two.generations(TENANT) == [("g-000001", True, True), ("g-000002", False, True)]
    assert two.generations(OTHER) == [("g-000001", False, True), ("g-000002", True, True)]


def test_what_the_first_tenant_makes_stops_without_the_next(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that was emptied while text of a full build was made: nothing of its tenant is shown, all of the next one is."""
    monkeypatch.setattr("router.ingest.build.LOOK_AGAIN_S", 0.0)
    for at in range(3):
        two.write(f"b{at}.md", f"# B\n\nText {at}.\n")
    jobs = two.both()
    documents, real, looks = jobs[0].documents, jobs[0].documents.entries, []

    def entries() -> object:
        looks.append(1)
        if len(looks) == 3:  # before the build, at its beginning, between two batches
            for path in sorted(two.docs.iterdir()):
                path.unlink()
        return real()

    documents.entries = entries  # type: ignore[method-assign, assignment]
    with pytest.raises(SourceError) as caught:
        index_sources(jobs, two.workshop(), declared=DECLARED, full=True)
    assert caught.value.code == "source_empty"
    assert [one for one in two.generations(TENANT) if one[1]] == [("g-000001", True, True)]
    assert [one for one in two.generations(OTHER) if one[1]] == [("g-000002", True, True)]
