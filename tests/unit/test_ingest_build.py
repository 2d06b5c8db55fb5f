"""The ingestion line over real folders, the real store, manifest, parser processes and embedder."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from connectors.folder import Folder
from connectors.manifest import open_manifest
from router.domain import Embedded, LabelChange, ModelCard, Purpose, Source, label_digest
from router.errors import LedgerError, SourceError, UsageError
from router.filters import Always, Has, compile_filter
from router.ingest import build
from router.ingest.reconcile import forget_document, forget_everywhere, index_status, verify_index
from router.ingest.repair import repair_index
from router.ingest.workshop import SourceJob
from tests.ingest_world import DOCUMENT, RULES, TENANT, World, embedder
from tests.unit.test_mending import DAMAGES

HR_ONLY = RULES + "  - { match: 'hr/**', groups: [corp:hr], sensitivity: confidential }\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write("labels.yaml", RULES)
    made.write("a.md", "# Leave\n\nThirty days a year.\n")
    made.write("hr/b.txt", "Sick pay\n\nSix weeks.\n")
    return made


def figures(report: Any) -> tuple[int, int, int, int]:
    return report.indexed, report.unchanged, report.relabelled, report.removed


def test_first_and_second_run(world: World) -> None:
    first = world.index()
    assert (first.listed, figures(first), first.failures) == (2, (2, 0, 0, 0), [])
    assert world.ids() == ["a.md", "hr/b.txt"]
    assert world.text("a.md") == "Thirty days a year."
    assert [(change.document_id, change.old, change.cause) for change in world.changes] == [
        ("docs/a.md", None, "indexed"),
        ("docs/hr/b.txt", None, "indexed"),
    ]
    assert figures(world.index()) == (0, 2, 0, 0)
    assert len(world.changes) == 2


def test_second_run_embeds_and_parses_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.index()
    monkeypatch.setattr("router.ingest.parse.Parser.start", lambda *_: pytest.fail("parsed"))

    class Models:
        card = embedder().card

    assert figures(world.index(models=Models())) == (0, 2, 0, 0)
    world.write("a.md", (world.docs / "a.md").read_bytes(), old=False)  # touched, the same bytes
    assert figures(world.index(models=Models())) == (0, 2, 0, 0)


def test_changed_added_and_removed(world: World) -> None:
    world.index()
    world.write("a.md", "# Leave\n\nThirty-two days a year.\n", old=False)
    world.write("c.md", "# New\n\nSomething else.\n")
    (world.docs / "hr/b.txt").unlink()
    assert figures(world.index()) == (2, 0, 0, 1)
    assert world.ids() == ["a.md", "c.md"]
    assert world.text("a.md") == "Thirty-two days a year."
    assert [(change.document_id, change.cause) for change in world.changes[2:]] == [
        ("docs/hr/b.txt", "gone"),
        ("docs/c.md", "indexed"),
    ]


def test_same_bytes_twice_are_two_documents(world: World) -> None:
    world.write("copy.md", (world.docs / "a.md").read_bytes())
    world.index()
    assert world.ids() == ["a.md", "copy.md", "hr/b.txt"]


def test_label_change_touches_neither_text_nor_vectors(world: World) -> None:
    world.index()
    before = world.load("docs/hr/b.txt#0")[0]
    world.write("labels.yaml", HR_ONLY)
    world.changes.clear()

    class Models:
        card = embedder().card

    assert figures(world.index(models=Models())) == (0, 1, 1, 0)
    after = world.load("docs/hr/b.txt#0")[0]
    assert (after.chunk, after.token_vectors) == (before.chunk, before.token_vectors)
    assert after.labels["groups"] == frozenset({"corp:hr"})
    assert world.changes == [
        LabelChange(
            "docs", "docs/hr/b.txt", label_digest("docs", before.labels), label_digest("docs", after.labels), "relabelled"
        )
    ]
    assert figures(world.index()) == (0, 2, 0, 0)


def test_front_matter_still_narrows_after_a_change_of_rules(world: World) -> None:
    world.write("n.md", "---\ngroups: [corp:hr]\nsensitivity: restricted\n---\n# N\n\nText.\n")
    world.index()
    world.write("labels.yaml", RULES.replace("internal", "confidential"))
    assert world.index().relabelled == 2
    assert world.labels()["n.md"]["groups"] == frozenset({"corp:hr"})
    assert world.labels()["n.md"]["sensitivity"] == 3
    assert world.labels()["a.md"]["sensitivity"] == 2


def test_sidecar_narrows_and_is_no_document(world: World) -> None:
    world.write("a.md.labels.yaml", "groups: [corp:hr]\n")
    world.index()
    assert world.ids() == ["a.md", "hr/b.txt"]
    assert world.labels()["a.md"]["groups"] == frozenset({"corp:hr"})
    (world.docs / "a.md.labels.yaml").unlink()
    assert world.index().relabelled == 1
    assert world.labels()["a.md"]["groups"] == frozenset({"corp:all", "corp:hr"})


def test_lost_documents_disappear(world: World) -> None:
    for name in ("d.md", "e.md", "f.md", "g.md"):
        world.write(name, f"# {name}\n\nText of {name}.\n")
    world.index()
    world.write("d.md", b"\x00\x01\x02\x03" * 50, old=False)
    world.write("e.md", "---\ntenant: contoso\n---\n# e\n\nText.\n", old=False)
    world.write("f.md", "---\ngroups: [\n---\n# f\n\nText.\n", old=False)
    world.write("labels.yaml", RULES + "  - { match: g.md, groups: [corp:board] }\n")
    report = world.index()
    assert world.failed(report) == {
        "d.md": "not_text",
        "e.md": "other_tenant",
        "f.md": "bad_front_matter",
        "g.md": "outside_envelope",
    }
    assert world.ids() == ["a.md", "hr/b.txt"]
    assert report.removed == 4
    again = world.index()
    assert world.failed(again) == world.failed(report)
    assert figures(again) == (0, 2, 0, 0)
    world.write("labels.yaml", RULES)
    world.write("e.md", "# e\n\nText.\n", old=False)
    assert figures(world.index()) == (2, 2, 0, 0)
    assert world.ids() == ["a.md", "e.md", "g.md", "hr/b.txt"]


def test_without_labels_file_nothing_is_indexed(world: World) -> None:
    world.index()
    (world.docs / "labels.yaml").unlink()
    report = world.index()
    assert set(world.failed(report).values()) == {"no_labels"}
    assert world.ids() == []


class Unused:
    """An embedder that must not be asked."""

    card = embedder().card


def admitted(world: World) -> list[str]:
    """Whom the widest filter finds that there can be."""
    f = compile_filter(Has("sensitivity"), DOCUMENT)
    assert not isinstance(f, Always)
    return list(world.store.admitted(TENANT, f))


@pytest.mark.parametrize("inside", [True, False])
def test_an_emptied_folder_is_hidden_and_kept(world: World, inside: bool) -> None:
    """A mount that is not there lists nothing: nobody finds its documents, and when it is back nothing is made again."""
    labels = (world.docs if inside else world.root) / "labels.yaml"
    (world.docs / "labels.yaml").rename(labels)
    folder = Folder(world.docs) if inside else Folder(world.docs, labels=labels)
    world.jobs = lambda: [SourceJob(world.source, folder)]  # type: ignore[method-assign]
    world.index()
    before = world.labels()
    assert len(admitted(world)) == 2
    world.docs.rename(world.root / "away")
    world.docs.mkdir()
    assert world.index(dry_run=True).error is not None
    assert len(admitted(world)) == 2
    for relabelled in (2, 0):
        report = world.index(models=Unused())
        assert report.error is not None
        assert (report.error.code, figures(report)) == ("source_empty", (0, 0, relabelled, 0))
        assert (admitted(world), world.ids()) == ([], ["a.md", "hr/b.txt"])
    assert world.manifest.gone() == []
    said = {finding.detail.partition(":")[0] for finding in verify_index(world.jobs(), world.workshop())}
    assert "source_empty" in said
    repair_index(world.jobs(), world.workshop(), declared=frozenset({"docs"}))
    with pytest.raises(SourceError, match="source_empty"):
        world.index(full=True)
    assert (admitted(world), world.ids()) == ([], ["a.md", "hr/b.txt"])
    world.docs.rmdir()
    (world.root / "away").rename(world.docs)
    assert figures(world.index(models=Unused())) == (0, 0, 2, 0)
    assert (len(admitted(world)), world.labels()) == (2, before)
    assert_all_recorded(world)


def test_a_folder_that_says_it_is_empty_is_believed(world: World) -> None:
    """Its labels, or any file, say that it is the one that is meant."""
    world.index()
    (world.docs / "a.md").unlink()
    (world.docs / "hr/b.txt").unlink()
    report = world.index()
    assert (report.error, figures(report), world.ids()) == (None, (0, 0, 0, 2), [])
    (world.docs / "labels.yaml").unlink()
    (world.docs / "hr").rmdir()
    assert world.index().error is None, "nothing is indexed of it any more"


def test_a_hidden_file_says_nothing(world: World) -> None:
    world.index()
    for path in (world.docs / "a.md", world.docs / "hr/b.txt", world.docs / "labels.yaml"):
        path.unlink()
    (world.docs / "hr").rmdir()
    world.write(".not-mounted", "")
    assert world.failed(world.index()) == {}
    assert admitted(world) == []
    world.write("read.me", "")
    assert figures(world.index()) == (0, 0, 0, 2)


def test_a_broken_labels_file_changes_nothing(world: World) -> None:
    world.index()
    world.write("labels.yaml", "rules: [ { match: '**'")
    report = world.index()
    assert report.error is not None
    assert report.error.code == "labels_invalid"
    assert world.ids() == ["a.md", "hr/b.txt"]
    (world.root / "docs").rename(world.root / "away")
    report = world.index()
    assert report.error is not None
    assert report.error.code == "source_missing"
    assert world.ids() == ["a.md", "hr/b.txt"]
    assert world.manifest.runs(limit=1)[0].outcome == "failed"


def test_other_sources_go_on(world: World) -> None:

    broken = SourceJob(Source("broken", TENANT, "folder", frozenset(), 0, "", ""), Folder(world.root / "nowhere"))
    report = build.index_sources([broken, *world.jobs()], world.workshop())
    assert report.sources[0].error is not None
    assert report.sources[1].indexed == 2


def test_undeclared_sources_are_removed(world: World) -> None:
    world.index()
    build.index_sources([], world.workshop())
    assert world.ids() == ["a.md", "hr/b.txt"]  # not a run over all sources

    (world.root / "other").mkdir()
    other = SourceJob(Source("other", TENANT, "folder", frozenset(), 0, "", ""), Folder(world.root / "other"))
    build.index_sources([other], world.workshop(), declared=frozenset({"other"}))
    assert world.ids() == []
    assert {change.cause for change in world.changes[2:]} == {"gone"}


def stored_bytes(world: World) -> bytes:
    return b"".join(path.read_bytes() for path in world.root.glob("store/**/*") if path.is_file())


def second_tenant(world: World) -> SourceJob:
    """Two generations of a document in another tenant's partition."""
    other = SourceJob(Source("other", "contoso", "folder", world.source.groups, 1, "", ""), Folder(world.root / "other"))
    other_docs = world.root / "other"
    other_docs.mkdir()
    (other_docs / "labels.yaml").write_text(RULES)
    (other_docs / "x.md").write_text("# X\n\nThe word is quizzaciously.\n")
    world.record = lambda tenant, changes: world.changes.extend(changes)  # type: ignore[method-assign]
    build.index_sources([*world.jobs(), other], world.workshop())
    build.index_sources([other], world.workshop(), full=True)
    assert world.store.tenants() == ["contoso", TENANT]
    assert b"quizzaciously" in stored_bytes(world)
    return other


