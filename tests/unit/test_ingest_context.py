"""Structural contexts: what is read of a document, that they fit, and that they are searched and never shown."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.folder import Folder
from connectors.local_models import WordPiece
from router import rank
from router.app import Router, make_development_issuer
from router.config import FILE_NAME, load_settings
from router.domain import Chunk, Content, Entry, RawLabels, Search, Span, Stored, twin_id
from router.filters import Eq
from router.ingest.chunk import build_chunks, chunk_plain, embed_text
from router.ingest.code import read_code
from router.ingest.context import (
    CONTEXT_TOKENS,
    Around,
    code_context,
    read_code_around,
    read_outline,
    read_prose_around,
    with_contexts,
)
from router.ingest.make import _whole
from router.ingest.markup import read_markdown
from router.ingest.reconcile import forget_document, verify_index
from router.ingest.workshop import PIPELINE, Contexts, SourceJob
from router.starter import write_starter
from tests.ingest_world import RULES, TENANT, World, embedder

LIMIT = 256


@cache
def words() -> WordPiece:
    return WordPiece(Path(__file__).parents[2] / "router" / "model" / "vocab.txt")


def count(text: str) -> int:
    return words().count(text)


def chunk(text: str, line: int | None = None, path: tuple[str, ...] = ()) -> Chunk:
    span = Span(lines=(line, line)) if line else Span()
    return Chunk("s/a#0", "s/a", "s", 0, "", path, text, "code", "file:///a", span)


# --- what is read of a file -------------------------------------------------------------------------------------------

RUST = """//! Watches the press. struct NotAType {
use std::fmt;

pub struct PressGuard<T> { inner: T }
pub(crate) enum Verdict { Stop, Go }
struct Marker;

impl<T: fmt::Debug> PressGuard<T> {
    pub fn arm(&mut self) -> bool {
        let record = self.inner;
        true
    }
}

