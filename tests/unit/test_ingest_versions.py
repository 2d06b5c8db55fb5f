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
from router.domain import LabelChange, Search, Source
from router.errors import SourceError, UsageError
from router.filters import And, EntityType, Field, Has, Overlaps
from router.ingest.build import index_sources
from router.ingest.generations import roll_back
from router.ingest.reconcile import forget_document, verify_index
from router.ingest.versions import (
    SINCE,
    UNTIL,
    Version,
    is_version,
    narrowest,
    parse_version,
    replaced_at_ms,
    version_json,
    version_key,
    version_labels,
    versions_of,
)
from router.ingest.workshop import SourceJob, Workshop
from tests.ingest_world import DOCUMENT, RULES, TENANT, Shelf, World, embedder
from tests.unit.test_ingest_build import Breaking, Killed

SPANNED = EntityType("Document", {**DOCUMENT.fields, UNTIL: Field("long", required=False)})
MOST = 3


class Versioned(World):
    """A world whose source keeps versions."""

    keep = MOST

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.store = SqliteDocuments(root / "store", lambda: SPANNED)

    def workshop(self, **more: Any) -> Workshop:
        return replace(super().workshop(**more), entity=SPANNED)

    def jobs(self) -> list[SourceJob]:
        return [replace(job, keep_versions=self.keep) for job in super().jobs()]

    def labels(self) -> dict[str, Any]:
        found = {}
        for info in self.store.documents(TENANT):
            (stored,) = self.load(f"{info.document_id}#0")
            found[info.document_id.removeprefix("docs/")] = stored.labels
        return found

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
    assert {**after.labels, UNTIL: 0} == {**before.labels, UNTIL: 0}
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
    assert all(labels[one][UNTIL] == labels[two][SINCE] for one, two in itertools.pairwise(kept))
    assert all(labels[one][SINCE] < labels[one][UNTIL] for one in kept)


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
    """Front matter of a later text narrows what was kept before it, in the run that reads it."""
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    world.rewrite("a.md", "---\ngroups: [corp:hr]\nsensitivity: restricted\n---\n# Leave\n\nSecret.\n")
    world.index()
    kept = world.versions("a.md")
    assert len(kept) == 2
    for one in kept:
        assert (world.labels()[one]["groups"], world.labels()[one]["sensitivity"]) == (frozenset({"corp:hr"}), 3)
    whole(world)
    world.rewrite("a.md", "# Leave\n\nOpen again.\n")
    world.index()
    labels = [world.labels()[one] for one in world.versions("a.md")]
    assert [one["sensitivity"] for one in labels] == [1, 1, 3], "its own front matter stays with each"
    whole(world)


class _Watched:
    """A store that looks at the labels of versions whenever a document is written."""

    def __init__(self, store: Any, world: Versioned) -> None:
        self._store, self._world, self.seen = store, world, list[list[int]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, tenant: str, documents: Any, **more: Any) -> None:
        self._store.put(tenant, documents, **more)
        labels = self._world.labels()
        self.seen.append([labels[one]["sensitivity"] for one in self._world.versions("a.md")])


def test_versions_are_narrowed_before_and_widened_after(world: Versioned) -> None:
    """While a text is replaced, what is kept of it is under the labels of before and of after."""
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    watched = _Watched(world.store, world)
    world.wrap = lambda name, port: watched if name == "store" else port
    world.rewrite("a.md", "---\nsensitivity: restricted\n---\n# Leave\n\nSecret.\n")
    world.index()
    assert watched.seen == [[3, 3], [3, 3]], "narrowed before anything of the new text is there"
    watched.seen.clear()
    world.rewrite("a.md", "# Leave\n\nOpen again.\n")
    world.index()
    assert watched.seen == [[3, 3, 3], [3, 3, 3]], "not widened before the new text is there"
    assert [world.labels()[one]["sensitivity"] for one in world.versions("a.md")] == [1, 1, 3]


def test_an_edition_that_is_declassified_with_its_new_text(world: Versioned) -> None:
    world.write("labels.yaml", RULES.replace("corp:all, corp:hr", "corp:hr").replace("internal", "restricted"))
    world.index()
    world.write("labels.yaml", RULES)
    world.rewrite("a.md", "# Leave\n\nPublic edition.\n")
    world.index()
    (kept,) = world.versions("a.md")
    labels = world.labels()
    assert (labels[kept]["groups"], labels[kept]["sensitivity"]) == (frozenset({"corp:hr"}), 3)
    assert (labels["a.md"]["sensitivity"], labels["b.md"]["sensitivity"]) == (1, 1)
    whole(world)


def test_relaxed_rules_of_a_file_that_was_only_touched(world: Versioned) -> None:
    world.write("labels.yaml", RULES.replace("internal", "restricted"))
    world.index()
    world.write("labels.yaml", RULES)
    world.write("a.md", (world.docs / "a.md").read_bytes(), old=False)
    world.index()
    assert world.labels()["a.md"]["sensitivity"] == 1
    assert world.ids() == ["a.md", "b.md"]
    whole(world)