def test_a_tenant_without_sources_is_cleared(world: World) -> None:
    """Its last source was withdrawn or moved: nothing of its text is left, and that is on record."""
    second_tenant(world)
    assert [
        (finding.tenant, finding.source, finding.document_id, finding.kind)
        for finding in verify_index(world.jobs(), world.workshop())
    ] == [("contoso", "other", "other/x.md", "should_not_be_indexed")]
    dry = build.index_sources(world.jobs(), world.workshop(), declared=frozenset({"docs"}), dry_run=True)
    assert [(item.source, item.tenant, item.removed) for item in dry.sources] == [("docs", TENANT, 0), ("other", "contoso", 1)]
    assert b"quizzaciously" in stored_bytes(world)
    report = build.index_sources(world.jobs(), world.workshop(), declared=frozenset({"docs"}))
    assert [(item.source, item.tenant, item.removed) for item in report.sources] == [("docs", TENANT, 0), ("other", "contoso", 1)]
    assert b"quizzaciously" not in stored_bytes(world)
    assert world.manifest.generations("contoso") == []
    assert (world.changes[-1].document_id, world.changes[-1].new, world.changes[-1].cause) == ("other/x.md", None, "gone")
    assert verify_index(world.jobs(), world.workshop()) == []
    again = build.index_sources(world.jobs(), world.workshop(), declared=frozenset({"docs"}))
    assert [item.source for item in again.sources] == ["docs"]
    assert world.ids() == ["a.md", "hr/b.txt"]


