"""Earlier versions that are kept: whose text they hold, who may see them, and when they go."""

from __future__ import annotations

import hashlib
import itertools
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.ingest_world
from connectors.folder import Folder
from connectors.manifest import open_manifest
from connectors.sqlite_documents import SqliteDocuments
from router.domain import SINCE_FIELD, SOURCE_FIELD, UNTIL_FIELD, Content, Entry, LabelChange, RawLabels, Source, with_spans
from router.errors import SourceError, UsageError
from router.filters import And, EntityType, Eq, Field, Filter, Has, Le, Not, Or, Overlaps, Within, compile_filter, matches
from router.ingest.build import index_sources
from router.ingest.generations import roll_back
from router.ingest.reconcile import forget_document, verify_index
from router.ingest.versions import (
    Version,
    is_held_back,
    is_version,
    parse_version,
    version_json,
    version_key,
    version_labels,
    versions_of,
)
from router.ingest.workshop import SourceJob, Workshop
from tests.ingest_world import DOCUMENT, RULES, TENANT, Shelf, World, embedder
from tests.unit.test_ingest_build import Breaking, Killed

SINCE, UNTIL = "effective_from", "effective_to"
SPANNED = EntityType("Document", {**DOCUMENT.fields, UNTIL: Field("long", required=False)})
STORED = with_spans(SPANNED)
MOST = 3
ANYTHING = compile_filter(Eq(SOURCE_FIELD, "docs"), EntityType("Document", {SOURCE_FIELD: Field("string", True)}))
"""Also what is held back from everybody."""


class Versioned(World):
    """A world whose source keeps versions."""

    keep = MOST

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.store = SqliteDocuments(root / "store", lambda: STORED)

    def workshop(self, **more: Any) -> Workshop:
        return replace(super().workshop(**more), entity=SPANNED)

    def jobs(self) -> list[SourceJob]:
        return [replace(job, keep_versions=self.keep) for job in super().jobs()]

    def labels(self) -> dict[str, Any]:
        return {name.removeprefix("docs/"): labels for _, name, labels in self.store.labelled(TENANT)}

    def load(self, *chunk_ids: str) -> Any:
        return self.store.load(TENANT, list(chunk_ids), ANYTHING, deadline_s=5.0)

    def seen(self, *groups: str) -> list[str]:
        f = compile_filter(Overlaps("groups", frozenset(groups or ("corp:all", "corp:hr"))), SPANNED)
        return [name.removeprefix("docs/") for name in self.store.admitted(TENANT, f)]

    def versions(self, key: str) -> list[str]:
        return [one for one in self.ids() if is_version(one) and one.startswith(f"{key}@@")]

    def rewrite(self, key: str, text: str) -> None:
        time.sleep(0.002)  # a version is named by its millisecond
        self.write(key, text, old=False)


@pytest.fixture(autouse=True)
def typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tests.ingest_world, "DOCUMENT", SPANNED)


@pytest.fixture
def world(tmp_path: Path) -> Versioned:
    made = Versioned(tmp_path)
    made.write("labels.yaml", RULES)
    made.write("a.md", "# Leave\n\nThirty days a year.\n")
    made.write("b.md", "# Pay\n\nOn the last day.\n")
    made.index()
    return made


def whole(world: Versioned) -> None:
    assert verify_index(world.jobs(), world.workshop()) == []
    assert world.index().changed is False


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_the_earlier_text_stays(world: Versioned) -> None:
    before = world.load("docs/a.md#0")[0]
    (vector,) = world.store.vectors(TENANT, ["docs/a.md#0"], _mine(world), deadline_s=5.0)
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    assert world.index().indexed == 1
    (kept,) = world.versions("a.md")
    assert (world.text("a.md"), world.text(kept)) == ("Thirty-two days a year.", "Thirty days a year.")
    after = world.load(f"docs/{kept}#0")[0]
    assert world.store.vectors(TENANT, [f"docs/{kept}#0"], _mine(world), deadline_s=5.0) == [vector]
    assert (after.token_ids, after.token_vectors, after.chunk.entities, after.chunk.context) == (
        before.token_ids, before.token_vectors, before.chunk.entities, before.chunk.context,
    )  # fmt: skip
    assert after.chunk.meta["supersedes"] == "docs/a.md"
    assert {**after.labels, UNTIL_FIELD: 0} == {**before.labels, UNTIL_FIELD: 0}
    assert [(change.document_id, change.cause) for change in world.changes[2:]] == [(f"docs/{kept}", "kept")]
    whole(world)