def test_labels_that_cannot_be_combined_let_a_version_go(world: Versioned) -> None:
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    world.write("labels.yaml", RULES + "  - { match: 'a.md', owner: legal }\n")
    world.index()
    assert world.ids() == ["a.md", "b.md"]
    whole(world)


def test_an_owner_that_changes_with_the_text(world: Versioned) -> None:
    world.write("labels.yaml", RULES + "  - { match: 'a.md', owner: legal }\n")
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    report = world.index()
    assert world.ids() == ["a.md", "b.md"]
    assert [note.reason for note in report.notes] == ["version_not_kept"]
    whole(world)


@pytest.mark.parametrize("how", ["gone", "not_labelled", "not_readable"])
def test_what_takes_the_document_takes_its_versions(world: Versioned, how: str) -> None:
    world.rewrite("a.md", "# Leave\n\nThirty-two days a year.\n")
    world.index()
    if how == "gone":
        (world.docs / "a.md").unlink()
    elif how == "not_labelled":
        world.write("labels.yaml", RULES.replace("**", "b.*"))
    else:
        world.rewrite("a.md", "")
    world.index()
    assert world.ids() == ["b.md"]
    assert not any(is_version(one.key) for one in world.manifest.gone()), "only the document is remembered"
    assert verify_index(world.jobs(), world.workshop()) == []


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


def _start(root: Path) -> Versioned:
    world = Versioned(root)
    world.write("labels.yaml", RULES)
    for name in ("a.md", "b.md"):
        world.write(name, f"# {name}\n\nText of {name}.\n")
    world.index()
    world.rewrite("a.md", "# a\n\nSecond text.\n")
    world.index()
    world.rewrite("a.md", "---\nsensitivity: restricted\n---\n# a\n\nThird text.\n")
    world.rewrite("b.md", "# b\n\nOther text of b.\n")
    world.write("labels.yaml", RULES.replace("corp:all, corp:hr", "corp:hr"))
    return world


def _contents(world: Versioned) -> list[Any]:
    labels = world.labels()
    return sorted(
        (key.partition("@@")[0], is_version(key), world.text(key), sorted(labels[key]["groups"]), labels[key]["sensitivity"])
        for key in world.ids()
    )