def test_no_declared_source_at_all(world: World) -> None:
    world.index()
    build.index_sources([], world.workshop(), declared=frozenset())
    assert world.ids() == []
    assert b"Thirty days" not in stored_bytes(world)


def test_store_files_are_for_their_owner(world: World) -> None:
    before = os.umask(0)
    try:
        world.index()
        second = SourceJob(Source("second", TENANT, "folder", world.source.groups, 1, "", ""), Folder(world.docs))
        build.index_sources([second], world.workshop(), full=True)  # a copy of the generation before
        (partition,) = (world.root / "store").iterdir()
        modes = {path.name: path.stat().st_mode & 0o777 for path in partition.iterdir()}
        assert {"current", "g-000001.sqlite", "g-000002.sqlite"} <= modes.keys()
        assert set(modes.values()) == {0o600}
        (partition / "g-000002.sqlite").chmod(0o644)  # of an older version
        (world.docs / "a.md").unlink()
        build.index_sources([second], world.workshop())
        assert (partition / "g-000002.sqlite").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def test_full_build_over_a_damaged_store(world: World) -> None:
    """A build of all that there is needs nothing of the old file; one of a part needs the rest of it, and says so."""
    world.index()
    shown = {change.document_id: change.new for change in world.changes}
    (partition,) = (world.root / "store").iterdir()
    (partition / f"{world.store.generation(TENANT)}.sqlite").write_bytes(b"overwritten " * 5_000)
    world.store.close()
    with pytest.raises(SourceError, match="store_corrupt"):
        world.index()
    other = SourceJob(Source("other", TENANT, "folder", world.source.groups, 1, "", ""), Folder(world.docs))
    with pytest.raises(SourceError, match="store_corrupt"):
        build.index_sources([other], world.workshop(), full=True)
    (world.docs / "a.md").unlink()
    world.changes.clear()
    report = build.index_sources(world.jobs(), world.workshop(), full=True, declared=frozenset({"docs"}))
    assert figures(report.sources[0]) == (1, 0, 0, 0)
    assert world.ids() == ["hr/b.txt"]
    assert [(change.document_id, change.old, change.new) for change in world.changes] == [
        ("docs/a.md", shown["docs/a.md"], None)  # what the manifest says was shown is gone on record
    ]
    assert verify_index(world.jobs(), world.workshop()) == []