def _mine(world: Versioned) -> Any:
    return And((Has("groups"), Overlaps("groups", frozenset({"corp:all", "corp:hr"}))))


def test_spans_follow_each_other_and_the_oldest_goes(world: Versioned) -> None:
    for at in range(MOST + 2):
        world.rewrite("a.md", f"# Leave\n\nText number {at}.\n")
        world.index()
        whole(world)
    kept = world.versions("a.md")
    assert [world.text(one) for one in kept] == ["Text number 1.", "Text number 2.", "Text number 3."]
    labels = world.labels()
    assert all(labels[one][UNTIL_FIELD] == labels[two][SINCE_FIELD] for one, two in itertools.pairwise(kept))
    assert all(labels[one][SINCE_FIELD] < labels[one][UNTIL_FIELD] for one in kept)
    assert all(not labels[one].keys() & {SINCE, UNTIL} for one in kept), "what nobody wrote is no label"


def test_both_indexes_are_kept(world: Versioned) -> None:
    world.jobs = lambda: [SourceJob(world.source, Folder(world.docs), "both", keep_versions=2)]  # type: ignore[method-assign]
    world.index(full=True)
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    (kept,) = world.versions("a.md")
    assert [one.chunk.chunk_id for one in world.load(f"docs/{kept}#0", f"docs/{kept}#0c")] == [
        f"docs/{kept}#0", f"docs/{kept}#0c",
    ]  # fmt: skip
    whole(world)


def test_a_source_that_keeps_none_keeps_none(world: Versioned) -> None:
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    assert world.versions("a.md")
    world.keep = 0
    assert world.index().removed == 1
    world.rewrite("a.md", "# Leave\n\nThirty-four days a year.\n")
    world.index()
    assert world.ids() == ["a.md", "b.md"]
    whole(world)


def test_without_spans_in_the_schema_nothing_is_kept(world: Versioned) -> None:
    plain = replace(world.workshop(), entity=DOCUMENT)
    report = index_sources(world.jobs(), plain).sources[0]
    assert isinstance(report.error, UsageError)
    assert report.error.code == "versions_without_span"
    assert "effective_to?: Long" in report.error.hint


def test_without_spans_in_the_schema_removals_and_labels_do_not_wait(world: Versioned) -> None:
    """Only keeping is refused: no text is replaced. What was kept is held back, since nothing would tell it from a text of today."""
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    (version,) = world.versions("a.md")
    assert version in world.seen()
    world.rewrite("a.md", "# Leave\n\nThirty-four days a year.\n")
    (world.docs / "b.md").unlink()
    report = index_sources(world.jobs(), replace(world.workshop(), entity=DOCUMENT)).sources[0]
    assert isinstance(report.error, UsageError)
    assert report.error.code == "versions_without_span"
    assert world.ids() == ["a.md", version]
    assert version not in world.seen()
    assert "Thirty-two" in world.text("a.md")
    assert world.index().error is None
    assert version in world.seen()
    assert "Thirty-four" in world.text("a.md")