impl<T> fmt::Display for PressGuard<T>
where
    T: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result { Ok(()) }
}
"""
CASES = [
    (RUST, [("PressGuard",), ("Verdict",), ("PressGuard",), ("PressGuard", "Display")], ["arm", "fmt"]),
    ("class A(Base):\n    def run(self):\n        type = 1\n\nasync def go():\n    pass\n", [("A",)], ["run", "go"]),
    ("package p;\npublic final class Tank extends Vat {\n  private static int level(int x) {\n  }\n}\n", [("Tank",)], ["level"]),
    ("public record Point(int x) {}\nrecord found = make();\nsealed interface Shape permits A {}\n", [("Point",), ("Shape",)], []),
    ("type Pump struct {\n}\nfunc (p *Pump) Start(x int) error {\n}\nfunc helper() {\n}\n", [("Pump",), ("Pump",)], ["Start", "helper"]),
    ("export interface Opts {\n}\ntype Id = string\nexport const load = async (x) => {\n}\n", [("Opts",), ("Id",)], ["load"]),
    ("class Fwd;\nclass API_EXPORT Valve : public Part {\n};\nint Valve::turn(int by)\n{\n}\n", [("Valve",), ("Valve",)], ["turn"]),
    ("struct in_addr addr;\nstatic int both(const char *a,\n                int n) {\n  return call(a);\n}\n", [], ["both"]),
    ("create table if not exists claims (id int);\n-- create table no (x int)\n", [("claims",)], []),
    ("TEST(PressTest, Stops) {\n}\n", [], ["PressTest Stops"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "types", "functions"), CASES)
def test_types_and_functions_of_ten_languages(text: str, types: list[tuple[str, ...]], functions: list[str]) -> None:
    outline = read_outline(text)
    assert [names for _, names in outline.scopes] == types
    assert [name for _, name in outline.functions] == functions


def test_a_chunk_is_told_its_file_and_its_place() -> None:
    text = "\n".join(f"class T{at} {{\n  public void go{at}() {{\n  }}\n}}" for at in range(9))
    outline = read_outline(text)
    assert code_context(outline, 3) == "T0 T1 T2 go0"
    assert code_context(outline, 31) == "T0 T1 T2 T5 T6 T7 go7"
    assert code_context(outline, 31, ("T7", "T7.go7")) == "T0 T1 T2 T5 T6", "not what stands in front of the chunk anyway"
    functions = read_outline("def a():\n  1\ndef b():\n  2\ndef c():\n  3\ndef d():\n  4\n")
    assert code_context(functions, 8) == "d a b c", "a file of functions is known by them"


def test_prose_is_told_facts_and_other_headings() -> None:
    around = read_prose_around(
        ["Press 300", "Seals", "Knife  PN-53020", "Seals"], {"Product": "Press 300", "author": "Ada", "date": "x"}
    )
    said = Chunk("s/a#0", "s/a", "s", 0, "Service", ("Seals",), "text", "prose", "file:///a", Span())
    (told,) = with_contexts([said], around, count)
    assert told.context == "Press 300; Knife PN-53020"
    assert read_prose_around(["Only one"], {"author": "Ada"}) == Around()


def test_windows_of_a_passage_are_found_in_the_whole() -> None:
    whole = "class First {\n" + "  int a;\n" * 40 + "}\nclass Second {\n" + "  int b;\n" * 40 + "}\n"
    told = with_contexts(
        [chunk("int a;"), chunk("class Second {"), chunk("int b;"), chunk("nowhere")], read_code_around(whole), count
    )
    assert [item.context for item in told] == ["First Second"] * 4
    around = read_code_around(whole.replace("class Second", "def second()"))
    assert [item.context for item in with_contexts([chunk("int a;"), chunk("int b;")], around, count)] == [
        "First",
        "First second",
    ]


# --- they fit, and cost little ----------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        RUST,
        "class Longest" + "x" * 200 + ":\n    pass\n",
        "def f():\n    return 1\n\n",
        "struct A { int b; };\n",
        "\n",
        "x = 1\n" * 90,
    ]
)


@settings(deadline=None, max_examples=30)
@given(st.lists(PIECES, min_size=1, max_size=12), st.sampled_from(["python", "rust", "cpp", "java"]))
def test_context_and_text_fit_the_model(pieces: list[str], language: str) -> None:
    parsed = read_code("".join(pieces), language)
    if not parsed.blocks:
        return
    around = read_code_around(_whole(parsed.blocks))
    room = LIMIT - around.reserve_tokens
    made = build_chunks(parsed, source="s", key="a/b.py", uri="file:///a", count=count, max_tokens=room)
    for item in with_contexts(made, around, count):
        assert count(item.context) <= CONTEXT_TOKENS
        assert count(embed_text(item, count, room)) <= LIMIT - 2


def test_prose_contexts_fit_too() -> None:
    text = "# Handbook\n\n" + "".join(f"## Heading {at} {'long ' * at}\n\n{'word ' * 300}\n\n" for at in range(12))
    parsed = read_markdown(text)
    around = read_prose_around(
        [block.text for block in parsed.blocks if block.kind == "heading"], {"tags": "x " * 500, "year": "2026"}
    )
    room = LIMIT - around.reserve_tokens
    made = with_contexts(build_chunks(parsed, source="s", key="a.md", uri="u", count=count, max_tokens=room), around, count)
    assert all(count(embed_text(item, count, room)) <= LIMIT - 2 for item in made)
    assert all(item.context.startswith("2026") for item in made)


def test_windows_fit_the_model() -> None:
    """Dense text, as code is, gives more word pieces a character than prose."""
    code = "".join(f"    self.max_retry_count[{at}] = (x{at} << 3) ^ y[{at}];\n" for at in range(200))
    windows = chunk_plain("", code, count=count, max_tokens=LIMIT)
    assert all(count(window) <= LIMIT - 2 for window in windows)
    assert "".join("".join(windows).split()).count("max_retry_count[7]") >= 1


HOSTILE = [
    "a" * 500_000,
    "class " * 60_000,
    "pub " * 100_000 + "\n" * 1_000,
    "impl " + "<" * 290 + "\n",
    "f(a, " * 59 + "\n",
    "int f(\n" * 20_000,
    "a b " * 74 + "(\n",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_takes_linear_time(text: str) -> None:
    whole = text if len(text) > 400_000 or text.count("\n") > 10_000 else text * (200_000 // len(text) + 1)
    began = time.perf_counter()
    read_outline(whole[: len(whole) // 2])
    half = time.perf_counter() - began
    began = time.perf_counter()
    read_outline(whole)
    assert time.perf_counter() - began < max(4 * half, 0.2) + 1.0
    assert time.perf_counter() - began < 6.0


def test_many_chunks_and_headings_take_linear_time() -> None:
    """Neither a page of twenty thousand headings nor a file of as many types is gone through once more for each chunk."""
    pages = [Chunk(f"s/a#{at}", "s/a", "s", at, "", (f"H {at}",), "x", "prose", "u", Span()) for at in range(20_000)]
    began = time.perf_counter()
    told = with_contexts(pages, read_prose_around((f"H {at}" for at in range(20_000)), {}), len)
    whole = "".join(f"class T{at} {{\n}}\n" for at in range(20_000))
    code = with_contexts(
        [chunk("x", 2 * at + 1) for at in range(20_000)], read_code_around(whole), lambda text: text.count(" ") + 1
    )
    assert time.perf_counter() - began < 20.0
    assert told[9].context.startswith("H 0; H 1; H 2; ")
    assert code[9_000].context == "T0 T1 T2 T8998 T8999 T9000"


@given(st.text(max_size=400), st.integers(0, 50))
def test_any_text_has_an_outline(text: str, line: int) -> None:
    outline = read_outline(text)
    assert outline == read_outline(text)
    assert isinstance(code_context(outline, line), str)


def test_a_context_knows_its_own_document_only(world: World) -> None:
    """The same file beside others has the same contexts, byte for byte."""
    world.write("press.rs", RUST * 3)
    world.index()
    alone = contexts_of(world, "press.rs")
    assert any("Verdict" in context for context in alone)
    world.write("secret.rs", "struct Merger { x: u8 }\nimpl Merger {\n fn close() {}\n}\n" * 9)
    world.write("press2.rs", RUST * 3)
    world.index(full=True)
    assert contexts_of(world, "press.rs") == alone
    assert not any("Merger" in context for context in contexts_of(world, "press2.rs"))


# --- built, changed, forgotten ----------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write("labels.yaml", RULES)
    return made


def speaking(world: World, contexts: Contexts) -> World:
    world.jobs = lambda: [SourceJob(world.source, Folder(world.docs), contexts)]  # type: ignore[method-assign]
    return world


def chunks_of(world: World, key: str, *, twins: bool = False) -> list[Stored]:
    (info,) = [info for info in world.store.documents(TENANT) if info.document_id == f"docs/{key}"]
    ids = [f"docs/{key}#{at}" for at in range(info.chunks)]
    found: list[Stored] = world.load(*map(twin_id, ids)) if twins else world.load(*ids)
    return found


def contexts_of(world: World, key: str, *, twins: bool = False) -> list[str]:
    return [stored.chunk.context for stored in chunks_of(world, key, twins=twins)]


def search(world: World, text: str, plain: frozenset[str] = frozenset()) -> list[str]:
    found = world.store.search(Search(TENANT, Eq("sensitivity", 1), text, None, "", 50, 5.0, plain))
    return [candidate.chunk_id for candidate in found.candidates]


PAGE = (
    "---\nproduct: Press 300\n---\n# Service\n\n## Seals\n\n"
    + "Thirty days. " * 40
    + "\n\n## Knife\n\n"
    + "Two screws. " * 40
    + "\n"
)


def test_none_structure_and_both(world: World) -> None:
    """A plain index, a contextual one, or both; a change makes documents anew, the next run nothing."""
    world.write("a.md", PAGE)
    speaking(world, "none").index()
    assert contexts_of(world, "a.md") == ["", ""]
    assert search(world, "Press 300") == []
    for contexts, twins in (("structure", []), ("both", ["Press 300; Knife", "Press 300; Seals"])):
        report = speaking(world, contexts).index()  # type: ignore[arg-type]
        assert (report.indexed, report.unchanged) == (1, 0)
        assert contexts_of(world, "a.md", twins=True) == twins
        assert contexts_of(world, "a.md") == (["", ""] if twins else ["Press 300; Knife", "Press 300; Seals"])
        assert (world.index().indexed, world.index().unchanged) == (0, 1)
        assert verify_index(world.jobs(), world.workshop()) == []
    assert [stored.chunk.text for stored in chunks_of(world, "a.md")] == [
        stored.chunk.text for stored in chunks_of(world, "a.md", twins=True)
    ]
    assert search(world, "Press 300") == ["docs/a.md#0c", "docs/a.md#1c"]
    assert search(world, "Press 300", frozenset({"docs"})) == []
    assert search(world, "seals", frozenset({"docs"})) == ["docs/a.md#0"]
    speaking(world, "none").index()
    assert search(world, "Press 300") == []


def test_a_change_of_version_makes_contexts_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one document after the other, when a run was interrupted between."""
    world.write("a.md", PAGE)
    world.write("b.md", PAGE.replace("300", "400"))
    world.index()
    assert (world.index().unchanged, SourceJob(world.source, Folder(world.docs), "none").pipeline) == (2, PIPELINE)
    monkeypatch.setattr("router.ingest.workshop.CONTEXT_VERSION", "structure.next")
    assert [finding.kind for finding in verify_index(world.jobs(), world.workshop())] == ["changed", "changed"]
    assert world.index().indexed == 2
    monkeypatch.undo()
    assert world.index().indexed == 2
    assert world.index().unchanged == 2


