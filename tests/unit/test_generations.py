"""Going back to another generation, and what a new one is held against before it is shown: real stores, manifest and embedder."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.folder import Folder
from connectors.manifest import open_manifest
from connectors.sqlite_documents import SqliteDocuments
from router.domain import Content, Entry, LabelChange, ModelCard, Search, Source, Switched, label_digest
from router.errors import SourceError, UsageError
from router.filters import And, Has, Overlaps
from router.ingest import build
from router.ingest.generations import RolledBack, roll_back
from router.ingest.reconcile import forget_document, verify_index
from router.ingest.repair import repair_index
from router.ingest.workshop import SourceJob, Workshop
from tests.conformance.labs import quick_folder
from tests.ingest_world import DOCUMENT, RULES, TENANT, Shelf, World, embedder
from tests.unit.test_ingest_build import Breaking, Killed, contents

HR_ONLY = RULES + "  - { match: 'hr/**', groups: [corp:hr], sensitivity: confidential }\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return start(tmp_path)


def start(root: Path) -> World:
    """Two generations: `back` of three documents, then the current one."""
    made = World(root)
    made.write("labels.yaml", RULES)
    for name in ("a.md", "hr/b.md", "gone.md"):
        made.write(name, f"# {name}\n\nFirst text of {name}.\n")
    made.index()
    made.index(full=True)
    return made


def back(world: World, to: str | None = None, **options: Any) -> RolledBack:
    return roll_back(world.jobs(), TENANT, world.workshop(**options), to=to, declared=frozenset({"docs"}))


def names(world: World) -> list[tuple[str, bool]]:
    return [(one.name, one.current) for one in world.store.generations(TENANT)]


def test_back_and_forward(world: World) -> None:
    """Twice back is refused, not forward; the newer one is kept, and so is its manifest."""
    assert names(world) == [("g-000001", False), ("g-000002", True)]
    done = back(world)
    assert (done.before, done.now, done.changes) == ("g-000002", "g-000001", 0)
    assert [report.unchanged for report in done.sources] == [3]
    assert names(world) == [("g-000001", True), ("g-000002", False)]
    assert world.manifest.generations(TENANT) == ["g-000001", "g-000002"]
    with pytest.raises(UsageError, match="generation_none") as none:
        back(world)
    assert "g-000002" in none.value.hint
    with pytest.raises(UsageError, match="generation_unknown"):
        back(world, to="g-000009")
    with pytest.raises(UsageError, match="generation_current"):
        back(world, to="g-000001")
    assert back(world, to="g-000002").now == "g-000002"
    assert verify_index(world.jobs(), world.workshop()) == []


def test_without_an_earlier_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(SourceError, match="store_missing"):
        back(world)
    world.write("labels.yaml", RULES)
    world.write("a.md", "# A\n\nText.\n")
    world.index()
    with pytest.raises(UsageError, match="generation_none"):
        back(world)


def test_the_next_run_goes_on_from_it(world: World) -> None:
    back(world)
    assert (world.index().indexed, world.index().unchanged) == (0, 3)
    world.write("a.md", "# A\n\nThird text.\n", old=False)
    assert world.index().indexed == 1
    assert world.text("a.md") == "Third text."
    assert names(world) == [("g-000001", True), ("g-000002", False)]
    assert verify_index(world.jobs(), world.workshop()) == []


def test_what_was_withdrawn_since_does_not_come_back(world: World) -> None:
    """Deleted, forgotten, labelled anew, narrowed by its author, written anew: the old generation holds all of it as it was."""
    for name, text in (("erased.md", "Erased."), ("narrowed.md", "Narrowed."), ("lost.md", "Lost.")):
        world.write(name, f"# {name}\n\n{text}\n")
    world.index()
    world.index(full=True)
    (world.docs / "gone.md").unlink()
    forget_document(world.source, "docs/erased.md", world.workshop())
    world.write("labels.yaml", HR_ONLY)
    world.write("narrowed.md", "---\ngroups: [corp:hr]\n---\n# Narrowed\n\nNarrowed.\n", old=False)
    world.write("lost.md", b"\x00\x01" * 100, old=False)
    world.write("a.md", "# A\n\nSecond text.\n", old=False)
    world.changes.clear()
    done = back(world)
    assert world.ids() == ["a.md", "hr/b.md", "narrowed.md"]
    assert {key: sorted(labels["groups"]) for key, labels in world.labels().items()} == {
        "a.md": ["corp:all", "corp:hr"],
        "hr/b.md": ["corp:hr"],
        "narrowed.md": ["corp:hr"],
    }
    assert world.text("a.md") == "Second text."
    assert done.changes == len(world.changes) == 4  # gone.md, lost.md, hr/b.md, narrowed.md; the forgotten one was gone already
    assert verify_index(world.jobs(), world.workshop()) == []


def test_what_cannot_be_read_now_is_not_left_as_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is being written stays as it is in an ordinary run; its text of last year must not come back for that."""
    world.write("a.md", "# A\n\nSecond text.\n", old=False)
    world.index()
    jobs = world.jobs()
    read = jobs[0].documents.read

    def busy(entry: Entry) -> Content:
        if entry.key == "a.md":
            raise SourceError("changed_while_read", "it is being written")
        return read(entry)

    monkeypatch.setattr(jobs[0].documents, "read", busy)
    roll_back(jobs, TENANT, world.workshop(), declared=frozenset({"docs"}))
    assert world.ids() == ["gone.md", "hr/b.md"]
    world.index()
    assert world.text("a.md") == "Second text."