def test_going_forward_tells_which_versions_it_let_go(world: Versioned) -> None:
    world.index(full=True)
    for days in ("thirty-two", "thirty-four"):
        world.rewrite("a.md", f"# Leave\n\nNow {days} days a year.\n")
        world.index()
    versions = world.versions("a.md")
    assert len(versions) == 2
    declared, switches = frozenset({"docs"}), []
    roll_back(world.jobs(), TENANT, world.workshop(), declared=declared)
    workshop = replace(world.workshop(), record_switch=switches.append)
    forward = roll_back(world.jobs(), TENANT, workshop, declared=declared, to="g-000002")
    assert world.versions("a.md") == []
    assert sorted(note.key for note in forward.sources[0].notes if note.reason == "version_not_kept") == versions
    assert switches[-1].figures["versions_let_go"] == 2


def test_a_name_that_reads_like_a_version_is_refused(world: Versioned) -> None:
    world.write("x.md@@0123456789ab", "text")
    assert ("x.md@@0123456789ab", "reserved_name") in world.failed(world.index()).items()
    assert world.ids() == ["a.md", "b.md"]


def test_a_full_build_carries_versions_over(world: Versioned) -> None:
    for text in ("one", "two"):
        world.rewrite("a.md", f"# Leave\n\nText {text}.\n")
        world.index()
    before = {one: (world.text(one), world.labels()[one]) for one in world.versions("a.md")}
    world.rewrite("a.md", "# Leave\n\nText three.\n")
    world.index(full=True)
    after = {one: (world.text(one), world.labels()[one]) for one in world.versions("a.md")}
    assert len(before) == 2
    assert before.items() < after.items()
    assert [text for text, _ in after.values()] == ["Thirty days a year.", "Text one.", "Text two."]
    whole(world)


# --- who sees them ----------------------------------------------------------------------------------------------------


def test_versions_follow_what_the_document_says_of_itself(world: Versioned) -> None:
    """Front matter of a later text holds back what was kept before it, in the run that reads it."""
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    assert len(world.seen()) == 3
    world.rewrite("a.md", "---\ngroups: [corp:hr]\nsensitivity: restricted\n---\n# Leave\n\nSecret.\n")
    world.index()
    assert len(world.versions("a.md")) == 2
    assert world.seen() == ["a.md", "b.md"]
    whole(world)
    world.rewrite("a.md", "# Leave\n\nOpen again.\n")
    world.index()
    kept = world.versions("a.md")
    assert [world.text(one) for one in kept if one in world.seen()] == ["Thirty days a year.", "Thirty-two days a year."]
    assert is_held_back(world.labels()[kept[-1]]), "what was secret is not shown under what is open"
    whole(world)


class _Watched:
    """A store that looks at which versions anybody may see whenever a document is written or relabelled."""

    def __init__(self, store: Any, world: Versioned) -> None:
        self._store, self._world, self.seen = store, world, list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, tenant: str, documents: Any, **more: Any) -> None:
        self._store.put(tenant, documents, **more)
        self._look()

    def relabel(self, tenant: str, labels: Any, **more: Any) -> Any:
        done = self._store.relabel(tenant, labels, **more)
        self._look()
        return done

    def delete(self, tenant: str, document_ids: Any, **more: Any) -> Any:
        done = self._store.delete(tenant, document_ids, **more)
        self._look()
        return done

    def _look(self) -> None:
        labels = self._world.labels()
        seen = [one for one in self._world.versions("a.md") if one in self._world.seen()]
        assert all(_plain(labels[one]) == labels.get("a.md") for one in seen)
        self.seen.append(len(seen))


def _plain(labels: Any) -> Any:
    return {name: value for name, value in labels.items() if name not in (SINCE_FIELD, UNTIL_FIELD)}