@pytest.mark.parametrize("full", [False, True])
def test_crash_anywhere_while_keeping(tmp_path: Path, full: bool) -> None:
    calm = _start(tmp_path / "calm")
    counting = Breaking(0, after=False)
    calm.wrap = counting.wrap
    calm.index(full=full)
    wanted, number = _contents(calm), counting.calls
    assert [item[:3] for item in wanted if item[1]] == [
        ("a.md", True, "Second text."), ("a.md", True, "Text of a.md."), ("b.md", True, "Text of b.md."),
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


class Office:
    """`under` are the groups under which each text was ever indexed, `erased` what was forgotten."""

    def __init__(self, root: Path) -> None:
        self.store = SqliteDocuments(root / "store", lambda: SPANNED)
        self.manifest = open_manifest(f"sqlite:///{root}/manifest.sqlite")
        self.shelf, self.number, self.clock_ms = Shelf(), 0, 1_800_000_000_000
        self.under: dict[str, set[str]] = {}
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

    def check(self) -> None:
        versions = {info.document_id for info in self.store.documents(TENANT) if is_version(info.document_id)}
        for group in GROUPS:
            f = And((Has("groups"), Overlaps("groups", frozenset({group}))))
            vector = embedder().embed_question("text", None).vector  # type: ignore[arg-type]
            found = self.store.search(Search(TENANT, f, "text", vector, embedder().card.id, 100, 10.0))
            names = sorted({candidate.document_id for candidate in found.candidates})
            for item in self.store.load(TENANT, [f"{name}#0" for name in names], f, deadline_s=10.0):
                key, text = item.chunk.document_id.removeprefix("docs/").partition("@@")[0], item.chunk.text
                assert key in self.shelf.held, "a version outlived its document"
                assert group in self.shelf.held[key][1], "a version is shown to whom its document is denied"
                assert group in self.under[text], "a text is shown to whom it never was"
                assert text not in self.erased, "a forgotten text came back"
        by_key = versions_of(self.manifest.rows(TENANT, self.store.generation(TENANT) or ""))
        assert {row.document_id for its in by_key.values() for row in its} == versions
        assert all(len(its) <= 2 for its in by_key.values())
        assert self.shown == {info.document_id: info.label_digest for info in self.store.documents(TENANT)}
        assert verify_index(self.jobs(), self.workshop()) == []


KEYS = st.sampled_from(["one", "two"])
SOME_GROUPS = st.lists(st.sampled_from(GROUPS), unique=True, min_size=1, max_size=3).map(tuple)
STEPS = st.one_of(
    st.tuples(st.just("write"), KEYS, SOME_GROUPS),
    st.tuples(st.just("label"), KEYS, SOME_GROUPS),
    st.tuples(st.just("remove"), KEYS),
    st.tuples(st.just("forget"), KEYS),
    st.tuples(st.just("index")),
    st.tuples(st.just("full")),
    st.tuples(st.just("back")),
)


def _take(office: Office, step: tuple[Any, ...]) -> bool:
    """Whether askers must see what is so now."""
    held = office.shelf.held
    match step:
        case ("write", key, groups):
            office.number += 1
            held[key] = f"text number {office.number} of {key}", groups
        case ("label", key, groups) if key in held:
            held[key] = held[key][0], groups
        case ("remove", key):
            held.pop(key, None)
        case ("forget", key) if any(info.document_id == f"docs/{key}" for info in office.store.documents(TENANT)):
            f = And((Has("groups"), Overlaps("groups", frozenset(GROUPS))))
            done = forget_document(office.source, f"docs/{key}", office.workshop(), office.shelf)
            assert not office.store.load(TENANT, [f"{name}#0" for name in done.documents], f, deadline_s=10.0)
            office.erased |= {text for text in office.under if text.endswith(f"of {key}") and _is_buried(office, text)}
            assert not [info for info in office.store.documents(TENANT) if info.document_id.startswith(f"docs/{key}")]
        case ("index",) | ("full",) | ("back",):
            for text, groups in held.values():
                office.under.setdefault(text, set()).update(groups)
            if step == ("back",):
                return _back(office)
            index_sources(office.jobs(), office.workshop(), full=step == ("full",), declared=frozenset({"docs"}))
            return True
    return False


def _is_buried(office: Office, text: str) -> bool:
    return hashlib.sha256(text.encode()).hexdigest() in office.manifest.buried(TENANT, "docs")


def _back(office: Office) -> bool:
    try:
        roll_back(office.jobs(), TENANT, office.workshop(), declared=frozenset({"docs"}))
    except (UsageError, SourceError) as refused:
        if refused.code not in ("generation_none", "store_missing"):
            raise
        return False
    return True


@settings(max_examples=20)
@given(st.lists(STEPS, min_size=3, max_size=14))
def test_no_version_shows_what_the_document_denies(steps: list[tuple[Any, ...]]) -> None:
    """Any order of changes of text and labels, removals, erasures, runs, builds and ways back."""
    begun = [("write", "one", ("corp:a", "corp:b")), ("index",), ("write", "one", ("corp:a",)), ("index",)]
    with tempfile.TemporaryDirectory() as folder:
        office = Office(Path(folder))
        for step in [*begun, *steps, ("index",)]:
            if _take(office, step):
                office.check()


# --- labels alone -----------------------------------------------------------------------------------------------------

LABELS = st.fixed_dictionaries(
    {
        "groups": st.frozensets(st.sampled_from(GROUPS)),
        "sensitivity": st.integers(0, 3),
    },
    optional={
        SINCE: st.integers(0, 100),
        UNTIL: st.integers(0, 100),
        "owner": st.sampled_from(["hr", "it"]),
    },
)


@given(
    LABELS, st.lists(LABELS, min_size=1, max_size=2), st.none() | st.integers(0, 100), st.integers(0, 100), st.integers(0, 100)
)
def test_labels_are_the_strictest(own: Any, living: Any, since_ms: int | None, until_ms: int, now_ms: int) -> None:
    version = parse_version(version_json(Version(own, since_ms, until_ms)))
    assert version == Version(own, since_ms, until_ms)
    found = version_labels(version, living, now_ms)
    others = [own, *living]
    if len({one.get("owner") for one in others}) > 1:
        assert found is None
        return
    assert found is not None
    assert found["groups"] == frozenset.intersection(*(one["groups"] for one in others))
    assert found["sensitivity"] == max(one["sensitivity"] for one in others)
    assert found[UNTIL] == min([until_ms, *(one[UNTIL] for one in others if UNTIL in one)])
    later = [one[SINCE] for one in living if one.get(SINCE, 0) > now_ms]
    starts = [*later, *([own[SINCE]] if SINCE in own else []), *([] if since_ms is None else [since_ms])]
    assert found.get(SINCE) == max(starts, default=None)


def test_a_version_ends_when_the_next_one_says_that_it_begins() -> None:
    assert replaced_at_ms({}, {SINCE: 50}, 100) == 50
    assert replaced_at_ms({SINCE: 50}, {SINCE: 50}, 100) == 100
    assert replaced_at_ms({SINCE: 50}, {SINCE: 40}, 100) == 100
    assert replaced_at_ms({}, {SINCE: 150}, 100) == 100


def test_true_is_no_number() -> None:
    assert narrowest({"owner": "1"}, {"owner": "1"}) == {"owner": "1"}
    assert narrowest({"final": True}, {"final": 1}) is None


def test_keys_sort_by_time() -> None:
    keys = [version_key("a", at) for at in (0, 1, 15, 16, 1_800_000_000_000, 2**47)]
    assert keys == sorted(keys)
    assert all(map(is_version, keys))
    assert not is_version("a@@b")
