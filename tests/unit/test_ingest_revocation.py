"""What may no longer be seen goes first, how long that takes is measured, and what was there is remembered without its text."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connectors.folder import Folder
from router.domain import Revocation, Source
from router.errors import SourceError, UsageError
from router.ingest import build
from router.ingest.reconcile import forget_document
from router.ingest.workshop import SourceJob
from tests.ingest_world import RULES, TENANT, World

NARROWED = RULES + "  - { match: '{key}', groups: [corp:hr], sensitivity: confidential }\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write("labels.yaml", RULES)
    made.write("a.md", "# Leave\n\nThirty days a year.\n")
    made.write("z.md", "# Sick pay\n\nSix weeks.\n")
    return made


def second_source(world: World, tenant: str = TENANT) -> tuple[World, SourceJob]:
    other = World(world.root / "second")
    other.write("labels.yaml", RULES)
    other.write("x.md", "# X\n\nText.\n")
    return other, SourceJob(Source("second", tenant, "folder", world.source.groups, 1, "", ""), Folder(other.docs))


class Watched:
    """The store, and in which order it was changed."""

    def __init__(self, store: Any, told: Callable[[str, Any], None]) -> None:
        self._store, self._told = store, told

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, tenant: str, documents: Any, **options: Any) -> None:
        for document in documents:
            self._told("put", document.document_id)
        self._store.put(tenant, documents, **options)

    def delete(self, tenant: str, ids: Any, **options: Any) -> Any:
        for name in ids:
            self._told("delete", name)
        return self._store.delete(tenant, ids, **options)

    def relabel(self, tenant: str, labels: Any, **options: Any) -> Any:
        for name in labels:
            self._told("relabel", name)
        return self._store.relabel(tenant, labels, **options)


@pytest.mark.parametrize("tenant", [TENANT, "zebra"])
def test_revocation_comes_before_text(world: World, tenant: str) -> None:
    """Of two sources, also of two tenants: removals and labels of both, then what is shown and was changed, then what is new."""
    other, second = second_source(world, tenant)
    other.write("y.md", "# Y\n\nText.\n")
    other.write("w.md", "# W\n\nText.\n")
    world.record = lambda *_: None  # type: ignore[method-assign]
    build.index_sources([*world.jobs(), second], world.workshop())
    order: list[tuple[str, str]] = []
    world.wrap = lambda name, port: Watched(port, lambda what, on: order.append((what, on))) if name == "store" else port
    world.write("0.md", "# New\n\nOf the first source.\n")
    world.write("z.md", "---\nsensitivity: restricted\n---\n# Sick pay\n\nNow for few.\n", old=False)
    other.write("labels.yaml", NARROWED.replace("{key}", "x.md"), old=False)
    (other.docs / "y.md").unlink()
    other.write("w.md", "---\nsensitivity: restricted\n---\n# W\n\nNow for few.\n", old=False)
    build.index_sources([*world.jobs(), SourceJob(second.source, Folder(other.docs))], world.workshop())
    assert [item for item in order if item[1].count("/")] == [
        ("delete", "second/y.md"),
        ("relabel", "second/x.md"),
        ("put", "docs/z.md"),
        ("put", "second/w.md"),
        ("put", "docs/0.md"),
    ]


@pytest.mark.parametrize("lost", ["writing", "unknown", "cut short", "failed"])
def test_labels_reach_what_the_manifest_does_not_vouch_for(world: World, lost: str) -> None:
    """Its text may be another than the labels are of: under other labels than those of now it goes, before anything is read."""
    world.index()
    (row,) = [row for row in world.manifest.rows(TENANT, world.store.generation(TENANT)) if row.key == "a.md"]
    changed = {"writing": {"state": "writing"}, "cut short": {"chunks": 9}, "failed": {"state": "failed", "reason": "crashed"}}

    def doubt() -> None:
        if lost == "unknown":
            world.manifest.remove([row])
        else:
            world.manifest.write([replace(row, **changed[lost])])

    def busy(_: Any) -> Any:
        raise SourceError("changed_while_read", "it is being written", retryable=True)

    def index() -> None:
        (job,) = world.jobs()
        job.documents.read = busy  # type: ignore[method-assign]
        build.index_sources([job], world.workshop())

    doubt()
    index()
    assert world.ids() == ["a.md", "z.md"], "under the labels of now it stays"
    doubt()
    world.write("labels.yaml", NARROWED.replace("{key}", "a.md"), old=False)
    index()
    assert world.ids() == ["z.md"]
    assert (world.changes[-1].document_id, world.changes[-1].new) == ("docs/a.md", None)
    world.index()
    assert world.labels()["a.md"]["groups"] == frozenset({"corp:hr"})


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("what", ["labels", "removal", "sidecar", "emptied", "broken"])
def test_a_restriction_does_not_wait_for_the_backlog(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str, full: bool
) -> None:
    """It is written while new text is made, also of another source, and holds before much more of that is."""
    monkeypatch.setattr(build, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(build, "LOOK_SHARE", 1.0)
    other, second = second_source(world)
    build.index_sources([*world.jobs(), second], world.workshop())
    for at in range(12):
        other.write(f"n{at:02}.md", f"# N{at}\n\nText.\n")
    seen: list[tuple[int, Any]] = []

    def change() -> None:
        if what == "labels":
            world.write("labels.yaml", NARROWED.replace("{key}", "a.md"), old=False)
        elif what == "sidecar":
            world.write("a.md.labels.yaml", "groups: [corp:hr]\n", old=False)
        elif what == "removal":
            (world.docs / "a.md").unlink()
        elif what == "emptied":
            for path in world.docs.iterdir():
                path.unlink()
        else:
            world.write("labels.yaml", "rules: [", old=False)

    def look(done: Any) -> None:
        if done.source != "second":
            return
        if done.done == 2:
            change()
        there = {info.document_id: info.label_digest for info in world.store.documents(TENANT)}
        seen.append((done.done, there.get("docs/a.md")))

    jobs = [SourceJob(second.source, Folder(other.docs)), *world.jobs()]
    if full and what in ("emptied", "broken"):
        with pytest.raises(SourceError, match=r"source_empty|labels_invalid"):
            build.index_sources(jobs, world.workshop(), full=True, progress=look)
        seen.append((99, {info.document_id: info.label_digest for info in world.store.documents(TENANT)}["docs/a.md"]))
    else:
        report = build.index_sources(jobs, world.workshop(), full=full, progress=look)
        assert report.sources[0].indexed == (13 if full else 12)
    before, after = {digest for at, digest in seen if at <= 2}, {digest for at, digest in seen if at > 3}
    assert len(before) == 1
    if what == "broken":
        assert after == before, "old labels hold until they are whole"
    else:
        assert len(after) == 1
        assert after != before
    assert_recorded(world)


def assert_recorded(world: World) -> None:
    said = {change.document_id: change.new for change in world.changes}
    for info in world.store.documents(TENANT):
        assert said[info.document_id] == info.label_digest


def test_a_source_that_breaks_while_it_is_read_makes_no_more_text(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its labels are not those of now any more; other sources go on, and the next run takes up what was left."""
    monkeypatch.setattr(build, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(build, "LOOK_SHARE", 1.0)
    _, second = second_source(world)
    world.write("0.md", "# Before the others\n\nText.\n")

    def look(done: Any) -> None:
        if (done.source, done.done) == ("docs", 1):
            world.write("labels.yaml", "rules: [", old=False)

    docs, its = build.index_sources([*world.jobs(), second], world.workshop(), progress=look).sources
    assert docs.error is not None
    assert (docs.error.code, docs.indexed, its.indexed, its.error) == ("labels_invalid", 2, 1, None)
    world.write("labels.yaml", RULES)
    assert world.index().indexed == 1


def test_looking_takes_a_tenth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(build.time, "monotonic", lambda: clock[0])

    class Slow:
        def catch_up(self) -> None:
            clock[0] += 5.0

    again = build._Again([Slow()])  # type: ignore[list-item]
    assert not again.is_due()
    clock[0] += build.LOOK_AGAIN_S
    assert again.is_due()
    again.look()
    clock[0] += 44.0
    assert not again.is_due()
    clock[0] += 1.0
    assert again.is_due()


def test_undeclared_sources_go_before_text(world: World) -> None:
    _, second = second_source(world)
    build.index_sources([*world.jobs(), second], world.workshop())
    order: list[tuple[str, str]] = []
    world.wrap = lambda name, port: Watched(port, lambda what, on: order.append((what, on))) if name == "store" else port
    world.write("0.md", "# New\n\nText.\n")
    build.index_sources(world.jobs(), world.workshop(), declared=frozenset({"docs"}))
    assert order == [("delete", "second/x.md"), ("put", "docs/0.md")]
    assert [(item.key, item.cause) for item in world.manifest.gone()] == [("x.md", "withdrawn")]


def test_a_full_build_takes_away_before_it_begins(world: World) -> None:
    """Of the generation that is shown meanwhile; also what no declared source speaks for, which is not carried over."""
    _, second = second_source(world)
    build.index_sources([*world.jobs(), second], world.workshop())
    (world.docs / "a.md").unlink()
    world.write("labels.yaml", NARROWED.replace("{key}", "z.md"), old=False)
    shown: list[tuple[Any, Any]] = []

    def look(_: Any) -> None:
        shown.append((world.store.generation(TENANT), [info.document_id for info in world.store.documents(TENANT)]))

    before = world.store.generation(TENANT)
    report = world.index(full=True, declared=frozenset({"docs"}), progress=look)
    assert shown == [(before, ["docs/z.md"])]
    assert world.ids() == ["z.md"]
    assert world.store.generation(TENANT) != before
    assert (report.indexed, report.removed, report.relabelled, sum(count for _, count in report.revoked)) == (1, 1, 1, 2)


def test_tenants_of_sources_that_are_left_alone_are_kept(world: World) -> None:
    _, second = second_source(world, "zebra")
    world.record = lambda *_: None  # type: ignore[method-assign]
    build.index_sources([*world.jobs(), second], world.workshop())
    everybody = frozenset({"docs", "second"})
    build.index_sources(world.jobs(), world.workshop(), declared=everybody, elsewhere=frozenset({"zebra"}))
    assert [info.document_id for info in world.store.documents("zebra")] == ["second/x.md"]


def test_how_long_it_took(world: World) -> None:
    """From the change of the labels where that is known, else from the last look at the source, which is longer."""
    assert world.index().revoked == []
    began = time.monotonic()
    (world.docs / "a.md").unlink()
    world.write("labels.yaml", NARROWED.replace("{key}", "z.md"), old=False)
    time.sleep(0.3)
    report = world.index()
    took_us = (time.monotonic() - began) * 1e6
    assert (report.removed, report.relabelled) == (1, 1)
    assert sum(count for _, count in report.revoked) == 2
    revocation = Revocation.of(report.revoked)
    assert 300_000 < revocation.p50_us < took_us
    assert revocation.max_us > revocation.p50_us  # nobody can say when the file went
    summary = world.manifest.runs(limit=1)[0].summary
    assert (summary["revoked"], summary["revocation_max_us"]) == (2, revocation.max_us)
    assert world.index().revoked == []
    assert "revoked" not in world.manifest.runs(limit=1)[0].summary


def test_what_narrows_itself_is_measured(world: World) -> None:
    world.index()
    world.write("z.md", "---\nsensitivity: restricted\n---\n# Sick pay\n\nNow for few.\n", old=False)
    report = world.index()
    assert [count for _, count in report.revoked] == [1]
    world.write("z.md", "---\nsensitivity: restricted\n---\n# Sick pay\n\nOther words, the same labels.\n", old=False)
    assert world.index().revoked == []


def test_median_and_longest() -> None:
    assert Revocation.of([]) == Revocation(0, 0, 0)
    assert Revocation.of([(9, 1), (5, 3)]) == Revocation(4, 5, 9)
    assert Revocation.of([(9, 3), (5, 2)]) == Revocation(5, 9, 9)
    assert Revocation.of([(9, 1), (5, 1)]) == Revocation(2, 5, 9)


# --- what was there ---------------------------------------------------------------------------------------------------


def test_what_was_removed_is_remembered(world: World) -> None:
    world.index()
    hashes = {row.key: row.content_hash for row in world.manifest.rows(TENANT, world.store.generation(TENANT))}
    (world.docs / "a.md").unlink()
    world.write("z.md.labels.yaml", "sensitivity: nonsense\n")
    world.index()
    found = {item.key: item for item in world.manifest.gone()}
    assert {key: (item.cause, item.content_hash) for key, item in found.items()} == {
        "a.md": ("gone", hashes["a.md"]),
        "z.md": ("not_indexable", hashes["z.md"]),
    }
    assert all(abs(time.time() - item.at_us / 1e6) < 60 for item in found.values())
    world.index()
    assert len(world.manifest.gone()) == 2
    world.write("a.md", "# Leave\n\nThirty days a year.\n")
    world.index()
    (world.docs / "a.md").unlink()
    world.index()
    assert [item.key for item in world.manifest.gone()].count("a.md") == 2


def test_a_full_build_remembers_too(world: World) -> None:
    world.index()
    (world.docs / "a.md").unlink()
    world.index(full=True)
    assert [(item.key, item.cause) for item in world.manifest.gone()] == [("a.md", "gone")]


def test_of_what_was_forgotten_nothing_is_left_but_its_hash(world: World) -> None:
    """Also where it was removed before it was forgotten, and when its file goes after."""
    world.index()
    (world.docs / "a.md").unlink()
    world.index()
    gone = forget_document(world.source, "docs/a.md", world.workshop())
    assert gone.documents == ("docs/a.md",)
    assert world.manifest.gone() == []
    world.write("a.md", "# Leave\n\nThirty days a year.\n")
    assert world.failed(world.index()) == {}
    assert world.ids() == ["z.md"]
    forget_document(world.source, "docs/z.md", world.workshop(), Folder(world.docs))
    (world.docs / "z.md").unlink()
    (world.docs / "a.md").unlink()
    world.index()
    assert world.manifest.gone() == []
    assert world.manifest.rows(TENANT, world.store.generation(TENANT)) == []
    with pytest.raises(UsageError, match="document_unknown"):
        forget_document(world.source, "docs/a.md", world.workshop())


# --- labels that change with their text ---------------------------------------------------------------------------


OPENED = "rules:\n  - { match: '**', groups: [corp:all, corp:hr], sensitivity: internal }\n"


def declassify(world: World) -> None:
    """As an author does it: the text first, then what it is under."""
    world.write("a.md", "# A\n\nThe price was taken out.\n", old=False)
    world.write("labels.yaml", OPENED, old=False)


def seen_texts(world: World) -> dict[str, str]:
    return {key: world.text(key) for key, labels in world.labels().items() if "corp:all" in labels["groups"]}


@pytest.fixture
def secret(world: World) -> World:
    world.write("labels.yaml", OPENED + "  - { match: 'a.md', groups: [corp:hr] }\n")
    world.write("a.md", "# A\n\nThe price is five million.\n")
    world.index()
    assert seen_texts(world) == {"z.md": "Six weeks."}
    return world


def test_an_old_text_is_never_under_labels_of_the_new_one(secret: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while the file cannot be read, nor between labels and text of a run, nor after a killed one."""
    declassify(secret)
    real = Folder.read

    def failing(self: Folder, entry: Any) -> Any:
        if entry.key == "a.md":
            raise SourceError("read_failed", "the disk does not give it", retryable=True)
        return real(self, entry)

    monkeypatch.setattr(Folder, "read", failing)
    for _ in range(3):
        secret.index()
        assert seen_texts(secret) == {"z.md": "Six weeks."}
    monkeypatch.undo()
    secret.index()
    assert seen_texts(secret) == {"a.md": "The price was taken out.", "z.md": "Six weeks."}


def test_a_file_that_was_only_touched_takes_its_labels_at_once(secret: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes say that the text is the one that was read."""
    secret.write("a.md", "# A\n\nThe price is five million.\n", old=False)
    secret.write("labels.yaml", OPENED, old=False)
    report = secret.index()
    assert (report.relabelled, report.removed) == (1, 0)
    assert seen_texts(secret)["a.md"] == "The price is five million."


def test_a_text_that_changes_while_its_sidecar_is_read(secret: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed before, labelled after: the labels may be of the new text."""
    secret.write("labels.yaml", OPENED)
    secret.write("a.md.labels.yaml", "groups: [corp:hr]\n")
    secret.index()
    real, done = Folder.labels, []

    def labels(self: Folder, entry: Any) -> Any:
        if entry.key == "a.md" and not done:
            done.append(True)
            secret.write("a.md", "# A\n\nThe price was taken out.\n", old=False)
            secret.write("a.md.labels.yaml", "groups: [corp:all, corp:hr]\n", old=False)
        return real(self, entry)

    monkeypatch.setattr(Folder, "labels", labels)
    secret.index()
    assert seen_texts(secret) == {"z.md": "Six weeks."}
    secret.index()
    assert seen_texts(secret) == {"a.md": "The price was taken out.", "z.md": "Six weeks."}


# --- how the runs went ------------------------------------------------------------------------------------------------


def test_failures_are_counted_until_a_run_is_good(world: World) -> None:
    _, second = second_source(world)

    class Broken:
        def entries(self) -> Any:
            raise SourceError("source_missing", "it is not there")

    jobs = [*world.jobs(), SourceJob(second.source, Broken())]  # type: ignore[arg-type]
    for _ in range(3):
        build.index_sources(jobs, world.workshop())
    docs, failing = world.manifest.states()
    assert (docs.source, docs.failures, docs.code) == ("docs", 0, "")
    assert docs.looked_at_us <= docs.good_at_us
    assert (failing.source, failing.failures, failing.code, failing.good_at_us) == ("second", 3, "source_missing", 0)
    build.index_sources([*world.jobs(), second], world.workshop())
    assert [(state.failures, state.code, state.good_at_us > 0) for state in world.manifest.states()] == [(0, "", True)] * 2


def test_a_run_that_was_stopped_is_no_good_one(world: World) -> None:
    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.index(progress=stop)
    assert world.manifest.states() == []