def test_versions_are_held_back_before_and_shown_after(world: Versioned) -> None:
    """While labels or text change, what is kept is never shown beside a document under other labels."""
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    watched = _Watched(world.store, world)
    world.wrap = lambda name, port: watched if name == "store" else port
    for change, text in (
        ("---\ngroups: [corp:hr]\n---\n", "Secret."), ("", "Open again."), ("", ""), ("", "And again."),
    ):  # fmt: skip
        world.rewrite("a.md", f"{change}# Leave\n\n{text}\n" if text else "")
        world.index()
    rules = RULES.replace("corp:all, corp:hr", "corp:hr")
    for labels in (rules, RULES, rules.replace("**", "b.*"), RULES):
        world.write("labels.yaml", labels)
        world.index()
    assert {0, 2} <= set(watched.seen)
    assert len(world.seen()) == 4
    whole(world)


def test_an_edition_that_is_declassified_with_its_new_text(world: Versioned) -> None:
    world.write("labels.yaml", RULES.replace("corp:all, corp:hr", "corp:hr").replace("internal", "restricted"))
    world.index()
    world.write("labels.yaml", RULES)
    world.rewrite("a.md", "# Leave\n\nPublic edition.\n")
    report = world.index()
    assert [note.reason for note in report.notes] == ["version_not_kept"]
    assert world.ids() == ["a.md", "b.md"]
    assert (world.labels()["a.md"]["sensitivity"], world.labels()["b.md"]["sensitivity"]) == (1, 1)
    whole(world)


def test_labels_that_change_while_the_text_is_unread(world: Versioned) -> None:
    """They may have been relaxed for a text that could not be read yet, by however many runs."""
    world.write("labels.yaml", RULES.replace("corp:all, corp:hr", "corp:hr"))
    world.index()
    world.write("labels.yaml", RULES)
    world.rewrite("a.md", "# Leave\n\nPublic edition.\n")
    for _ in range(2):
        _unreadable(world, "changed_while_read")
    world.index()
    assert world.ids() == ["a.md", "b.md"]
    world.rewrite("a.md", "# Leave\n\nPublic edition, corrected.\n")
    world.index()
    assert [world.text(one) for one in world.versions("a.md")] == ["Public edition."]
    whole(world)


def _unreadable(world: Versioned, code: str) -> None:
    def read(_: Entry) -> Content:
        raise SourceError(code, "input/output error", "", retryable=True)

    jobs = world.jobs()
    jobs[0].documents.read = read  # type: ignore[method-assign]
    index_sources(jobs, world.workshop())


def test_relaxed_rules_of_a_file_that_was_only_touched(world: Versioned) -> None:
    world.write("labels.yaml", RULES.replace("internal", "restricted"))
    world.index()
    world.write("labels.yaml", RULES)
    world.write("a.md", (world.docs / "a.md").read_bytes(), old=False)
    world.index()
    assert world.labels()["a.md"]["sensitivity"] == 1
    assert world.ids() == ["a.md", "b.md"]
    whole(world)
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    assert len(world.versions("a.md")) == 1, "it was read under these rules since"


def test_labels_of_the_document_alone_hold_a_version_back(world: Versioned) -> None:
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    (kept,) = world.versions("a.md")
    world.write("labels.yaml", RULES + "  - { match: 'a.md', owner: legal }\n")
    world.index()
    assert world.seen() == ["a.md", "b.md"]
    whole(world)
    world.write("labels.yaml", RULES)
    world.index()
    assert world.seen() == ["a.md", kept, "b.md"]
    whole(world)


def test_an_owner_that_changes_with_the_text(world: Versioned) -> None:
    world.write("labels.yaml", RULES + "  - { match: 'a.md', owner: legal }\n")
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    report = world.index()
    assert world.ids() == ["a.md", "b.md"]
    assert [note.reason for note in report.notes] == ["version_not_kept"]
    whole(world)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("how", ["not_labelled", "not_readable", "failing", "refused"])