def test_a_source_that_fails_keeps_things_as_they_are(world: World) -> None:
    world.write("labels.yaml", "rules: [ { match: '**'")
    with pytest.raises(SourceError, match="labels_invalid"):
        back(world)
    assert names(world) == [("g-000001", False), ("g-000002", True)]


def test_sources_that_were_withdrawn_do_not_come_back(world: World) -> None:
    """Also one that was declared for the tenant when the old generation was built."""
    other = world.root / "other"
    other.mkdir()
    (other / "labels.yaml").write_text(RULES)
    (other / "x.md").write_text("# X\n\nText of x.\n")

    extra = SourceJob(Source("other", TENANT, "folder", world.source.groups, 1, "", ""), Folder(other))
    build.index_sources([*world.jobs(), extra], world.workshop())
    build.index_sources([*world.jobs(), extra], world.workshop(), full=True)
    build.index_sources(world.jobs(), world.workshop(), declared=frozenset({"docs"}))
    back(world)
    assert {info.source for info in world.store.documents(TENANT)} == {"docs"}


def test_another_model_is_not_gone_back_to(world: World) -> None:
    class Models:
        card = ModelCard("other", "0" * 64, 384, 64, 256)
        count_tokens = staticmethod(embedder().count_tokens)
        embed_chunks = staticmethod(embedder().embed_chunks)

    world.index(models=Models(), full=True)
    with pytest.raises(UsageError, match="model_changed") as refused:
        back(world, models=Models())
    assert embedder().card.id in refused.value.message
    assert "[models] embedder" in refused.value.hint
    assert back(world).now == "g-000002"  # with that model configured again
    assert {one.model_id for one in world.store.generations(TENANT)} == {Models.card.id, embedder().card.id}


def test_other_contexts_are_not_gone_back_to(world: World) -> None:
    """The next run would make all of it anew."""
    job = SourceJob(world.source, world.jobs()[0].documents, "none")
    with pytest.raises(UsageError, match="generation_outdated") as refused:
        roll_back([job], TENANT, world.workshop(), declared=frozenset({"docs"}))
    assert "[sources.docs]" in refused.value.hint


def test_a_damaged_store_is_left_for_the_previous_one(world: World) -> None:
    """The one reason to go back in a hurry."""
    (partition,) = (world.root / "store").iterdir()
    (world.docs / "gone.md").unlink()
    (partition / "g-000002.sqlite").write_bytes(b"overwritten " * 5_000)
    world.store.close()
    done = back(world)
    assert done.now == "g-000001"
    assert world.ids() == ["a.md", "hr/b.md"]
    assert [change.document_id for change in world.changes[-1:]] == ["docs/gone.md"]
    with pytest.raises(UsageError, match="generation_unknown"):
        back(world, to="g-000002")


def test_a_damaged_previous_one_is_refused(world: World) -> None:
    (partition,) = (world.root / "store").iterdir()
    (partition / "g-000001.sqlite").write_bytes(b"overwritten " * 5_000)
    with pytest.raises(UsageError, match="generation_none"):
        back(world)
    assert world.ids() == ["a.md", "gone.md", "hr/b.md"]