def test_dry_run_changes_nothing(world: World) -> None:
    world.settle()
    assert figures(world.index(dry_run=True)) == (2, 0, 0, 0)
    assert world.store.generation(TENANT) is None
    world.index()
    world.write("labels.yaml", HR_ONLY)
    world.write("c.md", "# New\n\nText.\n")
    (world.docs / "a.md").unlink()
    changes = list(world.changes)
    assert figures(world.index(dry_run=True)) == (1, 0, 1, 1)
    assert world.ids() == ["a.md", "hr/b.txt"]
    assert world.changes == changes
    assert len(world.manifest.runs(limit=9)) == 1


def test_purpose_carries_the_class(world: World) -> None:
    seen: list[Purpose] = []

    class Models:
        card = embedder().card
        count_tokens = staticmethod(embedder().count_tokens)

        def embed_chunks(self, texts: Sequence[str], purpose: Purpose) -> list[Embedded]:
            seen.append(purpose)
            return embedder().embed_chunks(texts, purpose)

    world.write("labels.yaml", HR_ONLY)
    report = world.report(models=Models())
    assert [purpose.classes for purpose in seen] == [frozenset({1}), frozenset({2})]
    assert {(purpose.principal, purpose.name, purpose.decision_id) for purpose in seen} == {
        ("dev#indexer", "embed_chunks", report.run_id)
    }