def test_what_is_not_readable_keeps_its_versions(world: Versioned, how: str, full: bool) -> None:
    """Nobody sees them until the document is shown again."""
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    before = world.versions("a.md")
    if how == "not_labelled":
        world.write("labels.yaml", RULES.replace("**", "b.*"))
    elif how == "refused":
        (world.docs / "a.md").unlink()
        (world.docs / "a.md").symlink_to(world.docs / "b.md")
    else:
        world.rewrite("a.md", "" if how == "not_readable" else "# Leave\n\nThirty-four.\n")
    if how == "failing":
        _unreadable(world, "unreadable")
    report = world.index(full=full) if how != "failing" else None
    if report is not None:
        assert report.failures
        assert world.ids() == [*before, "b.md"]
        assert world.seen() == ["b.md"]
        assert verify_index(world.jobs(), world.workshop()) == []
    world.write("labels.yaml", RULES)
    (world.docs / "a.md").unlink()
    world.rewrite("a.md", "# Leave\n\nThirty-six.\n")
    world.index(full=full)
    assert [world.text(one) for one in world.versions("a.md") if one in world.seen()][:1] == ["Thirty days a year."]
    whole(world)


def test_what_is_gone_takes_its_versions(world: Versioned) -> None:
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    (world.docs / "a.md").unlink()
    world.index()
    assert world.ids() == ["b.md"]
    assert not any(is_version(one.key) for one in world.manifest.gone()), "only the document is remembered"
    assert verify_index(world.jobs(), world.workshop()) == []


# --- the way back -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["restricted", "removed"])
def test_a_text_that_is_replaced_on_the_way_back_is_not_kept(world: Versioned, how: str) -> None:
    """What became of it since, the generation that is gone to does not know."""
    world.index(full=True)
    if how == "restricted":
        world.write("labels.yaml", RULES.replace("corp:all, corp:hr", "corp:hr"))
    else:
        (world.docs / "a.md").unlink()
    world.index()
    world.write("labels.yaml", RULES)
    world.rewrite("a.md", "# Leave\n\nPublic edition.\n")
    world.index()
    roll_back(world.jobs(), TENANT, world.workshop(), declared=frozenset({"docs"}))
    assert world.ids() == ["a.md", "b.md"]
    assert world.text("a.md") == "Public edition."
    whole(world)


def test_of_versions_those_that_are_there_now_are_gone_back_to(world: Versioned) -> None:
    for key in ("a.md", "b.md"):
        world.rewrite(key, f"# {key}\n\nSecond text.\n")
    world.index()
    world.index(full=True)
    (world.docs / "a.md").unlink()
    world.index()
    world.write("a.md", "# Leave\n\nAnother page of that name.\n", old=False)
    world.index()
    (kept,) = world.versions("b.md")
    roll_back(world.jobs(), TENANT, world.workshop(), declared=frozenset({"docs"}))
    assert world.seen() == ["a.md", "b.md", kept]
    whole(world)


# --- erasing ----------------------------------------------------------------------------------------------------------


def test_forgetting_takes_every_version_and_keeps_it_out(world: Versioned) -> None:
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    world.index(full=True)
    (kept,) = world.versions("a.md")
    done = forget_document(world.source, "docs/a.md", world.workshop(), Folder(world.docs))
    assert set(done.documents) == {"docs/a.md", f"docs/{kept}"}
    assert done.generations == 2
    assert world.ids() == ["b.md"]
    assert not [path for path in (world.root / "store").rglob("*") if path.is_file() and b"Thirty" in path.read_bytes()]
    world.rewrite("a.md", "# Leave\n\nThirty days a year.\n")  # what a version said
    world.index()
    assert world.ids() == ["b.md"]
    assert verify_index(world.jobs(), world.workshop()) == []


# --- crashes ----------------------------------------------------------------------------------------------------------


def _rules(key: str) -> str:
    return RULES.replace("'**', groups: [corp:all, corp:hr]", "'*', groups: [corp:all, corp:hr]") + (
        f"  - {{ match: '{key}', groups: [corp:hr] }}\n"
    )