def test_labels_change_on_both_without_reading(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("a.md", PAGE)
    speaking(world, "both").index()
    world.write("labels.yaml", RULES.replace("internal", "confidential"))
    monkeypatch.setattr("router.ingest.parse.Parser.start", lambda *_: pytest.fail("parsed"))
    assert world.index().relabelled == 1
    assert {stored.labels["sensitivity"] for stored in (*chunks_of(world, "a.md"), *chunks_of(world, "a.md", twins=True))} == {2}


def test_forget_removes_contexts(world: World) -> None:
    world.write("a.md", PAGE.replace("Press 300", "Zygomorphic 9"))
    world.write("b.md", "# Other\n\nStays.\n")
    speaking(world, "both").index()
    world.index(full=True)
    store = b"".join(path.read_bytes() for path in (world.root / "store").glob("*/g-*"))
    assert b"Zygomorphic 9" in store
    assert forget_document(world.source, "docs/a.md", world.workshop()).generations == 2
    store = b"".join(path.read_bytes() for path in (world.root / "store").glob("*/g-*"))
    assert b"ygomorph" not in store
    assert world.ids() == ["b.md"]


def test_a_chunk_without_a_context_is_embedded_once(world: World) -> None:
    world.write("a.md", "# Leave\n\nThirty days a year.\n")
    asked: list[int] = []

    class Models:
        card, count_tokens = embedder().card, staticmethod(embedder().count_tokens)

        def embed_chunks(self, texts: Any, purpose: Any) -> Any:
            asked.append(len(texts))
            return embedder().embed_chunks(texts, purpose)

    assert speaking(world, "both").index(models=Models()).chunks == 2
    assert asked == [1]


# --- searched and never shown -----------------------------------------------------------------------------------------


class Passages:
    """A passage and the whole that it was cut from; beside it one that was not cut from what is said."""

    def entries(self) -> Iterator[Entry]:
        yield Entry("one", 1, "1", "file:///one")
        yield Entry("two", 1, "1", "file:///two")

    def labels(self, entry: Entry) -> RawLabels:
        return RawLabels(({"groups": ["dev:readers"], "sensitivity": "internal"},))

    def read(self, entry: Entry) -> Content:
        whole = "class HydraulicPress {\n  int first() {\n    return 1;\n  }\n  int second() {\n    return oil();\n  }\n}\n"
        text = "    return oil();\n" if entry.key == "one" else "words of something else"
        return Content(text.encode(), entry.key, "1", ready=True, passage=True, within=whole)


def test_a_context_is_searched_and_never_evidence(tmp_path: Path) -> None:
    """Nothing of it stands in an answer, in whatever field, nor in the record."""
    write_starter(tmp_path / "w", tenant="eval", group="readers", sensitivity="internal")
    configured = load_settings(tmp_path / "w" / FILE_NAME)
    make_development_issuer(configured)
    ungated = configured.search.model_copy(update={"relevance": "off"})  # a name that stands in no text is no answer
    with Router(configured.model_copy(update={"search": ungated})) as router:
        source = router.policies.current().sources["documents"]
        router.index_jobs([SourceJob(source, Passages())])
        answer = router.ask("HydraulicPress", token=router.mint("ada"), route="documents")
        assert (answer.passages[0].document_id, answer.passages[0].why) == ("documents/one", ("dense", "lexical"))
        assert answer.passages[0].text.strip() == "return oil();"
        body = answer.as_json()
        body.pop("notes", None)  # which say that the question's own word stands in none of the passages
        said = json.dumps(body).casefold()
        assert [passage.why for passage in answer.passages[1:]] == [("dense",)], "a passage of something else is told nothing"
        assert "hydraulicpress" not in said
        assert "second" not in said
        bodies = [record.body for _, record in router.ledger.read("eval")]
        assert not any(b"ydraulic" in body for body in bodies)


def test_a_context_is_no_identifier_and_no_title() -> None:
    """The rerank's words are those of title and text; only the vectors have read the context, as was measured."""
    told = Chunk("s/a#0", "s/a", "s", 0, "Pump", (), "text", "prose", "u", Span(), context="ERR-4012 harrow")
    stored = [Stored(told, {}, b"", b"", 1.0)]
    assert rank._identifier_share("what is ERR-4012", stored) == [0.0]