def test_another_model_is_refused_until_full(world: World) -> None:
    world.index()

    class Models:
        card = ModelCard("other", "0" * 64, 384, 64, 256)
        count_tokens = staticmethod(embedder().count_tokens)
        embed_chunks = staticmethod(embedder().embed_chunks)

    with pytest.raises(UsageError, match="model_changed"):
        world.index(models=Models())
    assert world.index(models=Models(), full=True).indexed == 2
    assert index_status([world.source], world.store, world.manifest).sources[0].models == (Models.card.id,)
    assert world.index(models=Models()).unchanged == 2


# --- order, crashes, generations --------------------------------------------------------------------------------------


class Killed(BaseException):
    """What kill -9 looks like from inside: nothing after it runs."""


class Breaking:
    """Counts the calls that change something and kills before or after the one with number `at`."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.at, self.after, self.calls, self.log = at, after, 0, list[str]()

    def wrap(self, name: str, port: Any) -> Any:
        return _Port(self, name, port)

    def called(self, name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        self.log.append(name)
        if self.calls == self.at and not self.after:
            raise Killed
        result = call(*args, **kwargs)
        if self.calls == self.at:
            raise Killed
        return result


class _Port:
    CHANGING = frozenset(
        {"put", "relabel", "delete", "forget", "begin_generation", "switch", "write", "remove", "copy", "keep", "bury"}
    )

    def __init__(self, breaking: Breaking, name: str, port: Any) -> None:
        self._breaking, self._name, self._port = breaking, name, port

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name not in self.CHANGING:
            return found
        return lambda *args, **kwargs: self._breaking.called(f"{self._name}.{name}", found, *args, **kwargs)


def change_everything(world: World) -> None:
    world.write("a.md", "# Leave\n\nThirty-two days.\n", old=False)
    world.write("c.md", "# New\n\nText of c.\n")
    world.write("bad.md", "---\ntenant: contoso\n---\n# x\n\ny\n", old=False)
    (world.docs / "gone.md").unlink(missing_ok=True)
    world.write("labels.yaml", HR_ONLY)


def start(root: Path) -> World:
    world = World(root)
    world.write("labels.yaml", RULES)
    for name in ("a.md", "bad.md", "gone.md", "hr/b.md"):
        world.write(name, f"# {name}\n\nText of {name}.\n")
    world.index()
    return world


def contents(world: World) -> dict[str, Any]:
    return {key: (world.text(key), dict(labels)) for key, labels in world.labels().items()}


@pytest.mark.parametrize("full", [False, True])
def test_crash_anywhere(tmp_path: Path, full: bool) -> None:
    """Killed before or after any change of store or manifest; the next run ends where an undisturbed one ends."""
    calm = start(tmp_path / "calm")
    change_everything(calm)
    counting = Breaking(0, after=False)
    calm.wrap = counting.wrap
    calm.index(full=full)
    wanted, number = contents(calm), counting.calls
    assert set(wanted) == {"a.md", "c.md", "hr/b.md"}
    assert number >= 6
    for at, after in itertools.product(range(1, number + 1), (False, True)):
        world = start(tmp_path / f"{at}-{after}")
        change_everything(world)
        world.wrap = Breaking(at, after=after).wrap
        with pytest.raises(Killed):
            world.index(full=full)
        world.wrap = lambda _, port: port
        world.index()
        assert contents(world) == wanted, (at, after)
        assert verify_index(world.jobs(), world.workshop()) == []
        assert_all_recorded(world)


def assert_all_recorded(world: World) -> None:
    """The last record of each document says under which labels the store shows it."""
    last = {change.document_id: change.new for change in world.changes}
    shown = {info.document_id: info.label_digest for info in world.store.documents(TENANT)}
    assert {name: digest for name, digest in last.items() if digest is not None} == shown


def test_crash_and_back_again(tmp_path: Path) -> None:
    """A change that reached the store but not the manifest, and is taken back at its source before the next run."""
    world = start(tmp_path)
    before = contents(world)
    old = {path: path.read_bytes() for path in world.docs.rglob("*") if path.is_file()}
    for at in range(1, 12):
        change_everything(world)
        world.wrap = Breaking(at, after=True).wrap
        with contextlib.suppress(Killed):
            world.index()
        world.wrap = lambda _, port: port
        (world.docs / "c.md").unlink()
        for path, data in old.items():
            world.write(str(path.relative_to(world.docs)), data)
        world.index()
        assert contents(world) == before, at
        assert_all_recorded(world)


def test_record_comes_before_the_store(tmp_path: Path) -> None:
    """When the ledger cannot record, nothing that askers see changes."""
    world = start(tmp_path)
    before = contents(world)
    change_everything(world)

    def refuse(tenant: str, changes: Sequence[LabelChange]) -> None:
        raise LedgerError("ledger_full", "the ledger cannot record")

    real, world.record = world.record, refuse  # type: ignore[method-assign]
    for full in (False, True):
        with pytest.raises(LedgerError):
            world.index(full=full)
        assert contents(world) == before
    world.record = real  # type: ignore[method-assign]
    world.index()
    assert "gone.md" not in contents(world)


def test_full_is_atomic(tmp_path: Path) -> None:
    world = start(tmp_path)
    before, first = contents(world), world.store.generation(TENANT)
    change_everything(world)
    seen: list[dict[str, Any]] = []
    report = world.index(full=True, progress=lambda _: seen.append(contents(world)))
    assert (report.indexed, report.removed, report.relabelled) == (3, 1, 1)
    assert len(seen) == 4
    assert all(set(content) == {"a.md", "bad.md", "hr/b.md"} for content in seen), "what is gone is gone at once"
    assert all(
        {key: text for key, (text, _) in content.items()}.items() <= {key: text for key, (text, _) in before.items()}.items()
        for content in seen
    )
    assert all(content["hr/b.md"][1]["groups"] == {"corp:hr"} for content in seen), "and labels hold at once"
    assert set(contents(world)) == {"a.md", "c.md", "hr/b.md"}
    assert world.store.generation(TENANT) != first
    assert figures(world.index()) == (0, 3, 0, 0)
    gone = {change.document_id for change in world.changes if change.new is None}
    assert gone == {"docs/bad.md", "docs/gone.md"}


def test_full_of_one_source_keeps_the_others(world: World) -> None:

    other = World(world.root / "second")
    other.write("labels.yaml", RULES)
    other.write("x.md", "# X\n\nText.\n")
    second = SourceJob(Source("second", TENANT, "folder", world.source.groups, 1, "", ""), Folder(other.docs))
    build.index_sources([*world.jobs(), second], world.workshop())
    build.index_sources([second], world.workshop(), full=True)
    assert world.ids() == ["a.md", "hr/b.txt", "second/x.md"]
    report = build.index_sources([*world.jobs(), second], world.workshop())
    assert [source.unchanged for source in report.sources] == [2, 1]


def test_interrupt_leaves_what_was_stored(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "BATCH_DOCUMENTS", 1)

    def stop(progress: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.index(progress=stop)
    assert world.ids() == ["a.md"]
    assert world.manifest.runs(limit=1)[0].outcome == "interrupted"
    assert figures(world.index()) == (1, 1, 0, 0)


def test_two_runs_at_once(world: World, tmp_path: Path) -> None:
    other = open_manifest(f"sqlite:///{tmp_path}/manifest.sqlite")
    with other.exclusive(), pytest.raises(SourceError, match="index_busy"):
        world.index()


def test_progress(world: World) -> None:
    seen: list[Any] = []
    world.index(progress=seen.append)
    assert [(item.source, item.done, item.total) for item in seen] == [("docs", 1, 2), ("docs", 2, 2)]
    assert seen[-1].chunks == 2
    assert seen[-1].left_s == 0


# --- status, verify, forget -------------------------------------------------------------------------------------------


def test_status(world: World) -> None:
    world.write("bad.bin", b"\x89PNG....")
    world.index()
    (status,) = index_status([world.source], world.store, world.manifest).sources
    assert (status.documents, status.chunks, dict(status.failures)) == (2, 2, {"unsupported": 1})
    assert status.newest_us >= status.oldest_us > 0


def test_verify_names_what_the_next_run_mends(world: World) -> None:
    for name in ("d.md", "e.md"):
        world.write(name, f"# {name}\n\nText of {name}.\n")
    world.index()
    assert verify_index(world.jobs(), world.workshop()) == []
    world.store.delete(TENANT, ["docs/d.md"])
    generation = world.store.generation(TENANT)
    (row,) = [row for row in world.manifest.rows(TENANT, generation) if row.key == "e.md"]
    world.manifest.remove([row])
    stored = world.load("docs/a.md#0")[0]
    world.store.relabel(TENANT, {"docs/a.md": {**stored.labels, "sensitivity": 3}})
    (world.docs / "hr/b.txt").unlink()
    world.write("new.md", "# new\n\nText.\n")
    found = {(finding.document_id, finding.kind) for finding in verify_index(world.jobs(), world.workshop())}
    assert found == {
        ("docs/d.md", "missing_in_store"),
        ("e.md", "not_indexed"),
        ("docs/a.md", "labels_differ"),
        ("docs/hr/b.txt", "should_not_be_indexed"),
        ("new.md", "not_indexed"),
    }
    world.index()
    assert verify_index(world.jobs(), world.workshop()) == []
    assert world.labels()["a.md"]["sensitivity"] == 1


def test_forget(world: World) -> None:
    secret = "# Secret\n\nThe unforgettable word is quizzaciously.\n"
    world.write("s.md", secret)
    world.write("hr/same.md", secret)
    world.index()
    world.index(full=True)
    forgotten = forget_document(world.source, "docs/s.md", world.workshop())
    assert forgotten.documents == ("docs/hr/same.md", "docs/s.md")
    assert forgotten.generations == 2
    assert world.ids() == ["a.md", "hr/b.txt"]
    for path in (*world.root.glob("store/**/*"), *world.root.glob("manifest*")):
        assert not path.is_file() or b"quizzaciously" not in path.read_bytes(), path
    assert [change.cause for change in world.changes[-2:]] == ["forgotten", "forgotten"]
    again = world.index()
    assert (figures(again), again.failures) == ((0, 2, 0, 0), [])
    assert {note.reason for note in again.notes} == {"forgotten"}
    world.write("again.md", secret)
    world.index()
    world.index(full=True)
    assert world.ids() == ["a.md", "hr/b.txt"]
    world.write("s.md", "# Secret\n\nNothing to see.\n", old=False)
    assert world.index().indexed == 1


def test_forget_every_version(world: World) -> None:
    """Each generation may hold another version; none of them comes back."""
    first, second = "# A\n\nThe first quizzaciously.\n", "# A\n\nThe second quizzaciously.\n"
    world.write("a.md", first)
    world.index()
    world.index(full=True)
    world.write("a.md", second, old=False)
    world.index()
    forgotten = forget_document(world.source, "docs/a.md", world.workshop(), Folder(world.docs))
    assert forgotten.content_hashes == tuple(sorted(hashlib.sha256(text.encode()).hexdigest() for text in (first, second)))
    for text in (second, first):
        world.write("a.md", text, old=False)
        for full in (False, True):
            world.index(full=full)
            assert world.ids() == ["hr/b.txt"]
    assert b"quizzaciously" not in stored_bytes(world)


def test_forget_what_was_edited_since(world: World) -> None:
    """The file was changed after the last run: what stands there now is kept out, too."""
    world.index()
    world.write("a.md", "# Leave\n\nThirty days a year. \n", old=False)
    forget_document(world.source, "docs/a.md", world.workshop(), Folder(world.docs))
    for full in (False, True):
        assert {note.reason for note in world.index(full=full).notes} == {"forgotten"}
        assert world.ids() == ["hr/b.txt"]
    (world.docs / "hr/b.txt").unlink()
    forget_document(world.source, "docs/hr/b.txt", world.workshop(), Folder(world.docs))  # nothing stands there any more
    forget_document(world.source, "docs/a.md", world.workshop(), Folder(world.root / "nowhere"))  # a source that is away
    assert world.ids() == []


def test_forget_where_no_source_speaks(world: World) -> None:
    """The source was withdrawn, or it is another tenant's by now."""
    other = second_tenant(world)
    asked: list[str] = []

    def documents(source: Source) -> Folder:
        asked.append(source.name)
        return Folder(world.docs)

    moved = Source("other", TENANT, "folder", world.source.groups, 1, "", "")
    for declared in ({"docs": world.source}, {"docs": world.source, "other": moved}):
        forgotten = forget_everywhere(declared, "other/x.md", world.workshop(), documents)
        assert (forgotten.documents, len(forgotten.content_hashes)) == (("other/x.md",), 1)
        assert b"quizzaciously" not in stored_bytes(world)
        build.index_sources([other], world.workshop(), full=True)
        assert list(world.store.documents("contoso")) == []
    assert len(world.manifest.buried(TENANT, "other")) == 1  # nor comes it back in the tenant that it moved to
    assert forget_everywhere({"docs": world.source}, "docs/a.md", world.workshop(), documents).generations == 1
    assert asked == ["other", "docs"]