def _start(root: Path) -> Versioned:
    """What was kept of `a` and `c` is to be held back; `d` is declassified with its new text."""
    world = Versioned(root)
    world.write("labels.yaml", _rules("d.md"))
    for name in ("a.md", "b.md", "c.md", "d.md"):
        world.write(name, f"# {name}\n\nText of {name}.\n")
    world.index()
    world.rewrite("a.md", "# a\n\nSecond text.\n")
    world.rewrite("c.md", "# c\n\nOther text of c.\n")
    world.index()
    world.rewrite("a.md", "---\nsensitivity: restricted\n---\n# a\n\nThird text.\n")
    world.rewrite("b.md", "# b\n\nOther text of b.\n")
    world.rewrite("d.md", "# d\n\nPublic text of d.\n")
    world.write("labels.yaml", _rules("c.md"))
    return world


def _contents(world: Versioned) -> list[Any]:
    labels = world.labels()
    return sorted(
        (
            key.partition("@@")[0],
            is_version(key),
            world.text(key),
            sorted(labels[key]["groups"]),
            labels[key].get("sensitivity", 9),
        )
        for key in world.ids()
    )


@pytest.mark.parametrize("full", [False, True])
def test_crash_anywhere_while_keeping(tmp_path: Path, full: bool) -> None:
    calm = _start(tmp_path / "calm")
    counting = Breaking(0, after=False)
    calm.wrap = counting.wrap
    calm.index(full=full)
    wanted, number = _contents(calm), counting.calls
    assert [(*item[:3], item[4]) for item in wanted if item[1]] == [
        ("a.md", True, "Second text.", 9), ("a.md", True, "Text of a.md.", 9),
        ("b.md", True, "Text of b.md.", 1), ("c.md", True, "Text of c.md.", 9),
    ]  # fmt: skip
    for at, after in itertools.product(range(1, number + 1), (False, True)):
        world = _start(tmp_path / f"{at}-{after}")
        world.wrap = Breaking(at, after=after).wrap
        with pytest.raises(Killed):
            world.index(full=full)
        world.wrap = lambda _, port: port
        world.index()
        assert _contents(world) == wanted, (at, after)
        assert verify_index(world.jobs(), world.workshop()) == []


# --- any sequence -----------------------------------------------------------------------------------------------------

GROUPS = ("corp:a", "corp:b", "corp:c")