def test_what_changes_is_on_record_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that the shown generation has not yet, and those that only it has."""
    world.write("labels.yaml", HR_ONLY)
    (world.docs / "gone.md").unlink()
    world.changes.clear()
    switches: list[Switched] = []
    seen: list[int] = []
    switch = world.store.switch

    def watched(*given: Any) -> None:
        seen.append(len(world.changes))
        switch(*given)

    monkeypatch.setattr(world.store, "switch", watched)
    roll_back(world.jobs(), TENANT, replace(world.workshop(), record_switch=switches.append), declared=frozenset({"docs"}))
    assert seen == [2]
    assert [(change.document_id, change.new is None, change.cause) for change in world.changes] == [
        ("docs/gone.md", True, "rolled_back"),
        ("docs/hr/b.md", False, "rolled_back"),
    ]
    assert world.changes[1].new == label_digest("docs", world.labels()["hr/b.md"])
    assert switches == [Switched(TENANT, "g-000002", "g-000001", "rolled_back", {"documents": 2})]


def test_two_at_once(world: World) -> None:
    with world.manifest.exclusive(), pytest.raises(SourceError, match="index_busy"):
        back(world)


def test_crash_anywhere_on_the_way_back() -> None:
    """Killed before or after any change of store or manifest: the one generation or the other is shown, whole; the next run mends
    it, and going back can be begun again."""
    with quick_folder() as folder:
        _crash_anywhere(folder)


def _crash_anywhere(root: Path) -> None:
    def change(world: World) -> None:
        (world.docs / "gone.md").unlink()
        world.write("labels.yaml", HR_ONLY)
        world.write("a.md", "# A\n\nSecond text.\n", old=False)

    calm = start(root / "calm")
    change(calm)
    back(calm)
    wanted = contents(calm)
    counting = Pinned(0, after=False)
    counted = start(root / "counted")
    change(counted)
    counted.wrap = counting.wrap
    back(counted)
    assert counting.calls >= 6
    for at, after in [(1, False), *((at, True) for at in range(1, counting.calls + 1))]:
        world = start(root / f"{at}-{after}")
        change(world)
        before = contents(world)
        world.wrap = Pinned(at, after=after).wrap
        with pytest.raises(Killed):
            back(world)
        world.wrap = lambda _, port: port
        assert contents(world) in (before, wanted), (at, after)
        if world.store.generation(TENANT) == "g-000002":
            back(world)
        world.index()
        assert contents(world) == wanted, (at, after)
        assert verify_index(world.jobs(), world.workshop()) == []


class Pinned(Breaking):
    """Also counts and kills inside the pinned store."""

    def wrap(self, name: str, port: Any) -> Any:
        wrapped = super().wrap(name, port)
        if name == "store":
            wrapped.pinned = lambda *given: _Entered(port.pinned(*given), lambda view: super(Pinned, self).wrap("view", view))
        return wrapped


class _Entered:
    def __init__(self, inner: Any, wrap: Callable[[Any], Any]) -> None:
        self._inner, self._wrap = inner, wrap

    def __enter__(self) -> Any:
        return self._wrap(self._inner.__enter__())

    def __exit__(self, *given: Any) -> Any:
        return self._inner.__exit__(*given)


# --- whatever happens -------------------------------------------------------------------------------------------------

GROUPS = ("corp:a", "corp:b", "corp:c")


class Office:
    """One tenant with a shelf, and what was forgotten there."""

    def __init__(self, root: Path) -> None:
        self.store = SqliteDocuments(root / "store", lambda: DOCUMENT)
        self.manifest = open_manifest(f"sqlite:///{root}/manifest.sqlite")
        self.shelf, self.forgotten = Shelf(), set[str]()
        self.source = Source("docs", TENANT, "folder", frozenset(GROUPS), 0, "", "")
        self.shown: dict[str, str] = {}

    def workshop(self) -> Workshop:
        return Workshop(
            self.store, embedder(), self.manifest, DOCUMENT, self.record, "dev#indexer", lambda: time.time_ns() // 1000
        )

    def record(self, _: str, changes: Any) -> None:
        for change in changes:
            assert isinstance(change, LabelChange)
            self.shown.pop(change.document_id, None)
            if change.new is not None:
                self.shown[change.document_id] = change.new

    def jobs(self) -> list[SourceJob]:
        return [SourceJob(self.source, self.shelf)]

    def check(self) -> None:
        """Everybody finds what the labels of now give them, as it reads now, and the records say so."""
        there = {key: it for key, it in self.shelf.held.items() if _hash(it[0]) not in self.forgotten}
        for group in GROUPS:
            allowed = {f"docs/{key}" for key, (_, groups) in there.items() if group in groups}
            f = And((Has("groups"), Overlaps("groups", frozenset({group}))))
            question = embedder().embed_question("text of a page", None)  # type: ignore[arg-type]
            found = self.store.search(Search(TENANT, f, "text", question.vector, embedder().card.id, 100, 10.0))
            assert {candidate.document_id for candidate in found.candidates} == allowed
            loaded = self.store.load(TENANT, [f"{name}#0" for name in sorted(allowed)], f, deadline_s=10.0)
            assert {item.chunk.text for item in loaded} == {there[name.removeprefix("docs/")][0] for name in allowed}
        assert self.shown == {info.document_id: info.label_digest for info in self.store.documents(TENANT)}


KEYS = st.sampled_from(["one", "two", "three"])
SOME_GROUPS = st.lists(st.sampled_from(GROUPS), unique=True, max_size=2).map(tuple)
STEPS = st.one_of(
    st.tuples(st.just("write"), KEYS, st.integers(0, 3), SOME_GROUPS),
    st.tuples(st.just("label"), KEYS, SOME_GROUPS),
    st.tuples(st.just("remove"), KEYS),
    st.tuples(st.just("forget"), KEYS),
    st.tuples(st.just("index")),
    st.tuples(st.just("full")),
    st.tuples(st.just("back")),
    st.tuples(st.just("forward")),
)


def take(office: Office, step: tuple[Any, ...]) -> bool:
    """Whether askers must see what is so now."""
    held = office.shelf.held
    match step:
        case ("write", key, number, groups):
            held[key] = f"text number {number} of {key}", groups
        case ("label", key, groups) if key in held:
            held[key] = held[key][0], groups
        case ("remove", key):
            held.pop(key, None)
        case ("forget", key) if any(info.document_id == f"docs/{key}" for info in office.store.documents(TENANT)):
            office.forgotten |= set(forget_document(office.source, f"docs/{key}", office.workshop(), office.shelf).content_hashes)
        case ("index",) | ("full",):
            build.index_sources(office.jobs(), office.workshop(), full=step == ("full",), declared=frozenset({"docs"}))
            return True
        case ("back",) | ("forward",):
            return _go(office, forward=step == ("forward",))
    return False


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _go(office: Office, *, forward: bool) -> bool:
    others = [one.name for one in office.store.generations(TENANT) if not one.current]
    try:
        roll_back(
            office.jobs(),
            TENANT,
            office.workshop(),
            to=others[-1] if forward and others else None,
            declared=frozenset({"docs"}),
        )
    except (UsageError, SourceError) as refused:
        if refused.code not in ("generation_none", "store_missing"):
            raise
        return False
    return True


@settings(max_examples=20)
@given(st.lists(STEPS, min_size=3, max_size=12))
def test_nothing_denied_comes_back(steps: list[tuple[Any, ...]]) -> None:
    """Any order of changes, removals, erasures, runs, builds and ways back and forth."""
    begun = [("write", "one", 0, ("corp:a",)), ("write", "two", 0, ("corp:b",)), ("index",), ("full",)]
    with quick_folder() as folder:
        office = Office(folder)
        try:
            for step in [*begun, *steps, ("back",), ("forward",)]:
                if take(office, step):
                    office.check()
        finally:
            office.store.close()
            office.manifest.close()


# --- what a new generation is held against ----------------------------------------------------------------------------


def test_labels_that_change_during_a_full_build(world: World) -> None:
    """A build may take a day: what was revoked meanwhile is not shown for a moment."""
    before = world.wrap

    class Slow:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def put(self, tenant: str, documents: Any, **more: Any) -> None:
            self._store.put(tenant, documents, **more)
            if documents:
                world.write("labels.yaml", HR_ONLY)
                (world.docs / "gone.md").unlink(missing_ok=True)

        def switch(self, tenant: str, generation: str) -> None:
            with self._store.pinned(tenant, generation) as view:
                assert [info.document_id for info in view.documents(tenant)] == ["docs/a.md", "docs/hr/b.md"]
            self._store.switch(tenant, generation)

    world.wrap = lambda name, port: Slow(port) if name == "store" else port
    report = world.index(full=True)
    world.wrap = before
    assert (report.relabelled, report.removed) == (1, 1)
    assert world.labels()["hr/b.md"]["groups"] == frozenset({"corp:hr"})
    assert verify_index(world.jobs(), world.workshop()) == []


def test_a_build_that_is_judged_worse_is_kept_aside(world: World) -> None:
    asked: list[tuple[str, str, str]] = []
    switches: list[Switched] = []

    def judge(tenant: str, old: str, new: str) -> bool:
        asked.append((tenant, old, new))
        return len(asked) > 1

    workshop = replace(world.workshop(), record_switch=switches.append)
    world.write("a.md", "# A\n\nSecond text.\n", old=False)
    build.index_sources(world.jobs(), workshop, full=True, judge=judge)
    assert asked == [(TENANT, "g-000002", "g-000003")]
    assert world.text("a.md") == "First text of a.md."
    assert names(world) == [("g-000001", False), ("g-000002", True), ("g-000003", False)]
    assert world.manifest.generations(TENANT) == ["g-000001", "g-000002", "g-000003"]
    assert switches[-1] == Switched(TENANT, "g-000002", "g-000003", "kept_aside")
    assert world.index().indexed == 1  # the shown one goes on
    (world.docs / "gone.md").unlink()
    assert back(world, to="g-000003").now == "g-000003"
    assert world.ids() == ["a.md", "hr/b.md"]
    assert names(world) == [("g-000002", False), ("g-000003", True)]
    build.index_sources(world.jobs(), workshop, full=True, judge=judge)
    assert names(world) == [("g-000003", False), ("g-000004", True)]
    assert verify_index(world.jobs(), world.workshop()) == []


def test_rejected_builds_do_not_pile_up(world: World) -> None:
    for _ in range(3):
        world.report(full=True, judge=lambda *_: False)
    assert names(world) == [("g-000001", False), ("g-000002", True), ("g-000005", False)]
    assert world.manifest.generations(TENANT) == ["g-000001", "g-000002", "g-000005"]
    world.index()
    assert names(world) == [("g-000001", False), ("g-000002", True), ("g-000005", False)]
    assert verify_index(world.jobs(), world.workshop()) == []


@pytest.mark.parametrize("why", ["cannot be compared", "labels cannot be read at the end"])
def test_what_could_not_be_held_against_anything_is_kept(world: World, why: str) -> None:
    """Hours of building, and what it paid, are not thrown away; nothing of it is shown."""

    def judge(*_: str) -> bool:
        if why == "cannot be compared":
            raise SourceError("compare_incomplete", "not searched in the same way", "run again", retryable=True)
        world.write("labels.yaml", "rules: [ {")
        return True

    with pytest.raises(SourceError) as stopped:
        world.report(full=True, judge=judge)
    assert "`pointsman index rollback --tenant fabrikam --to g-000003` shows it" in stopped.value.hint
    world.write("labels.yaml", RULES)
    world.index()
    assert names(world) == [("g-000001", False), ("g-000002", True), ("g-000003", False)]
    (world.docs / "gone.md").unlink()
    assert back(world, to="g-000003").now == "g-000003"
    assert world.ids() == ["a.md", "hr/b.md"]


# --- sources that change, move or fail ---------------------------------------------------------------------------------


def other_job(world: World, tenant: str = TENANT) -> SourceJob:
    folder = world.root / "other"
    folder.mkdir(exist_ok=True)
    (folder / "labels.yaml").write_text(RULES)
    (folder / "x.md").write_text("# X\n\nText of x.\n")
    world.record = lambda _, changes: world.changes.extend(changes)  # type: ignore[method-assign]
    return SourceJob(Source("other", tenant, "folder", world.source.groups, 1, "", ""), Folder(folder))


BOTH = frozenset({"docs", "other"})


class Others:
    """Another model, by its name."""

    card = ModelCard("other", "0" * 64, 384, 64, 256)
    count_tokens = staticmethod(embedder().count_tokens)
    embed_chunks = staticmethod(embedder().embed_chunks)


@pytest.mark.parametrize("how", ["index", "full", "full with another model", "repair"])
def test_a_source_that_moved(world: World, how: str) -> None:
    """Its old tenant keeps another source; nothing of it is left there, on record, and nothing is refused for it."""
    build.index_sources([*world.jobs(), other_job(world)], world.workshop(), declared=BOTH)
    moved = [*world.jobs(), other_job(world, "contoso")]
    world.changes.clear()
    if how == "repair":
        assert repair_index(moved, world.workshop(), declared=BOTH).left == ()
    else:
        models = Others() if how == "full with another model" else None
        build.index_sources(moved, world.workshop(models=models), declared=BOTH, full=how != "index")
    assert world.ids() == ["a.md", "gone.md", "hr/b.md"]
    assert [info.document_id for info in world.store.documents("contoso")] == ["other/x.md"]
    assert next((one.document_id, one.new) for one in world.changes if one.source == "other") == ("other/x.md", None)
    assert "other/x.md" not in [row.document_id for row in world.manifest.rows(TENANT, world.store.generation(TENANT))]


def test_a_moved_source_does_not_come_back(world: World) -> None:
    build.index_sources([*world.jobs(), other_job(world)], world.workshop(), declared=BOTH)
    build.index_sources([*world.jobs(), other_job(world)], world.workshop(), declared=BOTH, full=True)
    build.index_sources([*world.jobs(), other_job(world, "contoso")], world.workshop(), declared=BOTH)
    back(world)
    assert world.ids() == ["a.md", "gone.md", "hr/b.md"]


def test_a_moved_source_that_fails_where_it_is_now(world: World) -> None:
    build.index_sources([*world.jobs(), other_job(world)], world.workshop(), declared=BOTH)
    job = other_job(world, "contoso")
    (world.root / "other" / "labels.yaml").write_text("rules: [ {")
    build.index_sources([*world.jobs(), job], world.workshop(), declared=BOTH)
    assert world.ids() == ["a.md", "gone.md", "hr/b.md"]


def test_a_failing_source_keeps_other_tenants_from_nothing(world: World) -> None:
    """A full build: its own tenant stays as it is, whole; the failure is raised."""
    job = other_job(world, "contoso")
    build.index_sources([job, *world.jobs()], world.workshop(), declared=BOTH)
    (world.root / "other" / "labels.yaml").write_text("rules: [ {")
    with pytest.raises(SourceError, match="labels_invalid"):
        build.index_sources([job, *world.jobs()], world.workshop(), declared=BOTH, full=True)
    assert names(world)[-1] == ("g-000003", True)
    assert [(one.name, one.current) for one in world.store.generations("contoso")] == [("g-000001", True)]
    assert world.manifest.generations("contoso") == ["g-000001"]
    assert [info.document_id for info in world.store.documents("contoso")] == ["other/x.md"]


class Changing:
    """Sources of the moment: narrowed, and one withdrawn, after they were looked at `calm` times."""

    def __init__(self, world: World, calm: int) -> None:
        self.world, self.calm = world, calm

    def __call__(self, before: build.Moment) -> build.Moment:
        self.calm -= 1
        if self.calm >= 0:
            return before
        jobs = [replace(job, source=replace(job.source, least=2)) for job in before.jobs]
        return replace(
            before, jobs=tuple(job for job in jobs if job.source.name == "docs"), declared=before.declared and frozenset({"docs"})
        )


def test_sources_that_change_during_a_full_build(world: World) -> None:
    """An envelope that was narrowed and a source that was withdrawn while everything was embedded."""
    world.write("labels.yaml", HR_ONLY)
    jobs = [*world.jobs(), other_job(world)]
    build.index_sources(jobs, world.workshop(), declared=BOTH)
    build.index_sources(jobs, world.workshop(), declared=BOTH, full=True, refresh=Changing(world, 1))
    assert world.ids() == ["hr/b.md"]  # the others are labelled below what the envelope of now asks for
    assert world.changes[-1].document_id == "other/x.md"
    assert {row.source for row in world.manifest.rows(TENANT, "g-000003")} == {"docs"}


@pytest.mark.parametrize("calm", [0, 1])
def test_sources_that_change_on_the_way_back(world: World, calm: int) -> None:
    world.write("labels.yaml", HR_ONLY)
    jobs = [*world.jobs(), other_job(world)]
    build.index_sources(jobs, world.workshop(), declared=BOTH)
    build.index_sources(jobs, world.workshop(), declared=BOTH, full=True)
    roll_back(jobs, TENANT, world.workshop(), declared=BOTH, refresh=Changing(world, calm))
    assert world.ids() == ["hr/b.md"]  # the others are labelled below what the envelope of now asks for
    assert ("other/x.md", None) in [(one.document_id, one.new) for one in world.changes[-4:]]