def test_forget_survives_a_crash(tmp_path: Path) -> None:
    for at, after in itertools.product(range(1, 4), (False, True)):
        world = start(tmp_path / f"{at}-{after}")
        world.wrap = Breaking(at, after=after).wrap
        with pytest.raises(Killed):
            forget_document(world.source, "docs/a.md", world.workshop())
        world.wrap = lambda _, port: port
        if (at, after) == (1, False):
            continue  # nothing had begun
        world.index()
        assert "a.md" not in world.ids(), (at, after)
        assert verify_index(world.jobs(), world.workshop()) == []


@pytest.mark.parametrize("how", ["overwritten", "a lost word", "the disk is full"])
def test_forget_beside_damage(world: World, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous generation is damaged, or cannot be written anew: what is shown goes all the same."""
    world.write("s.md", "# Secret\n\nThe word is quizzaciously.\n")
    world.index()
    world.index(full=True)
    (partition,) = (world.root / "store").iterdir()
    world.store.close()
    if how == "overwritten":
        (partition / "g-000001.sqlite").write_bytes(b"\0garbage" * 4_000)
    elif how == "a lost word":
        con = apsw.Connection(str(partition / "g-000001.sqlite"))
        con.execute(DAMAGES["a lost word"])
        con.close()
    else:

        def full(*_: Any) -> int:
            raise SourceError("store_full", "the disk of the document store is full")

        monkeypatch.setattr(world.store, "forget", full)
        with pytest.raises(SourceError, match="store_full"):
            forget_document(world.source, "docs/s.md", world.workshop())
        assert "s.md" not in world.ids()
        monkeypatch.undo()
    forgotten = forget_document(world.source, "docs/s.md", world.workshop())
    assert forgotten.let_go == (() if how == "the disk is full" else ("g-000001",))
    assert "s.md" not in world.ids()
    assert b"quizzaciously" not in stored_bytes(world)
    assert world.manifest.generations(TENANT) == [one.name for one in world.store.generations(TENANT)]
    world.index()
    assert "s.md" not in world.ids()
    assert verify_index(world.jobs(), world.workshop()) == []


def test_forget_where_the_shown_one_is_damaged(world: World) -> None:
    """Nothing can be erased from it; but the content is kept out of what is built in its place, and its file goes."""
    world.write("s.md", "# Secret\n\nThe word is quizzaciously.\n")
    world.index()
    (partition,) = (world.root / "store").iterdir()
    world.store.close()
    place = partition / f"{world.store.generation(TENANT)}.sqlite"
    place.write_bytes(place.read_bytes()[:4096].replace(b"SQLite", b"etiLQS") + b"quizzaciously" * 900)
    with pytest.raises(SourceError, match="store_corrupt") as refused:
        forget_document(world.source, "docs/s.md", world.workshop())
    assert "index --full" in refused.value.hint
    world.index(full=True)
    assert "s.md" not in world.ids()
    assert b"quizzaciously" not in stored_bytes(world)


def test_forget_unknown(world: World) -> None:
    world.index()
    with pytest.raises(UsageError, match="document_unknown"):
        forget_document(world.source, "docs/never.md", world.workshop())
    for document_id in ("docs/never.md", "elsewhere/x", "x"):
        with pytest.raises(UsageError, match="document_unknown"):
            forget_everywhere({"docs": world.source}, document_id, world.workshop(), lambda _: Folder(world.docs))