class Filed(Shelf):
    """One that says all labels of what stands there, and what of it cannot be read, and why."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[str, dict[str, Any]] = {}
        self.broken: dict[str, str] = {}

    def labels(self, entry: Entry) -> RawLabels:
        said = self.said[entry.key]
        return RawLabels(({name: sorted(value) if name == "groups" else value for name, value in said.items()},))

    def read(self, entry: Entry) -> Content:
        if entry.key in self.broken:
            raise SourceError(self.broken[entry.key], "cannot be read", "", retryable=True)
        return super().read(entry)


class Office:
    """`under` are the labels of each text at the last run that found it there, `erased` what was forgotten."""

    def __init__(self, root: Path) -> None:
        self.store = SqliteDocuments(root / "store", lambda: STORED)
        self.manifest = open_manifest(f"sqlite:///{root}/manifest.sqlite")
        self.shelf, self.number, self.clock_ms = Filed(), 0, 1_800_000_000_000
        self.under: dict[str, Any] = {}
        self.erased: set[str] = set()
        self.shown: dict[str, str] = {}
        self.source = Source("docs", TENANT, "folder", frozenset(GROUPS), 0, "", "")

    def workshop(self) -> Workshop:
        return Workshop(self.store, embedder(), self.manifest, SPANNED, self.record, "dev#indexer", self.tick)

    def tick(self) -> int:
        self.clock_ms += 1
        return self.clock_ms * 1000

    def record(self, _: str, changes: Any) -> None:
        for change in changes:
            assert isinstance(change, LabelChange)
            self.shown.pop(change.document_id, None)
            if change.new is not None:
                self.shown[change.document_id] = change.new

    def jobs(self) -> list[SourceJob]:
        return [SourceJob(self.source, self.shelf, keep_versions=2)]

    def note_read(self) -> None:
        for key, (text, _) in self.shelf.held.items():
            if key not in self.shelf.broken:
                self.under[text] = {"tenant": TENANT, **self.shelf.said[key]}

    def check(self, policies: list[Filter]) -> None:
        for policy in policies:
            f = compile_filter(policy, SPANNED)
            for name in filter(is_version, self.store.admitted(TENANT, f)):
                key = name.removeprefix("docs/").partition("@@")[0]
                assert key in self.shelf.held, "a version outlived its document"
                known = key not in self.shelf.broken or self.shelf.held[key][0] in self.under  # what did not change is not read
                assert known, "a version is shown of what nobody knows"
                assert matches(f, {"tenant": TENANT, **self.shelf.said[key]}), "a version is shown to whom its document is denied"
                (stored,) = self.store.load(TENANT, [f"{name}#0"], ANYTHING, deadline_s=10.0)
                assert matches(f, self.under[stored.chunk.text]), "a text is shown to whom it was denied"
                assert stored.chunk.text not in self.erased, "a forgotten text came back"
        versions = {info.document_id for info in self.store.documents(TENANT) if is_version(info.document_id)}
        by_key = versions_of(self.manifest.rows(TENANT, self.store.generation(TENANT) or ""))
        assert {row.document_id for its in by_key.values() for row in its} == versions
        assert all(len(its) <= 2 for its in by_key.values())
        assert self.shown == {info.document_id: info.label_digest for info in self.store.documents(TENANT)}
        assert self.shelf.broken or verify_index(self.jobs(), self.workshop()) == []


KEYS = st.sampled_from(["one", "two"])
SAID = st.fixed_dictionaries(
    {"groups": st.frozensets(st.sampled_from(GROUPS)), "sensitivity": st.integers(0, 3)},
    optional={
        SINCE: st.sampled_from([2_000_000_000_000, 3_000_000_000_000]),
        UNTIL: st.just(4_000_000_000_000),
        "owner": st.sampled_from(["hr", "it"]),
    },
)
LEAVES: st.SearchStrategy[Filter] = st.one_of(
    st.builds(Overlaps, st.just("groups"), st.frozensets(st.sampled_from(GROUPS), min_size=1)),
    st.builds(Within, st.just("groups"), st.frozensets(st.sampled_from(GROUPS))),
    st.builds(Has, st.sampled_from([SINCE, UNTIL, "owner"])),
    st.builds(Le, st.sampled_from([SINCE, UNTIL]), st.sampled_from([1_900_000_000_000, 2_500_000_000_000, 5_000_000_000_000])),
    st.builds(Le, st.just("sensitivity"), st.integers(0, 3)),
    st.builds(Eq, st.just("owner"), st.just("hr")),
)
"""Rules that permit, and rules that forbid on presence, on membership and on absence."""
POLICIES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner), st.builds(And, st.tuples(inner, inner)), st.builds(Or, st.tuples(inner, inner))
    ),
    max_leaves=5,
)
STEPS = st.one_of(
    st.tuples(st.just("write"), KEYS, st.none() | SAID),
    st.tuples(st.just("label"), KEYS, SAID),
    st.tuples(st.just("remove"), KEYS),
    st.tuples(st.just("forget"), KEYS),
    st.tuples(st.just("break"), KEYS, st.sampled_from(["unreadable", "changed_while_read"])),
    st.tuples(st.just("mend")),
    st.tuples(st.just("index")),
    st.tuples(st.just("full")),
    st.tuples(st.just("back")),
)


def _take(office: Office, step: tuple[Any, ...]) -> bool:
    """Whether askers must see what is so now."""
    held, said = office.shelf.held, office.shelf.said
    match step:
        case ("write", key, labels):
            office.number += 1
            held[key] = f"text number {office.number} of {key}", ()
            said[key] = labels or said.get(key) or {"groups": frozenset(GROUPS), "sensitivity": 1}
        case ("label", key, labels) if key in held:
            said[key] = labels
        case ("remove", key):
            held.pop(key, None)
        case ("break", key, code):
            office.shelf.broken[key] = code
        case ("mend",):
            office.shelf.broken.clear()
        case ("forget", key) if any(info.document_id == f"docs/{key}" for info in office.store.documents(TENANT)):
            done = forget_document(office.source, f"docs/{key}", office.workshop(), office.shelf)
            assert not office.store.load(TENANT, [f"{name}#0" for name in done.documents], ANYTHING, deadline_s=10.0)
            office.erased |= {text for text in office.under if text.endswith(f"of {key}") and _is_buried(office, text)}
            assert not [info for info in office.store.documents(TENANT) if info.document_id.startswith(f"docs/{key}")]
        case ("index",) | ("full",) | ("back",):
            done = _back(office) if step == ("back",) else _index(office, full=step == ("full",))
            if done:
                office.note_read()
            return done
    return False


def _is_buried(office: Office, text: str) -> bool:
    return hashlib.sha256(text.encode()).hexdigest() in office.manifest.buried(TENANT, "docs")


def _index(office: Office, *, full: bool) -> bool:
    index_sources(office.jobs(), office.workshop(), full=full, declared=frozenset({"docs"}))
    return True


def _back(office: Office) -> bool:
    try:
        roll_back(office.jobs(), TENANT, office.workshop(), declared=frozenset({"docs"}))
    except (UsageError, SourceError) as refused:
        if refused.code not in ("generation_none", "store_missing"):
            raise
        return False
    return True


@settings(max_examples=25)
@given(SAID, st.lists(STEPS, min_size=3, max_size=14), st.lists(POLICIES, min_size=4, max_size=8))
def test_a_version_is_seen_by_those_who_may_see_both(said: Any, steps: list[tuple[Any, ...]], policies: list[Filter]) -> None:
    """Today's document under today's labels, and the text under the labels that it last had: whatever the rules are, and in whatever
    order text and labels change, documents go, come back and fail, runs, builds and ways back follow each other."""
    begun = [("write", "one", said), ("index",), ("write", "one", None), ("index",)]
    with tempfile.TemporaryDirectory() as folder:
        office = Office(Path(folder))
        for step in [*begun, *steps, ("index",)]:
            if _take(office, step):
                office.check(policies)


# --- labels alone -----------------------------------------------------------------------------------------------------


@given(SAID, st.none() | SAID, st.none() | st.integers(0, 100), st.integers(0, 100), POLICIES)
def test_shown_under_the_labels_of_both_or_to_nobody(
    own: Any, living: Any, since_ms: int | None, until_ms: int, policy: Filter
) -> None:
    version = parse_version(version_json(Version({"tenant": TENANT, **own}, since_ms, until_ms)))
    assert version == Version({"tenant": TENANT, **own}, since_ms, until_ms)
    for now in (living, own):
        found = version_labels(version, None if now is None else {"tenant": TENANT, **now}, SPANNED)
        if now == own:
            assert _plain(found) == version.labels
            assert (found.get(SINCE_FIELD), found[UNTIL_FIELD]) == (since_ms, until_ms)
            assert not is_held_back(found)
        else:
            assert is_held_back(found)
            assert not matches(compile_filter(policy, SPANNED), found)


def test_true_is_no_number() -> None:
    one = Version({"tenant": TENANT, "groups": frozenset(), "final": True}, None, 1)
    assert is_held_back(version_labels(one, {**one.labels, "final": 1}, SPANNED))


def test_keys_sort_by_time() -> None:
    keys = [version_key("a", at) for at in (0, 1, 15, 16, 1_800_000_000_000, 2**47)]
    assert keys == sorted(keys)
    assert all(map(is_version, keys))
    assert not is_version("a@@b")
